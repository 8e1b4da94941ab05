"""Pareto front of a sweep: a table of some of its designs, and interactive charts on a page."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hwopt.design.variables import KNOWN
from hwopt.output.answer import OnPage, Section, Sentences, Table
from hwopt.output.answers.sweep_document import Document, budgets_of
from hwopt.output.html import components
from hwopt.output.html.axis import Axis
from hwopt.output.html.components import words
from hwopt.output.html.markup import Html
from hwopt.output.html.points import AxisLimit, Point, chart
from hwopt.output.text.parts import step_label
from hwopt.output.text.token_prices import TOKENS, Work, counted
from hwopt.units import pretty

MOST_POINTS = 400
"""Maximum number of points of a front, over all charts of a page, so that the page stays small."""

_CHARTS = 3
_ROWS = 10  # designs of the front in its table

_DESIGN = ("chips", "tp", "pp")
"""Design variables in the table of the front; on a page every point of the chart names all of them."""

_FRACTIONS = frozenset({"mfu", "hfu", "goodput"})


def front_sections(dataset: Any, document: Document) -> list[Section]:
    """Return the section on the front: a table, and charts of its first metric against the others; none without a front."""
    front, several = document["front"], len(document["cases"]) > 1
    if not front:
        return []
    names = list(front[0]["metrics"])
    pairs = [(names[0], other) for other in names[1 : 1 + _CHARTS]]
    drawable = [each for each in front if _is_positive(each, names)]
    drawn = _thinned(drawable, MOST_POINTS // max(1, len(pairs)))
    feasible, said = sum(each["feasible"] for each in front), _said_names(front[0]["metrics"], names)
    caption = "Hover, touch or use the arrow keys to read a design."
    if len(drawn) < len(front):
        caption += f" {len(drawn):,} of the {len(front):,} points are drawn, spread evenly along the front."
    charts = [OnPage(_chart(dataset, document, pair, drawn, caption)) for pair in pairs if drawn]
    design = [name for name in _DESIGN if front[0]["design"].get(name, {}).get("value") is not None]
    heads = (*said, "budgets", "bottleneck", *design, *(["case"] if several else []))
    align = "r" * len(names) + "ll" + "r" * len(design) + "l" * several
    rows = [_row(each, several, design, work_of(document)) for each in _thinned(front, _ROWS)]
    count = f"{len(front):,} design{'s' * (len(front) != 1)}, {feasible:,} of them feasible"
    text = "No evaluated design is better in all of these metrics. Budgets on these metrics are ignored here; others must hold."
    table = Table("designs on the front", heads, rows, align)
    note = "Dashed lines are budgets." if charts else ""
    return [Section(f"Pareto front of {' and '.join(said)}: {count}", [Sentences([text]), *charts, table], note=note)]


def _is_positive(each: Document, names: Sequence[str]) -> bool:
    """Return whether these metrics of a design are positive, as logarithmic axes require."""
    return all((each["metrics"].get(name, {}).get("value") or 0) > 0 for name in names)


def _said_names(numbers: Document, names: Sequence[str]) -> list[str]:
    return [words(name, numbers[name]["unit"]) for name in names]


def _thinned(front: list[Document], most: int) -> list[Document]:
    """Return at most `most` points of a Pareto front, spread evenly, with both ends.

    At least half of `most` are feasible points; where the front has fewer, all feasible points are kept.
    """
    if len(front) <= most:
        return front
    spread = lambda places, count: {places[i] for i in np.linspace(0, len(places) - 1, count).round().astype(int)}
    feasible = [place for place, each in enumerate(front) if each["feasible"]]
    some = spread(feasible, min(len(feasible), most // 2))
    others = [place for place in range(len(front)) if place not in some]
    return [front[place] for place in sorted(some | spread(others, most - len(some)))]


def _chart(dataset: Any, document: Document, pair: tuple[str, str], front: list[Document], caption: str) -> Html:
    several, metrics = len(document["cases"]) > 1, list(document["front"][0]["metrics"])
    best = document["best"][0] if document["best"] and _is_positive(document["best"][0], pair) else None
    limits = [
        AxisLimit(f"{each.words} {pretty(each.limit, each.unit, 3)}", each.limit, each.metric == pair[0])
        for each in budgets_of(dataset)
        if each.metric in pair
    ]
    across, up = (
        _axis(
            metric,
            [*front, *([best] if best else [])],
            front,
            [x.value for x in limits if x.on_x == (metric == pair[0])],
            work_of(document),
        )
        for metric in pair
    )
    points = [
        _point(each, pair, _said(each, several, work_of(document)))
        for each in front
        if not (best and document["feasible"] and (each["case"], each["variant"]) == (best["case"], best["variant"]))
    ]
    if best and document["feasible"]:
        own = {name: best["metrics"][name] for name in metrics if name in best["metrics"]}
        said = _said(best | {"metrics": own}, several, work_of(document))
        points.append(_point(best, pair, f"best design\n{said}", best=True))
    parts = dict.fromkeys(each["bottleneck"] for each in front)
    keys = [(components.part_shade(part), step_label(part)) for part in parts]
    return chart(f"Pareto front of {across.words} and {up.words}", (across, up), points, limits, keys, caption)


def _axis(metric: str, seen: list[Document], front: list[Document], limits: list[float], work: Work) -> Axis:
    """Return an axis that covers a metric of the `seen` designs, and the limits that are close to them."""
    values, unit = [each["metrics"][metric]["value"] for each in seen], front[0]["metrics"][metric]["unit"]
    low, high = min(values), max(values)
    near = [limit for limit in limits if low * low / high <= limit <= high * high / low]
    axis = Axis.over(words(metric, unit), unit, [*values, *near])
    return replace(axis, factor=1e-6 / work[1], shown=f"$ per million {work[0]}s") if unit == "USD/token" else axis


def _point(each: Document, pair: tuple[str, str], said: str, best: bool = False) -> Point:
    x, y = (each["metrics"][name]["value"] for name in pair)
    return Point(x, y, components.part_shade(each["bottleneck"]), each["feasible"], said, best)


def _said(each: Document, several: bool, work: Work) -> str:
    """Return the tooltip of a point of the front: metrics, bottleneck, design."""
    lines = [
        f"{words(name, x['unit'])} {shown(name, x['value'], x['unit'], work)}" for name, x in each["metrics"].items()
    ]
    budgets = "meets every budget" if each["feasible"] else "exceeds a budget"
    lines.append(f"{budgets}; bottleneck: {each['bottleneck'].replace('_', ' ')}")
    design = {name: x for name, x in each["design"].items() if x["value"] is not None}
    variables = (
        f"{words(name, x['unit'])} {design_text(name, x['value'], x['unit'], 3)}" for name, x in design.items()
    )
    return "\n".join([*lines, *([each["case"]] if several else []), ", ".join(variables)])


def _row(each: Document, several: bool, names: Sequence[str], work: Work) -> list[str]:
    metrics = [shown(name, x["value"], x["unit"], work) for name, x in each["metrics"].items()]
    design = [design_text(name, each["design"][name]["value"], each["design"][name]["unit"], 3) for name in names]
    part, budgets = step_label(each["bottleneck"]), "met" if each["feasible"] else "exceeded"
    return [*metrics, budgets, part, *design, *([each["case"]] if several else [])]


def design_text(name: str, value: float | None, unit: str, digits: int) -> str:
    """Return the value of a design variable as text, that of a categorical variable as its label."""
    labels = KNOWN[name].words if name in KNOWN else ()
    return labels[round(value) - 1] if labels and value is not None else components.amount(value, unit, digits)


def work_of(document: Document) -> Work:
    """Return the unit in which the work of the variants is counted, and its number of tokens."""
    return document.get("unit_of_work", TOKENS[0]), document.get("tokens_per_unit", 1.0)


def shown(name: str, value: float | None, unit: str, work: Work = TOKENS) -> str:
    """Return a metric in customary units. **Arguments:** `work`: unit in which work is counted."""
    if value is not None and unit == "USD/token":
        return f"{1e6 * counted(value, unit, work)[0]:.4g} $ per million {work[0]}s"
    if value is not None and unit == "m2" and value < 1e-2:
        return f"{1e6 * value:.4g} mm2"
    own, said = counted(value if value is not None else math.nan, unit, work)
    return pretty(own, "fraction" if name in _FRACTIONS else said)
