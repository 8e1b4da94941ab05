"""Pareto front of a sweep on a page: interactive charts, and a table of some of its designs."""

from collections.abc import Sequence
from typing import Any

from hwopt.output.answers import sweep
from hwopt.output.answers.sweep_document import Document, budgets_of
from hwopt.output.html import components, page
from hwopt.output.html.axis import Axis
from hwopt.output.html.components import words
from hwopt.output.html.markup import Child, Html, element
from hwopt.output.html.points import AxisLimit, Point, chart
from hwopt.output.text.layout import budget_words
from hwopt.output.text.token_prices import Work
from hwopt.units import pretty

MOST_POINTS = 400
"""Maximum number of points of a front, over all charts of a page, so that the page stays small."""

_CHARTS = 3
_ROWS = 12  # designs of the front in its table


def front_section(dataset: Any, document: Document) -> Html | None:
    """Return charts of the front's first metric against the others, and a table of designs; None where nothing can be drawn."""
    front, several = document["front"], len(document["cases"]) > 1
    names = list(front[0]["metrics"]) if front else []
    drawable = [each for each in front if _is_positive(each, names)]
    if len(names) < 2 or not drawable:
        return None
    pairs = [(names[0], other) for other in names[1 : 1 + _CHARTS]]
    drawn = _thinned(drawable, MOST_POINTS // len(pairs))
    feasible, said = sum(each["feasible"] for each in front), _said_names(drawn[0]["metrics"], names)
    note = (
        f"{len(front):,} variants, {feasible:,} of them feasible: nothing swept is better in all of {' and '.join(said)}. "
        "Budgets on these are left out of the front and drawn as dashed lines."
    )
    caption = "Hover, touch or use the arrow keys to read a design."
    if len(drawn) < len(front):
        caption += f" {len(drawn):,} of the {len(front):,} points are drawn, spread evenly along the front."
    charts = [_chart(dataset, document, pair, drawn, caption) for pair in pairs]
    few = _thinned(drawn, _ROWS)
    moving = [name for name in few[0]["design"] if len({each["design"][name]["value"] for each in few}) > 1]
    heads = (*(["case"] if several else []), "largest part", "budgets", *said, *_said_names(few[0]["design"], moving))
    align = "l" * (2 + several) + "r" * (len(names) + len(moving))
    rows = [_row(each, several, moving, sweep.work_of(document)) for each in few]
    table = components.table("designs on the front", heads, rows, align)
    return page.section("Pareto front", *charts, element("h3", f"{len(few)} designs along the front"), table, note=note)


def _is_positive(each: Document, names: Sequence[str]) -> bool:
    """Return whether these metrics of a design are positive, as logarithmic axes require."""
    return all((each["metrics"].get(name, {}).get("value") or 0) > 0 for name in names)


def _said_names(numbers: Document, names: Sequence[str]) -> list[str]:
    return [words(name, numbers[name]["unit"]) for name in names]


def _thinned(front: list[Document], most: int) -> list[Document]:
    """Return at most `most` points of a Pareto front, spread evenly, with both ends.

    At least half of `most` are feasible points; where the front has fewer, all feasible points are kept.
    """
    feasible = [place for place, each in enumerate(front) if each["feasible"]]
    return [front[place] for place in sweep.chosen(len(front), feasible, most)]


def _chart(dataset: Any, document: Document, pair: tuple[str, str], front: list[Document], caption: str) -> Html:
    several, metrics = len(document["cases"]) > 1, list(document["front"][0]["metrics"])
    best = document["best"][0] if document["best"] and _is_positive(document["best"][0], pair) else None
    limits = [
        AxisLimit(f"{budget_words(name)} {pretty(limit, unit, 3)}", limit, metric == pair[0])
        for name, limit, unit, metric in budgets_of(dataset)
        if metric in pair
    ]
    across, up = (
        _axis(
            metric,
            [*front, *([best] if best else [])],
            front,
            [x.value for x in limits if x.on_x == (metric == pair[0])],
        )
        for metric in pair
    )
    points = [
        _point(each, pair, _said(each, several, sweep.work_of(document)))
        for each in front
        if not (best and document["feasible"] and (each["case"], each["variant"]) == (best["case"], best["variant"]))
    ]
    if best and document["feasible"]:
        shown = {name: best["metrics"][name] for name in metrics if name in best["metrics"]}
        said = _said(best | {"metrics": shown}, several, sweep.work_of(document))
        points.append(_point(best, pair, f"best design\n{said}", best=True))
    parts = dict.fromkeys(each["bottleneck"] for each in front)
    keys = [(components.part_shade(part), part.replace("_", " ")) for part in parts]
    return chart(f"Pareto front of {across.words} and {up.words}", (across, up), points, limits, keys, caption)


def _axis(metric: str, shown: list[Document], front: list[Document], limits: list[float]) -> Axis:
    """Return an axis that covers a metric of the `shown` designs, and the limits that are close to them."""
    values, unit = [each["metrics"][metric]["value"] for each in shown], front[0]["metrics"][metric]["unit"]
    low, high = min(values), max(values)
    near = [limit for limit in limits if low * low / high <= limit <= high * high / low]
    return Axis.over(words(metric, unit), unit, [*values, *near])


def _point(each: Document, pair: tuple[str, str], said: str, best: bool = False) -> Point:
    x, y = (each["metrics"][name]["value"] for name in pair)
    return Point(x, y, components.part_shade(each["bottleneck"]), each["feasible"], said, best)


def _said(each: Document, several: bool, work: Work) -> str:
    """Return the tooltip of a point of the front: metrics, bottleneck, design."""
    lines = [
        f"{words(name, x['unit'])} {sweep.shown(name, x['value'], x['unit'], work)}"
        for name, x in each["metrics"].items()
    ]
    budgets = "satisfies every budget" if each["feasible"] else "over a budget"
    lines.append(f"{budgets}; largest part of a step: {each['bottleneck'].replace('_', ' ')}")
    design = {name: x for name, x in each["design"].items() if x["value"] is not None}
    variables = (
        f"{words(name, x['unit'])} {components.amount(x['value'], x['unit'], 3)}" for name, x in design.items()
    )
    return "\n".join([*lines, *([each["case"]] if several else []), ", ".join(variables)])


def _row(each: Document, several: bool, names: Sequence[str], work: Work) -> list[Child]:
    metrics = [sweep.shown(name, x["value"], x["unit"], work) for name, x in each["metrics"].items()]
    design = [components.amount(each["design"][name]["value"], each["design"][name]["unit"], 3) for name in names]
    budgets, part = "hold" if each["feasible"] else "over", components.part_named(each["bottleneck"])
    return [*([each["case"]] if several else []), part, budgets, *metrics, *design]
