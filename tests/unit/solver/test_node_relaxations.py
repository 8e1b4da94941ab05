"""Programmes of boxes from a recording are those that a reading of the same boxes gives."""

import gc

import jax
import numpy as np
import pytest

import hwopt
from hwopt.design.lattices import lattice_of
from hwopt.integers.boxes import joined_boxes
from hwopt.solver.gp.integer_relaxation import quantity_ranges
from hwopt.solver.gp.tape import Tape, TapeArray, guessed
from hwopt.solver.search import node_relaxations as room
from hwopt.solver.search.bounding import bound_nodes, solve_nodes
from hwopt.solver.search.node_relaxations import NodeRelaxations
from tests.rotation import rotated, shared_out

QUESTIONS = {
    "training": ("train_cost", {}),
    "serving": ("serve_cost", {}),
    "apart": ("serve_latency", {"split": "apart", "requests_per_s": 50.0}),
    "experts": (
        "train_cost",
        {"workload": "mixtral-8x7b", "chip": "h200", "global_batch": 2048.0, "sequence_length": 8192.0},
    ),
    "both": ("train_and_serve", {}),
    "shape": ("loss_under_budget", {}),
}
QUICK = ("training", "serving")


def random_boxes(lattice, rng, trails):
    """Boxes of the lattice at all depths down to points, halved along coordinates at random."""
    boxes = lattice.initial_boxes()
    boxes = boxes[rng.integers(len(boxes), size=trails)]
    found = [boxes]
    while len(boxes := boxes[~boxes.points]):
        chances = rng.random(boxes.low.shape) * np.log(boxes.high / boxes.low)
        halves, parents = lattice.split(boxes, chances.argmax(axis=1))
        order = rng.permutation(len(halves))
        boxes = halves[order[np.unique(parents[order], return_index=True)[1]]]
        found.append(boxes)
    return joined_boxes(found)


LONG = [
    pytest.param(name, marks=pytest.mark.search) for name in shared_out([x for x in QUESTIONS if x not in QUICK], 4)
]


@pytest.fixture(scope="module", params=[*rotated(QUICK, 2), *LONG])
def programmes(request):
    objective, fields = QUESTIONS[request.param]
    with jax.enable_x64(True):
        problem = hwopt.objective(objective, **fields).problem().continuous
        return NodeRelaxations(problem, lattice_of(problem))


def test_what_was_read_is_not_kept_beside_its_recording():
    """Nodes of a reading take gigabytes: they go at once, not when cycles are looked for."""
    with jax.enable_x64(True):
        problem = hwopt.objective("serve_cost", chip="h200").problem().continuous
        programmes = NodeRelaxations(problem, lattice_of(problem))
        gc.collect()
        before = sum(type(each) is TapeArray for each in gc.get_objects())
        gc.disable()
        try:
            programmes.of(programmes.lattice.initial_boxes()[:2])
            left = sum(type(each) is TapeArray for each in gc.get_objects()) - before
        finally:
            gc.enable()
    assert programmes.recordings
    assert left == 0


@pytest.mark.parametrize("count", [500, pytest.param(5_000, marks=pytest.mark.search)])
def test_the_recording_equals_the_reading(programmes, count):
    """Random boxes: every number of their programmes to 1e-12, and the same marks of what is relaxed."""
    lattice = programmes.lattice
    boxes = random_boxes(lattice, np.random.default_rng(1), count // 20)
    boxes = boxes[~boxes.points][:count]
    assert len(boxes) > count / 2
    with jax.enable_x64(True):
        recorded = programmes._recorded(boxes[:2], points=False)
        assert recorded is not None
        _, known = recorded.recording.run(programmes._inputs(quantity_ranges(lattice, boxes)))
        assert known.mean() > 0.98  # of others it says nothing, and they are read
        boxes = boxes[known]
        every = joined_boxes([boxes, *room._narrowing(lattice)])
        tape = Tape(len(every))
        ends = {
            name: (tape.input(low), tape.input(high)) for name, (low, high) in quantity_ranges(lattice, every).items()
        }
        draft, holds = programmes._draft(ends)
        programme, again = recorded.programmes(programmes._inputs(quantity_ranges(lattice, boxes))) or pytest.fail(
            "boxes that it knows"
        )
    count = len(boxes)
    rows = lambda values: np.stack([np.broadcast_to(guessed(each), (len(every),))[:count] for each in values], axis=1)
    assert (rows([holds])[:, 0] == again).all()
    assert draft.labels == programme.labels and draft.names == programme.names
    assert (draft.structure.exponents == programme.structure.exponents).all()
    numbers = programme.numbers
    tables = (numbers.constants, numbers.offsets, numbers.lower, numbers.upper)
    for read, repeated in zip(draft.coefficients, tables, strict=True):
        np.testing.assert_allclose(rows(read), repeated, rtol=1e-12, atol=1e-12)
    for one, other in zip(draft.relaxed, programme.relaxed, strict=True):
        assert (rows([one.nodes])[:, 0] == np.broadcast_to(other.nodes, (count,))).all()
    tape.forget()


def test_bounds_are_those_of_a_reading(programmes):
    """Solved, with programmes from a recording and from a reading.

    A recording is a reading beside wider boxes, and keeps parts that these boxes alone can do without: a bound may be looser
    by that, and never looser by more than a hundredth where it is worth anything.
    """
    boxes = random_boxes(programmes.lattice, np.random.default_rng(2), 12)
    boxes = boxes[~boxes.points][::3][:64]

    class Read(NodeRelaxations):
        def _recorded(self, boxes, points):
            return None

    with jax.enable_x64(True):
        one = bound_nodes(programmes, boxes, tolerance=1e-9)
        other = bound_nodes(Read(programmes.problem, programmes.lattice), boxes, tolerance=1e-9)
    assert any(not each.points for each in programmes.recordings)
    assert (np.isinf(one.lower) == np.isinf(other.lower)).all()
    finite = np.isfinite(one.lower)
    assert finite.any()
    np.testing.assert_allclose(
        one.lower[finite], other.lower[finite], rtol=0.0, atol=2e-2
    )  # kinds open in one box of a batch


def test_points_are_recorded_apart_from_boxes(programmes):
    boxes = random_boxes(programmes.lattice, np.random.default_rng(3), 16)
    points = boxes[boxes.points]
    assert len(points) >= 2
    with jax.enable_x64(True):
        programme, _ = programmes.of(points)
        alone, _ = programmes.of(points[:1])
    assert len(programme.constant) == len(points)
    assert alone.structure.exponents.shape[1] <= programme.structure.exponents.shape[1]


@pytest.mark.parametrize("count", [8, pytest.param(24, marks=pytest.mark.search)])
def test_points_in_groups_are_as_read_alone(programmes, count):
    """Each once; no more is relaxed, and the bound is the same."""
    boxes = random_boxes(programmes.lattice, np.random.default_rng(5), 48)
    points = boxes[boxes.points][:count]
    seen = []
    with jax.enable_x64(True):
        for rows, programme, holds in programmes.alone(points):
            seen += rows.tolist()
            together = solve_nodes(programme, holds, points[rows].points, tolerance=1e-9)
            for place, row in enumerate(rows):
                read, fits = programmes._read(quantity_ranges(programmes.lattice, points[row : row + 1]), 1)
                alone = solve_nodes(read, fits, np.ones(1, bool), tolerance=1e-9)
                assert fits[0] == holds[place] and read.inexact()[0] == programme.inexact()[place]
                np.testing.assert_allclose(alone.lower[0], together.lower[place], rtol=0.0, atol=1e-6)
    assert sorted(seen) == list(range(len(points)))


@pytest.mark.parametrize("factor", rotated((0.9, 1.2), 2))
def test_other_limits_need_no_other_reading(programmes, factor):
    """Bounds under tighter or looser budgets, with what was recorded under these, are those of a recording of their own."""
    boxes = random_boxes(programmes.lattice, np.random.default_rng(6), 12)
    boxes = boxes[~boxes.points][:24]
    with jax.enable_x64(True):
        programmes.of(boxes)
        recordings = len(programmes.recordings)
        asked = programmes.problem.relaxed([factor] * len(programmes.problem.budgets))
        shared = bound_nodes(programmes.with_limits(asked), boxes, tolerance=1e-9)
        alone = bound_nodes(NodeRelaxations(asked, programmes.lattice), boxes, tolerance=1e-9)
        np.testing.assert_allclose(shared.lower, alone.lower, rtol=0.0, atol=1e-2)
        assert not np.array_equal(shared.lower, bound_nodes(programmes, boxes, tolerance=1e-9).lower)
    assert len(programmes.recordings) <= recordings + 1
