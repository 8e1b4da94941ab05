"""Sensitivity as users meet it: elasticities at a point, ranges of the catalogue, the answer as text, JSON and figure."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.analysis.sensitivity import optimum
from hwopt.analysis.sensitivity.ranges import _entry, range_of
from hwopt.cli import main
from hwopt.design.design import with_derived_parts
from hwopt.design.lattices import lattice_of
from hwopt.design.metrics import numbers
from hwopt.design.template_inputs import inputs_of, overwritten, template_inputs
from hwopt.errors import UserError
from hwopt.model.chip.chip_project import installed
from hwopt.model.estimate import estimate
from hwopt.output.answers.sensitivity import sensitivity_answer
from hwopt.output.figures.tornado import plot_tornado
from hwopt.solver.optimum_sensitivity import NoDerivative, point_of
from hwopt.solver.solution import BudgetUse
from hwopt.trace.cache import cached_trace, evaluate_in_numpy
from tests.budgets import LARGE_RUN
from tests.tiers import turn

DESIGN = {
    "tp": 16, "ep": 1, "pp": 8, "virtual_stages": 16, "micro_batch": 1, "dp": 128, "micro_batches": 16, "groups": 1,
    "chips_per_rack": 29, "hbm_stacks": 1, "dies": 1,
}  # fmt: skip
"""A good design of the default question."""


LARGE = [f"--{name.replace('_', '-')}={limit:g}" for name, limit in LARGE_RUN.items()]


@pytest.fixture(scope="module")
def question():
    return hwopt.objective("train_cost", **LARGE_RUN)


def answer(objective, seed=0, progress=False, *, seconds=math.inf, options=None, feasible=True):
    """What `optimize` would say, as far as `sensitivity` asks: the integers of `DESIGN`."""
    problem = objective.problem().continuous
    lattice, built = lattice_of(problem), problem.template
    integers = lattice.design(lattice.point(DESIGN))
    for each in problem.variables:
        if each.name in integers:
            built = each.place.put(built, np.float64(integers[each.name]))
    budgets = [BudgetUse(each.name, 1.0, each.limit, each.metric.unit, 1.0, "", 0.25) for each in problem.budgets]
    built = with_derived_parts(built)
    return SimpleNamespace(
        feasible=feasible, built=built, problem=problem, objective=1e6, budgets=budgets, infeasibility="They clash.",
        report=evaluate_in_numpy(estimate, *built.inputs), headline="Proved.",
    )  # fmt: skip


@pytest.fixture(scope="module")
def found(question):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimum, "optimum_of", answer)
        return hwopt.sensitivity(question)


# At a point.


@pytest.fixture(scope="module")
def machine():
    run = catalog.training_run("llama3.1-8b", global_batch=128)
    cluster = catalog.cluster("h100-sxm", 64)
    return run, cluster, catalog.plan(run, 64, tp=2, pp=2)


def test_elasticities_equal_central_differences(machine):
    metrics = ("step_time_s", "run_cost_usd", "energy_per_token_j")
    held = hwopt.elasticities(*machine, metrics=metrics)
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(machine)]
    starts = np.cumsum([0, *(leaf.size for leaf in leaves)])
    step, count = 1e-5, len(held.inputs)
    points = np.tile(np.concatenate([leaf.ravel() for leaf in leaves]), (1 + 2 * count, 1))
    for i, each in enumerate(held.inputs):
        points[[1 + i, 1 + count + i], starts[each.leaf] + each.element] *= np.exp([step, -step])
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), np.float64), machine)
    report = cached_trace(estimate, *shapes)(list(points.T), len(points))
    moved = np.log([getattr(report, name) for name in metrics])
    base, up, down = moved[:, :1], moved[:, 1 : 1 + count], moved[:, 1 + count :]
    smooth = np.abs(up + down - 2 * base).max(axis=0) <= 5e-5 * step
    np.testing.assert_allclose(held.table[:, smooth], ((up - down) / (2 * step))[:, smooth], atol=3e-5)
    assert smooth.mean() > 0.9
    assert held.metrics["step_time_s"] == pytest.approx(math.exp(base[0, 0]))


QUESTIONS = {
    "training": ("train_cost", {}),
    "mixture of experts": (
        "train_time",
        {"workload": "deepseek-v3", "precision": "fp8", "global_batch": 2048.0, "sequence_length": 8192.0},
    ),
    "serving": ("serve_cost", {}),
    "training and serving": ("train_and_serve", {}),
    "chip design": ("train_cost", {"design": "h100-sxm"}),
}


APART = [name for name in QUESTIONS if name != "training and serving"]  # which is both, and takes the longest
IN_TURN = APART[turn() % len(APART)]


@pytest.mark.parametrize("name", [pytest.param(x, marks=() if x == IN_TURN else pytest.mark.search) for x in QUESTIONS])
def test_elasticities_equal_those_of_jax(name):
    """Every number of the report by every input, against JAX's forward mode: to 1e-9, or 1e-12 where they cancel to 0."""
    question, fields = QUESTIONS[name]
    design = hwopt.objective(question, **fields).problem().continuous.template
    names = numbers(design.workload)
    held = hwopt.elasticities(*design.inputs, project=design.project, metrics=names)
    leaves, tree = jax.tree.flatten(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), design))
    form = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(leaf.shape, np.float64) for leaf in leaves])

    def report(design):
        cluster = design.cluster if design.project is None else installed(design.cluster, design.project)
        report = estimate(design.workload, cluster, design.plan)
        return [jnp.asarray(getattr(report, name)) for name in names]

    count, starts = len(held.inputs), np.cumsum([0, *(leaf.size for leaf in leaves)])
    directions = np.zeros((starts[-1], count))
    for i, each in enumerate(held.inputs):
        directions[starts[each.leaf] + each.element, i] = each.value
    columns = [np.full(count, x) for leaf in leaves for x in leaf.ravel()]
    forward = cached_trace(lambda *of: jax.jvp(report, of[:1], of[1:]), form, form)
    values, slopes = (np.stack(each) for each in forward([*columns, *directions], count))
    np.testing.assert_allclose(list(held.metrics.values()), values[:, 0], rtol=1e-12)
    expected = slopes / np.where(values > 0.0, values, math.nan)
    np.testing.assert_allclose(held.table, expected, rtol=1e-9, atol=1e-12)
    assert (np.abs(held.table) > 1e-6).mean() > 0.07  # percentiles of a machine that is asked for all it can have none


def test_elasticities_are_named_and_sorted(machine):
    held = hwopt.elasticities(*machine, metrics=["run_cost_usd"])
    table = held.of("run_cost_usd")
    assert table["cluster.prices.chip_base_usd"] > 0 > table["cluster.chip.matmul_efficiency[bf16]"]
    assert list(map(abs, table.values())) == sorted(map(abs, table.values()), reverse=True)


def test_unknown_metrics_are_refused(machine):
    with pytest.raises(UserError, match="did you mean 'step_time_s'"):
        hwopt.elasticities(*machine, metrics=["step_time"])


def test_a_drawn_chips_numbers_are_inputs():
    question = hwopt.objective("train_cost", design="h100-sxm").problem().continuous.template
    run, cluster, plan, project = question
    held = hwopt.elasticities(run, cluster, plan, project=project, metrics=["capex_usd"]).of("capex_usd")
    assert held["project.process.wafer_usd"] > 0 > held["project.process.stack_bond_yield"]
    assert "cluster.chip.peak_flops_per_s[bf16]" not in held  # follows from the project


# Inputs and what is known of them.


@pytest.mark.parametrize(
    ("field", "unit"),
    [
        ("hbm_usd_per_byte_per_s", "USD/(B/s)"),
        ("network_usd_per_byte_per_s", "USD/(B/s)"),
        ("hbm_usd_per_byte", "USD/B"),
        ("software_failures_per_chip_s", "1/s"),
        ("area_resistance_k_m2_per_w", "K.m2/W"),
        ("leakage_per_k", "1/K"),
        ("capital_rate_per_s", "1/s"),
        ("latency_s", "s"),
        ("layers", ""),
        ("hidden", ""),
    ],
)
def test_units_are_declared(question, field, unit):
    units = {
        each.unit
        for each in inputs_of(question.problem().continuous.template)
        if each.name.endswith((f".{field}", f".{field}[core]"))
    }
    assert units == {unit}


def test_what_variables_set_is_no_input(question):
    problem = question.problem().continuous
    names = {each.name for each in template_inputs(problem)}
    places = overwritten(problem)
    taken = {each.name for each in inputs_of(problem.template) if each.place in places}
    assert {"cluster.chips", "cluster.chip.clock_ratio", "plan.tp", "workload.global_batch_sequences"} <= taken
    assert not names & taken
    assert {"cluster.chip.matmul_efficiency[bf16]", "workload.tokens", "cluster.network.latency_s[core]"} <= names


DERIVED = {
    "cluster.prices.chip_base_usd",  # price less memory and links
    "cluster.chip.leakage_power_w",  # a share of TDP
    "cluster.prices.reference_domain",  # the larger of two
    # Shares of a fleet's rate over the parts of its machine.
    *(
        f"cluster.reliability.{cause}_failures_{per}"
        for cause, per in (
            ("die", "per_m2_s"),
            ("stack", "per_s"),
            ("host", "per_s"),
            ("link", "per_s"),
            ("switch", "per_s"),
            ("loop", "per_s"),
            ("rack", "per_s"),
            ("software", "per_chip_s"),
        )
    ),
}


def test_a_chip_at_its_least_share_of_compute_scales_with_its_price():
    """Memory at list takes more than the price of an MI300X in volume leaves: its base is a fifth of any price."""
    problem = hwopt.objective("train_cost", chip="mi300x", stack="rocm-primus-2025").problem().continuous
    base = next(each for each in template_inputs(problem) if each.name == "cluster.prices.chip_base_usd")
    spread = range_of(base, problem.provenance.records)
    assert base.value == pytest.approx(0.2 * 15000)
    assert (spread.low, spread.high) == pytest.approx((0.7 * base.value, 1.2 * base.value))


@pytest.mark.parametrize("fields", [{}, {"chip": "b200"}, {"design": "h100-sxm"}])
def test_ranges_are_those_of_the_number_itself(fields):
    """The entry found for an input states the input's value, unless it follows from it in a known way."""
    question = hwopt.objective("train_cost", constants="literature", **fields)
    problem, stated = question.problem().continuous, 0
    records = problem.provenance.records
    for each in template_inputs(problem):
        spread = range_of(each, records)
        assert 0 <= spread.low * (1 - 1e-9) <= each.value <= spread.high * (1 + 1e-9), each.name
        stated += spread.stated
        state = _entry(each, records)
        if state is not None and each.name not in DERIVED and not each.name.startswith("project."):
            quantity = state[0].quantities[state[1]]
            value = quantity.si + (273.15 if quantity.unit == "degC" else 0.0)
            assert value == pytest.approx(each.value, rel=1e-9), (each.name, state[0].slug, state[1])
    assert stated > 70


def test_a_range_carries_its_source(question):
    problem = question.problem().continuous
    by_name, records = {each.name: each for each in template_inputs(problem)}, problem.provenance.records
    spread = range_of(by_name["cluster.prices.hbm_usd_per_byte"], records)
    assert (spread.low, spread.high) == pytest.approx((25e-9, 110e-9)) and spread.kind == "estimate" and spread.source
    unstated = range_of(by_name["workload.tokens"], records)
    assert not unstated.stated and unstated.high == pytest.approx(1.1 * 15.6e12)


# The answer.


def test_parameters_are_ranked_by_what_their_uncertainty_is_worth(found):
    swings = [each.swing for each in found.ranked()]
    assert len(swings) > 40 and swings == sorted(swings, reverse=True)
    assert all(not each.input.is_asked for each in found.ranked())


def test_effects_follow_elasticities_where_ranges_are_narrow(found):
    narrow = [each for each in found.ranked() if each.uncertainty < 0.1 and math.isfinite(sum(each.effect))]
    assert len(narrow) > 3
    for each in narrow:
        first = each.elasticity * (each.range.high - each.input.value) / each.input.value
        assert each.effect[1] == pytest.approx(first, rel=0.5, abs=3e-3), each.input.name  # chiller hours bend


def test_the_design_holds_its_budgets(found):
    report = evaluate_in_numpy(estimate, *found.built.inputs)
    assert float(report.run_cost_usd) == pytest.approx(found.objective, rel=1e-4)
    assert bool(report.feasible)
    for each in found.budgets:
        assert each.used <= each.limit * (1 + 1e-6)
        assert each.shadow_price == pytest.approx(each.elasticity * found.objective / each.limit)
    assert np.array_equal(point_of(answer(found.problem)), lattice_of(found.problem).point(DESIGN))


def test_json_is_strict_and_complete(found):
    document = json.loads(json.dumps(sensitivity_answer(found).document(), allow_nan=False))
    assert {"objective", "parameters", "budgets", "metrics", "design", "plan", "scope"} <= set(document)
    wanted = {"name", "value", "unit", "elasticity", "low", "high", "effect", "design_elasticities"}
    assert all(wanted <= set(each) for each in document["parameters"])
    price = next(each for each in document["parameters"] if each["name"] == "cluster.prices.hbm_usd_per_byte_per_s")
    assert price["design_elasticities"]["hbm_bandwidth_bytes_per_s"] < -0.01  # dearer bandwidth, less of it
    assert [each["name"] for each in document["budgets"]] == ["time_budget_s", "capex_budget_usd", "power_budget_w"]
    known = numbers(hwopt.objective("train_cost").problem().continuous.template.workload)
    assert set(document["metrics"]) >= {"run_cost_usd", "run_time_s", "mfu"} and set(document["metrics"]) <= set(known)


def test_the_screen_names_what_matters(found):
    text = sensitivity_answer(found).screen()
    assert "time_budget_s" in text and "reliability.snapshot_overhead_s" in text and "hbm B/s" in text
    assert "reliability.restart_s" not in text  # jobs recover in memory, on servers that stand started
    assert "nan" not in text and max(map(len, text.splitlines())) < 200


def test_the_figure_is_drawn(found, tmp_path):
    plot_tornado(found, tmp_path / "tornado.png")
    assert (tmp_path / "tornado.png").stat().st_size > 20_000
    with pytest.raises(UserError, match="cannot be written"):
        plot_tornado(found, tmp_path / "tornado.nothing")


def test_where_the_optimum_is_unreadable_the_rest_is_told(question, monkeypatch, tmp_path):
    def unreadable(*_):
        raise NoDerivative("the model is not convex in log space there: somewhere")

    monkeypatch.setattr(optimum, "optimum_of", answer)
    monkeypatch.setattr(optimum, "optimum_sensitivity", unreadable)
    told = hwopt.sensitivity(question)
    assert [each.elasticity for each in told.budgets] == [0.25] * 3
    document = sensitivity_answer(told).document()
    assert document["parameters"] == [] and "somewhere" in document["scope"] and document["metrics"]["mfu"]["value"]
    assert "not known" in sensitivity_answer(told).screen()
    with pytest.raises(UserError, match="nothing to draw"):
        plot_tornado(told, tmp_path / "x.png")


# The command.


def test_the_command_prints_json_and_draws(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(optimum, "optimum_of", answer)
    code = main(
        [
            "sensitivity",
            "train_cost",
            *LARGE,
            "--json",
            "--metrics",
            "hfu,step_time_s",
            "--figure",
            str(tmp_path / "t.png"),
        ]
    )
    captured = capsys.readouterr()
    assert code == 0 and captured.err == ""
    assert {"hfu", "step_time_s", "run_cost_usd"} <= set(json.loads(captured.out)["metrics"])
    assert (tmp_path / "t.png").exists()


def test_the_command_exits_with_1_where_no_design_holds_the_budgets(monkeypatch, capsys):
    monkeypatch.setattr(optimum, "optimum_of", lambda problem, *_, **__: answer(problem, feasible=False))
    assert main(["sensitivity", "train_cost", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["feasible"] is False and "They clash." in document["message"]
    assert main(["sensitivity"]) == 1
    assert "no design satisfies every budget" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["train_cos"], "'train_cost'"),
        (["--metrics", "mfuu"], "'mfu'"),
        (["--top", "0"], "--top 0"),
        (["--seed", "-1"], "--seed -1"),
        (["--power-budget", "40e6"], "--power-budget-w"),
        (["--power-budget-w", "zero"], "not a number"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments, named):
    assert main(["sensitivity", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith("hwopt: ") and err.count("\n") == 1 and named in err


@pytest.mark.search
def test_the_whole_command(capsys):
    assert main(["sensitivity", "train_cost", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["parameters"]) > 80
    assert {each["name"] for each in document["budgets"]} == {"time_budget_s", "capex_budget_usd", "power_budget_w"}
    assert max(abs(each["elasticity"]) for each in document["parameters"]) > 0.5  # the price or the rate of a chip
