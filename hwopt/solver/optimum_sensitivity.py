"""How an optimum moves with the numbers it stands on: shadow prices of assumptions, with integers and plan fixed.

At the optimum (y, λ) of the convex programme of one integer design, with box multipliers l and u,

    d F* / d log θ = ∂ L / ∂ log θ,   L = constant + c·y + Σ λ_k g_k(y) + l·(lower - y) + u·(y - upper)      (envelope theorem)

where θ enters the numbers of the programme alone: it is read once with one perturbed template a node, and L is compared.
The design follows from differentiating what it solves (implicit function theorem). With H the curvature of the Lagrangian and
B the gradients of what is active, constraints and sides of the box,

    [H Bᵀ; B 0] (dy, dλ) = - (d stationarity, d values)

has the solution dy, or none where the optimum has no derivative; where the matrix is singular, some of dy is free.

**Source:** Boyd and Vandenberghe, Convex Optimization (2004), 5.6; Fiacco, Introduction to Sensitivity and Stability
Analysis in Nonlinear Programming (1983), chapter 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hwopt.design.lattices import lattice_of
from hwopt.design.problem import Problem
from hwopt.errors import UserError
from hwopt.solver.gp.canonical import ConvexProgram, ProgramBuilder
from hwopt.solver.gp.certificate import constraints
from hwopt.solver.gp.condensation import Condensation
from hwopt.solver.gp.program import ProgramNumbers, ProgramStructure
from hwopt.solver.interior_point.batch import solve
from hwopt.solver.interior_point.elastic import proved_infeasible
from hwopt.solver.interior_point.result import BatchResult, SolveStatus
from hwopt.solver.options import SEARCH, SearchOptions, SensitivityOptions
from hwopt.solver.search.fixed_integers import (
    Near,
    NoDerivative,
    Place,
    boxes_around,
    fixed_integer_program,
    perturbed_templates,
    solve_accurately,
)
from hwopt.solver.search.solve_global import design_values
from hwopt.solver.solution import Solution


@dataclass(frozen=True)
class OptimumSensitivity:
    """Elasticities of an optimum and of its design, integers and plan fixed: % by % of each input."""

    objective: float  # SI
    elasticities: np.ndarray  # (place,); NaN where the programme cannot be read beside the point
    kinked: np.ndarray  # (place,) whether it differs to the two sides, then the mean; or is known to one side only
    budgets: dict[str, float]  # d log objective / d log limit, not above 0
    bounds: dict[str, tuple[str, float]]  # variable -> side of its box, d log objective / d log of that bound
    design: dict[str, float]  # continuous variables, SI
    design_elasticities: np.ndarray  # (place, variable); NaN where the design is not determined
    design_by_budget: np.ndarray  # (budget, variable)
    nearly_active: int  # constraints about to bind or to let go: there the derivatives hold to one side only
    convex: bool = (
        True  # the model there; else it is the optimum beside an answer, and how the design follows is not known
    )


class NoOptimum(UserError):
    """No design satisfies every budget: there is nothing to be sensitive."""


def point_of(solution: Solution) -> np.ndarray:
    """Integers of an answer, in the order of its lattice's coordinates.

    **Raises:** `NoOptimum` where the answer breaks a budget.
    """
    if not solution.feasible:
        raise NoOptimum(
            f"no design satisfies every budget, so there is no optimum to examine. {solution.infeasibility}"
        )
    return lattice_of(solution.problem).point(design_values(solution))


def optimum_sensitivity(
    problem: Problem,
    point: np.ndarray,
    places: Sequence[Place],
    exponents: frozenset[Place] = frozenset(),
    start: Mapping[str, float] | None = None,
    options: SearchOptions = SEARCH,
) -> OptimumSensitivity:
    """Elasticities of the optimum of one integer design to inputs, budgets and bounds.

    Where its model is not convex, such as of drawn chips, the optimum is the one beside `start`, and programmes that touch
    the model there tell multipliers and slopes; how the design follows stays unknown then, since they bend otherwise.

    **Arguments:** `point` integers of the design; `places` of the inputs, positive numbers; `exponents`: those that the
    model uses as powers, which cannot be read together and are solved again one by one where they matter; `start`: values of
    the design's variables, SI; `options`: steps and tolerances.

    **Raises:** `NoOptimum` where no hardware satisfies the budgets; `NoDerivative` where the model is not convex there; `UserError`
    where the design is no point of the question's lattice.
    """
    steps = options.sensitivity
    near = (
        None if start is None or _is_convex(problem, point, options) else boxes_around(problem, point, start, options)
    )
    programme, holds, together = _perturbed(problem, point, places, exponents, near, options)
    answers = _solved(programme, bool(holds[0]), options)
    structure, numbers = programme.structure, programme.numbers
    y, multipliers = answers.y[0], np.maximum(answers.multipliers[0], 0.0)
    values, gradients, weights = _groups(structure, numbers, y)
    # Stationarity, without the box: what is left of it, the box holds.
    stationarity = structure.objective + np.einsum("k,nkj->nj", multipliers, gradients)
    at_lower, at_upper = np.maximum(stationarity[0], 0.0), np.maximum(-stationarity[0], 0.0)
    lagrangian = programme.constant + _finite(values) @ multipliers
    lagrangian += numbers.lower @ at_lower - numbers.upper @ at_upper
    up, down = lagrangian[1::2] - lagrangian[0], lagrangian[0] - lagrangian[2::2]
    unknown = (programme.inexact() | ~holds)[1:].reshape(-1, 2)
    elasticities, kinked = _central(up / steps.step, down / steps.step, unknown, steps.kink)
    for i in np.flatnonzero(~together):
        elasticities[i] = _solved_again(problem, point, places[int(i)], near, options)

    conditions = _Conditions.at(
        structure, numbers.take([0]), y, multipliers, stationarity[0], values[0], gradients[0], weights[0], steps
    )
    by_limit = np.zeros((len(problem.budgets), len(structure.target)))
    for i, budget in enumerate(problem.budgets):
        by_limit[i, programme.group(budget.name)] = -1.0
    nothing = np.zeros((len(by_limit), len(y)))
    varied = (stationarity, _finite(values), numbers.lower, numbers.upper)
    moved = conditions.moves(*((each[1::2] - each[2::2]) / (2 * steps.step) for each in varied))
    moved[~together | unknown.any(axis=1) | (near is not None)] = np.nan
    by_budget = conditions.moves(nothing, by_limit, nothing, nothing)
    by_budget[:] = by_budget if near is None else np.nan

    names = [each.name for each in problem.variables]
    columns = {name: column for column, name in enumerate(programme.names) if name in names}
    own = list(columns.values())
    return OptimumSensitivity(
        objective=float(np.exp(answers.objective[0] + programme.constant[0])),
        elasticities=elasticities,
        kinked=kinked,
        budgets={budget.name: float(by_limit[i] @ multipliers) for i, budget in enumerate(problem.budgets)},
        bounds={
            name: ("lower", float(at_lower[j])) if at_lower[j] > steps.nearly_active else ("upper", -float(at_upper[j]))
            for name, j in columns.items()
            if max(at_lower[j], at_upper[j]) > steps.nearly_active
        },
        design={name: math.exp(y[column]) for name, column in columns.items()},
        design_elasticities=moved[:, own],
        design_by_budget=by_budget[:, own],
        nearly_active=conditions.nearly,
        convex=near is None,
    )


def _perturbed(
    problem: Problem,
    point: np.ndarray,
    places: Sequence[Place],
    exponents: frozenset[Place],
    near: Near | None,
    options: SearchOptions,
) -> tuple[ConvexProgram, np.ndarray, np.ndarray]:
    """The programme at the template, then with each place a step up and a step down.

    **Returns:** the programme, where its numbers hold, and which places could be read together with the others.
    """
    step = options.sensitivity.step
    factors = np.tile(np.exp([step, -step]), (len(places), 1))
    together, rows_of = np.ones(len(places), bool), ProgramBuilder if near is None else Condensation
    try:
        programme, holds = fixed_integer_program(
            problem, point, perturbed_templates(problem, places, factors), near, rows_of, options
        )
    except NoDerivative:
        together = np.array([each not in exponents for each in places], bool)
        factors[~together] = 1.0
        programme, holds = fixed_integer_program(
            problem, point, perturbed_templates(problem, places, factors), near, rows_of, options
        )
    return programme, holds, together


def optima(
    problem: Problem,
    point: np.ndarray,
    places: Sequence[Place],
    factors: np.ndarray,
    options: SearchOptions = SEARCH,
) -> np.ndarray:
    """Optima of one integer design with inputs moved, one at a time, over the optimum as it is.

    **Arguments:** `factors` (place, side) on each input.

    **Returns:** (place, side); infinite where no design satisfies the budgets, NaN where the programme cannot be read there.
    """
    if not len(places):
        return np.zeros((0, factors.shape[1]))
    programme, holds = fixed_integer_program(
        problem, point, perturbed_templates(problem, places, factors), options=options
    )
    answers = solve(programme.structure, programme.numbers, tolerance=1e-9, options=options.interior_point)
    log_objective = answers.objective + programme.constant
    known = (answers.status == SolveStatus.solved) & ~programme.inexact()
    value = np.where(known, np.exp(log_objective - log_objective[0]), np.nan)
    value = np.where(
        proved_infeasible(programme.structure, programme.numbers, answers, options.interior_point) | ~holds,
        np.inf,
        value,
    )
    return value[1:].reshape(factors.shape)


def _solved(programme: ConvexProgram, holds: bool, options: SearchOptions) -> BatchResult:
    """The optimum with the problem's own template; `holds`: whether the constraints that are numbers do.

    **Raises:** `NoOptimum` where there is none, `NoDerivative` where what was solved is only a bound on it.
    """
    for each in programme.relaxed:
        if np.broadcast_to(each.nodes, programme.constant.shape)[0]:
            raise NoDerivative(f"the model is not convex in log space there: {each}")
    answers = solve_accurately(programme, options)
    first = programme.numbers.take([0])
    if not holds or proved_infeasible(programme.structure, first, answers, options.interior_point)[0]:
        raise NoOptimum("no hardware satisfies the budgets with these integers: there is no optimum to examine")
    if answers.status[0] != SolveStatus.solved:
        raise NoDerivative(f"the optimum was not found to the last digit (residual {answers.residual[0]:.1g})")
    return answers


def _is_convex(problem: Problem, point: np.ndarray, options: SearchOptions) -> bool:
    """Whether the programme of one integer design is the model itself."""
    programme, _ = fixed_integer_program(
        problem, point, perturbed_templates(problem, (), np.zeros((0, 2))), options=options
    )
    return not programme.inexact()[0]


def _solved_again(
    problem: Problem, point: np.ndarray, place: Place, near: Near | None = None, options: SearchOptions = SEARCH
) -> float:
    """The elasticity to one input by solving on both sides."""
    logs, step = [], options.sensitivity.solved_step
    for sign in (1.0, -1.0):
        moved = perturbed_templates(problem, [place], np.exp([[sign * step]]))
        programme, _ = fixed_integer_program(
            problem,
            point,
            [leaf[-1:] for leaf in moved],
            near,
            ProgramBuilder if near is None else Condensation,
            options,
        )  # alone: exponents differ
        answers = solve(programme.structure, programme.numbers, tolerance=1e-10, options=options.interior_point)
        exact = answers.status[0] == SolveStatus.solved and not programme.inexact()[0]
        logs.append(answers.objective[0] + programme.constant[0] if exact else math.nan)
    return (logs[0] - logs[1]) / (2.0 * step)


def _central(up: np.ndarray, down: np.ndarray, unknown: np.ndarray, kink: float) -> tuple[np.ndarray, np.ndarray]:
    """Elasticities from one-sided ones, (place,) each, and where the two differ; one side where only that is known."""
    one_side = np.where(unknown[:, 1], np.where(unknown[:, 0], np.nan, up), down)
    mean = np.where(unknown.any(axis=1), one_side, 0.5 * (up + down))
    return mean, unknown.any(axis=1) | (np.abs(up - down) > kink * (1.0 + np.abs(mean)))


def _finite(values: np.ndarray) -> np.ndarray:
    """Groups without terms hold trivially and weigh nothing."""
    return np.where(np.isfinite(values), values, 0.0)


def _groups(
    structure: ProgramStructure, numbers: ProgramNumbers, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values (node, group), gradients (node, group, variable), and weights of terms (node, term) at one point."""
    values, weights, _ = constraints(structure, numbers, y[None])
    gradients = np.zeros((*values.shape, len(y)))
    for k, target in enumerate(structure.target):
        terms = structure.group == k
        gradients[:, k] = weights[:, terms] @ structure.exponents[terms]
        if target >= 0:
            gradients[:, k, target] -= 1.0
    return values, gradients, weights


@dataclass(frozen=True)
class _Conditions:
    """The optimality conditions at an optimum, linear in how it moves: [H Bᵀ; B 0] (dy, dλ) = right-hand side."""

    matrix: np.ndarray
    active: np.ndarray  # groups
    lower: np.ndarray  # variables at their lower bound
    upper: np.ndarray
    nearly: int
    rank: float

    @classmethod
    def at(
        cls, structure, numbers, y, multipliers, stationarity, values, gradients, weights, own: SensitivityOptions
    ) -> _Conditions:
        """From the groups at the optimum: `values` (group,), `gradients` (group, variable), `weights` (term,)."""
        slack = np.where(np.isfinite(values), -values, np.inf)
        active = np.flatnonzero(multipliers > np.maximum(slack, own.active))
        room = y - numbers.lower[0], numbers.upper[0] - y
        fixed = numbers.upper[0] - numbers.lower[0] < 1e-9
        lower = np.flatnonzero(fixed | (stationarity > np.maximum(room[0], own.active)))
        upper = np.flatnonzero(~fixed & (-stationarity > np.maximum(room[1], own.active)))
        soft = structure.target < 0
        exponents = structure.exponents
        curvature = np.einsum("i,ij,il->jl", multipliers[structure.group] * weights, exponents, exponents)
        inner = gradients[soft]
        curvature -= np.einsum("k,kj,kl->jl", multipliers[soft], inner, inner)
        sides = np.eye(len(y))[np.concatenate([lower, upper])]
        rows = np.concatenate([gradients[active], sides])
        matrix = np.block([[curvature, rows.T], [rows, np.zeros((len(rows), len(rows)))]])
        nearly = np.maximum(multipliers, slack) < own.nearly_active
        return cls(matrix, active, lower, upper, int(nearly.sum()), own.rank)

    def moves(self, stationarity, values, lower, upper) -> np.ndarray:
        """How the optimum moves as its conditions do, (case, variable); NaN where that is not determined.

        **Arguments:** derivatives of the stationarity (case, variable), of the groups (case, group) and of the box's ends
        (case, variable).
        """
        right = -np.hstack([stationarity, values[:, self.active], -lower[:, self.lower], -upper[:, self.upper]])
        u, s, vt = np.linalg.svd(self.matrix)
        kept = s > self.rank * s[0]
        solution = (right @ u[:, kept] / s[kept]) @ vt[kept]
        variables = stationarity.shape[1]
        free = np.abs(vt[~kept, :variables]).max(axis=0, initial=0.0) > 1e-6
        left = np.abs(right - solution @ self.matrix.T).max(axis=1, initial=0.0)
        moves = solution[:, :variables].copy()
        moves[:, free] = np.nan
        moves[left > 1e-6 * (1.0 + np.abs(right).max(axis=1, initial=0.0))] = np.nan
        return moves
