"""Sweeps in memory: rows against the model itself, the summary against the rows, and what is refused."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hwopt
from hwopt.design.lattices import lattice_of
from hwopt.design.metrics import Metric, numbers
from hwopt.design.problem import Budget
from hwopt.design.problem import design_at as place
from hwopt.design.template_inputs import template_inputs
from hwopt.errors import UserError
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.plan import stage_layers
from hwopt.sweeps.evaluator import TILE
from hwopt.sweeps.program import OUTCOMES, PARTS, SweepProgram
from hwopt.sweeps.reductions import BEST, CELLS, Edges
from hwopt.sweeps.samplers import LatinHypercube, Sobol
from hwopt.sweeps.space import Space
from hwopt.sweeps.specification import KnownOptimum, Specification
from hwopt.sweeps.user_points import level_range
from objectives.loss_under_budget import LossUnderBudget
from objectives.train_cost import TrainCost
from tests.tiers import turn
from tests.toy import ToyCost

QUESTION = TrainCost(time_budget_s=200 * 86400.0, power_budget_w=80e6, capex_budget_usd=3e9)
FIELDS = numbers(QUESTION.problem().continuous.template.workload)
BOUNDS = {"tp": (4.0, 16.0), "chips": (8192.0, 32768.0)}
SAMPLES = 3000
TABLE = {"chips": [16384, 16384, 12288, 100], "tp": [8, 3, 8, 8], "clock_ratio": [0.9, 0.9, 1.0, 1.0]}
ASKS = {  # a question, by what it is differentiated, the columns of a table
    "toy": (
        ToyCost(), ("clock_ratio",), ("cluster.facility.electricity_usd_per_j", "cluster.chip.hbm_capacity_bytes"), TABLE
    ),
    "model": (
        QUESTION,
        ("hbm_bandwidth_bytes_per_s", "clock_ratio", "scale_out_bandwidth_bytes_per_s"),
        ("workload.sequence_length", "cluster.prices.host_usd"),
        TABLE | {"pp": [16] * 4},
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=["toy", pytest.param("model", marks=pytest.mark.search)])
def asks(request):
    return ASKS[request.param]


@pytest.fixture(scope="module")
def problem(asks):
    return asks[0].problem().continuous.narrowed(BOUNDS)


@pytest.fixture(scope="module")
def swept(asks):
    return hwopt.sweep(asks[0], SAMPLES, bounds=BOUNDS)


@pytest.fixture(scope="module")
def exact(asks):
    """In float64, by a Latin hypercube of another seed, with gradients."""
    question, inputs, others, _ = asks
    return hwopt.sweep(
        question, 300, bounds=BOUNDS, dtype="float64", method="lhs", seed=7, gradients=(*inputs, *others)
    )  # fmt: skip


@pytest.fixture(scope="module")
def cases():
    """A grid of two chips, of the toy."""
    grid = {"chips": [4096, 8192, 16384], "tp": [4, 7], "clock_ratio": [0.75, 1.0]}
    return hwopt.sweep(ToyCost(), grid=grid, choices={"chip": ["h100-sxm", "b200"]})


def test_the_map_says_whose_the_least_of_a_cell_is(cases):
    """A grid of `chips` and degrees: each filled cell's objective is the least of the possible rows of the case it names."""
    x, y = str(cases.attrs["map_variables"]).split()
    objective, possible = cases["run_cost_usd"].values, cases["possible"].values > 0
    filled = cases["map_case"].values >= 0
    assert filled.any() and (filled == np.isfinite(cases["map_objective"].values)).all()
    for row, column in np.argwhere(filled):
        of = int(cases["map_case"].values[row, column])
        inside = possible.copy()
        for name, edges, at in ((x, "map_x_edges", column), (y, "map_y_edges", row)):
            values, low, high = cases[name].values, *cases[edges].values[at : at + 2].astype(float)
            inside &= (values >= low * (1 - 1e-6)) & (values <= high * (1 + 1e-6))
        least = np.where(inside, objective, np.inf).min(axis=1)
        assert np.argmin(least) == of and np.isclose(least[of], cases["map_objective"].values[row, column], rtol=1e-2)


@pytest.fixture(scope="module")
def table(asks, tmp_path_factory):
    """A file, with every metric there is."""
    path, columns = tmp_path_factory.mktemp("tables") / "variants.csv", asks[-1]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path, hwopt.sweep(asks[0], table=path, metrics=list(FIELDS))


def design_at(problem, dataset, row, **changed):
    """A variant as the model takes it, by the way that `optimize` goes."""
    held = {each.name: float(dataset[each.name][row]) for each in problem.variables if each.category != "lookup"}
    if "pp" in held:
        layers = round(float(problem.template.workload.model.layers))
        stages = stage_layers(layers, round(held["pp"]), round(held["virtual_stages"]))
        held |= dict(zip(("fullest_stage", "last_stage"), stages, strict=True))
    held |= changed
    with jax.enable_x64(True):
        return place(
            problem.form,
            problem.template,
            jnp.log(jnp.asarray([held.get(v.name, v.lower) for v in problem.variables])),
            True,
        )


def report_at(problem, dataset, row, **changed):
    with jax.enable_x64(True):
        return hwopt.estimate(*design_at(problem, dataset, row, **changed).inputs)


def chosen(dataset, count):
    """Rows of every outcome."""
    flags = dataset["possible"].values + dataset["feasible"].values
    rows = [np.flatnonzero(flags == flag)[: count // 3 + 1] for flag in (0, 1, 2)]
    assert all(len(each) for each in rows)
    return np.concatenate(rows)


def on_lattice(problem, dataset, row):
    """Whether a variant is one of the lattice, and its degrees divide what they split."""
    lattice, design = lattice_of(problem), design_at(problem, dataset, row)
    exact = [float(design.plan.dp)]
    if "micro_batches" in lattice.names:
        replica = design.plan.dp * design.plan.micro_batch
        shared = design.workload.global_batch_sequences / replica, design.cluster.network.size[0] / design.plan.tp
        exact += [*map(float, shared), float(design.workload.model.heads / design.plan.tp)]
    values = {each.name: float(each.place.get(design)) for each in problem.variables}
    return all(abs(x - round(x)) < 1e-6 for x in exact) and bool(lattice.valid(lattice.point(values)[None])[0])


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_rows_are_what_the_model_says(problem, swept, exact, name):
    dataset, slack = (swept, 2e-5) if name == "float32" else (exact, 1e-11)
    for row in chosen(dataset, 6):
        report = report_at(problem, dataset, row)
        for metric in dataset.attrs["metrics"].split():
            assert float(dataset[metric][row]) == pytest.approx(float(getattr(report, metric)), rel=slack), metric
        assert PARTS[int(dataset["bottleneck"][row])] == report.bottleneck_name()


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_flags_are_what_the_constraints_say(problem, swept, exact, name):
    dataset = swept if name == "float32" else exact
    for row in chosen(dataset, 12):
        report = report_at(problem, dataset, row)
        own = max(-float(margin) for margin in report.margins_by_name().values())
        own = max(own, -float(report.clock_margin))
        budgets = max(math.log(float(b.metric.value(report)) / b.limit) for b in problem.budgets)
        if min(abs(own - FEASIBILITY_TOLERANCE), abs(budgets)) < 1e-5:
            continue  # on the edge, which rounding decides
        possible = own <= FEASIBILITY_TOLERANCE and on_lattice(problem, dataset, row)
        assert bool(dataset["possible"][row]) is possible
        assert bool(dataset["feasible"][row]) is (possible and budgets <= FEASIBILITY_TOLERANCE)
        if dataset["possible"][row]:
            wanted = max(own, budgets, 0.0) if own >= 0 and budgets <= 0 else max(own, budgets)
            assert float(dataset["violation"][row]) == pytest.approx(wanted, abs=2e-5) or budgets <= 0


def test_gradients_are_central_differences(asks, problem, exact):
    names = exact["elasticity"].attrs["flag_meanings"].split()
    assert names == [*asks[1], *asks[2]] and exact["elasticity"].dims == ("input", "variant")
    own = np.flatnonzero(exact["possible"].values)[:2]
    inputs = {each.name: each for each in template_inputs(problem)}
    step = 1e-5
    for row, (number, name) in itertools.product(own, enumerate(names)):
        ends = []
        for sign in (1, -1):
            ratio = math.exp(sign * step)
            if name in inputs:
                leaves, tree = jax.tree.flatten(problem.template)
                leaf = np.array(leaves[inputs[name].leaf], np.float64)
                leaf.ravel()[inputs[name].element] *= ratio
                leaves[inputs[name].leaf] = leaf
                moved = type(problem)(**{**vars(problem), "template": jax.tree.unflatten(tree, leaves)})
                report = report_at(moved, exact, row)
            else:
                report = report_at(problem, exact, row, **{name: float(exact[name][row]) * ratio})
            ends.append(math.log(float(report.run_cost_usd)))
        wanted = (ends[0] - ends[1]) / (2 * step)
        assert float(exact["elasticity"][number, row]) == pytest.approx(wanted, rel=1e-5, abs=1e-7), name


def test_float64_and_hypercube(problem, exact):
    assert exact["run_cost_usd"].dtype == exact["clock_ratio"].dtype == exact["elasticity"].dtype == np.float64
    space = Space(problem)
    with jax.enable_x64(True):
        points = LatinHypercube(space.coordinates, 300, 7).points(np.arange(300))
        columns = space.drawn(dict(zip(space.coordinates, jnp.asarray(points), strict=True)))
    for name in space.variables:
        np.testing.assert_allclose(exact[name], np.broadcast_to(columns[name], 300), rtol=1e-12)
    # One point in each of 300 strata.
    each = next(v for v in problem.variables if v.name == "clock_ratio")
    at = np.log(exact["clock_ratio"] / each.lower) / np.log(each.upper / each.lower) * 300
    assert len(np.unique(np.floor(at))) == 300


def test_sobol_rows(problem, swept):
    space = Space(problem)
    sampler = Sobol(space.coordinates, SAMPLES, 0)
    tables, starts = jnp.asarray(sampler.tables(4096)), jnp.asarray(sampler.starts(np.array([0]), 4096))
    columns = space.drawn(
        dict(zip(space.coordinates, sampler.columns(tables, starts, np.dtype(np.float32)), strict=True))
    )
    for name in space.variables:
        np.testing.assert_allclose(swept[name], np.broadcast_to(columns[name], 4096)[:SAMPLES], rtol=1e-6)


def test_the_summary_is_that_of_the_rows(swept):
    rows = {name: x.values for name, x in swept.data_vars.items() if x.dims == ("variant",)}
    outcome = rows["possible"] + rows["feasible"]
    assert (rows["feasible"] <= rows["possible"]).all()
    assert int(swept["evaluated"]) == SAMPLES and int(swept["nonfinite_count"]) == 0
    assert int(swept["possible_count"]) == (outcome > 0).sum() > 0
    assert int(swept["feasible_count"]) == (outcome == 2).sum() > BEST
    for name, key in (("bottleneck_count", "bottleneck"), ("binding_count", "binding")):
        counted = np.zeros(swept[name].shape, int)
        np.add.at(counted, (outcome, rows[key]), 1)
        np.testing.assert_array_equal(swept[name], counted)
    for metric in ("run_cost_usd", "run_time_s"):
        edges = swept[f"edges_{metric}"].values
        numbers = np.asarray(Edges(edges[0], edges[-1], len(edges) - 1).number(jnp.asarray(rows[metric])))
        counted = np.zeros((len(OUTCOMES), len(edges) - 1), int)
        np.add.at(counted, (outcome, numbers), 1)
        # Values on an edge fall as the compiler rounds.
        assert np.abs(swept[f"histogram_{metric}"].values - counted).sum() <= 4
        inside = np.clip(np.searchsorted(edges, rows[metric], side="right") - 1, 0, len(edges) - 2)
        assert (inside != numbers).sum() <= 4


def test_the_best_are_the_best_rows(swept):
    feasible = np.flatnonzero(swept["feasible"].values)
    cost = swept["run_cost_usd"].values
    order = feasible[np.argsort(cost[feasible], kind="stable")][:BEST]
    assert swept.attrs["best_are"] == "feasible"
    np.testing.assert_allclose(np.sort(cost[swept["best_variant"].values]), cost[order], rtol=1e-6)
    assert (np.diff(swept["best_run_cost_usd"]) >= 0).all()
    np.testing.assert_allclose(swept["best_run_cost_usd"], cost[swept["best_variant"].values], rtol=2e-5)
    np.testing.assert_array_equal(swept["best_chips"], swept["chips"].values[swept["best_variant"].values])
    assert (swept["best_violation"] <= FEASIBILITY_TOLERANCE).all()
    assert (swept["best_used"] <= swept["budget_limit"] * (1 + 1e-6)).all()


def test_the_best_in_float64(problem, swept):
    with jax.enable_x64(True):
        row = int(swept["best_variant"][0])
        report = report_at(problem, swept, row)
    assert float(swept["best_run_cost_usd"][0]) == pytest.approx(float(report.run_cost_usd), rel=1e-10)
    np.testing.assert_allclose(
        swept["best_breakdown_s"][0], [float(x) for x in report.breakdown], rtol=1e-9, atol=1e-12
    )


def test_the_front_is_that_of_the_rows(problem, swept):
    assert swept.attrs["pareto"] == "run_cost_usd run_time_s"
    # Budgets on other metrics hold on the front: what the rows say of power and capital.
    own = swept["possible"].values == 1
    for each in problem.budgets:
        if each.metric.name in ("peak_power_w", "capex_usd"):
            own &= swept[each.metric.name].values <= each.limit * (1 + 1e-6)
    own = np.flatnonzero(own)
    points = np.stack([swept[name].values[own] for name in ("run_cost_usd", "run_time_s")], axis=1)
    kept = [
        row
        for row, p in zip(own, points, strict=True)
        if not ((points <= p).all(axis=1) & (points < p).any(axis=1)).any()
    ]
    assert sorted(swept["front_variant"].values.tolist()) == sorted(kept)
    np.testing.assert_array_equal(swept["front_feasible"], swept["feasible"].values[swept["front_variant"].values])
    assert (np.diff(swept["front_run_cost_usd"]) > 0).all() and (np.diff(swept["front_run_time_s"]) < 0).all()


def test_the_map_is_that_of_the_rows(swept):
    x, y = swept.attrs["map_variables"].split()
    least = np.full(CELLS, np.inf)
    places = []
    for axis, name in (("y", y), ("x", x)):
        edges = swept[f"map_{axis}_edges"].values
        each = Edges(edges[0], edges[-1], len(edges) - 1)
        places.append(np.asarray(each.number(jnp.asarray(swept[name].values))))
    own = swept["possible"].values == 1
    np.minimum.at(least, tuple(p[own] for p in places), swept["run_cost_usd"].values[own])
    np.testing.assert_array_equal(np.isfinite(least), np.isfinite(swept["map_objective"]))
    found = swept["map_objective"].values[np.isfinite(least)]
    assert (found != least[np.isfinite(least)]).mean() < 0.02
    assert ((swept["map_bottleneck"] >= 0) == np.isfinite(least)).all()


def test_the_same_again_and_another_seed():
    toy, again = (hwopt.sweep(ToyCost(), SAMPLES, bounds=BOUNDS) for _ in range(2))
    assert again.identical(toy)
    other = Specification(QUESTION, SAMPLES, bounds=BOUNDS, seed=1)
    tables = [spec.sampler(0) for spec in (Specification(QUESTION, SAMPLES, bounds=BOUNDS), other)]
    first, second = (each.starts(np.array([0]), 64) for each in tables)
    assert (first != second).all() and other.document()["seed"] == 1


def test_every_number_has_a_unit_and_a_name(swept, exact, cases, table):
    for dataset in (swept, exact, cases, table[1]):
        for variable, column in dataset.data_vars.items():
            assert column.attrs.get("units"), variable
            assert column.attrs.get("long_name"), variable
            if "flag_values" in column.attrs:
                assert len(column.attrs["flag_values"]) == len(column.attrs["flag_meanings"].split()), variable


def test_the_configuration_repeats_the_sweep(asks, swept):
    document = json.loads(swept.attrs["configuration"])
    assert document["bounds"] == {name: list(x) for name, x in BOUNDS.items()} and document["seed"] == 0
    again = Specification(type(asks[0])(**document["fields"]), document["samples"], bounds=document["bounds"])
    assert json.loads(json.dumps(again.document())) == document
    assert set(json.loads(swept.attrs["versions"])) == {"hwopt", "jax", "numpy"}


def test_grids_and_choices(cases):
    assert cases["run_cost_usd"].dims == ("case", "variant") and cases.sizes["case"] == 2
    assert cases.sizes["variant"] == 12 == cases.attrs["samples"] and cases.attrs["method"] == "grid"
    assert cases.attrs["cases"] == "chip=h100-sxm chip=b200"
    # In the order of the question's variables; a degree of 7 goes to 8, which divides the heads.
    np.testing.assert_array_equal(cases["chips"][0], np.repeat([4096, 8192, 16384], 4))
    np.testing.assert_array_equal(cases["clock_ratio"][1], np.tile(np.float32([0.75, 1.0]), 6))
    np.testing.assert_array_equal(cases["tp"][0], np.tile([4, 4, 8, 8], 3))
    for number, chip in enumerate(("h100-sxm", "b200")):
        problem = ToyCost(chip=chip).problem()
        apart = cases.isel(case=number)
        report = report_at(problem, apart, 5)
        assert float(apart["run_cost_usd"][5]) == pytest.approx(float(report.run_cost_usd), rel=2e-5)
    assert set(cases["best_case"].values.tolist()) <= {0, 1}
    assert cases["best_case"].attrs["flag_meanings"].split() == ["chip=h100-sxm", "chip=b200"]
    for rank in range(cases.sizes["rank"]):
        case, variant = int(cases["best_case"][rank]), int(cases["best_variant"][rank])
        assert float(cases["best_run_cost_usd"][rank]) == pytest.approx(
            float(cases["run_cost_usd"][case, variant]), rel=2e-5
        )
    assert int(cases["evaluated"]) == 24


def test_tables_are_taken_as_they_are(asks, problem, table):
    (path, dataset), columns = table, asks[-1]
    for name, column in columns.items():
        np.testing.assert_array_equal(dataset[name], np.float32(column))
    for name, present in Space(problem).completed({}).items():
        if name not in columns:
            np.testing.assert_allclose(dataset[name], present, rtol=1e-6)
    # Three does not divide the heads; a hundred chips are no whole replicas.
    assert dataset["possible"].values[[1, 3]].tolist() == [0, 0]
    of_mapping = Specification(asks[0], table=columns)
    assert of_mapping.table == Specification(asks[0], table=str(path)).table


def test_a_metric_with_the_name_of_a_variable_never_takes_its_column():
    """The clock that a run keeps and the clock of the design share a name."""
    specification = Specification(QUESTION, SAMPLES, metrics=list(FIELDS))
    assert set(FIELDS) - {each.name for each in specification.metrics} == {"clock_ratio"}
    assert "clock_ratio" in specification.variables


def test_what_cannot_be_built_is_not_best(table):
    """A design outside its box may be cheap, and within all budgets."""
    dataset = table[1]
    feasible = set(np.flatnonzero(dataset["feasible"].values).tolist())
    if dataset.attrs["best_are"] == "feasible":
        assert set(dataset["best_variant"].values.tolist()) == feasible
    else:
        assert not feasible


def test_every_metric_has_its_name(asks, table):
    dataset = table[1]
    report = report_at(asks[0].problem().continuous, dataset, 0)
    for name in FIELDS:
        assert float(dataset[name][0]) == pytest.approx(float(getattr(report, name)), rel=1e-4, abs=1e-6), name


KINDS = {
    "dense": QUESTION,
    "experts": TrainCost(workload="mixtral-8x7b", tokens=1e12, global_batch=1024.0),
    "free shapes": LossUnderBudget(),
    "drawn chips": TrainCost(design="h100-sxm"),
}
INTEGERS = {"free shapes": {"layers": 1, "hidden": 2048}, "drawn chips": {"hbm_stacks": 1, "dies": 1}}
IN_TURN = list(KINDS)[turn() % len(KINDS)]


@pytest.mark.parametrize("name", [pytest.param(x, marks=() if x == IN_TURN else pytest.mark.search) for x in KINDS])
def test_rows_of_kinds_of_questions(name):
    """Of the model: rows are what it says, numbers are finite, integers are."""
    question, free = KINDS[name], name == "free shapes"
    problem = question.problem().continuous
    made = hwopt.sweep(question, 500, gradients=["layers", "tokens"] if free else ())
    metrics = made.attrs["metrics"].split()
    assert all(np.isfinite(made[each]).all() for each in (*metrics, "violation")) and int(made["possible_count"]) > 0
    for each, step in INTEGERS.get(name, {}).items():
        assert (made[each] % step == 0).all()
    if free:
        assert np.isfinite(made["elasticity"]).all()
        assert (made["elasticity"][1] < 0).mean() > 0.9  # more tokens, less loss
    else:
        for row in np.random.default_rng(turn()).choice(500, 6, replace=False):
            report = report_at(problem, made, row)
            for metric in metrics:
                said = pytest.approx(float(getattr(report, metric)), rel=2e-5)
                assert float(made[metric][row]) == said, (metric, int(row), f"turn {turn()}")
            assert PARTS[int(made["bottleneck"][row])] == report.bottleneck_name()
    if name == "experts":
        assert set(np.unique(made["ep"])) == {1.0, 2.0, 4.0, 8.0}
    if name == "drawn chips":
        assert {"reticle", "shoreline"} <= set(made["binding"].attrs["flag_meanings"].split())


def test_three_metrics_of_a_front():
    made = hwopt.sweep(ToyCost(), 500, pareto=["run_cost_usd", "run_time_s", "capex_usd"])
    assert made.attrs["pareto"].split() == ["run_cost_usd", "run_time_s", "capex_usd"]


def test_all_is_held():
    """No coordinate has room: every variant is the same design."""
    problem = ToyCost().problem()
    held = {name: (x, x) for name, x in Space(problem).completed({}).items()}
    assert Space(problem.narrowed(held)).coordinates == ()
    made = hwopt.sweep(ToyCost(), 3, bounds=held)
    assert len(np.unique(made["run_cost_usd"])) == 1 and made.sizes["variant"] == 3


def test_without_rows():
    counted = hwopt.sweep(ToyCost(), SAMPLES, bounds=BOUNDS, rows=False)
    assert "variant" not in counted.dims and int(counted["evaluated"]) == SAMPLES


def test_around_an_optimum():
    problem = QUESTION.problem().continuous
    design = {name: float(x) for name, x in Space(problem).completed({"tp": 8.0}).items()}
    found = KnownOptimum(design, 1.0, math.nan, True)
    spec = Specification(QUESTION, 10, within=1.1, optima=lambda name, asked: found)
    boxes = {each.name: (each.lower, each.upper) for each in spec.problem.variables}
    assert boxes["chips"] == pytest.approx((16384 / 1.1, 16384 * 1.1))
    assert boxes["tp"][0] == pytest.approx(8 / 1.1) and spec.document()["within"] == 1.1


def test_level_ranges():
    np.testing.assert_allclose(level_range("1:8:4"), [1, 2, 4, 8])
    np.testing.assert_allclose(level_range("2:32:5"), [2, 4, 8, 16, 32])
    np.testing.assert_allclose(level_range("2:32:1"), [2])
    assert level_range("1|2|5") == [1, 2, 5] and level_range("3") == [3]


def test_blocks_are_whole_tiles(monkeypatch):
    """Also where a device's tile is larger than a block with rows would be."""
    monkeypatch.setattr("hwopt.sweeps.specification.tile_of", lambda *_: TILE["gpu"])
    for asked in ({}, {"rows": False}, {"block": 1}):
        assert Specification(QUESTION, 1 << 21, **asked).block % TILE["gpu"] == 0


def test_a_budget_that_no_variable_moves():
    """Beyond its limit it makes a variant one over budget that it binds; else it binds nowhere."""
    problem = ToyCost().problem()
    five = Metric("five", "1", lambda report: jnp.asarray(5.0), "a number")
    for limit, outcome in ((4.0, "over_budget"), (6.0, "feasible")):
        budgets = (*problem.budgets, Budget("five_budget", five, limit))
        program = SweepProgram(dataclasses.replace(problem, budgets=budgets), (problem.objective,))
        used = {name: jnp.full(3, 0.4) for name in program.constraints} | {"five_budget": jnp.full(3, 5.0 / limit)}
        judged = program.judged([jnp.ones(3), jnp.zeros(3), *used.values()])
        assert (judged["outcome"] == OUTCOMES.index(outcome)).all()
        assert (judged["binding"] == program.constraints.index("five_budget")).all() == (outcome == "over_budget")


ASKED = {"samples": 10}
REFUSED = {
    "no samples": ({}, "samples None"),
    "no variants": ({"samples": 0}, "samples 0"),
    "half a variant": ({"samples": 1.5}, "samples 1.5"),
    "yes": ({"samples": True}, "samples True"),
    "method": (ASKED | {"method": "sobl"}, "did you mean 'sobol'"),
    "dtype": (ASKED | {"dtype": "float16"}, "dtype 'float16'"),
    "seed below 0": (ASKED | {"seed": -1}, "seed -1"),
    "seed of parts": (ASKED | {"seed": 1.5}, "seed 1.5"),
    "metric": (ASKED | {"metrics": ["mfo"]}, "metric 'mfo'"),
    "pareto": (ASKED | {"pareto": ["run_cost_usd"]}, "two or more different metrics"),
    "pareto of what is not there": (ASKED | {"pareto": ["run_cost_usd", "wafers"]}, "pareto: metric 'wafers'"),
    "map of one": (ASKED | {"map_of": ["chips", "chips"]}, "two different variables"),
    "map of what is held": (ASKED | {"map_of": ["chips", "tp"], "freeze": ["tp"]}, "map: variable 'tp'"),
    "bounds": (ASKED | {"bounds": {"tpp": (1.0, 2.0)}}, "'tpp' is not a variable"),
    "bounds beyond": (ASKED | {"bounds": {"tp": (1.0, 200.0)}}, "reach beyond"),
    "bounds upside down": (ASKED | {"bounds": {"tp": (8.0, 4.0)}}, "are reversed"),
    "freeze": (ASKED | {"freeze": ["chipp"]}, "'chipp' is neither"),
    "gradients": (ASKED | {"gradients": ["clok_ratio"]}, "'clok_ratio' is neither a variable nor an input"),
    "gradients without rows": (ASKED | {"gradients": True, "rows": False}, "rows"),
    "within": (ASKED | {"within": 0.9}, "within 0.9"),
    "within a grid": ({"within": 1.1, "grid": {"tp": [4]}}, "states its points itself"),
    "choices": (ASKED | {"choices": {"chipp": ["h100-sxm"]}}, "'chipp' is not a field"),
    "choice": (ASKED | {"choices": {"chip": ["h1000"]}}, "h1000"),
    "choices twice": (ASKED | {"choices": {"chip": ["b200", "b200"]}}, "write each value once"),
    "no choice": (ASKED | {"choices": {"chip": []}}, "write each value once"),
    "grid of nothing": ({"grid": {"tp": []}}, "must be positive"),
    "grid of zero": ({"grid": {"tp": [0]}}, "must be positive"),
    "grid of a stranger": ({"grid": {"x": [1]}}, "'x' is not a variable"),
    "grid and method": ({"grid": {"tp": [4]}, "method": "lhs"}, "method lhs"),
    "grid and count": ({"grid": {"tp": [4]}, "samples": 7}, "the grid has 1 variants"),
    "grid of none": ({"method": "grid"}, "needs levels"),
    "table that is not there": ({"table": "/nowhere/a.csv"}, "cannot read /nowhere/a.csv"),
    "table of unequal columns": ({"table": {"tp": [1, 2], "pp": [1]}}, "columns must have equal lengths"),
    "table of words": ({"table": {"tp": ["eight"]}}, "'eight' is not a number"),
    "table below 0": ({"table": {"tp": [-1]}}, "positive, finite"),
    "table of strangers": ({"table": {"x": [1]}}, "'x' is not a variable"),
    "empty table": ({"table": {}}, "columns must have equal lengths"),
    "too many points": ({"samples": 2**32 + 1, "rows": False}, "4,294,967,296 points"),
    "not a number of variants": ({"samples": math.nan}, "samples"),
    "endless variants": ({"samples": math.inf}, "samples"),
    "words for samples": ({"samples": "many"}, "samples"),
    "no block": (ASKED | {"block": 0}, "block"),
    "less than a block": (ASKED | {"block": -5}, "block"),
    "grid of words": ({"grid": {"tp": ["four"]}}, "grid"),
    "dtype as a type": (ASKED | {"dtype": np.float32}, "dtype"),
    "map of what another case lacks": (
        ASKED | {"map_of": ["chips", "hbm_capacity_bytes"], "choices": {"design": ["", "h100-sxm"]}}, "hbm_capacity_bytes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused_in_one_line(name):
    asked, match = REFUSED[name]
    with pytest.raises(UserError) as caught:
        spec = Specification(QUESTION, asked.get("samples"), **{k: v for k, v in asked.items() if k != "samples"})
        assert spec.blocks > 0
        for number in range(len(spec.cases)):
            spec.sampler(number)
    assert match in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text, match",
    [
        ("", "at least one row of numbers"),
        ("tp\n", "at least one row of numbers"),
        ("tp,tp\n1,2\n", "occurs twice"),
        ("tp,pp\n1\n", "line 2: 1 numbers for 2 columns"),
        ("tp\n8\nx\n", "line 3: tp = 'x' is not a number"),
        ("tp\n0\n", "line 2"),
    ],
)
def test_files_that_are_no_tables(text, match, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UserError, match=match) as caught:
        Specification(QUESTION, table=tmp_path / "a.csv")
    assert "\n" not in str(caught.value)
