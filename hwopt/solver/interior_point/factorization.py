"""Cholesky factors of many matrices of one sparsity pattern at once.

The matrices of a batch differ in their numbers, not in where these are. So the order of elimination and what fills up are
worked out once, for the pattern; columns that wait for none of each other make a level, and all matrices go through a level
in a handful of array operations. Matrices are the last axis, entries the first.

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
    """Columns of the factor that wait for none of each other."""

    columns: slice
    diagonal: slice  # their entries on the diagonal
    below: slice  # their entries below it, column by column
    row: np.ndarray | slice  # of each entry below
    local: np.ndarray | slice  # its column, counted from the level's first
    left: np.ndarray  # pairs of entries below in one column, as positions in `below`
    right: np.ndarray
    into: np.ndarray | slice  # the entries that products of pairs are taken from
    by_entry: Sum  # products of pairs for each of them
    rows: np.ndarray | slice  # rows of the entries below
    by_row: Sum
    filled: np.ndarray | slice  # columns with entries below, counted from the level's first
    by_column: Sum
    empty: bool  # nothing below the diagonal


class SparseCholesky:
    """Order of elimination of symmetric matrices of one pattern, and their factors.

    **Arguments:** `pattern` (variable, variable): where entries may differ from zero.
    """

    order: np.ndarray
    """(variable,) which variable comes first, second, ...: entries are numbered in this order."""
    entry: np.ndarray
    """(variable, variable) number of the entry of each row and column in that order; -1 above the diagonal and at zeros."""

    def __init__(self, pattern: np.ndarray):
        order, below = _eliminated(pattern)
        level = np.zeros(len(order), int)
        for column, rows in enumerate(below):
            level[rows] = np.maximum(level[rows], level[column] + 1)
        # Columns of one level side by side; none comes before one that it waits for.
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
        """First column of each level, and the one after its last."""
        ends = np.flatnonzero(np.diff(self._level, prepend=-1, append=-1))
        return list(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))

    @property
    def entries(self) -> int:
        """Entries of a factor."""
        return int(self.entry.max(initial=-1)) + 1

    @property
    def diagonal(self) -> np.ndarray:
        """(variable,) numbers of the entries on the diagonal."""
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
        """Factors L with L Lᵀ = A; NaN where a matrix is not positive definite.

        **Arguments:** `matrix` (entry, matrix), overwritten; `diagonal` (variable, matrix) put in the place of its own.
        **Returns:** (entry, matrix), on the diagonal 1 / L_jj.
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
        """The x of L Lᵀ x = b. **Arguments:** `right` (variable, matrix) in `order`, overwritten by x."""
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
"""Rows of a table added up by what they belong to."""


def _sum(index: np.ndarray) -> Sum:
    """Rows added up by `index`, in the order of its values."""
    values, into = np.unique(index, return_inverse=True)
    if len(values) == 1:
        return lambda rows: np.add.reduce(rows, axis=0, keepdims=True)
    if len(values) == len(index):
        place = _as_slice(np.argsort(index, kind="stable"))
        return lambda rows: rows[place]
    ones = np.ones(len(index), np.int8)  # which take the precision of what they multiply
    sums = sparse.csr_array((ones, (into, np.arange(len(index)))))  # three times as quick as `reduceat`
    return lambda rows: sums @ rows


def _as_slice(index: np.ndarray) -> np.ndarray | slice:
    """A slice where that says the same."""
    whole = len(index) and np.array_equal(index, np.arange(index[0], index[0] + len(index)))
    return slice(int(index[0]), int(index[-1]) + 1) if whole else index


def _eliminated(pattern: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Variables by least degree, and the rows below the diagonal of each column of the factor, both in that order."""
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
