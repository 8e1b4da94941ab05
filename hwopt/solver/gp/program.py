"""Canonical form of convex programs in log space: exponential terms, groups of terms, a linear objective and variable bounds.

A geometric program in log space consists of sums of exponentials of affine functions. The same is true of a general model
once each power of a sum, maximum and exponential has an auxiliary variable. Arrays describe such a program completely, so
a new question needs new numbers but no new code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwopt.errors import UserError


@dataclass(frozen=True, eq=False)
class ProgramStructure:
    """Structure shared by all programs of a batch.

        minimize c·y subject to lower ≤ y ≤ upper and, for each group k, with t its target,

            g_k(y) = log Σ_{i in k} exp(A_i·y + b_i) ≤ 0                       where t = -1
            g_k(y) = Σ_{i in k} exp(A_i·y + b_i) + offset_k - y_t ≤ 0          else

    **Arguments:**

    - `exponents`: A.
    - `group`: the group of each term, in ascending order.
    - `target`: for each group, the variable that its exponentials bound from below, or -1 if there is none.
    - `objective`: c.
    """

    exponents: np.ndarray  # (term, variable)
    group: np.ndarray  # (term,) int
    target: np.ndarray  # (group,) int
    objective: np.ndarray  # (variable,)

    def __post_init__(self):
        term, variable = self.exponents.shape
        if self.group.shape != (term,) or self.objective.shape != (variable,):
            raise UserError(
                f"convex program: {term} terms of {variable} variables need as many groups and objective weights, "
                f"not {self.group.shape} and {self.objective.shape}"
            )
        if term and (np.any(np.diff(self.group) < 0) or self.group[0] < 0 or self.group[-1] >= len(self.target)):
            raise UserError(f"convex program: groups of terms must ascend within 0..{len(self.target) - 1}")
        if np.any(self.target < -1) or np.any(self.target >= variable):
            raise UserError(f"convex program: targets must be -1 or one of {variable} variables")


@dataclass(frozen=True, eq=False)
class ProgramNumbers:
    """Coefficients and bounds of each program of a batch.

    **Arguments:**

    - `constants`: b; -inf for an absent term.
    - `offsets`: additive constants of groups with a target; ignored for other groups.
    - `lower`, `upper`: finite bounds of the variables.

    A log-sum-exp group whose terms are all absent is always satisfied.
    """

    constants: np.ndarray  # (problem, term)
    offsets: np.ndarray  # (problem, group)
    lower: np.ndarray  # (problem, variable)
    upper: np.ndarray  # (problem, variable)

    def __len__(self) -> int:
        return len(self.constants)

    def take(self, rows) -> ProgramNumbers:
        """Return the programs at `rows`: indices, a slice or a mask."""
        return ProgramNumbers(self.constants[rows], self.offsets[rows], self.lower[rows], self.upper[rows])
