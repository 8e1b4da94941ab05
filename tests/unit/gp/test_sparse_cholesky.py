"""Sparse factors of many matrices against dense ones."""

import numpy as np
import pytest

from hwopt.solver.interior_point.factorization import SparseCholesky

MATRICES = 5


def drawn(size: int, density: float, seed: int = 0):
    """A pattern, and positive definite matrices (matrix, row, column) with zeros outside it."""
    random = np.random.default_rng(seed)
    pattern = random.random((size, size)) < density
    pattern = pattern | pattern.T | np.eye(size, dtype=bool)
    matrices = np.where(pattern, random.normal(size=(MATRICES, size, size)), 0.0)
    matrices = matrices + matrices.swapaxes(1, 2)
    return pattern, matrices + np.eye(size) * (1.0 + np.abs(matrices).sum(axis=2).max())


def entries(factors: SparseCholesky, matrices: np.ndarray) -> np.ndarray:
    """(entry, matrix) as the factorisation numbers them."""
    numbers = np.zeros((factors.entries, len(matrices)))
    row, column = np.nonzero(factors.entry >= 0)
    numbers[factors.entry[row, column]] = matrices[:, factors.order[row], factors.order[column]].T
    return numbers


@pytest.mark.parametrize("density", [0.0, 0.05, 0.2, 1.0])
@pytest.mark.parametrize("size", [1, 2, 9, 40])
def test_solves_as_dense_ones_do(size, density):
    pattern, matrices = drawn(size, density)
    factors = SparseCholesky(pattern)
    right = np.random.default_rng(1).normal(size=(size, MATRICES))
    solved = factors.solve(factors.factor(entries(factors, matrices)), right[factors.order])
    np.testing.assert_allclose(
        solved, np.linalg.solve(matrices, right.T[:, :, None])[:, factors.order, 0].T, rtol=1e-11
    )


def test_single_precision_stays_single():
    pattern, matrices = drawn(40, 0.2)
    factors = SparseCholesky(pattern)
    right = np.random.default_rng(1).normal(size=(40, MATRICES))[factors.order]
    factor = factors.factor(entries(factors, matrices).astype(np.float32))
    solved = factors.solve(factor, right.astype(np.float32))
    assert factor.dtype == solved.dtype == np.float32
    exact = factors.solve(factors.factor(entries(factors, matrices)), right.copy())
    np.testing.assert_allclose(solved, exact, rtol=1e-4, atol=1e-6)


def test_factors_are_those_of_the_ordered_matrix():
    pattern, matrices = drawn(30, 0.1)
    factors = SparseCholesky(pattern)
    lower = np.linalg.cholesky(matrices[:, factors.order[:, None], factors.order])
    lower[:, np.arange(30), np.arange(30)] **= -1.0
    known = factors.factor(entries(factors, matrices))
    filled = factors.entry >= 0
    np.testing.assert_allclose(known[factors.entry[filled]].T, lower[:, filled], atol=1e-12)
    assert np.abs(lower[:, ~filled]).max() == 0.0


def test_a_star_fills_nothing_and_its_leaves_are_one_level():
    pattern = np.eye(12, dtype=bool)
    pattern[0] = pattern[:, 0] = True  # all linked to the first: of it and its last neighbour, either may come last
    factors = SparseCholesky(pattern)
    assert factors.entries == 23
    assert [level.columns for level in factors._levels] == [slice(0, 10), slice(10, 11), slice(11, 12)]


def test_what_is_not_definite_is_no_number_and_spoils_no_neighbour():
    pattern, matrices = drawn(10, 0.3)
    factors = SparseCholesky(pattern)
    alone = factors.factor(entries(factors, matrices))
    matrices[2, 0, 0] = -1.0
    with np.errstate(invalid="ignore"):
        known = factors.factor(entries(factors, matrices))
    assert np.isnan(known[:, 2]).any()
    np.testing.assert_array_equal(np.delete(known, 2, axis=1), np.delete(alone, 2, axis=1))
