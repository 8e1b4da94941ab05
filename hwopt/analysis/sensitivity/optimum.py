"""Sensitivities of an optimum: shadow prices of budgets, effects of uncertain inputs, and the response of the design."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwopt.analysis.sensitivity.elasticities import Elasticities, default_metrics, elasticities
from hwopt.analysis.sensitivity.ranges import InputRange, range_of
from hwopt.catalog import leaf
from hwopt.declared import Result, shown
from hwopt.design.design import Design
from hwopt.design.lattices import lattice_of, reason_without_lattice
from hwopt.design.metrics import metric_of
from hwopt.design.problem import Objective, Problem, set_variables
from hwopt.design.template_inputs import Input, template_inputs
from hwopt.options import options_of
from hwopt.solver.deadline import Deadline, by_deadline
from hwopt.solver.optimize import optimize
from hwopt.solver.optimum_sensitivity import (
    NoDerivative,
    NoOptimum,
    OptimumSensitivity,
    optima,
    optimum_sensitivity,
    point_of,
)
from hwopt.solver.options import SEARCH, SearchOptions
from hwopt.solver.search.solve_global import design_values
from hwopt.solver.solution import BudgetUse, Solution
from hwopt.validation import boxes_of, check_seconds, names_of, question_of

NOTHING = 1e-7
"""Elasticity below which an input counts as having no effect: rounding of the solver."""


@dataclass(frozen=True)
class Parameter:
    """An input of a question and the optimum's sensitivity to it, with integers and plan fixed."""

    input: Input
    elasticity: float  # of the optimum; NaN where unknown
    kinked: bool  # whether left and right derivatives differ
    range: InputRange
    effect: tuple[float, float]  # relative change of the optimum at the low and high end; infinite: infeasible
    solved: bool  # whether the effect is from re-solved programs rather than from the elasticity alone
    design: dict[str, float]  # continuous variable -> its elasticity; NaN where it is not determined

    @property
    def uncertainty(self) -> float:
        """Return the relative half width of the range."""
        return (self.range.high - self.range.low) / (2.0 * self.input.value)

    @property
    def swing(self) -> float:
        """Return elasticity times uncertainty: the first-order effect of the input's uncertainty on the optimum."""
        return abs(self.elasticity) * self.uncertainty


@dataclass(frozen=True, kw_only=True)
class BudgetSensitivity(BudgetUse):
    """Describe one budget at the optimum: its use, its limit, and the gain from a larger limit.

    `design_elasticities` says how the best design responds to the limit. It is the change of each continuous variable in
    percent, for a limit that is 1 % larger.
    """

    design_elasticities: Mapping[str, float] = shown("", "% of each continuous variable per % of the limit")


@dataclass(frozen=True)
class Sensitivity(Result):
    """Sensitivities of the optimum of a question."""

    rows = "parameters"

    problem: Problem
    objective: float  # SI
    built: Design
    report: Any  # of the answer that was examined
    parameters: tuple[Parameter, ...]  # stated ranges first, by swing; then the rest by elasticity
    budgets: tuple[BudgetSensitivity, ...]
    optimum: OptimumSensitivity | None  # None where the model cannot be read at the design; budgets are known then too
    unknown: str  # why there is no sensitivity of the optimum, where there is none
    idle: tuple[Input, ...]  # inputs that do nothing to the optimum
    proof: str  # what is proved of the answer that was examined
    elasticities: Elasticities  # at the optimum's design, all else fixed

    def ranked(self) -> list[Parameter]:
        """Return the inputs with a stated range, by the effect of their uncertainty.

        Inputs that describe the task are excluded.
        """
        return [each for each in self.parameters if each.range.stated and not each.input.is_asked]


def sensitivity(
    objective: Objective | Problem,
    *,
    metrics: Sequence[str] = (),
    seed: int = 0,
    progress: bool = False,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    freeze: Iterable[str] = (),
    seconds: float = math.inf,
    options: SearchOptions | None = None,
) -> Sensitivity:
    """Compute elasticities of the optimum of a design question to every input, and of metrics at its design.

    The design is the one that `optimize` returns. Its integers are fixed, because they have no derivative: chips, racks, NICs
    and plan. Its clock, and the areas of a parametric chip, are free. Pass `problem().continuous` for continuous hardware.

    **Arguments:**

    - `objective`: a design question or a problem.
    - `metrics`: further numbers of the report whose elasticities at the design are wanted.
    - `seed`: seed of the starts of `optimize`.
    - `progress`: whether to show a progress bar.
    - `bounds`, `freeze`, `seconds`, `options`: as in `optimize`. Frozen variables keep their values in the question's machine.

    **Raises:** `NoOptimum` where no design satisfies every budget; `UserError` for an unknown metric or variable, and for
    invalid bounds.
    """
    problem = question_of(objective, "sensitivity").frozen(names_of("freeze", freeze)).narrowed(boxes_of(bounds or {}))
    check_seconds(seconds)
    search = options_of("sensitivity", options, SearchOptions)
    workload = problem.template.workload
    more = names_of("metrics", metrics) or default_metrics(workload)
    for name in more:
        metric_of(name, workload)  # raises for unknown ones
    names = dict.fromkeys((problem.objective.name, *(each.metric.name for each in problem.budgets), *more))
    solution = optimum_of(problem, seed, progress, seconds=seconds, options=search)
    point, problem = point_of(solution), solution.problem  # a local answer is one of continuous hardware
    optimum, parameters, idle, unknown = None, (), (), ""
    try:
        optimum, parameters, idle = _by_inputs(problem, point, design_values(solution), search)
    except NoDerivative as reason:
        unknown = str(reason)
    built = _design_at(problem, point, optimum) if optimum else solution.built
    at_design = elasticities(*built.inputs, project=built.project, metrics=list(names))
    budgets = _budgets(solution, optimum, at_design)
    value = optimum.objective if optimum else solution.objective
    return Sensitivity(
        problem,
        value,
        built,
        solution.report,
        parameters,
        budgets,
        optimum,
        unknown,
        idle,
        solution.headline,
        at_design,
    )


def optimum_of(
    problem: Problem, seed: int, progress: bool, *, seconds: float, options: SearchOptions = SEARCH
) -> Solution:
    """Return the optimum to examine. All sensitivities take it from here."""
    return optimize(problem, seed=seed, progress=progress, seconds=seconds, options=options)


def _design_at(problem: Problem, point: np.ndarray, optimum: OptimumSensitivity) -> Design:
    """Return the design of an optimum: integers from `point`, continuous variables as solved, or else at their fixed bounds."""
    values = lattice_of(problem).design(point) | optimum.design
    numbers = [
        leaf(values.get(each.name, each.lower)) for each in problem.variables
    ]  # a variable with equal bounds is not a coordinate
    return set_variables(problem.form, problem.template, numbers)


def parameters_of(
    solution: Solution, deadline: Deadline | None = None, options: SearchOptions = SEARCH
) -> tuple[tuple[Parameter, ...], str]:
    """Compute the sensitivities of an existing answer to its inputs: the parameters of `sensitivity`, in seconds.

    **Returns:** the parameters in the order of `Sensitivity.parameters` and an empty text; otherwise no parameters and the
    reason.
    """
    if reason := reason_without_lattice(solution.problem):
        return (), reason

    def work() -> tuple[tuple[Parameter, ...], str]:
        try:
            return _by_inputs(solution.problem, point_of(solution), design_values(solution), options)[1], ""
        except (NoDerivative, NoOptimum) as failure:
            return (), str(failure)

    return by_deadline(deadline or Deadline(), work, lambda: ((), "there was no time left to solve for them"))


def _by_inputs(
    problem: Problem, point: np.ndarray, start: Mapping[str, float], options: SearchOptions
) -> tuple[OptimumSensitivity, tuple[Parameter, ...], tuple[Input, ...]]:
    """Return the optimum's sensitivities, the inputs that matter with their ranges and effects, and the inputs without effect.

    **Arguments:**

    - `problem`: the question.
    - `point`: integers of the answer.
    - `start`: values of the answer's variables, SI.
    - `options`: options of the solver.
    """
    inputs = template_inputs(problem)
    exponents = frozenset(each.place for each in inputs if each.quantity.power)
    optimum = optimum_sensitivity(problem, point, [each.place for each in inputs], exponents, start, options)
    ranges = [range_of(each, problem.provenance.records) for each in inputs]
    matters = [i for i, e in enumerate(optimum.elasticities) if not abs(e) < NOTHING]
    factors = np.array([[ranges[i].low, ranges[i].high] for i in matters]).reshape(-1, 2)
    factors /= np.array([inputs[i].value for i in matters])[:, None]
    try:
        effects = optima(problem, point, [inputs[i].place for i in matters], factors, options) - 1.0
    except NoDerivative:
        effects = np.full(factors.shape, math.nan)
    parameters = []
    for i, factor, effect in zip(matters, factors, effects, strict=True):
        slope = float(optimum.elasticities[i])
        straight = np.where(factor > 0, np.maximum(factor, 1e-300) ** slope - 1.0, -slope)
        low, high = (float(x) for x in np.where(np.isnan(effect), straight, effect))
        solved, kinked = not np.isnan(effect).any(), bool(optimum.kinked[i])
        design = _by_name(optimum, optimum.design_elasticities[i])
        parameters.append(Parameter(inputs[i], slope, kinked, ranges[i], (low, high), solved, design))
    idle = tuple(each for i, each in enumerate(inputs) if i not in set(matters))
    return optimum, tuple(sorted(parameters, key=_order)), idle


def _by_name(optimum: OptimumSensitivity, elasticities: np.ndarray) -> dict[str, float]:
    """Return elasticities of the continuous variables by name."""
    return dict(zip(optimum.design, map(float, elasticities), strict=True))


def _order(each: Parameter) -> tuple[bool, float]:
    size = each.swing if each.range.stated else abs(each.elasticity)
    return not each.range.stated, -size if math.isfinite(size) else 0.0


def _budgets(
    solution: Solution, optimum: OptimumSensitivity | None, at_design: Elasticities
) -> tuple[BudgetSensitivity, ...]:
    """Return the prices of budgets at the optimum of the convex program, or at the answer where that cannot be read."""
    prices, objective = [], optimum.objective if optimum else solution.objective
    for i, each in enumerate(solution.budgets):
        elasticity = -optimum.budgets[each.name] if optimum else each.elasticity
        found = vars(each) | {
            "used": at_design.metrics[solution.problem.budgets[i].metric.name],
            "elasticity": elasticity,
            "shadow_price": elasticity * objective / each.limit,
            "design_elasticities": _by_name(optimum, optimum.design_by_budget[i]) if optimum else {},
        }
        prices.append(BudgetSensitivity(**found))
    return tuple(prices)
