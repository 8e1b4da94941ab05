"""Drawn chips: proved for one plan, never beaten by designs drawn at random, and made of whole units, dies and stacks."""

from __future__ import annotations

from functools import cache

import jax
import numpy as np
import pytest

import hwopt
from hwopt.design.exact import ExactModel, logarithms
from hwopt.design.lattices import lattice_of
from hwopt.integers.boxes import Boxes
from hwopt.integers.system import RangePiece
from hwopt.solver.search.bounding import bound_nodes
from hwopt.solver.search.node_relaxations import NodeRelaxations
from hwopt.solver.search.solve_global import design_values
from hwopt.solver.solution import Outcome
from tests.rotation import one_in

PLAN = {
    "tp": 4, "cp": 1, "pp": 9, "virtual_stages": 3, "micro_batch": 1, "zero": 1, "recompute": 1, "weights_tier": 1,
    "optimizer_tier": 1, "activations_tier": 1, "recovery": 1, "chips": 1224, "global_batch_sequences": 2142,
    "scale_up_domain": 24, "chips_per_rack": 24, "nics_per_server": 1, "scale_up_lanes": 16, "hbm_stacks": 5,
}  # fmt: skip
PLAN_BOXES = {name: (value, value) for name, value in PLAN.items()}
SIZES = {"compute_area_m2": (1.35e-3, 1.95e-3), "sram_bytes": (10e6, 27e6)}
"""Where the answers of the wide boxes lie."""
UNITS = 144  # of a GH100's die


def question():
    return hwopt.objective(
        "train_cost", design="h100-sxm", prices="at-cost", workload="llama3.1-70b", global_batch=2048.0,
        time_budget_s=90 * 86400.0, capex_budget_usd=9e8, power_budget_w=3e7,
    )  # fmt: skip


@cache
def answer():
    return hwopt.optimize(question(), bounds=SIZES | PLAN_BOXES | {"enabled_fraction": (0.95, 1.0), "dies": (2, 4)})


@one_in(4, 1)
def test_a_drawn_chip_is_proved_beside_one_plan():
    solution = answer()
    assert solution.outcome is Outcome.proved and solution.certificate.gap <= 1e-4
    assert solution.certificate.max_violation <= 1e-6
    values = design_values(solution)
    assert values["dies"] == round(values["dies"]) and values["hbm_stacks"] == 5
    assert values["enabled_fraction"] * UNITS == pytest.approx(round(values["enabled_fraction"] * UNITS), abs=1e-9)
    assert solution.objective == pytest.approx(2.33e6, rel=0.05)  # roughly: each fit of the constants moves it


@one_in(4, 1)
def test_no_design_at_random_is_below_the_bound():
    solution, rng, count = answer(), np.random.default_rng(3), 4000
    problem = solution.problem
    near = logarithms([design_values(solution)[each.name] for each in problem.variables])
    rows = np.tile(near, (count, 1))
    places = {each.name: i for i, each in enumerate(problem.variables)}
    for name, width in (("compute_area_m2", 0.1), ("sram_bytes", 0.5), ("clock_hz", 0.1)):
        rows[:, places[name]] += rng.uniform(-width, width, count) * rng.uniform(0.0, 1.0, count)
    rows[:, places["dies"]] = np.log(rng.integers(2, 5, count))
    rows[:, places["enabled_fraction"]] = np.log(rng.integers(137, UNITS + 1, count) / UNITS)
    with jax.enable_x64(True):
        found = ExactModel(problem).at(rows)
    holds = found.violation <= 1e-6
    assert holds.sum() > 100
    assert np.exp(found.objective[holds].min()) >= solution.certificate.lower_bound


@one_in(4, 1)
def test_no_box_that_holds_the_answer_is_bounded_above_it():
    """Boxes of all plans and parts around it, read at once: what one of them leaves open must not weigh on another."""
    problem, best, rng = question().problem(), answer(), np.random.default_rng(5)
    lattice = lattice_of(problem)
    point = lattice.point(design_values(best))
    ends = np.array([each.ends for each in lattice.coordinates])
    low, high = (np.tile(point, (24, 1)) for _ in range(2))
    widened = rng.uniform(size=low.shape)
    for end, limit in ((low, ends[:, 0]), (high, ends[:, 1])):
        end[:] = np.where(widened < 0.3, limit, np.where(widened < 0.5, np.sqrt(end * limit).astype(int), end))
    boxes, _ = lattice.propagate(Boxes(low, high))
    assert len(boxes) == 24
    with jax.enable_x64(True):
        lower = bound_nodes(NodeRelaxations(problem, lattice), boxes).lower
    assert lower.max() <= np.log(best.objective) + 1e-6
    assert np.sort(lower)[-2:].min() >= np.log(best.objective) - 0.1  # and the narrow ones are no empty words


def test_units_left_on_are_whole():
    lattice = lattice_of(question().problem())
    units = lattice.by_name["enabled_units"]
    assert units.ends == (101, UNITS)  # 0.7 to all
    others = {each.name: each.ends[0] for each in lattice.coordinates if each is not units}
    point = lattice.point(others | {"enabled_fraction": 132 / UNITS})
    assert point[lattice.at["enabled_units"]] == 132
    assert lattice.design(point)["enabled_fraction"] == pytest.approx(132 / UNITS, rel=1e-15)
    frozen = lattice_of(question().problem().frozen(["enabled_fraction"]))
    assert "enabled_units" not in frozen.names


def test_pieces_hold_their_values():
    piece = RangePiece("area", (1.0, 2.0, 4.0, 8.0))
    np.testing.assert_array_equal(piece.number([1.0, 1.5, 2.0, 2.1, 4.0, 7.9, 8.0]), [1, 1, 1, 2, 2, 3, 3])


def test_bounds_beside_what_the_relaxation_holds_fixed():
    """Over continuous hardware nothing is recomputed, unless the question's own box says so."""
    problem = hwopt.objective("train_cost").problem()
    held = {each.name: each for each in problem.continuous.variables}["recompute"]
    assert (held.lower, held.upper) == (1.0, 1.0)
    for box, wanted in (((2.0, 2.0), (2.0, 2.0)), ((1.0, 2.0), (1.0, 1.0)), ((1.0, 1.0), (1.0, 1.0))):
        narrowed = problem.narrowed({"recompute": box})
        asked, relaxed = (
            {each.name: each for each in p.variables}["recompute"] for p in (narrowed, narrowed.continuous)
        )
        assert (asked.lower, asked.upper) == box and (relaxed.lower, relaxed.upper) == wanted


@one_in(4, 3)
def test_nodes_are_choices_of_one_search():
    """A machine's exact model is its own: designs of relaxed programmes count by it."""
    boxes = PLAN_BOXES | SIZES | {"enabled_fraction": (0.98, 1.0), "dies": (3, 3)}
    solution = hwopt.optimize(question(), bounds=boxes, choices={"technology": ["5nm", "3nm"]})
    assert solution.outcome is Outcome.proved and solution.certificate.gap <= 1e-4
    best, other = solution.choices
    assert (best.chosen, other.chosen) == ((("technology", "3nm"),), (("technology", "5nm"),))
    with jax.enable_x64(True):
        again = hwopt.estimate(*solution.inputs)
    assert float(solution.problem.objective.value(again)) == pytest.approx(solution.objective, rel=1e-9)
    assert other.lower_bound > solution.objective
