"""Solution of a design problem: design, budgets with shadow prices, plan, report and certificate."""

import enum
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from hwopt.declared import Result, derived, shown
from hwopt.design.design import Design, Inputs
from hwopt.design.exact import CustomChipSummary, ExactModel, ExactValues, logarithms
from hwopt.design.problem import Problem
from hwopt.design.variables import Variable
from hwopt.errors import UserError
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.plan import OFFLOADED
from hwopt.solver.chance_constraints import ChanceConstraint
from hwopt.validation import number_of


class Outcome(enum.Enum):
    """How a search ended, as a sentence that suggests what to try next. `{gap}` is the proved optimality gap.

    Each sentence begins with its `status`, which is the same on screens, in JSON and on pages.
    """

    proved = "Proved: no design in the search space is better by more than {gap}."
    best_found = (
        "Stopped before the proof was complete: no design in the search space is better than the one below by more than "
        "{gap}."
    )
    local = "Local: the best design of a local search, without a proof; other designs may be better."
    infeasible = (
        "Infeasible: no design in the search space satisfies every budget (proved). The design below exceeds budgets: relax "
        "those, or widen the search ranges of variables at a limit."
    )
    not_found = (
        "Stopped: no design that satisfies every budget was found, but there may be one. The design below exceeds budgets: "
        "search longer, or relax those."
    )
    evaluated = "Evaluated: one stated design, without a search; other designs may be better."

    @property
    def status(self) -> str:
        """The outcome in a word: proved, local, stopped, infeasible or evaluated."""
        return re.split(r"\W", self.value)[0].lower()


UNBOUNDED = "Stopped before a lower bound was known: the best design found so far; other designs may be better."
"""Sentence for a search that stopped before it had a lower bound."""

STOPS = {
    "time limit": "The time limit ended the search: a longer one (--seconds) may find a better design, or close the gap.",
    "node limit": "The limit on nodes ended the search: narrow it with --bounds, --freeze or fewer --choices, or raise "
    "SearchOptions.tree.nodes in Python.",
}
"""Reason why a search ended before its proof -> the reason in a sentence, with what to do."""


@dataclass(frozen=True)
class DesignValue:
    """One variable of a solution. Value and bounds are in SI units."""

    box_meaning: str
    value: float = shown()
    unit: str = shown()
    lower: float = shown()
    upper: float = shown()
    at_bound: Literal["lower", "upper"] | None = shown(meaning="the bound at which the value lies")
    words: tuple[str, ...] = ()  # labels of the values 1, 2, ... of a categorical variable

    @derived(meaning="what the number stands for", optional=True)
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

    kkt_residual: float = shown(meaning="largest residual of the optimality conditions")
    max_violation: float = shown(meaning="largest log(used / limit)")
    scope: str = shown(meaning="designs that the proof covers")
    lower_bound: float | None = shown("", "no design of the scope is below; null where nothing is proved", default=None)
    gap: float | None = shown("", "the objective over the bound, less one", default=None)
    stopped: Literal["time limit", "node limit"] | None = shown(
        "", "why the search ended before its proof was complete; null where nothing stopped it", default=None
    )

    @property
    def stop_words(self) -> str:
        """Reason why the search ended early, in a sentence that follows another; empty where nothing stopped it."""
        return f" {STOPS[self.stopped]}" if self.stopped else ""


class BranchOutcome(enum.Enum):
    """Outcome of one combination of choices, as tables show it."""

    best = "the best"
    beaten = "ruled out"
    infeasible = "infeasible: no design satisfies the budgets (proved)"
    open = "undecided when the search stopped"
    refused = "not possible"


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
    - `achieved`: further results of its best design in words, where a command states them.
    - `solution`: its best design. That of a combination that is not the best comes from a bounded search: its certificate
      states the gap. Without a feasible design, the one nearest to the budgets; None where none was searched for.
    """

    chosen: tuple[tuple[str, str], ...]
    fate: BranchOutcome = shown(default=BranchOutcome.open, key="outcome")
    objective: float | None = shown(default=None)
    lower_bound: float | None = shown(default=None)
    refused: str = ""
    question: Any = field(default=None, repr=False, compare=False)
    achieved: str = ""
    solution: "Solution | None" = field(default=None, repr=False, compare=False)

    @derived()
    def choice(self) -> dict[str, str]:
        """Value of each choice by field."""
        return dict(self.chosen)

    @derived()
    def message(self) -> str:
        """Reason why the combination has no problem, or else its outcome in words."""
        return self.refused or self.fate.value

    @property
    def name(self) -> str:
        """Name of the combination in results: field and value of each choice."""
        return ", ".join(f"{field} {value or 'none'}" for field, value in self.chosen)

    @property
    def rank(self) -> tuple[bool, bool, bool, float]:
        """Sort key: the best combination first, then by objective, then by lower bound, then those without a problem."""
        known = [each for each in (self.objective, self.lower_bound) if each is not None]
        return (
            self.fate is not BranchOutcome.best,
            self.fate is BranchOutcome.refused,
            self.objective is None,
            known[0] if known else math.inf,
        )


@dataclass(frozen=True)
class Solution(Result):
    """Solution of one design problem."""

    problem: Problem
    objective: float
    built: Design
    report: Any  # report of the workload's type
    outcome: Outcome = shown(meaning="how the search ended")
    design: dict[str, DesignValue] = shown(meaning="variables of the machine and its plan, SI")
    budgets: list[BudgetUse] = shown()
    certificate: Certificate = shown()
    chip: CustomChipSummary | None = None  # where the problem designs a custom chip
    infeasibility: str = shown(
        "", "which budgets fail, and the smallest relaxation that makes the problem feasible", default=""
    )
    choices: tuple[Branch, ...] = shown("", "outcome of each combination of choices", default=())
    promise: ChanceConstraint | None = shown("", "probability that the budgets hold, if requested", default=None)

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

    @derived(meaning="whether every budget and limit holds; exit code 1 where it is false")
    def feasible(self) -> bool:
        """Whether the design satisfies every budget."""
        if self.outcome is Outcome.evaluated:
            return self.certificate.max_violation <= FEASIBILITY_TOLERANCE
        return self.outcome in (Outcome.proved, Outcome.best_found, Outcome.local)

    @derived(meaning="variables that follow from integers of the design, SI; `hwopt estimate --design` reads them")
    def lookups(self) -> dict[str, float]:
        """Variables that follow from the design's integers, such as layers of the fullest pipeline stage, SI units."""
        follows = (each for each in self.problem.variables if each.category == "lookup")
        return {each.name: float(each.place.get(self.built)) for each in follows}

    @derived(meaning="the outcome in a sentence", key="message")
    def headline(self) -> str:
        """The outcome in a sentence."""
        gap = self.certificate.gap
        if self.outcome is Outcome.best_found and gap is None:
            return UNBOUNDED + self.certificate.stop_words
        return self.outcome.value.format(gap="-" if gap is None else f"{100 * gap:.2g} %") + self.certificate.stop_words


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
        problem, objective, exact.design, report, outcome, design, budgets, certificate, exact.chip, infeasibility
    )


_STATED_ROOM = 1e3
"""Factor by which a specified value may lie outside its variable's bounds, as frozen values do: far from any overflow."""


def evaluate_design(problem: Problem, values: Mapping[str, float]) -> Solution:
    """Evaluate one design of a problem by the exact model, without a search.

    **Arguments:** `values`: all variables by name, SI units, of the problem itself or of its continuous relaxation. A part whose
    tier is the pool is offloaded entirely unless its share is given.

    **Raises:** `UserError` for missing or unknown variables and for invalid values.
    """
    questions = (problem, problem.relaxation or problem)
    values = dict.fromkeys({v.name for v in problem.variables} & {*OFFLOADED}, 1.0) | dict(values)
    asked = next((each for each in questions if {v.name for v in each.variables} == values.keys()), None)
    if asked is None:
        unlike = {v.name for v in problem.variables} ^ values.keys()
        raise UserError(
            f"design of '{problem.name}': its variables differ from the question's in {', '.join(sorted(unlike))}"
        )
    numbers = {name: number_of(f"design: {name}", value) for name, value in values.items()}
    for each in asked.variables:
        value, room = numbers[each.name], 1.0 if each.words or each.name in OFFLOADED else _STATED_ROOM
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
        variable.box_meaning, value, variable.unit, variable.lower, variable.upper, bound, variable.words
    )
