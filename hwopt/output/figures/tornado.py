"""What the uncertainty of each input is worth: a tornado."""

import math
import textwrap
from pathlib import Path

from hwopt.analysis.sensitivity import Sensitivity
from hwopt.analysis.sensitivity.improvement import words_of
from hwopt.analysis.sensitivity.optimum import Parameter
from hwopt.errors import UserError
from hwopt.output.figures.style import figure, plain, save
from hwopt.units import label, pretty

_LOW, _HIGH = "#1f77b4", "#d62728"
_UNSTATED_ALPHA = 0.4

_MEANING = 64
"""Letters of what an input means, at most."""


def plot_tornado(answer: Sensitivity, path: str | Path, top: int = 15) -> None:
    """Relative change of the optimum at the low and the high end of each input's range, the largest on top.

    Pale bars: no range is stated, 10 % to both sides (temperatures 5 K). Hatched: no hardware satisfies the budgets there with
    these integers, so the bar is the elasticity's.

    **Arguments:** `answer` of `hwopt.sensitivity`; `path` of the image to write; `top`: how many inputs.

    **Raises:** `UserError` where nothing is known of the optimum, or the file cannot be written.
    """
    rows = [each for each in answer.parameters if not each.input.is_asked and math.isfinite(each.elasticity)]
    rows = sorted(rows, key=lambda each: -max(abs(change) for change, _ in _bars(each)))[:top]
    if not rows:
        raise UserError(f"figure {path}: nothing to draw: {answer.unknown or 'no input moves the optimum'}")
    objective = answer.problem.objective
    with figure(figsize=(10.5, 1.6 + 0.44 * len(rows))) as (drawn, (axes,)):
        for place, each in enumerate(rows):
            for (change, holds), colour in zip(_bars(each), (_LOW, _HIGH), strict=True):
                alpha = 0.9 if each.range.stated else _UNSTATED_ALPHA
                look = {"color": colour} if holds else {"facecolor": "white", "edgecolor": colour, "hatch": "////"}
                axes.barh(place, 100 * change, height=0.72, alpha=alpha, linewidth=0.8, **look)
        axes.axvline(0.0, color="black", linewidth=0.8)
        axes.set_yticks(range(len(rows)), [_label(each) for each in rows], fontsize=8)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        value = plain(pretty(answer.objective, objective.unit))
        axes.set_xlabel(
            f"change of the least {label(objective.name, objective.unit)}, % of {value}\nintegers and plan fixed"
        )
        axes.set_title(f"{answer.problem.name}: which assumption moves the optimum", fontsize=11)
        keys = [
            axes.barh(0, 0, color=_LOW, label="low end"),
            axes.barh(0, 0, color=_HIGH, label="high end"),
            axes.barh(0, 0, color="grey", alpha=_UNSTATED_ALPHA, label="no range stated: 10 %"),
            axes.barh(0, 0, facecolor="white", edgecolor="grey", hatch="////", label="budgets break: by elasticity"),
        ]
        axes.legend(handles=keys, fontsize=8, loc="lower right")
        save(drawn, path)


def _bars(each: Parameter) -> list[tuple[float, bool]]:
    """Effects at both ends, and whether a design holds there; else what the elasticity makes of it."""
    value, ends = each.input.value, (each.range.low, each.range.high)
    return [
        (effect, True) if math.isfinite(effect) else (each.elasticity * (end - value) / value, False)
        for effect, end in zip(each.effect, ends, strict=True)
    ]


def _label(each: Parameter) -> str:
    """An input in words, what it means, and its range: two lines."""
    low, high = (pretty(end, each.input.unit, 3) for end in (each.range.low, each.range.high))
    meaning = textwrap.shorten(each.input.quantity.meaning, _MEANING, placeholder=" ...")
    return plain("\n".join(filter(None, [f"{words_of(each.input)}, {low} to {high}", meaning])))
