"""Tiles one after the other: whatever order threads end in, and whatever fails in them."""

from __future__ import annotations

import math
import time
from functools import partial

import jax
import jax.numpy as jnp
import pytest

from hwopt.errors import UserError
from hwopt.sweeps.evaluator import AHEAD, COLUMNS, LEAST_TILE, SHARE, TILE, in_order, memory_of, tile_of

CPU = jax.devices("cpu")[:1]


def test_tiles_keep_their_order_and_precision():
    def slower_first(number):
        time.sleep(0.01 * (4 - number % 5))
        return number, jnp.asarray(1.0 + 1e-12)

    for wide in (False, True):
        with jax.enable_x64(wide):
            tiles = list(in_order((partial(slower_first, number) for number in range(20)), CPU))
        assert [number for number, _ in tiles] == list(range(20))
        assert all((float(x) > 1.0) is wide for _, x in tiles)


def test_no_more_tiles_are_started_than_are_waited_for_soon():
    begun = []
    calls = (partial(begun.append, number) for number in range(1000))
    tiles = in_order(calls, [*CPU, *CPU])  # which one thread feeds
    next(tiles)
    tiles.close()
    assert len(begun) <= 1 + AHEAD


def test_what_fails_in_a_thread_fails_where_it_is_asked_for():
    def third(number):
        if number == 3:
            raise OSError("no space")
        return number

    tiles = in_order((partial(third, number) for number in range(10)), CPU)
    assert [next(tiles) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="no space"):
        next(tiles)
    assert not list(tiles)


class Device:
    """A device that says what memory it has."""

    def __init__(self, said):
        self.said = said

    def memory_stats(self):
        return self.said


def test_memory_is_what_a_device_says_and_without_limit_where_it_says_nothing():
    assert memory_of(Device({"bytes_limit": 1 << 33, "bytes_in_use": 7})) == 2.0**33
    assert memory_of(Device(None)) == memory_of(Device({})) == memory_of(object()) == math.inf
    assert memory_of(CPU[0]) > 0.0


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("gigabytes", [4, 8, 16, 24, 40, 80, 141])
def test_the_tile_is_the_largest_power_of_two_that_fits(gigabytes, width):
    memory = gigabytes * 1e9
    tile = tile_of("gpu", memory, width)
    takes = lambda variants: variants * COLUMNS * width * (2 + AHEAD)
    assert takes(tile) <= SHARE * memory
    assert tile == min(TILE["gpu"], 2 ** math.floor(math.log2(SHARE * memory / takes(1))))
    assert tile == TILE["gpu"] or takes(2 * tile) > SHARE * memory


def test_tiles_of_known_devices():
    assert tile_of("cpu") == TILE["cpu"] and tile_of("rocm") == TILE["gpu"]
    assert tile_of("gpu", 80e9) == tile_of("gpu", 141e9) == TILE["gpu"]
    assert tile_of("gpu", 8e9) == 1 << 18  # half of 8 GB by 8 KiB a variant: 488,281
    assert tile_of("tpu", 16e9) == TILE["tpu"]
    with pytest.raises(UserError, match="JAX_PLATFORMS=cpu"):
        tile_of("gpu", 60e6)
    assert tile_of("gpu", LEAST_TILE * COLUMNS * 4 * (2 + AHEAD) / SHARE) == LEAST_TILE
