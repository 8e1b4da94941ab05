"""A design problem as functions of a variant: metrics, constraints, binding constraint, and elasticities.

The functions accept the numbers of one variant or columns of many variants. An evaluator compiles them into one list of scalar
operations.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.design.exact import ExactModel, ExactValues
from hwopt.design.metrics import Metric
from hwopt.design.problem import Problem
from hwopt.design.template_inputs import Input
from hwopt.model.report import FEASIBILITY_TOLERANCE, declared_margins
from hwopt.model.training.schedule import Breakdown
from hwopt.sweeps.space import Space
from hwopt.trace.scalar_program import ScalarProgram, scalar_program
from hwopt.trace.simplify import slopes
from hwopt.trace.symbols import Symbol

PARTS = tuple(name.removesuffix("_s") for name in Breakdown._fields)
"""Parts of a step, such as compute and communication, in the order of the bottleneck codes of a report."""

OUTSIDE = "bounds"
"""Name of the constraint that a design lies within the variable bounds and that its integers are integers."""

OUTCOMES = ("impossible", "over_budget", "feasible")
"""Outcomes of a variant: not buildable, buildable but over a budget, all constraints satisfied."""

WORST = 1e30
"""Violation assigned to a variant with non-finite numbers."""

JUDGED = ("violation", "binding", "outcome", "contends", "bottleneck", "finite")
"""Columns that classify a variant: feasibility, binding constraint and bottleneck."""

_HOLDS = math.exp(FEASIBILITY_TOLERANCE)
"""Largest ratio used / limit at which a constraint counts as satisfied."""


@dataclass(frozen=True)
class SweepProgram:
    """A design problem, and the metrics to compute for each variant.

    **Arguments:**

    - `pareto`: metrics of the Pareto front; exceeding a budget on one of them does not exclude a variant from the front.
    - `numbered`: list of constraint names that defines their numbers, if the store also has problems with other constraints.
    """

    problem: Problem
    metrics: tuple[Metric, ...]
    pareto: tuple[str, ...] = ()
    numbered: tuple[str, ...] = ()

    @cached_property
    def space(self) -> Space:
        return Space(self.problem)

    @cached_property
    def model(self) -> ExactModel:
        return ExactModel(self.problem)

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the columns that the model takes, in order."""
        return tuple(each.name for each in self.problem.variables)

    @property
    def constraints(self) -> tuple[str, ...]:
        """Names of the budgets, the buildability constraints, and the bounds constraint."""
        return (*self.problem.constraints, OUTSIDE)

    @cached_property
    def evaluated(self) -> ScalarProgram:
        """Scalar program from `variables` (SI) to the metrics, the bottleneck code, and used / limit of each constraint."""

        def outputs(exact: ExactValues) -> Any:
            return (
                [each.value(exact.report) for each in self.metrics],
                exact.report.bottleneck,
                jnp.exp(exact.constraints),
            )

        return self.model.line(outputs).beside(self._beyond)

    @cached_property
    def _beyond(self) -> ScalarProgram:
        """Scalar program from `variables` to the ratio by which a design exceeds its bounds."""
        beyond = lambda x: self.space.beyond(dict(zip(self.variables, x, strict=True)))
        return scalar_program(lambda x: beyond(list(x)), len(self.variables))

    def line(self, kind: str, names: Sequence[str], elasticities: "VariantElasticities | None" = None) -> ScalarProgram:
        """Return the scalar program from the coordinates of a point to variables, metrics, `JUDGED` and elasticities.

        **Arguments:** `kind` and `names` of these coordinates: see `Space.points`.
        """
        points = self.space.points(kind, names)
        evaluated = self.evaluated.of(points)
        judged = scalar_program(lambda x: [self.judged(list(x))[name] for name in JUDGED], len(evaluated.outputs)).of(
            evaluated
        )
        slopes = [] if elasticities is None else [elasticities.line.of(points)]
        return points.beside(evaluated.only(range(len(self.metrics))), judged, *slopes)

    def judged(self, evaluated: Sequence[Array]) -> dict[str, Array]:
        """Classify variants from the outputs of `evaluated`.

        **Returns:** the columns of `JUDGED`:

        - `outcome`: number in `OUTCOMES`. A variant with a non-finite number is impossible.
        - `violation`: largest log(used / limit).
        - `binding`: number of the decisive constraint. For impossible variants it is the worst buildability constraint, for
          variants over budget the worst budget, for feasible ones the constraint nearest to its limit.
        - `contends`: all constraints are satisfied except possibly budgets on metrics of the front.
        - `bottleneck`: code of the largest part of a step.
        - `finite`: all numbers are finite.
        """
        metrics, used = evaluated[: len(self.metrics)], evaluated[len(self.metrics) + 1 :]
        finite = jnp.ones(used[0].shape, bool)
        for each in (metrics[place] for place in self._present):
            finite = finite & jnp.isfinite(each)
        for each in used:
            finite = finite & (each >= 0.0) & (each < jnp.inf)
        budgets = len(self.problem.budgets)
        own, own_binding = self._worst(used, range(budgets, len(used)))
        budget, budget_binding = self._worst(used, range(budgets))
        free = [place for place, each in enumerate(self.problem.budgets) if each.metric.name not in self.pareto]
        contended, _ = self._worst(used, free)
        possible = (own <= _HOLDS) & finite
        feasible = possible & (budget <= _HOLDS)
        violation = jnp.log(jnp.where(budget > own, budget, own))
        decides = (possible & ~feasible) | (feasible & (budget > own))
        return {
            "violation": jnp.where(finite, violation, jnp.asarray(WORST, violation.dtype)),
            "binding": jnp.where(decides, budget_binding, own_binding),
            "outcome": possible.astype(jnp.int8) + feasible.astype(jnp.int8),
            "contends": possible & (contended <= _HOLDS),
            "bottleneck": jnp.where(finite, evaluated[len(self.metrics)], 0.0).astype(jnp.int8),
            "finite": finite,
        }

    def _worst(self, used: Sequence[Array], places: Sequence[int]) -> tuple[Array, Array]:
        """Return the largest used / limit of some constraints, and the number of that constraint.

        A satisfied constraint that no variable influences never counts as binding, even at its limit (experts of a dense
        model). The same holds for equalities (all chips are used) and for the bounds.
        """
        names = self.numbered or self.constraints
        worst = jnp.zeros(used[0].shape, used[0].dtype)
        number = jnp.zeros(used[0].shape, jnp.int8)
        for place in places:
            each = used[place]
            if place in self.never_near:
                each = jnp.where(each > _HOLDS, each, 0.0)
            more = each > worst
            worst = jnp.where(more, each, worst)
            number = jnp.where(more, jnp.int8(names.index(self.constraints[place])), number)
        return worst, number

    @cached_property
    def _present(self) -> tuple[int, ...]:
        """Indices of the metrics that exist for this machine; metrics of a phase that runs on another machine are NaN."""
        outputs = self.evaluated.outputs[: len(self.metrics)]
        return tuple(
            place for place, each in enumerate(outputs) if isinstance(each, Symbol) or not np.isnan(np.asarray(each))
        )

    @cached_property
    def never_near(self) -> frozenset[int]:
        """Indices of constraints that never count as near their limit: independent of all variables, equalities, and the
        bounds.

        The bounds constraint gives no distance to the bounds for a design within them.
        """
        declared, outputs = declared_margins(), self.evaluated.outputs[len(self.metrics) + 1 :]
        names = (name.rpartition(".")[2] for name in self.problem.constraints)
        equalities = {place for place, name in enumerate(names) if name in declared and declared[name].equality}
        fixed = {place for place, each in enumerate(outputs) if not isinstance(each, Symbol)}
        return frozenset(equalities | fixed | {len(self.problem.constraints)})

    def exact(self, designs: Sequence[np.ndarray]) -> tuple[ExactValues, np.ndarray]:
        """Evaluate a few designs in float64, each with its full report.

        **Arguments:** `designs`: a column for each of `variables`.

        **Returns:** the evaluated designs, and log(used / limit) of the constraints (variant, constraint), the bounds
        constraint last.
        """
        exact = self.model.designs(designs)
        (beyond,) = self._beyond.on_numbers(*designs)
        return exact, np.column_stack([exact.constraints, np.broadcast_to(np.log(beyond), (len(designs[0]),))])


@dataclass(frozen=True)
class VariantElasticities:
    """Elasticities for every variant: per cent change of the objective per per cent change of a variable or other input.

    **Arguments:** `inputs`: names of variables, and inputs of the problem's template.
    """

    program: SweepProgram
    inputs: tuple[str | Input, ...]

    @cached_property
    def _others(self) -> list[Input]:
        return [each for each in self.inputs if isinstance(each, Input)]

    @cached_property
    def _places(self) -> list[int]:
        """Indices of `inputs` among the program's variables followed by the other inputs."""
        variables = self.program.variables
        return [
            variables.index(each) if isinstance(each, str) else len(variables) + self._others.index(each)
            for each in self.inputs
        ]

    @cached_property
    def line(self) -> ScalarProgram:
        """Scalar program from the program's variables to `d log objective / d log input` for each input."""
        objective = self.program.model.line(lambda exact: exact.objective, [each.place for each in self._others])
        of_all, free = slopes(objective, self._places), self.program.evaluated.inputs
        columns = ScalarProgram(free, (), (*free, *(np.float64(each.value) for each in self._others)))
        slope = of_all.of(columns).beside(columns.only(self._places))
        return scalar_program(lambda x: jnp.prod(x.reshape(2, -1), axis=0), len(slope.outputs)).of(slope)
