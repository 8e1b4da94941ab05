"""One design question in mathematics: minimise a metric over a box of variables, under budgets."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwopt.design.metrics import Metric
from hwopt.design.variables import Inputs, Variable, assemble
from hwopt.errors import UserError
from hwopt.model.estimate import estimate
from hwopt.model.report import Report
from hwopt.types import Scalar

PLAN_CONSTRAINTS = ("memory", "stages", "tensor_parallel", "experts", "replicas", "batch", "context")
"""Margins of a report that bound every design; the chips' margin holds by construction (dp follows from them)."""


@dataclass(frozen=True)
class Budget:
    """An upper limit on a metric, in SI units."""

    name: str
    metric: Metric
    limit: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.limit) and self.limit > 0):
            raise UserError(
                f"budget '{self.name}' = {self.limit}: it must be a positive, finite number ({self.metric.unit})"
            )


class Values(NamedTuple):
    """Objective and constraints in log space: scale-free, so multipliers are elasticities."""

    objective: Scalar  # log F
    constraints: Float[Array, " constraint"]  # log(used / limit) <= 0: budgets first, then the plan's constraints


@dataclass(frozen=True)
class Problem:
    """Minimise `objective` over `variables`, budgets and the plan's own constraints holding.

    **Arguments:** `template`: inputs of `estimate`, into which the variables are put; `sources`: citations behind the
    template's numbers.
    """

    name: str
    question: str
    objective: Metric
    variables: tuple[Variable, ...]
    budgets: tuple[Budget, ...]
    template: Inputs
    sources: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        names = [each.name for each in self.variables]
        if len(set(names)) != len(names):
            raise UserError(f"problem '{self.name}': a variable stands twice in {', '.join(names)}")
        for each in self.variables:
            each.bounded()

    @property
    def lower(self) -> Float[Array, " variable"]:
        """Logarithms of the lower bounds."""
        return jnp.log(jnp.asarray([each.lower for each in self.variables]))

    @property
    def upper(self) -> Float[Array, " variable"]:
        """Logarithms of the upper bounds."""
        return jnp.log(jnp.asarray([each.upper for each in self.variables]))

    @property
    def limits(self) -> Float[Array, " budget"]:
        """Budget limits in SI units."""
        return jnp.asarray([each.limit for each in self.budgets])

    def inputs(self, log_values: Float[Array, " variable"], whole: bool = False) -> Inputs:
        """Inputs of `estimate` at one point of the design space, given in logarithms.

        **Arguments:** `whole` rounds whole-number variables, which `exp(log(n))` misses by the last bit.
        """
        pairs = zip(self.variables, jnp.exp(log_values), strict=True)
        values = {each.name: jnp.round(value) if whole and each.whole else value for each, value in pairs}
        return assemble(self.template, self.variables, values)

    def report(
        self, log_values: Float[Array, " variable"], temperature: Scalar | None = None, whole: bool = False
    ) -> Report:
        """The model at one point; exact unless a temperature is given."""
        return estimate(*self.inputs(log_values, whole), temperature=temperature)

    def values(self, report: Report, limits: Array) -> Values:
        """Objective and constraints of a report; `limits` of the budgets, SI."""
        used = [each.metric.value(report) for each in self.budgets]
        budgets = [jnp.log(value / limit) for value, limit in zip(used, limits, strict=True)]
        plan = [-getattr(report.margins, name) for name in PLAN_CONSTRAINTS]
        return Values(jnp.log(self.objective.value(report)), jnp.stack(budgets + plan))


def evaluate(
    problem: Problem, log_values: Float[Array, " variable"], limits: Array, temperature: Scalar | None
) -> Values:
    """Objective and constraints of one point.

    **Arguments:** `limits` of the budgets, SI, as an array so that new budgets are new numbers and not a new trace.
    """
    return problem.values(problem.report(log_values, temperature), limits)


class Objective(Protocol):
    """A design question: a plain dataclass of budgets and choices that can state itself as a `Problem`."""

    def problem(self) -> Problem:
        """The question in mathematics."""
        ...
