"""Outcome of each combination of categorical choices, in words and as JSON."""

from collections.abc import Sequence
from typing import Any

from hwopt.output.text.layout import heading
from hwopt.output.text.parts import number
from hwopt.solver.solution import Branch, BranchOutcome
from hwopt.units import pretty

MOST_SHOWN = 24
"""Maximum number of combinations that a screen lists; the JSON has all."""


def choice_lines(rows: Sequence[Branch], unit: str) -> list[str]:
    """Return a line for each combination of categorical choices, the best first."""
    if not rows:
        return []
    width = max(len(each.name) for each in rows[:MOST_SHOWN])
    lines = heading("Choices")
    lines += [f"  {each.name:<{width}}  {outcome_words(each, unit)}" for each in rows[:MOST_SHOWN]]
    more = len(rows) - MOST_SHOWN
    return [*lines, f"  and {more} more, none of them better; all with --json"] if more > 0 else lines


def outcome_words(each: Branch, unit: str) -> str:
    """Return the outcome of a combination of categorical choices in words."""
    if each.fate is BranchOutcome.best and each.objective is not None:
        return f"{pretty(each.objective, unit, 5)}: the best"
    if each.fate is BranchOutcome.refused:
        return f"cannot be asked: {each.refused}"
    if each.lower_bound is None:
        return each.fate.value
    met = "" if each.objective is None else f"; best found {pretty(each.objective, unit, 5)}"
    return f"{each.fate.value}: none below {pretty(each.lower_bound, unit, 5)}{met}"


def choices_document(rows: Sequence[Branch]) -> list[dict[str, Any]]:
    """Return the outcomes of the combinations of categorical choices for JSON."""
    return [
        {
            "choice": dict(each.chosen),
            "outcome": each.fate.name,
            "objective": None if each.objective is None else number(each.objective),
            "lower_bound": None if each.lower_bound is None else number(each.lower_bound),
            "message": each.refused or each.fate.value,
        }
        for each in rows
    ]
