"""A function as one operation: its value, slopes and ends, and what a reading makes of it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt.solver.gp.reader import read_line
from hwopt.solver.gp.signomial import Algebra, number
from hwopt.trace.derivatives import value_and_gradient
from hwopt.trace.monotone_primitives import EITHER, FALLS, FIXED, RISES, MonotonePrimitive
from hwopt.trace.scalar_program import scalar_program
from tests.in_numpy import in_numpy

WAVES = MonotonePrimitive(
    "tests_waves", lambda a, b, c, d: a * a / b + jnp.abs(c - 2.0) * d, (RISES, FALLS, EITHER, FIXED)
)


def plain(a, b, c, d):
    return a * a / b + np.abs(c - 2.0) * d


def test_it_is_the_function_wherever_it_runs():
    rows = np.random.default_rng(0).uniform(0.5, 3.0, (6, 4))
    wanted = plain(*rows.T)
    with jax.enable_x64(True):
        np.testing.assert_allclose(WAVES(*rows.T), wanted, rtol=1e-12)
        np.testing.assert_allclose(jax.jit(jax.vmap(lambda row: WAVES(*row)))(rows), wanted, rtol=1e-12)
        slopes = jax.vmap(jax.grad(lambda row: WAVES(*row)))(jnp.asarray(rows))
    np.testing.assert_allclose(WAVES.on_numbers(*rows.T), wanted, rtol=1e-12)
    np.testing.assert_allclose(in_numpy(lambda row: WAVES(*row))(rows), wanted, rtol=1e-12)
    line = scalar_program(lambda x: WAVES(*x), 4)
    assert [each.name for each in line.operations] == ["tests_waves"]
    for row, wanted_slopes in zip(rows, slopes, strict=True):
        np.testing.assert_allclose(WAVES.slopes(*row), wanted_slopes, rtol=1e-12)
        np.testing.assert_allclose(value_and_gradient(line, row, [0])[1][0], wanted_slopes, rtol=1e-12)


def test_its_ends_in_a_box_are_at_corners():
    low, high = np.array([[1.0], [2.0], [0.5], [1.0]]), np.array([[2.0], [4.0], [1.5], [1.0]])
    assert WAVES.least(*low, *high) == pytest.approx(plain(1.0, 4.0, 1.5, 1.0))
    assert WAVES.most(*low, *high) == pytest.approx(plain(2.0, 2.0, 0.5, 1.0))


def test_a_reading_knows_its_range_and_its_value_at_points():
    """As an atom known by its ends in a box, as a number where all is known."""
    algebra = Algebra()
    line = scalar_program(lambda x: 3.0 * WAVES(x[0], x[1], x[2], 1.0), 3)
    ends = ((1.0, 2.0), (2.0, 4.0), (0.5, 1.5))
    (read,) = read_line(line, [algebra.variable("", *each) for each in ends], algebra)
    low, high = algebra.range(read)
    assert low[0] == pytest.approx(3.0 * plain(1.0, 4.0, 1.5, 1.0)) and high[0] == pytest.approx(
        3.0 * plain(2.0, 2.0, 0.5, 1.0)
    )
    (known,) = read_line(line, [number(each[0]) for each in ends], Algebra())
    assert known.constant == pytest.approx(3.0 * plain(1.0, 2.0, 0.5, 1.0))
