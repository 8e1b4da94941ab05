"""A prediction over alternatives: the median of their values, weighed by what people do, what fits and what is fast.

`w = P(circumstances) P(plan | circumstances)`, with `P(plan | circumstances)` in proportion to `usual exp(-over / s) t^(-1 / T)`:
`over` is the logarithm of memory over capacity where it is above zero, `t` the step time. Whoever trains tunes the plan until it
fits and is fast, but not the software and the number format, which the row's circumstances bring along.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

TEMPERATURE = 0.1
"""How much slower, in the logarithm, a plan is that is chosen 1/e as often as the fastest.

Of 0.05 to 0.5, that at which micro-batches and chunks that open sources state are likeliest when hidden (160 and 75 cells of
the shipped tables, November 2026; flat from 0.05 to 0.2).
"""

TOLERANCE = 0.05
"""By how much, in the logarithm, memory exceeds the chip's where a plan is 1/e as likely: found likewise, flat from 0.02 to
0.1; the model's memory errs as much."""

ERROR = 0.08
"""Deviation, in the logarithm, of what is measured from what is predicted of a run without open fields: the error of a cell,
as fits take it."""

_HALVINGS = 40

_NEAR = 0.05
"""Distance from the median, in the logarithm, that makes an alternative stand for the row 1/e as well."""


class WeightedAlternative(NamedTuple):
    """An alternative as it is weighed."""

    circumstances: object
    likely: float  # of the circumstances
    usual: float  # of the plan in these
    step_s: float
    over: float  # logarithm of memory over capacity


class Imputation(NamedTuple):
    """What stands for a row."""

    value: float  # weighted median
    spread: float  # standard deviation about the median, in the logarithm
    chosen: int  # alternative of much weight near the median


def weights(alternatives: Sequence[WeightedAlternative]) -> np.ndarray:
    """Weights of alternatives; they sum to 1.

    What does not fit has next to none. Where nothing fits, memory says little: the run was run, so that it is the model that
    errs, by as much as the smallest plan exceeds the chip.
    """
    usual, step_s, over = (np.array([each[i] for each in alternatives]) for i in (2, 3, 4))
    misfit = np.maximum(over, 0.0) / TOLERANCE
    misfit *= np.exp(-misfit.min())
    score = np.log(usual) - misfit - np.log(step_s) / TEMPERATURE
    groups: dict[object, list[int]] = {}
    for i, each in enumerate(alternatives):
        groups.setdefault(each.circumstances, []).append(i)
    result = np.zeros(len(alternatives))
    for members in groups.values():
        inside = np.exp(score[members] - score[members].max())
        fits = np.exp(-misfit[members].min())
        result[members] = alternatives[members[0]].likely * fits * inside / inside.sum()
    return result / result.sum()


def impute(values: np.ndarray, weight: np.ndarray) -> Imputation:
    """Median and spread of weighed values, all above zero.

    Every value stands for what would be measured, normal in the logarithm with the deviation `ERROR`; so the median is that of
    the likelier alternative, and moves between two smoothly as their weights change.
    """
    logs = np.log(values)
    low, high = float(logs.min()), float(logs.max())
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        below = float(np.sum(weight * ndtr((middle - logs) / ERROR)))
        low, high = (middle, high) if below < 0.5 else (low, middle)
    median = 0.5 * (low + high)
    spread = float(np.sqrt(np.sum(weight * (logs - median) ** 2)))
    with np.errstate(divide="ignore"):
        chosen = int(np.argmax(np.log(weight) - np.abs(logs - median) / _NEAR))
    return Imputation(float(np.exp(median)), spread, chosen)
