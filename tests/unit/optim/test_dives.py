"""Where dives look: kinds one by one, and shapes beside the best design."""

import itertools

import numpy as np
import pytest

from hwopt.integers.boxes import Boxes
from hwopt.integers.relations import Product
from hwopt.integers.system import Integer, Role, System
from hwopt.optim.dives import apart, of_one_plan, of_one_shape, of_other_kinds, of_other_shapes, rounded

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


def test_a_climb_frees_the_sizes_of_one_plan():
    (low,), (high,) = (getattr(of_one_plan(SYSTEM, POINT), end) for end in ("low", "high"))
    assert (low[:5] == POINT[:5]).all() and (high[:5] == POINT[:5]).all()
    assert low[5:].tolist() == [1, 1] and high[5:].tolist() == [40, 1000]


def test_what_is_held_is_not_rounded():
    low, high = np.array([[2, 1, 1, 1, 1, 1, 1]]), np.array([[2, 1, 1, 12, 4, 40, 1000]])
    relaxed = np.array([[2.0, 1.0, 1.0, 5.2, 2.9, 9.6, 100.0]])
    boxes = rounded(SYSTEM, Boxes(low, high), relaxed, {COLUMNS["racks"], COLUMNS["d"]})
    assert values(boxes, "p", "v") == {(5, 3)}
    assert (boxes.high[:, COLUMNS["racks"]] == 40).all() and (boxes.high[:, COLUMNS["d"]] > 1).all()
