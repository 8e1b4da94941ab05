"""Designs by the exact model: hard maxima, whole numbers whole. The last word on what a solver found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hwopt.design.problem import Problem
from hwopt.design.variables import Inputs
from hwopt.model.estimate import estimate
from hwopt.model.report import Report

FEASIBLE = 1e-6
"""Largest relative violation of an answer that counts as feasible."""


class Exact(NamedTuple):
    """Designs by the exact model, whole numbers whole."""

    inputs: Inputs
    report: Report
    objective: Any
    violation: Any  # largest of each design


def compile_exact(problem: Problem, batch: int) -> Callable[[np.ndarray], Exact]:
    """The exact model of up to `batch` designs, compiled; runs beside the solver, in a thread of its own."""

    def one(y):
        inputs = problem.inputs(y, whole=True)
        report = estimate(*inputs)
        values = problem.values(report, problem.limits)
        return Exact(inputs, report, values.objective, jnp.max(values.constraints))

    with jax.enable_x64(True):
        shape = jax.ShapeDtypeStruct((batch, len(problem.variables)), np.float64)
        compiled = jax.jit(jax.vmap(one)).lower(shape).compile()

    def run(points: np.ndarray) -> Exact:
        padded = np.concatenate([points, np.repeat(points[-1:], batch - len(points), axis=0)])
        return jax.tree.map(lambda leaf: np.asarray(leaf)[: len(points)], compiled(jnp.asarray(padded)))

    return run


def best_exact(objective: np.ndarray, violation: np.ndarray) -> int:
    """Lowest feasible objective, else the least violated design."""
    feasible = violation <= FEASIBLE
    return int(np.argmin(np.where(feasible, objective, np.inf)) if feasible.any() else np.argmin(violation))
