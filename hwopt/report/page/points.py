"""Points in a plane to hover over: the Pareto front of a sweep, optima over a budget."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from hwopt.report.page.axis import Axis
from hwopt.report.page.markup import Child, Html, element, joined
from hwopt.report.page.pieces import swatch

_RADIUS = 5


@dataclass(frozen=True)
class Point:
    """One design: where it stands (SI), its colour, whether it holds every limit, and what is said of it in lines."""

    x: float
    y: float
    shade: str
    holds: bool
    said: str
    best: bool = False


@dataclass(frozen=True)
class Limit:
    """A budget on one of the two quantities: its words, and where it stands (SI) on x or on y."""

    words: str
    value: float
    on_x: bool


def chart(
    label: str,
    axes: tuple[Axis, Axis],
    points: Sequence[Point],
    limits: Sequence[Limit] = (),
    keys: Sequence[tuple[str, str]] = (),
    caption: Child = None,
    trace: bool = True,
) -> Html:
    """A figure of points, with what each says.

    **Arguments:** `label` for readers who do not see it; `limits` as dashed lines; `keys`: colours and their words;
    `caption` below; `trace`: join points from left to right by steps, as a front is read.
    """
    across, up = axes
    ordered = sorted(points, key=lambda each: (each.x, each.y))
    first = next((place for place, each in enumerate(ordered) if each.best), 0)
    drawing = element(
        "svg",
        *_grid(across, up),
        *(_steps(across, up, ordered) if trace else ()),
        *(_limit(across, up, each) for each in limits),
        *(_point(across, up, each, place == first) for place, each in enumerate(ordered)),
        role="group",
        aria_label=label,
        xmlns="http://www.w3.org/2000/svg",
    )
    return element(
        "figure",
        element("ul", *_keys(points, keys), class_="keys"),
        element("div", drawing, class_="plot"),
        element("div", class_="tip", role="status", hidden=True),
        element("figcaption", caption) if caption else None,
        class_="points",
    )


def _keys(points: Sequence[Point], keys: Sequence[tuple[str, str]]) -> list[Html]:
    made = [element("li", swatch(shade), words) for shade, words in keys]
    if any(each.best for each in points):
        made.append(element("li", "\N{BLACK STAR} best design"))
    if not all(each.holds for each in points):
        made.append(element("li", "\N{WHITE CIRCLE} over a budget"))
    return made


def _percent(value: float) -> str:
    return f"{value:.2f}%"


def _line(x1: float, y1: float, x2: float, y2: float, look: str) -> Html:
    ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    return element("line", **{name: _percent(value) for name, value in ends.items()}, class_=look)


def _grid(across: Axis, up: Axis) -> list[Html]:
    made = []
    for count, (place, text) in enumerate(across.ticks()):
        made += [
            _line(place, 0, place, 100, "grid"),
            element(
                "text",
                text,
                x=_percent(place),
                y="100%",
                dy="1.5em",
                text_anchor="middle",
                class_="sparse" if count % 2 else None,
            ),
        ]
    for place, text in up.ticks():
        made += [
            _line(0, 100 - place, 100, 100 - place, "grid"),
            element("text", text, x="0", dx="-8", y=_percent(100 - place), dy=".35em", text_anchor="end"),
        ]
    return [
        *made,
        _line(0, 100, 100, 100, "axis"),
        _line(0, 0, 0, 100, "axis"),
        element("text", across.label, x="100%", y="100%", dy="3.1em", text_anchor="end", class_="soft"),
        element("text", up.label, x="0", dx="-40", y="0", dy="-.9em", class_="soft"),
    ]


def _steps(across: Axis, up: Axis, ordered: Sequence[Point]) -> list[Html]:
    """Right, then down: what a front lets one have."""
    places = [(across.place(each.x), 100 - up.place(each.y)) for each in ordered]
    made = []
    for (x1, y1), (x2, y2) in itertools.pairwise(places):
        made += [_line(x1, y1, x2, y1, "trace"), _line(x2, y1, x2, y2, "trace")]
    return made


def _limit(across: Axis, up: Axis, each: Limit) -> Html | None:
    axis = across if each.on_x else up
    if not axis.low <= each.value <= axis.high:
        return None
    if each.on_x:
        place = across.place(each.value)
        right = place < 60
        words = element(
            "text",
            each.words,
            x=_percent(place),
            dx="6" if right else "-6",
            y="96%",
            text_anchor="start" if right else "end",
            class_="halo",
        )
        return joined(_line(place, 0, place, 100, "limit"), words)
    place = 100 - up.place(each.value)
    words = element("text", each.words, x="99%", y=_percent(place), dy="-.5em", text_anchor="end", class_="halo")
    return joined(_line(0, place, 100, place, "limit"), words)


def _point(across: Axis, up: Axis, each: Point, first: bool) -> Html:
    x, y = _percent(across.place(each.x)), _percent(100 - up.place(each.y))
    if each.best:
        star = element("path", d="M0-10 2.6-3.3 9.6-3 4.1 1.5 6 8.2 0 4.3-6 8.2-4.1 1.5-9.6-3-2.6-3.3Z", class_="star")
        mark = element("svg", star, x=x, y=y, overflow="visible", fill=each.shade)
    elif each.holds:
        mark = element("circle", cx=x, cy=y, r=_RADIUS, fill=each.shade)
    else:
        mark = element("circle", cx=x, cy=y, r=_RADIUS, class_="ring", style=f"stroke:{each.shade}")
    return element("g", mark, element("title", each.said), class_="point", tabindex="0" if first else "-1", role="img")
