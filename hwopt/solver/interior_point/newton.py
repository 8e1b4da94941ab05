"""Primal-dual interior-point iteration for many convex programs of one structure at once, one column per program.

With slacks s, violations e penalized at the price R, multipliers λ and multipliers l, u of the variable bounds, the
iteration solves, as μ → 0,

    c + Jᵀλ - l + u,   g(y) + s - e,   s·λ - μ,   e·(R - λ) - μ,   (y - lower)·l - μ,   (upper - y)·u - μ     = 0

from a start that may be infeasible, with Mehrotra's predictor and corrector. With Λ = 1 / (s/λ + e/(R - λ)), the Newton
matrix is

    Σ_k λ_k ∇²g_k + Jᵀ Λ J + l / (y - lower) + u / (upper - y)

A log-sum-exp with weights p has ∇²g = Σ p_i A_i A_iᵀ - ∇g ∇gᵀ, which is zero for a single term. Each iteration tests the
tangent bound of `hwopt.solver.gp.certificate`, whose gradient is already available. This identifies a program that cannot
beat `cutoff`, or has no feasible point, immediately.

All arrays are immutable except those that `factors` may overwrite. The same code therefore runs on NumPy arrays and,
traced, on a device. The differences are in the tables: `hwopt.solver.interior_point.sparsity` and
`hwopt.solver.interior_point.device_loop`.

**Source:** Mehrotra, SIAM J. Optim. 2 (1992) 575; Wright, Primal-Dual Interior-Point Methods (1997); Boyd and
Vandenberghe, Convex Optimization (2004), 11.7.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hwopt.solver.gp.options import InteriorPointOptions
from hwopt.solver.gp.program import ProgramNumbers, ProgramStructure
from hwopt.solver.interior_point.result import SolveStatus
from hwopt.solver.interior_point.sparsity import SparsityFrame

ABSENT = -1e9
"""Finite substitute for -inf in exponents: its exponential is zero, and its product with zero is not NaN."""
FROZEN_WIDTH = 1e-11
"""Width of a variable's range below which the variable is treated as a constant."""
ROUNDING = {8: 1e-12, 4: 1e-7}
"""Rounding margin of bounds within the iteration, as a fraction of the sum of absolute values, by bytes per number."""
RUNNING = 0
"""Status of a program that is still being iterated."""

Array = Any
"""Array of NumPy or of a device."""


class ProblemData(NamedTuple):
    """Coefficients of the programs, one column each, with the variable bounds shifted to [0, width]."""

    constants: Array  # (term, problem)
    offsets: Array  # (bounded group, problem)
    cap: Array  # (bounded term, problem): exponentials are continued linearly above this exponent
    width: Array  # (variable, problem)
    there: Array  # (pair, problem) 1, or 0 for groups without terms and for constants
    pairs: Array  # (problem,) number of pairs present
    cutoff: Array  # (problem,)
    loose: Array  # (problem,) tolerance for a program that cannot be dropped


class Iterate(NamedTuple):
    """Current iterates of the programs, one column each.

    Complementary pairs (near, far) are (s, λ), (e, R - λ), (y - lower, l), (upper - y, u), in this order; absent pairs
    are 1.
    """

    y: Array  # (variable, problem)
    slack: Array  # (2 groups, problem) s, e
    multiplier: Array  # (group, problem) λ
    at_box: Array  # (2 variables, problem) l, u
    damping: Array
    merit: Array
    pace: Array
    iteration: Array
    best_y: Array
    best_multiplier: Array
    best_bound: Array
    best_residual: Array


class Residuals(NamedTuple):
    """Function values, gradients and status of the programs at their iterates, one column each."""

    status: Array
    values: Array  # (group, problem) g
    weights: Array  # (term, problem) weights of terms in the gradients
    bend: Array  # (term, problem) weights of terms in the curvatures
    gradient: Array  # (variable, problem) of the Lagrangian


class FinishedProblems(NamedTuple):
    """Results of programs that are no longer iterated, one column each."""

    number: Array  # (problem,) index among all programs
    status: Array  # (problem,) of `SolveStatus`, or `RUNNING` if the iterations ran out
    iteration: Array
    y: Array  # (variable, problem) point with the best bound
    multiplier: Array  # (group, problem)
    bound: Array
    residual: Array


def finish(number: Array, status: Array, state: Iterate) -> FinishedProblems:
    """Return the results of programs: the iterate with the best bound."""
    best = (state.best_y, state.best_multiplier, state.best_bound, state.best_residual)
    return FinishedProblems(number, status, state.iteration, *best)


def problem_data(
    structure: ProgramStructure, numbers: ProgramNumbers, frame: SparsityFrame, cutoff: np.ndarray, loose: np.ndarray
) -> ProblemData:
    """Return the data of all programs as columns, with the variable bounds shifted to [0, width]."""
    lower, upper = columns(numbers.lower, frame.variables), columns(numbers.upper, frame.variables)
    constants = columns(numbers.constants, frame.terms)
    present = np.isfinite(constants)
    moved = np.where(present, constants, 0.0) + frame.exponents @ lower
    offsets = columns(numbers.offsets, frame.groups[frame.soft :])
    # At a feasible point no exponential of the group exceeds the upper bound of its target minus the offset.
    room = np.log(np.maximum(upper[frame.target] - offsets, 1e-30)) + 0.5
    alive = (frame.sums @ present.astype(float)) > 0
    alive[frame.soft :] = True
    width = upper - lower
    free = width > FROZEN_WIDTH
    there = np.concatenate([alive, alive, free, free]).astype(float)
    return ProblemData(
        np.where(present, moved, ABSENT), offsets - lower[frame.target], room[frame.group[frame.soft_terms :] - frame.soft],
        width, there, there.sum(axis=0), cutoff - numbers.lower @ structure.objective, loose,
    )  # fmt: skip


def columns(table: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Transpose a table (problem, number) to columns (number, problem), with the numbers in the given order."""
    return np.ascontiguousarray(table[:, order].T)


def initial_iterate(frame: SparsityFrame, given: ProblemData, start: Array, options: InteriorPointOptions) -> Iterate:
    """Return initial iterates, in which the product of every complementary pair is 1."""
    xp, groups, count = frame.xp, frame.straight.shape[0], given.width.shape[1]
    y = xp.clip(start, options.start_margin * given.width, (1.0 - options.start_margin) * given.width)
    ones = xp.ones((groups, count), start.dtype)
    each = lambda value: xp.full(count, value, start.dtype)
    free = given.there[2 * groups :] > 0
    return Iterate(
        y, xp.concatenate([ones, ones / frame.roof]), ones,
        xp.where(free, 1.0 / xp.concatenate([y, given.width - y]), 1.0),
        each(0.0), each(xp.inf), each(1.0), xp.zeros(count, int),
        y, xp.zeros_like(ones), each(-xp.inf), each(xp.inf),
    )  # fmt: skip


def _values(frame: SparsityFrame, given: ProblemData, y: Array) -> tuple[Array, Array, Array]:
    """Return group values g, weights of terms in the gradients, and weights of terms in the curvatures."""
    xp, soft, terms = frame.xp, frame.soft, frame.soft_terms
    exponents = frame.exponents @ y
    exponents += given.constants
    alive = given.there[: frame.straight.shape[0]]
    shift = frame.largest(exponents) * alive
    exponents -= rows(shift, frame.group)
    beyond = exponents[terms:]
    above = xp.maximum(beyond - given.cap, 0.0)
    weights = xp.exp(xp.concatenate([exponents[:terms], beyond - above]))
    tail = weights[terms:]
    values = frame.sums @ xp.concatenate([weights[:terms], tail * (1.0 + above)])
    scale = values[:soft] + (1.0 - alive[:soft])
    values = xp.concatenate([shift[:soft] + xp.log(scale), values[soft:] + given.offsets - y[frame.target]])
    shares = weights[:terms] / rows(scale, frame.group[:terms])
    return (
        values,
        xp.concatenate([shares, tail]),
        xp.concatenate([shares, xp.where(above > 0.0, 0.0, tail)]),
    )


def rows(table: Array, which: Array) -> Array:
    """Return the rows `which` of a table."""
    return table.take(which, axis=0, mode="clip")


def _pull(frame: SparsityFrame, weights: Array, v: Array) -> Array:
    """Return Jᵀ v, where J is the Jacobian of the groups."""
    return frame.by_variable @ (weights * rows(v, frame.group)) - frame.to_target @ v


def _push(frame: SparsityFrame, weights: Array, d: Array) -> Array:
    """Return J d, where J is the Jacobian of the groups."""
    terms = frame.exponents @ d
    terms *= weights
    return frame.sums @ terms - frame.from_target @ d


def residuals(frame: SparsityFrame, given: ProblemData, state: Iterate, tolerance: float) -> tuple[Residuals, Iterate]:
    """Evaluate the programs at their iterates, and decide which of them have terminated.

    **Returns:** the residuals; and the iterates, with the point of the best bound updated.
    """
    xp, y, multiplier = frame.xp, state.y, state.multiplier
    values, weights, bend = _values(frame, given, y)
    of_constraints = _pull(frame, weights, multiplier)
    gradient = frame.objective[:, None] + of_constraints
    objective = frame.objective @ y
    violation = values.max(axis=0, initial=0.0)
    weighted = multiplier * values
    total = weighted.sum(axis=0)

    def least(slope: Array) -> Array:  # minimum of a tangent over the variable bounds
        return xp.minimum(-slope * y, slope * (given.width - y)).sum(axis=0)

    size = xp.abs(weighted)
    mass = size.sum(axis=0) + (xp.abs(of_constraints) * given.width).sum(axis=0)
    bound = objective + total + least(gradient)
    farkas = total + least(of_constraints)
    stationary = xp.abs(y - xp.clip(y - gradient, 0.0, given.width)).max(axis=0, initial=0.0)
    residual = xp.maximum(xp.maximum(stationary, violation), size.max(axis=0, initial=0.0))

    solved = (objective - bound <= tolerance) & (violation <= tolerance)
    enough = (objective - bound <= given.loose) & (violation <= given.loose) & (objective + given.loose <= given.cutoff)
    status = xp.where(solved, int(SolveStatus.solved), xp.where(enough, int(SolveStatus.open), RUNNING))
    margin = 10 * ROUNDING[y.dtype.itemsize]
    dropped = bound - margin * (mass + xp.abs(objective)) > given.cutoff
    status = xp.where(dropped, int(SolveStatus.dropped), status)
    status = xp.where(farkas > 1e-9 + margin * mass, int(SolveStatus.infeasible), status)
    better = (bound > state.best_bound) | (status != RUNNING)
    best = state._replace(
        best_y=xp.where(better, y, state.best_y),
        best_multiplier=xp.where(better, multiplier, state.best_multiplier),
        best_bound=xp.where(better, bound, state.best_bound),
        best_residual=xp.where(better, residual, state.best_residual),
    )
    return Residuals(status, values, weights, bend, gradient), best


def _factored(
    frame: SparsityFrame,
    given: ProblemData,
    state: Iterate,
    now: Residuals,
    ratio: Array,
    barrier: Array,
    options: InteriorPointOptions,
) -> Array:
    """Return Cholesky factors of the Newton matrices.

    **Arguments:** `ratio`: Λ (group, problem); `barrier`: diagonal of the bound terms (variable, problem).
    """
    xp = frame.xp
    curvature = xp.where(frame.straight, ratio, state.multiplier)
    matrix = frame.squares @ (now.bend * rows(curvature, frame.group))
    slopes = frame.slopes @ now.weights
    slopes -= frame.of_targets
    outer = xp.concatenate([ratio[: frame.soft] - state.multiplier[: frame.soft], ratio[frame.soft :]])
    products = rows(slopes * rows(outer, frame.slope_group), frame.left)
    products *= rows(slopes, frame.right)
    matrix += frame.outer @ products
    diagonal = matrix[frame.factors.diagonal]
    diagonal += barrier + options.damping + state.damping * (diagonal + barrier)
    return frame.factors.factor(matrix, xp.where(_free(given) > 0, diagonal, 1e30))


def _free(given: ProblemData) -> Array:
    """Return 1 for variables and 0 for constants, (variable, problem)."""
    return given.there[given.there.shape[0] - given.width.shape[0] :]


def newton_step(
    frame: SparsityFrame,
    given: ProblemData,
    state: Iterate,
    now: Residuals,
    tolerance: float,
    options: InteriorPointOptions,
) -> Iterate:
    """Perform one Newton step with predictor and corrector."""
    xp, groups, variables = frame.xp, frame.straight.shape[0], given.width.shape[0]
    y, multiplier, there, free = state.y, state.multiplier, given.there, _free(given)
    fresh = xp.where(state.iteration == 0, xp.maximum(-now.values, 1.0), state.slack[:groups])
    slack = xp.concatenate([fresh, state.slack[groups:]])
    fixed = 1.0 - free
    near = xp.concatenate([slack, y + fixed * (1.0 - y), given.width - y + fixed * (1.0 - given.width + y)])
    far = xp.concatenate([multiplier, frame.roof - multiplier, state.at_box])
    of_groups, of_box = slice(2 * groups), slice(2 * groups, None)
    at_lower, at_upper = state.at_box[:variables], state.at_box[variables:]
    ratios = near[of_groups] / far[of_groups]
    ratio = there[:groups] / (ratios[:groups] + ratios[groups:])
    barriers = far[of_box] / near[of_box]
    factor = _factored(frame, given, state, now, ratio, barriers[:variables] + barriers[variables:], options)
    primal = there[:groups] * (now.values + slack[:groups] - slack[groups:])
    dual = now.gradient - at_lower + at_upper

    def direction(of: Array) -> tuple[Array, Array]:
        """Return changes of `near` and `far` that reduce the products of pairs by `of`, to first order."""
        shares = of[of_groups] / far[of_groups]
        v = ratio * (primal - shares[:groups] + shares[groups:])
        shares = of[of_box] / near[of_box]
        right = free * (shares[variables:] - shares[:variables] - dual - _pull(frame, now.weights, v))
        d = free * frame.factors.solve(factor, right)
        change = v + ratio * _push(frame, now.weights, d)
        change, d = xp.concatenate([change, -change]), xp.concatenate([d, -d])
        by_groups = -(of[of_groups] + near[of_groups] * change) / far[of_groups]
        by_box = -(of[of_box] + far[of_box] * d) / near[of_box]
        return xp.concatenate([by_groups, d]), xp.concatenate([change, by_box])

    def reach(x: Array, change: Array) -> Array:
        """Return the largest step for which x stays positive."""
        return 1.0 / (-change / x).max(axis=0, initial=0.0)

    products = there * near * far
    mu = products.sum(axis=0) / given.pairs
    by_near, by_far = direction(products)
    a, b = xp.minimum(reach(near, by_near), 1.0), xp.minimum(reach(far, by_far), 1.0)
    ahead = (there * (near + a * by_near) * (far + b * by_far)).sum(axis=0) / given.pairs
    # Products far below the tolerance make the matrix ill-conditioned and do not improve the result.
    centre = xp.maximum(xp.clip(ahead / mu, 0.0, 1.0) ** 3 * mu, options.centering_floor * tolerance / given.pairs)
    by_near, by_far = direction(products + by_near * by_far - there * centre)
    merit = xp.abs(free * dual).max(axis=0, initial=0.0) + xp.abs(primal).max(axis=0, initial=0.0) + mu
    pace = xp.where(
        merit > state.merit, options.step_shrink * state.pace, xp.minimum(options.step_growth * state.pace, 1.0)
    )
    pace = xp.maximum(pace, options.least_step)
    a, b = (pace * xp.minimum(options.boundary * reach(*each), 1.0) for each in ((near, by_near), (far, by_far)))
    a, b = xp.minimum(a, options.step_ratio * b), xp.minimum(b, options.step_ratio * a)
    sound = xp.isfinite(by_near.sum(axis=0) + by_far[:groups].sum(axis=0))

    def moved(x: Array, step: Array, by: Array) -> Array:
        return xp.where(sound, x + step * by, x)

    return state._replace(
        y=moved(y, a, by_near[2 * groups : 2 * groups + variables]),
        slack=moved(slack, a, by_near[of_groups]),
        multiplier=moved(multiplier, b, by_far[:groups]),
        at_box=moved(state.at_box, b, by_far[of_box]),
        damping=xp.where(sound, 0.1 * state.damping, xp.maximum(1e2 * state.damping, 1e-14)),
        merit=merit,
        pace=pace,
        iteration=state.iteration + 1,
    )
