"""Dives: good integer designs around relaxed ones, which tell a search early what is not worth its while."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

import numpy as np

from hwopt.integers.boxes import Boxes, joined
from hwopt.integers.system import Role, System
from hwopt.optim.branching import Search

CANDIDATES = 48
"""Boxes that a dive starts from."""

CHOICES = 96
"""Choices of roots and kinds that the first look is among."""

ROUNDS = 10
"""Splits of counts in a dive: from thousands to single ones in halves."""

LOOKED = 1024
"""Parts of a lattice, or neighbours of a design, that are looked at at a time: all where there are few choices, some of many."""

_NEAR = 2.0
"""Factor within which the shape of a neighbour lies."""

WIDTH = 96
"""Boxes that a dive keeps."""

BEAM, PLUNGED = 8, 1000
"""Boxes that are halved down to designs at a time, and bounded by the way. With 12 and none to go back to, most plunges for a chip
on 3 nm found nothing."""


def dive(work: Search, boxes: Boxes) -> None:
    """Look for good designs: all else rounded, then the lattice's counts branched alone.

    **Arguments:** `boxes` with most degrees fixed.
    """
    lattice = work.lattice
    counts = [lattice.at[name] for name in lattice.counts]
    boxes = work.fresh(apart(lattice, boxes))
    late = {column for column in lattice.late if (boxes.low[:, column] < boxes.high[:, column]).any()}
    for held in (set(counts) | late, set(counts)) if late else (set(counts),):
        if not len(boxes):
            return
        known = work.bound(boxes)
        relaxed, lower = work.relaxed(boxes, known), known.lower
        alive = best_of_kinds(lattice, boxes, lower)[:CANDIDATES]
        if not len(alive):
            return
        boxes = work.fresh(lattice.propagate(rounded(lattice, boxes[alive], relaxed[alive], held))[0])
        if held > set(counts) and work.result.rounds and work.result.point is None:
            boxes = settled(work, boxes, late)
    for _ in range(ROUNDS):
        if not len(boxes):
            return
        known = work.bound(boxes)
        relaxed, lower = work.relaxed(boxes, known), known.lower
        alive = np.flatnonzero(np.isfinite(lower) & (lower < work.cutoff) & ~boxes.points)
        alive = alive[np.argsort(lower[alive], kind="stable")][:WIDTH]
        if not len(alive):
            return
        some = alive[: CANDIDATES // 2]
        leaves(work, counted(lattice, boxes[some], relaxed[some]))
        narrow = boxes[alive]
        widths = np.log(narrow.high[:, counts] / narrow.low[:, counts])
        halves, _ = lattice.split(narrow, np.asarray(counts)[widths.argmax(axis=1)])
        boxes = work.fresh(halves)


def settled(work: Search, boxes: Boxes, late: Collection[int]) -> Boxes:
    """Boxes whose late coordinates, sizes, are halved down to points, the best at a time.

    Where looks met no design: next to what wide boxes relax, such as a limit on a quotient of sizes, there may be none.
    """
    columns, done = np.array(sorted(late)), []
    while len(boxes):
        known = work.bound(boxes)
        alive = np.flatnonzero(np.isfinite(known.lower) & (known.lower < work.cutoff))
        best = boxes[alive[np.argsort(known.lower[alive], kind="stable")][:WIDTH]]
        widths = np.log(best.high[:, columns] / best.low[:, columns])
        wide = widths.max(axis=1) > 0.0
        done.append(best[np.flatnonzero(~wide)])
        boxes = work.fresh(work.lattice.split(best[np.flatnonzero(wide)], columns[widths[wide].argmax(axis=1)])[0])
    return joined(done) if done else boxes


def look(work: Search, initial: Boxes) -> None:
    """The first designs: where they are expected, of those choices of roots and kinds that bounds think most of."""
    lattice = work.lattice
    every = lattice.looked_at(initial)
    if len(every) > LOOKED:
        told = _told_apart(lattice)
        _, first, choice = np.unique(every.low[:, told], axis=0, return_index=True, return_inverse=True)
        boxes = _whole(lattice, len(first))
        boxes.low[:, told] = boxes.high[:, told] = every.low[first][:, told]
        whole, rows = lattice.propagate(boxes)
        lower = np.full(len(first), np.inf)
        lower[rows] = work.bound(whole).lower
        best = np.argsort(lower, kind="stable")[:CHOICES]
        every = every[np.isin(choice.ravel(), best[np.isfinite(lower[best])])]
    dive(work, every.some(LOOKED))


def _whole(lattice: System, count: int) -> Boxes:
    """So many boxes of all that there is."""
    low, high = (np.array([[each.ends[end] for each in lattice.coordinates]] * count, np.int64) for end in (0, 1))
    return Boxes(low, high)


def _told_apart(lattice: System) -> list[int]:
    """Columns of roots and kinds."""
    return [column for column, each in enumerate(lattice.coordinates) if each.role in (Role.root, Role.kind)]


def apart(lattice: System, boxes: Boxes) -> Boxes:
    """Boxes with every choice of the kinds that they leave open: what a box relaxes between two kinds is near neither."""
    for column, each in enumerate(lattice.coordinates):
        if each.role is Role.kind:
            parts = []
            for value in lattice.values_of(each):
                held = boxes[(boxes.low[:, column] <= value) & (value <= boxes.high[:, column])]
                low, high = held.low.copy(), held.high.copy()
                low[:, column] = high[:, column] = value
                parts.append(Boxes(low, high))
            boxes = joined(parts)
    return lattice.propagate(boxes)[0]


def best_of_kinds(lattice: System, boxes: Boxes, lower: np.ndarray) -> np.ndarray:
    """Numbers of the boxes that may hold something: the best of each choice of roots and kinds, then the second best, and so on.

    Bounds of wide boxes say little of where designs are: those of one choice alone may all hold none.
    """
    order = np.argsort(lower, kind="stable")
    order = order[np.isfinite(lower[order])]
    _, choice = np.unique(boxes.low[order][:, _told_apart(lattice)], axis=0, return_inverse=True)
    rank, seen = np.zeros(len(order), int), dict[int, int]()
    for i, each in enumerate(choice.ravel().tolist()):
        rank[i] = seen[each] = seen.get(each, -1) + 1
    return order[np.argsort(rank, kind="stable")]


def climb(work: Search) -> None:
    """Look beside the best design, at other kinds, other shapes, and both, until none of these finds anything better."""
    steps = (of_one_shape, of_other_shapes, of_other_kinds)
    left = list(steps)
    while left and work.result.point is not None:
        before, beside = work.result.value, left.pop(0)
        boxes = work.lattice.propagate(beside(work.lattice, work.result.point).some(LOOKED))[0]
        dive(work, boxes)
        if work.result.value < before:
            left = list(steps)


def plunge(work: Search, boxes: Boxes) -> None:
    """Boxes halved down to designs, the best few of the narrowest first; where these hold none, the next best."""
    began, left = work.result.boxes, list[tuple[Boxes, np.ndarray]]()
    boxes = work.fresh(boxes)
    while work.result.boxes - began < PLUNGED:
        if len(boxes):
            lower = work.bound(boxes).lower
            alive = np.flatnonzero(np.isfinite(lower) & ~boxes.points)
            alive = alive[np.argsort(lower[alive], kind="stable")]
            left.append((boxes[alive], lower[alive]))
        while left and not (left[-1][1][:1] < work.cutoff).any():
            left.pop()
        if not left:
            return
        wide, lower = left.pop()
        left.append((wide[BEAM:], lower[BEAM:]))
        boxes = work.fresh(work.split(wide[:BEAM]).pieces)


def plunge_beside(work: Search) -> None:
    """Plunge beside the best design, at other kinds and shapes that are near, until nothing better is found."""
    before = np.inf
    while work.result.point is not None and work.result.value < before:
        before = work.result.value
        for beside in (of_other_shapes, of_other_kinds):
            boxes = beside(work.lattice, work.result.point).some(LOOKED)
            plunge(work, work.lattice.propagate(boxes)[0])


def of_one_shape(lattice: System, point: np.ndarray) -> Boxes:
    """Boxes of a point's own shape in which up to two roots or kinds have other values: bounds tell more of them."""
    boxes = of_other_kinds(lattice, point)
    for column, each in enumerate(lattice.coordinates):
        if each.stepped:
            boxes.low[:, column] = boxes.high[:, column] = point[column]
    return boxes


def of_other_kinds(lattice: System, point: np.ndarray) -> Boxes:
    """Boxes around a point in which up to two roots or kinds have other values, the rest of its shape is near, counts are free."""
    wide, others = _near(lattice, point), []
    for column, each in enumerate(lattice.coordinates):
        if each.role in (Role.root, Role.kind):
            others += [(column, value) for value in lattice.values_of(each) if value != point[column]]
    pairs = (pair for pair in itertools.combinations(others, 2) if pair[0][0] != pair[1][0])
    return _changed(wide, [(), *itertools.combinations(others, 1), *pairs])


def of_other_shapes(lattice: System, point: np.ndarray) -> Boxes:
    """Boxes around a point that each hold one shape near its own, of the same roots and kinds; sizes are near, counts are free."""
    wide, choices = _near(lattice, point), []
    for column, each in enumerate(lattice.coordinates):
        if each.stepped:
            values = range(wide.low[0, column], wide.high[0, column] + 1)
            choices.append([(column, value) for value in values if each.values is None or value in each.values])
    return _changed(wide, list(itertools.product(*choices)))


def _near(lattice: System, point: np.ndarray) -> Boxes:
    """The box of a point's roots and kinds whose shapes are near it and whose counts are free."""
    wide = around(lattice, _whole(lattice, 1), point[None].astype(float), _NEAR)
    for column, each in enumerate(lattice.coordinates):
        if each.role in (Role.root, Role.kind):
            wide.low[:, column] = wide.high[:, column] = point[column]
    return wide


def _changed(box: Boxes, changes: Sequence[Sequence[tuple[int, int]]]) -> Boxes:
    """A box with some coordinates at other values, one for each change: pairs of coordinate and value."""
    low, high = (np.repeat(end, len(changes), axis=0) for end in (box.low, box.high))
    for row, change in enumerate(changes):
        for column, value in change:
            low[row, column] = high[row, column] = value
    return Boxes(low, high)


def leaves(work: Search, points: Sequence[np.ndarray] | np.ndarray) -> None:
    """Solve integer designs; points that are none are left out."""
    if not len(points):
        return
    table = np.unique(np.asarray(points, np.int64), axis=0)
    boxes = work.fresh(Boxes.of_points(table[work.lattice.valid(table)]))
    if len(boxes):
        work.bound(boxes)


def around(lattice: System, boxes: Boxes, relaxed: np.ndarray, factor: float) -> Boxes:
    """Boxes narrowed around relaxed points in everything but counts."""
    shape = [column for name, column in lattice.at.items() if name not in lattice.counts]
    low, high = boxes.low.copy(), boxes.high.copy()
    low[:, shape] = np.clip(np.floor(relaxed[:, shape] / factor), low[:, shape], high[:, shape])
    high[:, shape] = np.clip(np.ceil(relaxed[:, shape] * factor), low[:, shape], high[:, shape])
    return Boxes(low, high)


def rounded(lattice: System, boxes: Boxes, relaxed: np.ndarray, held: Collection[int]) -> Boxes:
    """Boxes with all but the columns `held` at integers next to relaxed points (box, coordinate): the nearest, and either side of
    some.

    Each coordinate in its order, within what those before leave it.
    """
    below, above = _beside(lattice, relaxed)
    near = np.where(relaxed - below <= above - relaxed, below, above)
    wanted = [near]
    for column in (c for c, each in enumerate(lattice.coordinates) if each.sided and c not in held):
        for side in (below, above):
            other = near.copy()
            other[:, column] = side[:, column]
            wanted.append(other)
    wanted = [np.clip(each, boxes.low, boxes.high).astype(np.int64) for each in wanted]
    targets, rows = np.concatenate(wanted), np.tile(np.arange(len(boxes)), len(wanted))
    low, high = boxes.low[rows].copy(), boxes.high[rows].copy()
    for column in (c for c in range(len(lattice.names)) if c not in held):
        least, most = low[:, column].copy(), high[:, column].copy()
        tight, left = lattice.propagate(Boxes(low, high))
        least[left], most[left] = tight.low[:, column], tight.high[:, column]
        low[:, column] = high[:, column] = np.clip(targets[:, column], least, most)
    return Boxes(low, high)


def _beside(lattice: System, relaxed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values that coordinates may have next to relaxed ones (box, coordinate), below and above."""
    below, above = np.floor(relaxed), np.ceil(relaxed)
    for column, each in enumerate(lattice.coordinates):
        if each.values:
            values = np.asarray(each.values, float)
            after = np.searchsorted(values, relaxed[:, column])
            at = np.minimum(after, len(values) - 1)
            above[:, column] = values[at]
            below[:, column] = np.where(values[at] == relaxed[:, column], values[at], values[np.maximum(after - 1, 0)])
    return below, above


def counted(lattice: System, boxes: Boxes, relaxed: np.ndarray) -> np.ndarray:
    """Designs with integer counts around relaxed points (box, coordinate) of boxes whose other coordinates are points."""
    for name in sorted(lattice.counts, key=lambda name: lattice.by_name[name].fills):  # what fills up comes last
        each, column = lattice.by_name[name], lattice.at[name]
        boxes, left = lattice.propagate(boxes)
        relaxed = relaxed[left]
        lows, highs = (lattice.columns(end.astype(float)) for end in (boxes.low, boxes.high))
        step = lattice.steps(name, lows, highs)
        below, above = each.reach
        values = [(np.floor(relaxed[:, column] / step) + k) * step for k in range(-below, above + 1)]
        if each.fills:
            most = boxes.high[:, column] // step * step
            values += [most, most - step]
        rows = np.tile(np.arange(len(boxes)), len(values))
        low, high = boxes.low[rows].copy(), boxes.high[rows].copy()
        chosen = np.clip(np.concatenate(values).astype(np.int64), low[:, column], high[:, column])
        low[:, column] = high[:, column] = chosen
        boxes, relaxed = Boxes(low, high), relaxed[rows]
    return boxes.low[boxes.points]
