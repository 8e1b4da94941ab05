"""Budgets that all members of a portfolio share: boxes of allotments lose none, and the best list of tables is found and proved."""

from __future__ import annotations

import dataclasses
import itertools
import math
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import hwopt
from hwopt.solver.deadline import Deadline
from hwopt.solver.options import SEARCH
from hwopt.solver.portfolio.budget_allocation import BudgetAllocation, JointBudgetSearch
from hwopt.solver.portfolio.master import JointDesign
from hwopt.solver.portfolio.subproblem import MemberSearch
from hwopt.solver.solution import Outcome
from tests.rotation import one_in, shared_out
from tests.unit.solver.test_portfolio import LIST, PARTS


class Tables(JointBudgetSearch):
    """A portfolio whose members choose among rows (uses of budgets, cost) instead of designs."""

    def __init__(self, uses: list[np.ndarray], costs: list[np.ndarray]):
        budgets, members = uses[0].shape[1], len(uses)
        family = SimpleNamespace(asked=[None] * members, combinations=(1,), tilted=())
        super().__init__(cast(Any, [family]), cast(Any, [None] * budgets), Deadline(), most=4_000)
        self.uses, self.costs = uses, costs

    def _least(self):
        return np.stack([each.min(axis=0) for each in self.uses], axis=1)

    def _searched(self, shares, progress):
        self.searches += 1
        chosen, value = [], 0.0
        for i, (uses, costs) in enumerate(zip(self.uses, self.costs, strict=True)):
            allowed = np.where((uses <= shares[:, i] + 1e-12).all(axis=1), costs, np.inf)
            chosen.append(int(np.argmin(allowed)))
            value += float(allowed.min())
        better = value < self.best.value
        best = JointDesign(value, cast(Any, tuple(chosen))) if better else self.best
        return cast(Any, SimpleNamespace(best=best, proved_bound=min(value, self.best.value), complete=True, boxes=1))

    def used(self, listed):
        return np.stack([self.uses[i][k] for i, k in enumerate(cast(Any, listed.works))], axis=1)


@pytest.mark.parametrize("seed", range(8))
def test_the_best_of_tables_is_found(seed):
    """Rows that cost less use more, as designs do; against all lists of rows."""
    rng = np.random.default_rng(seed)
    members, budgets, rows = (2, 2, 3)[seed % 3], 1 + seed % 2, 12
    uses = [
        np.sort(rng.uniform(0.05, 0.9, rows))[:, None] * rng.uniform(0.8, 1.0, (rows, budgets)) for _ in range(members)
    ]
    costs = [1.0 + rng.uniform(0.1, 0.5) / each.mean(axis=1) for each in uses]
    search = Tables(uses, costs)
    search.run()
    best = math.inf
    for which in itertools.product(range(rows), repeat=members):
        together = sum(uses[i][k] for i, k in enumerate(which))
        if (together <= 1.0).all():
            best = min(best, sum(costs[i][k] for i, k in enumerate(which)))
    assert search.proved_bound <= best * (1 + 1e-12)
    assert search.complete
    if math.isfinite(best):
        assert search.best.value == pytest.approx(best, rel=SEARCH.portfolio.joint_gap)
        assert (search.used(search.best).sum(axis=1) <= 1.0 + 1e-6).all()


def test_too_little_for_all_is_proved_at_once():
    search = Tables([np.array([[0.6], [0.9]]), np.array([[0.5], [0.8]])], [np.array([2.0, 1.0]), np.array([2.0, 1.0])])
    search.run()
    assert search.complete and math.isinf(search.bound) and search.best.family is None and search.searches <= 2


def test_halves_hold_every_allotment_of_a_box():
    rng = np.random.default_rng(0)
    for _ in range(50):
        low = rng.dirichlet(np.ones(3), 2) * 0.5
        box = BudgetAllocation(low, np.ones((2, 3))).tightened
        used = low + rng.uniform(0.1, 0.6, (2, 3))
        np.testing.assert_allclose(box.wanted(used).sum(axis=1), 1.0)
        assert (box.wanted(used) >= low - 1e-12).all()
        halves = box.halves(used)
        for _ in range(50):
            shares = low + (1.0 - low.sum(axis=1, keepdims=True)) * rng.dirichlet(np.ones(3), 2)
            assert any((each.low <= shares + 1e-12).all() and (shares <= each.high + 1e-12).all() for each in halves)


def test_clocks_that_break_a_budget_are_no_clocks():
    """Costs fall with the clock, and a budget holds below 0.9."""
    exact = lambda points: SimpleNamespace(objective=-points[:, 0], violation=np.exp(points[:, 0]) - 0.9)
    problem = SimpleNamespace(variables=[SimpleNamespace(name="clock_ratio", lower=0.5)])
    member = SimpleNamespace(weight=2.0)
    asked = SimpleNamespace(problems=[problem], models=[SimpleNamespace(at=exact)], member=member)
    result = SimpleNamespace(point=np.ones(1), design={"clock_ratio": 0.8})
    search = SimpleNamespace(result=result, lattice=SimpleNamespace(design=lambda point: {}))
    work = MemberSearch(cast(Any, asked), cast(Any, search))
    np.testing.assert_allclose(work.at_clocks(np.array([0.8, 1.0])), [2.5, np.inf])
    np.testing.assert_allclose(work.at_clocks(np.array([0.8, 1.0]), held=False), [2.5, 2.0])


@pytest.fixture(scope="module")
def question(tmp_path_factory):
    path = tmp_path_factory.mktemp("joint") / "list.toml"
    mean = LIST.replace('"serve_cost"\n', '"serve_cost"\nttft_percentile = "mean"\n')  # percentiles close gaps slowly
    path.write_text("capex_budget_usd = 9e6\n" + mean, encoding="utf-8")
    return hwopt.objective("portfolio", members=str(path))


@pytest.fixture(scope="module")
def free(question):
    """The same list with more than all can spend."""
    return hwopt.optimize(dataclasses.replace(question, capex_budget_usd=1e9), bounds=PARTS)


OUTCOMES = {9.6e6: Outcome.best_found, 7.5e6: Outcome.not_found}


@pytest.mark.parametrize("limit", OUTCOMES)
@one_in(4, 1)
def test_a_list_that_is_found_without_time_holds_the_budget_of_all(question, limit):
    found = hwopt.optimize(dataclasses.replace(question, capex_budget_usd=limit), bounds=PARTS, seconds=1e-3)
    assert found.outcome is OUTCOMES[limit] and found.certificate.gap is None
    assert all(budget.used <= limit * (1.0 + 1e-6) for budget in found.budgets)


@pytest.mark.search
def test_a_budget_that_does_not_bind_changes_nothing(question, free):
    found = hwopt.optimize(question, bounds=PARTS)
    (budget,) = found.budgets
    assert found.outcome is Outcome.proved and budget.limit == 9e6
    assert budget.used == pytest.approx(sum(float(each.solution.report.capex_usd) for each in found.members))
    assert budget.used < 9e6
    assert found.objective == pytest.approx(free.objective, rel=SEARCH.portfolio.joint_gap)


@pytest.mark.search
@pytest.mark.parametrize(("field", "limit"), shared_out((("capex_budget_usd", 8.2e6), ("power_budget_w", 2.4e5)), 2))
def test_a_budget_that_binds_is_held_and_proved(question, free, field, limit):
    found = hwopt.optimize(dataclasses.replace(question, **{"capex_budget_usd": 1e9, field: limit}), bounds=PARTS)
    used = next(each for each in found.budgets if each.name == field)
    assert used.used <= limit * (1.0 + 1e-6)
    assert found.certificate.gap is not None and found.certificate.gap <= 1e-3
    assert found.objective >= free.certificate.lower_bound
    assert found.certificate.lower_bound >= free.certificate.lower_bound * (1.0 - 1e-9)


@pytest.mark.search
def test_too_little_for_all_is_infeasible(question):
    found = hwopt.optimize(dataclasses.replace(question, capex_budget_usd=7.5e6), bounds=PARTS, explain=False)
    assert found.outcome is Outcome.infeasible and "capex_budget_usd" in found.infeasibility
