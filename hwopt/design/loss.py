"""A design question as differentiable functions of one vector, for optax, SciPy and a user's gradient method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwopt.design.design import Inputs
from hwopt.design.exact import ExactModel
from hwopt.design.problem import Problem, set_variables
from hwopt.design.template_inputs import Input, template_inputs
from hwopt.errors import UserError, suggest
from hwopt.trace.loop_program import LoopProgram
from hwopt.trace.scalar_program import ScalarProgram, Simplifier, blank
from hwopt.types import Scalar
from hwopt.units import pretty
from hwopt.validation import check_question, names_of, number_of

FREED = 2.0
"""Factor up and down within which a number may move that `free` names: no price or limit bounds it."""


def _most(each: Input) -> float:
    """Return the upper bound of a freed number; a ratio of at most 1, such as an efficiency, stays one."""
    physical = 1.0 if not each.unit and each.value <= 1.0 else each.quantity.most
    return min(each.value * FREED, max(physical, each.value))


class Loss:
    """Objective and constraints of a design question as pure functions of a vector `x` of natural logarithms.

    The variables are those of the question over continuous hardware: all are priced or limited, and integers are relaxed. The
    functions accept float32 and float64, and work under `jax.jit`, `grad`, `vmap`, `jacobian` and `hessian`. XLA compiles one
    small loop for each, not the model. Values are those of `hwopt.estimate`, with hard maxima.

    **Arguments:**

    - `question`: the question, of continuous hardware.
    - `fixed`: values of variables that are not free, SI.
    - `free`: numbers of the template that become variables although nothing prices or limits them.
    - `weight`: of squared violations in `value`.
    """

    def __init__(self, question: Problem, fixed: Mapping[str, float], free: Sequence[Input], weight: float):
        self.question, self.fixed, self.freed, self.weight = question, dict(fixed), tuple(free), weight
        own = [each for each in question.variables if each.name not in fixed]
        self._model = ExactModel(question)
        self.names = (*(each.name for each in own), *(each.name for each in free))
        self.units = (*(each.unit for each in own), *(each.unit for each in free))
        low, high = [each.lower for each in own], [each.upper for each in own]
        start = [float(np.clip(each.place.get(question.template), each.lower, each.upper)) for each in own]
        numbers = [each.value for each in free]
        most = [_most(each) for each in free]
        self.start: Float[np.ndarray, " variable"] = np.log([*start, *numbers])
        self.lower: Float[np.ndarray, " variable"] = np.log([*low, *(each / FREED for each in numbers)])
        self.upper: Float[np.ndarray, " variable"] = np.log([*high, *most])
        self.constraint_names = question.constraints

    def objective(self, x: Float[Array, " variable"]) -> Scalar:
        """Return the natural logarithm of the objective, SI."""
        return self.both(x)[0]

    def constraints(self, x: Float[Array, " variable"]) -> Float[Array, " constraint"]:
        """Return `log(used / limit)` of every constraint, in the order of `constraint_names`; a feasible point has none above 0."""
        return self.both(x)[1]

    def both(self, x: Float[Array, " variable"]) -> tuple[Scalar, Float[Array, " constraint"]]:
        """Return `objective` and `constraints` at a point, in one evaluation."""
        values = self._values(jnp.asarray(x))
        return values[0], values[1:]

    def value(self, x: Float[Array, " variable"]) -> Scalar:
        """Return `objective + weight * sum(max(0, constraint)^2)`."""
        objective, constraints = self.both(x)
        return objective + self.weight * jnp.sum(jnp.maximum(constraints, 0.0) ** 2)

    def lagrangian(
        self, x: Float[Array, " variable"], multipliers: Float[Array, " constraint"], weight: float | Scalar
    ) -> Scalar:
        """Return the augmented Lagrangian `objective + sum(max(0, m + weight c)^2 - m^2) / (2 weight)`.

        **Arguments:** `multipliers`: m of each constraint c, at least 0; `weight`: of violations.

        **Source:** Rockafellar 1973; Nocedal and Wright, Numerical Optimization, 17.4.
        """
        objective, constraints = self.both(x)
        pushed = jnp.maximum(0.0, multipliers + weight * constraints)
        return objective + jnp.sum(pushed**2 - multipliers**2) / (2.0 * weight)

    def multipliers(
        self, x: Float[Array, " variable"], multipliers: Float[Array, " constraint"], weight: float | Scalar
    ) -> Float[Array, " constraint"]:
        """Return the multipliers of the next round, `max(0, m + weight c)`: at an optimum, elasticities of the objective."""
        return jnp.maximum(0.0, multipliers + weight * self.constraints(x))

    def report(self, x: Float[Array, " variable"]) -> Any:
        """Return the model's report at a point, as `hwopt.estimate` does."""
        program, tree, shapes = self._report
        numbers = program(jnp.asarray(x))
        ends = np.cumsum([0, *(math.prod(each) for each in shapes)])
        leaves = [numbers[i:j].reshape(each) for i, j, each in zip(ends, ends[1:], shapes, strict=False)]
        return jax.tree.unflatten(tree, leaves)

    def unpack(self, x: Float[Array, " variable"]) -> dict[str, Scalar]:
        """Return the values of all variables at a point by name, SI, those that are fixed included."""
        numbers = dict(zip(self.names, jnp.exp(jnp.asarray(x)), strict=True))
        return {**{name: jnp.asarray(value) for name, value in self.fixed.items()}, **numbers}

    def inputs(self, x: Float[Array, " variable"]) -> Inputs:
        """Return workload, cluster and plan at a point: the arguments of `hwopt.estimate`."""
        values = self.unpack(x)
        leaves, tree = jax.tree.flatten(self.question.template)
        for each in self.freed:
            flat = jnp.ravel(leaves[each.leaf]).at[each.element].set(values[each.name])
            leaves[each.leaf] = flat.reshape(jnp.shape(leaves[each.leaf]))
        columns = [values[each.name] for each in self.question.variables]
        return set_variables(self.question.form, jax.tree.unflatten(tree, leaves), columns).inputs

    def __repr__(self) -> str:
        spans = (
            f"{name} {pretty(math.exp(low), unit, 3)} .. {pretty(math.exp(high), unit, 3)}"
            for name, unit, low, high in zip(self.names, self.units, self.lower, self.upper, strict=True)
        )
        lines = [
            f"Loss of '{self.question.name}': {self.question.objective.name}, {len(self.names)} variables (logarithms), "
            f"{len(self.constraint_names)} constraints",
            "free: " + ", ".join(spans),
            "limits: " + ", ".join(self.constraint_names),
        ]
        if self.freed:
            lines.append("nothing prices or limits: " + ", ".join(each.name for each in self.freed))
        return "\n".join(lines)

    @cached_property
    def _values(self) -> LoopProgram:
        return self._program(lambda exact: (exact.objective, exact.constraints))

    @cached_property
    def _report(self) -> tuple[LoopProgram, Any, list[tuple[int, ...]]]:
        leaves, tree = jax.tree.flatten(self._model.shapes.report)
        return self._program(lambda exact: exact.report), tree, [each.shape for each in leaves]

    def _program(self, part: Any) -> LoopProgram:
        """Trace a part of the exact values as a program of the free logarithms."""
        line = self._model.line(part, [each.place for each in self.freed])
        builder = Simplifier()
        inputs = blank(len(self.names))
        moved = {name: builder.kept("exp", (each,), None) for name, each in zip(self.names, inputs, strict=True)}
        names = [*(each.name for each in self.question.variables), *(each.name for each in self.freed)]
        arguments = [moved[name] if name in moved else np.float64(self.fixed[name]) for name in names]
        return LoopProgram(ScalarProgram.to(inputs, line.built(builder, arguments)))


def loss(
    question: Any, *, fixed: Mapping[str, float] | None = None, free: Iterable[str] = (), weight: float = 100.0
) -> Loss:
    """Return a design question as differentiable functions of one vector.

    **Arguments:**

    - `question`: of `hwopt.objective`, or a `Problem`.
    - `fixed`: values of variables that stay where they are, SI, such as the integers of a certified answer and its
      `fullest_stage` and `last_stage`, which are 1 otherwise.
    - `free`: further numbers of the question's inputs that become variables, by the names of `hwopt.sensitivity`. Nothing prices
      or limits them: they move by a factor of 2 up and down at most, and the result names them.
    - `weight`: of squared violations in `Loss.value`.

    **Returns:** `Loss`: `start`, `lower`, `upper`, `names`, `units`, and pure functions of a vector.

    **Raises:** `UserError` for unknown names, for values outside a variable's bounds, and for questions of whole units alone.
    """
    check_question(question, "loss")
    asked = question.problem().continuous
    known = {each.name: each for each in asked.variables}
    held = {each.name: each.lower for each in asked.variables if each.lower == each.upper}
    if not isinstance(fixed, Mapping | None):
        raise UserError(f"loss: fixed = {fixed!r}: state values by name, such as {{'tp': 8}}")
    for name, value in ((name, number_of(f"loss: {name}", value)) for name, value in (fixed or {}).items()):
        if name not in known:
            raise UserError(
                f"loss: 'fixed' names '{name}', which is not a variable of '{asked.name}': {suggest(name, known)}"
            )
        # Shares of layers follow from the degrees, and have no bounds of their own.
        if known[name].category != "lookup" and not known[name].lower * (1 - 1e-9) <= value <= known[name].upper * (
            1 + 1e-9
        ):
            raise UserError(
                f"loss: {name} = {value:g} is outside its bounds {known[name].lower:g} .. {known[name].upper:g}"
            )
        held[name] = value
    free, weight = names_of("free", free), number_of("loss: weight", weight)
    if not (math.isfinite(weight) and weight > 0.0):
        raise UserError(f"loss: weight = {weight}: must be positive and finite")
    inputs = {each.name: each for each in template_inputs(asked)} if free else {}
    for name in free:
        if name not in inputs:
            raise UserError(
                f"loss: 'free' names '{name}', which is not an input of '{asked.name}': {suggest(name, inputs)}"
            )
    return Loss(asked, held, [inputs[name] for name in free], weight)
