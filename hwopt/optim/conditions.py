"""The optimality conditions of a convex programme at its optimum, and how the optimum moves as they do.

With H the curvature of the Lagrangian and B the gradients of what is active, constraints and sides of the box,

    [H Bᵀ; B 0] (dy, dλ) = - (d stationarity, d values)

has the solution dy, or none where the optimum has no derivative; where the matrix is singular, some of dy is free.

**Source:** Fiacco, Introduction to Sensitivity and Stability Analysis in Nonlinear Programming (1983), chapter 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwopt.convex.programme import Numbers, Structure

ACTIVE = 1e-6
"""Least multiplier of what counts as active."""

NEARLY = 1e-4
"""Multiplier and slack below which a constraint is about to bind or to let go."""

RANK = 1e-9
"""Relative singular value below which a direction of the optimality conditions counts as free."""


def finite(values: np.ndarray) -> np.ndarray:
    """Groups without terms hold trivially and weigh nothing."""
    return np.where(np.isfinite(values), values, 0.0)


def groups(structure: Structure, numbers: Numbers, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values (node, group), gradients (node, group, variable), and weights of terms (node, term) at one point."""
    z = numbers.constants + structure.exponents @ y
    nodes, count = len(z), len(structure.target)
    values, weights = np.full((nodes, count), -np.inf), np.zeros_like(z)
    gradients = np.zeros((nodes, count, len(y)))
    for k in range(count):
        terms = np.flatnonzero(structure.group == k)
        target = structure.target[k]
        total = np.exp(z[:, terms]).sum(axis=1)
        if target >= 0:
            weights[:, terms] = np.exp(z[:, terms])
            values[:, k] = total + numbers.offsets[:, k] - y[target]
            gradients[:, k, target] = -1.0
        elif (total > 0).any():
            weights[:, terms] = np.exp(z[:, terms]) / np.where(total > 0, total, 1.0)[:, None]
            values[:, k] = np.where(total > 0, np.log(np.where(total > 0, total, 1.0)), -np.inf)
        gradients[:, k] += weights[:, terms] @ structure.exponents[terms]
    return values, gradients, weights


@dataclass(frozen=True)
class Conditions:
    """The optimality conditions at an optimum, linear in how it moves: [H Bᵀ; B 0] (dy, dλ) = right-hand side."""

    matrix: np.ndarray
    active: np.ndarray  # groups
    lower: np.ndarray  # variables at their lower bound
    upper: np.ndarray
    nearly: int

    @classmethod
    def at(cls, structure, numbers, y, multipliers, stationarity, values, gradients, weights) -> Conditions:
        """From the groups at the optimum: `values` (group,), `gradients` (group, variable), `weights` (term,)."""
        slack = np.where(np.isfinite(values), -values, np.inf)
        active = np.flatnonzero(multipliers > np.maximum(slack, ACTIVE))
        room = y - numbers.lower[0], numbers.upper[0] - y
        fixed = numbers.upper[0] - numbers.lower[0] < 1e-9
        lower = np.flatnonzero(fixed | (stationarity > np.maximum(room[0], ACTIVE)))
        upper = np.flatnonzero(~fixed & (-stationarity > np.maximum(room[1], ACTIVE)))
        soft = structure.target < 0
        curvature = np.einsum(
            "i,ij,il->jl", multipliers[structure.group] * weights, structure.exponents, structure.exponents
        )
        inner = gradients[soft]
        curvature -= np.einsum("k,kj,kl->jl", multipliers[soft], inner, inner)
        sides = np.eye(len(y))[np.concatenate([lower, upper])]
        rows = np.concatenate([gradients[active], sides])
        matrix = np.block([[curvature, rows.T], [rows, np.zeros((len(rows), len(rows)))]])
        nearly = np.maximum(multipliers, slack) < NEARLY
        return cls(matrix, active, lower, upper, int(nearly.sum()))

    def moves(self, stationarity, values, lower, upper) -> np.ndarray:
        """How the optimum moves as its conditions do, (case, variable); NaN where that is not determined.

        **Arguments:** derivatives of the stationarity (case, variable), of the groups (case, group) and of the box's ends
        (case, variable).
        """
        right = -np.hstack([stationarity, values[:, self.active], -lower[:, self.lower], -upper[:, self.upper]])
        u, s, vt = np.linalg.svd(self.matrix)
        kept = s > RANK * s[0]
        solution = (right @ u[:, kept] / s[kept]) @ vt[kept]
        variables = stationarity.shape[1]
        free = np.abs(vt[~kept, :variables]).max(axis=0, initial=0.0) > 1e-6
        left = np.abs(right - solution @ self.matrix.T).max(axis=1, initial=0.0)
        moves = solution[:, :variables].copy()
        moves[:, free] = np.nan
        moves[left > 1e-6 * (1.0 + np.abs(right).max(axis=1, initial=0.0))] = np.nan
        return moves
