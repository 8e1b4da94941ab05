"""Figure of the step-time breakdown of the best designs."""

from pathlib import Path
from typing import Any

import numpy as np

from hwopt.output.colours import OTHER, ink_on, part_colour
from hwopt.output.figures.quantities import axis_quantity, fitted
from hwopt.output.figures.style import NothingToDraw, figure, save, set_bars
from hwopt.output.figures.sweep_contents import best_words, heading, meanings, values

_SMALL = 0.01
"""Share of the step below which, in every bar, parts are combined into one."""

_READABLE = 0.05
"""Share of the longest bar from which on a part has room for its label."""


def plot_breakdown(dataset: Any, path: str | Path, top: int = 6) -> None:
    """Draw the step time of the best designs, one stacked bar each, by cause; parts below 1 % are combined.

    **Arguments:** `dataset` of a sweep; `path` of the image to write; `top`: number of designs.

    **Raises:** `NothingToDraw` without a best design; `UserError` where the file cannot be written.
    """
    seconds = values(dataset, "best_breakdown_s", "there is no best design").astype(float)
    ranks = np.flatnonzero(np.isfinite(seconds).all(axis=1) & (seconds.sum(axis=1) > 0))[:top]
    if not ranks.size:
        raise NothingToDraw("there is no best design")
    known, seconds = meanings(dataset, "best_breakdown_s", "best_bottleneck", "bottleneck"), seconds[ranks]
    steps = seconds.sum(axis=1)
    large = (seconds / steps[:, None]).max(axis=0) >= _SMALL
    bars = [(known.get(at, f"part {at}"), seconds[:, at]) for at in map(int, np.flatnonzero(large))]
    if seconds[:, ~large].sum() > 0:
        bars.append(("other", seconds[:, ~large].sum(axis=1)))
    step = fitted("time of a step", "s", steps)
    with figure(figsize=(8.6, 1.5 + 0.52 * max(len(ranks), 3))) as (drawn, (axes,)):
        left = np.zeros(len(ranks))
        for name, lasting in bars:
            colour = OTHER if name == "other" else part_colour(name)
            long = step.scaled(lasting)
            axes.barh(
                range(len(ranks)), long, left=left, height=0.74, color=colour, edgecolor="white", linewidth=0.6,
                label=name.removesuffix("_s").replace("_", " "),
            )  # fmt: skip
            for at in np.flatnonzero(lasting >= _READABLE * steps.max()):
                share = f"{100 * lasting[at] / steps[at]:.0f} %"
                middle = left[at] + long[at] / 2
                axes.text(middle, at, share, ha="center", va="center", fontsize=7.5, color=ink_on(colour))
            left = left + long
        axes.set_yticks(range(len(ranks)), _labels(dataset, ranks), fontsize=8.5)
        set_bars(axes, len(ranks), 3)
        axes.set_xlabel(step.label)
        axes.set_title(heading(dataset, f"a step of {best_words(dataset, len(ranks))}"), fontsize=11)
        drawn.legend(loc="outside right upper", fontsize=8.5)
        save(drawn, path)


def _labels(dataset: Any, ranks: np.ndarray) -> list[str]:
    """Return the label of each bar: rank and objective."""
    name = str(dataset.attrs.get("objective", ""))
    if f"best_{name}" not in dataset:
        return [str(rank + 1) for rank in ranks]
    objective = values(dataset, f"best_{name}").astype(float)[ranks]
    shown = axis_quantity(dataset, name, objective)
    return [f"{rank + 1}:  {shown.text(float(value), 4)}" for rank, value in zip(ranks, objective, strict=True)]
