"""Proofs about a convex programme from any point and any multipliers: NumPy alone, nothing shared with the solver.

A convex function lies above its tangents, and the minimum of a tangent over a box is a sum of corners. So one gradient of
the Lagrangian bounds the global optimum from below, whoever found the point and however badly.

**Source:** Boyd and Vandenberghe, Convex Optimization (2004), 3.1.3 (tangents), 5.1.3 (Lagrangian bound), 5.8 (theorems of
alternatives).
"""

import numpy as np

from hwopt.solver.gp.program import ProgramNumbers, ProgramStructure

MARGIN = 1e-13
"""Rounding margin of a bound, as a fraction of the sum of the absolute values of all that was added up; the rounding error
itself is below the number of terms times 1.1e-16 of that sum."""


def constraints(structure: ProgramStructure, numbers: ProgramNumbers, y: np.ndarray):
    """Values of the groups, gradients' weights on terms, and the size of what was rounded in each value.

    **Arguments:** `y` (problem, variable), or one row for all.
    """
    soft, target = structure.target < 0, np.maximum(structure.target, 0)
    group = structure.group
    present, first = np.unique(group, return_index=True)

    def gathered(reduce: np.ufunc, terms: np.ndarray, nothing: float) -> np.ndarray:
        """Terms by group."""
        result = np.full((len(terms), len(soft)), nothing)
        if len(present):
            result[:, present] = reduce.reduceat(terms, first, axis=1)
        return result

    z = numbers.constants + y @ structure.exponents.T
    size = np.where(np.isfinite(z), np.abs(numbers.constants) + np.abs(y) @ np.abs(structure.exponents).T, 0.0)
    top = gathered(np.maximum, z, -np.inf)
    some = soft & np.isfinite(top)
    weights = np.exp(z - np.where(some, top, 0.0)[:, group])
    total = gathered(np.add, weights, 0.0)
    y = np.broadcast_to(y, (len(numbers), y.shape[-1]))
    values = np.where(
        soft, np.where(some, top + np.log(np.where(some, total, 1.0)), -np.inf), total + numbers.offsets - y[:, target]
    )
    of_targets = np.abs(numbers.offsets) + np.abs(y[:, target]) + gathered(np.add, weights * (1.0 + size), 0.0)
    rounded = np.where(soft, np.where(some, gathered(np.maximum, size, 0.0) + 1.0, 0.0), of_targets)
    return values, weights / np.where(some, total, 1.0)[:, group], rounded


def _lagrangian(
    structure: ProgramStructure, numbers: ProgramNumbers, y: np.ndarray, multipliers: np.ndarray, objective: np.ndarray
):
    """Value and gradient of the Lagrangian, each with the sum of absolute values behind it."""
    values, weights, rounded = constraints(structure, numbers, y)
    multipliers = np.where(np.isneginf(values), 0.0, np.clip(multipliers, 0.0, None))
    idle = multipliers == 0.0  # even where a value overflows
    values, rounded = np.where(idle, 0.0, values), np.where(idle, 0.0, rounded)
    terms = np.where(idle[:, structure.group], 0.0, weights * multipliers[:, structure.group])
    to_target = np.zeros((len(structure.target), len(objective)))
    to_target[structure.target >= 0, structure.target[structure.target >= 0]] = 1.0
    value = y @ objective + np.sum(multipliers * values, axis=1)
    gradient = objective + terms @ structure.exponents - multipliers @ to_target
    size = np.abs(y) @ np.abs(objective) + np.sum(multipliers * rounded, axis=1)
    # A term's weight inherits the rounding of its exponent, so it counts as often as the exponent is large.
    exponent = 1.0 + np.where(np.isfinite(numbers.constants), np.abs(numbers.constants), 0.0)
    exponent = exponent + np.abs(y) @ np.abs(structure.exponents).T
    gradient_size = np.abs(objective) + (terms * exponent) @ np.abs(structure.exponents) + multipliers @ to_target
    return value, gradient, size, gradient_size


def _bound(
    structure: ProgramStructure, numbers: ProgramNumbers, y: np.ndarray, multipliers: np.ndarray, objective: np.ndarray
):
    """The bound of each problem, and the slope of the tangent behind it."""
    with np.errstate(over="ignore", invalid="ignore"):
        value, gradient, size, gradient_size = _lagrangian(structure, numbers, y, multipliers, objective)
        to_lower, to_upper = numbers.lower - y, numbers.upper - y
        corner = np.minimum(gradient * to_lower, gradient * to_upper)
        reach = np.maximum(np.abs(to_lower), np.abs(to_upper))
        bound = value + corner.sum(axis=1) - MARGIN * (size + np.sum(gradient_size * reach, axis=1))
    return np.where(np.isfinite(bound), bound, -np.inf), gradient


def lower_bound(
    structure: ProgramStructure, numbers: ProgramNumbers, y: np.ndarray, multipliers: np.ndarray
) -> np.ndarray:
    """A rigorous lower bound on the global optimum, from any point and any multipliers.

    L(y0, λ) + Σ_j min over [lower_j, upper_j] of ∂_j L(y0, λ)·(y_j - y0_j), with L = c·y + Σ λ_k g_k; less `MARGIN` of
    the sum of absolute values.

    **Arguments:** `y` (problem, variable), need be neither feasible nor in the box; `multipliers` (problem, group),
    negative ones count as zero.
    **Returns:** the bound of each problem; -inf where the arithmetic fails.
    """
    return _bound(structure, numbers, y, multipliers, structure.objective)[0]


def lower_bound_with_slopes(
    structure: ProgramStructure, numbers: ProgramNumbers, y: np.ndarray, multipliers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same, and by how much it rises where a variable keeps away from its better end: the slopes (problem, variable).

    Where all y_j lie `distance` above lower_j and the slope is positive, the bound is higher by their product; where they lie
    below upper_j and it is negative, by that of its opposite.
    """
    bound, slopes = _bound(structure, numbers, y, multipliers, structure.objective)
    return bound, np.where(np.isfinite(slopes), slopes, 0.0)


def infeasibility(
    structure: ProgramStructure, numbers: ProgramNumbers, y: np.ndarray, multipliers: np.ndarray
) -> np.ndarray:
    """The bound with no objective: a positive one proves that no point satisfies all constraints.

    **Arguments:** as of `lower_bound`.
    **Returns:** a lower bound on min over the box of Σ λ_k g_k(y), which is not above zero at any feasible point.
    """
    return _bound(structure, numbers, y, multipliers, np.zeros_like(structure.objective))[0]


def violation(structure: ProgramStructure, numbers: ProgramNumbers, y: np.ndarray) -> np.ndarray:
    """max(0, g_k(y), lower - y, y - upper) of each problem."""
    with np.errstate(over="ignore"):
        values, _, _ = constraints(structure, numbers, y)
    box = np.maximum(numbers.lower - y, y - numbers.upper).max(axis=1, initial=0.0)
    return np.maximum(values.max(axis=1, initial=0.0), box)


def kkt_residual(
    structure: ProgramStructure, numbers: ProgramNumbers, y: np.ndarray, multipliers: np.ndarray
) -> np.ndarray:
    """How far each problem is from optimality: the largest of three residuals.

    |y - clip(y - ∇L, lower, upper)|, the projected gradient; the violation; |λ_k g_k|, complementarity. Multipliers below
    zero count by their size.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        _, gradient, _, _ = _lagrangian(structure, numbers, y, multipliers, structure.objective)
        values, _, _ = constraints(structure, numbers, y)
        stationary = np.abs(y - np.clip(y - gradient, numbers.lower, numbers.upper)).max(axis=1, initial=0.0)
        slack = np.abs(np.where(np.isneginf(values), 0.0, multipliers * values)).max(axis=1, initial=0.0)
        negative = np.maximum(-multipliers, 0.0).max(axis=1, initial=0.0)
    worst = np.max([stationary, slack, negative, violation(structure, numbers, y)], axis=0)
    return np.where(np.isnan(worst), np.inf, worst)
