"""Designs by the exact model: hard maxima, whole numbers whole. The last word on what a solver found."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.design.problem import Form, Problem, place, values
from hwopt.design.variables import Design
from hwopt.model.estimate import estimate
from hwopt.model.report import Report
from hwopt.optim.compiled import compiled_for_one_question

FEASIBLE = 1e-6
"""Largest relative violation of an answer that counts as feasible."""


class Exact(NamedTuple):
    """Designs by the exact model, whole numbers whole."""

    design: Design
    report: Report
    objective: Any
    violation: Any  # largest of each design


@partial(compiled_for_one_question, static=("form",))
def _exact(form: Form, template: Design, points: Array, limits: Array) -> Exact:
    def one(y):
        design = place(form, template, y, whole=True)
        report = estimate(*design.inputs)
        at = values(form, design, report, limits)
        return Exact(design, report, at.objective, jnp.max(at.constraints))

    return jax.vmap(one)(points)


def compiled_exact(problem: Problem, batch: int) -> Callable[[np.ndarray], Exact]:
    """The exact model of up to `batch` designs in float64, compiled but not run: for a thread beside another solver's.

    Two threads that run programs at a time may wait for each other forever (jax 0.10.1 on two cores); compiling does not.
    """
    with jax.enable_x64(True):
        some = jnp.zeros((batch, len(problem.variables)))
        program = _exact.lower(problem.form, problem.template, some, problem.limits).compile()

    def run(points: np.ndarray) -> Exact:
        padded = np.concatenate([points, np.repeat(points[-1:], batch - len(points), axis=0)])
        with jax.enable_x64(True):
            answer = program(problem.template, jnp.asarray(padded), problem.limits)
        return jax.tree.map(lambda leaf: np.asarray(leaf)[: len(points)], answer)

    return run


def exact(problem: Problem, points: np.ndarray, batch: int) -> Exact:
    """The exact model of up to `batch` designs, in float64."""
    padded = np.concatenate([points, np.repeat(points[-1:], batch - len(points), axis=0)])
    with jax.enable_x64(True):
        answer = _exact(problem.form, problem.template, jnp.asarray(padded), problem.limits)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[: len(points)], answer)


def best_exact(objective: np.ndarray, violation: np.ndarray) -> int:
    """Lowest feasible objective, else the least violated design."""
    feasible = violation <= FEASIBLE
    return int(np.argmin(np.where(feasible, objective, np.inf)) if feasible.any() else np.argmin(violation))
