"""Where sweeps begin to look: boxes of the unit cube around a design that the certified search found."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt.solver.options import SEARCH
from hwopt.sweeps.specification import Specification
from hwopt.sweeps.warm_start import around, strata_around_optimum
from objectives.serve_cost import ServeCost
from objectives.train_cost import TrainCost
from tests.tiers import turn
from tests.toy import ToyCost

BOUNDS = {
    "tp": (4.0, 16.0), "pp": (8.0, 8.0), "virtual_stages": (8.0, 16.0), "micro_batch": (1.0, 1.0), "cp": (1.0, 1.0),
    "zero": (1.0, 1.0),
}  # fmt: skip


KINDS = ("train_cost", "serve_cost")


@pytest.fixture(
    scope="module",
    params=[pytest.param(x, marks=() if place == turn() % 2 else pytest.mark.search) for place, x in enumerate(KINDS)],
)
def asked(request):
    """A question, and what a search of it met."""
    question = TrainCost(recompute="none", offload="none") if request.param == "train_cost" else ServeCost()
    spec = Specification(question, 1000, bounds=BOUNDS if request.param == "train_cost" else {})
    return spec, strata_around_optimum(spec.problem, 1000 * SEARCH.sweep.variants_per_node)


def test_what_a_search_met_is_a_design_of_the_question_and_not_below_its_bound(asked):
    spec, met = asked
    program, columns = spec.programs[0], [np.array([met.design[name]]) for name in spec.programs[0].variables]
    with jax.enable_x64(True):
        exact, constraints = program.exact(columns)
    assert constraints.max() <= 1e-6
    assert np.exp(exact.objective[0]) == pytest.approx(met.objective, rel=1e-5)
    assert set(met.design) == set(program.variables)
    assert 0.0 < met.lower_bound <= met.objective * (1.0 + 1e-9)


def drawn_in(space, low, high, fixed):
    """Designs drawn from a box, but for coordinates that are fixed."""
    points = low + (high - low) * (0.01 + 0.98 * np.random.default_rng(0).random((512, len(low))))
    with jax.enable_x64(True):
        columns = {name: jnp.asarray(points[:, axis]) for axis, name in enumerate(space.coordinates)}
        columns |= {name: jnp.full(512, place) for name, place in fixed.items()}
        return {name: np.asarray(values) for name, values in space.drawn(columns).items()}


def test_boxes_hold_designs_of_the_same_integers_and_the_second_those_that_are_near(asked):
    spec, met = asked
    space, design = spec.programs[0].space, met.design
    loose = [name for name in space.coordinates if name not in space.in_turn]
    ends = {name: (space.variables[name].lower, space.variables[name].upper) for name in loose}
    places = {name: np.log(design[name] / low) / np.log(high / low) for name, (low, high) in ends.items()}
    for low, high in around(space, design):
        assert (low < high).all() and (low >= 0.0).all() and (high <= 1.0).all()
        drawn = drawn_in(space, low, high, places)
        for name in space.in_turn:  # not along all of a cell: what one integer leaves another hangs on a third
            away = np.abs(drawn[name] - design[name])
            assert (
                away <= 1e-6 * design[name]
            ).mean() > 0.9 and away.max() <= 1.001  # else the next one (seen: 90.2 %)
    drawn = drawn_in(space, low, high, {})
    free = [name for name in loose if not space.variables[name].integer]
    assert len(free) > 3 and all(
        (np.abs(np.log(drawn[name] / design[name])) <= np.log(SEARCH.sweep.neighbor_ratio) * 1.001).all()
        for name in free
    )


def test_a_question_without_designs_has_no_start():
    spec = Specification(ToyCost(power_budget_w=1e3), 1000)
    assert strata_around_optimum(spec.problem, 1000 * SEARCH.sweep.variants_per_node) is None
