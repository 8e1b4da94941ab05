"""The Pareto front of a sweep: charts to hover over, and a table of some of its designs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwopt.report import sweep
from hwopt.report.page import pieces, sheet
from hwopt.report.page.axis import Axis
from hwopt.report.page.markup import Html, element
from hwopt.report.page.pieces import words
from hwopt.report.page.points import Limit, Point, chart
from hwopt.report.sweep_document import Document, budgets_of
from hwopt.units import pretty

MOST_POINTS = 400
"""Points drawn of a front, over all of its charts: a page stays small enough to send."""

_CHARTS = 3
_ROWS = 12  # designs of the front in its table


def front_section(dataset: Any, found: Document) -> Html | None:
    """Charts of the front's first metric against the others, and a table of some of its designs."""
    names = list(found["front"][0]["metrics"]) if found["front"] else []
    drawn = [each for each in found["front"] if all((x["value"] or 0) > 0 for x in each["metrics"].values())]
    if len(names) < 2 or not drawn:
        return None
    several, pairs = len(found["cases"]) > 1, [(names[0], other) for other in names[1 : 1 + _CHARTS]]
    kept = _thinned(drawn, MOST_POINTS // len(pairs))
    held = sum(each["feasible"] for each in found["front"])
    note = (
        f"{len(found['front']):,} variants, {held:,} of them feasible: nothing swept is better in all of "
        f"{' and '.join(map(words, names))}. "
        "Budgets on these are left out of the front and drawn as dashed lines."
    )
    caption = "Hover, touch or use the arrow keys to read a design."
    if len(kept) < len(found["front"]):
        caption += f" {len(kept):,} of the {len(found['front']):,} points are drawn, spread evenly along the front."
    charts = [_chart(dataset, found, pair, kept, several, caption) for pair in pairs]
    few = _thinned(kept, _ROWS)
    heads = (
        *(["case"] if several else []),
        "largest part",
        "budgets",
        *map(words, names),
        *map(words, _design_names(few)),
    )
    rows = [_row(each, several, _design_names(few)) for each in few]
    table = pieces.table(
        "designs on the front", heads, rows, "l" * (3 if several else 2) + "r" * (len(heads) - (3 if several else 2))
    )
    return sheet.section(
        "Pareto front", *charts, element("h3", f"{len(few)} designs along the front"), table, note=note
    )


def _thinned(front: list[Document], most: int) -> list[Document]:
    """At most so many points, spread evenly, both ends and half of the feasible ones among them where there are enough."""
    held = [place for place, each in enumerate(front) if each["feasible"]]
    return [front[place] for place in sweep.chosen(len(front), held, most)]


def _chart(
    dataset: Any, found: Document, pair: tuple[str, str], kept: list[Document], several: bool, caption: str
) -> Html:
    budgets = [(name, limit, unit, metric) for name, limit, unit, metric in budgets_of(dataset) if metric in pair]
    best = found["best"][0]["metrics"] if found["best"] else {}
    axes = []
    for metric in pair:
        values = [each["metrics"][metric]["value"] for each in kept]
        here = best.get(metric, {}).get("value")
        values += [here] if here and here > 0 and _drawable(best, pair) else []
        reach = max(values) / min(values)
        near = [
            limit
            for _, limit, _, name in budgets
            if name == metric and min(values) / reach <= limit <= max(values) * reach
        ]
        axes.append(Axis.over(words(metric), kept[0]["metrics"][metric]["unit"], [*values, *near]))
    points = [_point(each, pair, several) for each in kept]
    if found["feasible"] and _drawable(best, pair):
        first = found["best"][0]
        own = [(each["case"], each["variant"]) == (first["case"], first["variant"]) for each in kept]
        points = [each for each, is_best in zip(points, own, strict=True) if not is_best]
        points.append(_best_point(found, pair, several))
    limits = [
        Limit(f"{pieces.budget_words(name)} {pretty(limit, unit, 3)}", limit, metric == pair[0])
        for name, limit, unit, metric in budgets
    ]
    parts = dict.fromkeys(each["bottleneck"] for each in kept)
    keys = [(pieces.part_shade(part), part.replace("_", " ")) for part in parts]
    across, up = map(words, pair)
    return chart(f"Pareto front of {across} and {up}", (axes[0], axes[1]), points, limits, keys, caption)


def _drawable(best: Document, pair: Sequence[str]) -> bool:
    return all((best.get(name, {}).get("value") or 0) > 0 for name in pair)


def _point(each: Document, pair: tuple[str, str], several: bool) -> Point:
    x, y = (each["metrics"][name]["value"] for name in pair)
    return Point(x, y, pieces.part_shade(each["bottleneck"]), each["feasible"], _said(each, several))


def _best_point(found: Document, pair: tuple[str, str], several: bool) -> Point:
    best = found["best"][0]
    metrics = {name: best["metrics"][name] for name in found["front"][0]["metrics"] if name in best["metrics"]}
    x, y = (best["metrics"][name]["value"] for name in pair)
    said = f"best design\n{_said(best | {'metrics': metrics}, several)}"
    return Point(x, y, pieces.part_shade(best["bottleneck"]), True, said, best=True)


def _said(each: Document, several: bool) -> str:
    """What a point says: metrics, what bounds it, its design."""
    lines = [f"{words(name)} {sweep.shown(name, x['value'], x['unit'])}" for name, x in each["metrics"].items()]
    design = ", ".join(
        f"{words(name)} {pieces.amount(x['value'], x['unit'], 3)}"
        for name, x in each["design"].items()
        if x["value"] is not None
    )
    held = "holds every budget" if each["feasible"] else "over a budget"
    lines += [
        f"{held}; largest part of a step: {each['bottleneck'].replace('_', ' ')}",
        *([each["case"]] if several else []),
        design,
    ]
    return "\n".join(lines)


def _design_names(front: Sequence[Document]) -> list[str]:
    """Variables that differ along the front."""
    return [
        name
        for name in front[0]["design"]
        if len({each["design"].get(name, {}).get("value") for each in front}) > 1
    ]  # fmt: skip


def _row(each: Document, several: bool, names: Sequence[str]) -> list[Html | str]:
    part = element("span", pieces.swatch(pieces.part_shade(each["bottleneck"])), each["bottleneck"].replace("_", " "))
    metrics = [sweep.shown(name, x["value"], x["unit"]) for name, x in each["metrics"].items()]
    design = [pieces.amount(each["design"][name]["value"], each["design"][name]["unit"], 3) for name in names]
    return [*([each["case"]] if several else []), part, "hold" if each["feasible"] else "over", *metrics, *design]
