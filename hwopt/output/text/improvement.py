"""Value of a 10 % improvement of each input, as lines of a screen and as JSON."""

from __future__ import annotations

import textwrap
from typing import Any

from hwopt.analysis.sensitivity import Sensitivity
from hwopt.analysis.sensitivity.improvement import ImprovementValue, PartImprovement, improvement_values
from hwopt.analysis.sensitivity.ranges import UNSTATED_K
from hwopt.output.text.layout import heading
from hwopt.output.text.parts import number
from hwopt.units import pretty

_LEAST = 5e-7
"""Saving as a share of the objective below which an input is named without a line of its own."""


def worth_document(answer: Sensitivity) -> list[dict[str, Any]]:
    """Return the parts of the machine with their inputs, the most valuable first.

    `saves` is in the objective's unit, `share` is relative to it.
    """
    unit = answer.problem.objective.unit
    return [
        {
            "part": part.part,
            "technology": part.is_technology,
            "share": number(part.share),
            "saves": number(part.saves),
            "saves_unit": unit,
            "numbers": [_row(row, unit) for row in part.rows],
            "idle": [each.name for each in part.idle],
        }
        for part in improvement_values(answer)
    ]


def _row(row: ImprovementValue, unit: str) -> dict[str, Any]:
    each = row.parameter
    return {
        "name": each.input.name,
        "value": each.input.value,
        "unit": each.input.unit,
        "better": each.input.value * row.factor,
        "elasticity": number(each.elasticity),
        "share": number(row.share),
        "saves": number(row.saves),
        "saves_unit": unit,
    }


def worth_lines(answer: Sensitivity, top: int) -> list[str]:
    """Return the table of a screen: all inputs of a technology, and the first `top / 4` of every other part.

    The requirements of the question itself are left out.
    """
    parts = [part for part in improvement_values(answer) if part.part != "what is asked"]
    if not any(part.rows for part in parts):
        return []
    unit = answer.problem.objective.unit
    lines = heading(
        f"What 10 % of each is worth ({UNSTATED_K:g} K of a temperature): saved of the objective, sizes following"
    )
    lines += [_total(part, unit) for part in parts if part.rows]
    for part in parts:
        shown = [row for row in part.rows if row.share >= _LEAST]
        shown = shown if part.is_technology else shown[: max(1, top // 4)]
        lines += ["", *(_line(row, unit) for row in shown)] if shown else []
        if shown:
            lines.insert(-len(shown), f"  {part.part}")
        if part.is_technology:
            rest = [row.parameter.input.name for row in part.rows if row.share < _LEAST]
            lines += _nothing(rest + [each.name for each in part.idle], part.part)
    return lines


def _total(part: PartImprovement, unit: str) -> str:
    return f"  {'all of ' + part.part:<86}{pretty(part.saves, unit):>14} {100 * part.share:8.3f} %"


def _line(row: ImprovementValue, unit: str) -> str:
    each = row.parameter
    change = (
        f"{pretty(each.input.value, each.input.unit, 4)} -> {pretty(each.input.value * row.factor, each.input.unit, 4)}"
    )
    mark = "~" if each.kinked else ""
    return f"    {_name(each.input.name):<42}{change:>42}{pretty(row.saves, unit):>14} {100 * row.share:8.3f} %{mark}"


def _name(name: str) -> str:
    """Return an input's name without the module that its part's title already states."""
    return name.removeprefix("cluster.").removeprefix("project.")


def _nothing(names: list[str], part: str) -> list[str]:
    """Return a line that names the inputs of a part without effect here."""
    if not names:
        return []
    text = f"nothing here of {part}: " + ", ".join(each.rpartition(".")[2] for each in names)
    return textwrap.wrap(text, 118, initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False)
