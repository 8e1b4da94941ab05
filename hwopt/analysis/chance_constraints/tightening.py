"""Tightening of limits such that all budgets hold jointly with a given probability.

Budget i gets the tightened limit `limit exp(-k_i s_i)`. Its use is the value of the metric that it limits. Here s_i is the
first-order standard deviation of the log of that use. The multiple k_i follows from the distribution of the use. For a
log-normal use it is k itself.

Each budget alone stays within its original limit with one probability, which is the same for all budgets. The common k is the
least one at which all budgets hold jointly. It first comes from their joint normal distribution. Draws of the exact model
replace this where they differ much from it.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

from hwopt.analysis.chance_constraints.sampling import FEASIBILITY_TOLERANCE, normal_draws
from hwopt.solver.options import SEARCH

_SAME = 1e-9
"""Difference of correlations that is attributed to rounding."""

_STREAM = 2


def single_budget_multiple(confidence: float) -> float:
    """Return the multiple k at which one budget alone holds with the given probability.

    Several budgets need at least as much.
    """
    return NormalDist().inv_cdf(confidence)


def joint_multiple(
    loadings: Float[np.ndarray, "budget cause"], confidence: float, draws: int = SEARCH.confidence.joint_draws
) -> float:
    """Return the least multiple k with `P(loadings z <= k s, all rows) >= confidence`, z normal.

    For perfectly correlated rows it is that of one row. It never exceeds the Bonferroni bound `1 - (1 - confidence) / rows`.

    **Arguments:**

    - `loadings`: first-order effect of each factor on each budget.
    - `confidence`: required joint probability.
    - `draws`: number of normal draws for the quantile.
    """
    deviations = np.sqrt((loadings**2).sum(axis=1))
    rows = loadings[deviations > 0.0] / deviations[deviations > 0.0, None]
    if not len(rows):
        return 0.0
    apart = [row for i, row in enumerate(rows) if all(abs(row @ other - 1.0) > _SAME for other in rows[:i])]
    if len(apart) == 1:
        return single_budget_multiple(confidence)
    drawn = normal_draws(0, _STREAM, draws, rows.shape[1]) @ np.array(apart).T
    safe = NormalDist().inv_cdf(1.0 - (1.0 - confidence) / len(apart))
    return min(float(np.quantile(drawn.max(axis=1), confidence, method="higher")), safe)


def sampled_multiple(
    rises: Float[np.ndarray, "draw budget"], slack: Float[np.ndarray, " budget"], confidence: float
) -> float:
    """Return the least multiple at which draws of the exact model satisfy all budgets with the given probability.

    **Arguments:**

    - `rises`: log use of each budget over its stated value, for each draw.
    - `slack`: log slack of the budgets that do not bind at any multiple; minus infinity for those bound by the tightened limit.
    - `confidence`: required joint probability.

    **Returns:** the multiple; infinity where none suffices.
    """
    over = ~(rises <= np.maximum(slack, FEASIBILITY_TOLERANCE))  # NaN counts as over the limit
    ranks = np.empty(rises.shape)
    places = np.arange(1, len(rises) + 1) / (len(rises) + 1)
    for i in range(rises.shape[1]):
        ranks[np.argsort(rises[:, i], kind="stable"), i] = places
    level = np.where(over, np.where(np.isinf(slack), ranks, 1.0), 0.0).max(axis=1, initial=0.0)
    wanted = float(np.quantile(level, confidence, method="higher"))
    return max(0.0, NormalDist().inv_cdf(wanted)) if 0.0 < wanted < 1.0 else math.inf if wanted else 0.0


def limit_factors(
    multiple: float,
    deviations: Float[np.ndarray, " budget"],
    rises: Float[np.ndarray, "draw budget"] | None = None,
    normal: float = SEARCH.confidence.normal,
) -> Float[np.ndarray, " budget"]:
    """Return the factors on the limits: `exp(-k s)` for log-normal use.

    **Arguments:**

    - `multiple`: k.
    - `deviations`: s of each budget.
    - `rises`: draws of the log use over its stated value. Where their quantile at the probability of k differs from `k s` by
      more than `normal` times s, it replaces `k s`.
    - `normal`: tolerance of that comparison.
    """
    if rises is None:
        return np.exp(-multiple * deviations)
    level = NormalDist().cdf(multiple)
    drawn = np.array([np.quantile(np.nan_to_num(row, nan=np.inf, posinf=np.inf), level) for row in rises.T])
    drawn = np.where(np.abs(drawn - multiple * deviations) > normal * deviations, drawn, multiple * deviations)
    return np.exp(-np.maximum(drawn, 0.0))
