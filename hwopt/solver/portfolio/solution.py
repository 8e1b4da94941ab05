"""What an answer to a portfolio says: parts, members on them, budgets of all, and what is proved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hwopt.design.portfolio import Portfolio
from hwopt.errors import UserError
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.solver.solution import (
    UNBOUNDED,
    Branch,
    BranchOutcome,
    BudgetUse,
    Certificate,
    DesignValue,
    Outcome,
    Solution,
    evaluate_design,
)

_NOT_FEASIBLE = {
    Outcome.infeasible: "Infeasible, proved: no parts of the stated scope satisfy the budgets of all members.",
    Outcome.not_found: "Stopped: no parts were found that satisfy the budgets of all members, and none are proved impossible; give "
    "the search more time, or relax a budget.",
}


@dataclass(frozen=True)
class MemberAnswer:
    """A member of a portfolio, on the parts of all.

    **Arguments:** `solution`: its design as an answer of its own; `cost`, weighted; `alone_bound`: what it costs at least on the
    best parts for itself, and `alone` its best design there, where that was searched to the end; `on_its_parts`: what all cost in
    those parts, infinite where no designs of all were found there, and at least (`on_its_parts_bound`); None where nobody asked.
    """

    name: str
    weight: float
    counted: str
    solution: Solution
    cost: float
    alone_bound: float
    alone: float | None
    on_its_parts: float | None = None
    on_its_parts_bound: float | None = None


def joint_budget_uses(portfolio: Portfolio, solutions: Sequence[Solution]) -> tuple[BudgetUse, ...]:
    """Return the total use of each joint budget by the members' designs."""
    used = lambda each: sum(float(each.metric.value(one.report)) for one in solutions)
    return tuple(BudgetUse(each.name, used(each), each.limit, each.metric.unit) for each in portfolio.budgets)


def joint_violation(uses: Sequence[BudgetUse], solutions: Sequence[Solution]) -> float:
    """Return the largest violation of members' constraints and of joint budgets, as a logarithm."""
    over = (math.log(each.used / each.limit) for each in uses)
    return max([*over, *(each.certificate.max_violation for each in solutions)])


@dataclass(frozen=True)
class PortfolioSolution:
    """The answer to a portfolio.

    **Arguments:** `parts` that all share, SI, by name; `choices` as of `Solution`; `budgets` for all members together.
    """

    portfolio: Portfolio
    outcome: Outcome
    objective: float
    parts: dict[str, DesignValue]
    members: tuple[MemberAnswer, ...]
    certificate: Certificate
    infeasibility: str = ""
    choices: tuple[Branch, ...] = ()
    budgets: tuple[BudgetUse, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether each member has a design on the same parts."""
        if self.outcome is Outcome.evaluated:
            return self.certificate.max_violation <= FEASIBILITY_TOLERANCE
        return self.outcome in (Outcome.proved, Outcome.best_found)

    @property
    def chosen(self) -> dict[str, str]:
        """Field -> value of the combination of choices that the parts are of."""
        return next((dict(each.chosen) for each in self.choices if each.fate is BranchOutcome.best), {})

    @property
    def separate_bound(self) -> float:
        """What machines of their own cost at least, together."""
        return sum(each.alone_bound for each in self.members)

    @property
    def headline(self) -> str:
        """The outcome in a sentence."""
        gap = self.certificate.gap
        if self.outcome is Outcome.evaluated:
            return self.outcome.value
        if not self.feasible:
            return _NOT_FEASIBLE[self.outcome]
        if gap is None:
            return UNBOUNDED
        return self.outcome.value.format(gap=f"{100 * gap:.2g} %")


def evaluate_portfolio(portfolio: Portfolio, designs: Mapping[str, Mapping[str, float]]) -> PortfolioSolution:
    """Evaluate stated designs of a portfolio's members by the exact model, without a search.

    **Arguments:** `designs`: values of each member's variables, SI, by its name.

    **Raises:** `UserError` for missing or unknown members, and for invalid values of their variables.
    """
    if unlike := {each.name for each in portfolio.members} ^ designs.keys():
        raise UserError(f"portfolio: a design of {', '.join(sorted(unlike))} is missing, or of no member")
    solutions = [evaluate_design(each.problem, designs[each.name]) for each in portfolio.members]
    parts = {name: solutions[0].design[name] for name in portfolio.parts}
    if unlike := {name for name, part in parts.items() for each in solutions if each.design[name].value != part.value}:
        raise UserError(f"portfolio: members differ in {', '.join(sorted(unlike))}, and share these parts")
    kept = {name: replace(part, lower=part.value, upper=part.value, at_bound=None) for name, part in parts.items()}
    solutions = [replace(each, design=each.design | kept) for each in solutions]
    members = tuple(
        MemberAnswer(each.name, each.weight, each.counted, found, each.weight * found.objective, math.nan, None)
        for each, found in zip(portfolio.members, solutions, strict=True)
    )
    uses = joint_budget_uses(portfolio, solutions)
    proof = Certificate(math.nan, joint_violation(uses, solutions), "stated designs of all members, by the exact model")
    total = sum(each.cost for each in members)
    return PortfolioSolution(portfolio, Outcome.evaluated, total, parts, members, proof, budgets=uses)
