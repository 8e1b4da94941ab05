"""Regret of an answer, and the value of information on its inputs: words and JSON."""

from typing import Any

from hwopt.analysis.chance_constraints.value_of_information import DesignCandidate, Regret
from hwopt.output.text.layout import heading, wrapped
from hwopt.output.text.parts import number
from hwopt.units import pretty


def regret_lines(regret: Regret | None, unit: str) -> list[str]:
    """Return lines on today's answer, the design with the least worst-case regret, and the value of knowing each input."""
    if regret is None:
        return []
    lines = heading("If these numbers were known")
    for each in regret.knowing:
        bound = "" if each.proved else "at least "
        worth = f"{bound}{pretty(each.saving, unit)} ({100 * each.share:.2g} % of the objective)"
        lines.append(f"  {each.name:<16} within {100 * each.varied:.3g} %: knowing it is worth {worth}")
    lines.append(_candidate_line("today's answer", regret.today, unit))
    if regret.least is regret.today:
        lines.append("  none of the designs that were tried has a smaller worst regret")
    else:
        lines.append(_candidate_line("least worst regret", regret.least, unit))
    text = (
        f"Worst over {regret.corners} corners, each number at an end of its range, and {regret.nodes} nodes of the expectation, "
        f"which reach further; among {regret.tried} designs: today's, and those proved best in {regret.solves} scenarios. Regret "
        "is at least that, since others may be better. Ranges hold four in five. Budgets are checked with the numbers as stated."
    )
    return [*lines, wrapped(text)]


def _candidate_line(name: str, each: DesignCandidate, unit: str) -> str:
    expected, worst = pretty(each.expected, unit), pretty(each.worst, unit)
    regret = f"{expected} expected, {worst} ({100 * each.worst_share:.2g} %) at worst" if each.worst else "none"
    where = f" ({each.worst_at})" if each.worst else ""
    return wrapped(
        f"{name:<20} {pretty(each.objective, unit, 6):>12}  regret {regret}{where}; {each.words}", "  ", " " * 23
    )


def regret_document(regret: Regret | None) -> dict[str, Any] | None:
    """Return the regret of an answer under uncertain inputs, for JSON."""
    if regret is None:
        return None
    return {
        "today": _candidate(regret.today),
        "least_worst": _candidate(regret.least),
        "knowing": [
            {
                "name": each.name,
                "meaning": each.meaning,
                "varied": each.varied,
                "saving": number(each.saving),
                "share": number(each.share),
                "proved": each.proved,
            }
            for each in regret.knowing
        ],
        "nodes": regret.nodes,
        "corners": regret.corners,
        "designs": regret.tried,
        "solves": regret.solves,
    }


def _candidate(each: DesignCandidate) -> dict[str, Any]:
    return {
        "objective": number(each.objective),
        "expected_regret": number(each.expected),
        "worst_regret": number(each.worst),
        "worst_share": number(each.worst_share),
        "worst_at": each.worst_at,
        "design": {name: number(value) for name, value in each.values.items()},
    }
