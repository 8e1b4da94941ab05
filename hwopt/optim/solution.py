"""An answer: the design, its budgets and their prices, the plan, the report, and what proves it."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwopt.design.problem import Problem
from hwopt.design.variables import Design, Inputs, Variable


class Outcome(enum.Enum):
    """How a solve ended, as a sentence that says what to try next."""

    optimal = "Optimal within its stated scope."
    infeasible = (
        "No design in the box holds every budget. The least violated one is shown; relax the budget it breaks, or widen "
        "the variables that stand at their bounds."
    )


@dataclass(frozen=True)
class DesignValue:
    """One variable of the answer, SI."""

    value: float
    unit: str
    lower: float
    upper: float
    at_bound: str | None  # "lower", "upper" or None
    box_meaning: str


@dataclass(frozen=True)
class BudgetUse:
    """One budget of the answer. The price is the objective's improvement per unit of budget relaxed, >= 0."""

    name: str
    used: float
    limit: float
    unit: str
    shadow_price: float
    shadow_price_unit: str
    elasticity: float  # % of objective per % of budget, with this whole-number plan
    relaxed_elasticity: (
        float | None
    )  # the same at the relaxed optimum, where degrees may move too; None where not solved
    one_sided: tuple[float, float] | None = None  # prices with whole numbers free again, budget tightened and relaxed


@dataclass(frozen=True)
class Certificate:
    """What is proven about the answer; about the model, never about silicon."""

    kkt_residual: float
    max_violation: float
    scope: str
    lower_bound: float | None = None
    gap: float | None = None


@dataclass(frozen=True)
class Solution:
    """The answer to one design question."""

    problem: Problem
    outcome: Outcome
    objective: float
    design: dict[str, DesignValue]
    budgets: list[BudgetUse]
    built: Design
    certificate: Certificate
    report: Any  # Report, ServingReport or BothReport
    clash: str = ""

    @property
    def inputs(self) -> Inputs:
        """What `hwopt.estimate(*solution.inputs)` takes."""
        return self.built.inputs

    @property
    def plan(self) -> Any:
        return self.built.plan

    @property
    def feasible(self) -> bool:
        return self.outcome is Outcome.optimal


_NEAR_BOUND = 1e-4
"""Relative distance in log space, of the box's width, at which a variable counts as on its bound."""


def build_solution(
    problem: Problem,
    y: np.ndarray,
    multipliers: np.ndarray,
    relaxed_multipliers: np.ndarray | None,
    built: Design,
    report: Any,
    certificate: Certificate,
    outcome: Outcome,
    clash: str = "",
) -> Solution:
    """Put an answer together.

    **Arguments:** `y` the design, logarithms; `multipliers` of the constraints, budgets first, with the plan fixed and
    in the relaxed model; `built` and `report` of the exact model
    there; `clash`: what an infeasible question says of its budgets.
    """
    objective = float(problem.objective.value(report))
    design = {
        each.name: _design_value(each, float(value))
        for each, value in zip(problem.variables, np.exp(y), strict=True)
        if each.category != "rounding"
    }
    budgets = []
    for index, budget in enumerate(problem.budgets):
        elasticity = float(multipliers[index])
        budgets.append(
            BudgetUse(
                name=budget.name,
                used=float(budget.metric.value(report)),
                limit=budget.limit,
                unit=budget.metric.unit,
                shadow_price=elasticity * objective / budget.limit,
                shadow_price_unit=f"{problem.objective.unit}/{budget.metric.unit}",
                elasticity=elasticity,
                relaxed_elasticity=None if relaxed_multipliers is None else float(relaxed_multipliers[index]),
            )
        )
    return Solution(problem, outcome, objective, design, budgets, built, certificate, report, clash)


def _design_value(variable: Variable, value: float) -> DesignValue:
    width = math.log(variable.upper / variable.lower) or 1.0
    if variable.whole:
        value = float(round(value))
    near_lower = math.log(value / variable.lower) <= _NEAR_BOUND * width
    near_upper = math.log(variable.upper / value) <= _NEAR_BOUND * width
    bound = "lower" if near_lower else "upper" if near_upper else None
    return DesignValue(value, variable.unit, variable.lower, variable.upper, bound, variable.box_meaning)
