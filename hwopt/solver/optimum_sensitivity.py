"""Sensitivity of an optimum to inputs, budgets and bounds: shadow prices of assumptions, with integers and plan fixed.

At the optimum (y, λ) of the convex program of one integer design, with multipliers l and u of the lower and upper bounds,

    d F* / d log θ = ∂ L / ∂ log θ,   L = constant + c·y + Σ λ_k g_k(y) + l·(lower - y) + u·(y - upper)      (envelope theorem)

The input θ enters the program through its coefficients only. The program is therefore built once, with one perturbed template
for each input and side, and the values of L are compared.

The derivatives of the design follow from the optimality conditions (implicit function theorem). With H the curvature of the
Lagrangian and B the gradients of active constraints and bounds,

    [H Bᵀ; B 0] (dy, dλ) = - (d stationarity, d values)

A solution dy is the derivative of the design. Without a solution, the optimum has no derivative; where the matrix is singular,
some components of dy are undetermined.

**Source:** Boyd and Vandenberghe, Convex Optimization (2004), 5.6; Fiacco, Introduction to Sensitivity and Stability Analysis
in Nonlinear Programming (1983), chapter 3.
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
    """Elasticities of an optimum and of its design, with integers and plan fixed: % per % of each input."""

    objective: float  # SI
    elasticities: np.ndarray  # (place,); NaN where the convex program is not the model itself
    kinked: np.ndarray  # (place,) whether the two sides differ (the mean is given), or only one is known
    budgets: dict[str, float]  # d log objective / d log limit, not above 0
    bounds: dict[str, tuple[str, float]]  # variable -> active side, d log objective / d log of that bound
    design: dict[str, float]  # continuous variables, SI
    design_elasticities: np.ndarray  # (place, variable); NaN where the design is not determined
    design_by_budget: np.ndarray  # (budget, variable)
    nearly_active: int  # constraints about to switch: derivatives then hold to one side only
    convex: bool = (
        True  # whether the model is convex there; else the optimum is local, and derivatives of the design are unknown
    )


class NoOptimum(UserError):
    """Raised where no design satisfies every budget, so that there is no optimum to differentiate."""


def point_of(solution: Solution) -> np.ndarray:
    """Return the integers of a solution, in the order of its lattice's coordinates.

    **Raises:** `NoOptimum` where the solution violates a budget.
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
    """Return elasticities of the optimum of one integer design with respect to inputs, budgets and bounds.

    Where the model is not convex, as for a custom chip design, the optimum is the local one near `start`. Condensed programs,
    which match the model's values and slopes there, give multipliers and elasticities. The derivatives of the design stay
    unknown, because these programs have another curvature than the model.

    **Arguments:**

    - `point`: integers of the design.
    - `places`: the inputs, positive numbers.
    - `exponents`: inputs that the model uses as exponents. They cannot share one program with the others, and are re-solved one
      by one.
    - `start`: values of the design's variables, SI units; needed where the model is not convex.
    - `options`: steps and tolerances.

    **Raises:** `NoOptimum` where no hardware satisfies the budgets; `NoDerivative` where the model is not convex and no `start`
    is given, or the optimum is not found; `UserError` where the design is not a point of the lattice.
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
    # Stationarity without bounds: the remainder is the multipliers of the bounds.
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
    """Return the convex program at the template, then with each input a step up and a step down.

    **Returns:** the programs, whether the constant constraints of each are satisfied, and which inputs could share one
    structure.
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
    """Return optima of one integer design with inputs perturbed one at a time, relative to the unperturbed optimum.

    **Arguments:** `factors`: factors on each input (place, side).

    **Returns:** (place, side); infinite where no design satisfies the budgets, NaN where the convex program is not the model
    itself.
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
    """Return the optimum at the problem's own template.

    **Arguments:** `holds`: whether the constant constraints are satisfied.

    **Raises:** `NoOptimum` where the program is infeasible; `NoDerivative` where it is only a relaxation of the model, or not
    solved.
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
    """Return whether the convex program of one integer design is the model itself, not a relaxation."""
    programme, _ = fixed_integer_program(
        problem, point, perturbed_templates(problem, (), np.zeros((0, 2))), options=options
    )
    return not programme.inexact()[0]


def _solved_again(
    problem: Problem, point: np.ndarray, place: Place, near: Near | None = None, options: SearchOptions = SEARCH
) -> float:
    """Return the elasticity to one input by re-solving on both sides of its value."""
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
        )  # one template at a time, because exponents differ
        answers = solve(programme.structure, programme.numbers, tolerance=1e-10, options=options.interior_point)
        exact = answers.status[0] == SolveStatus.solved and not programme.inexact()[0]
        logs.append(answers.objective[0] + programme.constant[0] if exact else math.nan)
    return (logs[0] - logs[1]) / (2.0 * step)


def _central(up: np.ndarray, down: np.ndarray, unknown: np.ndarray, kink: float) -> tuple[np.ndarray, np.ndarray]:
    """Return elasticities (place,) as means of the two sides, and where there is a kink.

    If only one side is known, it is returned, and counts as a kink.

    **Arguments:**

    - `up`, `down`: one-sided elasticities (place,).
    - `unknown`: whether the upper and the lower side are unknown (place, 2).
    - `kink`: relative difference of the sides above which there is a kink.
    """
    one_side = np.where(unknown[:, 1], np.where(unknown[:, 0], np.nan, up), down)
    mean = np.where(unknown.any(axis=1), one_side, 0.5 * (up + down))
    return mean, unknown.any(axis=1) | (np.abs(up - down) > kink * (1.0 + np.abs(mean)))


def _finite(values: np.ndarray) -> np.ndarray:
    """Return constraint values with 0 for groups without terms, which are always satisfied."""
    return np.where(np.isfinite(values), values, 0.0)


def _groups(
    structure: ProgramStructure, numbers: ProgramNumbers, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values and gradients of the constraints, and the weights of their terms, at one point.

    **Shapes:** (node, group), (node, group, variable) and (node, term).
    """
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
    """Linearized optimality conditions at an optimum: [H Bᵀ; B 0] (dy, dλ) = right-hand side."""

    matrix: np.ndarray
    active: np.ndarray  # active constraint groups
    lower: np.ndarray  # variables at their lower bound
    upper: np.ndarray
    nearly: int
    rank: float

    @classmethod
    def at(
        cls, structure, numbers, y, multipliers, stationarity, values, gradients, weights, own: SensitivityOptions
    ) -> _Conditions:
        """Build the conditions from the constraints at the optimum.

        **Arguments:** `values` (group,), `gradients` (group, variable) and `weights` (term,) of the constraints; `multipliers`
        (group,); `stationarity` (variable,) without bounds.
        """
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
        """Return derivatives of the optimal variables (case, variable); NaN where they are not determined.

        **Arguments:** derivatives of the stationarity conditions (case, variable), of the constraints (case, group), and of the
        lower and upper bounds (case, variable).
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
