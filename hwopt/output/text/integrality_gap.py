"""Integrality gap of an answer, and its alternatives compared: words and JSON."""

from collections.abc import Sequence
from typing import Any

from hwopt.analysis.integrality_gap import AnswerAlternative, IntegralityGap
from hwopt.output.text.layout import heading
from hwopt.output.text.parts import number
from hwopt.units import pretty

_SHOWN = (
    "chips",
    "hbm_stacks",
    "scale_up_lanes",
    "scale_up_domain",
    "nics_per_server",
    "chips_per_rack",
    "clock_ratio",
)
"""Machine variables shown in a row of the table of alternatives."""


PROVED = 1e-3
"""Optimality gap of the relaxed answer up to which the integrality gap is printed as a single figure."""


def price_words(price: IntegralityGap, unit: str) -> str:
    """Return the integrality gap, the extra cost of buying whole units, in a line."""
    relaxed, share = pretty(price.relaxed.objective, unit, 6), f"buying in whole units costs {100 * price.share:.3g} %"
    if price.gap > PROVED:
        return f"{share} or more over continuous hardware ({relaxed} found in a short search; --alternatives searches longer)"
    return f"{share} over continuous hardware ({relaxed}, gap {100 * price.gap:.2g} %)"


def price_document(price: IntegralityGap | None) -> dict[str, Any] | None:
    """Return the integrality gap, the cost of whole units over continuous hardware, for JSON."""
    if price is None:
        return None
    return {
        "share": number(price.share),
        "relaxed_objective": number(price.relaxed.objective),
        "relaxed_gap": number(price.gap),
    }


def alternative_lines(rows: Sequence[AnswerAlternative], unit: str) -> list[str]:
    """Return a line for each alternative answer, with its objective and the variables of its machine."""
    if not rows:
        return []
    width = max(len(each.name) for each in rows)
    lines = heading("As sold, nearest in whole units, redesigned")
    for each in rows:
        if each.solution is None:
            lines.append(f"  {each.name:<{width}}  none, or none known in time")
            continue
        design = each.solution.design
        parts = ", ".join(f"{name} {design[name].value:,.4g}" for name in _SHOWN if name in design)
        lines.append(f"  {each.name:<{width}}  {pretty(each.solution.objective, unit, 5):>12}  {parts}")
    return lines


def alternatives_document(rows: Sequence[AnswerAlternative]) -> list[dict[str, Any]]:
    """Return the alternative answers for JSON."""
    return [
        {
            "name": each.name,
            "meaning": each.meaning,
            "objective": None if each.solution is None else number(each.solution.objective),
            "gap": None if each.solution is None else each.solution.certificate.gap,
            "design": None if each.solution is None else {n: number(v.value) for n, v in each.solution.design.items()},
        }
        for each in rows
    ]
