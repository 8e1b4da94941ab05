"""Tornado chart of an optimum's sensitivities: the effect of each assumption at the low and the high end of its range."""

import math
from collections.abc import Sequence

from hwopt.analysis.sensitivity.optimum import Parameter
from hwopt.output.answers.sensitivity import effect_words, parameter_words
from hwopt.output.html import components
from hwopt.output.html.markup import Child, Html, div, element, li, p, span

_ROWS = 12
_CUT = 1.0  # bars are cut at this relative change; their numbers are not
_SHOWN = 1e-4  # smaller relative changes are left out


def children(parameters: Sequence[Parameter], unknown: str, question: str) -> Child:
    """Return the tornado chart, with its legend.

    **Arguments:**

    - `parameters` and `unknown`: the result of `parameters_of`, the inputs and the reason where there are none.
    - `question`: name of the design question.
    """
    ranked = [each for each in parameters if each.range.stated and not each.input.is_asked and each.swing > _SHOWN]
    rows = ranked[:_ROWS]
    if not rows:
        reason = unknown or "no assumption with an uncertainty range changes the optimum"
        absent = f"Shadow prices of budgets are given above; sensitivities to assumptions are not known: {reason}."
        return p(absent)
    ends = [abs(end) for each in rows for end in each.effect if math.isfinite(end)]
    longest = min(_CUT, max(ends, default=_CUT)) or _CUT
    note = (
        "Assumptions by the effect of their uncertainty range: change of the optimum at the low and at the high end of the range, "
        "and its elasticity (% of the objective per % of the input); integers and plan fixed, the rest re-optimized. No design: "
        f"no hardware satisfies the budgets there with these integers; others may. All inputs: hwopt sensitivity {question}."
    )
    heads = ("assumption, value in its range", "effect on the optimum", "at low", "at high", "% per %")
    table = components.table("Sensitivities", heads, [_row(each, longest) for each in rows], "llrrr")
    keys = element(
        "ul",
        li(components.swatch("var(--within)"), "the optimum improves"),
        li(components.swatch("var(--part-dp_comm)"), "it worsens"),
        li(element("i", class_="swatch none", aria_hidden="true"), "no design with these integers"),
        class_="keys",
    )
    return [p(note, class_="note"), keys, table]


def _row(each: Parameter, longest: float) -> list[Child]:
    name, value, slope, low, high = parameter_words(each)
    swing = div((_bar(end, longest) for end in each.effect), class_="swing", aria_hidden="true")
    stated = components.named(name, f"{value} in {low} .. {high}, {each.range.kind}")
    return [stated, swing, *map(effect_words, each.effect), slope]


def _bar(end: float, longest: float) -> Html:
    """Return a bar from the center: better to the left, worse to the right, hatched where no design is feasible."""
    if not math.isfinite(end):
        return span(class_="none", style="left:50%;width:50%")
    width = 50.0 * min(abs(end) / longest, 1.0)
    left = 50.0 if end > 0 else 50.0 - width
    return span(class_="worse" if end > 0 else None, style=f"left:{left:.2f}%;width:{width:.2f}%")
