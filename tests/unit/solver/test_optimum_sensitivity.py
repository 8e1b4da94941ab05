"""Derivatives of an optimum against solving again, with code that shares nothing with them but the solver."""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import numpy as np
import pytest

import hwopt
from hwopt.design.lattices import lattice_of
from hwopt.design.problem import Problem
from hwopt.design.template_inputs import template_inputs
from hwopt.errors import UserError
from hwopt.solver.interior_point.result import SolveStatus
from hwopt.solver.optimum_sensitivity import NoOptimum, _solved_again, optima, optimum_sensitivity
from hwopt.solver.search.node_relaxations import NodeRelaxations
from hwopt.solver.search.solve_global import solve_leaf
from tests.budgets import LARGE_RUN
from tests.rotation import rotated

DESIGN = {
    "tp": 16, "ep": 1, "pp": 8, "virtual_stages": 16, "micro_batch": 1, "dp": 128, "micro_batches": 16, "groups": 1,
    "chips_per_rack": 29, "hbm_stacks": 1, "dies": 1,
}  # fmt: skip
"""A good design of the default question: 16,384 chips, tp 16, pp 8."""

BUDGETS = LARGE_RUN | {"time_budget_s": 76 * 86400.0, "power_budget_w": 24.7e6, "capex_budget_usd": 0.95e9}
"""Two that bind there, and one that does not."""


@pytest.fixture(scope="module")
def problem():
    return hwopt.objective("train_cost", **BUDGETS).problem().continuous


@pytest.fixture(scope="module")
def inputs(problem):
    return template_inputs(problem)


def point_of(problem: Problem) -> np.ndarray:
    """`DESIGN` on the lattice of a question."""
    return lattice_of(problem).point(DESIGN)


@pytest.fixture(scope="module")
def found(problem, inputs):
    return optimum_sensitivity(problem, point_of(problem), [each.place for each in inputs])


def solved(problem: Problem) -> tuple[float, dict[str, float]]:
    """Logarithm of the optimum at `DESIGN`, and the continuous design, as the search sees them."""
    programme, answers = solve_leaf(NodeRelaxations(problem, lattice_of(problem)), point_of(problem))
    assert answers.status[0] == SolveStatus.solved
    names = {each.name for each in problem.variables}
    design = {name: y for name, y in zip(programme.names, answers.y[0], strict=True) if name in names}
    return float(answers.objective[0] + programme.constant[0]), design


def moved(problem: Problem, where, step: float, element: int | None = None) -> Problem:
    """The problem with one number of its template times 1 + step."""
    old = np.asarray(where(problem.template))
    new = old * (1 + step) if element is None else old * np.where(np.arange(len(old)) == element, 1 + step, 1.0)
    return dataclasses.replace(problem, template=eqx.tree_at(where, problem.template, new))


PARAMETERS = [
    ("cluster.prices.hbm_usd_per_byte_per_s", lambda d: d.cluster.prices.hbm_usd_per_byte_per_s, None),
    ("cluster.prices.hbm_usd_per_byte", lambda d: d.cluster.prices.hbm_usd_per_byte, None),
    ("cluster.chip.hbm_energy_j_per_byte", lambda d: d.cluster.chip.hbm_energy_j_per_byte, None),
    ("cluster.network.efficiency[scale_out]", lambda d: d.cluster.network.efficiency, 1),
    (
        "cluster.reliability.software_failures_per_chip_s",
        lambda d: d.cluster.reliability.software_failures_per_chip_s,
        None,
    ),
    ("cluster.facility.electricity_usd_per_j", lambda d: d.cluster.facility.electricity_usd_per_j, None),
]


@pytest.mark.parametrize("parameter", rotated(PARAMETERS, 3), ids=[each[0] for each in PARAMETERS])
def test_elasticity_equals_solving_again_one_percent_to_each_side(problem, inputs, found, parameter):
    name, where, element = parameter
    place = [each.name for each in inputs].index(name)
    (up, _), (down, _) = (solved(moved(problem, where, step, element)) for step in (0.01, -0.01))
    assert found.elasticities[place] == pytest.approx((up - down) / math.log(1.01 / 0.99), rel=0.01)
    assert abs(found.elasticities[place]) > 1e-3


@pytest.mark.parametrize("index", [0, 1, 2])
def test_budgets_cost_what_relaxing_them_saves(problem, found, index):
    """0.01 % to each side: the time budget's price bends by a tenth within 0.1 % of it."""
    budget = problem.budgets[index]
    logs = []
    for step in (1e-4, -1e-4):
        budgets = list(problem.budgets)
        budgets[index] = dataclasses.replace(budget, limit=budget.limit * (1 + step))
        logs.append(solved(dataclasses.replace(problem, budgets=tuple(budgets)))[0])
    slope = (logs[0] - logs[1]) / math.log(1.0001 / 0.9999)
    assert found.budgets[budget.name] == pytest.approx(slope, rel=0.01, abs=1e-6)
    assert (found.budgets[budget.name] < -0.05) == (budget.name != "capex_budget_usd")


def test_every_elasticity_equals_solving_again(problem, inputs, found):
    """All inputs, 0.01 % to each side: closer than where another constraint begins to bind."""
    step = 1e-4
    factors = np.tile([1 - step, 1 + step], (len(inputs), 1))
    ends = np.log(optima(problem, point_of(problem), [each.place for each in inputs], factors))
    slopes = (ends[:, 1] - ends[:, 0]) / math.log((1 + step) / (1 - step))
    known = np.isfinite(slopes)
    assert known.sum() >= len(inputs) - 1  # one layer less is a plan with more stages than layers
    np.testing.assert_allclose(found.elasticities[known], slopes[known], rtol=1e-3, atol=1e-5)
    assert np.isfinite(found.elasticities).all()
    assert [inputs[i].name for i in np.flatnonzero(found.kinked)] == ["workload.model.layers"]


@pytest.mark.parametrize("name", rotated((PARAMETERS[0][0], PARAMETERS[3][0]), 2))
def test_the_design_answers_as_solving_again_does(problem, inputs, found, name):
    where, element = {n: (w, e) for n, w, e in PARAMETERS}[name]
    step = 1e-3
    (_, up), (_, down) = (solved(moved(problem, where, side * step, element)) for side in (1, -1))
    place = [each.name for each in inputs].index(name)
    for column, variable in enumerate(found.design):
        slope = (up[variable] - down[variable]) / math.log((1 + step) / (1 - step))
        assert found.design_elasticities[place, column] == pytest.approx(slope, rel=0.01, abs=1e-3), variable


def test_the_design_answers_to_a_budget_as_solving_again_does(problem, found):
    step, designs = 1e-3, []
    for side in (1, -1):
        budgets = [
            dataclasses.replace(b, limit=b.limit * (1 + side * step * (i == 0))) for i, b in enumerate(problem.budgets)
        ]
        designs.append(solved(dataclasses.replace(problem, budgets=tuple(budgets)))[1])
    for column, variable in enumerate(found.design):
        slope = (designs[0][variable] - designs[1][variable]) / math.log((1 + step) / (1 - step))
        assert found.design_by_budget[0, column] == pytest.approx(slope, rel=0.01, abs=1e-3), variable


def test_prices_share_out_the_cost(inputs, found):
    """All prices, budgets on money and nothing else doubled double the cost: it is homogeneous in prices."""
    money = [i for i, each in enumerate(inputs) if "usd" in each.name]
    slack = found.budgets["capex_budget_usd"]
    assert found.elasticities[money].sum() + slack == pytest.approx(1.0, abs=1e-6)


def test_a_design_that_breaks_a_budget_has_no_sensitivity():
    tight = hwopt.objective("train_cost", **LARGE_RUN | {"capex_budget_usd": 0.5e9}).problem().continuous
    with pytest.raises(NoOptimum, match="no hardware satisfies the budgets"):
        optimum_sensitivity(tight, point_of(tight), [])


def test_a_point_off_the_lattice_is_refused(problem):
    off = lattice_of(problem).point(DESIGN | {"tp": 3, "pp": 200})  # heads are 128; more stages than layers
    with pytest.raises(UserError, match="no design of its lattice"):
        optimum_sensitivity(problem, off, [])


def test_what_cannot_be_read_together_is_solved_again(problem, inputs, found):
    """As the exponents of a loss law are; shown on inputs that can be read together too."""
    for name in ("cluster.chip.hbm_efficiency", "cluster.prices.chip_base_usd"):
        i = [each.name for each in inputs].index(name)
        assert _solved_again(problem, point_of(problem), inputs[i].place) == pytest.approx(
            found.elasticities[i], rel=1e-3
        )


def test_a_budget_that_no_hardware_touches_holds_or_does_not():
    """What integers alone decide is a number, not a constraint: the wafers of 24,960 chips."""
    wide, tight = (
        hwopt.objective("train_cost", **LARGE_RUN, wafers_budget=count).problem().continuous for count in (1e4, 10.0)
    )
    assert optimum_sensitivity(wide, point_of(wide), []).budgets["wafers_budget"] == 0.0
    with pytest.raises(NoOptimum):
        optimum_sensitivity(tight, point_of(tight), [])
