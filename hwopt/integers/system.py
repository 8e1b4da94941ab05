"""Integer coordinates and the relations that tie them: what a box of them can hold, and which points are valid."""

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
"""Rounds of propagation at most: after three hardly any bound moves."""


class Role(enum.Enum):
    """How a search treats a coordinate."""

    root = "every value of it has boxes of its own from the start"
    kind = "values stand for kinds, without an order: boxes are split along it before all else"
    shape = "branched on"


@dataclass(frozen=True)
class Integer:
    """One coordinate.

    **Arguments:** `among`: the only values it may have, ascending, within `lower` and `upper`; None: all between;
    `pseudo_cost`: what a bound is expected to gain per factor of e by which the coordinate narrows (its values become fewer,
    where it is `stepped`), before a search has seen any; `stepped`: whether bounds say little until it is a point; `near`,
    `rounding`: how many values next to a wanted one are tried where nothing is bounded, and whether only those above (1) or below
    (-1); `fills`: whether the most that is allowed is tried there too; `sloped`: whether programmes of boxes trade
    it for other things, as they do what is continuous, also where all that stands beside it is known by its range: it stays
    wide until the rest is a point.
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
        """Least and most value; the wrong way round where it can have none."""
        if self.values is None:
            return self.lower, self.upper
        return (self.values[0], self.values[-1]) if self.values else (self.lower, self.lower - 1)

    @cached_property
    def values(self) -> tuple[int, ...] | None:
        """The few values that it may have between its limits; None where any integer will do."""
        return None if self.among is None else tuple(x for x in self.among if self.lower <= x <= self.upper)


def integer(name: str, ends: tuple[float, float], **settings: Any) -> Integer:
    """A coordinate whose range need not end at integers."""
    low, high = map(int, inward(*ends))
    return Integer(name, low, high, **settings)


@dataclass(frozen=True)
class RangePiece:
    """A continuous variable whose range is taken in pieces, where a model has another form in each.

    Its coordinate, of the same name with `_piece` behind, counts the pieces from 1.
    """

    variable: str
    edges: tuple[float, ...]  # ascending: ends of the range and what lies between

    @property
    def name(self) -> str:
        return f"{self.variable}_piece"

    def number(self, value: Any) -> Any:
        """The piece that holds a value, counted from 1."""
        return np.searchsorted(self.edges[1:-1], np.asarray(value), side="left") + 1.0


@dataclass(frozen=True)
class ModelKink:
    """A value of a coordinate, `coefficient x prod(factors) / prod(over)`, up to which a model has one form and from which on
    another: what costs nothing on one side of it cannot be told from what does in a box that holds both.
    """

    name: str
    factors: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    coefficient: float = 1.0
    below: bool = False  # whether the value itself is like those below it

    def last(self, columns: Columns) -> Any:
        """The last value of the lower side."""
        value = self.coefficient * product(columns, self.factors) / product(columns, self.over)
        return np.floor(value * (1.0 + SLIP)) if self.below else np.ceil(value * (1.0 - SLIP)) - 1.0


@dataclass(frozen=True)
class System:
    """Coordinates and relations. What is valid is declared here and nowhere else.

    **Arguments:** `coordinates` in the order in which points are completed; `lookups`: numbers that follow; `pieces`
    of continuous variables; `kinks`: where boxes are split first along a coordinate.
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
        """Order of the columns of every box."""
        return tuple(each.name for each in self.coordinates)

    @cached_property
    def at(self) -> dict[str, int]:
        """Column of each coordinate."""
        return {name: column for column, name in enumerate(self.names)}

    @cached_property
    def looked_up_together(self) -> list[tuple[int, int]]:
        """Columns that stand one after the other in a look-up: what follows from both says little until both are points."""
        return sorted({pair for each in self.lookups for pair in itertools.pairwise(self.at[name] for name in each.of)})

    @cached_property
    def by_name(self) -> dict[str, Integer]:
        return {each.name: each for each in self.coordinates}

    @cached_property
    def lookup_ranges(self) -> dict[tuple, np.ndarray]:
        """Ranges of look-ups over boxes met before: the same few corners come back in every batch."""
        return {}

    @cached_property
    def quantities(self) -> dict[str, ProductLimit]:
        """Products with a name of their own."""
        return {r.name: r for r in self.relations if isinstance(r, ProductLimit) and r.name}

    def column(self, boxes: Boxes, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Both ends of a coordinate."""
        return boxes.low[:, self.at[name]], boxes.high[:, self.at[name]]

    def columns(self, table: np.ndarray) -> dict[str, np.ndarray]:
        """A table (row, coordinate) as floating columns by name: views, so that they follow it."""
        return {name: table[:, column] for name, column in self.at.items()}

    # Boxes.

    def initial_boxes(self) -> Boxes:
        """Boxes that together hold all valid points: one for each choice of the roots."""
        choices = [
            [(value, value) for value in self.values_of(each)] if each.role is Role.root else [each.ends]
            for each in self.coordinates
        ]
        corners = np.asarray(list(itertools.product(*choices)), np.int64).reshape(-1, len(self.names), 2)
        low, high = corners[:, :, 0].copy(), corners[:, :, 1].copy()
        fits, columns = np.ones(len(low), bool), self.columns(low.astype(float))
        for relation in self.relations:  # of roots alone: bounds of the others cannot tell
            if all(self.by_name[name].role is Role.root for name in relation.needs):
                fits &= relation.holds(columns)
        return self.propagate(Boxes(low[fits], high[fits]))[0]

    @staticmethod
    def values_of(each: Integer) -> Sequence[int]:
        """All values that a coordinate may have by itself."""
        return each.values if each.values is not None else range(each.lower, each.upper + 1)

    @cached_property
    def _free(self) -> list[str]:
        """Coordinates but the roots, which are points from the start."""
        return [each.name for each in self.coordinates if each.role is not Role.root]

    @cached_property
    def stepped(self) -> dict[str, list[tuple[Divides, ConditionalRelation | None]]]:
        """What divides a product with a coordinate, which moves in steps for it, and from where on it does, None where always;
        roots are points from the start.
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
        """Of these, what divides always."""
        always = {name: [each for each, when in pairs if when is None] for name, pairs in self.stepped.items()}
        return {name: relations for name, relations in always.items() if relations}

    @cached_property
    def _shared(self) -> list[Divides]:
        """What has a divisor that others have too."""
        return [each for each in self.relations if isinstance(each, Divides) and each.shared]

    def propagate(self, boxes: Boxes) -> tuple[Boxes, np.ndarray]:
        """Boxes without corners in which nothing is valid; empty ones left out. And the numbers of those that are left."""
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
        """Move both ends to values that the coordinate may have; past each other where there is none."""
        values = np.asarray([*(each.values or ()), LARGEST], float)
        low[:] = values[np.searchsorted(values[:-1], low - SLIP * low)]
        below = np.searchsorted(values[:-1], high + SLIP * high, side="right")
        high[:] = np.where(below > 0, values[below - 1], 0.0)

    def bounds(self, name: str, low: Columns, high: Columns) -> tuple[Any, Any]:
        """Least and most that the relations leave a coordinate where it and all others lie between `low` and `high`."""
        least, most = low[name], high[name]
        for relation in self.relations:
            if name in relation.names:
                at_least, at_most = inward(*relation.bounds(name, low, high))
                least, most = np.maximum(least, at_least), np.minimum(most, at_most)
        return least, most

    def steps(self, name: str, low: Columns, high: Columns) -> np.ndarray:
        """What a coordinate is a multiple of, where all that decides it is a point; else 1."""
        step = np.ones(np.shape(low[name]), np.int64)
        for divides, when in self.stepped.get(name, ()):
            known: Any = True if when is None else when.in_force(low)
            for each in divides.needs:
                known = known & (low[each] == high[each]) if each != name else known
            safe = {each: np.where(known, low[each], 1.0) for each in divides.needs}
            step = np.lcm(step, np.where(known, divides.step(name, safe), 1))
        return step

    def valid(self, points: np.ndarray) -> np.ndarray:
        """Which points (point, coordinate) all relations hold at."""
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
        """Parts of each box along a coordinate, of equal ratio and at least one value each; and the number of each one's box.

        Two parts meet at a kink where the box holds one: that next to the middle.
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
            first = last + 1  # beyond the end where nothing is left: an empty box, which is left out
        tight, left = self.propagate(joined_boxes(pieces))
        return tight, left % len(boxes)

    def _kinks(self, boxes: Boxes, columns: np.ndarray, middle: np.ndarray) -> np.ndarray:
        """The last value below the kink next to the middle of a coordinate in each box (box,); 0 where there is none."""
        found, nearest = np.zeros(len(boxes), np.int64), np.full(len(boxes), np.inf)
        lows, rows = self.columns(boxes.low.astype(float)), np.arange(len(boxes))
        low, high = boxes.low[rows, columns], boxes.high[rows, columns]
        for kink in self.kinks:
            last = np.broadcast_to(kink.last(lows), len(boxes))
            away = np.abs(np.log((last + 0.5) / middle))
            here = (columns == self.at[kink.name]) & (last >= low) & (last < high) & (away < nearest)
            found, nearest = np.where(here, last, found).astype(np.int64), np.where(here, away, nearest)
        return found

    # Points.

    def quantities_at(self, columns: Columns) -> dict[str, Any]:
        """Coordinates, named products and look-ups at columns of coordinates."""
        values: dict[str, Any] = {name: columns[name] for name in self.names}
        values |= {name: each.value(columns) for name, each in self.quantities.items()}
        for lookup in self.lookups:
            values |= lookup.values(values)
        return values

    def design(self, point: np.ndarray) -> dict[str, float]:
        """What a point comes to: its coordinates, named products and look-ups."""
        columns = {name: float(point[column]) for name, column in self.at.items()}
        return {name: float(value) for name, value in self.quantities_at(columns).items()}

    def without_pieces(self) -> System:
        """The integers alone."""
        pieces = {each.name for each in self.pieces}
        return replace(self, coordinates=tuple(each for each in self.coordinates if each.name not in pieces), pieces=())

    def coordinates_at(self, values: Columns) -> dict[str, Any]:
        """Columns of coordinates from columns of whatever names them: themselves, or the products that they follow from.

        A product that has no column is at its lower limit: a machine's own, where a question does not vary it.
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
        """The point of a design, given by the names that `design` has."""
        columns = self.coordinates_at(values)
        return np.array([round(float(columns[name])) for name in self.names], np.int64)
