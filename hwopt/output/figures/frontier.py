"""Figure of the certified optimum over one or two budgets, with the shadow price of a single budget."""

from pathlib import Path
from typing import Any

import numpy as np

from hwopt.output.colours import OVER, PALE, PALER, WITHIN, ink_on
from hwopt.output.figures.quantities import axis_quantity, fitted
from hwopt.output.figures.style import NothingToDraw, figure, save
from hwopt.output.figures.sweep_contents import heading, values

_HATCH = "///"
_CELLS_WITH_NUMBERS = 80
"""Maximum number of cells of a map with numbers."""


def plot_frontier(dataset: Any, path: str | Path) -> None:
    """Draw the minimal objective over the budgets of a frontier; hatched where infeasibility is proved.

    With one budget: the objective with its lower bound, and below them the shadow price. With two: a map. Budgets of a
    single level do not count.

    **Arguments:** `dataset` of `hwopt.frontier`; `path` of the image to write.

    **Raises:** `NothingToDraw` where no point is feasible, or without one or two budgets; `UserError` where the file
    cannot be written.
    """
    name = str(dataset.attrs.get("objective", ""))
    objective = values(dataset, name, "the dataset holds no frontier")
    if not np.isfinite(objective).any():
        raise NothingToDraw("no point of the frontier is feasible")
    budgets = [str(each) for each in dataset[name].dims if dataset.sizes[each] > 1]
    if len(budgets) not in (1, 2):
        raise NothingToDraw(f"a frontier over {len(budgets)} budgets; choose levels so that one or two are left")
    shown = dataset.squeeze()
    if len(budgets) == 1:
        _curve(shown, name, budgets[0], path)
    else:
        _map(shown, name, budgets[1], budgets[0], path)


def _curve(dataset: Any, name: str, budget: str, path: str | Path) -> None:
    """Draw objective and shadow price over one budget."""
    across, up = (axis_quantity(dataset, each, dataset[each].values) for each in (budget, name))
    prices = dataset[f"shadow_price_{budget}"]
    price = fitted("shadow price", str(prices.attrs.get("units", "")).replace("USD", "$"), prices.values)
    x, goal, bound = across.scaled(dataset[budget]), up.scaled(dataset[name]), up.scaled(dataset["lower_bound"])
    worth = price.scaled(prices)
    feasible, proved = np.isfinite(goal), dataset["certified"].values > 0
    none, unknown = ~feasible & proved, ~feasible & ~proved
    room = 0.04 * (x[-1] - x[0])
    with figure(2, 1, figsize=(7.6, 5.8), sharex=True, height_ratios=(1.6, 1.0)) as (drawn, (above, below)):
        for axes, y in ((above, goal), (below, worth)):
            axes.plot(x, y, "-", color=WITHIN, linewidth=1.2)
            within = f"certified, gap at most {100 * float(np.nanmax(dataset['gap'].values, initial=0.0)):.2g} %"
            for some, face, words in ((proved, WITHIN, within), (~proved, "white", "not certified")):
                if (some := some & feasible).any():
                    look: Any = {"color": WITHIN, "markerfacecolor": face, "label": f"best design, {words}"}
                    axes.plot(x[some], y[some], "o", markersize=5, clip_on=False, zorder=4, **look)
            if none.any():
                look = {"facecolor": "none", "edgecolor": PALE, "hatch": _HATCH, "linewidth": 0.0}
                axes.axvspan(x[0] - room, x[none].max(), label="infeasible (certified)", **look)
        if unknown.any():
            look = {"color": OVER, "clip_on": False, "transform": above.get_xaxis_transform()}
            above.plot(x[unknown], np.zeros(unknown.sum()), "x", label="no feasible design found", **look)
        if np.isfinite(bound).any():
            _between(above, x[feasible], goal[feasible], bound[feasible])
        most = np.nanmax(worth)
        below.set(ylim=(0.0, 1.12 * most if most > 0 else 1.0), xlim=(x[0] - room, x[-1] + room))
        below.set(xlabel=across.label, ylabel=price.label)
        drawn.align_ylabels()
        above.set_ylabel(up.label)
        above.legend(fontsize=8.5)
        above.set_title(heading(dataset, f"optimum by {across.words}"), fontsize=11)
        save(drawn, path)


def _between(axes: Any, x: np.ndarray, goal: np.ndarray, bound: np.ndarray) -> None:
    """Shade the region of optima between levels: at most the objective of the tighter level, at least the bound of the
    looser one.
    """
    axes.plot(x, bound, color="black", linewidth=0.7, drawstyle="steps-pre", label="certified lower bound")
    corners = np.repeat(x, 2)[1:-1]
    look: Any = {"color": PALER, "alpha": 0.6, "linewidth": 0.0, "label": "range of optima between levels"}
    axes.fill_between(corners, np.repeat(bound[1:], 2), np.repeat(goal[:-1], 2), **look)


def _map(dataset: Any, name: str, right: str, upward: str, path: str | Path) -> None:
    """Draw the objective over two budgets as a map."""
    across, up, goal = (axis_quantity(dataset, each, dataset[each].values) for each in (right, upward, name))
    x, y = across.scaled(dataset[right]), up.scaled(dataset[upward])
    shown = dataset.transpose(upward, right)
    objective, proved = goal.scaled(shown[name]), shown["certified"].values > 0
    feasible = np.isfinite(objective)
    with figure(figsize=(8.0, 5.4)) as (drawn, (axes,)):
        from matplotlib.patches import Patch

        edges = _edges(x), _edges(y)
        mesh = axes.pcolormesh(*edges, np.ma.masked_invalid(objective), cmap="viridis_r", rasterized=True)
        bar = drawn.colorbar(mesh, ax=axes, pad=0.02)
        bar.set_label(goal.label)
        keys = []
        for cells, hatch, colour, label in (
            (~feasible & proved, _HATCH, "0.55", "infeasible (certified)"),
            (~feasible & ~proved, "xx", OVER, "no feasible design found"),
            (feasible & ~proved, "..", "white", "best design, not certified"),
        ):
            if cells.any():
                _hatched(axes, edges, cells, hatch, colour)
                face = "0.7" if colour == "white" else "white"
                keys.append(Patch(facecolor=face, edgecolor=colour, hatch=hatch, linewidth=0.0, label=label))
        if objective.size <= _CELLS_WITH_NUMBERS:
            _numbers(axes, mesh, x, y, objective)
        axes.grid(visible=False)
        axes.set(xlabel=across.label, ylabel=up.label)
        if keys:
            axes.legend(handles=keys, fontsize=8.5, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(keys))
        title = heading(dataset, f"optimum by {across.words} and {up.words}", 60)
        axes.set_title(title, fontsize=11, pad=28 if keys else 6)
        save(drawn, path)


def _edges(levels: np.ndarray) -> np.ndarray:
    """Return the edges of cells around levels, halfway between neighbors."""
    middle = 0.5 * (levels[1:] + levels[:-1])
    return np.concatenate([[2 * levels[0] - middle[0]], middle, [2 * levels[-1] - middle[-1]]])


def _hatched(axes: Any, edges: tuple[np.ndarray, np.ndarray], some: np.ndarray, hatch: str, colour: str) -> None:
    """Hatch cells without seams: one path for all adjacent cells of a row."""
    from matplotlib.collections import PolyCollection

    across, up = edges
    outlines = []
    for row, cells in enumerate(some):
        steps = np.flatnonzero(np.diff(np.concatenate([[False], cells, [False]]).astype(int)))
        for first, last in steps.reshape(-1, 2):
            low, high, left, right = up[row], up[row + 1], across[first], across[last]
            outlines.append([(left, low), (right, low), (right, high), (left, high)])
    look: Any = {"facecolors": "none", "edgecolors": colour, "hatch": hatch, "linewidths": 0.0}
    axes.add_collection(PolyCollection(outlines, **look))


def _numbers(axes: Any, mesh: Any, x: np.ndarray, y: np.ndarray, shown: np.ndarray) -> None:
    """Write the objective into each cell."""
    digits = 4 if shown.shape[1] <= 8 else 3  # with trailing zeros, since cells are compared
    for (row, column), value in np.ndenumerate(shown):
        if np.isfinite(value):
            red, green, blue, _ = colour = mesh.cmap(mesh.norm(value))
            behind = {"facecolor": colour, "edgecolor": "none", "pad": 1.0}  # covers hatching
            ink = ink_on(f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}")
            look: Any = {"ha": "center", "va": "center", "fontsize": 8, "color": ink, "bbox": behind}
            axes.text(x[column], y[row], f"{value:#.{digits}g}".rstrip("."), **look)
