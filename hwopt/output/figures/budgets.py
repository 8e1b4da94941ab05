"""Figure of the use of each budget by the best designs."""

from pathlib import Path
from typing import Any

import numpy as np

from hwopt.output.answers.sweep_document import SweepBudget, budgets_of
from hwopt.output.colours import OVER, WITHIN
from hwopt.output.figures.quantities import fitted
from hwopt.output.figures.style import NothingToDraw, figure, plain, save, set_bars
from hwopt.output.figures.sweep_contents import best_words, heading

_ROUNDING = 1e-4  # a share within this distance above one counts as one
_LONGEST = 3.0  # longer bars are cut; the number next to them is not


def plot_budgets(dataset: Any, path: str | Path, top: int = 10) -> None:
    """Draw the share of each budget that the best design uses (bar) and the next designs use (ticks); red and hatched if
    exceeded.

    **Arguments:** `dataset` of a sweep; `path` of the image to write; `top`: number of designs.

    **Raises:** `NothingToDraw` without budgets or a best design; `UserError` where the file cannot be written.
    """
    budgets = [each for each in budgets_of(dataset) if each.used.size and np.isfinite(each.used[0]) and each.limit > 0]
    if not budgets:
        raise NothingToDraw("the question has no budget, or there is no best design")
    count = min(top, int(np.isfinite(budgets[0].used).sum()))
    shares_of = [each.used[:count] / each.limit for each in budgets]
    over = [bool(shares[0] > 1 + _ROUNDING) for shares in shares_of]
    with figure(figsize=(8.2, 1.5 + 0.55 * max(len(budgets), 2))) as (drawn, (axes,)):
        for place, (first, *others) in enumerate(shares_of):
            look = {"color": OVER, "hatch": "////", "edgecolor": "white"} if over[place] else {"color": WITHIN}
            axes.barh(place, 100 * min(first, _LONGEST), height=0.6, **look)
            for share in filter(lambda x: x <= _LONGEST, others):
                colour = OVER if share > 1 + _ROUNDING else "black"
                axes.plot([100 * share] * 2, [place - 0.38, place + 0.38], color=colour, linewidth=1.0, alpha=0.7)
        longest = min(_LONGEST, max(1.0, float(np.nanmax(shares_of))))
        axes.axvline(100.0, color="black", linestyle="--", linewidth=1.1)
        axes.set_xlim(0, 100 * longest * 1.03)
        axes.set_yticks(range(len(budgets)), [plain(each.words) for each in budgets])
        beside = axes.secondary_yaxis("right")
        beside.set_yticks(range(len(budgets)), [_text(each) for each in budgets], fontsize=8.5)
        beside.tick_params(length=0)
        beside.spines["right"].set_visible(False)
        for label, is_over in zip(beside.get_yticklabels(), over, strict=True):
            label.set_color(OVER if is_over else "black")
        set_bars(axes, len(budgets), 2)
        cut = any(shares[0] > _LONGEST for shares in shares_of)
        axes.set_xlabel("share of the budget used (%)" + (f", bars cut at {100 * _LONGEST:.0f} %" if cut else ""))
        after = f"; ticks: the {count - 1} after it" if count > 1 else ""
        axes.set_title(heading(dataset, f"budgets of {best_words(dataset, 1)}{after}"), fontsize=11)
        save(drawn, path)


def _text(each: SweepBudget) -> str:
    """Return the use of a budget in words, such as `97.3 %: 38.9 MW of 40 MW`."""
    shown = fitted(each.words, each.unit, [each.limit])
    return f"{100 * each.used[0] / each.limit:.3g} %: {shown.text(float(each.used[0]))} of {shown.text(each.limit)}"
