"""Interactive scatter charts: the Pareto front of a sweep, or optima against a budget."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from hwopt.output.html.axis import Axis
from hwopt.output.html.components import swatch
from hwopt.output.html.markup import Child, Html, div, element, li

_RADIUS = 5


@dataclass(frozen=True)
class Point:
    """Point of a chart, one design.

    **Arguments:**

    - `x`, `y`: position (SI).
    - `shade`: CSS color.
    - `said`: lines of the tooltip.
    - `holds`: whether it satisfies every limit.
    - `best`: whether it is the best design, drawn as a star.
    """

    x: float
    y: float
    shade: str
    holds: bool
    said: str
    best: bool = False


@dataclass(frozen=True)
class AxisLimit:
    """Budget on the quantity of one axis.

    **Arguments:**

    - `words`: its label.
    - `value`: its position (SI).
    - `on_x`: whether on x, else on y.
    """

    words: str
    value: float
    on_x: bool


def chart(
    label: str,
    axes: tuple[Axis, Axis],
    points: Sequence[Point],
    limits: Sequence[AxisLimit] = (),
    keys: Sequence[tuple[str, str]] = (),
    caption: Child = None,
    trace: bool = True,
) -> Html:
    """Return a chart of points with tooltips.

    **Arguments:**

    - `label`: text for screen readers.
    - `caption`: text below the chart.
    - `limits`: budgets, drawn as dashed lines.
    - `keys`: colors and their meanings for the legend.
    - `trace`: whether to join the points from left to right by steps, as a Pareto front is drawn.
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
        div(drawing, class_="plot"),
        div(class_="tip", role="status", hidden=True),
        element("figcaption", caption) if caption else None,
        class_="points",
    )


def _keys(points: Sequence[Point], keys: Sequence[tuple[str, str]]) -> list[Html]:
    colours = [li(swatch(shade), words) for shade, words in keys]
    best = [li("\N{BLACK STAR} best design")] if any(each.best for each in points) else []
    over = [] if all(each.holds for each in points) else [li("\N{WHITE CIRCLE} exceeds a budget")]
    return [*colours, *best, *over]


def _percent(value: float) -> str:
    return f"{value:.2f}%"


def _line(x1: float, y1: float, x2: float, y2: float, look: str) -> Html:
    return element("line", x1=_percent(x1), y1=_percent(y1), x2=_percent(x2), y2=_percent(y2), class_=look)


def _grid(across: Axis, up: Axis) -> list[Html]:
    marks = []
    for count, (place, text) in enumerate(across.ticks()):
        look = "sparse" if count % 2 else None
        words = element("text", text, x=_percent(place), y="100%", dy="1.5em", text_anchor="middle", class_=look)
        marks += [_line(place, 0, place, 100, "grid"), words]
    for place, text in up.ticks():
        words = element("text", text, x="0", dx="-8", y=_percent(100 - place), dy=".35em", text_anchor="end")
        marks += [_line(0, 100 - place, 100, 100 - place, "grid"), words]
    return [
        *marks,
        _line(0, 100, 100, 100, "axis"),
        _line(0, 0, 0, 100, "axis"),
        element("text", across.label, x="100%", y="100%", dy="3.1em", text_anchor="end", class_="soft"),
        element("text", up.label, x="0", dx="-40", y="0", dy="-.9em", class_="soft"),
    ]


def _steps(across: Axis, up: Axis, ordered: Sequence[Point]) -> list[Html]:
    """Return the step line through the points, right and then down: the boundary of what is attainable."""
    places = [(across.place(each.x), 100 - up.place(each.y)) for each in ordered]
    return [
        line
        for (x1, y1), (x2, y2) in itertools.pairwise(places)
        for line in (_line(x1, y1, x2, y1, "trace"), _line(x2, y1, x2, y2, "trace"))
    ]


def _limit(across: Axis, up: Axis, each: AxisLimit) -> tuple[Html, Html] | None:
    axis = across if each.on_x else up
    if not axis.low <= each.value <= axis.high:
        return None
    place = axis.place(each.value)
    if each.on_x:
        dx, anchor = ("6", "start") if place < 60 else ("-6", "end")
        words = element("text", each.words, x=_percent(place), dx=dx, y="96%", text_anchor=anchor, class_="halo")
        return _line(place, 0, place, 100, "limit"), words
    y = 100 - place
    words = element("text", each.words, x="99%", y=_percent(y), dy="-.5em", text_anchor="end", class_="halo")
    return _line(0, y, 100, y, "limit"), words


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
