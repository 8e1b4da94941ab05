"""Number of points of an integer system: closed form for most coordinates, enumeration only of those that several
relations share.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hwopt.integers.boxes import Boxes
from hwopt.integers.relations import ConditionalRelation, Divides, Nested, Relation, inward
from hwopt.integers.system import Integer, Role, System

_SLICE = 20_000
"""Fixed cost of evaluating a grid, expressed as an equivalent number of grid points."""

_GRID = 400_000
"""Maximum number of points of a grid that is evaluated at once: grids that fit in the CPU cache take half the time."""


class PointCount(NamedTuple):
    """Number of points of a system: exact, or a lower bound if counting was stopped. The text form says which."""

    points: float
    complete: bool

    def __str__(self) -> str:
        return f"{self.points:,.0f}" if self.complete else f"at least {self.points:,.0f}"


def count(system: System, effort: float = math.inf) -> PointCount:
    """Count the valid points of a system.

    Conditional relations are resolved into cases. In each case, the values of the coordinates that couple the others are
    enumerated. The numbers of values that remain for the other coordinates are then multiplied.

    **Arguments:** `effort`: number of grid points after which counting stops. It is not a time limit, so that the result
    is the same on every machine.
    """
    points = spent = 0.0
    boxes = system.initial_boxes()
    for case in _cases(system):
        for i in range(len(boxes) if case.coordinates else 0):
            for found, cost in _counts(case, boxes[i : i + 1]):
                points, spent = points + found, spent + cost
                if spent > effort:
                    return PointCount(points, complete=False)
    return PointCount(points, complete=True)


def _cases(system: System) -> Iterator[System]:
    """Return systems without conditional relations that partition the points of the given system."""
    conditions = sorted({(r.name, r.least) for r in system.relations if isinstance(r, ConditionalRelation)})
    for above in itertools.product((False, True), repeat=len(conditions)):
        forced = dict(zip(conditions, above, strict=True))
        relations: list[Relation] = []
        ends = {each.name: each.ends for each in system.coordinates}
        for relation in system.relations:
            if not isinstance(relation, ConditionalRelation):
                relations.append(relation)
            elif forced[relation.name, relation.least]:
                relations.append(relation.then)
        for (name, least), is_above in forced.items():
            low, high = ends[name]
            ends[name] = (max(low, least), high) if is_above else (low, min(high, least - 1))
        if all(low <= high for low, high in ends.values()):
            pairs = zip(system.coordinates, ends.values(), strict=True)
            yield System(tuple(replace(each, lower=low, upper=high) for each, (low, high) in pairs), tuple(relations))


def _counts(system: System, box: Boxes) -> Iterator[tuple[float, int]]:
    """Count the valid points of one box of a system without conditional relations, part by part, with the effort of each
    part.
    """
    low = np.maximum(box.low, [[each.ends[0] for each in system.coordinates]])
    high = np.minimum(box.high, [[each.ends[1] for each in system.coordinates]])
    tight, _ = system.propagate(Boxes(low, high))
    if len(tight):
        shared = _shared(system, tight)
        for part in _slices(system, tight, shared):
            yield _in_slice(system, part, shared)


def _shared(system: System, box: Boxes) -> list[str]:
    """Return the coordinates to enumerate: once they are known, no relation couples two others.

    Those with few values come first.
    """
    width = {name: int((box.high - box.low)[0, column]) + 1 for name, column in system.at.items()}
    ties = [[name for name in r.needs if width[name] > 1] for r in system.relations]
    # The values that a relation leaves to these coordinates are not a range of multiples, so they are enumerated.
    listed = {name for r in system.relations for name in _gone_through(r)}
    shared = [name for name in system.names if name in listed and width[name] > 1]
    while True:
        ties = [[name for name in tie if name not in shared] for tie in ties]
        ties = [tie for tie in ties if len(set(tie)) > 1]
        if not ties:
            break
        uses = {name: sum(name in tie for tie in ties) for tie in ties for name in tie}
        shared.append(min(uses, key=lambda name: (-uses[name], width[name])))
    return sorted(shared, key=lambda name: width[name])


def _gone_through(relation: Relation) -> Iterable[str]:
    """Return the coordinates of a relation whose valid values, given the others, are not a range of multiples.

    They have to be enumerated.
    """
    if isinstance(relation, Nested):
        return relation.names[1:]
    return relation.divisor if isinstance(relation, Divides) else set(relation.needs) - set(relation.names)


def _slices(system: System, box: Boxes, shared: Sequence[str]) -> Iterator[Boxes]:
    """Divide a box until the grids of its shared coordinates are small: one part for each value of the first ones."""
    pending = [(box, 0)]
    while pending:
        part, done = pending.pop()
        widths = [float((part.high - part.low)[0, system.at[name]] + 1) for name in shared]
        if (np.prod(widths) <= _GRID and (done or len(shared) < 3)) or done == len(shared):
            yield part
            continue
        column = system.at[shared[done]]
        values = np.arange(part.low[0, column], part.high[0, column] + 1)
        low, high = (np.repeat(end, len(values), axis=0) for end in (part.low, part.high))
        low[:, column] = high[:, column] = values
        tight, _ = system.propagate(Boxes(low, high))
        pending += [(tight[i : i + 1], done + 1) for i in range(len(tight))]


def _in_slice(system: System, box: Boxes, shared: Sequence[str]) -> tuple[float, int]:
    """Count the valid points of a box: the sum, over a grid of the shared coordinates, of the product of the others' counts.

    **Returns:** the number of points, and the effort.
    """
    ends = {name: (int(box.low[0, column]), int(box.high[0, column])) for name, column in system.at.items()}
    grid = [_values(system.by_name[name], *ends[name]) for name in shared]
    mesh = [axis.ravel() for axis in np.meshgrid(*grid, indexing="ij")] if grid else []
    size = len(mesh[0]) if mesh else 1
    lows: dict[str, Any] = {name: float(low) for name, (low, _) in ends.items()}
    highs: dict[str, Any] = {name: float(high) for name, (_, high) in ends.items()}
    for name, axis in zip(shared, mesh, strict=True):
        lows[name] = highs[name] = axis
    points = np.ones(size)
    with np.errstate(all="ignore"):
        for relation in system.relations:
            if all(name in shared or ends[name][0] == ends[name][1] for name in relation.needs):
                points = points * relation.holds(lows)
        for each in system.coordinates:
            if each.name not in shared and ends[each.name][0] < ends[each.name][1]:
                points = points * _values_left(system, each, lows, highs)
    return float(points.sum()), size + _SLICE


def _values(each: Integer, low: int, high: int) -> np.ndarray:
    """Return the values of a coordinate between two ends."""
    values = range(low, high + 1) if each.values is None else [x for x in each.values if low <= x <= high]
    return np.asarray(values, float)


def _values_left(system: System, each: Integer, lows: dict[str, Any], highs: dict[str, Any]) -> np.ndarray:
    """Return the number of values that the relations leave to a coordinate if all others that it is coupled with are known."""
    least, most = system.bounds(each.name, lows, highs)
    step = system.steps(each.name, lows, highs)
    nested = [r for r in system.relations if isinstance(r, Nested) and each.name in r.names]
    if each.values is not None and each.role is not Role.root:
        fits = [
            np.all(
                [(least <= x) & (x <= most) & (x % step == 0), *(r.holds({**lows, each.name: x}) for r in nested)],
                axis=0,
            )
            for x in map(float, each.values)
        ]
        return np.sum(fits, axis=0, dtype=float)
    first, last = inward(least, most, step)
    if nested:
        return _nested_values(each.name, nested, lows, first * step, last * step, step)
    return np.maximum(0.0, last - first + 1.0)


def _nested_values(
    name: str, relations: Sequence[Nested], columns: dict[str, Any], first: Any, last: Any, step: Any
) -> np.ndarray:
    """Count the multiples of a step from `first` to `last` that satisfy some relations.

    Each distinct combination of the coordinates that determine this count is evaluated once.
    """
    others = list(dict.fromkeys(other for r in relations for other in r.names if other != name))
    table = np.stack(np.broadcast_arrays(first, last, step, *(columns[other] for other in others)), axis=-1)
    rows, inverse = np.unique(table.reshape(-1, table.shape[-1]), axis=0, return_inverse=True)
    counts = np.zeros(len(rows))
    for i, (low, high, by, *known) in enumerate(rows):
        values = np.arange(low, high + 0.5, by) if low <= high else np.zeros(0)
        at = dict(zip(others, known, strict=True)) | {name: values}
        counts[i] = np.sum(np.all([r.holds(at) for r in relations], axis=0))
    return counts[inverse.ravel()].reshape(table.shape[:-1])
