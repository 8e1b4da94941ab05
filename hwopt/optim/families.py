"""Families of boxes: those whose programmes have one form, which a recording of their own holds tighter than one of all boxes.

What a reading decides it decides for all boxes that it is made of: a maximum keeps a part that is the greater one in any of
them, a difference that is a number in some is an atom in all. Of 120 boxes that a search of a drawn chip had left open bounds
were 2 % of the objective higher, on average, where each was read alone, and a tenth of them were done with; recordings of
families have two thirds of the terms of one of all boxes. Within the kinds and degrees of the best design 12,400 programmes left
0.8 % with them and 3.2 % without (70B on 3 nm).

Most of that was two differences of the model, which says them as shares by now. Since then 70B on 3 nm is proved in 59,533
programmes with families and in 60,109 without, 206 and 154 s of a processor side by side; 405B is left with 1.90 and 1.92 %.
They are no longer worth what they cost.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hwopt.integers.boxes import Boxes, joined
from hwopt.integers.system import Role, System

AFTER = 10_000
"""Programmes bounded before families have recordings of their own: one takes 1.3 s, as long as 500 programmes, and most searches
end sooner."""

EACH = 1_500
"""Programmes bounded for each such recording at least."""

LEAST = 24
"""Boxes of a family in one round from which on it may have one; not measured."""

_TRAILS, _NODES = 4, 64
"""Ways down to points, and boxes at most, that a recording is made beside: each box is memory of 80,000 numbers."""

_TAKES_OUT = frozenset({"pp", "virtual_stages"})
"""Shapes that take whole terms out of a programme where they are 1, as roots do."""

_WITHIN, _ABOVE = 1, 2


def families_of(lattice: System, boxes: Boxes) -> np.ndarray:
    """A mark of each box (box,), alike for those of a family: which kinds are known, which degrees are 1 or more than 1 for sure,
    and on which side of each kink they lie. Bytes.
    """
    marks = [np.zeros(len(boxes), np.int64)]
    for each in lattice.coordinates:
        low, high = lattice.column(boxes, each.name)
        if each.role is Role.kind:
            marks.append(np.where(low == high, low, 0))
        elif each.role is Role.root or each.name in _TAKES_OUT:
            marks.append(_side(low, high, 1))
    columns = lattice.columns(boxes.low.astype(float))
    for kink in lattice.kinks:
        marks.append(_side(*lattice.column(boxes, kink.name), kink.last(columns)))
    table = np.stack(marks, axis=1).astype(np.int8)
    return np.array([row.tobytes() + b"." for row in table], dtype=object)  # NumPy cuts zeros off the end of bytes


def _side(low: np.ndarray, high: np.ndarray, last: np.ndarray | float) -> np.ndarray:
    """Where ranges lie within the last value of the lower side, or above it; 0 where they hold both."""
    return np.where(high <= last, _WITHIN, np.where(low > last, _ABOVE, 0))


def inside(lattice: System, boxes: Boxes, family: bytes) -> Boxes:
    """Boxes of a family, some of these and some within them down to points, halved at random."""
    rng = np.random.default_rng(0)
    every = joined([boxes, *_within(lattice, boxes[rng.integers(len(boxes), size=_TRAILS)], rng)])
    every = every[families_of(lattice, every) == family]
    return every[rng.permutation(len(every))[:_NODES]]


def _within(lattice: System, boxes: Boxes, rng: np.random.Generator) -> Iterator[Boxes]:
    while len(boxes := boxes[~boxes.points]):
        chances = rng.random(boxes.low.shape) * np.log(boxes.high / np.maximum(boxes.low, 1))
        halves, parents = lattice.split(boxes, chances.argmax(axis=1))
        order = rng.permutation(len(halves))
        boxes = halves[order[np.unique(parents[order], return_index=True)[1]]]
        yield boxes[~boxes.points]


def apart(lattice: System, boxes: Boxes, known: set[bytes], room: int) -> list[tuple[np.ndarray, bytes]]:
    """Numbers of boxes of one family, and its mark, for each that is `known` or, for as many as there is `room`, common."""
    names, which, counts = np.unique(families_of(lattice, boxes), return_inverse=True, return_counts=True)
    which, parts = np.where(boxes.points, len(names), which.ravel()), []
    for number in np.argsort(-counts, kind="stable"):
        rows = np.flatnonzero(which == number)
        new = names[number] not in known
        if len(rows) >= (LEAST if new else 2) and (room > 0 or not new):
            room -= new
            parts.append((rows, names[number]))
    return parts
