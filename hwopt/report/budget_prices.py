"""What budgets are worth, in words and as a document: with the plan of the answer, and on both sides with all integers free."""

import math
from typing import Any

from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.optim.solution import BudgetUse, SidePrice
from hwopt.report.parts import number

PRICED = 1e-4
"""Elasticities of budgets below are rounding."""

_DIGITS = 4  # of prices, rounded outwards


def price_words(budget: BudgetUse) -> str:
    """What a budget is worth, in words."""
    if budget.used > budget.limit * (1.0 + FEASIBILITY_TOLERANCE):
        return "exceeded"
    if budget.one_sided is not None:
        return f"{_sides_words(budget)}; {_with_this_plan(budget)}"
    if math.isnan(budget.elasticity):
        return "price with this plan not known; --one-sided-prices solves the question again on both sides"
    if budget.elasticity > PRICED:
        return f"{budget.elasticity:.3g} % of the objective per %; {_with_this_plan(budget)}"
    if budget.relaxed_elasticity is not None and budget.relaxed_elasticity > PRICED:
        return f"slack only in integers; relaxed, {budget.relaxed_elasticity:.2g} % per %"
    return "slack: worth nothing with this plan; prices with others were not computed"


def _with_this_plan(budget: BudgetUse) -> str:
    """The multiplier of an answer's own plan."""
    if math.isnan(budget.elasticity):
        return "with this plan not known"
    if budget.elasticity <= PRICED:
        return "slack with this plan"
    return f"with this plan one more {budget.unit} saves {budget.shadow_price:.4g} {budget.shadow_price_unit}"


def _sides_words(budget: BudgetUse) -> str:
    assert budget.one_sided is not None
    (less, more), unit = budget.one_sided, budget.shadow_price_unit
    percent = [f"{100 * abs(each.limit / budget.limit - 1.0):.3g} %" for each in (less, more)]
    costs = "leaves no design" if less.leaves_no_design else _interval("costs", less, unit)
    return f"{percent[0]} less {costs}, {percent[1]} more {_interval('saves', more, unit)}"


def _interval(verb: str, price: SidePrice, unit: str) -> str:
    """The price of one side in words, its ends rounded outwards."""
    low, high = _rounded(price.low, math.floor), _rounded(price.high, math.ceil)
    if not price.resolved:
        most = f": {verb} {high:.{_DIGITS}g} {unit} at most" if math.isfinite(high) else ""
        return f"not resolved{most}"
    if math.isinf(high):
        return f"{verb} {low:.{_DIGITS}g} {unit} at least"
    between = "" if low == high else f" to {high:.{_DIGITS}g}"
    return f"{verb} {low:.{_DIGITS}g}{between} {unit}"


def _rounded(value: float, towards: Any) -> float:
    """To a few digits, down or up."""
    if value == 0.0 or math.isinf(value):
        return value
    scale = 10.0 ** (_DIGITS - 1 - math.floor(math.log10(value)))
    return towards(value * scale) / scale


def one_sided_document(budget: BudgetUse) -> dict[str, Any] | None:
    """Prices of a budget on both sides; an end without a number is infinite, and so is the objective where no design was met."""
    if budget.one_sided is None:
        return None
    return {side: _side(price) for side, price in zip(("tighter", "looser"), budget.one_sided, strict=True)}


def _side(price: SidePrice) -> dict[str, Any]:
    return {
        "limit": price.limit,
        "low": number(price.low),
        "high": number(price.high),
        "resolved": price.resolved,
        "leaves_no_design": price.leaves_no_design,
        "objective": number(price.objective),
        "lower_bound": number(price.lower_bound),
    }
