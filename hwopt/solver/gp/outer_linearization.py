"""Outer linearization, in log space, of log-log-convex functions that are not posynomials: maxima of supporting monomials.

A supporting line of slope b touches a convex f where `f' = b`, and is below f elsewhere. Slopes are the same for all
search-tree nodes, because exponents of a program are shared; heights differ between nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from hwopt.solver.gp.signomial import ONE, Algebra, AtomKind, Signomial, number
from hwopt.solver.gp.tape import Remembered, applied, guessed
from hwopt.trace.monotone_primitives import MonotonePrimitive
from hwopt.trace.yield_primitive import on_numbers

_STEEPEST = 0.98
"""Slope of the steepest supporting line, as a fraction of the clustering parameter, which is the largest possible slope."""

_ENDLESS = 1e30
"""Finite upper end of an argument whose range has none."""

_HALVINGS = 60
"""Number of bisection steps that locate the point where a line touches."""

_WIDEST = (-40.0, 40.0)
"""Range of log rho that is searched for the point where a line touches."""


def dies_made(
    algebra: Algebra, fixed: Signomial, open_to_repair: Signomial, spares: Signomial, clustering: float
) -> Signomial:
    """Bound the dies per good die (`hwopt.trace.yield_primitive`) from below by a maximum of monomials.

    The bound is `max over b of A_b u^(alpha - b) (H / alpha)^b`, with `u = 1 + F / alpha`. The exact function is

        (1 + F / alpha)^alpha phi(rho),   rho = H / (alpha + F),

    where `log phi` is convex in `log rho` with slopes from 0 to alpha. Between lines of slopes b and b' the bound is low
    by about `(b' - b)^2 / (8 b)`. This is because the curvature of `log phi` is about equal to its slope. Slopes that
    grow quadratically therefore give the same error everywhere.

    **Arguments:**

    - `algebra`: the algebra of all expressions.
    - `fixed`, `open_to_repair`: expected defects F in the area where any defect kills the die, and H in the repairable
      area.
    - `spares`: S, number of repairable units that may be lost.
    - `clustering`: alpha of the negative binomial law.
    """
    relative = lambda defects: algebra.over(defects, number(clustering))
    known = algebra.lifted(algebra.plus(ONE, relative(fixed)))
    if open_to_repair.constant is not None and not open_to_repair.constant.any():
        return algebra.power(known, clustering)
    ratio = algebra.lifted(relative(open_to_repair))
    (least_f, most_f), (least_h, most_h), (fewest, most) = map(algebra.range, (fixed, open_to_repair, spares))
    fewest, most = np.maximum(fewest, 0.0), np.maximum(most, 0.0)
    low, high = on_numbers(least_f, least_h, most, clustering), on_numbers(most_f, most_h, fewest, clustering)
    steepest = clustering * float(np.max(guessed(most_h / (clustering + least_f + most_h))))
    parts = [algebra.power(known, clustering)]
    error = algebra.options.coarse_yield if algebra.narrow else algebra.options.fine_yield
    for height, slope in _lines(min(steepest, _STEEPEST * clustering), error):
        line = algebra.times(algebra.power(known, clustering - slope), algebra.power(ratio, slope))
        parts.append(algebra.times(number(applied(height, most, clustering)), line))
    return algebra.atom(AtomKind.maximum, parts, low, high)


def monotone(algebra: Algebra, of: MonotonePrimitive, arguments: Sequence[Signomial]) -> Signomial:
    """Represent a monotone function in a signomial program by its range alone: its values at two corners of the
    arguments' ranges.
    """
    known = [each.constant for each in arguments]
    if all(each is not None for each in known):
        return number(applied(of.on_numbers, *known))
    lows, highs = zip(*map(algebra.range, arguments), strict=True)
    ends = (*(np.maximum(low, 0.0) for low in lows), *(np.minimum(high, _ENDLESS) for high in highs))
    low, high = applied(of.least, *ends), applied(of.most, *ends)
    result = algebra.hull(np.maximum(low, 0.0), high, arguments)
    if of.floor is not None:
        algebra.floors[len(algebra.atoms) - 1] = of.floor, tuple(arguments)
    return result


def _table(slopes: tuple[float, ...], spares: np.ndarray, clustering: np.ndarray) -> np.ndarray:
    """Return the heights (line, node) of supporting lines with given slopes, for arrays of spares and clustering (node,)."""
    pairs, where = np.unique(np.stack([spares, clustering]), axis=1, return_inverse=True)
    return np.stack([_heights(float(s), float(a), slopes) for s, a in pairs.T], axis=1)[:, where.ravel()]


def _height(heights: Remembered, place: int, spares: Any, clustering: Any) -> np.ndarray:
    """Return the height of one supporting line, for arrays of any shape."""
    spares, clustering = np.broadcast_arrays(np.asarray(spares, float), np.asarray(clustering, float))
    return heights(spares.ravel(), clustering.ravel())[place].reshape(spares.shape)


@lru_cache(maxsize=64)
def _lines(steepest: float, within: float) -> tuple[tuple[Callable[..., np.ndarray], float], ...]:
    """Return heights and slopes of lines whose maximum is below the function by at most `within`, relative.

    Heights are functions of spares and clustering. They share the table of all lines, as each requests the same arrays in turn.
    """
    count = max(2, math.ceil(math.sqrt(steepest / (2.0 * within))))
    slopes = tuple(steepest * (i / count) ** 2 for i in range(1, count + 1))
    heights = Remembered(partial(_table, slopes))
    return tuple((partial(_height, heights, place), slope) for place, slope in enumerate(slopes))


@lru_cache(maxsize=4096)
def _heights(spares: float, clustering: float, slopes: tuple[float, ...]) -> np.ndarray:
    """Return the height `min over rho of phi rho^-b` of the supporting line of each slope b.

    The line touches where the increasing slope of `log phi` is b.
    """
    from scipy.special import betainc, betaincc, betaln

    wanted = np.asarray(slopes)
    low, high = np.full(len(wanted), _WIDEST[0]), np.full(len(wanted), _WIDEST[1])

    def parts(log_rho: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rho = np.exp(log_rho)
        x, dead = 1.0 / (1.0 + rho), rho / (1.0 + rho)
        held = betainc(clustering, spares + 1.0, x)
        value = np.where(held > 0.5, -np.log1p(-betaincc(clustering, spares + 1.0, x)), -np.log(held))
        logs = clustering * np.log(x) + (spares + 1.0) * np.log(dead) - betaln(clustering, spares + 1.0)
        return value, np.exp(logs) / held

    with np.errstate(all="ignore"):
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            below = parts(middle)[1] < wanted
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        value, _ = parts(low)
    return np.exp(value - wanted * low)
