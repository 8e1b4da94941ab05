"""Relations between integer coordinates: limits on products, divisibility of products, and conditional relations.

A relation is declared once. Search and proof derive from it the bounds of one coordinate given the others, the validity
of points, the constraint that a relaxation keeps, and the step of a coordinate. Columns are arrays of floating numbers by
coordinate, NumPy or JAX.
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
"""Arrays of one shape, or numbers, by name of the coordinate."""

SLIP = 1e-9
"""Relative rounding tolerance of bounds on products of integers in float64."""

_QUOTIENT_SLIP, _QUOTIENT_SLACK = 1e-6, 1e-3
"""Relative and absolute tolerance within which a quotient of columns is an integer, also in single precision."""

_INWARD = 8
"""Maximum number of unit steps by which one propagation round moves an end of a divisor, chosen as the chips of one server."""

LARGEST = 10**15
"""Upper end of a coordinate without a limit."""


@dataclass(frozen=True)
class AllowedRange:
    """Limit that depends on other coordinates: `function` of columns, which must increase with each of `of`."""

    of: tuple[str, ...]
    function: Callable[[Columns], Any]

    def __call__(self, columns: Columns) -> Any:
        return self.function(columns)


Limit = float | AllowedRange
"""A number, or a function of other coordinates."""


def product(columns: Columns, names: Sequence[str]) -> Any:
    """Return the product of some columns; 1 for no columns."""
    return math.prod((columns[name] for name in names), start=1.0)


class Relation(ABC):
    """Abstract relation between coordinates."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Coordinates that the relation bounds."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Coordinates that must be known to decide whether the relation is satisfied."""
        return self.names

    @abstractmethod
    def bounds(self, name: str, low: Columns, high: Columns) -> tuple[Any, Any]:
        """Return the smallest and largest value of one coordinate if all others are between `low` and `high`."""

    @abstractmethod
    def holds(self, columns: Columns, slip: float = SLIP, slack: float = 0.0) -> Any:
        """Return where the relation is satisfied.

        **Arguments:**

        - `columns`: values of the coordinates.
        - `slip`: relative rounding tolerance of the columns.
        - `slack`: additional absolute tolerance for a quotient to be an integer; 0 if the columns are exact integers.
        """

    def monomials(self) -> tuple[ProductLimit, ...]:
        """Return the product limits that the relation implies wherever it applies; a convex relaxation keeps only these."""
        return ()


@dataclass(frozen=True)
class ProductLimit(Relation):
    """Limits on a product: `low <= coefficient x prod(factors) / prod(over) <= high`.

    **Arguments:**

    - `factors`, `over`: coordinates in the numerator and in the denominator.
    - `low`, `high`: limits.
    - `coefficient`: constant factor.
    - `name`: name of the quantity that the product represents, if any.
    - `follows`: the factor that is computed from a wanted value of this quantity, once the others are known.
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
        """Whether the product is a product of integers that is fixed to one number."""
        return not self.over and self.low == self.high and self.low != 0.0

    def value(self, columns: Columns, without: str = "") -> Any:
        """Return the product, or the product without one of its coordinates."""
        return self.range(columns, columns, without)[0]

    def range(self, low: Columns, high: Columns, without: str = "") -> tuple[Any, Any]:
        """Return minimum and maximum of the product between `low` and `high`, optionally without one coordinate."""
        factors, over = ([name for name in names if name != without] for names in (self.factors, self.over))
        return (
            self.coefficient * product(low, factors) / product(high, over),
            self.coefficient * product(high, factors) / product(low, over),
        )

    def ends(self, columns: Columns) -> tuple[Any, Any]:
        """Return the lower and upper limit."""
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
        """Return where no values between `low` and `high` satisfy the limits."""
        smallest, largest = self.range(low, high)
        return (largest < self.ends(low)[0] * (1.0 - SLIP)) | (smallest > self.ends(high)[1] * (1.0 + SLIP))

    def monomials(self) -> tuple[ProductLimit, ...]:
        return (self,)


def inward(least: Any, most: Any, step: Any = 1.0) -> tuple[Any, Any]:
    """Return the first and last integer multiple of a step between two ends, divided by the step, with tolerance for
    rounding.
    """
    return np.ceil(least / step * (1.0 - SLIP)), np.floor(np.minimum(most, LARGEST) / step * (1.0 + SLIP))


def at_most(factors: Sequence[str], high: Limit, over: Sequence[str] = ()) -> ProductLimit:
    """Return an upper limit on a product, or on a quotient of products."""
    return ProductLimit(tuple(factors), tuple(over), high=high)


def at_least(factors: Sequence[str], low: Limit, over: Sequence[str] = ()) -> ProductLimit:
    """Return a lower limit on a product, or on a quotient of products."""
    return ProductLimit(tuple(factors), tuple(over), low=low)


def equal(factors: Sequence[str], over: Sequence[str]) -> ProductLimit:
    """Return the relation that two products are equal."""
    return ProductLimit(tuple(factors), tuple(over), low=1.0, high=1.0)


@dataclass(frozen=True)
class Divides(Relation):
    """Divisibility: `constant x prod(divisor)` divides `prod(dividend) x multiple`.

    **Arguments:**

    - `divisor`, `dividend`: coordinates.
    - `constant`, `multiple`: constant factors.
    - `shared`: whether the divisor also divides another product, so that few values satisfy both. Propagation then moves
      the ends of a divisor to such values, once all other coordinates are known.
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
        """Implied limit: a divisor is no larger than its dividend."""
        return ProductLimit(self.divisor, self.dividend, high=1.0, coefficient=self.constant / self.multiple)

    def bounds(self, name: str, low: Columns, high: Columns) -> tuple[Any, Any]:
        return self._bound.bounds(name, low, high)

    def step(self, name: str, columns: Columns) -> Any:
        """Return the step of which a factor of the dividend is a multiple, given all other coordinates. NumPy columns only."""
        divisor = self.constant * product(columns, self.divisor)
        others = self.multiple * product(columns, [each for each in self.dividend if each != name])
        if numpy_or_jax(divisor, others) is jnp:
            raise TypeError("steps of columns that are traced are looked up: completion.step_of")
        divisor, others = (np.asarray(each, float).astype(np.int64) for each in (divisor, others))
        return divisor // np.gcd(divisor, others)

    def inside(self, name: str, low: Columns, high: Columns) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of a factor of the divisor, moved inward by a few steps where they do not divide and all else
        is known.
        """
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
        """Whether the step is the divisor itself, independent of other coordinates."""
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
        """Return where no values between `low` and `high` satisfy the relation.

        This is so if the divisor is too large, or if all coordinates are known and it does not divide.
        """
        known = reduce(and_, (low[name] == high[name] for name in self.names), True)
        return self._bound.impossible(low, high) | (known & ~self.holds(low, _QUOTIENT_SLIP, _QUOTIENT_SLACK))


def near_integer(value: Any, slip: float, slack: float) -> Any:
    """Return where columns are integers of at least 1, up to rounding."""
    near = numpy_or_jax(value).round(value)
    return (abs(value - near) <= slack + slip * value) & (near >= 1.0)


@dataclass(frozen=True)
class Nested(Relation):
    """Nesting of two products: one divides the other. A rack contains whole scale-up domains, or a domain whole racks.

    If the two differ, the smaller is at most half the larger.
    """

    one: tuple[str, ...]
    other: tuple[str, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (*self.one, *self.other)

    def bounds(self, name: str, low: Columns, high: Columns) -> tuple[Any, Any]:
        """Return the range of one coordinate.

        If all others are known, its ends are the first and last value that satisfy the relation. Otherwise they follow
        from whether its product is certainly smaller or certainly larger than the other.
        """
        own, other = (self.one, self.other) if name in self.one else (self.other, self.one)
        least, most = self._apart(name, own, other, low, high)
        at_least, at_most = self._known(name, own, other, low, high)
        return np.maximum(least, at_least), np.minimum(most, at_most)

    @staticmethod
    def _apart(name: str, own: Sequence[str], other: Sequence[str], low: Columns, high: Columns) -> tuple[Any, Any]:
        """Return bounds that follow from a ratio of at least 2.

        If the coordinate's product is certainly smaller than the other, it is at most half of it; if certainly larger, at
        least twice.
        """
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
        """Return the first and last valid value of a coordinate in each case (case, coordinate, end), given all other
        coordinates.

        The two cross if no value is valid.
        """
        low, high = cases[:, self.names.index(name)].T
        count = (high - low).astype(int) + 1
        starts = np.cumsum(count) - count
        case = np.repeat(np.arange(len(cases)), count)  # case index of each value of all cases, concatenated
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
"""Maximum number of values of a coordinate that `Nested` tests one by one."""

_TOGETHER = 256
"""Number of cases that `Nested` tests at once: at most a million values, some 40 MB. A safeguard on memory."""


def _nested(one: Any, other: Any) -> Any:
    return (np.mod(one, other) == 0) | (np.mod(other, one) == 0)


@dataclass(frozen=True)
class ConditionalRelation(Relation):
    """Product limit or divisibility that applies only where a coordinate is at least `least`."""

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
        """Return where the condition is met; for ranges, pass the lower ends: the relation then certainly applies."""
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
    """Look-up: `names` are the results of `function`, applied elementwise to the columns `of`."""

    names: tuple[str, ...]
    of: tuple[str, ...]
    function: Callable[..., tuple[Any, ...]]

    def values(self, columns: Columns) -> dict[str, Any]:
        """Return the results by name."""
        return dict(zip(self.names, self.function(*(columns[name] for name in self.of)), strict=True))
