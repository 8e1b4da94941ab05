"""What ties integers together: products within limits, one product that divides another, and what holds from a value on.

A relation is declared once. Bounds of one coordinate where the others are known or lie in ranges, validity of points, the
constraint that a relaxation keeps, and the steps in which a coordinate moves all follow from it. Columns are arrays of
floating numbers by coordinate, NumPy's or JAX's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_
from typing import Any

import jax.numpy as jnp
import numpy as np

from hwopt.types import numpy_or_jax

Columns = Mapping[str, Any]
"""Arrays of one shape, or numbers, by the name of a coordinate."""

SLIP = 1e-9
"""Relative rounding of bounds on products of integers in float64."""

_QUOTIENT_SLIP, _QUOTIENT_SLACK = 1e-6, 1e-3
"""How far a quotient of columns, single precision too, may be from the integer that it is."""

_INWARD = 8
"""Steps that an end of a divisor moves at a time: a server's chips."""

LARGEST = 10**15
"""Upper end of a coordinate that nothing limits."""


@dataclass(frozen=True)
class AllowedRange:
    """A limit that other coordinates set: `function` of columns, which must grow with each of `of`."""

    of: tuple[str, ...]
    function: Callable[[Columns], Any]

    def __call__(self, columns: Columns) -> Any:
        return self.function(columns)


Limit = float | AllowedRange
"""A number, or what other coordinates allow."""


def product(columns: Columns, names: Sequence[str]) -> Any:
    """The product of some columns; 1 of none."""
    return math.prod((columns[name] for name in names), start=1.0)


class Relation(ABC):
    """What some coordinates have to do with each other; abstract."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Coordinates that it ties."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Coordinates that must be known to say whether it holds."""
        return self.names

    @abstractmethod
    def bounds(self, name: str, low: Columns, high: Columns) -> tuple[Any, Any]:
        """Least and most of one coordinate where all others lie between `low` and `high`."""

    @abstractmethod
    def holds(self, columns: Columns, slip: float = SLIP, slack: float = 0.0) -> Any:
        """Where it holds.

        **Arguments:** `slip`: relative rounding of the columns; `slack`: how far a quotient may be from an integer besides
        (0: the columns are integers, exactly).
        """

    def monomials(self) -> tuple[ProductLimit, ...]:
        """What of it is a product within limits, wherever it is in force: what a convex relaxation keeps."""
        return ()


@dataclass(frozen=True)
class ProductLimit(Relation):
    """`low <= coefficient x prod(factors) / prod(over) <= high`.

    **Arguments:** `name` of the quantity that it is, where it is one; `follows`: the factor that a wanted value of that
    quantity decides, the others known.
    """

    factors: tuple[str, ...]
    over: tuple[str, ...] = ()
    low: Limit = 0.0
    high: Limit = math.inf
    coefficient: float = 1.0
    name: str = ""
    follows: str = ""

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (*self.factors, *self.over)

    @cached_property
    def needs(self) -> tuple[str, ...]:
        return (
            *self.names,
            *(name for end in (self.low, self.high) if isinstance(end, AllowedRange) for name in end.of),
        )

    @property
    def is_fixed(self) -> bool:
        """Whether it is a product of integers that is one number."""
        return not self.over and self.low == self.high and self.low != 0.0

    def value(self, columns: Columns, without: str = "") -> Any:
        """The product itself, or what one of its factors is multiplied by."""
        return self.range(columns, columns, without)[0]

    def range(self, low: Columns, high: Columns, without: str = "") -> tuple[Any, Any]:
        """Least and most of the product, or of what it is without one coordinate, between `low` and `high`."""
        factors, over = ([name for name in names if name != without] for names in (self.factors, self.over))
        return (
            self.coefficient * product(low, factors) / product(high, over),
            self.coefficient * product(high, factors) / product(low, over),
        )

    def ends(self, columns: Columns) -> tuple[Any, Any]:
        """Its limits."""
        low, high = (end(columns) if isinstance(end, AllowedRange) else end for end in (self.low, self.high))
        return low, high

    def bounds(self, name: str, low: Columns, high: Columns) -> tuple[Any, Any]:
        least, most = self.ends(low)[0], self.ends(high)[1]
        smallest, largest = self.range(low, high, name)
        from_below = isinstance(self.low, AllowedRange) or least > 0.0
        from_above = isinstance(self.high, AllowedRange) or most < math.inf
        if name in self.factors:
            return least / largest if from_below else 0.0, most / smallest if from_above else math.inf
        return smallest / most if from_above else 0.0, largest / least if from_below else math.inf

    def holds(self, columns: Columns, slip: float = SLIP, slack: float = 0.0) -> Any:
        value, (least, most) = self.value(columns), self.ends(columns)
        return (value >= least * (1.0 - slip) - slack) & (value <= most * (1.0 + slip) + slack)

    def impossible(self, low: Columns, high: Columns) -> Any:
        """Where no value between `low` and `high` holds it."""
        smallest, largest = self.range(low, high)
        return (largest < self.ends(low)[0] * (1.0 - SLIP)) | (smallest > self.ends(high)[1] * (1.0 + SLIP))

    def monomials(self) -> tuple[ProductLimit, ...]:
        return (self,)


def inward(least: Any, most: Any, step: Any = 1.0) -> tuple[Any, Any]:
    """The first and last multiple of a step between two ends that were computed in float64, over the step."""
    return np.ceil(least / step * (1.0 - SLIP)), np.floor(np.minimum(most, LARGEST) / step * (1.0 + SLIP))


def at_most(factors: Sequence[str], high: Limit, over: Sequence[str] = ()) -> ProductLimit:
    """A product, or a quotient of products, with an upper limit."""
    return ProductLimit(tuple(factors), tuple(over), high=high)


def at_least(factors: Sequence[str], low: Limit, over: Sequence[str] = ()) -> ProductLimit:
    """A product, or a quotient of products, with a lower limit."""
    return ProductLimit(tuple(factors), tuple(over), low=low)


def equal(factors: Sequence[str], over: Sequence[str]) -> ProductLimit:
    """Two products that are the same."""
    return ProductLimit(tuple(factors), tuple(over), low=1.0, high=1.0)


@dataclass(frozen=True)
class Divides(Relation):
    """`constant x prod(divisor)` divides `prod(dividend) x multiple`.

    **Arguments:** `shared`: whether another product has the same divisor, so that few values divide both: a box that knows all else
    has its ends at such.
    """

    divisor: tuple[str, ...]
    dividend: tuple[str, ...]
    constant: int = 1
    multiple: int = 1
    shared: bool = False

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (*self.divisor, *self.dividend)

    @cached_property
    def _bound(self) -> ProductLimit:
        """What divides is no larger."""
        return ProductLimit(self.divisor, self.dividend, high=1.0, coefficient=self.constant / self.multiple)

    def bounds(self, name: str, low: Columns, high: Columns) -> tuple[Any, Any]:
        return self._bound.bounds(name, low, high)

    def step(self, name: str, columns: Columns) -> Any:
        """What a factor of the dividend is a multiple of, all other coordinates known; NumPy columns alone."""
        divisor = self.constant * product(columns, self.divisor)
        others = self.multiple * product(columns, [each for each in self.dividend if each != name])
        if numpy_or_jax(divisor, others) is jnp:
            raise TypeError("steps of columns that are traced are looked up: completion.step_of")
        divisor, others = (np.asarray(each, float).astype(np.int64) for each in (divisor, others))
        return divisor // np.gcd(divisor, others)

    def inside(self, name: str, low: Columns, high: Columns) -> tuple[np.ndarray, np.ndarray]:
        """Ends of a factor of the divisor, a few steps inward where they do not divide and all else is known."""
        least, most = low[name].copy(), high[name].copy()
        known = reduce(
            and_, (low[each] == high[each] for each in self.names if each != name), np.ones(least.shape, bool)
        )
        others = self.constant * product(low, [each for each in self.divisor if each != name])
        dividend = self.multiple * product(low, self.dividend)
        for _ in range(_INWARD):
            least += known & (least < most) & (np.mod(dividend, others * least) != 0.0)
            most -= known & (least < most) & (np.mod(dividend, others * most) != 0.0)
        return least, most

    @property
    def plain(self) -> bool:
        """Whether the step is the divisor itself, whatever else there is."""
        return len(self.dividend) == 1 and self.multiple == 1

    def holds(self, columns: Columns, slip: float = SLIP, slack: float = 0.0) -> Any:
        divisor = self.constant * product(columns, self.divisor)
        dividend = self.multiple * product(columns, self.dividend)
        if slack == 0.0:
            return np.mod(dividend, divisor) == 0.0
        return near_integer(dividend / divisor, slip, slack)

    def monomials(self) -> tuple[ProductLimit, ...]:
        return (self._bound,)

    def impossible(self, low: Columns, high: Columns) -> Any:
        """Where no value between `low` and `high` holds it: what divides is larger, or all are known and it does not."""
        known = reduce(and_, (low[name] == high[name] for name in self.names), True)
        return self._bound.impossible(low, high) | (known & ~self.holds(low, _QUOTIENT_SLIP, _QUOTIENT_SLACK))


def near_integer(value: Any, slip: float, slack: float) -> Any:
    """Where columns are integers of at least 1, up to rounding."""
    near = numpy_or_jax(value).round(value)
    return (abs(value - near) <= slack + slip * value) & (near >= 1.0)


@dataclass(frozen=True)
class Nested(Relation):
    """Of two products, one divides the other: a rack holds whole domains, or a domain whole racks.

    The lesser of two that differ is at most half the other.
    """

    one: tuple[str, ...]
    other: tuple[str, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (*self.one, *self.other)

    def bounds(self, name: str, low: Columns, high: Columns) -> tuple[Any, Any]:
        """The first and last value between a coordinate's ends at which it holds, where all others are known; else what follows
        where its product lies below the other, or above.
        """
        own, other = (self.one, self.other) if name in self.one else (self.other, self.one)
        least, most = self._apart(name, own, other, low, high)
        at_least, at_most = self._known(name, own, other, low, high)
        return np.maximum(least, at_least), np.minimum(most, at_most)

    @staticmethod
    def _apart(name: str, own: Sequence[str], other: Sequence[str], low: Columns, high: Columns) -> tuple[Any, Any]:
        """Half of the other product at most where it is greater anyway, twice that at least where it is less."""
        rest = [each for each in own if each != name]
        below = product(high, own) < product(low, other) * (1.0 - SLIP)
        above = product(low, own) > product(high, other) * (1.0 + SLIP)
        least = np.where(above, 2.0 * product(low, other) / product(high, rest), 0.0)
        most = np.where(below, 0.5 * product(high, other) / product(low, rest), math.inf)
        return least, most

    def _known(
        self, name: str, own: Sequence[str], other: Sequence[str], low: Columns, high: Columns
    ) -> tuple[Any, Any]:
        ends = [each for known in self.names for each in (low[known], high[known])]
        table = np.stack(np.broadcast_arrays(*ends), axis=-1).astype(float)
        known = table.reshape(-1, len(self.names), 2)
        at = self.names.index(name)
        sides = np.delete(known, at, axis=1)
        sure = (sides[:, :, 0] == sides[:, :, 1]).all(axis=1) & (known >= 1.0).all(axis=(1, 2))
        sure &= (known < LARGEST).all(axis=(1, 2))
        width = known[:, at, 1] - known[:, at, 0]
        rows = np.flatnonzero(sure & (width >= 0.0) & (width <= _WIDEST))
        least, most = np.zeros(len(known)), np.full(len(known), math.inf)
        cases, which = np.unique(known[rows].reshape(len(rows), 2 * len(self.names)), axis=0, return_inverse=True)
        cases = cases.reshape(-1, len(self.names), 2)
        parts = [self._fitting(name, own, other, cases[i : i + _TOGETHER]) for i in range(0, len(cases), _TOGETHER)]
        if parts:
            least[rows], most[rows] = (np.concatenate(ends)[which.ravel()] for ends in zip(*parts, strict=True))
        return least.reshape(table.shape[:-1]), most.reshape(table.shape[:-1])

    def _fitting(
        self, name: str, own: Sequence[str], other: Sequence[str], cases: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The first and last value of a coordinate that holds it in each case (case, coordinate, end), the others known; past each
        other where none does.
        """
        low, high = cases[:, self.names.index(name)].T
        count = (high - low).astype(int) + 1
        starts = np.cumsum(count) - count
        case = np.repeat(np.arange(len(cases)), count)  # of each value of all cases, one after the other
        values = low[case] + (np.arange(len(case)) - starts[case])
        columns = dict(zip(self.names, cases[case, :, 0].T, strict=True)) | {name: values}
        fit = _nested(product(columns, own), product(columns, other))
        first = np.minimum.reduceat(np.where(fit, values, LARGEST), starts)
        return first, np.maximum.reduceat(np.where(fit, values, 0.0), starts)

    def holds(self, columns: Columns, slip: float = SLIP, slack: float = 0.0) -> Any:
        one, other = product(columns, self.one), product(columns, self.other)
        if slack == 0.0:
            return _nested(one, other)
        return near_integer(one / other, slip, slack) | near_integer(other / one, slip, slack)


_WIDEST = 4096
"""Values of a coordinate among which `Nested` looks for those that hold it."""

_TOGETHER = 256
"""Cases in which it looks at a time: a million values at most, some 40 MB. A guard."""


def _nested(one: Any, other: Any) -> Any:
    return (np.mod(one, other) == 0) | (np.mod(other, one) == 0)


@dataclass(frozen=True)
class ConditionalRelation(Relation):
    """A product's limits, or what divides what, in force where a coordinate is `least` or more."""

    name: str
    least: int
    then: ProductLimit | Divides

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.then.names)

    @cached_property
    def needs(self) -> tuple[str, ...]:
        return (self.name, *self.then.needs)

    def in_force(self, columns: Columns) -> Any:
        """Where it is, for sure of ranges where `columns` are their lower ends."""
        return columns[self.name] >= self.least * (1.0 - SLIP)

    def bounds(self, name: str, low: Columns, high: Columns) -> tuple[Any, Any]:
        if name == self.name:
            never = self.then.impossible(low, high)
            return 0.0, numpy_or_jax(never).where(never, self.least - 1.0, math.inf)
        forced = self.in_force(low)
        least, most = self.then.bounds(name, low, high)
        where = numpy_or_jax(forced, least, most).where
        return where(forced, least, 0.0), where(forced, most, math.inf)

    def holds(self, columns: Columns, slip: float = SLIP, slack: float = 0.0) -> Any:
        return (columns[self.name] < self.least - max(slack, 0.5)) | self.then.holds(columns, slip, slack)


@dataclass(frozen=True)
class DerivedColumns:
    """Numbers that follow from coordinates: `names` are what `function` makes of the columns `of`, elementwise."""

    names: tuple[str, ...]
    of: tuple[str, ...]
    function: Callable[..., tuple[Any, ...]]

    def values(self, columns: Columns) -> dict[str, Any]:
        """The numbers by name."""
        return dict(zip(self.names, self.function(*(columns[name] for name in self.of)), strict=True))
