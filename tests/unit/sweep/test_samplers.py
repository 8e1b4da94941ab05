"""Sequences of variants: each point follows from its number, and each sequence is what it says."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import qmc

from hwopt.errors import UserError
from hwopt.sweeps.samplers import MOST_SOBOL, DesignTable, Grid, LatinHypercube, Sobol, permuted
from tests.tiers import turn

NAMES = [f"x{i}" for i in range(7)]


def tiles(sampler, firsts, tile, kind=np.float64):
    """Points of tiles (point, dimension), as the device makes them."""
    with jax.enable_x64(kind == np.float64):
        made = sampler.columns(
            jnp.asarray(sampler.tables(tile)), jnp.asarray(sampler.starts(np.asarray(firsts), tile)), np.dtype(kind)
        )
        return np.stack([np.asarray(each) for each in made], axis=1)


@pytest.mark.parametrize("dimensions", [1, 2, 7])
@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("first", [0, 64, 4096, 2**20, 3 * 2**20 + 64])
def test_sobol_equals_that_of_scipy(dimensions, seed, first):
    tile = 64
    theirs = qmc.Sobol(dimensions, scramble=True, bits=32, rng=np.random.default_rng(seed))
    if first:
        theirs.fast_forward(first)
    wanted = theirs.random(4 * tile)
    sampler = Sobol(NAMES[:dimensions], MOST_SOBOL, seed)
    found = tiles(sampler, range(first, first + 4 * tile, tile), tile)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("first", [2**31, 2**32 - 256])
def test_sobol_far_away(first):
    """SciPy steps through all points on its way: here each bit of the number's Gray code takes its direction."""
    sampler, theirs = Sobol(NAMES, MOST_SOBOL, 2), qmc.Sobol(7, scramble=True, bits=32, rng=np.random.default_rng(2))
    wanted = []
    for number in range(first, first + 64):
        gray, bits = number ^ (number >> 1), theirs._shift.astype(np.uint64)
        for bit in range(32):
            bits = bits ^ (theirs._sv[:, bit].astype(np.uint64) if gray >> bit & 1 else np.uint64(0))
        wanted.append(bits * 2.0**-32)
    np.testing.assert_array_equal(tiles(sampler, [first], 64), wanted)


@pytest.mark.parametrize("tile", [1, 32, 256])
def test_sobol_tiles_of_any_size_are_one_sequence(tile):
    sampler = Sobol(NAMES, 1024, 3)
    whole = tiles(sampler, [0], 1024)
    np.testing.assert_array_equal(tiles(sampler, range(0, 1024, tile), tile), whole)
    np.testing.assert_array_equal(tiles(sampler, [512, 0], 256), np.concatenate([whole[512:768], whole[:256]]))


def test_sobol_seeds_differ_and_repeat():
    made = [tiles(Sobol(NAMES, 64, seed), [0], 64) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(made[0], made[1])
    assert (made[0] != made[2]).all()


def test_sobol_in_float32_is_below_one():
    sampler, first = Sobol(["a", "b"], MOST_SOBOL, 0), turn() % 4 * 2**18
    own = range(first, first + 2**18, 2**16)
    found = tiles(sampler, own, 2**16, np.float32)
    assert found.dtype == np.float32 and (found >= 0).all() and (found < 1).all()
    np.testing.assert_allclose(found, tiles(sampler, own, 2**16), atol=2.0**-24)
    # The largest number of 32 bits too.
    with jax.enable_x64(False):
        tables = jnp.zeros((2, 1), jnp.uint32)
        ends = sampler.columns(tables, jnp.full((1, 2), 2**32 - 1, jnp.uint32), np.dtype(np.float32))
    assert float(ends[0][0]) < 1.0


def test_sobol_balance():
    points = tiles(Sobol(NAMES, 4096, 1), [0], 4096)
    for column in points.T:
        assert (np.bincount((column * 4096).astype(int), minlength=4096) == 1).all()


def test_sobol_has_an_end():
    with pytest.raises(UserError, match="4,294,967,296 points"):
        Sobol(["a"], MOST_SOBOL + 1, 0)


@pytest.mark.parametrize("count", [1, 2, 3, 16, 17, 97, 1024, 1025, 10007, 2**16, 65537])
def test_a_latin_hypercube_has_one_point_in_each_stratum(count):
    points = LatinHypercube(NAMES[:3], count, 4).points(np.arange(count))
    assert points.shape == (3, count)
    assert (points >= 0).all() and (points < 1).all() and (points.astype(np.float32) < 1).all()
    for row in points:
        assert (np.bincount(np.floor(row * count).astype(int), minlength=count) == 1).all()
    if count > 100:
        assert abs(np.corrcoef(points)[np.triu_indices(3, 1)]).max() < 4 / np.sqrt(count)


@pytest.mark.parametrize("count", [*range(1, 40), 255, 256, 257, 4095, 4096, 4097, 99_991])
def test_permutations_of_any_size(count):
    keys = np.random.default_rng(count).integers(0, 2**63, 4, dtype=np.uint64)
    made = permuted(np.arange(count), count, keys)
    np.testing.assert_array_equal(np.sort(made), np.arange(count))


def test_permutations_of_huge_counts_repeat_no_number():
    keys = np.random.default_rng(0).integers(0, 2**63, 4, dtype=np.uint64)
    numbers = np.concatenate([np.arange(50_000), 10**12 - 1 - np.arange(50_000)])
    made = permuted(numbers, 10**12, keys)
    assert len(np.unique(made)) == len(numbers) and made.min() >= 0 and made.max() < 10**12


@pytest.mark.parametrize(
    "sampler",
    [LatinHypercube(NAMES, 1000, 2), Grid({"a": [1, 2, 3], "b": range(1, 335)}), DesignTable({"a": range(1, 1001)})],
    ids=lambda x: type(x).__name__,
)
@pytest.mark.parametrize("tile", [1, 7, 64, 1000, 4096])
def test_points_do_not_depend_on_tiles(sampler, tile):
    whole = sampler.points(np.arange(sampler.count)).T
    found = tiles(sampler, range(0, sampler.count, tile), tile)
    np.testing.assert_array_equal(found[: sampler.count], whole)
    # Beyond the end the last point again.
    np.testing.assert_array_equal(found[sampler.count :], np.broadcast_to(whole[-1], found[sampler.count :].shape))


def test_a_grid_is_every_combination_the_last_fastest():
    held = {"a": [1.0, 2.0], "b": [5.0], "c": [3.0, 1.0, 4.0]}
    grid = Grid(held)
    assert grid.count == 6 and grid.names == ("a", "b", "c")
    np.testing.assert_array_equal(grid.points(np.arange(6)).T, list(itertools.product(*held.values())))


def test_a_table_is_as_listed():
    table = DesignTable({"a": [3.0, 1.0], "b": [2.0, 2.0]})
    assert table.count == 2
    np.testing.assert_array_equal(tiles(table, [0], 4), [[3, 2], [1, 2], [1, 2], [1, 2]])
