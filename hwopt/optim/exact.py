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
from hwopt.optim.quick_jit import compiler_options, quick_jit

FEASIBLE = 1e-6
"""Largest relative violation of an answer that counts as feasible."""


class Exact(NamedTuple):
    """Designs by the exact model, whole numbers whole."""

    design: Design
    report: Report
    objective: Any
    violation: Any  # largest of each design


@partial(quick_jit, static=("form",))
def _exact(form: Form, template: Design, points: Array, limits: Array) -> Exact:
    def one(y):
        design = place(form, template, y, whole=True)
        report = estimate(*design.inputs)
        at = values(form, design, report, limits)
        return Exact(design, report, at.objective, jnp.max(at.constraints))

    return jax.vmap(one)(points)


_programs: dict[Any, Callable[..., Report]] = {}


def compiled_estimate(design: Design) -> Callable[..., Report]:
    """`estimate` in float64 for inputs shaped like a design's, compiled but not run: for a thread beside another solver's.

    Two threads that run programs at a time may wait for each other forever (jax 0.10.1 on two cores); compiling does not. One
    program serves all questions about machines of one structure.
    """
    leaves, tree = jax.tree.flatten(design.inputs)
    mark = tree, tuple(np.shape(leaf) for leaf in leaves)
    if mark not in _programs:
        with jax.enable_x64(True):
            shapes = [jax.ShapeDtypeStruct(np.shape(leaf), np.float64) for leaf in leaves]
            lowered = jax.jit(estimate, compiler_options=compiler_options()).lower(*jax.tree.unflatten(tree, shapes))
            _programs[mark] = lowered.compile()
    return _programs[mark]


def exact_design(problem: Problem, point: np.ndarray, program: Callable[..., Report] | None = None) -> Exact:
    """The exact model of one design, in float64. **Arguments:** `program` of `compiled_estimate`."""
    with jax.enable_x64(True):
        design = place(problem.form, problem.template, jnp.asarray(point), whole=True)
        design = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), design)
        report = (program or compiled_estimate(design))(*design.inputs)
        at = values(problem.form, design, report, problem.limits)
        answer = Exact(design, report, at.objective, jnp.max(at.constraints))
    return jax.tree.map(np.asarray, answer)


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
