"""What an answer to a portfolio says: parts, members on them, budgets of all, and what is proved."""

from __future__ import annotations

from dataclasses import dataclass

from hwopt.design.portfolio import Portfolio
from hwopt.optim.solution import UNBOUNDED, Branch, Certificate, DesignValue, Fate, Outcome, Solution

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


@dataclass(frozen=True)
class JointUse:
    """What all members use of a budget for them all, SI."""

    name: str
    used: float
    limit: float
    unit: str


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
    budgets: tuple[JointUse, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether each member has a design on the same parts."""
        return self.outcome in (Outcome.proved, Outcome.best_found)

    @property
    def chosen(self) -> dict[str, str]:
        """Field -> value of the combination of choices that the parts are of."""
        return next((dict(each.chosen) for each in self.choices if each.fate is Fate.best), {})

    @property
    def separate_bound(self) -> float:
        """What machines of their own cost at least, together."""
        return sum(each.alone_bound for each in self.members)

    @property
    def headline(self) -> str:
        """The outcome in a sentence."""
        gap = self.certificate.gap
        if not self.feasible:
            return _NOT_FEASIBLE[self.outcome]
        if gap is None:
            return UNBOUNDED
        return self.outcome.value.format(gap=f"{100 * gap:.2g} %")
