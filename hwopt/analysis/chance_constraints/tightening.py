"""By how much limits are tightened so that budgets hold together with a probability.

Each budget is given a room, `limit exp(-k_i s_i)`, that its use keeps with one probability, the same for all of them; s_i is the
deviation of the logarithm of its use to first order, and k_i what the distribution of its use over that makes of the probability:
k itself where the use is log-normal. One k for all, the least at which all budgets hold together: from their joint normal
distribution first, or from draws of the exact model where these are far from it.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

from hwopt.analysis.chance_constraints.sampling import FEASIBILITY_TOLERANCE, normal_draws
from hwopt.solver.options import SEARCH

_SAME = 1e-9
"""Difference of correlations that is rounding."""

_STREAM = 2


def single_budget_multiple(confidence: float) -> float:
    """The multiple at which one budget holds by itself: no smaller one holds several."""
    return NormalDist().inv_cdf(confidence)


def joint_multiple(
    loadings: Float[np.ndarray, "budget cause"], confidence: float, draws: int = SEARCH.confidence.joint_draws
) -> float:
    """The least multiple k with `P(loadings z <= k s, all rows) >= confidence`, z normal.

    Of rows that move together exactly that of one, and never more than Bonferroni's `1 - (1 - confidence) / rows`.
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
    """The least multiple at which draws of the exact model satisfy all budgets with a probability.

    **Arguments:** `rises` of the logarithm of what each budget uses, over its stated value; `slack` that budgets have whatever the
    multiple is, minus infinity for those that the tightened limit binds.

    **Returns:** infinity where no multiple does.
    """
    over = ~(rises <= np.maximum(slack, FEASIBILITY_TOLERANCE))  # not a number is over
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
    """On the limits: `exp(-k s)` where use is log-normal, with `rises` what draws of it keep with that probability."""
    if rises is None:
        return np.exp(-multiple * deviations)
    level = NormalDist().cdf(multiple)
    drawn = np.array([np.quantile(np.nan_to_num(row, nan=np.inf, posinf=np.inf), level) for row in rises.T])
    drawn = np.where(np.abs(drawn - multiple * deviations) > normal * deviations, drawn, multiple * deviations)
    return np.exp(-np.maximum(drawn, 0.0))
