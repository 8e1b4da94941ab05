"""Tiles one after the other: whatever order threads end in, and whatever fails in them."""

from __future__ import annotations

import time
from functools import partial

import jax
import jax.numpy as jnp
import pytest

from hwopt.study.sweep.evaluator import AHEAD, in_order

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
