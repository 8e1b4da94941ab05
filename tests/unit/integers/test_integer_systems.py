"""The engine of declared integers against brute force: validity, propagation, splits, enumeration, counts, completion."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hwopt
from hwopt.design.lattices import lattice_of
from hwopt.integers.boxes import Boxes, joined_boxes
from hwopt.integers.counting import count
from hwopt.integers.enumeration import divisors, enumerate_points
from hwopt.integers.relations import (
    AllowedRange,
    ConditionalRelation,
    DerivedColumns,
    Divides,
    Nested,
    ProductLimit,
    at_least,
    at_most,
    equal,
)
from hwopt.integers.sampling import broken, complete_points
from hwopt.integers.system import Integer, ModelKink, RangePiece, Role, System, integer
from hwopt.solver.search.branch_and_bound import search
from hwopt.solver.search.node_relaxations import NodeRelaxations
from hwopt.sweeps.space import Space
from tests.rotation import rotated


def coordinates(rng, names="abcde"):
    """A handful of coordinates: ranges, few values, roots, counts."""
    found = []
    for name in names[: rng.integers(3, len(names) + 1)]:
        low = int(rng.integers(1, 4))
        high = low + int(rng.integers(0, 9))
        among = sorted(map(int, rng.choice(np.arange(1, 14), rng.integers(1, 5), replace=False)))
        role = list(Role)[rng.integers(3)]
        found.append(Integer(name, low, high, tuple(among) if rng.random() < 0.3 else None, role))
    return tuple(found)


def relation(rng, names):
    """A relation of some of the coordinates."""
    some = list(rng.permutation(names))
    kind = rng.integers(8)
    if kind == 0:
        return ProductLimit(
            tuple(some[:2]), tuple(some[2:3]), low=float(rng.integers(0, 4)), high=float(rng.integers(4, 40))
        )
    if kind == 1:
        return Divides((some[0],), tuple(some[1:3]), int(rng.integers(1, 3)), int(rng.integers(1, 3)))
    if kind == 2:
        return ConditionalRelation(some[0], int(rng.integers(2, 6)), at_least((some[1],), 2.0))
    if kind == 3:
        return at_most((some[0], some[1]), AllowedRange((some[2],), lambda x, name=some[2]: 3.0 * x[name] + 2.0))
    if kind == 4:
        return equal((some[0],), (some[1],)) if rng.random() < 0.3 else at_most((some[0],), 1.0, over=(some[1],))
    if kind == 5:
        return Nested((some[0], some[1]) if rng.random() < 0.5 else (some[0],), (some[2],))
    if kind == 6:
        return ConditionalRelation(
            some[0], int(rng.integers(2, 6)), Divides((some[1],), (some[2],), int(rng.integers(1, 3)))
        )
    return ConditionalRelation(some[0], 2, at_most((some[1],), 1.0, over=(some[2],)))


def random_system(seed):
    rng = np.random.default_rng(seed)
    own = coordinates(rng)
    names = [each.name for each in own]
    relations = tuple(relation(rng, names) for _ in range(rng.integers(1, 4)))
    return System(own, relations, kinks=kinks(np.random.default_rng(seed), names)), rng


def kinks(rng, names):
    """Some values at which boxes are split first."""
    return tuple(
        ModelKink(at, (other,), (third,), float(rng.integers(1, 5)), bool(rng.integers(2)))
        for at, other, third in (rng.permutation(names)[:3] for _ in range(rng.integers(3)))
    )


def brute(system):
    """All valid points, tried one by one."""
    every = [system.values_of(each) for each in system.coordinates]
    points = np.array(list(itertools.product(*every)), np.int64).reshape(-1, len(every))
    return points[system.valid(points)] if len(points) else points


SEEDS = range(150)


@pytest.mark.parametrize("seed", rotated(SEEDS, 3))
def test_enumeration_and_counts_are_those_of_brute_force(seed):
    system, _ = random_system(seed)
    points = brute(system)
    rows = enumerate_points(system)
    table = np.stack([rows[name] for name in system.names], axis=1)
    assert {tuple(row) for row in table} == {tuple(row) for row in points}
    assert len(table) == len(points) == count(system).points


@pytest.mark.parametrize("seed", rotated(SEEDS, 3))
def test_propagation_and_splits_lose_no_point(seed):
    system, rng = random_system(seed)
    points = brute(system)
    boxes = system.initial_boxes()
    assert inside(boxes, points).all()
    for _ in range(4):
        wide = np.flatnonzero(~boxes.points)
        if not len(wide):
            break
        columns = np.array([rng.choice(np.flatnonzero(boxes.low[i] < boxes.high[i])) for i in wide])
        parts, parents = system.split(boxes[wide], columns, int(rng.integers(2, 4)))
        assert (parts.low >= boxes.low[wide][parents]).all() and (parts.high <= boxes.high[wide][parents]).all()
        boxes = joined_boxes([boxes[np.flatnonzero(boxes.points)], parts])
        assert inside(boxes, points).all()
    single = boxes[boxes.points]
    kept = system.valid(single.low)
    assert {tuple(row) for row in single.low[kept]} <= {tuple(row) for row in points}


@pytest.mark.parametrize(("below", "lower", "upper"), [(True, (1, 9), (10, 64)), (False, (1, 8), (9, 64))])
def test_boxes_are_split_at_a_kink_before_they_are_halved(below, lower, upper):
    """`g = 18 / t`: at t = 2 nine, which belongs to the lower side or to the upper one; no kink is left in either part."""
    pair = (Integer("t", 2, 2), Integer("g", 1, 64))
    system = System(pair, (), kinks=(ModelKink("g", (), ("t",), 18.0, below=below),))
    parts, _ = system.split(system.initial_boxes(), np.array([1]))
    assert [(int(a), int(b)) for a, b in zip(parts.low[:, 1], parts.high[:, 1], strict=True)] == [lower, upper]
    plain = replace(system, kinks=())
    again, _ = system.split(parts, np.array([1, 1]))
    halves, _ = plain.split(parts, np.array([1, 1]))
    assert (again.low == halves.low).all() and (again.high == halves.high).all()


def test_nested_products_find_the_first_and_last_value_that_holds_them_in_any_number_of_boxes():
    rng = np.random.default_rng(3)
    count = 1000  # more cases than are looked at at a time
    low = {name: rng.integers(1, 60, count).astype(float) for name in "abc"}
    high = low | {"c": low["c"] + rng.integers(0, 40, count)}
    least, most = Nested(("a", "b"), ("c",)).bounds("c", low, high)
    for i in range(count):
        product = low["a"][i] * low["b"][i]
        fit = [c for c in np.arange(low["c"][i], high["c"][i] + 1.0) if product % c == 0.0 or c % product == 0.0]
        if fit:
            assert (least[i], most[i]) == (fit[0], fit[-1])
        else:
            assert max(low["c"][i], least[i]) > min(high["c"][i], most[i])


def test_the_lesser_of_two_nested_numbers_is_at_most_half_the_other():
    """A rack below every domain of a box, 56 to 64, holds half a domain at most; one above two of the least at least."""
    system = System((Integer("g", 56, 64), Integer("r", 8, 40)), (Nested(("g",), ("r",)),))
    boxes, _ = system.propagate(system.initial_boxes())
    assert (boxes.low.tolist(), boxes.high.tolist()) == ([[56, 8]], [[64, 32]])
    above = System((Integer("g", 20, 24), Integer("r", 30, 100)), (Nested(("g",), ("r",)),))
    boxes, _ = above.propagate(above.initial_boxes())
    assert (boxes.low.tolist(), boxes.high.tolist()) == ([[20, 40]], [[24, 100]])


@pytest.mark.parametrize(
    ("chunks", "stages", "batches", "left"),
    [
        ((2, 4), (3, 3), (43, 44), []),  # no multiple of three
        ((2, 4), (3, 3), (40, 47), [(42, 45)]),
        ((1, 4), (3, 3), (43, 44), [(43, 44)]),  # stages without chunks need no whole rounds
        ((2, 4), (3, 4), (43, 44), [(43, 44)]),  # which rounds is not known
    ],
)
def test_steps_that_hold_from_a_value_on_narrow_boxes_in_which_they_do(chunks, stages, batches, left):
    own = Integer("v", *chunks), Integer("p", *stages), Integer("m", *batches)
    system = System(own, (ConditionalRelation("v", 2, Divides(("p",), ("m",))),))
    boxes, _ = system.propagate(system.initial_boxes())
    assert [(int(low), int(high)) for low, high in zip(boxes.low[:, 2], boxes.high[:, 2], strict=True)] == left


def inside(boxes, points):
    """Which points lie in some box: a thousand of them, where there are more."""
    points = points[:: 1 + len(points) // 1000]
    at = np.ones((len(points), len(boxes)), bool)
    for column, value in enumerate(points.T):
        at &= (boxes.low[:, column] <= value[:, None]) & (value[:, None] <= boxes.high[:, column])
    return at.any(axis=1)


@pytest.mark.parametrize("seed", rotated(SEEDS, 3))
def test_boxes_of_points_are_kept_or_dropped_as_they_are_valid(seed):
    """Propagation of a box that is a point says whether it is one, but for what a step alone decides."""
    system, _ = random_system(seed)
    points = brute(system)
    _, left = system.propagate(Boxes.of_points(points))
    assert len(left) == len(points)


def test_completion_draws_points_and_says_which_are_none():
    """Whole columns under jit: what is drawn keeps its relations wherever the ranges leave room."""
    system = System(
        (
            integer("t", (1, 64), among=divisors(48)),
            integer("d", (1, 1e4)),
            integer("m", (1, 1e4)),
            integer("p", (1, 12)),
        ),
        (
            ProductLimit(("t", "d"), (), 64.0, 4096.0, name="chips", follows="d"),
            ProductLimit(("d", "m"), (), 100.0, 5000.0, name="batch", follows="m"),
            at_most(("p",), 10.0),
        ),
        (DerivedColumns(("double",), ("p",), lambda p: (2.0 * p,)),),
    )
    rng = np.random.default_rng(0)
    cube = {"t": jnp.asarray(rng.random(4096)), "p": jnp.asarray(rng.random(4096))}
    wanted = {"chips": jnp.asarray(rng.uniform(64, 4096, 4096)), "batch": jnp.asarray(rng.uniform(100, 5000, 4096))}
    drawn = jax.jit(lambda cube, wanted: complete_points(system, wanted, cube))(cube, wanted)
    points = np.stack([np.asarray(drawn[name]) for name in system.names], axis=1)
    assert (points == np.round(points)).all() and (points >= 1).all()
    chips = points[:, 0] * points[:, 1]
    ends = (chips + points[:, 0] > 4096) | (chips - points[:, 0] < 64)
    away = np.abs(chips - wanted["chips"])
    assert (away <= points[:, 0] / 2 + 1e-3)[~ends].all() and (away <= points[:, 0]).all()  # the nearest inside the box
    missed = np.stack([np.asarray(each) & np.ones(4096, bool) for each in broken(system, drawn)]).any(axis=0)
    assert not missed.any()
    off = broken(system, {name: drawn[name] + 0.4 * (name == "p") for name in system.names})
    assert np.stack([np.asarray(each) & np.ones(4096, bool) for each in off]).any(axis=0).all()
    looked_up = system.quantities_at(drawn)
    np.testing.assert_allclose(np.asarray(looked_up["double"]), 2.0 * points[:, 3])
    np.testing.assert_allclose(np.asarray(looked_up["chips"]), chips)


def test_a_coordinate_with_no_value_in_its_range_has_no_point():
    system = System((integer("t", (33, 40), among=divisors(128)), integer("d", (1, 4))), ())
    assert not len(system.initial_boxes()) and count(system).points == 0 and not len(enumerate_points(system)["t"])
    assert not system.valid(np.array([[34, 1]])).any()


def test_pieces_hold_their_variable():
    system = System((Integer("x_piece", 1, 2, role=Role.root),), (), pieces=(RangePiece("x", (1.0, 10.0, 100.0)),))
    assert len(system.initial_boxes()) == 2
    assert [system.point({"x": value})[0] for value in (1.0, 10.0, 10.1, 100.0)] == [1, 1, 2, 2]
    assert system.without_pieces().names == ()


def test_a_product_without_a_column_is_what_the_machine_has():
    """A user's question that does not vary the domain: once a missing key."""
    domain = ProductLimit(("t", "g"), (), 16, 16, name="domain", follows="g")
    system = System((integer("t", (1, 8)), integer("g", (1, 16))), (domain,))
    assert system.coordinates_at({"t": 4.0})["g"] == 4.0 == system.coordinates_at({"t": 4.0, "domain": 16.0})["g"]


def test_an_unknown_coordinate_is_refused_where_it_is_declared():
    with pytest.raises(ValueError, match="names q, which is no coordinate"):
        System((integer("t", (1, 2)),), (at_most(("t", "q"), 4.0),))


# Relations that are not shipped, one line each.

MORE = {
    "a rack holds whole domains": (
        Divides(("tp", "groups"), ("chips_per_rack",)),
        lambda design: design["chips_per_rack"] % design["scale_up_domain"] == 0,
    ),
    "tensor parallelism fits the KV heads": (
        Divides(("tp",), (), multiple=8),
        lambda design: 8 % design["tp"] == 0,
    ),
    "stacks come in pairs": (
        Divides((), ("micro_batches",), constant=2),
        lambda design: (
            design["global_batch_sequences"] / (design["chips"] / design["tp"] / design["pp"] / design["cp"]) % 2 == 0
        ),
    ),
}


@pytest.fixture(scope="module")
def question():
    boxes = {"tp": (8.0, 16.0), "pp": (1.0, 2.0), "micro_batch": (1.0, 1.0), "virtual_stages": (1.0, 1.0),
             "chips_per_rack": (16.0, 24.0), "scale_up_domain": (8.0, 16.0), "cp": (1.0, 1.0), "zero": (1.0, 1.0)}  # fmt: skip
    asked = hwopt.objective(
        "train_cost", workload="llama3.1-70b", global_batch=2048.0, time_budget_s=60 * 86400.0, power_budget_w=4e7
    )
    return asked.problem().continuous.narrowed(boxes)


@pytest.fixture(scope="module")
def programmes(question):
    return NodeRelaxations(question, lattice_of(question))


@pytest.fixture(scope="module")
def free(programmes):
    with jax.enable_x64(True):
        return search(programmes, tolerance=3e-2)


@pytest.mark.parametrize("name", rotated(MORE, 6))
def test_a_further_relation_is_one_line(question, programmes, free, name):
    """Bounds, counts, draws and the proof follow from the declaration."""
    added, holds = MORE[name]
    plain = lattice_of(question)
    system = replace(plain, relations=(*plain.relations, added))
    assert 0 < count(system).points < count(plain).points
    with jax.enable_x64(True):
        result = search(programmes.within(question, system), tolerance=3e-2)
    assert result.complete and result.gap <= 3e-2 + 1e-12  # nodes are discarded at the tolerance, but for rounding
    best = system.design(result.point)
    assert holds(best) and system.valid(result.point[None])[0]
    assert result.value >= free.proved_bound - 1e-9  # less to choose from is no cheaper
    space = Space(question)
    space.__dict__["system"] = system.without_pieces()
    rng = np.random.default_rng(1)
    drawn = space.drawn({each: jnp.asarray(rng.random(512)) for each in space.coordinates})
    inside_box = np.asarray(space.outside(drawn)) == 0.0
    held = [
        holds({key: float(np.broadcast_to(x, 512)[i]) for key, x in drawn.items()}) for i in np.flatnonzero(inside_box)
    ]
    assert all(held)


HELD = {"cp": (1.0, 1.0), "zero": (1.0, 1.0)}


def test_the_default_lattice_has_as_many_designs_as_it_says():
    """Whole rounds of interleaved schedules and degrees that split key-value heads leave 57 % of those of the first edition."""
    counted = lambda question, boxes: count(lattice_of(question.problem().continuous.narrowed(boxes))).points
    plain, kinds = hwopt.objective("train_cost"), hwopt.objective("train_cost", recompute="best", offload="best")
    assert counted(plain, HELD) == 96_273_456_624
    few = {**HELD, "tp": (8.0, 8.0), "pp": (1.0, 8.0)}
    of_any = replace(kinds, any_software=True)
    # Three kinds of recomputation, three parts in one of two memories.
    assert counted(of_any, few) == 24 * counted(plain, few)
    # Of what NeMo documents: activations leave the chips without pipeline and recomputation, nothing else does.
    assert counted(kinds, few) == 3 * counted(plain, few) + counted(plain, {**few, "pp": (1.0, 1.0)})
    both = lattice_of(hwopt.objective("train_and_serve").problem().continuous)
    assert math.isfinite(count(both, effort=1e7).points)


def test_a_count_that_is_given_up_is_a_lower_bound():
    """Designs of a model with experts took longer to count than to search, those of a drawn chip minutes."""
    lattice = lattice_of(hwopt.objective("train_cost").problem().continuous.narrowed(HELD))
    every, some = count(lattice), count(lattice, effort=1e5)
    assert every.complete and str(every) == f"{every.points:,.0f}"
    assert not some.complete and 0 < some.points < every.points and str(some) == f"at least {some.points:,.0f}"
    drawn = hwopt.objective("train_cost", design="h100-sxm", workload="llama3.1-70b", global_batch=2048.0).problem()
    assert not count(lattice_of(drawn), effort=1e6).complete
