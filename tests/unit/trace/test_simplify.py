"""Operations rewritten for columns: the same numbers, fewer dear operations, and derivatives that are JAX's own."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt.trace.scalar_program import scalar_program
from hwopt.trace.simplify import simplified, slopes

COUNT = 3

# Function of three numbers between 0.5 and 3, and how many operations of each kind are left of the dear ones.
REWRITTEN = {
    "exponential of a logarithm": (lambda x: jnp.exp(jnp.log(x[0] * x[1])), {}),
    "of its negative": (lambda x: jnp.exp(-jnp.log(x[0] / x[1])), {"div": 1}),
    "of a choice": (lambda x: jnp.exp(jnp.where(x[0] > 1, -jnp.log(x[1]), 0.5)), {"div": 1}),
    "of a number behind a choice": (lambda x: jnp.exp(jnp.where(x[0] > 1, x[1], 0.5)), {"exp": 1}),
    "one divisor": (lambda x: (x[1] / x[0], x[2] / x[0], 2.0 / x[0]), {"div": 1}),
    "divisors of their own": (lambda x: (x[1] / x[0], x[0] / x[1]), {"div": 2}),
    "quotient below a fraction": (lambda x: 1.0 / (x[0] / x[1]), {"div": 1}),
    "broken power": (lambda x: x[0] ** 0.3, {"exp": 1, "log": 1}),
    "whole powers": (lambda x: (x[0] ** 2.0, x[1] ** 3.0), {"pow": 1}),
    "differences turned": (lambda x: (-(x[0] - x[1]), jnp.negative(-x[2]), x[0] + -x[1], -x[0] + x[1]), {}),
}


@pytest.mark.parametrize("name", REWRITTEN)
def test_fewer_dear_operations_and_the_same_numbers(name):
    function, left = REWRITTEN[name]
    line = scalar_program(function, COUNT)
    made = simplified(line)
    kinds = Counter(each.name for each in made.operations)
    assert {each: kinds[each] for each in ("exp", "log", "div", "pow") if kinds[each]} == left
    columns = np.random.default_rng(0).uniform(0.5, 3.0, (COUNT, 100))
    for found, expected in zip(made.on_numbers(*columns), line.on_numbers(*columns), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14)


def smooth(x):
    a = x[0] / (x[1] * x[2]) + jnp.log(x[1]) * x[2] ** 0.3
    return jnp.where(a > 1.0, a * jnp.exp(-x[0]), jnp.sqrt(a * a + x[2])) / x[1]


def test_slopes_are_those_of_the_function():
    line = slopes(scalar_program(smooth, COUNT), (2, 0))
    rows = np.random.default_rng(1).uniform(0.5, 3.0, (50, COUNT))
    with jax.enable_x64(True):
        expected = jax.vmap(jax.grad(smooth))(rows)
    for made in (line, simplified(line)):
        np.testing.assert_allclose(np.stack(made.on_numbers(*rows.T), 1), expected[:, [2, 0]], rtol=1e-12)


def test_no_divisor_is_squared():
    """Beyond the square root of the largest float32 a square is infinite, and a slope by it nothing."""
    line = simplified(slopes(scalar_program(lambda x: x[0] / x[1], 2), (0, 1)))
    large, small = (jnp.asarray([x], jnp.float32) for x in (1e30, 1e-30))
    np.testing.assert_allclose(np.stack(line(large, large)), [[1e-30], [-1e-30]], rtol=1e-6)
    np.testing.assert_allclose(np.stack(line(small, small)), [[1e30], [-1e30]], rtol=1e-6)
