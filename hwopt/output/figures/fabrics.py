"""Figure that compares machines: cost of a run at ideal, typical and worst-case jitter of the links."""

from pathlib import Path

import numpy as np

from hwopt.analysis.fabrics import Fabrics
from hwopt.output.answers.fabrics import level_words
from hwopt.output.colours import OVER, PALE, WITHIN
from hwopt.output.figures.style import NothingToDraw, figure, plain, save
from hwopt.units import fitting


def plot_fabrics(answer: Fabrics, path: str | Path, title: str) -> None:
    """Draw a group of bars for each machine, with a bar for each level of jitter.

    **Arguments:** `answer` of the fabric study; `path` of the image to write; `title` in words.

    **Raises:** `NothingToDraw` where no machine trains; `UserError` where the file cannot be written.
    """
    shown = answer.trained[::-1]
    if not shown:
        raise NothingToDraw("no machine trains this run")
    costs = np.array([each.costs_usd for each in shown])
    factor, unit = fitting("USD", [*costs.ravel()])
    places, height = np.arange(len(shown)), 0.8 / costs.shape[1]
    with figure(1, 1, figsize=(8.4, 1.6 + 0.55 * len(shown))) as (drawn, (axes,)):
        for i, (level, colour) in enumerate(zip(answer.levels, (PALE, WITHIN, OVER), strict=True)):
            at = places + height * (1 - i)
            axes.barh(at, costs[:, i] / factor, height=height, color=colour, label=plain(level_words(level)))
        axes.set_yticks(places, [plain(each.name) for each in shown])
        axes.set_xlabel(plain(f"cost of the run ({unit})"))
        axes.grid(axis="y", visible=False)
        axes.legend(fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=1)
        drawn.suptitle(plain(title), fontsize=10)
        save(drawn, path)
