"""A design question read as convex programmes: the model's own jaxpr, with whole numbers in ranges or fixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

import jax
import numpy as np
from jax.extend import core

from hwopt.convex.canonical import Programme, programme, ratio
from hwopt.convex.reader import read
from hwopt.convex.signomial import Algebra, Signomial, number
from hwopt.design.problem import SILICON, Form, Problem
from hwopt.design.variables import Design, completed
from hwopt.model.chip_project import margins
from hwopt.model.estimate import Settled, settled_estimate

SETTLED = {"junction_k": (250.0, 500.0), "useful_tokens": (1e6, 1e17), "checkpoint_interval_s": (1e-3, 1e9)}
"""Boxes of what the model finds as roots and is given here: wider than any design's."""

TOLERANCE = 1e-9
"""Relative violation up to which what is known of a design holds."""


def _outputs(form: Form, template: Design, values: dict[str, Any], settled: Settled, limits: Any) -> dict[str, Any]:
    """Objective, budgets over their limits, and margins as logarithms not above 0."""
    design = template
    for name, put, _ in form.places:
        design = put(design, values[name])
    design = completed(design)
    report, state = settled_estimate(*design.inputs, settled)
    budgets = {f"budget {i}": each.value(report) / limits[i] for i, each in enumerate(form.budgets)}
    held = (name for name in report.BOUNDS if not name.endswith("cooling"))  # the clock's implies it
    bounds = {name: -attrgetter(name)(report.margins) for name in held}
    bounds |= {
        "clock": -report.clock_margin,
        "heat": -state.heat,
        "learning": -state.learning,
        "storage": -state.storage,
    }
    if design.project is not None:
        silicon = margins(design.project)
        bounds |= {name: -silicon[name] for name in SILICON}
    return {"objective": form.objective.value(report)} | budgets | bounds


@cache
def _traced(form: Form, tree: Any, shapes: tuple) -> tuple[core.ClosedJaxpr, tuple[str, ...]]:
    """The jaxpr of a form, and the names of its outputs."""
    number_ = jax.ShapeDtypeStruct((), np.float64)
    values = {name: number_ for name, _, _ in form.places}
    settled = Settled(*[number_] * len(SETTLED))
    with jax.enable_x64(True):
        template = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes])
        limits = [number_] * len(form.budgets)
        names: list[str] = []

        def outputs(template, values, settled, limits):
            made = _outputs(form, template, values, settled, limits)
            names[:] = made
            return list(made.values())

        jaxpr = jax.make_jaxpr(outputs)(template, values, settled, limits)
    return jaxpr, tuple(names)


@dataclass(frozen=True)
class Read:
    """Outputs of the model at nodes: signomials, or numbers where nothing is free."""

    algebra: Algebra
    objective: Signomial
    constraints: dict[str, Signomial]
    holds: np.ndarray  # (node,) whether the constraints that are numbers hold
    nodes: int


def read_design(
    problem: Problem,
    algebra: Algebra,
    values: Mapping[str, Signomial],
    nodes: int,
    stretch: Any = None,
    template: Sequence[np.ndarray] | None = None,
) -> Read:
    """The question at some nodes.

    **Arguments:** `values` of the problem's variables by name, in the algebra's atoms or numbers; `stretch`: budget index ->
    monomial by which that limit may be exceeded; `template`: leaves of the problem's template, one for each node
    (node, *shape), where they are not the same for all.
    """
    leaves, tree = jax.tree.flatten(problem.template)
    jaxpr, names = _traced(problem.form, tree, tuple(np.shape(leaf) for leaf in leaves))
    settled = [_scalar(algebra.variable(name, *box)) for name, box in SETTLED.items()]
    free = [
        _scalar(values[name]) for name in sorted(name for name, _, _ in problem.form.places)
    ]  # as a dict is flattened
    limits = [np.asarray([each.limit]) for each in problem.budgets]
    held = [np.asarray(leaf, np.float64)[None] for leaf in leaves] if template is None else template
    arguments = [*held, *free, *settled, *limits]
    learns = any(each.name == "loss" for each in (problem.objective, *(b.metric for b in problem.budgets)))
    wanted = [name != "learning" or learns for name in names]
    outputs = {
        name: value
        for name, value in zip(names, read(jaxpr, arguments, algebra, wanted), strict=True)
        if value is not None
    }
    constraints: dict[str, Signomial] = {}
    holds = np.ones(nodes, bool)
    for name, value in outputs.items():
        if name == "objective":
            continue
        of = _ratio(name, value, algebra)
        if name.startswith("budget "):
            index = int(name.removeprefix("budget "))
            name = problem.budgets[index].name
            if stretch and index in stretch:
                of = algebra.over(of, stretch[index])
        known = of.constant
        if known is None:
            constraints[name] = of
        else:
            holds &= np.broadcast_to(known <= 1.0 + TOLERANCE, (nodes,))
    objective = outputs["objective"]
    objective = objective[()] if objective.dtype == object else number(objective)
    return Read(algebra, objective, constraints, holds, nodes)


def _scalar(value: Signomial) -> np.ndarray:
    """An argument of the reader: numbers as known ones."""
    if value.constant is not None:
        return value.constant
    held = np.empty((), object)
    held[()] = value
    return held


def _ratio(name: str, value: np.ndarray, algebra: Algebra) -> Signomial:
    """What must not exceed 1."""
    if value.dtype != object:
        return number(value if name.startswith("budget ") else np.exp(value))
    inner = value[()]
    return inner if isinstance(inner, Signomial) and name.startswith("budget ") else ratio(inner, algebra)


def programme_of(read_: Read, extra: Mapping[str, Signomial] | None = None, goal: Signomial | None = None) -> Programme:
    """The convex programme of what was read, with `extra` constraints (not above 1) and perhaps another `goal`."""
    constraints = read_.constraints | dict(extra or {})
    return programme(read_.algebra, goal or read_.objective, constraints, read_.nodes)
