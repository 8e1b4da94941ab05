"""Repair of integer designs whose convex program is relaxed: they are checked, and made feasible, by the exact model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hwopt.design.exact import ExactModel, logarithms
from hwopt.design.variables import Variable
from hwopt.integers.boxes import Boxes
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.solver.gp import monotone_cuts
from hwopt.solver.gp.canonical import ConvexProgram
from hwopt.solver.interior_point.batch import solve
from hwopt.solver.interior_point.result import SolveStatus
from hwopt.solver.search.node_relaxations import CHOICE, NodeRelaxations


def repaired(
    programmes: NodeRelaxations,
    models: Sequence[ExactModel],
    points: Boxes,
    programme: ConvexProgram,
    rows: np.ndarray,
    y: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the objectives of integer designs by the exact model, after repair of small violations.

    A small violation is subtracted, with a margin, from the limit in the convex program, which is then solved again.
    Designs that remain infeasible are moved towards the upper ends of the variables whose range is split into segments,
    where a machine is fastest.

    **Arguments:**

    - `programmes`, `models`: node relaxations of the problem, and the exact model of each machine.
    - `points`: integer designs.
    - `programme`, `rows`: relaxed convex programs, and the rows of these designs there.
    - `y`: solutions of the programs (design, variable), logarithms.

    **Returns:** log objectives (design,), infinite where the exact model finds no feasible point, and the repaired `y`.
    """
    structure, names = programme.structure, programmes.problem.constraints
    options, repair = programmes.options, programmes.options.repair
    y, values = y.copy(), np.full(len(rows), np.inf)
    taken, left = np.zeros((len(rows), len(names))), np.arange(len(rows))
    missed: list[np.ndarray] = []
    for _ in range(repair.rounds):
        objective, used = _exact(programmes, models, points[left], programme.names, y[left])
        violation = used.max(axis=1)
        holds = violation <= FEASIBILITY_TOLERANCE
        values[left[holds]] = objective[holds]
        nearly = ~holds & (violation < repair.most_violation)
        left, missing = left[nearly], np.maximum(used[nearly], 0.0)
        missed.append(left)
        if not len(left):
            break
        taken[left] += repair.tightening * missing
        numbers = programme.numbers.take(rows[left])
        for column, name in enumerate(names):
            groups = [group for each in (name, *monotone_cuts.cut_labels(name)) for group in programme.group(each)]
            terms = np.isin(structure.group, groups)
            numbers.constants[:, terms] += taken[left, column][:, None]
        answers = solve(structure, numbers, tolerance=options.tree.retry_gaps[0], options=options.interior_point)
        solved = answers.status == SolveStatus.solved
        left = left[solved]
        y[left] = answers.y[solved]
    left = np.unique(np.concatenate(missed))
    left = left[np.isinf(values[left])]
    if len(left):
        values[left], y[left] = _towards_ends(programmes, models, points[left], programme, rows[left], y[left])
    return values, y


def _towards_ends(
    programmes: NodeRelaxations,
    models: Sequence[ExactModel],
    points: Boxes,
    programme: ConvexProgram,
    rows: np.ndarray,
    y: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return objective and variables of the feasible point closest to `y`, by bisection; see `repaired`.

    The bisection runs between `y` and the point with segmented variables at their upper ends. The objective is infinite if
    that end is infeasible too.
    """
    pieces = {each.variable for each in programmes.lattice.pieces}
    columns = [column for column, name in enumerate(programme.names) if name in pieces]
    inside = y.copy()
    inside[:, columns] = programme.numbers.upper[rows[:, None], columns]
    objective, used = _exact(programmes, models, points, programme.names, inside)
    values = np.where(used.max(axis=1) <= FEASIBILITY_TOLERANCE, objective, np.inf)
    outside, some = y.copy(), np.flatnonzero(np.isfinite(values))
    for _ in range(programmes.options.repair.halvings if len(some) else 0):
        middle = 0.5 * (inside[some] + outside[some])
        objective, used = _exact(programmes, models, points[some], programme.names, middle)
        holds = used.max(axis=1) <= FEASIBILITY_TOLERANCE
        outside[some[~holds]] = middle[~holds]
        inside[some[holds]], values[some[holds]] = middle[holds], objective[holds]
    return values, inside


def _exact(
    programmes: NodeRelaxations, models: Sequence[ExactModel], points: Boxes, names: Sequence[str], y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return objectives (design,) and constraints (design, constraint) of integer designs by the exact model, logarithms.

    **Arguments:** `names`, `y`: names and logarithms of the variables.
    """
    solved = {name: column for column, name in enumerate(names) if name}
    problem, lattice = programmes.problem, programmes.lattice
    integers = lattice.quantities_at(lattice.columns(points.low.astype(float)))

    def logarithm(each: Variable) -> np.ndarray:
        if each.name in integers:
            return logarithms(np.broadcast_to(integers[each.name], len(points)))
        return y[:, solved[each.name]] if each.name in solved else np.full(len(points), math.log(each.lower))

    designs = np.stack([logarithm(each) for each in problem.variables], axis=1)
    objective, used = np.empty(len(points)), np.empty((len(points), len(problem.constraints)))
    machine = points.low[:, lattice.at[CHOICE]] - 1 if CHOICE in lattice.at else np.zeros(len(points), int)
    for each in np.unique(machine):
        rows = machine == each
        found = models[each].at(designs[rows])
        objective[rows], used[rows] = found.objective, found.constraints
    return objective, used
