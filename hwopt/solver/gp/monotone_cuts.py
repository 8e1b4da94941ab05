"""What a limit on a function that is known by its range alone leaves of products of its arguments, as rows of a programme.

A function f of a box is nowhere below a floor g, which rises in two products x and y of f's arguments. Where `f <= L`, so is g at
the best that the box allows of all else, and no point lies beyond the curve on which g is L. That curve falls, whatever its form:
between two values of y, `y_k` and `y_(k+1)`, x is at most where the curve is at `y_k`. So

    x^a y^b <= max over k of x(y_k)^a y_(k+1)^b

for all a and b from 0 on: monomials, of which a programme takes a few. What is used of g is that it rises, not that it is convex.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from hwopt.solver.gp.signomial import ONE, Algebra, Signomial, number
from hwopt.solver.gp.tape import applied
from hwopt.trace.monotone_primitives import LowerEnvelope, MonotonePrimitive

DIRECTIONS = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
"""a and b of the rows."""

_CELLS, _HALVINGS = 4, 12
"""Between values of y, and of the interval in which a value is looked for."""

_LEAST, _ENDLESS = 1e-30, 1e30
"""Ends of a product that has none."""

_SLIP = 1e-9
"""Relative rounding that a row leaves."""


def cut_rows(algebra: Algebra, e: Signomial, name: str) -> dict[str, Signomial]:
    """What `e <= 1` leaves of products that floors rise in: constraints (not above 1) by label. **Arguments:** its `name`."""
    found: dict[str, Signomial] = {}
    for key, c in e.terms.items():
        floor = algebra.floors.get(key[0][0]) if len(key) == 1 and key[0][1] == 1.0 else None
        if floor is None or not (c > 0).all():
            continue
        rest = Signomial({other: value for other, value in e.terms.items() if other != key})
        found |= _rows(algebra, *floor, (1.0 - algebra.range(rest)[0]) / c, name)
    return found


def cut_labels(name: str) -> list[str]:
    """Of the rows that follow from the limit of that name."""
    return [f"{name}: {a:g} {b:g}" for a, b in DIRECTIONS]


def _rows(
    algebra: Algebra, floor: LowerEnvelope, arguments: tuple[Signomial, ...], limit: Any, name: str
) -> dict[str, Signomial]:
    products = [_product(algebra, powers, arguments) for powers in floor.products]
    lows, highs = zip(*map(algebra.range, products), strict=True)
    ends = (*(np.maximum(low, _LEAST) for low in lows), *(np.minimum(high, _ENDLESS) for high in highs))
    found = {}
    for own, (a, b) in zip(cut_labels(name), DIRECTIONS, strict=True):
        most = applied(_most(floor.function, a, b), limit, *ends)
        left = algebra.times(algebra.power(products[0], a), algebra.power(products[1], b))
        if left.constant is None:
            found[own] = algebra.times(left, number(1.0 / most))
    return found


def _product(algebra: Algebra, powers: Mapping[int, float], arguments: tuple[Signomial, ...]) -> Signomial:
    result = ONE
    for place, power in powers.items():
        result = algebra.times(result, algebra.power(arguments[place], power))
    return result


class _Curve:
    """Where a function of products passes a limit, in boxes of these."""

    def __init__(self, function: MonotonePrimitive):
        self.function = function
        self._known: tuple[tuple[np.ndarray, ...], tuple[np.ndarray, np.ndarray]] | None = None

    def of(self, *inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ends of cells of y, and the most that x is in each (cell, *shape), logarithms.

        **Arguments:** the limit, lower ends of all products, then upper ones.
        """
        if self._known is None or not all(map(np.array_equal, self._known[0], inputs)):
            self._known = inputs, self._found(*inputs)
        return self._known[1]

    def _found(self, limit: np.ndarray, *ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        count = len(ends) // 2
        shape = np.broadcast_shapes(limit.shape, *(each.shape for each in ends))
        ends = tuple(np.broadcast_to(each, shape) for each in ends)
        below, above = ends[2:count], ends[count + 2 :]
        (x_least, y_least), (x_most, y_most) = np.log(ends[:2]), np.log(ends[count : count + 2])

        def within(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            x, y = np.exp(x), np.exp(y)
            return self.function.least(x, y, *below, x, y, *above) <= limit

        y_most = _last(lambda y: within(x_least, y), y_least, y_most)
        cells = np.linspace(y_least, y_most, _CELLS + 1)
        x_most = _last(lambda x: within(x, cells[:-1]), *np.broadcast_arrays(x_least, x_most, cells[:-1])[:2])
        return cells[1:], x_most


def _last(within: Any, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """No less than the last place between two up to which something holds; `low` where it holds nowhere."""
    inside, outside = low, np.where(within(high), np.inf, high)
    for _ in range(_HALVINGS):
        middle = 0.5 * (inside + np.minimum(outside, high))
        holds = within(middle)
        inside, outside = np.where(holds, middle, inside), np.where(holds, outside, middle)
    return np.minimum(outside, high)


@lru_cache(maxsize=64)
def _curve(function: MonotonePrimitive) -> _Curve:
    return _Curve(function)


class _UpperEnvelope:
    """The largest `x^a y^b` of a curve's cells."""

    def __init__(self, curve: _Curve, a: float, b: float):
        self.curve, self.a, self.b = curve, a, b

    def __call__(self, *inputs: Any) -> np.ndarray:
        y, x = self.curve.of(*map(np.asarray, inputs))
        return np.exp((self.a * x + self.b * y).max(axis=0) + _SLIP)


@lru_cache(maxsize=64)
def _most(function: MonotonePrimitive, a: float, b: float) -> _UpperEnvelope:
    """The same object at every call, as recordings want it."""
    return _UpperEnvelope(_curve(function), a, b)
