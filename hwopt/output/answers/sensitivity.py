"""Answer of `hwopt sensitivity`: budgets, uncertain inputs, response of the design, metrics."""

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from hwopt.analysis.sensitivity import Sensitivity
from hwopt.analysis.sensitivity.improvement import improvement_values
from hwopt.analysis.sensitivity.optimum import BudgetSensitivity, Parameter
from hwopt.design.metrics import METRICS
from hwopt.design.template_inputs import Input
from hwopt.output.answer import Answer, Lines, Named, Section, Sentences, Table
from hwopt.output.html import components
from hwopt.output.schema.elements import INTEGER, NUMBER, TEXT, YES_OR_NO, by_name, listed, maybe, record, said, shared
from hwopt.output.schema.elements import answer as schema_of
from hwopt.output.schema.keys import Keys, goal_of
from hwopt.output.text.choices import choice_section, choices_document
from hwopt.output.text.customary_units import shown
from hwopt.output.text.improvement import WORTH, listed_inputs, worth_sections
from hwopt.output.text.layout import MODEL_ONLY
from hwopt.output.text.plans import plan_document, plan_line
from hwopt.output.text.token_prices import million_words
from hwopt.solver.solution import Branch
from hwopt.units import fitting, pretty

_SHOWN = 1e-4
"""Absolute elasticity below which an entry is left out of screens."""

_METRICS = 6
"""Maximum number of metric columns on a screen."""

_WIDTH = 46

Rows: TypeAlias = Iterable[tuple[str, Iterable[float]]]

_NUMBERS = by_name(maybe(NUMBER))
_EFFECT = Keys({
    "low": (maybe(NUMBER), lambda each: each.effect[0]),
    "high": (maybe(NUMBER), lambda each: each.effect[1]),
    "solved_again": (YES_OR_NO, lambda each: each.solved),
})  # fmt: skip
_PARAMETER = Keys({
    "name": (TEXT, lambda each: each.input.name),
    "value": (NUMBER, lambda each: each.input.value),
    "unit": (TEXT, lambda each: each.input.unit),
    "elasticity": (said(maybe(NUMBER), "percent of the objective per percent"), lambda each: each.elasticity),
    "one_sided": (YES_OR_NO, lambda each: each.kinked),
    "low": (maybe(NUMBER), lambda each: each.range.low),
    "high": (maybe(NUMBER), lambda each: each.range.high),
    "range_stated": (YES_OR_NO, lambda each: each.range.stated),
    "kind": (maybe(TEXT), lambda each: each.range.kind or None),
    "source": (maybe(TEXT), lambda each: each.range.source or None),
    "swing": (maybe(NUMBER), lambda each: each.swing),
    "effect": (said(_EFFECT.schema, "relative change of the optimum at the ends of the range; null where no hardware satisfies "
                    "the budgets with the integers of the optimum"), _EFFECT.document),
    "design_elasticities": (_NUMBERS, lambda each: each.design),
})  # fmt: skip
_BOUND = record({"side": TEXT, "elasticity": NUMBER})
_METRIC = record({"value": maybe(NUMBER), "unit": TEXT, "elasticities": _NUMBERS})
SENSITIVITY = Keys({
    "question": (TEXT, lambda found, _: found.problem.question),
    "approximations": (listed(TEXT), lambda found, _: found.problem.provenance.approximations),
    "objective": (shared("goal"), lambda found, _: goal_of(found.problem, value=found.objective)),
    "plan": (shared("plan"), lambda found, _: plan_document(found.report, found.built.plan)),
    "chips": (maybe(NUMBER), lambda found, _: found.built.cluster.chips),
    "design": (maybe(_NUMBERS), lambda found, _: found.optimum and found.optimum.design),
    "scope": (TEXT, lambda found, _: _scope(found)),
    "proof": (TEXT, lambda found, _: found.proof),
    "worth": (listed(WORTH.schema), lambda found, _: [
        WORTH.document(part, found.problem.objective.unit) for part in improvement_values(found)
    ]),
    "parameters": (listed(_PARAMETER.schema), lambda found, _: list(map(_PARAMETER.document, found.parameters))),
    "budgets": (listed(schema_of(BudgetSensitivity)), lambda found, _: found.budgets),
    "bounds": (by_name(_BOUND), lambda found, _: {
        name: {"side": side, "elasticity": slope} for name, (side, slope) in _bounds(found).items()
    }),
    "nearly_active": (maybe(INTEGER), lambda found, _: found.optimum and found.optimum.nearly_active),
    "metrics": (by_name(_METRIC), lambda found, _: {
        name: {"value": value, "unit": METRICS[name].unit, "elasticities": found.elasticities.of(name)}
        for name, value in found.elasticities.metrics.items()
    }),
    "constants": (TEXT, lambda found, _: found.problem.provenance.mode),
}, {"choices": (shared("choices"), lambda _, rows: choices_document(rows) or None)})  # fmt: skip
"""Keys of `sensitivity --json`. Elasticities are in percent of the objective per percent of the input."""

NO_OPTIMUM = Keys({
    "feasible": (said({"const": False}, "no answer to be sensitive"), lambda _: False),
    "message": (TEXT, str),
})  # fmt: skip
"""Keys of `sensitivity --json` where no design satisfies every budget."""


def _bounds(answer: Sensitivity) -> dict[str, tuple[str, float]]:
    """Return the variables at a bound, each with its side and elasticity."""
    return answer.optimum.bounds if answer.optimum else {}


def _scope(answer: Sensitivity) -> str:
    optimum = answer.optimum
    if optimum is None:
        return f"Sensitivities of the optimum are not known: {answer.unknown}"
    text = "Integers and plan fixed, the other variables re-optimized; exact for small changes."
    if not optimum.convex:
        text = f"Integers and plan fixed as answered, continuous sizes re-optimized; exact for small changes. {answer.proof}"
    near = optimum.nearly_active
    return f"{text} {near} constraints are about to switch, so that elasticities differ on one side." if near else text


def _short(name: str) -> str:
    """Return a name without the common prefix, cut in the middle where it is long."""
    name = name.removeprefix("cluster.")
    return name if len(name) <= _WIDTH else f"{name[: _WIDTH // 2 - 2]}...{name[-_WIDTH // 2 + 1 :]}"


def _customary(each: Input, value: float) -> str:
    """Return a value of an input in its customary unit, with large counts in powers of ten."""
    text = shown(each, value / each.value)
    return text if len(text) <= 18 else f"{value:.3g} {each.unit}".strip()


def effect_words(effect: float) -> str:
    """Return the relative change of an optimum in percent; "no design" where it is infinite."""
    return "no design" if effect == float("inf") else f"{100 * effect:+.2f} %"


def _budgets(answer: Sensitivity) -> Table:
    rows, unit = [], answer.problem.objective.unit
    for each in answer.budgets:
        factor, unit_shown = fitting(each.unit, [each.limit])  # customary units: days, MW, M$
        one = {"days": "day", "years": "year"}.get(unit_shown, unit_shown)
        saves = f"one more {one} saves {pretty(each.shadow_price * factor, unit)}"
        binds = each.elasticity > _SHOWN
        used = f"{100 * each.used / each.limit:.2f} %"
        price, slope = (saves, f"{-each.elasticity:+.4f}") if binds else ("not binding for this plan", "0")
        rows.append([each.name, pretty(each.limit, each.unit), slope, used, price])
    ends = {each.name: {"lower": each.lower, "upper": each.upper} for each in answer.problem.variables}
    units = _units(answer)
    rows += [
        [f"{name}, {side} bound of its range", pretty(ends[name][side], units[name]), f"{elasticity:+.4f}", "", ""]
        for name, (side, elasticity) in _bounds(answer).items()
    ]
    return Table("budgets", ("", "limit", "% per %", "used", "shadow price"), rows, "lrrrl")


def _units(answer: Sensitivity) -> dict[str, str]:
    """Return the unit that follows the value of each variable; empty where its name implies one."""
    return {each.name: each.unit if each.unit in ("B", "B/s", "Hz", "m2") else "" for each in answer.problem.variables}


def parameter_words(each: Parameter) -> tuple[str, str, str, str, str]:
    """Return name, value, elasticity, low and high end of an input's range as text.

    The elasticity to a temperature is in percent per kelvin, because a percentage of an absolute temperature means little.
    """
    value = each.input.value
    low, high = (_customary(each.input, end) for end in (each.range.low, each.range.high))
    slope = f"{100 * each.elasticity / value:+.3f}/K" if each.input.is_temperature else f"{each.elasticity:+.4f}"
    return _short(each.input.name), _customary(each.input, value), slope, low, high


def _cells(each: Parameter) -> list[str]:
    mark = "~" if each.kinked or not each.solved else ""
    name, value, slope, low, high = parameter_words(each)
    return [name, value, slope + mark, f"{low} .. {high}", *map(effect_words, each.effect), each.range.kind]


def _assumptions(answer: Sensitivity, top: int) -> list[Section]:
    """Return the tables of inputs, and what the inputs above mean.

    Inputs with stated ranges are sorted by their effect over the range, the others by elasticity.
    """
    asked = [each for each in answer.parameters if each.input.is_asked]
    rest = [each for each in answer.parameters if not each.range.stated and not each.input.is_asked]
    heads = ("", "value", "% per %", "at low", "at high", "source type")
    uncertain = "Most influential assumptions (elasticity x uncertainty)"
    groups = {
        uncertain: answer.ranked()[:top],
        "Inputs without an uncertainty range in the catalog (varied by 10 %, temperatures by 5 K)": rest[: top // 2],
        "Requirements of the task (varied by 10 %)": asked[: top // 2],
    }
    listed = [each for rows in groups.values() for each in rows]
    marks = []
    if any(each.kinked or not each.solved for each in listed):
        marks.append(
            "~: the elasticity differs for a decrease or exists on one side only, or the ends follow from the elasticity alone"
        )
    if any(math.inf in each.effect for each in listed):
        marks.append(
            "no design: with this number of chips and this plan no hardware satisfies the budgets there; others may"
        )
    sections = [
        Section(title, [Table(title, (*heads[:3], _over(rows), *heads[3:]), list(map(_cells, rows)), "lrrrrrl")])
        for title, rows in groups.items()
        if rows
    ]
    inputs = dict.fromkeys([*listed_inputs(answer, top), *(each.input for each in listed)])
    meanings = {_short(each.name).partition("[")[0]: each.quantity.meaning for each in inputs if each.quantity.meaning}
    width = max(map(len, meanings), default=0)
    glossary = Section("Meaning of these inputs", [Named(list(meanings.items()), width)] if meanings else [])
    return [*sections, Section("Marks", [Lines(marks)], titled=False, joined=True), glossary]


def _over(rows: Sequence[Parameter]) -> str:
    """Return the heading of the ends between which inputs are varied."""
    return "uncertainty range" if all(each.range.stated for each in rows) else "varied over"


def _per_percent(each: Input) -> tuple[str, float]:
    """Return an input's name and the factor from its elasticity to the displayed one, which is in %/K for a temperature."""
    name = _short(each.name)
    return (f"{name}, per K", 100.0 / each.value) if each.is_temperature else (name, 1.0)


def _table(columns: Sequence[str], now: Iterable[str], rows: Rows) -> Table:
    """Return a table of elasticities.

    **Arguments:**

    - `columns`: its headings.
    - `now`: current values, the first row.
    - `rows`: labels with numbers.
    """
    cells = [[label, *map(_elasticity, numbers)] for label, numbers in rows]
    return Table("elasticities", ("", *columns), [["value", *now], *cells])


def _design(answer: Sensitivity, top: int) -> list[Table]:
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
    units = _units(answer)
    now = (pretty(value, units[name]) for name, value in design.items())
    return [_table(columns, now, rows)]


def _elasticity(elasticity: float) -> str:
    """Return an elasticity of a design variable as a table cell; a dot where it is negligible."""
    if math.isnan(elasticity):
        return "not unique"
    return "." if abs(elasticity) < 5e-4 else f"{elasticity:+.3f}"


def _column(name: str) -> str:
    """Return a variable's name, shortened to fit a column."""
    return name.replace("bandwidth_bytes_per_s", "B/s").replace("capacity_bytes", "B").replace("_", " ")


def _metrics(answer: Sensitivity, top: int) -> Table:
    """Return the table of elasticities of metrics to inputs, with the design fixed."""
    fixed = answer.elasticities
    names = list(fixed.metrics)[:_METRICS]
    labels, scales = zip(*map(_per_percent, fixed.inputs), strict=True)
    table = np.nan_to_num(fixed.table[: len(names)] * np.array(scales))
    order = np.argsort(-np.abs(table).max(axis=0), kind="stable")[:top]
    now = (pretty(fixed.metrics[name], METRICS[name].unit) for name in names)
    rows = [(labels[place], table[:, place]) for place in order]
    return _table(names, now, rows)


def sensitivity_answer(found: Sensitivity, top: int = 12, rows: Sequence[Branch] = ()) -> Answer:
    """Return the answer of `hwopt sensitivity`: budgets, assumptions, response of the design, metrics.

    **Arguments:**

    - `top`: number of rows of each table.
    - `rows`: outcome of each combination of choices.
    """
    problem, goal, chips = found.problem, found.problem.objective, float(found.built.cluster.chips)
    value, plan = pretty(found.objective, goal.unit, 6), plan_line(found.report, found.built.plan)
    if goal.name == "cost_per_token_usd":
        value = million_words(found.report)
    name = components.words(goal.name, goal.unit)
    scope = [Sentences([_scope(found)], "")]
    trust = [Lines([f"{MODEL_ONLY.capitalize()}; constants: {problem.provenance.mode}."], "")]
    sections = (
        Section("Scope", scope, titled=False, joined=True),
        Section("Budgets and bounds: % of the objective per % of the limit", [_budgets(found)]),
        *worth_sections(found, top),
        *_assumptions(found, top),
        Section("Response of the optimal design: % per % (dot: below 0.0005)", _design(found, top // 2)),
        Section("Metrics at this design, nothing re-optimized: % per % (dot: below 0.0005)", [_metrics(found, top)]),
        Section("How good is it", trust, titled=False),
        choice_section(rows, goal.unit),
    )
    return Answer(
        "sensitivity", SENSITIVITY.document(found, rows), problem.question,
        f"{name[0].upper()}{name[1:]} {value} with {chips:,.0f} chips; plan {plan}.", (f"least {name}", value),
        ("modelled", False, found.proof),
        sections, problem.sources, question=problem.name,
    )  # fmt: skip
