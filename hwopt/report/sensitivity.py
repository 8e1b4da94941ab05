"""What an optimum hangs on, as a screen and as JSON."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np

from hwopt.plan import Plan, TrainingAndServing
from hwopt.report.documents import any_plan_document, number
from hwopt.report.layout import heading
from hwopt.report.screens import plan_line
from hwopt.report.serving_screens import serving_plan_line
from hwopt.study.sensitivity import Sensitivity
from hwopt.study.sensitivity.elasticities import metric_unit
from hwopt.study.sensitivity.inputs import Input
from hwopt.study.sensitivity.study import Parameter
from hwopt.units import pretty

_SHOWN = 1e-4
"""Elasticities below are left out of screens."""

_METRICS = 6
"""Metrics side by side that fit a screen."""

_WIDTH = 46


def sensitivity_document(found: Sensitivity) -> dict[str, Any]:
    """An answer of `sensitivity`. Elasticities are percent by percent; `effect` is the optimum's relative change at the ends
    of the range, null where no hardware holds the budgets there with these whole numbers.
    """
    problem, optimum = found.problem, found.optimum
    return {
        "question": problem.question,
        "objective": {
            "name": problem.objective.name,
            "value": number(found.objective),
            "unit": problem.objective.unit,
        },
        "plan": any_plan_document(found.built.plan, serves=False),
        "chips": number(found.built.cluster.chips),
        "design": {name: number(value) for name, value in optimum.design.items()} if optimum else None,
        "scope": _scope(found),
        "parameters": [_parameter(each) for each in found.parameters],
        "budgets": [
            {
                "name": each.name,
                "used": number(each.used),
                "limit": each.limit,
                "unit": each.unit,
                "elasticity": each.elasticity,
                "shadow_price": each.shadow_price,
                "shadow_price_unit": f"{problem.objective.unit}/{each.unit}",
                "design_elasticities": _numbers(each.design),
            }
            for each in found.budgets
        ],
        "bounds": {name: {"side": side, "elasticity": e} for name, (side, e) in optimum.bounds.items()}
        if optimum
        else {},
        "nearly_active": optimum.nearly_active if optimum else None,
        "metrics": {
            name: {"value": number(value), "unit": metric_unit(name), "elasticities": found.elasticities.of(name)}
            for name, value in found.elasticities.metrics.items()
        },
    }


def _numbers(values: dict[str, float]) -> dict[str, float | None]:
    return {name: number(value) for name, value in values.items()}


def _parameter(each: Parameter) -> dict[str, Any]:
    return {
        "name": each.input.name,
        "value": each.input.value,
        "unit": each.input.unit,
        "elasticity": number(each.elasticity),
        "one_sided": each.kinked,
        "low": each.range.low,
        "high": each.range.high,
        "range_stated": each.range.stated,
        "kind": each.range.kind or None,
        "source": each.range.source or None,
        "swing": number(each.swing),
        "effect": {"low": number(each.effect[0]), "high": number(each.effect[1]), "solved_again": each.solved},
        "design_elasticities": _numbers(each.design),
    }


def _scope(found: Sensitivity) -> str:
    if found.unknown:
        return f"Sensitivities of the optimum are not known: {found.unknown}"
    text = "Whole numbers and plan fixed; hardware re-optimised; exact for small changes."
    if found.optimum and found.optimum.nearly_active:
        text += (
            f" {found.optimum.nearly_active} constraints are about to bind or let go: to one side other numbers hold."
        )
    return text


def _short(name: str) -> str:
    """A name without what all names share, cut in the middle where it is long."""
    name = name.removeprefix("cluster.")
    return name if len(name) <= _WIDTH else f"{name[: _WIDTH // 2 - 2]}...{name[-_WIDTH // 2 + 1 :]}"


def _value(value: float, unit: str, digits: int = 4) -> str:
    """A number as `pretty` prints it, large counts in powers of ten."""
    shown = pretty(value, unit, digits)
    return shown if len(shown) <= 15 else f"{value:.{digits}g} {unit}".strip()


def _slope(each: Input, elasticity: float) -> str:
    """An elasticity; of a temperature the percents for one kelvin, because percents of an absolute one mean little."""
    return f"{100 * elasticity / each.value:+.3f}/K" if each.is_temperature else f"{elasticity:+.4f}"


def effect_words(effect: float) -> str:
    """The relative change of an optimum."""
    return "no design" if effect == float("inf") else f"{100 * effect:+.2f} %"


def _budgets(found: Sensitivity) -> list[str]:
    lines = heading("Budgets: % of the objective by % of the limit")
    unit = found.problem.objective.unit
    for each in found.budgets:
        used = f"{100 * each.used / each.limit:.2f} %"
        price = (
            f"one more {each.unit} saves {each.shadow_price:.4g} {unit}" if -each.elasticity > _SHOWN else "not binding"
        )
        lines.append(
            f"  {each.name:<{_WIDTH}} {pretty(each.limit, each.unit):>12}  {each.elasticity:+9.4f}  {used} used, {price}"
        )
    if found.optimum:
        lines += [
            f"  {name + ', ' + side + ' bound of its box':<{_WIDTH}} {'':>12}  {e:+9.4f}"
            for name, (side, e) in found.optimum.bounds.items()
        ]
    return lines


def parameter_words(each: Parameter) -> tuple[str, str, str, str, str]:
    """Name, value, elasticity, low and high end of an input's range."""
    low, high = (_value(end, each.input.unit, 3) for end in (each.range.low, each.range.high))
    slope = _slope(each.input, each.elasticity)
    return _short(each.input.name), _value(each.input.value, each.input.unit), slope, low, high


def _row(each: Parameter) -> str:
    mark = "~" if each.kinked or not each.solved else " "
    name, value, slope, low, high = parameter_words(each)
    return (
        f"  {name:<{_WIDTH}} {value:>16} {slope:>10}{mark}"
        f" {low + ' .. ' + high:>30} {effect_words(each.effect[0]):>10} {effect_words(each.effect[1]):>10}  {each.range.kind}"
    )


def _assumptions(found: Sensitivity, top: int) -> list[str]:
    """Parameters with stated ranges by what those are worth, and the others by elasticity."""
    ranked = found.ranked()[:top]
    asked = [each for each in found.parameters if each.input.is_asked]
    rest = [each for each in found.parameters if not each.range.stated and not each.input.is_asked]
    head = f"  {'':<{_WIDTH}} {'value':>16} {'% by %':>10}  {'range':>30} {'at low':>10} {'at high':>10}"
    lines = []
    for title, rows in (
        ("Which assumption to check again: by elasticity times what the catalogue states of its uncertainty", ranked),
        ("Without a stated range (10 % to both sides, temperatures 5 K)", rest[: top // 2]),
        ("What is asked for (10 % to both sides)", asked[: top // 2]),
    ):
        if rows:
            lines += [*heading(title), head, *(_row(each) for each in rows)]
    if any(each.kinked or not each.solved for each in found.parameters):
        lines.append("  ~ another elasticity to the other side, or none there; or ends by elasticity alone")
    if any(math.inf in each.effect for each in found.parameters):
        lines.append(
            "  no design: these whole numbers of chips and plan hold the budgets there with no hardware; others may"
        )
    return lines


def _design(found: Sensitivity, top: int) -> list[str]:
    """How the continuous design answers: to budgets that bind, and to what matters most."""
    if found.optimum is None or not found.optimum.design:
        return []
    names = list(found.optimum.design)
    rows = [(each.name, each.design, 1.0) for each in found.budgets if -each.elasticity > _SHOWN]
    for each in found.ranked()[:top]:
        scale = 100.0 / each.input.value if each.input.is_temperature else 1.0
        rows.append((_short(each.input.name) + (", by K" if each.input.is_temperature else ""), each.design, scale))
    columns = [_column(name) for name in names]
    width = max(10, *map(len, columns))
    units = {each.name: each.unit for each in found.problem.variables}
    now = (
        _value(found.optimum.design[name], units[name] if units[name] in ("B", "B/s", "Hz", "m2") else "")
        for name in names
    )
    lines = heading("How the best design answers: % by %")
    lines.append(f"  {'':<{_WIDTH}} " + " ".join(f"{each:>{width}}" for each in columns))
    lines.append(f"  {'now':<{_WIDTH}} " + " ".join(f"{each:>{width}}" for each in now))
    for label, design, scale in rows:
        shown = (f"{_answer(scale * design[name]):>{width}}" for name in names)
        lines.append(f"  {label:<{_WIDTH}} " + " ".join(shown))
    return lines


def _answer(elasticity: float) -> str:
    """How far a variable of the design moves; a dot where it stays."""
    if math.isnan(elasticity):
        return "not unique"
    return "." if abs(elasticity) < 5e-4 else f"{elasticity:+.3f}"


def _column(name: str) -> str:
    """A variable's name, short enough for a column."""
    return name.replace("bandwidth_bytes_per_s", "B/s").replace("capacity_bytes", "B").replace("_", " ")


def _metrics(found: Sensitivity, top: int) -> list[str]:
    """A table of metrics by inputs, all else held."""
    held = found.elasticities
    names = list(held.metrics)[:_METRICS]
    scale = np.array([100.0 / each.value if each.is_temperature else 1.0 for each in held.inputs])
    table = np.nan_to_num(held.table[: len(names)] * scale)
    rows = np.argsort(-np.abs(table).max(axis=0), kind="stable")[:top]
    lines = heading("Metrics at this design, nothing re-optimised: % by %")
    lines.append(f"  {'':<{_WIDTH}} " + " ".join(f"{name:>18}" for name in names))
    lines.append(
        f"  {'now':<{_WIDTH}} " + " ".join(f"{pretty(held.metrics[name], metric_unit(name)):>18}" for name in names)
    )
    for row in rows:
        label = _short(held.inputs[row].name) + (", by K" if held.inputs[row].is_temperature else "")
        lines.append(f"  {label:<{_WIDTH}} " + " ".join(f"{_answer(x):>18}" for x in table[:, row]))
    return lines


def _plan_words(plan: Plan | TrainingAndServing) -> str:
    if isinstance(plan, TrainingAndServing):
        return f"{plan_line(plan.training)}; it serves by {serving_plan_line(plan.serving)}"
    return plan_line(plan)


def sensitivity_screen(found: Sensitivity, top: int = 12) -> str:
    """One screen for `sensitivity`: budgets, assumptions, how the design answers, metrics.

    **Arguments:** `top`: how many rows of each.
    """
    problem = found.problem
    lines = [
        problem.question,
        f"{problem.objective.name} = {pretty(found.objective, problem.objective.unit, 6)} with "
        f"{float(found.built.cluster.chips):,.0f} chips; plan {_plan_words(found.built.plan)}",
        textwrap.fill(_scope(found), 118),
    ]
    lines += [*_budgets(found), *_assumptions(found, top), *_design(found, top // 2)]
    lines += _metrics(found, top)
    lines += ["", "Constants from literature, not fitted: a statement about the model, not about silicon."]
    return "\n".join(lines)
