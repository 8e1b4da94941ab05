"""Monte Carlo evaluation of one fixed design: the exact model (hard maxima, true integers) with uncertain inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from hwopt.analysis.chance_constraints.uncertainty_factors import UncertaintyFactor
from hwopt.design.exact import ExactModel
from hwopt.design.metrics import METRICS
from hwopt.design.problem import Problem
from hwopt.model.estimate import report_type
from hwopt.model.report import FEASIBILITY_TOLERANCE, outputs
from hwopt.trace.derivatives import value_and_gradient
from hwopt.trace.scalar_program import ScalarProgram

CHUNK = 2048
"""Number of draws evaluated at once. Each of some thousand operations keeps a column of this length in memory."""


def normal_draws(seed: int, stream: int, count: int, causes: int) -> Float[np.ndarray, "draw cause"]:
    """Return standard normal draws of independent uncertainty factors.

    **Arguments:**

    - `seed`: seed of the generator.
    - `stream`: number of an independent stream of the same seed.
    - `count`: number of draws.
    - `causes`: number of factors.
    """
    return np.random.default_rng([seed, stream]).standard_normal((count, causes))


class FixedDesign:
    """A fixed design with uncertain inputs.

    **Arguments:**

    - `problem`: the question that the design answers.
    - `values`: values of its variables by name, SI.
    - `causes`: uncertainty factors that move the inputs.
    """

    def __init__(self, problem: Problem, values: dict[str, float], causes: Sequence[UncertaintyFactor]):
        self.problem, self.causes = problem, tuple(causes)
        self.inputs = [each for cause in self.causes for each in cause.inputs]
        self.cause = np.array([i for i, cause in enumerate(self.causes) for _ in cause.inputs], int)
        self.down = np.array([x for cause in self.causes for x in cause.down])
        self.up = np.array([x for cause in self.causes for x in cause.up])
        self.values = values

    @cached_property
    def line(self) -> ScalarProgram:
        """Traced exact model as a function of the uncertain inputs.

        Outputs are the log objective and the log of used over limit of each constraint, in the order of `Problem.constraints`.
        """
        with jax.enable_x64(True):
            places = [each.place for each in self.inputs]
            general = ExactModel(self.problem).line(lambda each: (each.objective, each.constraints), places)
            return general.with_known([self.values[each.name] for each in self.problem.variables])

    @cached_property
    def paced(self) -> Float[np.ndarray, "number cause"]:
        """Deviation that each factor adds directly to the log of each output (number, cause).

        It applies to outputs in proportion to step time, where no model input represents the step time.
        """
        declared = outputs(report_type(self.problem.template.workload))
        metrics = [self.problem.objective, *(each.metric for each in self.problem.budgets)]
        count = 1 + len(self.problem.constraints)
        on = np.zeros((count, len(self.causes)))
        for row, metric in enumerate(metrics):
            if metric.name in METRICS and metric.name in declared and declared[metric.name].paced:
                on[row] = [each.paced for each in self.causes]
        return on

    def logs(self, z: Float[np.ndarray, "draw cause"]) -> Float[np.ndarray, "draw number"]:
        """Return the log objective and the log of used over limit of each constraint for each draw."""
        base = np.array([each.value for each in self.inputs])
        parts = []
        for start in range(0, len(z), CHUNK):
            some = z[start : start + CHUNK]
            own = some[:, self.cause]
            moved = base * np.exp(own * np.where(own > 0.0, self.up, self.down))
            rows = self.line.on_numbers(*moved.T)
            numbers = np.stack([np.broadcast_to(row, (len(some),)) for row in rows], axis=1)
            parts.append(numbers + some @ self.paced.T)
        return np.concatenate(parts)

    @cached_property
    def stated(self) -> Float[np.ndarray, " number"]:
        """Log objective and log of used over limit of each constraint, with all inputs at their stated values."""
        return self.logs(np.zeros((1, len(self.causes))))[0]

    @property
    def budgets(self) -> Float[np.ndarray, " budget"]:
        """Log of used over limit of each budget, with all inputs at their stated values."""
        return self.stated[1 : 1 + len(self.problem.budgets)]

    @cached_property
    def loadings(self) -> Float[np.ndarray, "budget cause"]:
        """First-order change of each budget's log use by one standard deviation of each factor, on its worse side."""
        count = len(self.problem.budgets)
        if not self.causes:
            return np.zeros((count, 0))
        rows = list(range(1, 1 + count))
        base = [each.value for each in self.inputs]
        _, slopes = value_and_gradient(self.line, base, rows) if base else (None, np.zeros((count, 0)))
        elasticities = np.nan_to_num(slopes * np.array(base))
        sides = []
        for deviations, sign in ((self.up, 1.0), (self.down, -1.0)):
            by_cause = np.zeros((count, len(self.causes)))
            np.add.at(by_cause.T, self.cause, (elasticities * deviations).T)
            sides.append(sign * (by_cause + self.paced[1 : 1 + count]))
        up, down = sides
        return np.where(up >= down, np.maximum(up, 0.0), -np.maximum(down, 0.0))

    @property
    def deviations(self) -> Float[np.ndarray, " budget"]:
        """Standard deviation of each budget's log use, to first order."""
        return np.sqrt((self.loadings**2).sum(axis=1))


def within_limits(logs: np.ndarray, tolerance: float = FEASIBILITY_TOLERANCE) -> np.ndarray:
    """Return where the log of used over limit is at most the tolerance. NaN counts as a violation."""
    return np.asarray(logs <= tolerance)


def probability(kept: Any) -> float:
    """Return the share of draws in which a condition holds."""
    return float(np.mean(kept))
