"""Imputation of unstated settings: the weighted median of predictions over alternative settings of a run.

`w = P(circumstances) P(plan | circumstances)`, with `P(plan | circumstances)` proportional to `usual exp(-over / s) t^(-1 /
T)`. `over` is log(memory / capacity) if positive, else 0; `t` is the step time; `s` and `T` are `TOLERANCE` and `TEMPERATURE`.
Practitioners tune the plan until it fits and is fast. They do not tune the circumstances (software and number format).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

TEMPERATURE = 0.1
"""Slowdown relative to the fastest plan, in log units, at which a plan is chosen 1/e as often.

Of 0.05 to 0.5, this value maximizes the likelihood of the true micro-batches and chunks when they are hidden (160 and 75 cells
of development-set sources in the shipped tables, November 2026; flat from 0.05 to 0.2).
"""

TOLERANCE = 0.05
"""Excess of memory over capacity, in log units, at which a plan is 1/e as likely. Found in the same way, flat from 0.02 to 0.1;
the model's memory has errors of this size."""

ERROR = 0.08
"""Standard deviation of measured from predicted values, in log units, for a run without unstated settings: the error of a cell
as in the fits."""

_HALVINGS = 40

_NEAR = 0.05
"""Distance from the median, in log units, that makes an alternative 1/e as suitable to represent the row."""


class WeightedAlternative(NamedTuple):
    """An alternative with the quantities that determine its weight."""

    circumstances: object
    likely: float  # probability of the circumstances
    usual: float  # prior weight of the plan in these circumstances
    step_s: float
    over: float  # log(memory / capacity)


class Imputation(NamedTuple):
    """Imputed value of a row."""

    value: float  # weighted median
    spread: float  # standard deviation about the median, in log units
    chosen: int  # index of a representative alternative: large weight, near the median


def weights(alternatives: Sequence[WeightedAlternative]) -> np.ndarray:
    """Return the weights of alternatives, which sum to 1.

    Plans that do not fit have almost no weight. If no plan fits, memory is given less influence: the run existed, so that the
    model must be wrong, by as much as the smallest plan exceeds the capacity.
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
    """Return median and spread of weighted positive values.

    Every value is blurred to a normal distribution in log units with the deviation `ERROR`. The median is therefore near the
    likelier alternative, and moves smoothly between two of them as their weights change.
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
