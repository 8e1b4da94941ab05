"""Sensitivities of an optimum, as a screen and as JSON."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from hwopt.analysis.sensitivity import Sensitivity
from hwopt.analysis.sensitivity.optimum import Parameter
from hwopt.declared import plain
from hwopt.design.metrics import METRICS
from hwopt.design.template_inputs import Input
from hwopt.output.text.improvement import worth_document, worth_lines
from hwopt.output.text.layout import MODEL_ONLY, heading, wrapped
from hwopt.output.text.parts import number, numbers
from hwopt.output.text.plans import plan_document, plan_line
from hwopt.units import fitting, pretty

_SHOWN = 1e-4
"""Absolute elasticity below which an entry is left out of screens."""

_METRICS = 6
"""Maximum number of metric columns on a screen."""

_WIDTH = 46

Rows: TypeAlias = Iterable[tuple[str, Iterable[float]]]


def sensitivity_document(answer: Sensitivity) -> dict[str, Any]:
    """Return the answer of `sensitivity` as JSON.

    Elasticities are in percent of the objective per percent of the input. `effect` is the relative change of the optimal
    objective at the two ends of an input's range. It is null at an end where no hardware satisfies the budgets with the integers
    of the optimum.
    """
    problem, optimum, metrics = answer.problem, answer.optimum, answer.elasticities.metrics
    goal, bounds = problem.objective, optimum.bounds if optimum else {}
    return {
        "question": problem.question,
        "approximations": problem.provenance.approximations,
        "objective": {"name": goal.name, "value": number(answer.objective), "unit": goal.unit},
        "plan": plan_document(answer.report, answer.built.plan),
        "chips": number(answer.built.cluster.chips),
        "design": numbers(optimum.design) if optimum else None,
        "scope": _scope(answer),
        "proof": answer.proof,
        "worth": worth_document(answer),
        "parameters": [_parameter(each) for each in answer.parameters],
        "budgets": plain(answer.budgets),
        "bounds": {name: {"side": side, "elasticity": elasticity} for name, (side, elasticity) in bounds.items()},
        "nearly_active": optimum.nearly_active if optimum else None,
        "metrics": {
            name: {"value": number(value), "unit": METRICS[name].unit, "elasticities": answer.elasticities.of(name)}
            for name, value in metrics.items()
        },
    }


def _parameter(each: Parameter) -> dict[str, Any]:
    low, high = each.effect
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
        "effect": {"low": number(low), "high": number(high), "solved_again": each.solved},
        "design_elasticities": numbers(each.design),
    }


def _scope(answer: Sensitivity) -> str:
    optimum = answer.optimum
    if optimum is None:
        return f"Sensitivities of the optimum are not known: {answer.unknown}"
    text = "Integers and plan fixed; hardware re-optimised; exact for small changes."
    if not optimum.convex:
        text = f"Integers and plan fixed as answered, sizes at the optimum beside it; exact for small changes. {answer.proof}"
    near = optimum.nearly_active
    return f"{text} {near} constraints are about to bind or let go: to one side other numbers hold." if near else text


def _short(name: str) -> str:
    """Return a name without the common prefix, cut in the middle where it is long."""
    name = name.removeprefix("cluster.")
    return name if len(name) <= _WIDTH else f"{name[: _WIDTH // 2 - 2]}...{name[-_WIDTH // 2 + 1 :]}"


def _value(value: float, unit: str, digits: int = 4) -> str:
    """Return a number as `pretty` prints it, with large counts in powers of ten."""
    shown = pretty(value, unit, digits)
    return shown if len(shown) <= 15 else f"{value:.{digits}g} {unit}".strip()


def effect_words(effect: float) -> str:
    """Return the relative change of an optimum in percent; "no design" where it is infinite."""
    return "no design" if effect == float("inf") else f"{100 * effect:+.2f} %"


def _line(label: str, cells: Iterable[str]) -> str:
    """Return a row of a table; its cells are already padded."""
    return f"  {label:<{_WIDTH}} {' '.join(cells)}"


def _budgets(answer: Sensitivity) -> list[str]:
    lines = heading("Budgets: % of the objective by % of the limit")
    unit = answer.problem.objective.unit
    for each in answer.budgets:
        factor, shown = fitting(each.unit, [each.limit])  # customary units: days, MW, M$
        one = {"days": "day", "years": "year"}.get(shown, shown)
        saves = f"one more {one} saves {pretty(each.shadow_price * factor, unit)}"
        price = saves if each.elasticity > _SHOWN else "not binding for this plan"
        used = f"{100 * each.used / each.limit:.2f} % used, {price}"
        lines.append(_line(each.name, [f"{pretty(each.limit, each.unit):>12}  {-each.elasticity:+9.4f}  {used}"]))
    bounds = answer.optimum.bounds if answer.optimum else {}
    return lines + [
        _line(f"{name}, {side} bound of its box", [f"{'':>12}  {elasticity:+9.4f}"])
        for name, (side, elasticity) in bounds.items()
    ]


def parameter_words(each: Parameter) -> tuple[str, str, str, str, str]:
    """Return name, value, elasticity, low and high end of an input's range as text.

    The elasticity to a temperature is in percent per kelvin, because a percentage of an absolute temperature means little.
    """
    value, unit = each.input.value, each.input.unit
    low, high = (_value(end, unit, 3) for end in (each.range.low, each.range.high))
    slope = f"{100 * each.elasticity / value:+.3f}/K" if each.input.is_temperature else f"{each.elasticity:+.4f}"
    return _short(each.input.name), _value(value, unit), slope, low, high


def _row(each: Parameter) -> str:
    mark = "~" if each.kinked or not each.solved else " "
    name, value, slope, low, high = parameter_words(each)
    ends = (f"{effect_words(effect):>10}" for effect in each.effect)
    return _line(
        name, [f"{value:>16}", f"{slope:>10}{mark}", f"{low + ' .. ' + high:>30}", *ends, f" {each.range.kind}"]
    )


def _assumptions(answer: Sensitivity, top: int) -> list[str]:
    """Return the tables of inputs: those with stated ranges by their effect over the range, the others by elasticity."""
    asked = [each for each in answer.parameters if each.input.is_asked]
    rest = [each for each in answer.parameters if not each.range.stated and not each.input.is_asked]
    head = _line("", [f"{'value':>16} {'% by %':>10}  {'range':>30} {'at low':>10} {'at high':>10}"])
    uncertain = "Which assumption to check again: by elasticity times what the catalogue states of its uncertainty"
    groups = {
        uncertain: answer.ranked()[:top],
        "Without a stated range (10 % to both sides, temperatures 5 K)": rest[: top // 2],
        "What is asked for (10 % to both sides)": asked[: top // 2],
    }
    lines = [line for title, rows in groups.items() if rows for line in (*heading(title), head, *map(_row, rows))]
    if any(each.kinked or not each.solved for each in answer.parameters):
        lines.append("  ~ another elasticity to the other side, or none there; or ends by elasticity alone")
    if any(math.inf in each.effect for each in answer.parameters):
        lines.append(
            "  no design: these integers of chips and plan satisfy the budgets there with no hardware; others may"
        )
    return lines


def _per_percent(each: Input) -> tuple[str, float]:
    """Return an input's name and the factor from its elasticity to the displayed one, which is in %/K for a temperature."""
    name = _short(each.name)
    return (f"{name}, by K", 100.0 / each.value) if each.is_temperature else (name, 1.0)


def _table(title: str, columns: Sequence[str], now: Iterable[str], rows: Rows, width: int) -> list[str]:
    """Return a table of elasticities.

    **Arguments:**

    - `columns`: its headings.
    - `now`: current values, the first row.
    - `rows`: labels with numbers.
    """
    padded = lambda cells: (f"{each:>{width}}" for each in cells)
    lines = [*heading(title), _line("", padded(columns)), _line("now", padded(now))]
    return lines + [_line(label, padded(map(_elasticity, numbers))) for label, numbers in rows]


def _design(answer: Sensitivity, top: int) -> list[str]:
    """Return the elasticities of the continuous design variables to binding budgets and to the most influential inputs."""
    if answer.optimum is None or not answer.optimum.design or not answer.optimum.convex:
        return []
    design = answer.optimum.design
    rows = [
        (each.name, [each.design_elasticities[x] for x in design])
        for each in answer.budgets
        if each.elasticity > _SHOWN
    ]
    for each in answer.ranked()[:top]:
        label, scale = _per_percent(each.input)
        rows.append((label, [scale * each.design[name] for name in design]))
    columns = [_column(name) for name in design]
    units = {each.name: each.unit if each.unit in ("B", "B/s", "Hz", "m2") else "" for each in answer.problem.variables}
    now = (_value(value, units[name]) for name, value in design.items())
    return _table("How the best design answers: % by %", columns, now, rows, max(10, *map(len, columns)))


def _elasticity(elasticity: float) -> str:
    """Return an elasticity of a design variable as a table cell; a dot where it is negligible."""
    if math.isnan(elasticity):
        return "not unique"
    return "." if abs(elasticity) < 5e-4 else f"{elasticity:+.3f}"


def _column(name: str) -> str:
    """Return a variable's name, shortened to fit a column."""
    return name.replace("bandwidth_bytes_per_s", "B/s").replace("capacity_bytes", "B").replace("_", " ")


def _metrics(answer: Sensitivity, top: int) -> list[str]:
    """Return the table of elasticities of metrics to inputs, with the design fixed."""
    fixed = answer.elasticities
    names = list(fixed.metrics)[:_METRICS]
    labels, scales = zip(*map(_per_percent, fixed.inputs), strict=True)
    table = np.nan_to_num(fixed.table[: len(names)] * np.array(scales))
    order = np.argsort(-np.abs(table).max(axis=0), kind="stable")[:top]
    now = (pretty(fixed.metrics[name], METRICS[name].unit) for name in names)
    rows = [(labels[place], table[:, place]) for place in order]
    return _table("Metrics at this design, nothing re-optimised: % by %", names, now, rows, 18)


def sensitivity_screen(answer: Sensitivity, top: int = 12) -> str:
    """Return the answer of `sensitivity` as text: budgets, assumptions, response of the design, metrics.

    **Arguments:** `top`: number of rows of each table.
    """
    goal, chips = answer.problem.objective, float(answer.built.cluster.chips)
    lines = [
        answer.problem.question,
        f"{goal.name} = {pretty(answer.objective, goal.unit, 6)} with {chips:,.0f} chips; "
        f"plan {plan_line(answer.report, answer.built.plan)}",
        wrapped(_scope(answer), ""),
        *_budgets(answer),
        *worth_lines(answer, top),
        *_assumptions(answer, top),
        *_design(answer, top // 2),
        *_metrics(answer, top),
        "",
        f"{MODEL_ONLY.capitalize()}; constants: {answer.problem.provenance.mode}.",
    ]
    return "\n".join(lines)
