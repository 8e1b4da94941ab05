"""Placement of labels next to points, without overlap."""

from collections.abc import Sequence
from typing import Any

import numpy as np

_DIRECTIONS = ((1, 0), (1, -0.7), (1, 0.7), (-1, 0), (-1, -0.7), (-1, 0.7), (0.5, -1), (-0.5, -1), (0, 1))
_DISTANCES = (7.0, 16.0, 28.0, 42.0, 60.0, 80.0, 105.0)  # points
_LED = 12.0  # distance from which on a line connects label and point


def settle(axes: Any) -> None:
    """Lay the figure out and fix the layout, so that data coordinates keep their pixel positions."""
    axes.figure.canvas.draw()
    axes.figure.set_layout_engine("none")


def place_labels(
    axes: Any, x: np.ndarray, y: np.ndarray, names: Sequence[str], line: tuple[np.ndarray, np.ndarray]
) -> None:
    """Write each name at the nearest place that covers no name, point, text or `line`, preferably below the line.

    Call `settle` first. A name without a free place is written where it covers least.

    **Arguments:** `x`, `y`: points in data coordinates; `names` of the points; `line`: closely spaced points of a line,
    in data coordinates.
    """
    from matplotlib.patheffects import withStroke

    scale = axes.figure.dpi / 72.0
    frame = axes.get_window_extent()
    others = [*(text for text in axes.texts if text.get_text()), *filter(None, [axes.get_legend()])]
    taken = [_box(each.get_window_extent()) for each in others]
    points = axes.transData.transform(np.column_stack([x, y]))
    bar = axes.transData.transform(np.column_stack(line))
    solid = np.vstack([points, bar])
    for at in sorted(range(len(names)), key=lambda at: (-points[at, 1], points[at, 0], names[at])):
        text = axes.annotate(
            names[at], (x[at], y[at]), xytext=(0, 0), textcoords="offset points", fontsize=8.0, zorder=6,
            ha="center", va="center", path_effects=[withStroke(linewidth=2.0, foreground="white")],
        )  # fmt: skip
        extent = text.get_window_extent()
        half = np.array([extent.width, extent.height]) / 2 + 1.0
        tried = []
        for distance in _DISTANCES:
            for across, up in _DIRECTIONS:
                centre = points[at] + distance * scale * np.array([across, up]) + half * np.array([across, np.sign(up)])
                box = np.array([*(centre - half), *(centre + half)])
                above = 30.0 * (centre[1] > np.interp(centre[0], *bar.T))
                tried.append((above + _cost(box, taken, solid, frame), len(tried), distance, centre, box))
        _, _, distance, centre, box = min(tried, key=lambda each: each[:2])
        text.set_position(tuple((centre - points[at]) / scale))
        if distance > _LED:
            ends = np.array([points[at], np.clip(points[at], box[:2], box[2:])])
            axes.plot(*axes.transData.inverted().transform(ends).T, color="0.5", linewidth=0.7, zorder=3.5)
        taken.append(box)


def _cost(box: np.ndarray, taken: list[np.ndarray], solid: np.ndarray, frame: Any) -> float:
    """Return the penalty of a name at `box`: overlapping area in pixels, covered points, and the distance outside the
    axes.
    """
    covered = sum(
        max(0.0, min(box[2], each[2]) - max(box[0], each[0])) * max(0.0, min(box[3], each[3]) - max(box[1], each[1]))
        for each in taken
    )
    wide = box + np.array([-3.0, -3.0, 3.0, 3.0])
    inside = ((solid > wide[:2]) & (solid < wide[2:])).all(axis=1).sum()
    outside = max(0.0, frame.x0 - box[0], frame.y0 - box[1], box[2] - frame.x1, box[3] - frame.y1)
    return float(covered + 50.0 * inside + 100.0 * outside)


def _box(extent: Any) -> np.ndarray:
    return np.array([extent.x0, extent.y0, extent.x1, extent.y1])
