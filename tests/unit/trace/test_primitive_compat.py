"""Operations that newer releases of JAX name are read as what they stand for, values and derivatives, on every release."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt.trace.derivatives import value_and_gradient
from hwopt.trace.scalar_program import NotScalarArithmetic, scalar_program

POINT = np.array([0.75, 2.5])


@jax.custom_jvp
def exp_neg_sq(x):
    """As jax 0.12 has it: with arithmetic of bits, here of no effect."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint64)
    return jnp.exp(-(jax.lax.bitcast_convert_type(bits & jnp.uint64(0xFFFFFFFFFFFFFFFF), x.dtype) ** 2))


exp_neg_sq.defjvp(lambda given, along: (exp_neg_sq(given[0]), -2.0 * given[0] * exp_neg_sq(given[0]) * along[0]))


def test_a_call_whose_name_is_known_is_its_formula():
    line = scalar_program(lambda x: (exp_neg_sq(x[0]) * x[1], exp_neg_sq(x[1])), 2)
    assert {each.name for each in line.operations} <= {"mul", "neg", "exp"}
    values, slopes = value_and_gradient(line, POINT, range(2))
    a, b = POINT
    np.testing.assert_allclose(values, [b * np.exp(-a * a), np.exp(-b * b)], rtol=1e-15)
    expected = [[-2 * a * b * np.exp(-a * a), np.exp(-a * a)], [0.0, -2 * b * np.exp(-b * b)]]
    np.testing.assert_allclose(slopes, expected, rtol=1e-15)


def test_a_call_of_another_name_with_bits_inside_is_refused():
    other = jax.custom_jvp(lambda x: exp_neg_sq.fun(x))
    other.defjvp(lambda given, along: (other(given[0]), along[0]))
    with pytest.raises(NotScalarArithmetic, match="bitcast_convert_type"):
        scalar_program(lambda x: (other(x[0]),), 2)


def test_logarithms_to_base_2():
    values, slopes = value_and_gradient(scalar_program(lambda x: (jnp.log2(x[0] * x[1]),), 2), POINT, [0])
    np.testing.assert_allclose(values, [np.log2(POINT.prod())], rtol=1e-15)
    np.testing.assert_allclose(slopes, [1.0 / (POINT * np.log(2.0))], rtol=1e-15)


def test_the_slope_of_the_normal_distribution_is_read():
    """Its derivative is what jax 0.12 names; ndtr stands in the share of the year that chillers run."""
    line = scalar_program(lambda x: (jax.jvp(jax.scipy.special.ndtr, (x[0],), (x[1],))[1],), 2)
    density = np.exp(-0.5 * POINT[0] ** 2) / np.sqrt(2.0 * np.pi)
    np.testing.assert_allclose(line.on_numbers(*POINT[:, None]), [[density * POINT[1]]], rtol=1e-14)
