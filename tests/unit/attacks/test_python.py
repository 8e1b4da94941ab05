"""Slips of those who call hwopt from Python: each once a raw AttributeError or a silent answer, now one line of `UserError`."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.errors import UserError
from hwopt.model.estimate import estimate
from hwopt.trace.cache import evaluate_in_numpy
from objectives.train_cost import TrainCost
from tests.rotation import rotated


def refused(match: str, call, *arguments, **named) -> None:
    with pytest.raises(UserError, match=match) as caught:
        call(*arguments, **named)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("call", ["optimize", "sweep", "sensitivity", "frontier"])
@pytest.mark.parametrize(
    ("objective", "said"),
    [
        ("train_cost", r"pass hwopt\.objective\('train_cost'\)"),
        (None, "None is not a design question"),
        (3, "3 is not a design question"),
        (TrainCost, r"TrainCost is a class: .* TrainCost\(\)"),
        (TrainCost(power_budget_w="40e6"), "power_budget_w = '40e6' must be a number, without quotes"),
        (TrainCost(power_budget_w=None), "power_budget_w = None must be a number"),
    ],
)
def test_what_is_no_question(call, objective, said):
    more = {"frontier": ({},), "sweep": (10,)}.get(call, ())
    refused(rf"^{call}: .*{said}", getattr(hwopt, call), objective, *more)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"seconds": -1}, "seconds = -1 must be above zero"),
        ({"seconds": 0}, "seconds = 0 must be above zero"),
        ({"seconds": math.nan}, "seconds = nan must be above zero"),
        ({"seconds": "5"}, "seconds = '5' must be a number, without quotes"),
        ({"seconds": None}, "seconds = None"),
        ({"seed": "x"}, "seed = 'x' must be an integer"),
        ({"seed": 1.5}, "seed = 1.5"),
        ({"seed": True}, "seed = True"),
        ({"freeze": "chip"}, r"freeze = 'chip': pass a list of names, such as \['chip'\]"),
        ({"freeze": None}, "freeze = None"),
        ({"freeze": [3]}, "freeze: 3 is not a name"),
        ({"bounds": {"tp": 8}}, "bounds of 'tp' = 8: pass a lower and an upper bound"),
        ({"bounds": {"tp": ("a", "b")}}, "bounds of 'tp' = 'a' must be a number"),
        ({"bounds": {"tp": (16, 8)}}, "bounds of 'tp' = 16:8 are reversed; write 8:16"),
        ({"bounds": ["tp"]}, "pass a dictionary"),
        ({"bounds": "tp=8:8"}, "pass a dictionary"),
        ({"regime": None}, "unknown regime 'None': known: certified"),
    ],
)
def test_levers_of_optimize(named, said):
    refused(said, hwopt.optimize, hwopt.objective("train_cost"), **named)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"freeze": "chip"}, "pass a list"),
        ({"bounds": {"tp": 8}}, "a lower and an upper"),
        ({"grid": "chips"}, "grid: pass a dictionary"),
        ({"choices": ["chip"]}, "choices: pass a dictionary"),
        ({"choices": {"chip": "b200"}}, r"choices: chip = 'b200': pass a list of names, such as \['b200'\]"),
        ({"table": {"chips": None}}, "table: pass a CSV file, or a dictionary"),
        ({"metrics": "mfu"}, "metrics = 'mfu': pass a list"),
        ({"pareto": "mfu"}, "pareto = 'mfu': pass a list"),
        ({"map_of": "chips"}, "map = 'chips': pass a list"),
        ({"gradients": "chips"}, "gradients = 'chips': pass a list"),
        ({"within": "1.1"}, "within = '1.1' must be a number, without quotes"),
        ({"out": 3}, "sweep: out 3: must name a file or a folder"),
        ({"out": ""}, "sweep: out '': must name a file or a folder"),
        ({"out": "a\0b"}, r"sweep: out a\\x00b: cannot be used .*embedded null (byte|character)"),
        ({"out": "a" * 300}, "File name too long"),
    ],
)
def test_levers_of_sweep(named, said):
    samples = () if {"grid", "table"} & named.keys() else (10,)
    refused(said, hwopt.sweep, hwopt.objective("train_cost"), *samples, **named)


def test_budgets_of_a_frontier():
    question = hwopt.objective("train_cost")
    refused("frontier: pass budgets as a dictionary", hwopt.frontier, question, None)
    refused("frontier: power_budget_w = 'a' must be a number", hwopt.frontier, question, {"power_budget_w": ["a"]})
    refused("frontier: seconds = nan", hwopt.frontier, question, {"power_budget_w": [4e7]}, seconds=math.nan)


RUN = catalog.training_run("llama3.1-8b")
CLUSTER = catalog.cluster("h100-sxm", 64)
PLAN = catalog.plan(RUN, 64, tp=8)


@pytest.mark.parametrize("temperature", [-1, -1.0, np.float32(-1), jnp.float32(-1), math.nan, math.inf, "x", True])
def test_temperatures_that_are_none(temperature):
    """-1 once gave a step of 0.02 s."""
    refused("^temperature = ", hwopt.estimate, RUN, CLUSTER, PLAN, temperature=temperature)


def test_a_traced_temperature_passes():
    slope = jax.jit(jax.grad(lambda t: hwopt.estimate(RUN, CLUSTER, PLAN, temperature=t).step_time_s))(0.01)
    assert math.isfinite(slope) and slope > 0


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ((None, None, None), "estimate: workload must be a TrainingRun .* created by hwopt.catalog.training_run .*"),
        (("llama3.1-8b", "h100-sxm", "tp=8"), "not 'llama3.1-8b'"),
        ((CLUSTER, RUN, PLAN), "workload must be .* not hwopt.hardware.cluster.Cluster"),
        (
            (RUN, PLAN, CLUSTER),
            "cluster must be a Cluster or ClusterPair or Fleet, created by hwopt.catalog.cluster or",
        ),
        ((RUN, CLUSTER, {"tp": 8}), "plan must be a Plan .* created by hwopt.catalog.plan, not {'tp': 8}"),
        ((RUN, CLUSTER, jax.tree.map(str, PLAN)), "plan.tp = '8.0' must be a real number"),
    ],
)
def test_inputs_of_the_model(inputs, said):
    refused(said, hwopt.estimate, *inputs)
    if inputs[2] is not None and not hasattr(inputs[2], "tp"):
        refused("^elasticities: ", hwopt.elasticities, *inputs)
        refused("^gradient: ", hwopt.gradient, "step_time_s", *inputs)


@pytest.mark.parametrize("wide", rotated([False, True], 2))
def test_half_precision_is_taken_up(wide):
    """Every leaf a floating array: bfloat16 once ended in a TypeError of a library of special functions."""
    halves = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), (RUN, CLUSTER, PLAN))
    with jax.enable_x64(wide):
        step_time_s = jax.jit(lambda: hwopt.estimate(*halves).step_time_s)()  # compiled with its numbers: they fold
    assert step_time_s.dtype == (jnp.float64 if wide else jnp.float32)
    assert math.isclose(step_time_s, evaluate_in_numpy(estimate, RUN, CLUSTER, PLAN).step_time_s, rel_tol=0.02)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: catalog.service("llama3.1-8b", load="x"), "load = 'x' must be a number"),
        (lambda: catalog.service("llama3.1-8b", drafted_tokens=None), "drafted_tokens = None"),
        (lambda: catalog.service("llama3.1-8b", mode=[]), "known: decode, prefill, serve"),
        (lambda: catalog.plan(None, 64), "plan: workload must be a TrainingRun"),
        (lambda: catalog.plan(catalog.service("llama3.1-8b"), 64), "plan: workload must be a TrainingRun"),
        (lambda: catalog.parse_plan(""), "plan: '' is empty"),
        (lambda: catalog.parse_plan(" , "), "is empty"),
        (lambda: catalog.parse_serving_plan(None), "plan: None is empty"),
        (lambda: catalog.record(None, "x"), "unknown kind of catalog entry 'None'"),
    ],
)
def test_the_catalogue(call, said):
    refused(said, call)


QUESTION = hwopt.objective("train_cost")
SERVICE = catalog.service("llama3.1-8b")
TAKES = {
    "best_plan": (RUN, CLUSTER), "calibrate": ("runs.csv",), "check": ("own.toml",), "compare": (QUESTION, ["h100-sxm", "b200"]),
    "confident": (QUESTION, 0.9), "deploy": ("h100-sxm", 8), "elasticities": (RUN, CLUSTER, PLAN), "estimate": (RUN, CLUSTER, PLAN),
    "every_split": (SERVICE, CLUSTER), "fabrics": (RUN, []), "fleet": (RUN, []), "frontier": (QUESTION, {"power_budget_w": [3e7]}),
    "gradient": ("step_time_s", RUN, CLUSTER, PLAN),
    "invest": (QUESTION,), "loss": (QUESTION,), "objective": ("train_cost",), "optimize": (QUESTION,),
    "regret": (None, {"hbm": 0.3}),
    "scale": (RUN, lambda chips: CLUSTER, [8, 16]), "sensitivity": (QUESTION,), "sweep": (QUESTION, 64), "validate": ("runs.csv",),
    "walls": (QUESTION,),
}  # fmt: skip
"""Public function -> arguments that it takes; of answers that take a search, and of lists of machines, none."""

GOOD = {("deploy", 1, 3), ("sweep", 1, 3), ("sweep", 1, None)}


def test_every_public_function_is_in_the_table():
    functions = {name for name in hwopt.__all__ if callable(getattr(hwopt, name)) and name[0].islower()}
    assert functions == TAKES.keys()


@pytest.mark.parametrize("name", TAKES)
@pytest.mark.parametrize(
    "wrong", [None, 3, "x", {}, object(), np.zeros(3), np.array(["x"])], ids=lambda each: type(each).__name__
)
def test_no_argument_of_a_public_function_ends_in_a_raw_error(name, wrong):
    """`regret(None, None)` once said that None has no attribute."""
    for place in range(len(TAKES[name])):
        if not isinstance(wrong, np.ndarray) and isinstance(wrong, int | None) and (name, place, wrong) in GOOD:
            continue
        arguments = [wrong if i == place else each for i, each in enumerate(TAKES[name])]
        refused(".", getattr(hwopt, name), *arguments)
    refused(".", getattr(hwopt, name), *[wrong] * len(TAKES[name]))


@pytest.mark.parametrize("name", [each for each, arguments in TAKES.items() if len(arguments) > 1])
def test_swapped_arguments(name):
    refused(".", getattr(hwopt, name), *reversed(TAKES[name]))


@pytest.mark.parametrize("field", ["global_batch", "sequence_length", "sites", "local_steps", "hbm_stacks_budget"])
@pytest.mark.parametrize("value", [1.5, np.float32(0.5), 8191.999, math.nan])
def test_half_of_what_is_counted(field, value):
    """A batch of 1.5 sequences was once "infeasible, proved"."""
    refused("must be an integer", lambda: TrainCost(**{field: value}))
    with pytest.raises(UserError):
        hwopt.objective("train_cost", **{field: value})


@pytest.mark.parametrize("named", [{"global_batch": 1.5}, {"sequence_length": 4096.5}])
def test_half_of_what_a_run_counts(named):
    refused("must be an integer", catalog.training_run, "llama3.1-8b", **named)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"free": "hbm+"}, "free hbm\\+: an item before or after '\\+' is empty"),
        ({"free": "hbm+hbm"}, "free hbm\\+hbm: 'hbm' is given twice"),
        ({"offload": "weights+weights"}, "'weights' is given twice"),
        ({"offload": "+weights"}, "before or after '\\+' is empty"),
    ],
)
def test_empty_parts_and_repeated_words(named, said):
    refused(said, lambda: hwopt.objective("train_cost", **named).problem())


def test_one_chip_by_two_names_is_one_chip():
    refused("write each value once", hwopt.compare, QUESTION, ["h100-sxm", "H100-SXM-80GB"])


def test_a_box_of_a_count_without_an_integer():
    refused("bounds of 'tp' = 1.5:1.7 contain no integer", hwopt.optimize, QUESTION, bounds={"tp": (1.5, 1.7)})


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ("invest", {"of": ["foo"], "choices": {"chip": ["h100-sxm", "b200"]}}),
        ("sweep", {"within": 1.1, "metrics": ["foo"]}),
        ("sweep", {"within": 1.1, "pareto": ["foo", "run_cost_usd"]}),
        ("sweep", {"within": 1.1, "map_of": ["foo", "chips"]}),
        ("sweep", {"within": 1.1, "gradients": ["foo"]}),
    ],
)
def test_names_are_looked_at_before_any_search(call, named, monkeypatch):
    for path in ("hwopt.solver.optimize.optimize", "hwopt.analysis.marginal_value.optimize"):
        monkeypatch.setattr(path, lambda *_, **__: pytest.fail("searched before all was checked"))
    refused("'foo'", getattr(hwopt, call), QUESTION, **({"samples": 64} if call == "sweep" else {}), **named)


def test_a_folder_of_something_else_is_looked_at_before_any_search(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "hwopt.solver.optimize.optimize", lambda *_, **__: pytest.fail("searched before all was checked")
    )
    (tmp_path / "notes.txt").touch()
    refused("holds something else than a sweep", hwopt.sweep, QUESTION, 64, within=1.1, out=tmp_path)
