"""By how much limits are tightened so that budgets hold together with a probability.

Row i's logarithm of what is used is, to first order, normal with deviation s_i around the stated one, so that a limit times
`exp(-k s_i)` is held with the probability that a normal draw stays below k. One k for all rows, the least at which all of them
hold together: from their joint normal distribution first, then from draws of the exact model at the designs that come of it.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from jaxtyping import Float

from hwopt.study.confidence.draws import FEASIBILITY_TOLERANCE, normals

_SAME = 1e-9
"""Difference of correlations that is rounding."""

_DRAWS = 1 << 17
"""Of the joint normal distribution of rows that differ."""

_STREAM = 2


def alone(confidence: float) -> float:
    """The multiple at which one budget holds by itself: no smaller one holds several."""
    return NormalDist().inv_cdf(confidence)


def joint(loadings: Float[np.ndarray, "budget cause"], confidence: float) -> float:
    """The least multiple k with `P(loadings z <= k s, all rows) >= confidence`, z normal.

    Of rows that move together exactly that of one, and never more than Bonferroni's `1 - (1 - confidence) / rows`.
    """
    deviations = np.sqrt((loadings**2).sum(axis=1))
    rows = loadings[deviations > 0.0] / deviations[deviations > 0.0, None]
    if not len(rows):
        return 0.0
    apart = [row for i, row in enumerate(rows) if all(abs(row @ other - 1.0) > _SAME for other in rows[:i])]
    if len(apart) == 1:
        return alone(confidence)
    drawn = normals(0, _STREAM, _DRAWS, rows.shape[1]) @ np.array(apart).T
    safe = NormalDist().inv_cdf(1.0 - (1.0 - confidence) / len(apart))
    return min(float(np.quantile(drawn.max(axis=1), confidence, method="higher")), safe)


def needed(
    rises: Float[np.ndarray, "draw budget"],
    deviations: Float[np.ndarray, " budget"],
    slack: Float[np.ndarray, " budget"],
    confidence: float,
) -> float:
    """The least multiple at which draws of the exact model hold all budgets with a probability.

    **Arguments:** `rises` of the logarithm of what each budget uses, over its stated value; `slack` that rows have whatever the
    multiple is, minus infinity for those that the tightened limit binds.

    **Returns:** infinity where no multiple does.
    """
    over = ~(rises <= np.maximum(slack, FEASIBILITY_TOLERANCE))  # not a number is over
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(over, np.where((deviations > 0.0) & np.isinf(slack), rises / deviations, np.inf), 0.0)
    most = np.where(np.isnan(each), np.inf, each).max(axis=1, initial=0.0)
    return max(0.0, float(np.quantile(most, confidence, method="higher")))


def factors(multiple: float, deviations: Float[np.ndarray, " budget"]) -> Float[np.ndarray, " budget"]:
    """On the limits: `exp(-k s)`."""
    return np.exp(-multiple * deviations)
