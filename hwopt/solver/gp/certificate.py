"""Certificates for convex programs from any point and any multipliers: NumPy only, independent of the solver.

A convex function is never below its tangents, and a tangent attains its minimum over variable bounds at a corner. One
gradient of the Lagrangian therefore bounds the global optimum from below, however inaccurate the point is.

**Source:** Boyd and Vandenberghe, Convex Optimization (2004), 3.1.3 (tangents), 5.1.3 (Lagrangian bound), 5.8 (theorems
of alternatives).
"""

import numpy as np

from hwopt.solver.gp.program import ProgramNumbers, ProgramStructure

MARGIN = 1e-13
"""Rounding margin of a bound, as a fraction of the sum of the absolute values of all summands.

The rounding error itself is smaller than the number of terms times 1.1e-16 of that sum.
"""


def constraints(structure: ProgramStructure, numbers: ProgramNumbers, y: np.ndarray):
    """Evaluate the constraint groups of a batch of programs.

    **Arguments:** `structure`, `numbers`: the programs; `y`: points (problem, variable), or one row for all problems.

    **Returns:** three arrays:

    - values of the groups (problem, group);
    - weights of the terms in the groups' gradients (problem, term);
    - sums of absolute values, to which the rounding error of each group's value is proportional (problem, group).
    """
    soft, target = structure.target < 0, np.maximum(structure.target, 0)
    group = structure.group
    present, first = np.unique(group, return_index=True)

    def gathered(reduce: np.ufunc, terms: np.ndarray, nothing: float) -> np.ndarray:
        """Reduce terms by group."""
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
    """Return the value and the gradient of the Lagrangian, and for each the sum of the absolute values of its summands."""
    values, weights, rounded = constraints(structure, numbers, y)
    multipliers = np.where(np.isneginf(values), 0.0, np.clip(multipliers, 0.0, None))
    idle = multipliers == 0.0  # also where a value overflows
    values, rounded = np.where(idle, 0.0, values), np.where(idle, 0.0, rounded)
    terms = np.where(idle[:, structure.group], 0.0, weights * multipliers[:, structure.group])
    to_target = np.zeros((len(structure.target), len(objective)))
    to_target[structure.target >= 0, structure.target[structure.target >= 0]] = 1.0
    value = y @ objective + np.sum(multipliers * values, axis=1)
    gradient = objective + terms @ structure.exponents - multipliers @ to_target
    size = np.abs(y) @ np.abs(objective) + np.sum(multipliers * rounded, axis=1)
    # The weight of a term inherits the rounding error of its exponent, so it counts in proportion to the exponent's size.
    exponent = 1.0 + np.where(np.isfinite(numbers.constants), np.abs(numbers.constants), 0.0)
    exponent = exponent + np.abs(y) @ np.abs(structure.exponents).T
    gradient_size = np.abs(objective) + (terms * exponent) @ np.abs(structure.exponents) + multipliers @ to_target
    return value, gradient, size, gradient_size


def _bound(
    structure: ProgramStructure, numbers: ProgramNumbers, y: np.ndarray, multipliers: np.ndarray, objective: np.ndarray
):
    """Return the lower bound of each problem and the gradient of the Lagrangian that gives it."""
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
    """Return a rigorous lower bound on the global optimum, from any point and any multipliers.

        L(y0, λ) + Σ_j min over [lower_j, upper_j] of ∂_j L(y0, λ)·(y_j - y0_j)

    Here L = c·y + Σ λ_k g_k. `MARGIN` times the sum of absolute values is subtracted for rounding.

    **Arguments:**

    - `structure`, `numbers`: the programs.
    - `y`: (problem, variable); needs to be neither feasible nor within the bounds.
    - `multipliers`: (problem, group); negative ones count as zero.

    **Returns:** the bound of each problem; -inf where the arithmetic fails.
    """
    return _bound(structure, numbers, y, multipliers, structure.objective)[0]


def lower_bound_with_slopes(
    structure: ProgramStructure, numbers: ProgramNumbers, y: np.ndarray, multipliers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the bound of `lower_bound` and its slopes (problem, variable): the gradient of the Lagrangian.

    If all feasible y_j are at least `distance` above lower_j and the slope is positive, the bound rises by slope times
    distance. If they are at least `distance` below upper_j and the slope is negative, it rises by minus slope times
    distance.
    """
    bound, slopes = _bound(structure, numbers, y, multipliers, structure.objective)
    return bound, np.where(np.isfinite(slopes), slopes, 0.0)


def infeasibility(
    structure: ProgramStructure, numbers: ProgramNumbers, y: np.ndarray, multipliers: np.ndarray
) -> np.ndarray:
    """Return the lower bound without an objective: a positive value proves that no point satisfies all constraints.

    **Arguments:** see `lower_bound`.

    **Returns:** a lower bound, over all points within the variable bounds, of Σ λ_k g_k(y). This sum is not positive at
    any feasible point.
    """
    return _bound(structure, numbers, y, multipliers, np.zeros_like(structure.objective))[0]


def violation(structure: ProgramStructure, numbers: ProgramNumbers, y: np.ndarray) -> np.ndarray:
    """Return max(0, g_k(y), lower - y, y - upper) of each problem."""
    with np.errstate(over="ignore"):
        values, _, _ = constraints(structure, numbers, y)
    box = np.maximum(numbers.lower - y, y - numbers.upper).max(axis=1, initial=0.0)
    return np.maximum(values.max(axis=1, initial=0.0), box)


def kkt_residual(
    structure: ProgramStructure, numbers: ProgramNumbers, y: np.ndarray, multipliers: np.ndarray
) -> np.ndarray:
    """Return how far each problem is from optimality: the largest of three residuals.

    - |y - clip(y - ∇L, lower, upper)|: the projected gradient;
    - the constraint violation;
    - |λ_k g_k|: complementarity.

    Negative multipliers count by their size.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        _, gradient, _, _ = _lagrangian(structure, numbers, y, multipliers, structure.objective)
        values, _, _ = constraints(structure, numbers, y)
        stationary = np.abs(y - np.clip(y - gradient, numbers.lower, numbers.upper)).max(axis=1, initial=0.0)
        slack = np.abs(np.where(np.isneginf(values), 0.0, multipliers * values)).max(axis=1, initial=0.0)
        negative = np.maximum(-multipliers, 0.0).max(axis=1, initial=0.0)
    worst = np.max([stationary, slack, negative, violation(structure, numbers, y)], axis=0)
    return np.where(np.isnan(worst), np.inf, worst)
