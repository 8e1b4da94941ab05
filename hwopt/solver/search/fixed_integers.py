"""Convex subproblem of one integer design: all integers fixed, optionally with perturbed parameters or in a trust region."""

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
"""An input of the model: index of a leaf of the problem's template, and index of an element in that leaf."""

Near: TypeAlias = Mapping[str, tuple[float, float]]
"""Trust region around a solution: lower and upper bound of each variable of the convex program by name, SI units."""


class NoDerivative(UserError):
    """Raised where derivatives of an optimum are unknown, because it is not the solution of a convex program."""


def perturbed_templates(problem: Problem, places: Sequence[Place], factors: np.ndarray) -> list[np.ndarray]:
    """Return leaves (node, *shape) of the template itself, then of one copy for each place and factor.

    In each copy, one element is multiplied by the factor.

    **Arguments:**

    - `places`: elements to perturb.
    - `factors`: factors on each of them (place, factor).
    """
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
    """Return the convex program of one integer design at each template, and whether its constant constraints are satisfied.

    **Arguments:**

    - `point`: the integer design.
    - `template`: leaves of the templates (node, *shape).
    - `near`: bounds of variables, inside the problem's own.
    - `rows_of`: by default, rows that bound the model globally. `Condensation` makes rows that match its values and slopes at
      the middle of `near`.

    **Returns:** the programs, one for each template, and truth values (node,).

    **Raises:** `NoDerivative` where the model cannot be canonicalized; `UserError` where `point` is not in the lattice.
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
        raise NoDerivative(f"the model cannot be read as a convex program at this design: {reason}") from None
    return draft.programme(nodes), np.broadcast_to(canonical.holds, (nodes,))


def boxes_around(
    problem: Problem, point: np.ndarray, start: Mapping[str, float], options: SearchOptions = SEARCH
) -> Near:
    """Return a narrow trust region around the optimum of one integer design, found by sequential convex programming.

    Each condensed program matches the model's values and slopes at the last solution; the iteration ends when the solution
    settles.

    **Arguments:** `start`: continuous variables of the first iterate, SI units.

    **Raises:** `NoDerivative` where the iteration does not converge or a program has no solution.
    """
    own = options.refinement
    template = perturbed_templates(problem, (), np.zeros((0, 2)))
    fixed = lattice_of(problem).design(point)
    free = {each.name: each for each in problem.variables if each.lower < each.upper and each.name not in fixed}
    middle = {name: start[name] for name in free}
    roots = lifted_boxes(problem.template)
    ends = {name: (each.lower, each.upper) for name, each in free.items()} | roots
    for width in (own.root_width, own.widest):  # a start may miss a constraint, so that the narrow range is infeasible
        around = {name: _around(value, width, ends[name], own) for name, value in middle.items()}
        bound, _ = fixed_integer_program(problem, point, template, around, options=options)
        first = solve_accurately(bound, options)
        if first.status[0] == SolveStatus.solved:  # with consistent roots of the model
            solved = zip(bound.names, first.y[0], strict=True)
            middle |= {name: math.exp(y) for name, y in solved if name in (roots if width == own.root_width else ends)}
            break
    width, last = own.widest, math.inf
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
        # At a kink the iterates change sides without coming closer, until the trust region is narrower.
        width = min(width, max(10.0 * step, own.narrowest)) if step < 0.5 * last else 0.5 * width
        last = step
    raise NoDerivative("the optimum beside the answer, its integers held, does not settle")


def solve_accurately(programme: ConvexProgram, options: SearchOptions = SEARCH) -> BatchResult:
    """Solve the program of the first node to the smallest gap of the options that can be reached."""
    numbers = programme.numbers.take([0])
    for tolerance in options.refinement.gaps:
        answers = solve(programme.structure, numbers, tolerance=tolerance, options=options.interior_point)
        if answers.status[0] != SolveStatus.unresolved:
            break
    return answers


def _around(value: float, width: float, ends: tuple[float, float], options: RefinementOptions) -> tuple[float, float]:
    """Return a range around a value, symmetric in log space and inside the variable's bounds."""
    room = min(math.log(ends[1] / value), math.log(value / ends[0]))
    if room < options.settled:  # at a bound of its variable, where it can move one way only
        return max(value * math.exp(-width), ends[0]), min(value * math.exp(width), ends[1])
    width = min(width, room)
    return value * math.exp(-width), value * math.exp(width)
