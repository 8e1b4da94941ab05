"""Where dives look: kinds one by one, and shapes beside the best design."""

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hwopt.integers.boxes import Boxes
from hwopt.integers.relations import Product
from hwopt.integers.system import Integer, Role, System
from hwopt.optim.dives import PLUNGED, apart, of_one_shape, of_other_kinds, of_other_shapes, plunge, rounded

SYSTEM = System(
    (
        Integer("t", 1, 8, among=(1, 2, 4, 8), role=Role.root),
        Integer("tier", 1, 2, role=Role.kind),
        Integer("sharded", 1, 3, role=Role.kind),
        Integer("p", 1, 12, stepped=True),
        Integer("v", 1, 4, stepped=True),
        Integer("racks", 1, 40),
        Integer("d", 1, 1000, role=Role.count),
    ),
    (Product(("t", "p", "d"), (), 1, 4096, name="chips", follows="d"),),
)
POINT = np.array([2, 1, 1, 6, 2, 10, 16])
COLUMNS = SYSTEM.at


def values(boxes: Boxes, *names: str) -> set[tuple[int, ...]]:
    """What boxes hold of some coordinates, which are points in each."""
    columns = [COLUMNS[name] for name in names]
    assert (boxes.low[:, columns] == boxes.high[:, columns]).all()
    return set(map(tuple, boxes.low[:, columns].tolist()))


def test_a_dive_tells_kinds_apart_that_a_box_leaves_open():
    low, high = np.array([[2, 1, 1, 1, 1, 1, 1]]), np.array([[2, 2, 3, 12, 4, 40, 1000]])
    boxes = apart(SYSTEM, Boxes(low, high))
    assert len(boxes) == 6 and values(boxes, "tier", "sharded") == set(itertools.product((1, 2), (1, 2, 3)))
    known = apart(SYSTEM, Boxes.of_points(POINT[None]))
    assert len(known) == 1 and known.points.all()


@pytest.mark.parametrize("beside", [of_other_kinds, of_one_shape])
def test_a_climb_changes_two_kinds_at_most(beside):
    boxes = beside(SYSTEM, POINT)
    changed = (boxes.low[:, :3] != POINT[:3]).sum(axis=1)
    assert set(changed.tolist()) == {0, 1, 2} and len(boxes) == 1 + (3 + 1 + 2) + (3 * 1 + 3 * 2 + 1 * 2)
    assert (boxes.low[:, COLUMNS["d"]] == 1).all() and (boxes.high[:, COLUMNS["d"]] == 1000).all()
    shape = boxes.low[:, 3:5], boxes.high[:, 3:5]
    if beside is of_one_shape:
        assert (shape[0] == POINT[3:5]).all() and (shape[1] == POINT[3:5]).all()
    else:
        assert (shape[0] < POINT[3:5]).all() and (shape[1] > POINT[3:5]).all()


def test_a_climb_tries_every_shape_nearby():
    boxes = of_other_shapes(SYSTEM, POINT)
    assert values(boxes, "p", "v") == set(itertools.product(range(3, 13), range(1, 5)))
    assert values(boxes, "t", "tier", "sharded") == {(2, 1, 1)}
    racks = COLUMNS["racks"]
    assert (boxes.low[:, racks] == 5).all() and (boxes.high[:, racks] == 20).all()


class Downhill:
    """A search whose cost is the product of all coordinates, and whose designs of the first tier all turn out to hold nothing."""

    def __init__(self, cutoff: float):
        self.lattice, self.cutoff, self.met = SYSTEM, cutoff, np.zeros((0, len(SYSTEM.names)), np.int64)
        self.result = SimpleNamespace(boxes=0)

    def fresh(self, boxes):
        return boxes

    def bound(self, boxes):
        self.result.boxes += len(boxes)
        lower = np.log(boxes.low).sum(axis=1)
        points = boxes.points
        lower[points & (boxes.low[:, COLUMNS["tier"]] == 1)] = np.inf
        self.met = np.concatenate([self.met, boxes.low[points & np.isfinite(lower)]])
        return SimpleNamespace(lower=lower)

    def split(self, boxes):
        widest = np.log(boxes.high / boxes.low).argmax(axis=1)
        return SimpleNamespace(pieces=SYSTEM.split(boxes, widest)[0])


def test_a_plunge_goes_back_where_the_best_hold_no_design():
    low, high = np.ones((1, 7), np.int64), np.array([[2, 2, 1, 12, 4, 40, 1000]])
    low[0, COLUMNS["t"]] = 2
    work: Any = Downhill(np.inf)
    plunge(work, Boxes(low, high))
    assert len(work.met) and (work.met[:, COLUMNS["tier"]] == 2).all()
    assert np.prod(work.met, axis=1).min() == 4  # the least that there is: t and the tier at 2
    assert work.result.boxes < 1.1 * PLUNGED
    beyond: Any = Downhill(np.log(4.0))  # nothing is below the cutoff
    plunge(beyond, Boxes(low, high))
    assert (
        not (np.log(np.prod(beyond.met, axis=1)) < beyond.cutoff - 1e-9).any()
        and beyond.result.boxes <= work.result.boxes
    )


def test_what_is_held_is_not_rounded():
    low, high = np.array([[2, 1, 1, 1, 1, 1, 1]]), np.array([[2, 1, 1, 12, 4, 40, 1000]])
    relaxed = np.array([[2.0, 1.0, 1.0, 5.2, 2.9, 9.6, 100.0]])
    boxes = rounded(SYSTEM, Boxes(low, high), relaxed, {COLUMNS["racks"], COLUMNS["d"]})
    assert values(boxes, "p", "v") == {(5, 3)}
    assert (boxes.high[:, COLUMNS["racks"]] == 40).all() and (boxes.high[:, COLUMNS["d"]] > 1).all()
