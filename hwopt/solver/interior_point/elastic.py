"""Infeasibility proofs by the elastic program, for problems on which the interior-point method does not converge.

    minimize s subject to g_k(y) <= s for the groups without a target, and the variable bounds

Groups with a target define their target and are always satisfied. The elastic program always has feasible points. A lower
bound above 0 proves that the original program has none.
"""

from functools import lru_cache

import numpy as np

from hwopt.solver.gp import certificate
from hwopt.solver.gp.options import INTERIOR_POINT, InteriorPointOptions
from hwopt.solver.gp.program import ProgramNumbers, ProgramStructure
from hwopt.solver.interior_point.batch import solve
from hwopt.solver.interior_point.result import BatchResult, SolveStatus
from hwopt.solver.interior_point.sparsity import STRUCTURES

MOST = 60.0
"""Upper bound of s, the violation of a group, in log units; more than any range of a hwopt question."""


def elastic_program(structure: ProgramStructure, numbers: ProgramNumbers) -> tuple[ProgramStructure, ProgramNumbers]:
    """Return the elastic programs of a batch; s is the last variable."""
    low, high = np.full((len(numbers), 1), -1.0), np.full((len(numbers), 1), MOST)
    ends = np.hstack([numbers.lower, low]), np.hstack([numbers.upper, high])
    return _form(structure), ProgramNumbers(numbers.constants, numbers.offsets, *ends)


@lru_cache(maxsize=STRUCTURES)
def _form(structure: ProgramStructure) -> ProgramStructure:
    """Return the structure of the elastic program, the same object for the same structure, so that its sparsity is cached
    too.
    """
    soft = structure.target[structure.group] < 0
    exponents = np.column_stack([structure.exponents, -soft.astype(float)])
    return ProgramStructure(exponents, structure.group, structure.target, np.eye(exponents.shape[1])[-1])


def proved_infeasible(
    structure: ProgramStructure,
    numbers: ProgramNumbers,
    answers: BatchResult,
    options: InteriorPointOptions = INTERIOR_POINT,
) -> np.ndarray:
    """Return which solved programs are proved to have no feasible point; unresolved ones are tested by the elastic program.

    **Arguments:**

    - `structure`, `numbers`: the programs.
    - `answers`: their results. A claimed infeasibility is verified by its certificate.
    - `options`: of the solver.

    **Returns:** (problem,) truth values.
    """
    proved = answers.status == SolveStatus.infeasible
    claimed = np.flatnonzero(proved)
    if len(claimed):
        shown = numbers.take(claimed), answers.y[claimed], answers.multipliers[claimed]
        proved[claimed] = certificate.infeasibility(structure, *shown) > 0
    unsure = np.flatnonzero(answers.status == SolveStatus.unresolved)
    if len(unsure):
        proved[unsure] = infeasible(structure, numbers.take(unsure), options)
    return proved


def infeasible(
    structure: ProgramStructure, numbers: ProgramNumbers, options: InteriorPointOptions = INTERIOR_POINT
) -> np.ndarray:
    """Return which programs are proved to have no feasible point, (problem,) truth values."""
    form, given = elastic_program(structure, numbers)
    # The solver stops as soon as the bound exceeds 0, which each iteration tests.
    answers = solve(form, given, cutoff=0.0, tolerance=options.feasibility_gap, options=options)
    bound = certificate.lower_bound(form, given, answers.y, answers.multipliers)
    # A group with a target may contradict the variable bounds. Then the elastic program itself has no feasible point.
    return (bound > 0.0) | (certificate.infeasibility(form, given, answers.y, answers.multipliers) > 0.0)
