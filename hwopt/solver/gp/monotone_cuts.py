"""Cuts: monomial inequalities implied by an upper limit on a monotone function that the program knows only by its range.

A function f has a lower envelope g, which increases in two products x and y of f's arguments. Where `f <= L`, also `g <=
L`, with all other arguments of g at their most favorable ends. No feasible point is beyond the curve g = L. The curve
falls, whatever its form: between two values of y, `y_k` and `y_(k+1)`, x is at most its value on the curve at `y_k`. So

    x^a y^b <= max over k of x(y_k)^a y_(k+1)^b

for all a and b that are not negative. These are monomials, of which a program gets a few. Only the monotonicity of g is
used, not its convexity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

from hwopt.solver.gp.signomial import ONE, Algebra, Signomial, number
from hwopt.solver.gp.tape import Remembered, applied
from hwopt.trace.monotone_primitives import LowerEnvelope, MonotonePrimitive

DIRECTIONS = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
"""Exponents (a, b) of the cuts."""

_CELLS, _HALVINGS = 4, 12
"""Number of intervals of y, and number of bisection steps."""

_LEAST, _ENDLESS = 1e-30, 1e30
"""Finite ends of the range of a product that has none."""

_SLIP = 1e-9
"""Slack of a cut for rounding, log units."""


def cut_rows(algebra: Algebra, e: Signomial, name: str) -> dict[str, Signomial]:
    """Return the cuts that `e <= 1` implies, for terms of e that have a lower envelope.

    **Arguments:** `name`: of the limit, as a prefix of the labels.

    **Returns:** expressions that must not exceed 1, by label.
    """
    found: dict[str, Signomial] = {}
    for key, c in e.terms.items():
        floor = algebra.floors.get(key[0][0]) if len(key) == 1 and key[0][1] == 1.0 else None
        if floor is None or not (c > 0).all():
            continue
        rest = Signomial({other: value for other, value in e.terms.items() if other != key})
        found |= _rows(algebra, *floor, (1.0 - algebra.range(rest)[0]) / c, name)
    return found


def cut_labels(name: str) -> list[str]:
    """Return the labels of the cuts that follow from the limit `name`."""
    return [f"{name}: {a:g} {b:g}" for a, b in DIRECTIONS]


def _rows(
    algebra: Algebra, floor: LowerEnvelope, arguments: tuple[Signomial, ...], limit: Any, name: str
) -> dict[str, Signomial]:
    products = [_product(algebra, powers, arguments) for powers in floor.products]
    lows, highs = zip(*map(algebra.range, products), strict=True)
    ends = (*(np.maximum(low, _LEAST) for low in lows), *(np.minimum(high, _ENDLESS) for high in highs))
    found = {}
    for own, (a, b), envelope in zip(cut_labels(name), DIRECTIONS, _envelopes(floor.function), strict=True):
        most = applied(envelope, limit, *ends)
        left = algebra.times(algebra.power(products[0], a), algebra.power(products[1], b))
        if left.constant is None:
            found[own] = algebra.times(left, number(1.0 / most))
    return found


def _product(algebra: Algebra, powers: Mapping[int, float], arguments: tuple[Signomial, ...]) -> Signomial:
    result = ONE
    for place, power in powers.items():
        result = algebra.times(result, algebra.power(arguments[place], power))
    return result


def _level_curve(function: MonotonePrimitive, limit: np.ndarray, *ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs (x, y) at which a function of products reaches a limit, for given ranges of the products.

    **Arguments:** `ends`: lower ends of all products, then upper ends.

    **Returns:** the upper ends of the intervals of y and the largest x in each, (cell, *shape), as logarithms.
    """
    count = len(ends) // 2
    shape = np.broadcast_shapes(limit.shape, *(each.shape for each in ends))
    ends = tuple(np.broadcast_to(each, shape) for each in ends)
    below, above = ends[2:count], ends[count + 2 :]
    (x_least, y_least), (x_most, y_most) = np.log(ends[:2]), np.log(ends[count : count + 2])

    def within(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x, y = np.exp(x), np.exp(y)
        return function.least(x, y, *below, x, y, *above) <= limit

    y_most = _last(lambda y: within(x_least, y), y_least, y_most)
    cells = np.linspace(y_least, y_most, _CELLS + 1)
    x_most = _last(lambda x: within(x, cells[:-1]), *np.broadcast_arrays(x_least, x_most, cells[:-1])[:2])
    return cells[1:], x_most


def _last(within: Any, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return an upper bound of the last position between `low` and `high` up to which a condition is true, by bisection.

    If it is true nowhere, the result is close to `low`.
    """
    inside, outside = low, np.where(within(high), np.inf, high)
    for _ in range(_HALVINGS):
        middle = 0.5 * (inside + np.minimum(outside, high))
        holds = within(middle)
        inside, outside = np.where(holds, middle, inside), np.where(holds, outside, middle)
    return np.minimum(outside, high)


def _envelope(curve: Remembered, a: float, b: float, *inputs: Any) -> np.ndarray:
    """Return an upper bound of `x^a y^b` over the cells of a level curve."""
    y, x = curve(*map(np.asarray, inputs))
    return np.exp((a * x + b * y).max(axis=0) + _SLIP)


@lru_cache(maxsize=64)
def _envelopes(function: MonotonePrimitive) -> list[Callable[..., np.ndarray]]:
    """Return the upper bound of `x^a y^b` for each of `DIRECTIONS`, the same objects at every call: traces compare functions
    by identity.
    """
    curve = Remembered(partial(_level_curve, function))
    return [partial(_envelope, curve, a, b) for a, b in DIRECTIONS]
