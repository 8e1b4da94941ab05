"""Derivatives of a drawn chip's optimum: of the exact model's Lagrangian, and against solving again beside other numbers."""

from __future__ import annotations

import dataclasses
import math

import jax
import numpy as np
import pytest

from hwopt.design.exact import ExactModel
from hwopt.design.lattices import lattice_of
from hwopt.design.template_inputs import template_inputs
from hwopt.solver.optimum_sensitivity import optimum_sensitivity
from hwopt.solver.options import SEARCH
from hwopt.solver.search.fixed_integers import NoDerivative, boxes_around, perturbed_templates
from tests.rotation import rotated
from tests.tiers import turn
from tests.unit.solver.test_parametric_chips import PLAN, UNITS, question

pytestmark = [] if turn() % 4 == 0 else [pytest.mark.search]

START = {"compute_area_m2": 1.5e-3, "sram_bytes": 17e6, "clock_hz": 1.1e9}
"""Sizes beside the best ones of `PLAN` with three dies of which two units are off."""


@pytest.fixture(scope="module")
def problem():
    return question().problem()


@pytest.fixture(scope="module")
def point(problem):
    return lattice_of(problem).point(PLAN | START | {"dies": 3, "enabled_fraction": 142 / UNITS, "ep": 1})


@pytest.fixture(scope="module")
def inputs(problem):
    return template_inputs(problem)


@pytest.fixture(scope="module")
def found(problem, point, inputs):
    powers = frozenset(each.place for each in inputs if each.quantity.power)
    with jax.enable_x64(True):
        return optimum_sensitivity(problem, point, [each.place for each in inputs], powers, START)


def exact(problem, point, design, places, factors):
    """Logarithms of objective and constraints of one design, (row, 1 + constraint), numbers of the template moved by factors.

    **Arguments:** `design` (row, variable) logarithms; `places`, `factors` (row,): the number that a row moves; None for none.
    """
    model = ExactModel(problem)
    numbers = np.tile(np.concatenate(model.numbers), (len(design), 1))
    starts = np.cumsum([0, *map(len, model.numbers)])
    for row, (place, factor) in enumerate(zip(places, factors, strict=True)):
        if place is not None:
            numbers[row, starts[place[0]] + place[1]] *= factor
    whole = [each.integer for each in problem.variables]
    values = np.where(whole, np.round(np.exp(design)), np.exp(design))
    with jax.enable_x64(True):
        at = model._general(list(np.concatenate([numbers, values], axis=1).T), len(design))
    return np.concatenate([np.asarray(at.objective)[:, None], np.asarray(at.constraints)], axis=1)


@pytest.fixture(scope="module")
def lagrangian(problem, point, found, inputs):
    """Derivatives of the exact model's Lagrangian at the optimum, to each side: by sizes, and by each input; its multipliers."""
    step, values = 1e-6, lattice_of(problem).design(point) | found.design
    base = np.log([values.get(each.name, each.lower) for each in problem.variables])
    sizes = [i for i, each in enumerate(problem.variables) if each.name in START]
    moves = [(None, 1.0, i, side) for i in sizes for side in (step, -step)]
    moves += [(each.place, math.exp(side), None, 0.0) for each in inputs for side in (step, -step)]
    rows = np.tile(base, (1 + len(moves), 1))
    for row, (_, _, i, side) in enumerate(moves, start=1):
        if i is not None:
            rows[row, i] += side
    outputs = exact(problem, point, rows, [None, *(m[0] for m in moves)], [1.0, *(m[1] for m in moves)])
    outputs = np.where(np.isfinite(outputs), outputs, -1e3)  # what nothing is used of
    slopes = (outputs[1:] - outputs[0]).reshape(-1, 2, outputs.shape[1]) / np.array([step, -step])[None, :, None]
    by_size, by_input = slopes[: len(sizes)].mean(axis=1), slopes[len(sizes) :]
    active = 1 + np.flatnonzero((np.abs(outputs[0, 1:]) < 1e-5) & np.abs(by_size[:, 1:]).any(axis=0))
    multipliers, *_ = np.linalg.lstsq(by_size[:, active], -by_size[:, 0], rcond=None)
    left = by_size[:, 0] + by_size[:, active] @ multipliers
    names = [problem.constraints[i - 1] for i in active]
    return left, dict(zip(names, multipliers, strict=True)), by_input[:, :, 0] + by_input[:, :, active] @ multipliers


def test_the_exact_model_is_stationary_at_the_optimum(lagrangian):
    left, multipliers, _ = lagrangian
    assert np.abs(left).max() < 1e-4
    assert set(multipliers) == {"rack_power", "package"} and all(each > 0.01 for each in multipliers.values())


def test_elasticities_are_those_of_the_exact_models_lagrangian(found, lagrangian, inputs):
    _, _, slopes = lagrangian
    np.testing.assert_allclose(slopes[:, 0], slopes[:, 1], atol=1e-4)  # no maximum changes its part there
    np.testing.assert_allclose(found.elasticities, slopes.mean(axis=1), rtol=5e-3, atol=5e-5)
    assert (np.abs(found.elasticities) > 1e-3).sum() > 80 and not found.convex
    assert np.isnan(found.design_elasticities).all() and np.isnan(found.design_by_budget).all()


def test_shadow_prices_are_in_what_the_machine_is_limited_by(found, lagrangian, inputs):
    """A budget that is slack is worth nothing; a rack's limit and a package's are numbers like others, worth their multipliers."""
    _, multipliers, _ = lagrangian
    by_name = {each.name: found.elasticities[i] for i, each in enumerate(inputs)}
    assert by_name["cluster.cooling.rack_limit_w"] == pytest.approx(-multipliers["rack_power"], rel=1e-3)
    assert by_name["project.technology.package_limit_m2"] == pytest.approx(-multipliers["package"], rel=1e-3)
    assert all(abs(price) < 1e-6 for price in found.budgets.values()) and found.bounds == {}


@pytest.mark.parametrize(
    "name",
    rotated(
        ("project.process.defects_per_m2", "project.technology.hbm_bandwidth_bytes_per_s", "project.process.wafer_usd"),
        3,
    ),
)
def test_elasticity_equals_solving_again_a_percent_to_each_side(problem, point, inputs, found, name):
    place = [each.name for each in inputs].index(name)

    def optimum(factor: float) -> float:
        leaves = perturbed_templates(problem, [inputs[place].place], np.array([[factor]]))
        leaves = [leaf[-1].copy() for leaf in leaves]
        moved = dataclasses.replace(problem, template=jax.tree.unflatten(jax.tree.structure(problem.template), leaves))
        return math.log(optimum_sensitivity(moved, point, (), start=found.design).objective)

    with jax.enable_x64(True):
        slope = (optimum(1.01) - optimum(0.99)) / math.log(1.01 / 0.99)
    assert found.elasticities[place] == pytest.approx(slope, rel=0.01)


def test_the_optimum_beside_is_the_same_from_elsewhere(problem, point, found):
    with jax.enable_x64(True):
        near = boxes_around(problem, point, {"compute_area_m2": 1.35e-3, "sram_bytes": 12e6, "clock_hz": 1.0e9})
    for name, value in found.design.items():
        low, high = near[name]
        assert math.sqrt(low * high) == pytest.approx(value, rel=1e-4) and high / low == pytest.approx(
            1 + 2 * SEARCH.refinement.narrowest
        )


def test_where_no_design_is_beside_it_is_not_known(problem, point):
    with pytest.raises(NoDerivative, match="integers held"), jax.enable_x64(True):
        boxes_around(problem.relaxed([1e-3, 1.0, 1.0]), point, START)  # a run of two hours
