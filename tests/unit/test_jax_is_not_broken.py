"""The jax in use computes right: releases from 0.10.2 on do not, and their faults are silent or fatal."""

from __future__ import annotations

import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from packaging.requirements import Requirement

ROWS = 40_000  # the fault begins near 32,768 rows

PER_ROW = {
    "matrix-vector then sum": lambda matrix, row: jnp.sum(matrix @ row),
    "matrix-vector then maximum": lambda matrix, row: jnp.max(matrix @ row),
    "vector-matrix-vector": lambda matrix, row: row @ matrix @ row,
}


@pytest.mark.parametrize("width", [4, 16, 64])
@pytest.mark.parametrize("name", PER_ROW)
def test_jitted_vmap_over_many_rows_equals_eager_and_exact(name, width):
    # Ones make every result a small whole number, exact in float32 whatever the order of summation.
    matrix, rows = jnp.ones((width, width)), jnp.ones((ROWS, width))
    mapped = jax.vmap(PER_ROW[name], in_axes=(None, 0))
    exact = width if "maximum" in name else width * width
    jitted = np.asarray(jax.jit(mapped)(matrix, rows))
    np.testing.assert_array_equal(jitted, np.asarray(mapped(matrix, rows)))
    np.testing.assert_array_equal(jitted, np.full(ROWS, exact, np.float32))
    # jax 0.10.2, 0.11.1, 0.11.2 and 0.12.0.1 go wrong where the matrix is closed over, and so is a constant of the program.
    closed = np.asarray(jax.jit(jax.vmap(lambda row: PER_ROW[name](matrix, row)))(rows))
    np.testing.assert_array_equal(closed, jitted)


def test_total_over_rows_is_exact():
    # 65,536 rows of 64 x 64 ones: jax 0.10.2 was seen to return 266342400.
    matrix, rows = jnp.ones((64, 64)), jnp.ones((65_536, 64))
    total = jax.jit(lambda matrix, rows: jnp.sum(jax.vmap(lambda row: matrix @ row)(rows)))(matrix, rows)
    assert float(total) == 268_435_456.0


RANK_7 = {
    "reduction": lambda x: jnp.sum(x * x, axis=(1, 3, 5)),
    "transpose": lambda x: jnp.sum(jnp.transpose(x, (6, 0, 5, 1, 4, 2, 3)) * 2.0, axis=0),
    "contraction": lambda x: jnp.einsum("abcdefg,d->abcefg", x, jnp.arange(3.0)),
    "grid of seven axes": lambda x: jnp.min(x + jnp.arange(3.0).reshape(1, 1, 1, 3, 1, 1, 1), axis=(0, 6)),
    "nested vmap": lambda x: jax.vmap(jax.vmap(jax.vmap(jax.vmap(jax.vmap(lambda m: jnp.sum(m @ jnp.ones(2)))))))(x),
}


@pytest.mark.parametrize("name", RANK_7)
def test_rank_7_arrays_work(name):
    x = jnp.arange(2.0 * 3 * 2 * 3 * 2 * 3 * 2).reshape(2, 3, 2, 3, 2, 3, 2)
    np.testing.assert_allclose(jax.jit(RANK_7[name])(x), RANK_7[name](x), rtol=1e-6)


@pytest.mark.parametrize("package", ["jax", "jaxlib"])
@pytest.mark.parametrize("broken", ["0.10.2", "0.11.0", "0.11.1", "0.11.2", "0.12.0", "0.12.0.1"])
def test_broken_releases_are_excluded(package, broken):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (requirement,) = [r for r in map(Requirement, project["dependencies"]) if r.name == package]
    assert not requirement.specifier.contains(broken)
    assert requirement.specifier.contains("0.10.1")
