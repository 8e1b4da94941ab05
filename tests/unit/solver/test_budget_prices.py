"""What budgets are worth with all integers free: intervals that questions solved again lie in, and the words for them."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import hwopt
from hwopt.declared import document
from hwopt.output.text.shadow_prices import price_words
from hwopt.solver.budget_prices import _Ends, _side, with_one_sided_prices
from hwopt.solver.solution import BudgetUse, OneSidedPrice, OneSidedPrices
from results.benchmarks.prices import checks, random_answer
from tests.rotation import shared_out

BUDGET = BudgetUse("power_budget_w", 100.0, 100.0, "W", 0.5, "USD/W", 0.25, None)
SLACK = replace(BUDGET, used=98.0, shadow_price=0.0, elasticity=0.0)
HERE = _Ends(200.0, 199.9)


class Known:
    """A question under moved limits, its ends given."""

    def __init__(self, *ends: float):
        self.known, self.asked = _Ends(*ends), []

    def ends(self, factors) -> _Ends:
        self.asked.append(list(factors))
        return self.known


def test_the_interval_is_what_both_proofs_allow():
    moved = Known(202.0, 201.8)
    price = _side(moved, HERE, [SLACK, BUDGET], 1, -0.01)
    assert moved.asked == [[1.0, 0.99]]
    assert (price.low, price.high) == pytest.approx((201.8 - 200.0, 202.0 - 199.9)) and price.resolved
    price = _side(Known(199.0, 198.5), HERE, [SLACK, BUDGET], 1, 0.01)
    assert (price.low, price.high) == pytest.approx((199.9 - 199.0, 200.0 - 198.5))


def test_a_limit_that_the_answer_holds_is_not_solved_again():
    moved = Known(0.0, 0.0)
    price = _side(moved, HERE, [SLACK], 0, -0.01)
    assert not moved.asked and (price.low, price.high) == pytest.approx((0.0, 0.1)) and not price.resolved


@pytest.mark.parametrize(
    ("ends", "by", "low", "high"),
    [
        ((math.inf, math.inf), -0.01, math.inf, math.inf),  # proved that none holds it
        ((math.inf, 201.0), -0.01, 1.0, math.inf),  # none met, none excluded
        ((math.inf, 0.0), -0.01, 0.0, math.inf),  # no time
        ((math.inf, 0.0), 0.01, 0.0, math.inf),
        ((math.inf, 199.0), 0.01, 0.0, 1.0),  # today's answer holds a looser limit
        ((200.5, 200.4), 0.01, 0.0, 0.0),
    ],
)
def test_ends_of_intervals(ends, by, low, high):
    price = _side(Known(*ends), HERE, [BUDGET], 0, by)
    assert (price.low, price.high) == pytest.approx((low, high))
    assert price.leaves_no_design == math.isinf(low)


def priced(budget: BudgetUse, less: tuple[float, float], more: tuple[float, float]) -> BudgetUse:
    sides = OneSidedPrice(99.0, 201.0, 200.0, *less), OneSidedPrice(101.0, 199.0, 198.0, *more)
    return replace(budget, one_sided_prices=OneSidedPrices(*sides))


def test_words():
    said = price_words(priced(BUDGET, (0.612345, 0.623456), (0.41, 0.41)))
    assert said == (
        "1 % less costs 0.6123 to 0.6235 USD/W, 1 % more saves 0.41 USD/W; shadow price for this plan 0.5 USD/W"
    )
    said = price_words(priced(SLACK, (0.0, 1.23456e-6), (0.0, math.inf)))
    assert said == "1 % less costs 0 to 1.235e-06 USD/W, 1 % more saves an unknown amount; not binding for this plan"
    said = price_words(priced(SLACK, (math.inf, math.inf), (0.2, 0.3)))
    assert said.startswith("1 % less leaves no feasible design, 1 % more saves 0.2 to 0.3 USD/W")
    assert "costs at least 0.2 USD/W" in price_words(priced(BUDGET, (0.2, math.inf), (0.2, 0.3)))
    assert "shadow price for this plan 0.5 USD/W" in price_words(BUDGET)
    assert price_words(SLACK) == "not binding (shadow price 0 for this plan; --one-sided-prices re-optimizes)"
    assert price_words(SLACK, alone=False) == "not binding (shadow price 0 for this plan)"
    relaxed = replace(SLACK, relaxed_elasticity=0.3)
    assert price_words(relaxed) == "not binding for this plan; in the continuous relaxation 1 % more saves 0.3 %"


NOTHING, SOME = (0.0, 1e-3), (0.0, 0.1)  # at most 5e-6 and 5e-4 of the objective of `priced`


@pytest.mark.parametrize(
    ("budget", "status"),
    [
        (BUDGET, "binding"),
        (SLACK, "not binding for this plan"),
        (replace(SLACK, elasticity=math.nan), "not known"),
        (replace(BUDGET, used=101.0), "exceeded"),
        (priced(SLACK, NOTHING, NOTHING), "slack"),
        (priced(replace(SLACK, elasticity=math.nan), NOTHING, NOTHING), "slack"),
        (
            priced(SLACK, NOTHING, SOME),
            "not binding for this plan",
        ),  # looser: cut short, or an answer that is not the best
        (priced(SLACK, SOME, NOTHING), "not binding for this plan"),
        (priced(SLACK, NOTHING, (0.0, math.inf)), "not binding for this plan"),
        (priced(SLACK, NOTHING, (0.2, 0.3)), "binding"),  # another plan makes use of more
        (priced(BUDGET, NOTHING, NOTHING), "binding"),
    ],
)
def test_slack_is_what_solving_again_confirms(budget, status):
    assert budget.status == status
    said = price_words(budget)
    assert said.endswith("not binding, confirmed by re-optimizing") == (status == "slack")


def test_document():
    assert document(BUDGET)["one_sided_prices"] is None
    sides = document(priced(SLACK, (math.inf, math.inf), (0.0, 0.3)))["one_sided_prices"]
    assert sides["tighter"]["leaves_no_design"] and sides["tighter"]["low"] is sides["tighter"]["high"] is None
    assert sides["looser"] == {
        "limit": 101.0, "low": 0.0, "high": 0.3, "resolved": False, "leaves_no_design": False, "objective": 199.0,
        "lower_bound": 198.0,
    }  # fmt: skip


def test_an_answer_without_a_bound_keeps_its_one_price():
    local = SimpleNamespace(certificate=SimpleNamespace(lower_bound=None), feasible=True)
    assert with_one_sided_prices(local) is local


SMALL = {
    "tp": (4, 4), "pp": (1, 12), "virtual_stages": (1, 1), "micro_batch": (1, 2), "chips_per_rack": (16, 16),
    "nics_per_server": (4, 8),
}  # fmt: skip


@pytest.mark.search
def test_a_multiplier_of_0_that_solving_again_contradicts():
    """Chips come by the rack and plans by the step: what the plan of the answer makes no use of, another does."""
    question = hwopt.objective(
        "train_cost",
        workload="llama3.1-70b",
        global_batch=2048.0,
        power_budget_w=6e6,
        time_budget_s=87 * 86400.0,
        free="nics",
    )
    answer = with_one_sided_prices(hwopt.optimize(question, bounds={**SMALL, "cp": (1.0, 1.0), "zero": (1.0, 1.0)}))
    deadline, capital, power = answer.budgets
    assert 0.99 < deadline.used / deadline.limit < 1.0 and deadline.elasticity < 1e-6
    less, more = deadline.one_sided_prices
    for each in (less, more):
        assert each.resolved and each.high < 1.1 * each.low
        assert each.low * deadline.limit > 1e-3 * answer.objective
    assert less.lower_bound > answer.objective > more.objective
    for each in (*capital.one_sided_prices, *power.one_sided_prices):  # slack: a bound, and no bare 0
        assert not each.resolved and 0.0 < each.high * 0.01 * capital.limit < math.inf
    with jax.enable_x64(True):
        assert all(each.inside for each in checks(answer))


@pytest.mark.search
@pytest.mark.parametrize("seed", shared_out((3, 4), 2))
def test_random_questions_asked_again_lie_inside(seed):
    with jax.enable_x64(True):
        answer = with_one_sided_prices(random_answer(np.random.default_rng(seed)))
        for each in checks(answer):
            assert each.inside, each


@pytest.mark.search
def test_over_hardware_of_any_size_less_costs_what_more_saves():
    with jax.enable_x64(True):
        question = hwopt.objective("train_cost")
        free = hwopt.optimize(question, regime="relaxed").design
        plan = {name: (free[name].value,) * 2 for name in ("tp", "cp", "pp", "virtual_stages", "micro_batch")}
        answer = with_one_sided_prices(
            hwopt.optimize(question, regime="relaxed", bounds=plan)
        )  # other plans may save more
    for budget in answer.budgets:
        less, more = budget.one_sided_prices
        assert 0 <= more.low <= less.high
        binds = budget.used > 0.999 * budget.limit
        assert less.resolved == more.resolved == binds, budget.name
    assert any(budget.used > 0.999 * budget.limit for budget in answer.budgets)
