"""What is left of a block against every row of it, whatever tiles it came in."""

from __future__ import annotations

import dataclasses
import itertools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt.sweeps import reductions
from hwopt.sweeps.program import OUTCOMES, PARTS
from hwopt.sweeps.reductions import BEST, INFEASIBLE, Block, Edges, Reduction, best_of, cells_of, front_of

BINNED = Edges(1.0, 100.0, 8)
ACROSS, UP = Edges(1.0, 10.0, 5), Edges(1.0, 10.0, 4)
CONSTRAINTS = 3


@cache  # with its compiled programs
def reduction(pareto=("cost", "time"), mapped=True, remote=False):
    return Reduction(
        variables=("a", "b"),
        objective="cost",
        pareto=pareto,
        histograms={"cost": BINNED},
        map_x=("a", ACROSS) if mapped else None,
        map_y=("b", UP) if mapped else None,
        constraints=CONSTRAINTS,
        remote=remote,
    )


@cache
def remote(sent):
    """One that sends so many rows along, compiled while `SENT` says so."""
    return dataclasses.replace(reduction(remote=True))


def rows(count, seed=0, ties=False, outcomes=(0, 1, 2), low=0.2, high=500.0):
    """Columns as an evaluator gives them; values reach beyond the histogram, variables beyond the map."""
    rng = np.random.default_rng(seed)

    def drawn(low, high):
        made = np.exp(rng.uniform(np.log(low), np.log(high), count)).astype(np.float32)
        return np.maximum(np.round(made), 1).astype(np.float32) if ties else made

    finite = rng.uniform(size=count) > 0.05
    outcome = np.where(finite, rng.choice(outcomes, count), 0).astype(np.int8)
    violation = np.where(outcome == 2, -1.0, rng.uniform(0.01, 2.0, count)).astype(np.float32)
    cost = drawn(low, high)
    if ties:
        violation = np.round(violation, 1)
    cost[~finite] = np.where(rng.uniform(size=(~finite).sum()) < 0.5, np.nan, np.inf)
    return {
        "cost": cost, "time": drawn(1.0, 30.0), "power": drawn(1.0, 30.0), "a": drawn(0.5, 20.0), "b": drawn(0.5, 20.0),
        "outcome": outcome, "finite": finite, "contends": (outcome == 2) | ((outcome == 1) & (rng.uniform(size=count) < 0.7)),
        "violation": np.where(finite, violation, 1e30).astype(np.float32),
        "bottleneck": rng.integers(0, len(PARTS), count).astype(np.int8),
        "binding": rng.integers(0, CONSTRAINTS, count).astype(np.int8),
    }  # fmt: skip


TILE = 1024


def block(made, columns, cuts, first=0):
    """A block fed the columns cut at some places, each tile filled up with rows that do not count."""
    held = Block(made)
    ends = [0, *sorted(cuts), len(columns["cost"])]
    for begin, end in itertools.pairwise(ends):
        if begin < end:
            tile = {
                name: jnp.asarray(np.append(x[begin:end], np.resize(x, TILE - end + begin)))
                for name, x in columns.items()
            }
            held.finish(held.begin(first + begin, tile | made.compiled_codes(tile), end - begin))
    return held.arrays()


def ranks(columns):
    with np.errstate(all="ignore"):
        cost = np.asarray(jnp.log(columns["cost"]))
    missed = (2 - columns["outcome"]) * np.float32(INFEASIBLE) + columns["violation"]
    rank = np.where(columns["outcome"] == 2, cost, missed).astype(np.float32)
    return np.where(columns["finite"], rank, np.float32(np.inf))


def brute_front(columns, axes):
    """Contending rows that no other dominates; of equal ones the first."""
    own = np.flatnonzero(columns["contends"])
    points = np.stack([columns[name][own] for name in axes], axis=1)
    kept = []
    for i, point in enumerate(points):
        as_good = (points <= point).all(axis=1)
        better = as_good & (points < point).any(axis=1)
        earlier = (points[:i] == point).all(axis=1)
        if not better.any() and not earlier.any():
            kept.append(own[i])
    return np.array(kept, int)


def expected_bins(values):
    edges = BINNED.values
    return np.clip(np.searchsorted(edges, np.nan_to_num(values, nan=0.0), side="right") - 1, 0, BINNED.count - 1)


CUTS = [[], [500], [1, 2, 3], list(range(0, 1000, 37)), [999]]


@pytest.fixture(scope="module", params=[False, True], ids=["distinct", "ties"])
def columns(request):
    return rows(1000, ties=request.param)


@pytest.mark.parametrize("cuts", CUTS, ids=lambda cuts: f"{len(cuts)} cuts")
def test_counts(columns, cuts):
    made = block(reduction(), columns, cuts)
    outcome = columns["outcome"]
    wanted = [1000, (outcome > 0).sum(), (outcome == 2).sum(), (~columns["finite"]).sum()]
    np.testing.assert_array_equal(made["counts"], wanted)
    for name, codes, count in (
        ("bottleneck_count", columns["bottleneck"], len(PARTS)),
        ("binding_count", columns["binding"], CONSTRAINTS),
        ("histogram_cost", expected_bins(columns["cost"]), BINNED.count),
    ):
        table = np.zeros((len(OUTCOMES), count), int)
        np.add.at(table, (outcome, codes), 1)
        if name == "histogram_cost" and (columns["cost"] == 1).any():
            assert made[name].sum() == 1000  # whole numbers may stand on an edge, which rounding decides
        else:
            np.testing.assert_array_equal(made[name], table)


@pytest.mark.parametrize("cuts", CUTS, ids=lambda cuts: f"{len(cuts)} cuts")
def test_best(columns, cuts):
    made = block(reduction(), columns, cuts, first=7000)
    order = np.lexsort((np.arange(1000), ranks(columns)))[:BEST]
    np.testing.assert_array_equal(made["best_variant"], 7000 + order)
    np.testing.assert_allclose(made["best_rank"], ranks(columns)[order], rtol=1e-6)
    for place, name in enumerate(("a", "b")):
        np.testing.assert_array_equal(made["best_values"][:, place], columns[name][order])


@pytest.mark.parametrize("pareto", [("cost", "time"), ("cost", "time", "power")], ids=len)
@pytest.mark.parametrize("cuts", CUTS, ids=lambda cuts: f"{len(cuts)} cuts")
def test_front(columns, cuts, pareto):
    made = block(reduction(pareto), columns, cuts, first=50)
    wanted = brute_front(columns, pareto)
    held = made["front_variant"] >= 0
    assert sorted(made["front_variant"][held] - 50) == sorted(wanted) and made["front_dropped"] == 0
    at = made["front_variant"][held] - 50
    for place, name in enumerate(("a", "b", *pareto)):
        np.testing.assert_array_equal(made["front_values"][held, place], columns[name][at])
    np.testing.assert_array_equal(made["front_outcome"][held], columns["outcome"][at])
    np.testing.assert_array_equal(made["front_bottleneck"][held], columns["bottleneck"][at])


@pytest.mark.parametrize("cuts", CUTS, ids=lambda cuts: f"{len(cuts)} cuts")
def test_map(columns, cuts):
    made = block(reduction(), columns, cuts)
    objective, bottleneck = cells_of(made["cells"])
    cell = np.asarray(UP.number(jnp.asarray(columns["b"]))) * ACROSS.count + np.asarray(
        ACROSS.number(jnp.asarray(columns["a"]))
    )
    for number in range(ACROSS.count * UP.count):
        own = np.flatnonzero((cell == number) & (columns["outcome"] > 0))
        if not len(own):
            assert np.isnan(objective[number]) and bottleneck[number] == -1
            continue
        least = columns["cost"][own].min()
        assert objective[number] == least
        # Among equals the part that comes first.
        assert bottleneck[number] == columns["bottleneck"][own][columns["cost"][own] == least].min()


@pytest.mark.parametrize("cuts", CUTS, ids=lambda cuts: f"{len(cuts)} cuts")
def test_tiles_change_nothing(columns, cuts):
    one = block(reduction(), columns, [])
    other = block(reduction(), columns, cuts)
    assert one.keys() == other.keys()
    for name, x in one.items():
        np.testing.assert_array_equal(other[name], x, err_msg=name)


@pytest.mark.parametrize("sent", [1, 40, TILE], ids=lambda sent: f"{sent} rows sent along")
@pytest.mark.parametrize("cuts", CUTS, ids=lambda cuts: f"{len(cuts)} cuts")
def test_memory_of_its_own_changes_nothing(columns, cuts, sent, monkeypatch):
    """An accelerator sends marked rows along with its counts, or whole columns where there are too many."""
    one = block(reduction(), columns, cuts)
    monkeypatch.setattr(reductions, "SENT", sent)
    other = block(remote(sent), columns, cuts)
    assert one.keys() == other.keys()
    for name, x in one.items():
        np.testing.assert_array_equal(other[name], x, err_msg=name)


def test_many_equal_ranks_beyond_the_last_kept():
    """Of a thousand equal ones the first are kept, whatever tiles they came in."""
    columns = rows(1000, ties=True)
    columns["cost"][:] = 5.0
    columns["finite"][:] = True
    columns["outcome"][:] = 2
    columns["contends"][:] = True
    for cuts in ([], [300], [10, 20, 900]):
        np.testing.assert_array_equal(block(reduction(), columns, cuts)["best_variant"], np.arange(BEST))


def test_merged_blocks_equal_one(columns):
    parts = [slice(0, 400), slice(400, 401), slice(401, 1000)]
    apart = [block(reduction(), {n: x[p] for n, x in columns.items()}, [], first=p.start) for p in parts]
    whole = block(reduction(), columns, [])
    for name in ("counts", "bottleneck_count", "binding_count", "histogram_cost"):
        np.testing.assert_array_equal(sum(each[name] for each in apart), whole[name])
    np.testing.assert_array_equal(np.min([each["cells"] for each in apart], axis=0), whole["cells"])
    joined = {name: np.concatenate([each[f"best_{name}"] for each in apart]) for name in ("rank", "variant")}
    held = joined["variant"] >= 0
    best = best_of({name: x[held] for name, x in joined.items()})
    np.testing.assert_array_equal(best["variant"], whole["best_variant"])
    variant = np.concatenate([each["front_variant"] for each in apart])
    values = np.concatenate([each["front_values"] for each in apart])
    found = front_of(
        {"variant": variant[variant >= 0], "x": values[variant >= 0, 2], "y": values[variant >= 0, 3]}, ("x", "y")
    )
    np.testing.assert_array_equal(found["variant"], whole["front_variant"][whole["front_variant"] >= 0])


@pytest.mark.parametrize("nothing", ["impossible", "not finite"])
def test_nothing_possible(nothing):
    columns = rows(100, outcomes=(0,))
    if nothing == "not finite":
        columns["finite"][:] = False
        columns["cost"][:] = np.nan
    made = block(reduction(), columns, [40])
    assert made["counts"].tolist()[:3] == [100, 0, 0]
    assert (made["front_variant"] == -1).all() and np.isnan(made["front_values"]).all()
    assert np.isnan(cells_of(made["cells"])[0]).all()
    assert (made["best_variant"] >= 0).any() == (nothing == "impossible")


def test_an_empty_block():
    made = Block(reduction()).arrays()
    assert not made["counts"].any() and (made["best_variant"] == -1).all() and np.isnan(made["best_values"]).all()


def test_without_map_and_front():
    made = block(reduction((), False), rows(50), [20])
    assert "front_variant" not in made and made["cells"].shape == (0,)


def test_fronts_beyond_the_room_for_them(monkeypatch):
    monkeypatch.setattr(reductions, "FRONT", 16)
    columns = rows(400, outcomes=(1, 2))
    columns["finite"][:] = columns["contends"][:] = True
    columns["cost"] = np.linspace(1, 50, 400, dtype=np.float32)
    columns["time"] = columns["cost"][::-1].copy()  # every row is on the front
    for cuts in ([], [100, 250]):
        made = block(reduction(), columns, cuts)
        kept = made["front_variant"][made["front_variant"] >= 0]
        assert made["front_dropped"] == 384 and len(kept) == 16 and {0, 399} <= set(kept.tolist())


def test_fronts_of_float64_columns():
    """Points that float32 could not tell apart are all on the front, whatever tiles they came in."""
    count = 200
    step = np.arange(count) * 1e-9
    columns = rows(count, outcomes=(2,)) | {"cost": 5.0 + 2.2e-7 - step, "time": 3.0 + step}  # rounded, below all
    columns["finite"][:] = columns["contends"][:] = True
    columns["outcome"][:] = 2
    with jax.enable_x64(True):
        for cuts in ([], [50, 120]):
            made = block(reduction.__wrapped__(), columns, cuts)
            assert sorted(made["front_variant"][made["front_variant"] >= 0]) == list(range(count))


def test_bins():
    inside = np.sqrt(BINNED.values[1:] * BINNED.values[:-1])
    np.testing.assert_array_equal(BINNED.number(jnp.asarray(inside, jnp.float32)), np.arange(8))
    strange = jnp.asarray([0.0, -1.0, np.nan, 1e-30, 1e30, np.inf], jnp.float32)
    np.testing.assert_array_equal(BINNED.number(strange), [0, 0, 0, 0, 7, 7])
