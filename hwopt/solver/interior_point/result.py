"""Status codes and results of batches of convex programs."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields

import numpy as np


class SolveStatus(enum.IntEnum):
    """Termination status of a convex program."""

    solved = 1  # optimal within the tolerance
    dropped = 2  # its optimum is proved to exceed the cutoff
    infeasible = 3  # proved to have no feasible point
    unresolved = 4  # none of these; point and multipliers are those of the best bound found
    open = 5  # a point below the cutoff is known to the loose tolerance, so it cannot be dropped


@dataclass(frozen=True, eq=False)
class BatchResult:
    """Solutions of a batch of convex programs, one row per problem.

    `bound` is a lower bound on the optimum, infinite where there is no feasible point. `certificate.lower_bound`
    reproduces it from `y` and `multipliers`, and `certificate.infeasibility` reproduces the proof of infeasibility.
    """

    y: np.ndarray  # (problem, variable)
    multipliers: np.ndarray  # (problem, group)
    objective: np.ndarray  # (problem,) c·y; infinite where infeasible
    bound: np.ndarray  # (problem,)
    status: np.ndarray  # (problem,) int, of `SolveStatus`
    iterations: np.ndarray  # (problem,) int
    residual: np.ndarray  # (problem,) largest of |projected gradient|, violation, |λ_k g_k|

    @staticmethod
    def none(y: np.ndarray, multipliers: np.ndarray) -> BatchResult:
        """Return placeholder results of problems that were not solved, with given points and multipliers."""
        count = len(y)
        numbers = (np.full(count, np.inf), np.full(count, -np.inf), np.full(count, int(SolveStatus.dropped)))
        return BatchResult(y.copy(), multipliers.copy(), *numbers, np.zeros(count, int), np.full(count, np.inf))

    def put(self, rows: np.ndarray, answers: BatchResult) -> None:
        """Copy the results of some problems to the rows `rows`."""
        for each in fields(self):
            getattr(self, each.name)[rows] = getattr(answers, each.name)
