"""Programmes of one integer design: of a question as it is, or with numbers of it moved, whole or beside an answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import jax
import numpy as np

from hwopt.design.lattices import lattice_of
from hwopt.design.problem import Problem
from hwopt.errors import UserError
from hwopt.integers.boxes import Boxes
from hwopt.solver.gp.canonical import ConvexProgram, ProgramBuilder
from hwopt.solver.gp.condensation import Condensation
from hwopt.solver.gp.integer_relaxation import quantity_ranges
from hwopt.solver.gp.reader import NotDGP
from hwopt.solver.gp.signomial import Algebra
from hwopt.solver.interior_point.batch import solve
from hwopt.solver.interior_point.result import BatchResult, SolveStatus
from hwopt.solver.options import SEARCH, RefinementOptions, SearchOptions
from hwopt.solver.search.canonicalize import canonicalize, free_values, lifted_boxes

Place: TypeAlias = tuple[int, int]
"""An input: which leaf of the problem's template, and which element of it."""

Near: TypeAlias = Mapping[str, tuple[float, float]]
"""Boxes beside an answer, SI, by name of what its programmes decide."""


class NoDerivative(UserError):
    """The optimum is no solved convex programme, so that its derivatives are not known."""


def perturbed_templates(problem: Problem, places: Sequence[Place], factors: np.ndarray) -> list[np.ndarray]:
    """Leaves (node, *shape): the template itself, then for each place and factor the template with that element moved."""
    leaves = [np.asarray(leaf, np.float64)[None] for leaf in jax.tree.leaves(problem.template)]
    nodes = 1 + factors.size
    for i, (leaf, element) in enumerate(places):
        if len(leaves[leaf]) == 1:
            leaves[leaf] = np.repeat(leaves[leaf], nodes, axis=0)
        rows = leaves[leaf].reshape(nodes, -1)
        rows[1 + i * factors.shape[1] : 1 + (i + 1) * factors.shape[1], element] *= factors[i]
    return leaves


def fixed_integer_program(
    problem: Problem,
    point: np.ndarray,
    template: list[np.ndarray],
    near: Near | None = None,
    rows_of: Callable[[Algebra], ProgramBuilder] = ProgramBuilder,
    options: SearchOptions = SEARCH,
) -> tuple[ConvexProgram, np.ndarray]:
    """The programme of one integer design at each of the templates, and where the constraints that are numbers hold.

    **Arguments:** `near`: boxes of variables inside the question's; `rows_of`: `Condensation` of the programmes that touch the
    model in the middle of these boxes, in place of those that bound it.

    **Raises:** `NoDerivative` where the model cannot be read.
    """
    nodes = max(len(leaf) for leaf in template)
    lattice, algebra = lattice_of(problem), Algebra(options=options.reformulation)
    if not lattice.valid(point[None]).all():
        raise UserError(f"problem '{problem.name}': {point.tolist()} is no design of its lattice")
    corners = np.repeat(point[None], nodes, axis=0)
    values, ties = free_values(problem, lattice, algebra, quantity_ranges(lattice, Boxes.of_points(corners)))
    roots = lifted_boxes(problem.template)
    values |= {name: algebra.variable(name, *box) for name, box in (near or {}).items() if name not in roots}
    lifted = {name: box for name, box in (near or {}).items() if name in roots}
    try:
        canonical = canonicalize(problem, algebra, values, template=template, lifted=lifted)
        draft = canonical.draft(ties, rows_of=rows_of)
    except NotDGP as reason:
        raise NoDerivative(f"the model cannot be read as a convex programme there: {reason}") from None
    return draft.programme(nodes), np.broadcast_to(canonical.holds, (nodes,))


def boxes_around(
    problem: Problem, point: np.ndarray, start: Mapping[str, float], options: SearchOptions = SEARCH
) -> Near:
    """Narrow boxes around the optimum of one integer design beside `start`, values of its continuous variables, SI.

    Programmes that touch the model are solved one after the other, each beside what the last one found, until that stays.

    **Raises:** `NoDerivative` where they do not settle, or no design is there.
    """
    own = options.refinement
    template = perturbed_templates(problem, (), np.zeros((0, 2)))
    fixed = lattice_of(problem).design(point)
    free = {each.name: each for each in problem.variables if each.lower < each.upper and each.name not in fixed}
    middle = {name: start[name] for name in free}
    roots = lifted_boxes(problem.template)
    ends = {name: (each.lower, each.upper) for name, each in free.items()} | roots
    for width in (own.root_width, own.widest):  # a start may hold less than the question asks
        around = {name: _around(value, width, ends[name], own) for name, value in middle.items()}
        bound, _ = fixed_integer_program(problem, point, template, around, options=options)
        first = solve_accurately(bound, options)
        if first.status[0] == SolveStatus.solved:  # roots of the model there
            solved = zip(bound.names, first.y[0], strict=True)
            middle |= {name: math.exp(y) for name, y in solved if name in (roots if width == own.root_width else ends)}
            break
    width = own.widest
    for _ in range(own.iterations):
        near = {name: _around(value, width, ends[name], own) for name, value in middle.items()}
        programme, holds = fixed_integer_program(problem, point, template, near, Condensation, options)
        answers = solve_accurately(programme, options)
        solved = answers.status[0] == SolveStatus.solved
        if not holds[0] or not (
            solved or (answers.status[0] == SolveStatus.unresolved and answers.residual[0] < own.rough_residual)
        ):
            raise NoDerivative("no optimum was found beside the answer, its integers held")
        found = {name: math.exp(y) for name, y in zip(programme.names, answers.y[0], strict=True) if name in ends}
        step = max(abs(math.log(value / middle.get(name, value))) for name, value in found.items())
        if solved and step < own.settled and middle.keys() >= found.keys():
            return {name: _around(value, own.narrowest, ends[name], own) for name, value in found.items()}
        middle |= found
        width = min(width, max(10.0 * step, own.narrowest))
    raise NoDerivative("the optimum beside the answer, its integers held, does not settle")


def solve_accurately(programme: ConvexProgram, options: SearchOptions = SEARCH) -> BatchResult:
    """The programme of the first node, solved to the first of the gaps that its steps reach."""
    numbers = programme.numbers.take([0])
    for tolerance in options.refinement.gaps:
        answers = solve(programme.structure, numbers, tolerance=tolerance, options=options.interior_point)
        if answers.status[0] != SolveStatus.unresolved:
            break
    return answers


def optimum_near(
    problem: Problem, point: np.ndarray, start: Mapping[str, float], options: SearchOptions = SEARCH
) -> tuple[float, dict[str, float]]:
    """The objective at the optimum of one integer design beside `start`, SI, and what it decides there.

    **Raises:** `NoDerivative` as `boxes_around`.
    """
    near = boxes_around(problem, point, start, options)
    programme, _ = fixed_integer_program(
        problem, point, perturbed_templates(problem, (), np.zeros((0, 2))), near, Condensation, options
    )
    answers = solve_accurately(programme, options)
    found = {name: math.exp(y) for name, y in zip(programme.names, answers.y[0], strict=True) if name in near}
    return math.exp(answers.objective[0] + programme.constant[0]), found


def _around(value: float, width: float, ends: tuple[float, float], options: RefinementOptions) -> tuple[float, float]:
    """A box around a value, cut where its variable ends: evenly, so that the value stays its middle."""
    room = min(math.log(ends[1] / value), math.log(value / ends[0]))
    if room < options.settled:  # at an end of its variable's box, where it may only go one way
        return max(value * math.exp(-width), ends[0]), min(value * math.exp(width), ends[1])
    width = min(width, room)
    return value * math.exp(-width), value * math.exp(width)
