"""How programmes ended, and what came out."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields

import numpy as np


class SolveStatus(enum.IntEnum):
    """How the work on a programme ended."""

    solved = 1  # optimal within the tolerance
    dropped = 2  # its optimum is proved to lie above the cutoff
    infeasible = 3  # proved to have no feasible point
    unresolved = 4  # none of these; point and multipliers are those of the best bound seen
    open = 5  # its optimum lies below the cutoff, and is known well enough


@dataclass(frozen=True, eq=False)
class BatchResult:
    """What came out, problem by problem.

    `bound` is a lower bound on the optimum (infinite where there is no feasible point), reproduced from `y` and
    `multipliers` by `certificate.lower_bound`, as is the proof of infeasibility by `certificate.infeasibility`.
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
        """Problems that nobody worked on, with points and multipliers that bound them."""
        count = len(y)
        numbers = (np.full(count, np.inf), np.full(count, -np.inf), np.full(count, int(SolveStatus.dropped)))
        return BatchResult(y.copy(), multipliers.copy(), *numbers, np.zeros(count, int), np.full(count, np.inf))

    def put(self, rows: np.ndarray, answers: BatchResult) -> None:
        """Answers of some problems in their places."""
        for each in fields(self):
            getattr(self, each.name)[rows] = getattr(answers, each.name)
