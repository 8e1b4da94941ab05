"""One question as functions of variants: metrics, constraints, what binds, and elasticities.

The functions take numbers of one variant or columns of many. An evaluator turns all of them into one list of scalar operations.
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
from hwopt.trace.scalar_program import ScalarProgram, Symbol, scalar_program
from hwopt.trace.simplify import slopes

PARTS = tuple(name.removesuffix("_s") for name in Breakdown._fields)
"""Parts of a step, in the order of a report's bottleneck."""

OUTSIDE = "bounds"
"""Name of the constraint that a design lies in its box and its integers are integers."""

OUTCOMES = ("impossible", "over_budget", "feasible")
"""What becomes of a variant: not buildable as it stands, buildable but beyond a budget, all constraints hold."""

WORST = 1e30
"""Violation of a variant whose numbers are not finite."""

JUDGED = ("violation", "binding", "outcome", "contends", "bottleneck", "finite")
"""Columns that say what becomes of a variant."""

_HOLDS = math.exp(FEASIBILITY_TOLERANCE)
"""The largest used / limit of a constraint that holds."""


@dataclass(frozen=True)
class SweepProgram:
    """A question, and the metrics that are wanted of each variant.

    **Arguments:** `pareto`: metrics of the front, whose own budgets do not keep a variant from it; `numbered`: names in which
    constraints are numbered, where questions with others stand beside it.
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
        """Columns that the model takes, in order."""
        return tuple(each.name for each in self.problem.variables)

    @property
    def constraints(self) -> tuple[str, ...]:
        """Budgets, what makes a design one, and that it lies in its box."""
        return (*self.problem.constraints, OUTSIDE)

    @cached_property
    def evaluated(self) -> ScalarProgram:
        """Metrics, the bottleneck's number, and each constraint, used / limit, of `variables` in SI."""

        def outputs(exact: ExactValues) -> Any:
            return (
                [each.value(exact.report) for each in self.metrics],
                exact.report.bottleneck,
                jnp.exp(exact.constraints),
            )

        return self.model.line(outputs).beside(self._beyond)

    @cached_property
    def _beyond(self) -> ScalarProgram:
        """How far designs lie beyond their box, of `variables`."""
        beyond = lambda x: self.space.beyond(dict(zip(self.variables, x, strict=True)))
        return scalar_program(lambda x: beyond(list(x)), len(self.variables))

    def line(self, kind: str, names: Sequence[str], elasticities: "VariantElasticities | None" = None) -> ScalarProgram:
        """Variables, metrics, `JUDGED` and elasticities, from the numbers of a point.

        **Arguments:** `kind` and `names` of these numbers: `Space.points`.
        """
        points = self.space.points(kind, names)
        evaluated = self.evaluated.of(points)
        judged = scalar_program(lambda x: [self.judged(list(x))[name] for name in JUDGED], len(evaluated.outputs)).of(
            evaluated
        )
        slopes = [] if elasticities is None else [elasticities.line.of(points)]
        return points.beside(evaluated.only(range(len(self.metrics))), judged, *slopes)

    def judged(self, evaluated: Sequence[Array]) -> dict[str, Array]:
        """What follows from `evaluated`.

        **Returns:** `JUDGED`: `outcome` (number in `OUTCOMES`), `violation` (largest log(used / limit)), `binding` (number of the
        constraint that decides: of impossible variants the worst of those that make a design one, of those over budget the
        worst budget, of feasible ones the nearest to its limit), `contends` (all holds but budgets on metrics of the front),
        `bottleneck`, and `finite`. A variant with a number that is not finite is impossible.
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
        """Largest of some constraints, and its number.

        What no variable moves binds nowhere while it holds, though it may stand at its limit: experts of a dense model; nor do
        an equality (all chips are used), and lying in the box.
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
        """Places of metrics that the machine has: what a phase that is elsewhere would say is not a number."""
        outputs = self.evaluated.outputs[: len(self.metrics)]
        return tuple(
            place for place, each in enumerate(outputs) if isinstance(each, Symbol) or not np.isnan(np.asarray(each))
        )

    @cached_property
    def never_near(self) -> frozenset[int]:
        """Places of constraints that no variable reaches, of equalities, and of the box, which says no distance inside."""
        declared, outputs = declared_margins(), self.evaluated.outputs[len(self.metrics) + 1 :]
        names = (name.rpartition(".")[2] for name in self.problem.constraints)
        equalities = {place for place, name in enumerate(names) if name in declared and declared[name].equality}
        fixed = {place for place, each in enumerate(outputs) if not isinstance(each, Symbol)}
        return frozenset(equalities | fixed | {len(self.problem.constraints)})

    def exact(self, designs: Sequence[np.ndarray]) -> tuple[ExactValues, np.ndarray]:
        """A few designs in float64, each with its whole report.

        **Arguments:** a column for each of `variables`.

        **Returns:** the designs, and the constraints' logarithms (variant, constraint), the last that of the box.
        """
        exact = self.model.designs(designs)
        (beyond,) = self._beyond.on_numbers(*designs)
        return exact, np.column_stack([exact.constraints, np.broadcast_to(np.log(beyond), (len(designs[0]),))])


@dataclass(frozen=True)
class VariantElasticities:
    """Percent of the objective per percent of variables and of the question's other inputs, for every variant.

    **Arguments:** `inputs`: names of variables, and inputs of the question's template.
    """

    program: SweepProgram
    inputs: tuple[str | Input, ...]

    @cached_property
    def _others(self) -> list[Input]:
        return [each for each in self.inputs if isinstance(each, Input)]

    @cached_property
    def _places(self) -> list[int]:
        """Of `inputs` among the program's variables and the other inputs behind them."""
        variables = self.program.variables
        return [
            variables.index(each) if isinstance(each, str) else len(variables) + self._others.index(each)
            for each in self.inputs
        ]

    @cached_property
    def line(self) -> ScalarProgram:
        """`d log objective / d log input` of each input, of the program's variables."""
        objective = self.program.model.line(lambda exact: exact.objective, [each.place for each in self._others])
        of_all, free = slopes(objective, self._places), self.program.evaluated.inputs
        columns = ScalarProgram(free, (), (*free, *(np.float64(each.value) for each in self._others)))
        slope = of_all.of(columns).beside(columns.only(self._places))
        return scalar_program(lambda x: jnp.prod(x.reshape(2, -1), axis=0), len(slope.outputs)).of(slope)
