"""Figure of predicted against measured speed, one point per run."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hwopt.output.figures.style import figure, plain, save

_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f")

_LIMITS = (0.3, 3.0)
"""Default limits of the axis of relative speed; wider where needed, so that every run is shown."""

_TICKS = (0.1, 0.2, 0.33, 0.5, 0.75, 0.9, 1.0, 1.1, 1.33, 2.0, 3.0, 5.0, 10.0)

_TIMES = ("iter_time_s", "step_time_s", "total_latency_ms", "ttft_ms", "tpot_ms")


def plot_accuracy(result: Mapping[str, Any], path: str | Path) -> None:
    """Draw predicted over measured step speed against the number of chips, by accelerator, with bands of 10 and 25 %.

    **Arguments:** `result` of `hwopt.validate`; `path` of the image to write.
    """
    rows = [row for row in result["rows"] if row["status"] == "scored" and row["counts"]]
    names = [name for name, _ in Counter(row["accelerator"] for row in rows).most_common()]
    last = len(_COLOURS) - 1
    with figure() as (drawn, (axes,)):
        for low, shade in ((0.75, 0.08), (0.9, 0.14)):
            axes.axhspan(low, 1 / low, color="black", alpha=shade, linewidth=0)
        axes.axhline(1.0, color="black", linewidth=0.8)
        low, high = _LIMITS
        for index, name in enumerate(names):
            own = [row for row in rows if row["accelerator"] == name]
            # Times and rates both become speed relative to measured, so above one means predicted too fast.
            rate = [row["predicted"] / row["measured"] for row in own]
            speed = [1 / x if row["metric"] in _TIMES else x for x, row in zip(rate, own, strict=True)]
            shown, colour = name if index < last else "others" if index == last else None, _COLOURS[min(index, last)]
            low, high = min([low, *(0.9 * x for x in speed)]), max([high, *(1.1 * x for x in speed)])
            chips = np.array([row["chips"] for row in own], float)
            spread = 1.0 + 0.06 * np.sin(np.arange(len(own)))  # rows of equal size would otherwise hide each other
            axes.scatter(chips * spread, speed, s=9, alpha=0.6, color=colour, label=shown, linewidth=0)
        axes.set(xscale="log", yscale="log", xlabel="chips in the run", ylabel="predicted speed / measured speed")
        axes.set_ylim(low, high)
        ticks = [tick for tick in _TICKS if low <= tick <= high]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        summary = result["summary"]
        error = f"median error {100 * summary['median_abs_error']:.1f} % over {summary['cells']} cells"
        axes.set_title(plain(f"{len(rows)} runs, constants {summary['constants']}: {error}"), fontsize=10)
        axes.legend(ncols=2, fontsize=8, loc="lower right", markerscale=2)
        save(drawn, path)
