"""Scalar programs run by a loop of one table: values and derivatives of every order against JAX's own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt.trace.loop_program import LoopProgram
from hwopt.trace.scalar_program import scalar_program
from hwopt.trace.yield_primitive import dies_made


def arithmetic(x):
    a, b, c = x
    most = jnp.where((a > b) & (c > 0.5), a * b, jnp.maximum(b, c) ** 2.0)
    return jnp.stack([most + jnp.exp(-a) / c, jnp.log(a) * jnp.sqrt(b) + c**1.7, jnp.expm1(a * 0.1) - jnp.log1p(b)])


def silicon(x):
    """Long operations between short ones, one that needs the result of another, and one that takes it as it is."""
    made = dies_made(x[0], x[1], x[2], 3.0)
    return jnp.stack([made * x[0], dies_made(made * 0.1, x[1], x[2], 2.0 + x[0]), dies_made(made, x[1], x[2], 3.0)])


CASES = pytest.mark.parametrize("function", [arithmetic, silicon])
AT = np.array([0.7, 0.3, 1.9])


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


@CASES
def test_values_and_derivatives_equal_those_of_the_function(function):
    program, x = LoopProgram(scalar_program(function, 3)), jnp.asarray(AT)
    close = lambda a, b, by=1e-12: np.testing.assert_allclose(a, b, rtol=by, atol=by)
    close(program(x), function(x))
    for derivative in (jax.jacfwd, jax.jacrev):
        close(derivative(program)(x), derivative(function)(x), 1e-10)
    total = lambda f: lambda y: jnp.sum(f(y) ** 2)
    close(jax.hessian(total(program))(x), jax.hessian(total(function))(x), 1e-8)
    close(jax.jacrev(jax.jacrev(total(program)))(x), jax.hessian(total(function))(x), 1e-8)


@CASES
def test_a_batch_equals_its_points(function):
    program = LoopProgram(scalar_program(function, 3))
    points = jnp.asarray(AT) * jnp.linspace(0.5, 1.5, 6).reshape(2, 3, 1)  # (row, column, input)
    gradient = jax.grad(lambda y: jnp.sum(program(y)))
    for one in (program, gradient):
        both = jax.jit(jax.vmap(jax.vmap(one)))(points)
        alone = [[one(points[i, j]) for j in range(3)] for i in range(2)]
        np.testing.assert_allclose(both, np.asarray(alone), rtol=1e-12)


def test_numbers_keep_their_type():
    program = LoopProgram(scalar_program(arithmetic, 3))
    x = jnp.asarray(AT, jnp.float32)
    assert program(x).dtype == jax.grad(lambda y: program(y)[0])(x).dtype == jnp.float32
    np.testing.assert_allclose(program(x), arithmetic(jnp.asarray(AT)), rtol=1e-6)


def test_outputs_may_be_inputs_or_constants():
    program = LoopProgram(scalar_program(lambda x: jnp.stack([x[1], jnp.float64(2.0), x[1] * 3.0]), 2))
    np.testing.assert_array_equal(program(jnp.array([5.0, 7.0])), [7.0, 2.0, 21.0])
    np.testing.assert_array_equal(jax.jacrev(program)(jnp.array([5.0, 7.0])), [[0, 1], [0, 0], [0, 3]])
    np.testing.assert_array_equal(jax.jacfwd(program)(jnp.array([5.0, 7.0])), [[0, 1], [0, 0], [0, 3]])
