"""Derivatives of scalar operations against JAX's own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt.trace.derivatives import value_and_gradient
from hwopt.trace.scalar_program import NotScalarArithmetic, scalar_program
from tests.cases import KINDS, random_cases, to_vectors
from tests.gradient.elasticity import INPUTS, OUTPUTS, all_outputs, input_scale, output_scale
from tests.rotation import rotated
from tests.unit.trace.test_scalar_program import SMOOTH

COUNT = 5

KINKS = [
    lambda x: (jnp.maximum(x, x[0]), jnp.minimum(x, x[::-1]), jnp.maximum(x, 1.0) + jnp.abs(x - x[1])),
    lambda x: (jax.lax.stop_gradient(x) * x, jnp.floor(x) * x, jnp.sign(x - 1.5) * x, jnp.abs(-x)),
    lambda x: (x * 0.0 + 3.0, jnp.ones(2), x[2], x[3], x[3]),
    lambda x: jnp.clip(x, 0.8, 1.2) * x + jnp.exp2(x) * jax.lax.integer_pow(x, -3),
    lambda x: (jax.lax.clamp(x - 1, x[::-1], x + 1), jax.lax.clamp(x + 1, x, x - 1), jax.lax.clamp(x, x, x + 1)),
    lambda x: x ** jnp.array([0.0, 1.0, -2.0, 0.3, 3.0]) + x[0] ** x,
    lambda x: jnp.tanh(x) + jax.nn.sigmoid(x) + jax.scipy.special.erf(x) + jax.scipy.special.erfc(x),
    lambda x: (jnp.sin(x) + jnp.cos(x), jax.scipy.special.gammaln(x)),
    lambda x: (jax.lax.rem(5 * x, x[::-1]), jax.lax.rem(-5 * x, x[::-1]), x % 0.3),
]


def flat(function):
    return lambda x: jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(function(x))])


def everything(line, point):
    return value_and_gradient(line, point, range(len(line.outputs)))


@pytest.mark.parametrize("part", rotated(range(6), 3))
def test_equal_to_jax(part):
    """Functions a few at a time, so that few programs are compiled."""
    some = [*SMOOTH, *KINKS][part::6]
    function = flat(lambda x: [each(x) for each in some])
    points, line = np.random.default_rng(0).uniform(0.5, 3.0, (6, COUNT)), scalar_program(function, COUNT)
    with jax.enable_x64(True):
        wanted = jax.jit(jax.vmap(function))(points), jax.jit(jax.vmap(jax.jacrev(function)))(points)
    for x, values, slopes in zip(points, *map(np.asarray, wanted), strict=True):
        found = everything(line, x)
        np.testing.assert_allclose(found[0], values, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found[1], slopes, rtol=1e-11, atol=1e-12)


def test_what_has_no_rule_is_refused():
    line = scalar_program(lambda x: (jax.scipy.special.erfinv(x[0] / 4), x[0]), 1)
    with pytest.raises(NotScalarArithmetic, match="'erf_inv' has no derivative here"):
        everything(line, [1.0])
    assert value_and_gradient(line, [1.0], [1])[1].tolist() == [[1.0]]


def test_kinks_are_those_of_jax():
    function = lambda x: (
        jnp.maximum(x[0], x[1]),
        jnp.minimum(x[0], x[1]),
        jnp.abs(x - x[1]),
        jax.lax.clamp(x, x[::-1], x + 1),
    )
    x, line = jnp.array([2.0, 2.0, 3.0]), scalar_program(flat(function), 3)
    np.testing.assert_array_equal(everything(line, x)[1], jax.jacrev(flat(function))(x))
    assert everything(line, x)[1][:2].tolist() == [[0.5, 0.5, 0.0]] * 2


def test_shares_of_a_maximum_of_three_add_up():
    (slopes,) = everything(scalar_program(lambda x: jnp.max(x), 3), [2.0, 2.0, 2.0])[1]
    assert sorted(slopes) == [0.25, 0.25, 0.5]


def test_nothing_comes_through_what_is_not_chosen():
    """JAX multiplies the infinite slope of a root of 0 by 0, and that of a power of 0 too, and says nan."""

    def function(x):
        return (
            jnp.where(x[0] > 1.0, jnp.sqrt(x[0] - 1.0), 3.0 * x[0]),
            jnp.maximum(jnp.log(x[1]), x[0]),
            x[1] ** (x[0] - 1.0),
        )

    values, slopes = everything(scalar_program(function, 2), [1.0, 0.0])
    assert values.tolist() == [3.0, 1.0, 1.0] and slopes.tolist() == [[3.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
    by_jax = jax.jacrev(lambda x: jnp.stack(function(x)))(jnp.array([1.0, 0.0]))
    assert np.isnan(by_jax).any(axis=1).all()


def test_an_infinite_slope_stays_with_its_output():
    line = scalar_program(lambda x: (jnp.sqrt(x[0] * 2.0) + x[1], x[0] + x[1] * x[1]), 2)
    assert everything(line, [0.0, 3.0])[1].tolist() == [[np.inf, 1.0], [1.0, 6.0]]


def test_some_outputs_suffice():
    line = scalar_program(lambda x: (jnp.exp(x[0]), x[0] * x[1], x[0]), 2)
    values, slopes = value_and_gradient(line, [2.0, 3.0], [1, 2, 1])
    assert values.tolist() == [6.0, 2.0, 6.0] and slopes.tolist() == [[3.0, 2.0], [1.0, 0.0], [3.0, 2.0]]


@pytest.mark.parametrize("kind", rotated(KINDS, 2 * len(KINDS)))
def test_of_the_whole_model(kind):
    """Every number of a report by every input, against JAX's forward mode as scalar operations: to 1e-9, and to 1e-12 of
    the whole where a slope cancels to 0.
    """
    x = to_vectors(random_cases(np.random.default_rng(7), 3, kind))
    count = x.shape[1]
    line = scalar_program(all_outputs, count)
    forward = scalar_program(lambda each: jax.jvp(all_outputs, (each[:count],), (each[count:],))[1], 2 * count)
    for row in x:
        values, slopes = everything(line, row)
        columns = [*(np.full(count, each) for each in row), *np.eye(count)]
        expected = np.stack([np.broadcast_to(each, count) for each in forward.on_numbers(*columns)])
        assert np.isfinite(expected).all()
        unit = output_scale(values, OUTPUTS)[:, None] / input_scale(row)
        wrong = ~(np.abs(slopes - expected) <= 1e-9 * np.abs(expected) + 1e-12 * unit)
        assert not wrong.any(), [(OUTPUTS[i], INPUTS[j]) for i, j in np.argwhere(wrong)[:8]]
