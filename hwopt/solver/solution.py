"""Solution of a design problem: design, budgets with shadow prices, plan, report and certificate."""

import enum
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hwopt.declared import derived, shown
from hwopt.design.design import Design, Inputs
from hwopt.design.exact import CustomChipSummary, ExactModel, ExactValues, logarithms
from hwopt.design.problem import Problem
from hwopt.design.variables import Variable
from hwopt.errors import UserError
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.solver.chance_constraints import ChanceConstraint
from hwopt.validation import number_of


class Outcome(enum.Enum):
    """How a search ended, as a sentence that suggests what to try next. `{gap}` is the proved optimality gap.

    Each sentence begins with its `status`, which is the same on screens, in JSON and on pages.
    """

    proved = "Proved: no design of the stated scope is better by more than {gap}."
    best_found = (
        "Stopped: the best found so far; no design of the stated scope is better by more than {gap}. More time may "
        "find a better one, or prove that there is none."
    )
    local = "Local: the best of the designs that were tried; nothing is proved of others."
    infeasible = (
        "Infeasible, proved: no design of the stated scope satisfies every budget. The one shown is the nearest known; relax the "
        "budget that it breaks, or widen the variables that stand at their bounds."
    )
    not_found = (
        "Stopped: no design that satisfies every budget was found, and none is proved impossible. The one shown is the nearest "
        "known; give the search more time, or relax the budget that it breaks."
    )
    evaluated = "Evaluated: one stated design, by the exact model; nothing is proved of others."

    @property
    def status(self) -> str:
        """The outcome in a word: proved, local, stopped, infeasible or evaluated."""
        return re.split(r"\W", self.value)[0].lower()


UNBOUNDED = "Stopped: the best found so far; nothing is proved of others."
"""Sentence for a search that stopped before it had a lower bound."""


@dataclass(frozen=True)
class DesignValue:
    """One variable of a solution. Value and bounds are in SI units."""

    value: float
    unit: str
    lower: float
    upper: float
    at_bound: str | None  # "lower", "upper" or None
    box_meaning: str
    words: tuple[str, ...] = ()  # labels of the values 1, 2, ... of a categorical variable

    @property
    def word(self) -> str:
        """Label of a categorical value; empty for a number."""
        return self.words[round(self.value) - 1] if self.words else ""


PRICED = 1e-4
"""Elasticity below which the price of a budget is rounding."""

CERTIFIED = 2e-4
"""Relative difference of two objectives that their certificates do not resolve: twice the gap at which a search ends."""


@dataclass(frozen=True)
class OneSidedPrice:
    """Shadow price of a budget on one side of its limit, with all integers re-optimized. Bounds follow from certificates."""

    limit: float = shown(meaning="at which the question was re-solved")
    objective: float = shown(meaning="of the best design there; null where none was found")
    lower_bound: float = shown(meaning="proved there; null where no design satisfies the limit")
    low: float = shown(meaning="lower end of the price; null where no design satisfies the limit")
    high: float = shown(meaning="upper end of the price")

    @derived(meaning="whether the certificates distinguish the price from 0")
    def resolved(self) -> bool:
        return self.low > 0.0

    @derived(meaning="whether no design satisfies the limit")
    def leaves_no_design(self) -> bool:
        return math.isinf(self.low)


class OneSidedPrices(NamedTuple):
    """Shadow prices of a budget on both sides of its limit."""

    tighter: OneSidedPrice
    looser: OneSidedPrice


@dataclass(frozen=True)
class BudgetUse:
    """A budget of an answer: usage, limit and shadow price.

    Prices are the objective's improvement per unit of budget relaxed, never negative. `shadow_price` and `elasticity` hold with
    the plan of the answer. A larger budget can be worth more with another plan: `one_sided_prices` re-optimizes all integers.
    """

    name: str = shown()
    used: float = shown()
    limit: float = shown()
    unit: str = shown()
    shadow_price: float = shown(
        "", "improvement of the objective per unit of budget relaxed, with this plan", default=math.nan
    )
    shadow_price_unit: str = shown(default="")
    elasticity: float = shown("", "% of the objective per % of the limit, with this plan", default=math.nan)
    relaxed_elasticity: float | None = shown(
        "", "the same where degrees are continuous; null where not solved", default=None
    )
    one_sided_prices: OneSidedPrices | None = shown("", "prices with all integers re-optimized", default=None)

    @derived(meaning="exceeded, binding, slack (confirmed by re-solving), not binding for this plan, or not known")
    def status(self) -> str:
        """Whether the budget binds.

        "slack" requires re-solving on both sides without a difference beyond the certificate. A shadow price of 0 only means that
        the plan of the answer gains nothing from a larger budget; another plan may.
        """
        if self.used > self.limit * (1.0 + FEASIBILITY_TOLERANCE):
            return "exceeded"
        sides = self.one_sided_prices or ()
        if self.elasticity > PRICED or any(each.resolved for each in sides):
            return "binding"
        if sides and all(each.high * abs(each.limit - self.limit) <= CERTIFIED * each.lower_bound for each in sides):
            return "slack"
        return "not known" if math.isnan(self.elasticity) else "not binding for this plan"


@dataclass(frozen=True)
class Certificate:
    """Certificate of a solution: lower bound, optimality gap, and their scope. It is about the model, not real hardware."""

    kkt_residual: float
    max_violation: float
    scope: str
    lower_bound: float | None = None
    gap: float | None = None


class BranchOutcome(enum.Enum):
    """Outcome of one combination of choices, as tables show it."""

    best = "the best"
    beaten = "not better, proved"
    infeasible = "no design satisfies the budgets, proved"
    open = "open when the search stopped"
    refused = "cannot be asked"


@dataclass(frozen=True)
class Branch:
    """One combination of choices: its problem and its outcome.

    **Arguments:**

    - `chosen`: (field, value) of each choice.
    - `fate`: outcome of the search.
    - `objective`: best objective found, if any.
    - `lower_bound`: lower bound at which the combination was left.
    - `refused`: reason why the combination has no problem.
    - `question`: a problem or a portfolio; None where a command states none.
    """

    chosen: tuple[tuple[str, str], ...]
    fate: BranchOutcome = BranchOutcome.open
    objective: float | None = None
    lower_bound: float | None = None
    refused: str = ""
    question: Any = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """Name of the combination in results: field and value of each choice."""
        return ", ".join(f"{field} {value or 'none'}" for field, value in self.chosen)

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """Sort key: the best combination first, then by the least known value, then those without a problem."""
        known = [each for each in (self.objective, self.lower_bound) if each is not None]
        return self.fate is not BranchOutcome.best, self.fate is BranchOutcome.refused, known[0] if known else math.inf


@dataclass(frozen=True)
class Solution:
    """Solution of one design problem."""

    problem: Problem
    outcome: Outcome
    objective: float
    design: dict[str, DesignValue]
    budgets: list[BudgetUse]
    built: Design
    certificate: Certificate
    report: Any  # report of the workload's type
    chip: CustomChipSummary | None = None  # where the problem designs a custom chip
    infeasibility: str = ""  # which budgets conflict, and what would make the problem feasible
    choices: tuple[Branch, ...] = ()  # outcome of each combination, where there were choices
    promise: ChanceConstraint | None = None  # probability that the budgets hold, if requested

    @property
    def chosen(self) -> dict[str, str]:
        """Value by field of the best combination of choices; empty without choices."""
        return next((dict(each.chosen) for each in self.choices if each.fate is BranchOutcome.best), {})

    @property
    def inputs(self) -> Inputs:
        """Arguments of `hwopt.estimate(*solution.inputs)`: workload, cluster and plan."""
        return self.built.inputs

    @property
    def plan(self) -> Any:
        return self.built.plan

    @property
    def feasible(self) -> bool:
        """Whether the design satisfies every budget."""
        if self.outcome is Outcome.evaluated:
            return self.certificate.max_violation <= FEASIBILITY_TOLERANCE
        return self.outcome in (Outcome.proved, Outcome.best_found, Outcome.local)

    @property
    def lookups(self) -> dict[str, float]:
        """Variables that follow from the design's integers, such as layers of the fullest pipeline stage, SI units."""
        follows = (each for each in self.problem.variables if each.category == "lookup")
        return {each.name: float(each.place.get(self.built)) for each in follows}

    @property
    def headline(self) -> str:
        """The outcome in a sentence."""
        gap = self.certificate.gap
        if self.outcome is Outcome.best_found and gap is None:
            return UNBOUNDED
        return self.outcome.value.format(gap="-" if gap is None else f"{100 * gap:.2g} %")


_NEAR_BOUND = 1e-4
"""Log distance from a bound, as a fraction of the variable's log range, up to which a variable counts as at its bound."""


def build_solution(
    problem: Problem,
    y: np.ndarray,
    multipliers: np.ndarray,
    relaxed_multipliers: np.ndarray | None,
    exact: ExactValues,
    certificate: Certificate,
    outcome: Outcome,
    infeasibility: str = "",
) -> Solution:
    """Build a solution from a design and its evaluation.

    **Arguments:**

    - `problem`: the problem.
    - `y`: the design, logarithms of the variables.
    - `multipliers`: Lagrange multipliers of the constraints with the plan fixed, budgets first.
    - `relaxed_multipliers`: multipliers at the relaxed optimum, or None.
    - `exact`: evaluation by the exact model.
    - `certificate`, `outcome`: what is proved, and how the search ended.
    - `infeasibility`: which budgets conflict, if the problem is infeasible.
    """
    report = exact.report
    objective = float(problem.objective.value(report))
    design = {
        each.name: _design_value(each, float(value))
        for each, value in zip(problem.variables, np.exp(y), strict=True)
        if each.category != "lookup"
    }
    budgets = [
        BudgetUse(
            name=budget.name,
            used=float(budget.metric.value(report)),
            limit=budget.limit,
            unit=budget.metric.unit,
            shadow_price=float(multipliers[i]) * objective / budget.limit,
            shadow_price_unit=f"{problem.objective.unit}/{budget.metric.unit}",
            elasticity=float(multipliers[i]),
            relaxed_elasticity=None if relaxed_multipliers is None else float(relaxed_multipliers[i]),
        )
        for i, budget in enumerate(problem.budgets)
    ]
    return Solution(
        problem, outcome, objective, design, budgets, exact.design, certificate, report, exact.chip, infeasibility
    )


_STATED_ROOM = 1e3
"""Factor by which a specified value may lie outside its variable's bounds, as frozen values do: far from any overflow."""


def evaluate_design(problem: Problem, values: Mapping[str, float]) -> Solution:
    """Evaluate one design of a problem by the exact model, without a search.

    **Arguments:** `values`: all variables by name, SI units, of the problem itself or of its continuous relaxation.

    **Raises:** `UserError` for missing or unknown variables and for invalid values.
    """
    questions = (problem, problem.relaxation or problem)
    asked = next((each for each in questions if {v.name for v in each.variables} == values.keys()), None)
    if asked is None:
        unlike = {v.name for v in problem.variables} ^ values.keys()
        raise UserError(
            f"design of '{problem.name}': its variables differ from the question's in {', '.join(sorted(unlike))}"
        )
    numbers = {name: number_of(f"design: {name}", value) for name, value in values.items()}
    for each in asked.variables:
        value, room = numbers[each.name], 1.0 if each.words else _STATED_ROOM
        low, high = (0.0, room) if each.category == "lookup" else (each.lower / room, each.upper * room)
        if not low <= value <= high:
            raise UserError(f"design: {each.name} = {value:g} is not a value of this variable")
    y = logarithms([numbers[each.name] for each in asked.variables])
    exact = ExactModel(asked).at(y[None]).one(0)
    proof = Certificate(math.nan, float(exact.violation), "one stated design, by the exact model")
    return build_solution(asked, y, np.full(len(asked.constraints), math.nan), None, exact, proof, Outcome.evaluated)


def _design_value(variable: Variable, value: float) -> DesignValue:
    width = math.log(variable.upper / variable.lower)
    if variable.integer:
        value = float(round(value))
    near_lower = math.log(value / variable.lower) <= _NEAR_BOUND * width
    near_upper = math.log(variable.upper / value) <= _NEAR_BOUND * width
    bound = (
        None if not width or variable.words else "lower" if near_lower else "upper" if near_upper else None
    )  # a frozen value has none
    return DesignValue(
        value, variable.unit, variable.lower, variable.upper, bound, variable.box_meaning, variable.words
    )
