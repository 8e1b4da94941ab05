"""Solution of a portfolio: shared parts, members' designs, joint budgets, and certificate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hwopt.declared import Result, derived, shown
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
    Outcome.infeasible: "Infeasible: no shared components in the search space satisfy the budgets of all members (proved).",
    Outcome.not_found: "Stopped: no shared components that satisfy the budgets of all members were found, but there may be some. "
    "Search longer, or relax a budget.",
}


@dataclass(frozen=True)
class MemberAnswer:
    """A member of a portfolio solution, on the shared parts.

    **Arguments:**

    - `name`, `weight`: the member, and the number of units of its objective that are bought.
    - `counted`: what these units are.
    - `solution`: its design as a solution of its own.
    - `cost`: weighted cost.
    - `alone_bound`: lower bound of its cost on the best parts for itself.
    - `alone`: cost of its best design there, if that search was completed.
    - `on_its_parts`: total cost of all members on those parts; infinite if no joint design was found, None if not computed.
    - `on_its_parts_bound`: lower bound of that total cost.
    """

    solution: Solution
    name: str = shown()
    weight: float = shown()
    counted: str = shown()
    cost: float = shown(key="cost_usd")
    alone_bound: float = shown(key="alone_lower_bound_usd")
    alone: float | None = shown(key="alone_usd")
    on_its_parts: float | None = shown(default=None, key="all_on_its_parts_usd")
    on_its_parts_bound: float | None = shown(default=None, key="all_on_its_parts_lower_bound_usd")


def joint_budget_uses(portfolio: Portfolio, solutions: Sequence[Solution]) -> tuple[BudgetUse, ...]:
    """Return the total use of each joint budget by the members' designs."""
    used = lambda each: sum(float(each.metric.value(one.report)) for one in solutions)
    return tuple(BudgetUse(each.name, used(each), each.limit, each.metric.unit) for each in portfolio.budgets)


def joint_violation(uses: Sequence[BudgetUse], solutions: Sequence[Solution]) -> float:
    """Return the largest violation of members' constraints and of joint budgets, as a logarithm."""
    over = (math.log(each.used / each.limit) for each in uses)
    return max([*over, *(each.certificate.max_violation for each in solutions)])


@dataclass(frozen=True)
class PortfolioSolution(Result):
    """Solution of a portfolio.

    **Arguments:**

    - `parts`: parts that all members share, SI units, by name.
    - `members`: each member's design and costs.
    - `choices`: outcome of each combination of choices; see `Solution`.
    - `budgets`: use of the joint budgets.
    """

    portfolio: Portfolio
    objective: float
    members: tuple[MemberAnswer, ...]
    outcome: Outcome = shown(meaning="how the search ended")
    parts: dict[str, DesignValue] = shown()
    certificate: Certificate = shown()
    infeasibility: str = shown(default="")
    choices: tuple[Branch, ...] = shown("", "outcome of each combination of choices", default=())
    budgets: tuple[BudgetUse, ...] = shown(default=(), optional=True)

    @derived(meaning="whether every budget and limit holds; exit code 1 where it is false")
    def feasible(self) -> bool:
        """Whether each member has a design on the same parts that satisfies all budgets."""
        if self.outcome is Outcome.evaluated:
            return self.certificate.max_violation <= FEASIBILITY_TOLERANCE
        return self.outcome in (Outcome.proved, Outcome.best_found)

    @property
    def chosen(self) -> dict[str, str]:
        """Value by field of the best combination of choices."""
        return next((dict(each.chosen) for each in self.choices if each.fate is BranchOutcome.best), {})

    @derived(key="separate_lower_bound")
    def separate_bound(self) -> float:
        """Lower bound of the total cost if each member had its own best parts; nan without members."""
        return sum(each.alone_bound for each in self.members) if self.members else math.nan

    @derived(key="message")
    def headline(self) -> str:
        """The outcome in a sentence."""
        gap = self.certificate.gap
        if self.outcome is Outcome.evaluated:
            return self.outcome.value
        if not self.feasible:
            return _NOT_FEASIBLE[self.outcome] + self.certificate.stop_words
        if gap is None:
            return UNBOUNDED + self.certificate.stop_words
        return self.outcome.value.format(gap=f"{100 * gap:.2g} %") + self.certificate.stop_words


def evaluate_portfolio(portfolio: Portfolio, designs: Mapping[str, Mapping[str, float]]) -> PortfolioSolution:
    """Evaluate specified designs of a portfolio's members by the exact model, without a search.

    **Arguments:** `designs`: variables of each member's design, SI units, by the member's name.

    **Raises:** `UserError` for missing or unknown members, for invalid values, and for members that differ in a shared part.
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
        MemberAnswer(found, each.name, each.weight, each.counted, each.weight * found.objective, math.nan, None)
        for each, found in zip(portfolio.members, solutions, strict=True)
    )
    uses = joint_budget_uses(portfolio, solutions)
    proof = Certificate(math.nan, joint_violation(uses, solutions), "stated designs of all members, by the exact model")
    total = sum(each.cost for each in members)
    return PortfolioSolution(portfolio, total, members, Outcome.evaluated, parts, proof, budgets=uses)
