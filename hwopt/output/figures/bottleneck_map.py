"""Map of bottlenecks: the largest part of the step of the best design, over two variables."""

from pathlib import Path
from typing import Any

import numpy as np

from hwopt.output.answers.sweep_document import listed
from hwopt.output.colours import CHOICES, part_colour
from hwopt.output.figures.quantities import AxisQuantity, axis_quantity, fitted, set_range, tick_text
from hwopt.output.figures.style import NothingToDraw, figure, save
from hwopt.output.figures.sweep_contents import cases, heading, parts, values

_LEVELS = np.array([1.15, 1.4, 2.0, 3.0, 6.0, 15.0])
"""Approximate contour levels, as multiples of the smallest smoothed objective on the map."""

_NAMED = 12
"""Maximum number of choices in the legend."""

_BINOMIAL = np.array([1.0, 4.0, 6.0, 4.0, 1.0]) / 16.0


def plot_bottleneck_map(dataset: Any, path: str | Path) -> None:
    """Draw the best design of each cell: its bottleneck as color, its objective as contours; cells without a design stay
    white.

    If the sweep covers several choices (such as chips), a second map shows the choice of each cell's best design.

    **Arguments:** `dataset` of a sweep; `path` of the image to write.

    **Raises:** `NothingToDraw` where no cell contains a possible design; `UserError` where the file cannot be written.
    """
    codes, objective = values(dataset, "map_bottleneck"), values(dataset, "map_objective").astype(float)
    x, y = (_edges(dataset, name) for name in ("map_x_edges", "map_y_edges"))
    filled = np.isfinite(objective) & (codes >= 0)
    if not filled.any():
        raise NothingToDraw("no cell of the map holds a possible design")
    largest, counts = np.unique(codes[filled], return_counts=True)
    known = parts(dataset, "map_bottleneck")
    names = [known.get(int(code), f"part {int(code)}") for code in largest]
    least = np.where(filled, objective, np.nan)
    shown = [_axis(dataset, name, at, edges) for at, (name, edges) in enumerate((("x", x), ("y", y)))]
    metric = axis_quantity(dataset, str(dataset.attrs.get("objective", "objective")), np.nanmin(least) * _LEVELS)
    chosen = cases(dataset, "map_case")
    with figure(1, 1 + bool(chosen), figsize=(12.6 if chosen else 8.6, 5.0), sharey=True) as (drawn, (axes, *second)):
        from matplotlib.colors import ListedColormap
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        places = np.ma.masked_where(~filled, np.searchsorted(largest, codes).clip(0, largest.size - 1))
        colours = ListedColormap([part_colour(name) for name in names])
        across, up = shown[0].scaled(x), shown[1].scaled(y)
        axes.pcolormesh(across, up, places, cmap=colours, vmin=-0.5, vmax=largest.size - 0.5, rasterized=True)
        for panel in (axes, *second):
            for axis, edges, each in ((panel.xaxis, across, shown[0]), (panel.yaxis, up, shown[1])):
                set_range(axis, float(edges[0]), float(edges[-1]))
                axis.set_label_text(each.label if panel is axes or axis is panel.xaxis else "")
            panel.grid(visible=False)
        keys: list[Any] = [
            Patch(color=part_colour(names[at]), label=f"{names[at].removesuffix('_s').replace('_', ' ')}  {share}")
            for at in np.argsort(-counts, kind="stable")
            if (share := _percent(float(counts[at] / filled.sum())))
        ]
        if not filled.all():
            label = f"no buildable design  {_percent(float(np.mean(~filled)))} of the map"
            keys.append(Patch(facecolor="white", edgecolor="0.6", label=label))
        if _contours(axes, across, up, metric, least):
            keys.append(Line2D([], [], color="black", linewidth=1.0, label=f"{metric.label}, smoothed"))
        (star,) = axes.plot([], [], "*", color="white", markeredgecolor="black", markersize=11, linestyle="none")
        star.set_label(f"lowest {metric.words}: {metric.text(float(np.nanmin(least)))}")
        for panel in second:
            _choices(panel, across, up, values(dataset, "map_case"), filled, chosen)
        title = "bottleneck,\nshare of cells with a design"
        drawn.legend(
            handles=[*keys, star], loc="outside right upper", fontsize=8.5, title=title, title_fontsize=8.5,
            alignment="left",
        )  # fmt: skip
        axes.set_title(heading(dataset, "bottleneck of the best design", 60 if not second else 48), fontsize=11)
        save(drawn, path)


def _choices(axes: Any, across: np.ndarray, up: np.ndarray, codes: np.ndarray, filled: np.ndarray, words: Any) -> None:
    """Draw the choice of each cell's best design, with the most frequent choice first in the legend."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    chosen, counts = np.unique(codes[filled], return_counts=True)
    colours = [CHOICES[at % len(CHOICES)] for at in range(chosen.size)]
    places = np.ma.masked_where(~filled, np.searchsorted(chosen, codes).clip(0, chosen.size - 1))
    look: Any = {"cmap": ListedColormap(colours), "vmin": -0.5, "vmax": chosen.size - 0.5}
    axes.pcolormesh(across, up, places, rasterized=True, **look)
    keys = [
        Patch(
            color=colours[at],
            label=f"{words.get(int(chosen[at]), chosen[at])}  {_percent(float(counts[at] / filled.sum()))}",
        )
        for at in np.argsort(-counts, kind="stable")[:_NAMED]
    ]
    axes.legend(handles=keys, loc="upper left", fontsize=8.5, frameon=True, framealpha=0.9)
    axes.set_title("choice of the best design", fontsize=11)


def _edges(dataset: Any, name: str) -> np.ndarray:
    """Return the edges of the cells on one axis."""
    edges = values(dataset, name).astype(float)
    if not (np.isfinite(edges).all() and edges[0] > 0 and (np.diff(edges) > 0).all()):
        raise NothingToDraw("a side of the map has no width")
    return edges


def _axis(dataset: Any, side: str, at: int, edges: np.ndarray) -> AxisQuantity:
    """Return the variable on one side of the map: as described by the edges' attributes, else the dataset's variable."""
    attrs, names = dataset[f"map_{side}_edges"].attrs, listed(dataset, "map_variables")
    if attrs.get("long_name") or at >= len(names):
        return fitted(attrs.get("long_name") or side, attrs.get("units", ""), edges)
    return axis_quantity(dataset, names[at], edges)


def _contours(axes: Any, x: np.ndarray, y: np.ndarray, metric: AxisQuantity, objective: np.ndarray) -> bool:
    """Mark the minimum by a star, draw contours through the cells' centers, and return whether there are any contours."""
    from matplotlib.patheffects import withStroke

    across, up = (np.sqrt(edges[1:] * edges[:-1]) for edges in (x, y))
    row, column = np.unravel_index(np.nanargmin(objective), objective.shape)
    axes.plot(across[column], up[row], "*", color="white", markeredgecolor="black", markersize=14, zorder=5)
    if min(objective.shape) < 2 or not objective[row, column] > 0:
        return False
    smooth = _smoothed(metric.scaled(objective))
    levels = {float(f"{level:.2g}") for level in np.nanmin(smooth) * _LEVELS}
    levels = sorted(level for level in levels if np.nanmin(smooth) < level < np.nanmax(smooth))
    if levels:
        lines = axes.contour(across, up, np.ma.masked_invalid(smooth), levels=levels, colors="black", linewidths=1.0)
        lines.set_path_effects([withStroke(linewidth=2.4, foreground="white", alpha=0.7)])
        for text in axes.clabel(lines, fmt=tick_text, fontsize=8.5):
            text.set_path_effects([withStroke(linewidth=2.6, foreground="white")])
    return bool(levels)


def _smoothed(objective: np.ndarray) -> np.ndarray:
    """Return geometric means over each cell's neighborhood (binomial weights, 5 by 5), since a cell's minimum has few
    samples.

    Cells without a design stay empty and have no weight.
    """
    filled = np.isfinite(objective)
    logs, weights = np.where(filled, np.log(np.where(filled, objective, 1.0)), 0.0), filled.astype(float)
    blurred = lambda line: np.convolve(line, _BINOMIAL, "full")[2:-2]
    for axis in (0, 1):
        logs, weights = (np.apply_along_axis(blurred, axis, each) for each in (logs, weights))
    return np.where(filled, np.exp(logs / np.where(filled, weights, 1.0)), np.nan)


def _percent(share: float) -> str:
    """Return a share in per cent with two significant digits; from 10 % on without decimals."""
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.2g} %"
