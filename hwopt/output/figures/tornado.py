"""Tornado figure: the effect of each input's uncertainty on the optimum."""

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
"""Maximum number of letters of an input's description."""


def plot_tornado(answer: Sensitivity, path: str | Path, top: int = 15) -> None:
    """Draw the relative change of the optimum at the low and the high end of each input's range, the largest on top.

    Pale bars: no range is stated; they show 10 % to both sides (temperatures 5 K). Hatched bars: with these integers,
    no hardware satisfies the budgets at this end, so that the bar is computed from the elasticity.

    **Arguments:** `answer` of `hwopt.sensitivity`; `path` of the image to write; `top`: number of inputs.

    **Raises:** `UserError` where the optimum is not known, or the file cannot be written.
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
        axes.set_title(f"{answer.problem.name}: sensitivity to uncertain assumptions", fontsize=11)
        keys = [
            axes.barh(0, 0, color=_LOW, label="low end"),
            axes.barh(0, 0, color=_HIGH, label="high end"),
            axes.barh(0, 0, color="grey", alpha=_UNSTATED_ALPHA, label="no range in the catalog: 10 %"),
            axes.barh(0, 0, facecolor="white", edgecolor="grey", hatch="////", label="infeasible there: by elasticity"),
        ]
        axes.legend(handles=keys, fontsize=8, loc="lower right")
        save(drawn, path)


def _bars(each: Parameter) -> list[tuple[float, bool]]:
    """Return the effects at both ends, and whether a design is feasible there; otherwise the effect by elasticity."""
    value, ends = each.input.value, (each.range.low, each.range.high)
    return [
        (effect, True) if math.isfinite(effect) else (each.elasticity * (end - value) / value, False)
        for effect, end in zip(each.effect, ends, strict=True)
    ]


def _label(each: Parameter) -> str:
    """Return the label of an input in two lines: its words with its range, and its meaning."""
    low, high = (pretty(end, each.input.unit, 3) for end in (each.range.low, each.range.high))
    meaning = textwrap.shorten(each.input.quantity.meaning, _MEANING, placeholder=" ...")
    return plain("\n".join(filter(None, [f"{words_of(each.input)}, {low} to {high}", meaning])))
