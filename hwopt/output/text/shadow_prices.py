"""What budgets are worth, in words and as a document: with the plan of the answer, and on both sides with all integers free."""

import math
from typing import Any

from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.output.text.parts import number
from hwopt.solver.solution import BudgetUse, OneSidedPrice

PRICED = 1e-4
"""Elasticities of budgets below are rounding."""

CERTIFIED = 2e-4
"""Relative difference of two objectives that their certificates do not resolve: about twice the gap at which a search ends."""

_DIGITS = 4  # of prices, rounded outwards


def status_of(budget: BudgetUse) -> str:
    """Return whether a budget binds: "exceeded", "binding", "slack", "not binding for this plan" or "not known".

    "slack" requires re-solving on both sides without a difference beyond the certificate. A shadow price of 0 only means that the
    plan of the answer gains nothing from a larger budget; another plan may.
    """
    if budget.used > budget.limit * (1.0 + FEASIBILITY_TOLERANCE):
        return "exceeded"
    sides = budget.one_sided or ()
    if budget.elasticity > PRICED or any(each.resolved for each in sides):
        return "binding"
    if sides and all(_within_certificate(each, budget) for each in sides):
        return "slack"
    return "not known" if math.isnan(budget.elasticity) else "not binding for this plan"


def _within_certificate(side: OneSidedPrice, budget: BudgetUse) -> bool:
    """Return whether the largest possible effect of moving a limit is within the certificate."""
    return side.high * abs(side.limit - budget.limit) <= CERTIFIED * side.lower_bound


def price_words(budget: BudgetUse, alone: bool = True) -> str:
    """Describe the shadow price of a budget. **Arguments:** `alone`: whether the question can be re-solved by itself."""
    status = status_of(budget)
    if status == "exceeded":
        return status
    if budget.one_sided is not None:
        slack = "slack, confirmed by re-solving" if status == "slack" else _with_this_plan(budget)
        return f"{_sides_words(budget)}; {slack}"
    if status == "not known":
        return "price with this plan not known" + alone * "; --one-sided-prices solves the question again on both sides"
    if status == "binding":
        return f"{budget.elasticity:.3g} % of the objective per %; {_with_this_plan(budget)}"
    if budget.relaxed_elasticity is not None and budget.relaxed_elasticity > PRICED:
        return f"not binding in integers for this plan; relaxed, {budget.relaxed_elasticity:.2g} % per %"
    return f"not binding (shadow price 0 for this plan{alone * '; --one-sided-prices re-optimizes'})"


def _with_this_plan(budget: BudgetUse) -> str:
    """The multiplier of an answer's own plan."""
    if math.isnan(budget.elasticity):
        return "with this plan not known"
    if budget.elasticity <= PRICED:
        return "not binding for this plan"
    return f"with this plan one more {budget.unit} saves {budget.shadow_price:.4g} {budget.shadow_price_unit}"


def _sides_words(budget: BudgetUse) -> str:
    assert budget.one_sided is not None
    (less, more), unit = budget.one_sided, budget.shadow_price_unit
    percent = [f"{100 * abs(each.limit / budget.limit - 1.0):.3g} %" for each in (less, more)]
    costs = "leaves no design" if less.leaves_no_design else _interval("costs", less, unit)
    return f"{percent[0]} less {costs}, {percent[1]} more {_interval('saves', more, unit)}"


def _interval(verb: str, price: OneSidedPrice, unit: str) -> str:
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


def _side(price: OneSidedPrice) -> dict[str, Any]:
    return {
        "limit": price.limit,
        "low": number(price.low),
        "high": number(price.high),
        "resolved": price.resolved,
        "leaves_no_design": price.leaves_no_design,
        "objective": number(price.objective),
        "lower_bound": number(price.lower_bound),
    }
