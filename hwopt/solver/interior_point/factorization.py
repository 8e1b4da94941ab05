"""Sparse Cholesky factorization of many matrices with one sparsity pattern at once.

The matrices of a batch differ only in their values. The elimination order and the fill-in are therefore computed once per
pattern. Columns that do not depend on each other form a level, and a few array operations process a level of all
matrices. Entries are the first axis, matrices the last.

**Source:** Davis, Direct Methods for Sparse Linear Systems (2006), 4.1 (elimination tree), 7.1 (minimum degree).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse


@dataclass(frozen=True)
class _Level:
    """Level of the elimination tree: columns of the factor that do not depend on each other."""

    columns: slice
    diagonal: slice  # their diagonal entries
    below: slice  # their entries below it, column by column
    row: np.ndarray | slice  # of each entry below
    local: np.ndarray | slice  # its column, relative to the first of the level
    left: np.ndarray  # pairs of entries below in one column, as positions in `below`
    right: np.ndarray
    into: np.ndarray | slice  # entries from which products of pairs are subtracted
    by_entry: Sum  # sums the products of pairs that belong to the same entry
    rows: np.ndarray | slice  # rows of the entries below
    by_row: Sum
    filled: np.ndarray | slice  # columns with entries below the diagonal, relative to the first of the level
    by_column: Sum
    empty: bool  # True if there are no entries below the diagonal


class SparseCholesky:
    """Elimination order of symmetric matrices with one pattern, and their factorization.

    **Arguments:** `pattern`: (variable, variable) mask of entries that may be nonzero.
    """

    order: np.ndarray
    """(variable,) elimination order: index of the variable that comes first, second, ... Entries are numbered in this order."""
    entry: np.ndarray
    """(variable, variable) index of the entry at each row and column in elimination order; -1 above the diagonal and at
    zeros.
    """

    def __init__(self, pattern: np.ndarray):
        order, below = _eliminated(pattern)
        level = np.zeros(len(order), int)
        for column, rows in enumerate(below):
            level[rows] = np.maximum(level[rows], level[column] + 1)
        # Group columns by level. No column comes before one that it depends on.
        by_level = np.argsort(level, kind="stable")
        place = np.argsort(by_level)
        self.order = order[by_level]
        self._below = [np.sort(place[below[column]]) for column in by_level]
        self._level = level[by_level]
        self.entry = np.full((len(order), len(order)), -1)
        number = 0
        for first, last in self._ranges:
            self.entry[np.arange(first, last), np.arange(first, last)] = np.arange(number, number + last - first)
            number += last - first
            for column in range(first, last):
                rows = self._below[column]
                self.entry[rows, column] = np.arange(number, number + len(rows))
                number += len(rows)

    @property
    def _ranges(self) -> list[tuple[int, int]]:
        """First column of each level, and one past its last."""
        ends = np.flatnonzero(np.diff(self._level, prepend=-1, append=-1))
        return list(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))

    @property
    def entries(self) -> int:
        """Number of entries of a factor."""
        return int(self.entry.max(initial=-1)) + 1

    @property
    def diagonal(self) -> np.ndarray:
        """(variable,) indices of the diagonal entries."""
        return np.diagonal(self.entry)

    @cached_property
    def _levels(self) -> list[_Level]:
        return [self._of(first, last) for first, last in self._ranges]

    def _of(self, first: int, last: int) -> _Level:
        columns = np.arange(first, last)
        row = np.concatenate([self._below[c] for c in columns])
        local = np.repeat(columns - first, [len(self._below[c]) for c in columns])
        begin = int(self.entry[first, first])
        middle = begin + last - first
        left, right = np.nonzero((local[:, None] == local) & (row[:, None] >= row))
        into = self.entry[row[left], row[right]]
        sort = np.argsort(into, kind="stable")
        return _Level(
            slice(first, last), slice(begin, middle), slice(middle, middle + len(row)), _as_slice(row),
            slice(None) if len(columns) == 1 else local, left[sort], right[sort],
            _as_slice(np.unique(into)), _sum(into[sort]), _as_slice(np.unique(row)), _sum(row),
            _as_slice(np.unique(local)), _sum(local), not len(row),
        )  # fmt: skip

    def factor(self, matrix: np.ndarray, diagonal: np.ndarray | None = None) -> np.ndarray:
        """Return factors L with L Lᵀ = A; NaN where a matrix is not positive definite.

        **Arguments:** `matrix`: (entry, matrix), overwritten; `diagonal`: (variable, matrix), replaces the matrix's own
        diagonal.

        **Returns:** (entry, matrix); the diagonal contains 1 / L_jj.
        """
        if diagonal is not None:
            matrix[self.diagonal] = diagonal
        for level in self._levels:
            pivots = matrix[level.diagonal]
            np.divide(1.0, np.sqrt(pivots), out=pivots)
            if not level.empty:
                below = matrix[level.below]
                below *= pivots[level.local]
                products = below.take(level.left, axis=0)
                products *= below.take(level.right, axis=0)
                matrix[level.into] -= level.by_entry(products)
        return matrix

    def solve(self, factor: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the solution x of L Lᵀ x = b.

        **Arguments:** `factor`: as `factor` returns it; `right`: b (variable, matrix) in elimination order, overwritten
        by x.
        """
        for level in self._levels:
            x = right[level.columns]
            x *= factor[level.diagonal]
            if not level.empty:
                right[level.rows] -= level.by_row(factor[level.below] * x[level.local])
        for level in reversed(self._levels):
            x = right[level.columns]
            if not level.empty:
                x[level.filled] -= level.by_column(factor[level.below] * right[level.row])
            x *= factor[level.diagonal]
        return right


Sum = Callable[[np.ndarray], np.ndarray]
"""Function that adds up the rows of a table group by group."""


def _sum(index: np.ndarray) -> Sum:
    """Return a function that adds up rows with equal `index`, in ascending order of the index."""
    values, into = np.unique(index, return_inverse=True)
    if len(values) == 1:
        return lambda rows: np.add.reduce(rows, axis=0, keepdims=True)
    if len(values) == len(index):
        place = _as_slice(np.argsort(index, kind="stable"))
        return lambda rows: rows[place]
    ones = np.ones(len(index), np.int8)  # an integer type, so that the product has the precision of the rows
    sums = sparse.csr_array((ones, (into, np.arange(len(index)))))  # three times as fast as `reduceat`
    return lambda rows: sums @ rows


def _as_slice(index: np.ndarray) -> np.ndarray | slice:
    """Convert an index array to a slice if the two are equivalent."""
    whole = len(index) and np.array_equal(index, np.arange(index[0], index[0] + len(index)))
    return slice(int(index[0]), int(index[-1]) + 1) if whole else index


def _eliminated(pattern: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the minimum-degree elimination order and, for each column of the factor, its rows below the diagonal in that
    order.
    """
    linked = (pattern | pattern.T).astype(bool)
    np.fill_diagonal(linked, False)
    left = np.ones(len(linked), bool)
    order, neighbours = [], []
    for _ in range(len(linked)):
        degree = np.where(left, (linked & left).sum(axis=1), len(linked))
        chosen = int(np.argmin(degree))
        left[chosen] = False
        near = np.flatnonzero(linked[chosen] & left)
        linked[np.ix_(near, near)] = True
        linked[near, near] = False
        order.append(chosen)
        neighbours.append(near)
    place = np.argsort(order)
    return np.array(order, int), [place[near] for near in neighbours]
