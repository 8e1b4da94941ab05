"""The augmented Lagrangian against problems whose optimum and multipliers are known in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from hwopt.solver.local.augmented_lagrangian import minimise_all, projected_gradient

COUNTS = np.asarray(24), np.asarray(260)


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def minimise(values, start, lower, upper, counts, **keywords):
    """One problem as a batch of one."""
    found = minimise_all(values, start[None], lower[None], upper[None], jnp.zeros(1), counts, **keywords)
    return jax.tree.map(lambda leaf: leaf[0], found)


def solve(values, start, lower, upper, **keywords):
    run = jax.jit(lambda s: minimise(values, s, jnp.asarray(lower), jnp.asarray(upper), COUNTS, **keywords))
    return run(jnp.asarray(start))


def test_largest_box_in_a_simplex_and_its_multiplier():
    # max x y z with x + y + z <= 1, in logarithms: all 1/3, and d(-log xyz)/d log(budget) = 3.
    values = lambda y, _: (-jnp.sum(y), jnp.stack([jax.nn.logsumexp(y)]))
    found = solve(values, np.log([0.5, 0.1, 0.2]), np.full(3, -9.0), np.zeros(3))
    np.testing.assert_allclose(np.exp(found.y), 1 / 3, rtol=2e-4)
    np.testing.assert_allclose(found.multipliers, [3.0], rtol=1e-3)
    assert found.constraints.max() < 1e-4
    assert found.residual < 1e-2


@pytest.mark.parametrize(("weight", "limit"), [(2.0, 1.0), (0.5, 1.0), (8.0, 0.3)])
def test_budget_that_binds_and_budget_that_does_not(weight, limit):
    # min weight/x + x, optimum sqrt(weight) unless x <= limit binds; elasticity then weight/limit - limit over the value.
    values = lambda y, _: (jnp.log(weight * jnp.exp(-y[0]) + jnp.exp(y[0])), y - jnp.log(limit))
    found = solve(values, [0.0], [-3.0], [3.0])
    x = min(np.sqrt(weight), limit)
    value = weight / x + x
    np.testing.assert_allclose(np.exp(found.y[0]), x, rtol=2e-4)
    expected = (weight / x - x) / value if limit < np.sqrt(weight) else 0.0
    np.testing.assert_allclose(found.multipliers[0], expected, atol=2e-3)


def test_variable_against_its_box_has_no_projected_gradient():
    values = lambda y, _: (jnp.sum(y), jnp.asarray([-1.0]))
    found = solve(values, [0.3, 0.7], [0.0, 0.2], [1.0, 1.0])
    np.testing.assert_allclose(found.y, [0.0, 0.2], atol=1e-6)
    assert found.residual == 0.0


def test_projected_gradient_keeps_what_points_inward():
    gradient, y = jnp.asarray([1.0, -1.0, 1.0, -1.0]), jnp.asarray([0.0, 0.0, 1.0, 1.0])
    projected = projected_gradient(gradient, y, jnp.zeros(4), jnp.ones(4))
    np.testing.assert_array_equal(projected, [0.0, -1.0, 1.0, 0.0])


def test_any_optax_transformation_serves():
    values = lambda y, _: (-jnp.sum(y), jnp.stack([jax.nn.logsumexp(y)]))
    found = solve(
        values, np.log([0.5, 0.1, 0.2]), np.full(3, -9.0), np.zeros(3), transformation=optax.scale_by_belief()
    )
    np.testing.assert_allclose(np.exp(found.y), 1 / 3, rtol=5e-3)


def test_mapped_equals_single():
    values = lambda y, _: (-jnp.sum(y), jnp.stack([jax.nn.logsumexp(y)]))
    starts = np.log(np.random.default_rng(0).uniform(0.05, 0.9, (4, 3)))
    lower, upper = jnp.full(3, -9.0), jnp.zeros(3)
    mapped = jax.vmap(lambda s: minimise(values, s, lower, upper, COUNTS))(jnp.asarray(starts))
    single = minimise(values, jnp.asarray(starts[2]), lower, upper, COUNTS)
    np.testing.assert_allclose(mapped.y[2], single.y, rtol=1e-9)
