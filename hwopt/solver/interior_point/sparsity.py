"""Tables that all programs of a structure share: the positions of their nonzeros and sums over them, as SciPy sparse
matrices.
"""

from __future__ import annotations

import copy
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy import sparse

from hwopt.solver.gp.program import ProgramStructure
from hwopt.solver.interior_point.factorization import SparseCholesky

STRUCTURES = 64
"""Number of structures whose sparsity is cached."""
ROOF = 1e4
"""Upper bound of multipliers, as a multiple of the largest objective weight (or of 1, if that is larger).

The bound is the price of a violation. It keeps the iteration bounded where there is no feasible point.
"""


class SparsityFrame:
    """Exponents, sums and Newton-matrix pattern of a structure, in the form that `hwopt.solver.interior_point.newton`
    multiplies by: `@` multiplies each matrix by one column per program.

    Groups are ordered log-sum-exps first, then those with targets; terms by groups; variables by elimination.
    """

    xp: Any = np
    solved = 0
    """Number of programs of the structure that have been solved so far."""

    def __init__(self, structure: ProgramStructure):
        count, variables = len(structure.target), structure.exponents.shape[1]
        self.groups = np.argsort(structure.target >= 0, kind="stable")
        place = np.argsort(self.groups)
        self.terms = np.argsort(place[structure.group], kind="stable")
        self.group = place[structure.group][self.terms]
        self.soft = int((structure.target < 0).sum())
        self.soft_terms = int((self.group < self.soft).sum())
        self.present, self.first = np.unique(self.group[: self.soft_terms], return_index=True)
        self.sums = sparse.csr_array(
            (np.ones(len(self.group)), (self.group, np.arange(len(self.group)))), (count, len(self.group))
        )

        touched = (self.sums @ (structure.exponents[self.terms] != 0)) > 0
        bounded = np.arange(self.soft, count)
        touched[bounded, structure.target[self.groups[bounded]]] = True
        terms = np.bincount(self.group, minlength=count)
        self.straight = ((np.arange(count) < self.soft) & (terms <= 1))[:, None]  # linear groups
        self.factors = SparseCholesky(touched.T.astype(float) @ touched > 0)
        self.variables = self.factors.order
        entry, touched = self.factors.entry, touched[:, self.variables]
        exponents = structure.exponents[np.ix_(self.terms, self.variables)]
        self.target = np.argsort(self.variables)[structure.target[self.groups[bounded]]]
        self.objective = structure.objective[self.variables]
        self.roof = np.float64(ROOF * max(1.0, np.abs(self.objective).max(initial=0.0)))

        self.exponents = sparse.csr_array(exponents)
        self.by_variable = sparse.csr_array(exponents.T)
        self.to_target = sparse.csr_array((np.ones(len(bounded)), (self.target, bounded)), (variables, count))
        self.from_target = sparse.csr_array(self.to_target.T)
        # Σ w_i A_i A_iᵀ: maps weights of terms to matrix entries.
        term, row, column = _pairs(exponents != 0)
        self.squares = sparse.csr_array(
            (exponents[term, row] * exponents[term, column], (entry[row, column], term)),
            (self.factors.entries, len(exponents)),
        )
        # J of all groups that are not linear: its entries from weights of terms; Jᵀ D J from products of these entries.
        curved = np.flatnonzero(~self.straight)
        at, of = np.nonzero(touched[curved])
        self.slope_group = curved[at]
        number = np.full(touched.shape, -1)
        number[self.slope_group, of] = np.arange(len(at))
        term, variable = np.nonzero(exponents)
        kept = ~self.straight[self.group[term], 0]
        term, variable = term[kept], variable[kept]
        self.slopes = sparse.csr_array(
            (exponents[term, variable], (number[self.group[term], variable], term)), (len(at), len(exponents))
        )
        self.of_targets = np.zeros((len(at), 1))
        self.of_targets[number[bounded, self.target]] = 1.0
        group, row, column = _pairs(touched & ~self.straight)
        into = entry[row, column]
        sort = np.argsort(into, kind="stable")
        self.left, self.right = number[group, row][sort], number[group, column][sort]
        self.outer = sparse.csr_array(
            (np.ones(len(into)), (into[sort], np.arange(len(into)))), (self.factors.entries, len(into))
        )

    @cached_property
    def single(self) -> SparsityFrame:
        """The same tables with all numbers in single precision, including the NumPy scalar `roof`."""
        other = copy.copy(self)
        for name, table in vars(self).items():
            if getattr(table, "dtype", None) == np.float64:
                setattr(other, name, table.astype(np.float32))
        return other

    def largest(self, terms: np.ndarray) -> np.ndarray:
        """Return the largest term of each log-sum-exp group (group, problem); 0 for groups without terms and for other
        groups.
        """
        found = np.zeros((len(self.groups), terms.shape[1]), terms.dtype)
        if self.soft_terms:
            found[self.present] = np.maximum.reduceat(terms[: self.soft_terms], self.first, axis=0)
        return found


def _pairs(present: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return all pairs of nonzeros in the same table row: the table row, and the pair as matrix row and column, column <=
    row.
    """
    row, column = np.nonzero(np.tril(np.ones((present.shape[1],) * 2, bool)))
    each, pair = np.nonzero(present[:, row] & present[:, column])
    return each, row[pair], column[pair]


frame_of = lru_cache(maxsize=STRUCTURES)(SparsityFrame)
"""Return the sparsity tables of a structure, cached."""
