"""Kinds of a training plan in the lattice: what is recomputed, sharded and offloaded; and context parallelism."""

import itertools

import jax
import numpy as np
import pytest

import hwopt
from hwopt.analysis.integrality_gap import integrality_gap
from hwopt.design.exact import ExactModel, logarithms
from hwopt.design.lattices import lattice_of, scope_of
from hwopt.design.variables import KNOWN
from hwopt.integers.system import Role
from hwopt.solver.search.solve_global import solve_global
from tests.rotation import one_in

KINDS = ("recompute", "zero", "weights_tier", "optimizer_tier", "activations_tier")

SMALL = {
    "any_software": True,
    "workload": "llama3.1-8b",
    "tokens": 1e12,
    "time_budget_s": 40 * 86400.0,
    "power_budget_w": 1e6,
}
BEST = {"recompute": "best", "offload": "best"}
BOXES = {"tp": (1.0, 2.0), "cp": (1.0, 2.0), "pp": (1.0, 2.0), "virtual_stages": (1.0, 2.0), "micro_batch": (1.0, 2.0)}


@pytest.fixture(scope="module")
def problem():
    with jax.enable_x64(True):
        return hwopt.objective("train_cost", **SMALL).problem().narrowed(BOXES)


@pytest.fixture(scope="module")
def answer(problem):
    with jax.enable_x64(True):
        return solve_global(problem)


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_set_and_read(name, problem):
    variable = KNOWN[name]
    for value in range(int(variable.lower), int(variable.upper) + 1):
        with jax.enable_x64(True):
            design = variable.place.put(problem.template, np.float64(value))
            assert float(variable.place.get(design)) == value
        assert variable.words[value - 1]


def test_switches_are_what_the_words_say(problem):
    with jax.enable_x64(True):
        plan = lambda name, value: KNOWN[name].place.put(problem.template, np.float64(value)).plan
        assert [(float(p.recompute_attention), float(p.recompute_full)) for p in (plan("recompute", k) for k in (1, 2, 3))] == [
            (0.0, 0.0), (1.0, 0.0), (0.0, 1.0)
        ]  # fmt: skip
        assert [(float(p.gradients_sharded), float(p.weights_sharded)) for p in (plan("zero", k) for k in (1, 2, 3))] == [
            (0.0, 0.0), (1.0, 0.0), (1.0, 1.0)
        ]  # fmt: skip
        assert float(plan("weights_tier", 2).weights_offloaded) == 1.0


def test_a_named_kind_is_kept(problem):
    """A question that names its recomputation or offloading fixes it, and the scope says so."""
    with jax.enable_x64(True):
        named = hwopt.objective("train_cost", **SMALL | {"recompute": "full", "offload": "optimizer"}).problem()
    free, kept = {each.name for each in problem.variables}, {each.name for each in named.variables}
    assert {*KINDS, "cp"} <= free
    assert kept & set(KINDS) == {"zero"} and "full recomputation, optimizer offloaded" in scope_of(named)
    lattice = lattice_of(named)
    assert [lattice.by_name[name].ends for name in KINDS] == [(3, 3), (1, 3), (1, 1), (2, 2), (1, 1)]
    assert all(lattice.by_name[name].role is Role.kind for name in KINDS)


def test_kinds_are_free_in_whole_parts_and_elsewhere_if_asked():
    """Memory is free over continuous hardware; what is said is kept. Models with experts are no exception."""
    with jax.enable_x64(True):
        usual, best = (hwopt.objective("train_cost", **SMALL, **more).problem() for more in ({}, BEST))
    ends = lambda problem: [lattice_of(problem).by_name[name].ends for name in KINDS]
    free, kept = [(1, 3), (1, 3), (1, 2), (1, 2), (1, 2)], [(1, 1), (1, 3), (1, 1), (1, 1), (1, 1)]
    assert ends(usual) == ends(best) == ends(best.continuous) == free and ends(usual.continuous) == kept
    assert "no recomputation, nothing offloaded" in scope_of(usual.continuous)
    assert "offloaded" not in scope_of(best.continuous)
    with jax.enable_x64(True):
        assert ends(hwopt.objective("train_cost", workload="deepseek-v3").problem()) == free


@one_in(4, 2)
def test_whole_parts_are_held_against_a_plan_of_the_same_kind(answer):
    with jax.enable_x64(True):
        price = integrality_gap(answer, most_boxes=300)
    assert price is not None and price.relaxed.objective <= answer.objective and price.share >= 0.0
    alike = ("recompute_full", "weights_offloaded", "optimizer_offloaded", "activations_offloaded")
    assert all(float(getattr(price.relaxed.plan, each)) == float(getattr(answer.plan, each)) for each in alike)


def test_a_pipeline_shards_no_gradients(problem):
    lattice = lattice_of(problem)
    point = np.array([each.ends[0] for each in lattice.coordinates])
    tight, _ = lattice.propagate(lattice.initial_boxes())
    staged = tight.low[:, lattice.at["pp"]] > 1
    assert (tight.high[staged][:, lattice.at["zero"]] == 1).all()
    point[lattice.at["pp"]], point[lattice.at["zero"]] = 2, 2
    assert not lattice.valid(point[None])[0]


def test_no_design_of_any_kind_beats_the_answer(problem, answer):
    """Neighbours of the proved answer, all kinds and degrees tried with its hardware, by the exact model."""
    with jax.enable_x64(True):
        lattice, model = lattice_of(problem), ExactModel(problem).prepare()
        own = {name: each.value for name, each in answer.design.items()}
        point = lattice.point({each.name: float(each.place.get(answer.built)) for each in problem.variables})
        ranges = {name: lattice.values_of(lattice.by_name[name]) for name in (*KINDS, "tp", "cp", "pp")}
        points = np.repeat(point[None], np.prod([len(x) for x in ranges.values()]), axis=0)
        for row, values in enumerate(itertools.product(*ranges.values())):
            for name, value in zip(ranges, values, strict=True):
                points[row, lattice.at[name]] = value
            split = np.prod([points[row, lattice.at[name]] for name in ("tp", "cp", "pp")])
            points[row, lattice.at["dp"]] = max(1, own["chips"] // split)
        points = points[lattice.valid(points)]
        columns = lattice.quantities_at(lattice.columns(points.astype(float)))
        rows = np.stack(
            [np.broadcast_to(columns.get(e.name, own.get(e.name, 1.0)), len(points)) for e in problem.variables], axis=1
        )
        exact = model.at(logarithms(rows))
    fits = exact.violation <= 1e-9
    assert answer.certificate.gap < 1e-4 and fits.sum() > 10
    assert np.log(answer.objective) - 1e-4 <= exact.objective[fits].min()
