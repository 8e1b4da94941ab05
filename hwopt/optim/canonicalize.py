"""A design question as convex programmes: the model's own jaxpr in canonical form, integers in ranges or fixed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import jax
import numpy as np
from jax.extend import core

from hwopt.convex.canonical import Draft, draft, ratio
from hwopt.convex.reader import read, read_line
from hwopt.convex.recording import is_number
from hwopt.convex.signomial import Algebra, Signomial, number
from hwopt.design.problem import Form, Problem, own_margins, put
from hwopt.integers.relaxation import Ends, relaxed
from hwopt.integers.system import System
from hwopt.jaxprs.arrays import objects
from hwopt.jaxprs.straight_line import StraightLine, straightened
from hwopt.model.estimate import Lifted, lifted_estimate

LIFTED = {"junction_k": (250.0, 500.0), "useful_tokens": (1e6, 1e17), "checkpoint_interval_s": (1e-3, 1e9)}
"""Boxes of what the model finds as roots and is a variable here: wider than any design's."""

TOLERANCE = 1e-9
"""Relative violation up to which what is known of a design holds."""

_GOAL = "objective"
_LEARNING = "learning"


@cache
def _traced(form: Form, tree: Any, shapes: tuple) -> tuple[core.ClosedJaxpr, tuple[str, ...]]:
    """The jaxpr of a form and its outputs' names: objective, budgets over their limits, margins as logarithms not above 0."""
    scalar: Any = jax.ShapeDtypeStruct((), np.float64)
    values = {name: scalar for name, _, _ in form.places}
    lifted = Lifted(*[scalar] * len(LIFTED))
    with jax.enable_x64(True):
        template = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes])
        limits = [scalar] * len(form.budgets)
        names: list[str] = []

        def outputs(template, values, lifted, limits):
            design = put(form, template, [values[name] for name, _, _ in form.places])
            report, state = lifted_estimate(*design.inputs, lifted)
            margins = own_margins(design, report) | {
                "heat": state.heat,
                _LEARNING: state.learning,
                "storage": state.storage,
            }
            result = {_GOAL: form.objective.value(report)}
            result |= {name: each.value(report) / limits[i] for i, (name, each) in enumerate(form.budgets)}
            result |= {name: -margin for name, margin in margins.items()}
            names[:] = result
            return list(result.values())

        jaxpr = jax.make_jaxpr(outputs)(template, values, lifted, limits)
    return jaxpr, tuple(names)


@lru_cache(maxsize=32)
def _line(form: Form, tree: Any, shapes: tuple, numbers: tuple[bytes, ...], wanted: tuple[bool, ...]) -> StraightLine:
    """The same as scalar operations for one machine: leaves of the template are constants."""
    jaxpr, _ = _traced(form, tree, shapes)
    leaves = [np.frombuffer(leaf, np.float64).reshape(shape) for leaf, shape in zip(numbers, shapes, strict=True)]
    return straightened(jaxpr, leaves, wanted)


@dataclass(frozen=True)
class Canonical:
    """Outputs of the model at nodes: signomials, or numbers where nothing is free."""

    algebra: Algebra
    objective: Signomial
    constraints: dict[str, Signomial]
    holds: np.ndarray  # (node,) or one for all: whether the constraints that are numbers hold

    def draft(self, extra: Mapping[str, Signomial] | None = None, goal: Signomial | None = None) -> Draft:
        """The convex programme, with `extra` constraints (not above 1) and perhaps another `goal`."""
        return draft(self.algebra, goal or self.objective, self.constraints | dict(extra or {}))


def free_values(
    problem: Problem, system: System, algebra: Algebra, ends: Ends
) -> tuple[dict[str, Signomial], dict[str, Signomial]]:
    """The problem's variables over ranges of integers, and the constraints (not above 1) that tie the integers together.

    A variable whose box is a point is a number.
    """
    values, ties = relaxed(system, algebra, ends)
    for each in problem.variables:
        if each.name not in values:
            fixed = each.lower == each.upper
            values[each.name] = number(each.lower) if fixed else algebra.variable(each.name, each.lower, each.upper)
    names = {each.name for each in problem.variables}
    return {name: value for name, value in values.items() if name in names}, ties


def canonicalize(
    problem: Problem,
    algebra: Algebra,
    values: Mapping[str, Signomial],
    elastic: Mapping[str, Any] | None = None,
    limits: Sequence[Any] | None = None,
    template: Sequence[np.ndarray] | None = None,
) -> Canonical:
    """The question at some nodes.

    **Arguments:** `values` of the problem's variables by name, in the algebra's atoms or numbers; `elastic`: name of a budget ->
    monomial by which its limit may be exceeded; `limits` of the budgets, in place of the problem's; `template`: leaves of the
    problem's template, one for each node (node, *shape), where they are not the same for all.

    **Raises:** `NotDGP` where the model has no form as a geometric programme.
    """
    leaves, tree = jax.tree.flatten(problem.template)
    shapes = tuple(np.shape(leaf) for leaf in leaves)
    jaxpr, names = _traced(problem.form, tree, shapes)
    lifted = [algebra.variable(name, *box) for name, box in LIFTED.items()]
    free = [values[name] for name in sorted(each.name for each in problem.variables)]  # as a dict is flattened
    numbers = [number(each) for each in limits or [budget.limit for budget in problem.budgets]]
    arguments = [_argument(each) for each in (*free, *lifted, *numbers)]
    learns = any(each.name == "loss" for each in (problem.objective, *(b.metric for b in problem.budgets)))
    wanted = tuple(name != _LEARNING or learns for name in names)
    if template is None:
        known = tuple(np.asarray(leaf, np.float64).tobytes() for leaf in leaves)
        results = read_line(_line(problem.form, tree, shapes, known, wanted), arguments, algebra)
    else:
        results = read(jaxpr, [*template, *map(_as_array, arguments)], algebra, wanted)
        results = [each[()] if each is not None and each.dtype == object else each for each in results]
    outputs = {name: value for name, value in zip(names, results, strict=True) if value is not None}
    objective = outputs.pop(_GOAL)
    objective = number(objective) if is_number(objective) else objective
    budgets = {each.name for each in problem.budgets}
    constraints: dict[str, Signomial] = {}
    holds: Any = np.ones(1, bool)
    for name, value in outputs.items():
        share = _share(value, algebra, is_share=name in budgets)
        if elastic and name in elastic:
            share = algebra.over(share, elastic[name])
        if share.constant is not None:
            holds = holds & (share.constant <= 1.0 + TOLERANCE)
        elif not any(share.same(other) for other in constraints.values()):
            constraints[name] = share
    return Canonical(algebra, objective, constraints, holds)


def _argument(value: Signomial) -> Signomial | np.ndarray:
    """An argument of the reader: numbers as known ones."""
    return value if value.constant is None else value.constant


def _as_array(value: Signomial | np.ndarray) -> np.ndarray:
    return objects([value], ()) if isinstance(value, Signomial) else value


def _share(value: Any, algebra: Algebra, is_share: bool) -> Signomial:
    """What must not exceed 1. **Arguments:** `is_share`: whether it is that already, not its logarithm."""
    if is_number(value):
        return number(value if is_share else np.exp(value))
    return value if is_share and isinstance(value, Signomial) else ratio(value, algebra)
