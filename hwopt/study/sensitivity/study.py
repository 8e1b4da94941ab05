"""What an optimum hangs on: budgets, assumptions by how far their uncertainty moves it, and how the design would answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwopt.design.problem import Objective, Problem
from hwopt.design.variables import Design, completed
from hwopt.optim.lattices import lattice_of, without_lattice
from hwopt.optim.optimize import optimize
from hwopt.optim.optimum_sensitivity import (
    NoOptimum,
    NotKnown,
    OptimumSensitivity,
    optima,
    optimum_sensitivity,
    point_of,
)
from hwopt.optim.solution import Solution
from hwopt.study.sensitivity.elasticities import Elasticities, check_metrics, default_metrics, elasticities
from hwopt.study.sensitivity.inputs import EXPONENTS, Input, template_inputs
from hwopt.study.sensitivity.ranges import Range, range_of, records_of

NOTHING = 1e-7
"""Elasticity below which an input does nothing to an optimum: rounding of the solver."""


@dataclass(frozen=True)
class Parameter:
    """One input of a question and what the optimum owes to it, whole numbers and plan fixed."""

    input: Input
    elasticity: float  # of the optimum; NaN where it is not known
    kinked: bool  # whether it differs to the two sides
    range: Range
    effect: tuple[float, float]  # relative change of the optimum at the low and the high end; infinite: no design holds
    solved: bool  # the effect is of programmes solved again, not of the elasticity alone
    design: dict[str, float]  # continuous variable -> its elasticity; NaN where it is not determined

    @property
    def uncertainty(self) -> float:
        """Relative half width of the range."""
        return (self.range.high - self.range.low) / (2.0 * self.input.value)

    @property
    def swing(self) -> float:
        """Elasticity times uncertainty: what not knowing this number is worth, to first order."""
        return abs(self.elasticity) * self.uncertainty


@dataclass(frozen=True)
class BudgetPrice:
    """A budget of the question and what relaxing it is worth."""

    name: str
    used: float
    limit: float
    unit: str
    elasticity: float  # d log objective / d log limit, not above 0
    shadow_price: float  # improvement of the objective per unit of budget, not below 0
    design: dict[str, float]  # continuous variable -> elasticity to the limit


@dataclass(frozen=True)
class Sensitivity:
    """What the optimum of a question hangs on."""

    problem: Problem
    objective: float  # SI
    built: Design
    parameters: tuple[Parameter, ...]  # stated ranges first, by swing; then the rest by elasticity
    budgets: tuple[BudgetPrice, ...]
    optimum: OptimumSensitivity | None  # None where the model cannot be read at the design; budgets are known then too
    unknown: str  # why there is no sensitivity of the optimum, where there is none
    elasticities: Elasticities  # at the optimum's design, all else held

    def ranked(self) -> list[Parameter]:
        """Assumptions with a stated range, by what their uncertainty is worth; what is asked for is no assumption."""
        return [each for each in self.parameters if each.range.stated and not each.input.is_asked]


def sensitivity(
    objective: Objective | Problem, *, metrics: Sequence[str] = (), seed: int = 0, progress: bool = False
) -> Sensitivity:
    """Elasticities of the optimum of a design question to every number it stands on, and of metrics at its design.

    **Arguments:** `objective`, or a problem; `metrics` whose elasticities at the design are wanted besides those of the
    question: names of numbers of a report; `seed` of the starts of `optimize`; `progress`: show a bar meanwhile.

    **Raises:** `NoOptimum` where no design holds every budget; `UserError` for an unknown metric.
    """
    problem = objective if isinstance(objective, Problem) else objective.problem()
    workload = problem.template.workload
    check_metrics(metrics, workload)
    asked = [
        problem.objective.name,
        *(each.metric.name for each in problem.budgets),
        *(metrics or default_metrics(workload)),
    ]
    solution = best(problem, seed, progress)
    point = point_of(solution)
    inputs = template_inputs(problem)
    found, unknown = None, ""
    try:
        found = _by_inputs(problem, point, inputs)
    except NotKnown as reason:
        unknown = str(reason)
    built = design_at(problem, point, found) if found else solution.built
    at_design = elasticities(*built.inputs, project=built.project, metrics=list(dict.fromkeys(asked)))
    parameters = _parameters(problem, point, inputs, found, objective) if found else ()
    budgets = tuple(_budget(solution, found, at_design, i) for i in range(len(problem.budgets)))
    value = found.objective if found else solution.objective
    return Sensitivity(problem, value, built, parameters, budgets, found, unknown, at_design)


def best(problem: Problem, seed: int, progress: bool) -> Solution:
    """The optimum to examine: the one place that says whose."""
    return optimize(problem, seed=seed, progress=progress)


def design_at(problem: Problem, point: np.ndarray, found: OptimumSensitivity) -> Design:
    """The design of an optimum: whole numbers of `point`, the rest as solved."""
    values = lattice_of(problem).design(point) | found.design
    design = problem.template
    for each in problem.variables:
        design = each.put(design, np.float64(values[each.name]))
    return completed(design)


def owed(solution: Solution, objective: object) -> tuple[tuple[Parameter, ...], str]:
    """What an answer that was found already owes to its inputs: the parameters of `sensitivity`, in seconds.

    **Returns:** the parameters in the order of `Sensitivity.parameters`; else none, and why.
    """
    problem = solution.problem
    reason = without_lattice(problem)
    if reason:
        return (), reason
    inputs = template_inputs(problem)
    try:
        point = point_of(solution)
        found = _by_inputs(problem, point, inputs)
    except (NotKnown, NoOptimum) as failure:
        return (), str(failure)
    return _parameters(problem, point, inputs, found, objective), ""


def _by_inputs(problem: Problem, point: np.ndarray, inputs: Sequence[Input]) -> OptimumSensitivity:
    exponents = frozenset(each.place for each in inputs if each.field in EXPONENTS)
    return optimum_sensitivity(problem, point, [each.place for each in inputs], exponents)


def _parameters(
    problem: Problem, point: np.ndarray, inputs: Sequence[Input], found: OptimumSensitivity, objective: object
) -> tuple[Parameter, ...]:
    """Inputs that matter, with their ranges and what the ends of those do to the optimum."""
    records = records_of(objective)
    ranges = [range_of(each, records) for each in inputs]
    matters = [i for i, e in enumerate(found.elasticities) if not abs(e) < NOTHING]
    factors = np.array([[ranges[i].low, ranges[i].high] for i in matters]).reshape(-1, 2)
    factors /= np.array([inputs[i].value for i in matters])[:, None]
    try:
        effects = optima(problem, point, [inputs[i].place for i in matters], factors) - 1.0
    except NotKnown:
        effects = np.full(factors.shape, math.nan)
    made = []
    for i, factor, effect in zip(matters, factors, effects, strict=True):
        solved = not np.isnan(effect).any()
        slope = found.elasticities[i]
        straight = np.where(factor > 0, np.maximum(factor, 1e-300) ** slope - 1.0, -slope)
        low, high = (float(x) for x in np.where(np.isnan(effect), straight, effect))
        design = dict(zip(found.design, map(float, found.design_elasticities[i]), strict=True))
        made.append(Parameter(inputs[i], float(slope), bool(found.kinked[i]), ranges[i], (low, high), solved, design))
    return tuple(sorted(made, key=_order))


def _order(each: Parameter) -> tuple[bool, float]:
    size = each.swing if each.range.stated else abs(each.elasticity)
    return not each.range.stated, -size if math.isfinite(size) else 0.0


def _budget(solution: Solution, found: OptimumSensitivity | None, held: Elasticities, index: int) -> BudgetPrice:
    """The price of a budget: of the convex programme, or of the answer where that cannot be read."""
    budget, objective = solution.problem.budgets[index], found.objective if found else solution.objective
    elasticity = found.budgets[budget.name] if found else -solution.budgets[index].elasticity
    design = dict(zip(found.design, map(float, found.design_by_budget[index]), strict=True)) if found else {}
    return BudgetPrice(
        budget.name,
        held.metrics[budget.metric.name],
        budget.limit,
        budget.metric.unit,
        elasticity,
        -elasticity * objective / budget.limit,
        design,
    )
