"""Dies made for each that can be sold: against SciPy's beta function, a simulation, its own differences, and its convexity."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import betainc

from hwopt.trace.scalar_program import scalar_program
from hwopt.trace.yield_primitive import dies_made, on_numbers, slopes
from tests.in_numpy import in_numpy


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


RNG = np.random.default_rng(0)


def points(count, whole=False):
    """Defects in both areas, spares, clustering."""
    logs = RNG.uniform(np.log([1e-3, 1e-3, 1.0]), np.log([2.0, 3.0, 40.0]), (count, 3))
    fixed, open_to_repair, clustering = np.exp(logs).T
    spares = RNG.integers(0, 20, count).astype(float) if whole else RNG.uniform(0.0, 20.0, count)
    return np.stack([fixed, open_to_repair, spares, clustering], axis=1)


def test_it_is_the_incomplete_beta_function_compiled_and_in_numpy():
    rows = points(200)
    fixed, open_to_repair, spares, clustering = rows.T
    x = (clustering + fixed) / (clustering + fixed + open_to_repair)
    wanted = (1.0 + fixed / clustering) ** clustering / betainc(clustering, spares + 1.0, x)
    np.testing.assert_allclose(on_numbers(*rows.T), wanted, rtol=1e-13)
    np.testing.assert_allclose(dies_made(*rows.T), wanted, rtol=1e-10)
    np.testing.assert_allclose(jax.vmap(lambda row: dies_made(*row))(rows), wanted, rtol=1e-10)
    np.testing.assert_allclose(jax.jit(dies_made)(*rows.T), wanted, rtol=1e-10)


def test_it_counts_defects_that_come_in_clusters():
    fixed, open_to_repair, spares, clustering = 0.2, 0.6, 1, 3.0
    rate = RNG.gamma(clustering, 1.0 / clustering, 400_000)
    sold = (RNG.poisson(rate * fixed) == 0) & (RNG.poisson(rate * open_to_repair) <= spares)
    assert float(dies_made(fixed, open_to_repair, spares, clustering)) == pytest.approx(1.0 / sold.mean(), rel=5e-3)


@pytest.mark.parametrize("whole", [False, True])
def test_slopes_are_those_of_jax_and_of_differences(whole):
    rows = points(40, whole)
    by_jax = np.asarray(jax.jit(jax.vmap(jax.grad(lambda row: jnp.log(dies_made(*row)))))(jnp.asarray(rows)))
    for row, wanted in zip(rows, by_jax, strict=True):
        np.testing.assert_allclose(slopes(*row), wanted, rtol=1e-9, atol=1e-13)
    rows, by_jax, step = rows[rows[:, 2] > 1], by_jax[rows[:, 2] > 1], 1e-6
    for column in range(4):
        moved = rows[:, column] * step
        up, down = (rows + sign * moved[:, None] * (np.arange(4) == column) for sign in (1, -1))
        difference = np.log(on_numbers(*up.T) / on_numbers(*down.T)) / (2.0 * moved)
        np.testing.assert_allclose(by_jax[:, column], difference, rtol=1e-4, atol=1e-7)


def test_without_spares_or_repairs_it_is_the_plain_yield():
    assert float(dies_made(0.3, 0.5, 0.0, 10.0)) == pytest.approx(1.08**10, rel=1e-13)
    assert float(dies_made(0.3, 0.0, 0.0, 10.0)) == pytest.approx(1.03**10, rel=1e-13)
    slope = jax.grad(lambda h: dies_made(0.3, h, 0.0, 10.0))(0.0)
    assert float(slope) == pytest.approx(1.03**9, rel=1e-12)


def test_it_is_one_scalar_operation():
    line = scalar_program(lambda x: jnp.sum(dies_made(x[:2], 2 * x[:2], 3.0, 10.0)), 2)
    assert [each.name for each in line.operations].count("dies_made") == 2
    np.testing.assert_allclose(
        in_numpy(lambda x: dies_made(x, x, 1.0, 10.0))(np.ones((1, 3)))[0], float(dies_made(1.0, 1.0, 1.0, 10.0))
    )


def test_it_is_log_log_convex_in_both_areas():
    def logarithm(u, spares, clustering):
        return jnp.log(dies_made(jnp.exp(u[0]), jnp.exp(u[1]), spares, clustering))

    rows = points(500)
    bends = jax.jit(jax.vmap(jax.hessian(logarithm)))(np.log(rows[:, :2]), rows[:, 2], rows[:, 3])
    assert np.linalg.eigvalsh(np.asarray(bends)).min() > -1e-9


@pytest.mark.parametrize("kind", [jnp.float32, jnp.float64])
def test_kinds_stay(kind):
    assert dies_made(kind(0.1), kind(0.2), kind(1), kind(10)).dtype == kind
    assert dies_made(0.1, kind(0.2), 1, 10).dtype == kind
