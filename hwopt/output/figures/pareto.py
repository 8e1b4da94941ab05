"""Figure of the Pareto front: the trade-off between metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwopt.output.answers.sweep_document import SweepBudget, budgets_of, listed
from hwopt.output.colours import PALE, PALER, part_colour
from hwopt.output.figures.quantities import AxisQuantity, axis_quantity, set_range
from hwopt.output.figures.style import NothingToDraw, figure, plain, save
from hwopt.output.figures.sweep_contents import (
    best_is_feasible,
    cases,
    heading,
    parts,
    spread,
    values,
)

CLOUD = 20_000
"""Maximum number of rows that are drawn behind a front."""

_METRICS = 4
_REACH = 4.0  # factor beyond the front's ends up to which rows are shown
_LEGEND: Any = {"fontsize": 8.5, "title": "bottleneck", "title_fontsize": 8.5, "alignment": "left"}
_MARKS = ("o", "s", "^", "D", "v", "P", "X")
"""Shapes of points, by the choice of a sweep over several choices."""

_FAR = 10.0  # factor beyond a budget up to which the front is shown


@dataclass(frozen=True)
class _Designs:
    """Designs to draw.

    **Arguments:**

    - `values`: SI values by metric.
    - `feasible`: whether all constraints are met.
    - `bottleneck`: name of the largest part of the step.
    - `case`: the choice, in a sweep over several ("": a single case).
    """

    values: dict[str, np.ndarray]
    feasible: np.ndarray
    bottleneck: np.ndarray
    case: np.ndarray

    def only(self, some: np.ndarray) -> _Designs:
        columns = {name: column[some] for name, column in self.values.items()}
        return _Designs(columns, self.feasible[some], self.bottleneck[some], self.case[some])

    @property
    def marks(self) -> dict[str, str]:
        """Return the choices that occur, the most frequent first, with their marks; surplus choices share the last mark."""
        return {name: _MARKS[min(at, len(_MARKS) - 1)] for at, name in enumerate(_ranked(self.case))}


@dataclass(frozen=True)
class _MetricAxis:
    """The axis of one metric, the same in every panel: its quantity, its range in the displayed unit, and the budgets on
    it.
    """

    name: str
    shown: AxisQuantity
    low: float
    high: float
    budgets: tuple[SweepBudget, ...]

    def of(self, designs: _Designs) -> np.ndarray:
        return self.shown.scaled(designs.values[self.name])


def plot_pareto(dataset: Any, path: str | Path) -> None:
    """Draw the front of two metrics, or one panel for each pair of up to four; sampled rows behind it; budgets as dashed
    lines.

    Filled points satisfy every constraint; hollow ones exceed a budget. In a sweep over several choices (such as
    chips), shapes distinguish them. A line connects the points that no other point dominates in the two metrics shown.
    Points at more than ten times a budget may be outside the axes.

    **Arguments:** `dataset` of a sweep; `path` of the image to write.

    **Raises:** `NothingToDraw` without a front of two metrics; `UserError` where the file cannot be written.
    """
    names = [name for name in listed(dataset, "pareto") if f"front_{name}" in dataset][:_METRICS]
    if len(names) < 2:
        raise NothingToDraw("the dataset holds no front of two metrics")
    front, cloud, best, side = _front(dataset, names), _cloud(dataset, names), _best(dataset, names), len(names) - 1
    size = (8.6, 4.8) if side == 1 else (2.0 + 3.6 * side, 1.4 + 2.9 * side)
    with figure(side, side, figsize=size) as (drawn, panels):
        spans = _axes(dataset, names, front, cloud, best)
        for place, axes in enumerate(panels):
            row, column = divmod(place, side)
            if column > row:
                axes.set_axis_off()
                continue
            _panel(axes, (spans[column], spans[row + 1]), front, cloud, best, 9 if side == 1 else 8)
            if row < side - 1:
                axes.set_xlabel("")
            if column:
                axes.set_ylabel("")
        inside = [(each.of(front) >= each.low) & (each.of(front) <= each.high) for each in spans]
        seen = np.sum(inside, axis=0) >= 2  # visible in at least one panel
        title = heading(dataset, f"Pareto front, {_counted(seen)}", 60 * side)
        legend = _LEGEND | ({"title": f"{_LEGEND['title']};\nchoice"} if front.case.any() else {})
        keys = _keys(panels[0], front.only(seen), cloud, best, best_is_feasible(dataset))
        if side == 1:
            panels[0].set_title(title, fontsize=11)
            drawn.legend(handles=keys, loc="outside right upper", **legend)
        else:
            drawn.suptitle(title, fontsize=11)
            panels[side - 1].legend(handles=keys, loc="upper right", **legend)
        save(drawn, path)


def _front(dataset: Any, names: list[str]) -> _Designs:
    """Return the points of the front that a logarithmic axis can show."""
    columns = {name: values(dataset, f"front_{name}", "the front is empty").astype(float) for name in names}
    drawable = np.logical_and.reduce([np.isfinite(column) & (column > 0) for column in columns.values()])
    if not drawable.any():
        raise NothingToDraw("the front is empty")
    ones, known = np.ones(drawable.size), parts(dataset, "front_bottleneck")
    feasible = values(dataset, "front_feasible") if "front_feasible" in dataset else ones
    codes = values(dataset, "front_bottleneck") if "front_bottleneck" in dataset else -ones
    bottleneck = np.array([known.get(int(code), "") for code in codes], dtype=object)
    return _Designs(columns, feasible > 0, bottleneck, _cases(dataset, "front_case", ones.size)).only(drawable)


def _cases(dataset: Any, name: str, count: int) -> np.ndarray:
    """Return the choice of each design in words."""
    words = cases(dataset, name)
    codes = values(dataset, name) if words else np.zeros(count)
    return np.array([words.get(int(code), "") for code in codes], dtype=object)


def _cloud(dataset: Any, names: list[str]) -> _Designs | None:
    """Return an even sample of the possible rows; None where the dataset contains none."""
    if not all(name in dataset and dataset[name].size for name in (*names, "possible", "feasible")):
        return None
    possible = np.flatnonzero(dataset["possible"].values)
    if not possible.size:
        return None
    chosen = possible[spread(possible.size, CLOUD)]
    columns = {name: dataset[name].values.ravel()[chosen].astype(float) for name in names}  # over all cases of a sweep
    return _Designs(columns, dataset["feasible"].values.ravel()[chosen] > 0, np.empty(0), np.empty(0))


def _best(dataset: Any, names: list[str]) -> _Designs | None:
    """Return the best design; None where there is none that a logarithmic axis can show."""
    if not all(f"best_{name}" in dataset and dataset[f"best_{name}"].size for name in names):
        return None
    columns = {name: values(dataset, f"best_{name}").astype(float)[:1] for name in names}
    if not all(np.isfinite(column[0]) and column[0] > 0 for column in columns.values()):
        return None
    codes = values(dataset, "best_bottleneck") if "best_bottleneck" in dataset else [-1]
    name = parts(dataset, "best_bottleneck").get(int(codes[0]), "")
    case = _cases(dataset, "best_case", 1)[:1]
    return _Designs(columns, np.array([best_is_feasible(dataset)]), np.array([name], dtype=object), case)


def _axes(
    dataset: Any, names: list[str], front: _Designs, cloud: _Designs | None, best: _Designs | None
) -> list[_MetricAxis]:
    """Return axis ranges that include the front near the budgets, the best design, the budgets, and the rows nearby."""
    on = {name: tuple(each for each in budgets_of(dataset) if each.metric == name) for name in names}
    near = np.ones(front.feasible.size, bool)
    for name, budgets in on.items():
        if budgets:
            end = max(_FAR * max(each.limit for each in budgets), 2.0 * front.values[name].min())
            near &= front.values[name] <= end
    if not near.any():
        near[:] = True
    axes = []
    for name, budgets in on.items():
        must = [*front.values[name][near], *(each.limit for each in budgets), *(best.values[name] if best else ())]
        low, high = float(np.min(must)), float(np.max(must))
        if cloud:
            behind = cloud.values[name]
            behind = behind[(behind >= low / _REACH) & (behind <= high * _REACH)]
            if behind.size and near.all():
                low, high = min(low, float(np.quantile(behind, 0.001))), max(high, float(np.quantile(behind, 0.98)))
        room = max((high / low) ** 0.06, 1.05)
        shown = axis_quantity(dataset, name, [low, high])
        axes.append(_MetricAxis(name, shown, low / room / shown.factor, high * room / shown.factor, budgets))
    return axes


def _panel(
    axes: Any,
    pair: tuple[_MetricAxis, _MetricAxis],
    front: _Designs,
    cloud: _Designs | None,
    best: _Designs | None,
    size: float,
) -> None:
    """Draw one pair of metrics."""
    if cloud:
        across, up = (each.of(cloud) for each in pair)
        for some, colour in ((~cloud.feasible, PALER), (cloud.feasible, PALE)):
            axes.scatter(across[some], up[some], s=3, color=colour, linewidths=0, zorder=1, rasterized=True)
    x, y = (each.of(front) for each in pair)
    order = np.lexsort((y, x))
    least = np.minimum.accumulate(y[order])
    better = np.append(True, np.diff(least) < 0)
    axes.plot(x[order][better], least[better], drawstyle="steps-post", color="0.35", linewidth=0.9, zorder=3)
    area = 34.0 if x.size <= 100 else 14.0
    for name in _names(front):
        for filled in (False, True):
            look = {"facecolors": part_colour(name) if filled else "white", "edgecolors": part_colour(name)}
            for case, mark in front.marks.items():
                some = (front.bottleneck == name) & (front.feasible == filled) & (front.case == case)
                axes.scatter(x[some], y[some], s=area, marker=mark, linewidths=1.1, zorder=4, **look)
    if best:
        colour = part_colour(best.bottleneck[0]) if best.bottleneck[0] else "white"
        place = [each.of(best) for each in pair]
        axes.scatter(*place, marker="*", s=170, facecolors=colour, edgecolors="black", linewidths=1.1, zorder=5)
    for at, (axis, each) in enumerate(zip((axes.xaxis, axes.yaxis), pair, strict=True)):
        set_range(axis, each.low, each.high, size)
        axis.set_label_text(each.shown.label)
        for limit in each.budgets:
            _line(axes, limit, at, each.shown, size - 1.0)


def _line(axes: Any, limit: SweepBudget, at: int, shown: AxisQuantity, size: float) -> None:
    """Draw a budget on one of the two metrics, with its name and value along the line."""
    from matplotlib.patheffects import withStroke

    place = limit.limit / shown.factor
    halo = [withStroke(linewidth=2.2, foreground="white")]
    look: Any = {"color": "0.15", "fontsize": size, "path_effects": halo, "zorder": 6}
    words = plain(f"{limit.words} ") + shown.text(limit.limit)
    if at == 0:
        axes.axvline(place, color="0.15", linestyle="--", linewidth=1.0, zorder=2)
        axes.annotate(
            words, (place, 0.02), xycoords=("data", "axes fraction"), xytext=(-3, 0), textcoords="offset points",
            rotation=90, ha="right", va="bottom", **look,
        )  # fmt: skip
    else:
        axes.axhline(place, color="0.15", linestyle="--", linewidth=1.0, zorder=2)
        axes.annotate(
            words, (0.98, place), xycoords=("axes fraction", "data"), xytext=(0, 3), textcoords="offset points",
            ha="right", va="bottom", **look,
        )  # fmt: skip


def _counted(seen: np.ndarray) -> str:
    """Describe the number of designs on the front, and how many are outside the axes."""
    words = f"{seen.size:,} design{'s' if seen.size > 1 else ''}"
    return words if seen.all() else f"{words}, {np.sum(~seen):,} outside the axes"


def _names(front: _Designs) -> list[str]:
    """Return the bottlenecks that occur, the most frequent first."""
    return _ranked(front.bottleneck)


def _ranked(names: np.ndarray) -> list[str]:
    """Return the distinct names, the most frequent first."""
    counts = Counter(names.astype(str))
    return sorted(counts, key=lambda name: (-counts[name], name))


def _keys(axes: Any, front: _Designs, cloud: _Designs | None, best: _Designs | None, feasible: bool) -> list[Any]:
    """Return the entries of the legend."""
    keys = []

    def add(label: str, marker: str = "o", **look: Any) -> None:
        keys.extend(axes.plot([], [], linestyle="none", label=label, marker=marker, **look))

    for name in filter(None, _names(front)):
        add(name.removesuffix("_s").replace("_", " "), color=part_colour(name))
    for case, mark in front.marks.items() if front.case.any() else ():
        add(case or "another choice", mark, color="0.35")
    if not front.feasible.all():
        add("exceeds a budget", markerfacecolor="white", markeredgecolor="0.35")
    if best:
        of = f": {best.case[0]}" if best.case[0] else ""
        words = f"best design{of}" if feasible else f"closest to feasible{of}"
        add(words, "*", markersize=11, markerfacecolor="white", markeredgecolor="black")
    if cloud and cloud.feasible.any():
        add("other feasible designs", markersize=4, color=PALE)
    if cloud and not cloud.feasible.all():
        add("other designs that exceed a budget", markersize=4, color=PALER)
    return keys
