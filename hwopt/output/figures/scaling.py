"""Figure of a run on an increasing number of chips: its time, its cost and the breakdown of chip time."""

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from hwopt.analysis.chip_time import FAILURES, RECOMPUTED, WASTED
from hwopt.analysis.scaling import Scaling
from hwopt.output.answers.scaling import Around
from hwopt.output.colours import OTHER, OVER, PALE, PARTS, WITHIN
from hwopt.output.figures.style import NothingToDraw, figure, plain, plain_powers, save
from hwopt.output.text.scaling import CAUSES, headline, rule
from hwopt.units import fitting

_LOST = {FAILURES: "#C1121F", WASTED: "#E6A5AB", RECOMPUTED: "#8577C4"}
"""Colors of chip time outside the parts of a step: failures, wasted tokens and recomputation."""

_DRAWN = 7
"""Maximum number of parts of chip time with a separate color; all others are combined."""


def plot_scaling(answer: Scaling, path: str | Path, title: str, around: Around) -> None:
    """Draw the run time with its prediction interval and the line of equal efficiency, the cost, and shares of chip time.

    **Arguments:** `answer` of `hwopt.scale`; `path` of the image to write; `title`: workload and chip in words;
    `around`: prediction intervals by number of chips.

    **Raises:** `NothingToDraw` where fewer than two sizes train; `UserError` where the file cannot be written.
    """
    sizes = answer.trained
    if len(sizes) < 2:
        raise NothingToDraw(f"{len(sizes)} of {len(answer.sizes)} sizes train")
    chips = np.array([each.chips for each in sizes])
    with figure(3, 1, figsize=(8.4, 8.4), sharex=True, height_ratios=(1.3, 1.0, 1.3)) as (drawn, (time, money, parts)):
        seconds, costs = (np.array([getattr(each, name) for each in sizes]) for name in ("time_s", "cost_usd"))
        factor, unit = fitting("s", [*seconds])
        time.plot(chips, seconds[0] * chips[0] / chips / factor, "--", color=PALE, label="as the smallest size")
        time.plot(chips, seconds / factor, "o-", color=WITHIN, markersize=4, label="best plan of each size")
        if all(around.get(each.chips) is not None for each in sizes):
            low, high = np.array([around[each.chips].times(each.time_s) for each in sizes]).T / factor  # pyright: ignore
            time.fill_between(chips, low, high, color=WITHIN, alpha=0.15, linewidth=0.0, label="holds four of five")
        time.set(yscale="log", ylabel=f"time of the run ({unit})")
        plain_powers(time)
        factor, unit = fitting("USD", [*costs])
        money.plot(chips, costs / factor, "o-", color=WITHIN, markersize=4)
        money.set(ylabel=plain(f"cost of the run ({unit})"), ylim=(0.0, None))
        _stack(parts, answer)
        parts.set(
            xscale="log", xlabel="chips", ylabel="share of chip time (%)", ylim=(0, 100), xlim=(chips[0], chips[-1])
        )
        parts.set_xticks(chips, [_short(each) for each in chips], rotation=45 if len(chips) > 8 else 0)
        parts.minorticks_off()
        if answer.knee is not None:
            for place, axes in enumerate((time, money)):
                words = f"stops paying: {answer.knee.before.chips:,}" if place == 0 else None
                axes.axvline(answer.knee.before.chips, color=OVER, linewidth=1.0, linestyle=":", label=words)
        time.legend(fontsize=8.5)
        drawn.align_ylabels()
        said = (textwrap.fill(each, 84) for each in (title, rule(answer), _first(headline(answer))))
        drawn.suptitle(plain("\n".join(said)), fontsize=10)
        save(drawn, path)


def _stack(axes: Any, answer: Scaling) -> None:
    """Draw shares of chip time as areas; the parts that are largest at any size are named."""
    shares = [{name: x / sum(each.chip_time.values()) for name, x in each.chip_time.items()} for each in answer.trained]
    most = lambda name: max(each.get(name, 0.0) for each in shares)
    names = sorted({name for each in shares for name in each}, key=lambda name: -most(name))[:_DRAWN]
    heights = [[100.0 * each.get(name, 0.0) for each in shares] for name in names]
    rest = 100.0 - np.sum(heights, axis=0)
    words = ["products" if name == "compute" else CAUSES[name] for name in names]
    colours = [_LOST.get(name) or PARTS.get(name, OTHER) for name in names]
    chips = [each.chips for each in answer.trained]
    axes.stackplot(
        chips, *heights, np.maximum(rest, 0.0), labels=[*words, "the rest"], colors=[*colours, OTHER], linewidth=0.0
    )
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _first(text: str) -> str:
    return text.split(" (asked")[0]


def _short(chips: int) -> str:
    """Format a number of chips: `64k` for 65,536, where this is exact."""
    for size, letter in ((1 << 20, "M"), (1 << 10, "k")):
        if chips % size == 0:
            return f"{chips // size}{letter}"
    return f"{chips:,}"
