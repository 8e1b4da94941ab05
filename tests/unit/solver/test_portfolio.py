"""Portfolios: between separate optima and any one member's parts for all, equal to what they are of one, and to all parts tried."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math

import jax
import numpy as np
import pytest

import hwopt
from hwopt.design.portfolio import portfolio_of
from hwopt.errors import UserError
from hwopt.output.answers.portfolio import portfolio_answer, portfolio_document
from hwopt.solver.options import SEARCH
from hwopt.solver.portfolio.master import least_weighted_sum
from hwopt.solver.portfolio.solve import certified_portfolio, choice_rows
from hwopt.solver.solution import BranchOutcome, Outcome
from tests.rotation import one_in
from tests.tiers import turn

LIST = """
free = "nics+racks"
[members.big]
question = "train_cost"
workload = "llama3.1-8b"
tokens = 1e12
global_batch = 512
runs = 2
bounds = {tp = 1, cp = 1, zero = 2, pp = 1, virtual_stages = 1, micro_batch = [1, 2], recompute = 1, chips = [64, 512]}
offload = "none"
[members.assistant]
question = "serve_cost"
workload = "llama3.1-70b"
served_tokens = 3e11
bounds = {tp = [2, 4], pp = 1}
"""
RACKS, NICS = (8, 16), (1, 2)
PARTS = {"chips_per_rack": (8.0, 16.0), "nics_per_server": (1.0, 2.0)}
SOLVED = 1e-4  # what a search of one question leaves


@pytest.fixture(scope="module")
def question(tmp_path_factory):
    path = tmp_path_factory.mktemp("portfolio") / "list.toml"
    path.write_text(LIST, encoding="utf-8")
    return hwopt.objective("portfolio", members=str(path))


@pytest.fixture(scope="module")
def answer(question):
    return hwopt.optimize(question, bounds=PARTS)


@pytest.fixture(scope="module")
def alone(question):
    """Each member on parts of its own."""
    weights = {each.name: each.weight for each in portfolio_of(question).members}
    asked = {name: dataclasses.replace(question, only=name) for name in weights}
    return {name: (weights[name], hwopt.optimize(each, bounds=PARTS)) for name, each in asked.items()}


def test_members_hold_their_budgets_on_the_same_parts(answer):
    assert answer.outcome is Outcome.proved and answer.certificate.gap <= 1e-3
    for each in answer.members:
        assert all(budget.used <= budget.limit * (1.0 + 1e-6) for budget in each.solution.budgets)
        for name, part in answer.parts.items():
            assert each.solution.design[name].value == part.value
        rack, servers = each.solution.built.cluster.rack, float(each.solution.report.servers)
        assert float(each.solution.report.racks) == pytest.approx(round(float(each.solution.report.racks)))
        assert servers * float(rack.server_chips) == pytest.approx(float(each.solution.built.cluster.chips))
    assert sum(each.cost for each in answer.members) == pytest.approx(answer.objective)


@one_in(4, 3)
def test_it_is_never_cheaper_than_separate_optima(answer, alone):
    separate = sum(weight * each.certificate.lower_bound for weight, each in alone.values())
    assert answer.objective >= separate
    assert answer.certificate.lower_bound >= answer.separate_bound * (1.0 - 1e-9)
    for member, (weight, each) in zip(answer.members, alone.values(), strict=True):
        np.testing.assert_allclose(member.alone, weight * each.objective, rtol=2 * SOLVED)
        assert member.alone_bound <= weight * each.objective


@one_in(4, 3)
def test_it_is_never_dearer_than_the_parts_of_any_member_for_all(question, answer, alone):
    """And no cheaper than its bound: any list of designs in the same parts is one of those it is the best of."""
    members = {each.name: each for each in portfolio_of(question).members}
    for _, own in list(alone.values())[turn() // 4 % 2 :: 2]:
        parts = {name: (own.design[name].value,) * 2 for name in answer.parts}
        clock = own.design["clock_ratio"].value
        parts["clock_ratio"] = (clock * (1.0 - 1e-9), clock)
        with jax.enable_x64(True):
            others = [hwopt.optimize(each.problem.narrowed(parts), explain=False) for each in members.values()]
        cost = sum(each.weight * other.objective for each, other in zip(members.values(), others, strict=True))
        assert all(each.feasible for each in others)
        assert answer.objective <= cost * (1.0 + SEARCH.portfolio.gap + SOLVED)
        assert answer.certificate.lower_bound <= cost


@pytest.mark.search
def test_it_is_the_best_of_all_parts_tried_one_by_one(question):
    """At the clock that the chip is sold with: racks and NICs one by one, each member solved alone in them."""
    whole = hwopt.optimize(question, bounds=PARTS, freeze=["clock_ratio"])
    sold = {"clock_ratio": (1.0, 1.0)}
    best = math.inf
    for rack, nics in itertools.product(RACKS, NICS):
        box = sold | {"chips_per_rack": (rack, rack), "nics_per_server": (nics, nics)}
        with jax.enable_x64(True):
            costs = [each.weight * hwopt.optimize(each.problem.kept_at({k: v[0] for k, v in box.items()}), explain=False).objective
                     for each in portfolio_of(question).members]  # fmt: skip
        best = min(best, sum(costs))
    np.testing.assert_allclose(whole.objective, best, rtol=SEARCH.portfolio.gap + SOLVED)
    assert whole.certificate.lower_bound <= best


@one_in(4, 3)
def test_a_list_of_one_is_its_own_question(question, alone):
    weight, own = alone["big"]
    portfolio = portfolio_of(question)
    one = dataclasses.replace(portfolio, members=portfolio.members[:1]).narrowed(PARTS)

    @dataclasses.dataclass(frozen=True)
    class Alone:
        def problem(self):
            return own.problem

        def portfolio(self):
            return one

    found = certified_portfolio(choice_rows(Alone(), {}, (), {}))
    assert found.outcome is Outcome.proved
    np.testing.assert_allclose(found.objective, weight * own.objective, rtol=2 * SOLVED)
    assert {name: each.value for name, each in found.parts.items()} == pytest.approx(
        {name: own.design[name].value for name in found.parts}, rel=1e-3
    )


@pytest.mark.search
def test_a_choice_is_the_best_of_its_values(question, answer):
    chosen = hwopt.optimize(question, bounds=PARTS, choices={"chip": ["h100-sxm", "h200"]})
    other = hwopt.optimize(dataclasses.replace(question, chip="h200"), bounds=PARTS)
    best = min(answer.objective, other.objective)
    np.testing.assert_allclose(chosen.objective, best, rtol=SEARCH.portfolio.gap + SOLVED)
    assert chosen.certificate.lower_bound <= best
    assert chosen.chosen["chip"] == ("h100-sxm" if answer.objective < other.objective else "h200")
    left = next(each for each in chosen.choices if each.fate is not BranchOutcome.best)
    assert left.fate is BranchOutcome.beaten and left.lower_bound <= max(answer.objective, other.objective)


def test_a_member_that_cannot_hold_its_budget_is_named(question):
    portfolio = portfolio_of(question)
    late = dataclasses.replace(portfolio.members[0].problem.budgets[0], limit=3600.0)
    problem = portfolio.members[0].problem
    problem = dataclasses.replace(problem, budgets=(late, *problem.budgets[1:]))
    members = (dataclasses.replace(portfolio.members[0], problem=problem), portfolio.members[1])

    @dataclasses.dataclass(frozen=True)
    class Late:
        def problem(self):
            return problem

        def portfolio(self):
            return dataclasses.replace(portfolio, members=members).narrowed(PARTS)

    found = certified_portfolio(choice_rows(Late(), {}, (), {}), explain=False)
    assert found.outcome is Outcome.infeasible and not found.feasible
    assert "Member 'big'" in found.infeasibility


@one_in(2, 1)
def test_no_time_is_no_proof_but_a_list(question):
    found = hwopt.optimize(question, bounds=PARTS, seconds=1e-3)
    assert found.outcome is Outcome.best_found and found.certificate.gap is None
    held = (used.used <= used.limit * (1.0 + 1e-6) for each in found.members for used in each.solution.budgets)
    assert all(held) and found.objective == pytest.approx(sum(each.cost for each in found.members))
    for each in found.members:
        assert all(each.solution.design[name].value == part.value for name, part in found.parts.items())
    assert "--one-sided-prices" not in portfolio_answer(found).screen()  # which a list has not
    json.dumps(portfolio_document(found), allow_nan=False)


def test_what_is_said_of_it_adds_up(answer):
    """Costs of members, parts of the bill, shares; strict JSON."""
    document = json.loads(json.dumps(portfolio_document(answer), allow_nan=False))
    assert sum(each["cost_usd"] for each in document["members"]) == pytest.approx(document["objective"]["value"])
    assert sum(each["share"] for each in document["members"]) == pytest.approx(1.0)
    capital = sum(each["answer"]["report"]["capex_usd"] for each in document["members"])
    assert sum(row["count"] * row["unit_price"] for row in document["bill"]) == pytest.approx(capital, rel=1e-9)
    chips = sum(float(each.solution.built.cluster.chips) for each in answer.members)
    assert next(row["count"] for row in document["bill"] if row["part"] == "chips") == chips
    screen = portfolio_answer(answer).screen()
    for said in (
        "Shared components",
        "big",
        "assistant",
        "2 runs",
        "3e+11 served tokens",
        "gap",
        "components of its own",
    ):
        assert said in screen


@pytest.mark.parametrize(("a", "b"), [(1.0, 2.0), (3.0, 0.5), (1.0, 1.0)])
def test_the_least_of_two_tangents(a, b):
    """`a c + b / c` is least at sqrt(b / a), where it is 2 sqrt(a b); at an end where that lies beyond."""
    value, clock = least_weighted_sum([(a, 1.0), (b, -1.0)], 0.1, 10.0)
    assert value == pytest.approx(2.0 * math.sqrt(a * b), rel=1e-12)
    assert clock == pytest.approx(math.sqrt(b / a), rel=1e-6)
    assert least_weighted_sum([(a, 1.0), (b, 0.0)], 0.5, 1.0)[0] == pytest.approx(0.5 * a + b)
    assert least_weighted_sum([(a, 0.0), (b, 0.0)], 0.5, 1.0)[0] == a + b
    assert least_weighted_sum([(math.inf, 1.0), (b, 0.0)], 0.5, 1.0)[0] == math.inf


def test_parts_are_bounded_for_all_and_plans_for_each(question):
    with pytest.raises(UserError, match="'tp' is not a part that members share"):
        hwopt.optimize(question, bounds={"tp": (1.0, 2.0)})
    with pytest.raises(UserError, match="regime"):
        hwopt.optimize(question, regime="relaxed")
