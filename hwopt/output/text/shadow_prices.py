"""Shadow prices in words: with the answer's own plan, and one-sided with all integers re-optimized."""

import math
from typing import Any

from hwopt.solver.solution import PRICED, BudgetUse, OneSidedPrice

_DIGITS = 4  # significant digits of prices, rounded outward


def price_words(budget: BudgetUse, alone: bool = True) -> str:
    """Describe the shadow price of a budget. **Arguments:** `alone`: whether the question can be re-solved by itself."""
    status = budget.status
    if status == "exceeded":
        return status
    if budget.one_sided_prices is not None:
        slack = "not binding, confirmed by re-optimizing" if status == "slack" else _with_this_plan(budget)
        return f"{_sides_words(budget)}; {slack}"
    if status == "not known":
        return "shadow price not known" + alone * "; --one-sided-prices re-optimizes with more and with less of it"
    if status == "binding":
        return f"binding: 1 % more saves {budget.elasticity:.3g} % of the objective; {_with_this_plan(budget)}"
    if budget.relaxed_elasticity is not None and budget.relaxed_elasticity > PRICED:
        return (
            f"not binding for this plan; in the continuous relaxation 1 % more saves {budget.relaxed_elasticity:.2g} %"
        )
    return f"not binding (shadow price 0 for this plan{alone * '; --one-sided-prices re-optimizes'})"


def _with_this_plan(budget: BudgetUse) -> str:
    """Return the shadow price with the answer's own plan, in words."""
    if math.isnan(budget.elasticity):
        return "shadow price for this plan not known"
    if budget.elasticity <= PRICED:
        return "not binding for this plan"
    return f"shadow price for this plan {budget.shadow_price:.4g} {budget.shadow_price_unit}"


def _sides_words(budget: BudgetUse) -> str:
    assert budget.one_sided_prices is not None
    (less, more), unit = budget.one_sided_prices, budget.shadow_price_unit
    percent = [f"{100 * abs(each.limit / budget.limit - 1.0):.3g} %" for each in (less, more)]
    costs = "leaves no feasible design" if less.leaves_no_design else _interval("costs", less, unit)
    return f"{percent[0]} less {costs}, {percent[1]} more {_interval('saves', more, unit)}"


def _interval(verb: str, price: OneSidedPrice, unit: str) -> str:
    """Return a one-sided price as an interval in words, rounded outward."""
    low, high = _rounded(price.low, math.floor), _rounded(price.high, math.ceil)
    if not price.resolved:
        return f"{verb} 0 to {high:.{_DIGITS}g} {unit}" if math.isfinite(high) else f"{verb} an unknown amount"
    if math.isinf(high):
        return f"{verb} at least {low:.{_DIGITS}g} {unit}"
    between = "" if low == high else f" to {high:.{_DIGITS}g}"
    return f"{verb} {low:.{_DIGITS}g}{between} {unit}"


def _rounded(value: float, towards: Any) -> float:
    """Return a value rounded to `_DIGITS` significant digits, by `towards`: down (floor) or up (ceil)."""
    if value == 0.0 or math.isinf(value):
        return value
    scale = 10.0 ** (_DIGITS - 1 - math.floor(math.log10(value)))
    return towards(value * scale) / scale
