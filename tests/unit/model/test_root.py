"""Roots: the value found, and derivatives of the equation that they solve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import lambertw

from hwopt.model.facility.reliability import checkpoint_interval_s
from hwopt.model.numerics.root_finding import lambert_above_branch, root
from hwopt.trace.scalar_program import scalar_program
from hwopt.trace.simplify import simplified, slopes


def way(a):
    """To the root of `x^3 + x = a`."""
    return jax.lax.fori_loop(0, 30, lambda _, x: x - (x * x * x + x - a) / (3.0 * x * x + 1.0), a)


def solved(a):
    x = way(jax.lax.stop_gradient(a))
    return root(x, x * x * x + x - a, 3.0 * x * x + 1.0, 6.0 * x)


def test_derivatives_are_those_of_the_equation():
    with jax.enable_x64(True):
        a = jnp.asarray(3.7)
        x = float(solved(a))
        first = 1.0 / (3.0 * x * x + 1.0)
        assert x**3 + x == pytest.approx(3.7, rel=1e-14)
        assert float(jax.grad(solved)(a)) == pytest.approx(first, rel=1e-13)
        assert float(jax.grad(jax.grad(solved))(a)) == pytest.approx(-6.0 * x * first**3, rel=1e-12)


def test_inputs_that_move_the_slope_move_second_derivatives():
    """The root of `b x = c`, whose slope is an input."""

    def quotient(inputs):
        b, c = inputs
        near = jax.lax.stop_gradient(c / b)
        return root(near, b * near - c, b, jnp.zeros_like(b))

    with jax.enable_x64(True):
        at = jnp.array([1.7, 0.9])
        exact = jax.hessian(lambda x: x[1] / x[0])(at)
        np.testing.assert_allclose(jax.hessian(quotient)(at), exact, rtol=1e-13)


def test_what_carries_derivatives_costs_nothing_once_they_are_taken():
    """Columns of values hold the way to the root alone, those of slopes no trace of the second order."""
    alone, line = (scalar_program(lambda x, of=of: [of(x[0])], 1) for of in (way, solved))
    values, slope = simplified(line), simplified(slopes(line, (0,)))
    assert len(values.operations) == len(simplified(alone).operations)
    assert len(slope.operations) <= len(values.operations) + 6  # the slope once more, and a division
    x = values.on_numbers(np.array([3.7]))[0]
    np.testing.assert_allclose(slope.on_numbers(np.array([3.7]))[0], 1.0 / (3.0 * x**2 + 1.0), rtol=1e-13)


def test_lamberts_function_above_its_branch():
    distance = np.concatenate([np.geomspace(1e-12, 1e-2, 100), np.linspace(1e-2, np.sqrt(2.0), 1000)])
    with jax.enable_x64(True):
        found = np.asarray(lambert_above_branch(jnp.asarray(distance)))
    series = np.polynomial.Polynomial([0.0, 1.0, -1 / 3, 11 / 72, -43 / 540, 769 / 17280])(distance)
    exact = np.where(distance < 1e-2, series, 1.0 + lambertw((0.5 * distance**2 - 1.0) / np.e).real)
    np.testing.assert_allclose(found, exact, rtol=3e-11)  # 1 + W loses what is left of it


@pytest.mark.parametrize("save_over_mtbf", [1e-8, 1e-4, 1e-2, 0.3, 3.0, 30.0])
def test_derivatives_of_the_best_interval(save_over_mtbf):
    """By `s' = (1 - s) / s` and `s'' = -(1 - s) / s^3`, s the interval over the time between failures."""

    def share(delta):
        one = jnp.ones_like(delta)
        return checkpoint_interval_s(delta, one, 0.0 * one, lambda a, b: jnp.where(b > a, b, a))

    with jax.enable_x64(True):
        at = jnp.asarray(save_over_mtbf)
        s = float(share(at))
        left = float(np.exp(-(s + save_over_mtbf)))
        assert -np.expm1(-(s + save_over_mtbf)) == pytest.approx(s, rel=1e-12)
        assert float(jax.grad(share)(at)) == pytest.approx(left / s, rel=1e-12)
        assert float(jax.grad(jax.grad(share))(at)) == pytest.approx(-left / s**3, rel=1e-12)
