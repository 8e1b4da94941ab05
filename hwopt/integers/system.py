"""Integer systems: coordinates with the relations that constrain them, bound propagation on boxes, and validity of points."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hwopt.integers.boxes import Boxes, joined_boxes
from hwopt.integers.relations import (
    LARGEST,
    SLIP,
    Columns,
    ConditionalRelation,
    DerivedColumns,
    Divides,
    ProductLimit,
    Relation,
    inward,
    product,
)

_PASSES = 4
"""Maximum number of propagation rounds; after three hardly any bound moves."""


class Role(enum.Enum):
    """Treatment of a coordinate by the branch-and-bound search."""

    root = "every value of it has boxes of its own from the start"
    kind = "values stand for kinds, without an order: boxes are split along it before all else"
    shape = "branched on"


@dataclass(frozen=True)
class Integer:
    """Integer coordinate of a system.

    **Arguments:**

    - `name`, `lower`, `upper`: name and range.
    - `among`: the only allowed values, ascending, within `lower` and `upper`; None allows all integers in the range.
    - `role`: treatment by the search.
    - `pseudo_cost`: expected gain of the bound per factor of e by which branching narrows the coordinate, before the
      search has observed any. For a `stepped` coordinate, the factor is that of its number of values.
    - `stepped`: whether bounds say little until the coordinate is a single point.
    - `fills`: whether rounding heuristics also try the largest allowed value.
    - `near`: number of values next to the wanted one that rounding heuristics try.
    - `rounding`: try only values above (1) or below (-1) the wanted one, or both (0).
    - `sloped`: whether relaxations keep its trade-off with other quantities, as they do for continuous variables, instead
      of only its range. Such a coordinate stays wide until the others are points.
    """

    name: str
    lower: int
    upper: int
    among: Sequence[int] | None = None
    role: Role = Role.shape
    pseudo_cost: float = 0.1
    stepped: bool = False
    fills: bool = False
    near: int = 1
    rounding: int = 0
    sloped: bool = False

    @property
    def ends(self) -> tuple[int, int]:
        """Smallest and largest value; in the wrong order if no value is allowed."""
        if self.values is None:
            return self.lower, self.upper
        return (self.values[0], self.values[-1]) if self.values else (self.lower, self.lower - 1)

    @cached_property
    def values(self) -> tuple[int, ...] | None:
        """Listed values within the limits; None if every integer in the range is allowed."""
        return None if self.among is None else tuple(x for x in self.among if self.lower <= x <= self.upper)


def integer(name: str, ends: tuple[float, float], **settings: Any) -> Integer:
    """Return a coordinate from a range that need not end at integers."""
    low, high = map(int, inward(*ends))
    return Integer(name, low, high, **settings)


@dataclass(frozen=True)
class RangePiece:
    """Continuous variable whose range is divided into segments, because a model has a different form in each.

    The integer coordinate that selects the segment, counted from 1, has the variable's name with the suffix `_piece`.
    """

    variable: str
    edges: tuple[float, ...]  # ascending: the ends of the range and the boundaries between segments

    @property
    def name(self) -> str:
        return f"{self.variable}_piece"

    def number(self, value: Any) -> Any:
        """Return the segment that contains a value, counted from 1."""
        return np.searchsorted(self.edges[1:-1], np.asarray(value), side="left") + 1.0


@dataclass(frozen=True)
class ModelKink:
    """Value of a coordinate, `coefficient x prod(factors) / prod(over)`, at which a model changes its form.

    In a box that contains both sides, bounds cannot distinguish a resource that is free on one side from one that is
    costly. Boxes are therefore split there first.
    """

    name: str
    factors: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    coefficient: float = 1.0
    below: bool = False  # whether the value itself belongs to the lower side

    def last(self, columns: Columns) -> Any:
        """Return the largest integer of the lower side."""
        value = self.coefficient * product(columns, self.factors) / product(columns, self.over)
        return np.floor(value * (1.0 + SLIP)) if self.below else np.ceil(value * (1.0 - SLIP)) - 1.0


@dataclass(frozen=True)
class System:
    """Integer coordinates and their relations: the single declaration of which points are valid.

    **Arguments:**

    - `coordinates`: in the order in which points are completed.
    - `relations`: conditions that valid points satisfy.
    - `lookups`: numbers derived from coordinates.
    - `pieces`: segmented continuous variables.
    - `kinks`: values at which boxes are split first.
    """

    coordinates: tuple[Integer, ...]
    relations: tuple[Relation, ...]
    lookups: tuple[DerivedColumns, ...] = ()
    pieces: tuple[RangePiece, ...] = ()
    kinks: tuple[ModelKink, ...] = ()

    def __post_init__(self) -> None:
        for relation in self.relations:
            unknown = set(relation.needs) - set(self.names)
            if unknown:
                raise ValueError(f"a relation names {', '.join(sorted(unknown))}, which is no coordinate")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates, in the order of the columns of boxes."""
        return tuple(each.name for each in self.coordinates)

    @cached_property
    def at(self) -> dict[str, int]:
        """Column of each coordinate."""
        return {name: column for column, name in enumerate(self.names)}

    @cached_property
    def looked_up_together(self) -> list[tuple[int, int]]:
        """Pairs of columns (coordinates) that are consecutive arguments of a look-up.

        Bounds on the results of a look-up say little until both coordinates are points.
        """
        return sorted({pair for each in self.lookups for pair in itertools.pairwise(self.at[name] for name in each.of)})

    @cached_property
    def by_name(self) -> dict[str, Integer]:
        return {each.name: each for each in self.coordinates}

    @cached_property
    def lookup_ranges(self) -> dict[tuple, np.ndarray]:
        """Cache of the ranges of look-ups over boxes: the same few corners occur in every batch."""
        return {}

    @cached_property
    def quantities(self) -> dict[str, ProductLimit]:
        """Products that have a name, by name."""
        return {r.name: r for r in self.relations if isinstance(r, ProductLimit) and r.name}

    def column(self, boxes: Boxes, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper ends of a coordinate in each box."""
        return boxes.low[:, self.at[name]], boxes.high[:, self.at[name]]

    def columns(self, table: np.ndarray) -> dict[str, np.ndarray]:
        """Return a table (row, coordinate) as columns by name. They are views, so writing to them changes the table."""
        return {name: table[:, column] for name, column in self.at.items()}

    def initial_boxes(self) -> Boxes:
        """Return boxes that together contain all valid points: one for each combination of values of the root coordinates."""
        choices = [
            [(value, value) for value in self.values_of(each)] if each.role is Role.root else [each.ends]
            for each in self.coordinates
        ]
        corners = np.asarray(list(itertools.product(*choices)), np.int64).reshape(-1, len(self.names), 2)
        low, high = corners[:, :, 0].copy(), corners[:, :, 1].copy()
        fits, columns = np.ones(len(low), bool), self.columns(low.astype(float))
        for relation in self.relations:  # only relations between roots are decided at this stage
            if all(self.by_name[name].role is Role.root for name in relation.needs):
                fits &= relation.holds(columns)
        return self.propagate(Boxes(low[fits], high[fits]))[0]

    @staticmethod
    def values_of(each: Integer) -> Sequence[int]:
        """Return all values that a coordinate may have on its own."""
        return each.values if each.values is not None else range(each.lower, each.upper + 1)

    @cached_property
    def _free(self) -> list[str]:
        """Names of all coordinates except the roots, which are points from the start."""
        return [each.name for each in self.coordinates if each.role is not Role.root]

    @cached_property
    def stepped(self) -> dict[str, list[tuple[Divides, ConditionalRelation | None]]]:
        """Divisibility relations that restrict a coordinate to multiples of a step, by coordinate.

        Each has the condition under which it applies, None if always. Roots are left out: they are points from the start.
        """
        always = [(each, None) for each in self.relations if isinstance(each, Divides)]
        later = [
            (each.then, each)
            for each in self.relations
            if isinstance(each, ConditionalRelation) and isinstance(each.then, Divides)
        ]
        pairs = [*always, *later]
        steps = {name: [pair for pair in pairs if name in pair[0].dividend] for name in self._free}
        return {name: some for name, some in steps.items() if some}

    @cached_property
    def divided(self) -> dict[str, list[Divides]]:
        """Those relations of `stepped` that always apply, by coordinate."""
        always = {name: [each for each, when in pairs if when is None] for name, pairs in self.stepped.items()}
        return {name: relations for name, relations in always.items() if relations}

    @cached_property
    def _shared(self) -> list[Divides]:
        """Divisibility relations whose divisor also occurs in another relation."""
        return [each for each in self.relations if isinstance(each, Divides) and each.shared]

    def propagate(self, boxes: Boxes) -> tuple[Boxes, np.ndarray]:
        """Tighten boxes by bound propagation: corners without valid points are cut off, and empty boxes are removed.

        **Returns:** the tightened boxes, and the index of each in `boxes`.
        """
        low, high = boxes.low.astype(float), boxes.high.astype(float)
        lows, highs = self.columns(low), self.columns(high)
        pairs = [(name, relation) for relation in self.relations for name in relation.names if name in self._free]
        with np.errstate(all="ignore"):
            for _ in range(_PASSES):
                before = low.copy(), high.copy()
                for name, relation in pairs:
                    least, most = inward(*relation.bounds(name, lows, highs))
                    lows[name][:], highs[name][:] = np.maximum(lows[name], least), np.minimum(highs[name], most)
                for name in self.stepped:
                    step = self.steps(name, lows, highs)
                    first, last = inward(lows[name], highs[name], step)
                    lows[name][:], highs[name][:] = first * step, last * step
                for relation in self._shared:
                    for name in relation.divisor:
                        lows[name][:], highs[name][:] = relation.inside(name, lows, highs)
                for each in self.coordinates:
                    if each.values is not None and each.role is not Role.root:
                        self._to_values(each, lows[each.name], highs[each.name])
                if (low == before[0]).all() and (high == before[1]).all():
                    break
        left = np.flatnonzero((low <= high).all(axis=1))
        return Boxes(low[left].astype(np.int64), high[left].astype(np.int64)), left

    @staticmethod
    def _to_values(each: Integer, low: np.ndarray, high: np.ndarray) -> None:
        """Move both ends to allowed values of the coordinate; they cross if no value is left."""
        values = np.asarray([*(each.values or ()), LARGEST], float)
        low[:] = values[np.searchsorted(values[:-1], low - SLIP * low)]
        below = np.searchsorted(values[:-1], high + SLIP * high, side="right")
        high[:] = np.where(below > 0, values[below - 1], 0.0)

    def bounds(self, name: str, low: Columns, high: Columns) -> tuple[Any, Any]:
        """Return the smallest and largest value that the relations leave to a coordinate, if it and all others are
        between `low` and `high`.
        """
        least, most = low[name], high[name]
        for relation in self.relations:
            if name in relation.names:
                at_least, at_most = inward(*relation.bounds(name, low, high))
                least, most = np.maximum(least, at_least), np.minimum(most, at_most)
        return least, most

    def steps(self, name: str, low: Columns, high: Columns) -> np.ndarray:
        """Return the step of which a coordinate is a multiple, if all coordinates that determine it are points; else 1."""
        step = np.ones(np.shape(low[name]), np.int64)
        for divides, when in self.stepped.get(name, ()):
            known: Any = True if when is None else when.in_force(low)
            for each in divides.needs:
                known = known & (low[each] == high[each]) if each != name else known
            safe = {each: np.where(known, low[each], 1.0) for each in divides.needs}
            step = np.lcm(step, np.where(known, divides.step(name, safe), 1))
        return step

    def valid(self, points: np.ndarray) -> np.ndarray:
        """Return which points (point, coordinate) satisfy all relations."""
        columns = self.columns(np.asarray(points, float).reshape(-1, len(self.names)))
        fits = np.ones(len(points), bool)
        for each in self.coordinates:
            value, (least, most) = columns[each.name], each.ends
            fits &= (value >= least) & (value <= most)
            if each.values is not None:
                fits &= np.isin(value, each.values)
        with np.errstate(all="ignore"):
            for relation in self.relations:
                fits &= relation.holds(columns)
        return fits

    def split(self, boxes: Boxes, columns: np.ndarray, parts: int = 2) -> tuple[Boxes, np.ndarray]:
        """Split each box along a coordinate into parts of equal ratio, with at least one value each.

        If two parts are requested and the box contains kinks, the parts meet at the kink nearest to the middle.

        **Arguments:** `columns`: (box,) the coordinate to split, as a column; `parts`: number of parts.

        **Returns:** the parts, tightened by propagation, and the index of the box that each comes from.
        """
        rows = np.arange(len(boxes))
        low, high = boxes.low[rows, columns], boxes.high[rows, columns]
        kinks = self._kinks(boxes, columns, np.sqrt(low * (high + 0.5))) if parts == 2 else None
        pieces, first = [], low
        for part in range(1, parts + 1):
            share = part / parts
            last = np.floor(low ** (1.0 - share) * (high + 0.5) ** share).astype(np.int64) if part < parts else high
            if kinks is not None and part == 1:
                last = np.where(kinks > 0, kinks, last)
            last = np.clip(np.maximum(last, first), None, high)
            piece = Boxes(boxes.low.copy(), boxes.high.copy())
            piece.low[rows, columns], piece.high[rows, columns] = first, last
            pieces.append(piece)
            first = last + 1  # past the end if nothing is left: an empty box, which propagation removes
        tight, left = self.propagate(joined_boxes(pieces))
        return tight, left % len(boxes)

    def _kinks(self, boxes: Boxes, columns: np.ndarray, middle: np.ndarray) -> np.ndarray:
        """Return the last value below the kink nearest to the middle of a coordinate in each box (box,); 0 if there is none."""
        found, nearest = np.zeros(len(boxes), np.int64), np.full(len(boxes), np.inf)
        lows, rows = self.columns(boxes.low.astype(float)), np.arange(len(boxes))
        low, high = boxes.low[rows, columns], boxes.high[rows, columns]
        for kink in self.kinks:
            last = np.broadcast_to(kink.last(lows), len(boxes))
            away = np.abs(np.log((last + 0.5) / middle))
            here = (columns == self.at[kink.name]) & (last >= low) & (last < high) & (away < nearest)
            found, nearest = np.where(here, last, found).astype(np.int64), np.where(here, away, nearest)
        return found

    def quantities_at(self, columns: Columns) -> dict[str, Any]:
        """Return coordinates, named products and look-ups, as columns, from columns of coordinates."""
        values: dict[str, Any] = {name: columns[name] for name in self.names}
        values |= {name: each.value(columns) for name, each in self.quantities.items()}
        for lookup in self.lookups:
            values |= lookup.values(values)
        return values

    def design(self, point: np.ndarray) -> dict[str, float]:
        """Return the values of a point by name: its coordinates, named products and look-ups."""
        columns = {name: float(point[column]) for name, column in self.at.items()}
        return {name: float(value) for name, value in self.quantities_at(columns).items()}

    def without_pieces(self) -> System:
        """Return the system without the coordinates of segmented continuous variables."""
        pieces = {each.name for each in self.pieces}
        return replace(self, coordinates=tuple(each for each in self.coordinates if each.name not in pieces), pieces=())

    def coordinates_at(self, values: Columns) -> dict[str, Any]:
        """Return columns of coordinates from columns of coordinates or of the named products that determine them.

        A product without a column is at its lower limit: the machine's own value, if the question does not vary it.
        """
        columns: dict[str, Any] = {}
        followed = {each.follows: each for each in self.quantities.values()}
        for each in self.coordinates:
            if each.name in values:
                columns[each.name] = values[each.name]
            elif each.name in followed:
                quantity = followed[each.name]
                whole = values[quantity.name] if quantity.name in values else quantity.ends(columns)[0]
                columns[each.name] = whole / quantity.value(columns, each.name)
            else:
                columns[each.name] = each.ends[0]
        for piece in self.pieces:
            if piece.variable in values:
                columns[piece.name] = piece.number(values[piece.variable])
        return columns

    def point(self, values: Mapping[str, float]) -> np.ndarray:
        """Return the point of a design, given by the names that `design` uses."""
        columns = self.coordinates_at(values)
        return np.array([round(float(columns[name])) for name in self.names], np.int64)
