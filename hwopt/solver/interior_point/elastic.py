"""Is there a feasible point at all? The elastic programme, whose bound answers where an interior point does not.

minimise s subject to g_k(y) <= s for the groups without a target (those with one define their target and always hold), and
the box. It has feasible points always; a bound above 0 proves that the programme has none.
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
"""How far groups may give way, in logarithms: more than any box of ours."""


def elastic_program(structure: ProgramStructure, numbers: ProgramNumbers) -> tuple[ProgramStructure, ProgramNumbers]:
    """The elastic programme; s is its last variable."""
    low, high = np.full((len(numbers), 1), -1.0), np.full((len(numbers), 1), MOST)
    ends = np.hstack([numbers.lower, low]), np.hstack([numbers.upper, high])
    return _form(structure), ProgramNumbers(numbers.constants, numbers.offsets, *ends)


@lru_cache(maxsize=STRUCTURES)
def _form(structure: ProgramStructure) -> ProgramStructure:
    """The same for the same structure, whose sparsity is then remembered too."""
    soft = structure.target[structure.group] < 0
    exponents = np.column_stack([structure.exponents, -soft.astype(float)])
    return ProgramStructure(exponents, structure.group, structure.target, np.eye(exponents.shape[1])[-1])


def proved_infeasible(
    structure: ProgramStructure,
    numbers: ProgramNumbers,
    answers: BatchResult,
    options: InteriorPointOptions = INTERIOR_POINT,
) -> np.ndarray:
    """Which solved programmes are proved to have no feasible point, by the elastic ones where answers do not say."""
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
    """Which programmes are proved to have no feasible point, (problem,) truth values."""
    form, given = elastic_program(structure, numbers)
    # Proved as soon as the bound passes 0, which each iteration tests.
    answers = solve(form, given, cutoff=0.0, tolerance=options.feasibility_gap, options=options)
    bound = certificate.lower_bound(form, given, answers.y, answers.multipliers)
    # A group with a target may contradict the box: then the elastic programme itself has no feasible point.
    return (bound > 0.0) | (certificate.infeasibility(form, given, answers.y, answers.multipliers) > 0.0)
