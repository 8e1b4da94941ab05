"""Figure of the common features of the best designs: one line per design over all variables."""

import math
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwopt.output.answers.sweep_document import listed
from hwopt.output.figures.quantities import AxisQuantity, attribute, axis_quantity, tick_text, ticks
from hwopt.output.figures.style import NothingToDraw, figure, save
from hwopt.output.figures.sweep_contents import best_words, heading, values

_CLOSEST = 0.055
"""Minimum distance of a tick from an end of its axis, as a share of the axis; closer ticks are left out."""

_DARK = 0.88
"""Part of the color map that is dark enough on a white background."""


@dataclass(frozen=True)
class _ParallelAxis:
    """One vertical axis: its quantity, its ends (SI), and the designs' values (SI)."""

    shown: AxisQuantity
    low: float
    high: float
    values: np.ndarray

    def height(self, values: Any) -> np.ndarray:
        """Return the position of SI values between the ends, 0 to 1; half height where both ends are equal."""
        if self.high <= self.low:
            return np.full(np.shape(values), 0.5)
        return np.log(np.asarray(values) / self.low) / math.log(self.high / self.low)


def plot_parallel_coordinates(dataset: Any, path: str | Path) -> None:
    """Draw the best designs as lines over the variables, colored by objective, with the best one bold.

    Axes are logarithmic and span the bounds of the question's variables; the last one is the objective. Fixed variables
    are left out.

    **Arguments:** `dataset` of a sweep; `path` of the image to write.

    **Raises:** `NothingToDraw` without a best design or a free variable; `UserError` where the file cannot be written.
    """
    name = str(dataset.attrs.get("objective", ""))
    objective = values(dataset, f"best_{name}", "there is no best design").astype(float)
    shown = np.isfinite(objective) & (objective > 0)
    if not shown.any():
        raise NothingToDraw("there is no best design")
    variables = [_axis(dataset, each, shown) for each in listed(dataset, "variables") if f"best_{each}" in dataset]
    axes_of = [each for each in variables if each is not None and each.high > each.low * (1 + 1e-9)]
    if not axes_of:
        raise NothingToDraw("no variable moves")
    axes_of.append(_between(axis_quantity(dataset, name, objective[shown]), objective[shown], None, None))
    width = max(6.0, 1.4 + 0.98 * len(axes_of))
    with figure(figsize=(width, 5.0)) as (drawn, (axes,)):
        heights = np.array([each.height(each.values) for each in axes_of])
        _lines(axes, heights)
        for place, each in enumerate(axes_of):
            _vertical(axes, place, each, 0.0028 * len(axes_of))
        words = [textwrap.fill(each.shown.label, 13, break_long_words=False) for each in axes_of]
        axes.set_xticks(range(len(axes_of)), words, fontsize=8)
        axes.tick_params(axis="x", length=0)
        axes.get_xticklabels()[-1].set_fontweight("bold")
        right = len(axes_of) - 1 + max(0.045 * len(axes_of), 0.1)
        axes.set(xlim=(-0.012 * len(axes_of), right), ylim=(-0.03, 1.03), yticks=[])
        axes.grid(visible=False)
        axes.spines[["left", "bottom"]].set_visible(False)
        text = best_words(dataset, int(shown.sum())) + ("; bold: the best" if shown.sum() > 1 else "")
        axes.set_title(heading(dataset, text, int(10 * width)), fontsize=11)
        save(drawn, path)


def _axis(dataset: Any, name: str, shown: np.ndarray) -> _ParallelAxis | None:
    """Return the axis of a variable of the designs `shown`; None where a logarithmic axis cannot show it."""
    own = values(dataset, f"best_{name}").astype(float)[shown]
    if not (np.isfinite(own) & (own > 0)).all():
        return None
    low, high = (attribute(dataset, name, end) for end in ("lower", "upper"))
    ends = [each for each in (low, high) if each is not None]
    return _between(axis_quantity(dataset, name, [*own, *ends]), own, low, high)


def _between(shown: AxisQuantity, own: np.ndarray, low: Any, high: Any) -> _ParallelAxis:
    """Return an axis from `low` to `high`, extended to include all designs; a missing end is taken from the designs."""
    low, high = own.min() if low is None else float(low), own.max() if high is None else float(high)
    return _ParallelAxis(shown, float(min(low, own.min())), float(max(high, own.max())), own)


def _lines(axes: Any, heights: np.ndarray) -> None:
    """Draw the designs as lines, the best one last; the color is the height on the last axis."""
    import matplotlib
    from matplotlib.patheffects import Normal, withStroke

    colours = matplotlib.colormaps["viridis"]
    count = heights.shape[1]
    bold: Any = {
        "linewidth": 3.2,
        "path_effects": [withStroke(linewidth=5.0, foreground="white"), Normal()],
        "zorder": 4,
    }
    thin: Any = {"linewidth": 1.0, "alpha": 0.75 if count < 30 else 0.45, "zorder": 2}
    for at in reversed(range(count)):
        colour = colours(_DARK * float(heights[-1, at])) if count > 1 else colours(0.0)
        axes.plot(range(len(heights)), heights[:, at], color=colour, **(thin if at else bold))
    if count > 1:
        ramp = colours(np.linspace(0.0, _DARK, 64))[:, None, :]
        last, half = len(heights) - 1, 0.0022 * len(heights)
        axes.imshow(ramp, extent=(last - half, last + half, 0, 1), origin="lower", aspect="auto", zorder=5)


def _vertical(axes: Any, place: int, each: _ParallelAxis, tick: float) -> None:
    """Draw one axis with its ticks, of length `tick`."""
    axes.plot([place, place], [0, 1], color="0.25", linewidth=0.9, zorder=3)
    low, high = each.low / each.shown.factor, each.high / each.shown.factor
    height_of = lambda value: float(each.height(value * each.shown.factor))
    inner = [value for value in ticks(low, high) if _CLOSEST < height_of(value) < 1 - _CLOSEST] if high > low else []
    for value in dict.fromkeys((low, *inner, high)):
        height = height_of(value)
        axes.plot([place, place + tick], [height, height], color="0.25", linewidth=0.9, zorder=6)
        axes.annotate(
            tick_text(value), (place, height), xytext=(5, 0), textcoords="offset points", fontsize=7.5, va="center",
            zorder=6, bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5},
        )  # fmt: skip
