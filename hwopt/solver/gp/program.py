"""Convex programmes in log space in canonical form: terms, groups, a linear objective and a box.

A geometric programme, log-transformed, is nothing but sums of exponentials of affine functions; so is what remains of a
model after each power of a sum, maximum and exponential was given a variable of its own. Arrays are all there is to it:
a new question is new numbers, not new code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwopt.errors import UserError


@dataclass(frozen=True, eq=False)
class ProgramStructure:
    """What all programmes of a batch share.

    minimise c·y subject to lower ≤ y ≤ upper and, for each group k, with t its target,

        g_k(y) = log Σ_{i in k} exp(A_i·y + b_i) ≤ 0                       where t = -1
        g_k(y) = Σ_{i in k} exp(A_i·y + b_i) + offset_k - y_t ≤ 0          else

    **Arguments:** `exponents`: A. `group`: the group of each term, ascending. `target`: -1, or the variable that the
    group's exponentials bound from below. `objective`: c.
    """

    exponents: np.ndarray  # (term, variable)
    group: np.ndarray  # (term,) int
    target: np.ndarray  # (group,) int
    objective: np.ndarray  # (variable,)

    def __post_init__(self):
        term, variable = self.exponents.shape
        if self.group.shape != (term,) or self.objective.shape != (variable,):
            raise UserError(
                f"convex programme: {term} terms of {variable} variables need as many groups and objective weights, "
                f"not {self.group.shape} and {self.objective.shape}"
            )
        if term and (np.any(np.diff(self.group) < 0) or self.group[0] < 0 or self.group[-1] >= len(self.target)):
            raise UserError(f"convex programme: groups of terms must ascend within 0..{len(self.target) - 1}")
        if np.any(self.target < -1) or np.any(self.target >= variable):
            raise UserError(f"convex programme: targets must be -1 or one of {variable} variables")


@dataclass(frozen=True, eq=False)
class ProgramNumbers:
    """What each programme of a batch has for itself.

    **Arguments:** `constants`: b; -inf where the term is absent. `offsets`: used by groups with a target only. `lower`,
    `upper`: the box, finite. A log-sum-exp group whose terms are all absent holds trivially.
    """

    constants: np.ndarray  # (problem, term)
    offsets: np.ndarray  # (problem, group)
    lower: np.ndarray  # (problem, variable)
    upper: np.ndarray  # (problem, variable)

    def __len__(self) -> int:
        return len(self.constants)

    def take(self, rows) -> ProgramNumbers:
        """The programmes at `rows`: indices, a slice or a mask."""
        return ProgramNumbers(self.constants[rows], self.offsets[rows], self.lower[rows], self.upper[rows])
