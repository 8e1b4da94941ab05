"""How an optimum moves with the numbers it stands on: shadow prices of assumptions, with whole numbers and plan fixed.

At the optimum (y, λ) of the convex programme of one whole-number design, with box multipliers l and u,

    d F* / d log θ = ∂ L / ∂ log θ,   L = constant + c·y + Σ λ_k g_k(y) + l·(lower - y) + u·(y - upper)      (envelope theorem)

where θ enters the numbers of the programme alone: it is read once with one perturbed template a node, and L is compared.
The design follows from differentiating what it solves, stationarity and the active constraints (implicit function theorem).

**Source:** Boyd and Vandenberghe, Convex Optimization (2004), 5.6; Fiacco, Introduction to Sensitivity and Stability
Analysis in Nonlinear Programming (1983), chapter 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from hwopt.convex.canonical import Programme
from hwopt.convex.feasibility import infeasible
from hwopt.convex.interior_point import Answers, Status, solve
from hwopt.convex.programme import Numbers, Structure
from hwopt.convex.reader import Unreadable
from hwopt.convex.signomial import Algebra
from hwopt.design.problem import Problem
from hwopt.errors import UserError
from hwopt.optim.boxes import Boxes
from hwopt.optim.conditions import NEARLY, Conditions, finite, groups
from hwopt.optim.lattices import lattice_of
from hwopt.optim.reading import programme_of, read_design
from hwopt.optim.solution import Solution

STEP = 1e-5
"""Relative step of differences: of closed forms, so that rounding and curvature both leave ten digits."""

RESOLVED_STEP = 1e-3
"""The same where the programme is solved again."""

KINK = 1e-2
"""Difference of one-sided elasticities, over one plus their size, from which both are told apart."""

Place = tuple[int, int]
"""An input: which leaf of the problem's template, and which element of it."""


@dataclass(frozen=True)
class OptimumSensitivity:
    """Elasticities of an optimum and of its design, whole numbers and plan fixed: % by % of each input."""

    objective: float  # SI
    elasticities: np.ndarray  # (place,); NaN where the programme cannot be read beside the point
    kinked: np.ndarray  # (place,) whether it differs to the two sides, then the mean; or is known to one side only
    budgets: dict[str, float]  # d log objective / d log limit, not above 0
    bounds: dict[str, tuple[str, float]]  # variable -> side of its box, d log objective / d log of that bound
    design: dict[str, float]  # continuous variables, SI
    design_elasticities: np.ndarray  # (place, variable); NaN where the design is not determined
    design_by_budget: np.ndarray  # (budget, variable)
    nearly_active: int  # constraints about to bind or to let go: there the derivatives hold to one side only


class NoOptimum(UserError):
    """No design holds every budget: there is nothing to be sensitive."""


class NotKnown(UserError):
    """The optimum is no solved convex programme, so that its derivatives are not known."""


def point_of(solution: Solution) -> np.ndarray:
    """Whole numbers of an answer, in the order of its lattice's `COORDINATES`.

    **Raises:** `NoOptimum` where the answer breaks a budget.
    """
    if not solution.feasible:
        raise NoOptimum(f"no design holds every budget, so there is no optimum to examine. {solution.clash}")
    return lattice_of(solution.problem).point(solution.built)


def optimum_sensitivity(
    problem: Problem, point: np.ndarray, places: Sequence[Place], exponents: frozenset[Place] = frozenset()
) -> OptimumSensitivity:
    """Elasticities of the optimum of one whole-number design to inputs, budgets and bounds.

    **Arguments:** `point` whole numbers of the design; `places` of the inputs, positive numbers; `exponents`: those that the
    model uses as powers, which cannot be read together and are solved again one by one where they matter.

    **Raises:** `NoOptimum` where no hardware holds the budgets; `NotKnown` where the model is not convex there; `UserError`
    where the design is no point of the question's lattice.
    """
    programme, holds, together = _perturbed(problem, point, places, exponents)
    answers = _solved(programme, bool(holds[0]))
    structure, numbers = programme.structure, programme.numbers
    y, multipliers = answers.y[0], np.maximum(answers.multipliers[0], 0.0)
    values, gradients, weights = groups(structure, numbers, y)
    # Stationarity, without the box: what is left of it, the box holds.
    stationarity = structure.objective + np.einsum("k,nkj->nj", multipliers, gradients)
    at_lower, at_upper = np.maximum(stationarity[0], 0.0), np.maximum(-stationarity[0], 0.0)
    lagrangian = programme.constant + finite(values) @ multipliers
    lagrangian += numbers.lower @ at_lower - numbers.upper @ at_upper
    up, down = lagrangian[1::2] - lagrangian[0], lagrangian[0] - lagrangian[2::2]
    unknown = (_inexact(programme, len(holds)) | ~holds)[1:].reshape(-1, 2)
    elasticities, kinked = _central(up / STEP, down / STEP, unknown)
    for i in np.flatnonzero(~together):
        elasticities[i] = _solved_again(problem, point, places[int(i)])

    conditions = Conditions.at(
        structure, numbers.take([0]), y, multipliers, stationarity[0], values[0], gradients[0], weights[0]
    )
    by_limit = np.zeros((len(problem.budgets), len(structure.target)))
    for i, budget in enumerate(problem.budgets):
        by_limit[i, programme.group(budget.name)] = -1.0
    nothing = np.zeros((len(by_limit), len(y)))
    slopes = (
        (each[1::2] - each[2::2]) / (2 * STEP) for each in (stationarity, finite(values), numbers.lower, numbers.upper)
    )
    moved = conditions.moves(*slopes)
    moved[~together | unknown.any(axis=1)] = np.nan

    names = [each.name for each in problem.variables]
    columns = {name: column for column, name in enumerate(programme.names) if name in names}
    own = list(columns.values())
    return OptimumSensitivity(
        objective=float(np.exp(answers.objective[0] + programme.constant[0])),
        elasticities=elasticities,
        kinked=kinked,
        budgets={budget.name: float(by_limit[i] @ multipliers) for i, budget in enumerate(problem.budgets)},
        bounds=_bounds(columns, at_lower, at_upper),
        design={name: math.exp(y[column]) for name, column in columns.items()},
        design_elasticities=moved[:, own],
        design_by_budget=conditions.moves(nothing, by_limit, nothing, nothing)[:, own],
        nearly_active=conditions.nearly,
    )


def _perturbed(
    problem: Problem, point: np.ndarray, places: Sequence[Place], exponents: frozenset[Place]
) -> tuple[Programme, np.ndarray, np.ndarray]:
    """The programme at the template, then with each place a step up and a step down.

    **Returns:** the programme, where its numbers hold, and which places could be read together with the others.
    """
    factors = np.tile(np.exp([STEP, -STEP]), (len(places), 1))
    together = np.ones(len(places), bool)
    try:
        programme, holds = _read(problem, point, _templates(problem, places, factors))
    except NotKnown:
        together = np.array([each not in exponents for each in places], bool)
        factors[~together] = 1.0
        programme, holds = _read(problem, point, _templates(problem, places, factors))
    return programme, holds, together


def _bounds(columns: dict[str, int], at_lower: np.ndarray, at_upper: np.ndarray) -> dict[str, tuple[str, float]]:
    """Variables that their box holds: which side, and the optimum's elasticity to it."""
    held = {}
    for name, column in columns.items():
        if at_lower[column] > NEARLY:
            held[name] = ("lower", float(at_lower[column]))
        elif at_upper[column] > NEARLY:
            held[name] = ("upper", -float(at_upper[column]))
    return held


def optima(problem: Problem, point: np.ndarray, places: Sequence[Place], factors: np.ndarray) -> np.ndarray:
    """Optima of one whole-number design with inputs moved, one at a time, over the optimum as it is.

    **Arguments:** `factors` (place, side) on each input.

    **Returns:** (place, side); infinite where no design holds the budgets, NaN where the programme cannot be read there.
    """
    if not len(places):
        return np.zeros((0, factors.shape[1]))
    programme, holds = _read(problem, point, _templates(problem, places, factors))
    answers = solve(programme.structure, programme.numbers, tolerance=1e-9)
    log_objective = answers.objective + programme.constant
    known = (answers.status == Status.solved) & ~_inexact(programme, len(holds))
    value = np.where(known, np.exp(log_objective - log_objective[0]), np.nan)
    value = np.where(_impossible(programme.structure, programme.numbers, answers) | ~holds, np.inf, value)
    return value[1:].reshape(factors.shape)


def _templates(problem: Problem, places: Sequence[Place], factors: np.ndarray) -> list[np.ndarray]:
    """Leaves (node, *shape): the template itself, then for each place and factor the template with that element moved."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(problem.template)]
    nodes = 1 + factors.size
    held: list[np.ndarray] = [leaf[None] for leaf in leaves]
    for i, (leaf, element) in enumerate(places):
        if len(held[leaf]) == 1:
            held[leaf] = np.repeat(held[leaf], nodes, axis=0)
        rows = held[leaf].reshape(nodes, -1)
        rows[1 + i * factors.shape[1] : 1 + (i + 1) * factors.shape[1], element] *= factors[i]
    return held


def _read(problem: Problem, point: np.ndarray, template: list[np.ndarray]) -> tuple[Programme, np.ndarray]:
    """The programme of one whole-number design at each of the templates, and where the constraints that are numbers hold.

    **Raises:** `NotKnown` where the model cannot be read.
    """
    nodes = max(len(leaf) for leaf in template)
    lattice, algebra = lattice_of(problem), Algebra()
    if not lattice.valid(point[None]).all():
        raise UserError(f"problem '{problem.name}': {point.tolist()} is no design of its lattice")
    corners = np.repeat(point[None], nodes, axis=0)
    values, ties = lattice.values(algebra, Boxes(corners, corners))
    try:
        read = read_design(problem, algebra, values, nodes, template=template)
    except Unreadable as reason:
        raise NotKnown(f"the model cannot be read as a convex programme there: {reason}") from None
    return programme_of(read, ties), read.holds


def _solved(programme: Programme, holds: bool) -> Answers:
    """The optimum with the problem's own template; `holds`: whether the constraints that are numbers do.

    **Raises:** `NoOptimum` where there is none, `NotKnown` where what was solved is only a bound on it.
    """
    for each in programme.replaced:
        if np.broadcast_to(each.nodes, (len(programme.constant),))[0]:
            raise NotKnown(f"the model is not convex in log space there: {each}")
    answers = solve(programme.structure, programme.numbers.take([0]), tolerance=1e-9)
    if not holds or _impossible(programme.structure, programme.numbers.take([0]), answers)[0]:
        raise NoOptimum("no hardware holds the budgets with these whole numbers: there is no optimum to examine")
    if answers.status[0] != Status.solved:
        raise NotKnown(f"the optimum was not found to the last digit (residual {answers.residual[0]:.1g})")
    return answers


def _impossible(structure: Structure, numbers: Numbers, answers: Answers) -> np.ndarray:
    """Which programmes have no feasible point, (problem,) truth values."""
    found = answers.status == Status.infeasible
    unsure = np.flatnonzero(answers.status == Status.unresolved)
    if len(unsure):
        found[unsure] = infeasible(structure, numbers.take(unsure))
    return found


def _solved_again(problem: Problem, point: np.ndarray, place: Place) -> float:
    """The elasticity to one input by solving on both sides."""
    logs = []
    for sign in (1.0, -1.0):
        programme, _ = _read(problem, point, _moved(problem, place, math.exp(sign * RESOLVED_STEP)))  # exponents differ
        answers = solve(programme.structure, programme.numbers, tolerance=1e-10)
        exact = answers.status[0] == Status.solved and not _inexact(programme, 1)[0]
        logs.append(answers.objective[0] + programme.constant[0] if exact else math.nan)
    return (logs[0] - logs[1]) / (2.0 * RESOLVED_STEP)


def _moved(problem: Problem, place: Place, factor: float) -> list[np.ndarray]:
    """The template with one element moved, a single node."""
    return [leaf[-1:] for leaf in _templates(problem, [place], np.array([[factor]]))]


def _central(up: np.ndarray, down: np.ndarray, unknown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Elasticities from one-sided ones, (place,) each, and where the two differ; one side where only that is known."""
    one_side = np.where(unknown[:, 1], np.where(unknown[:, 0], np.nan, up), down)
    mean = np.where(unknown.any(axis=1), one_side, 0.5 * (up + down))
    return mean, unknown.any(axis=1) | (np.abs(up - down) > KINK * (1.0 + np.abs(mean)))


def _inexact(programme: Programme, nodes: int) -> np.ndarray:
    """Nodes at which something was replaced by a bound."""
    marked = np.zeros(nodes, bool)
    for each in programme.replaced:
        marked |= np.broadcast_to(each.nodes, (nodes,))
    return marked
