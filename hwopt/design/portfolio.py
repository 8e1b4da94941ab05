"""A common machine for a list of workloads: each workload has its own plan and number of chips, all hardware parts are shared.

The shared parts are one chip, one rack, its NICs and clock. Each member buys as many chips as it needs: a cluster of its own
with the same parts. `train_and_serve` is this question for two workloads.

The optimum lies between two extremes. The sum of separate optima (different parts for each) is a lower bound, because it
ignores that parts are shared. The best single machine (the same number of chips for all, used in sequence) is one feasible
design. Members keep their deadlines and budgets. Their costs are added, and so is their use of joint budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import equinox as eqx
import numpy as np

from hwopt import escape, renamed
from hwopt.design.problem import Budget, Problem
from hwopt.design.variables import Variable
from hwopt.errors import UserError, suggest

_OF_A_MEMBER = ("plan", "size", "lookup", "workload")
"""Categories of variables that each member has separately; all others are shared parts."""

OF_ALL = "_of_all"
"""Suffix of the name of a budget that all members share."""

CONTINUOUS = ("clock_ratio",)
"""Shared parts that are not counts, but may be optimized for several members."""


@dataclass(frozen=True)
class Member:
    """One question of a portfolio.

    **Arguments:** `weight`: number of units of its objective that are bought; `counted`: the unit, such as runs or tokens.
    """

    name: str
    problem: Problem
    weight: float
    counted: str


@dataclass(frozen=True)
class Portfolio:
    """Minimize the weighted sum of the members' objectives over shared parts and separate plans.

    **Arguments:**

    - `name`, `question`: name of the portfolio, and the question in words.
    - `unit`: unit of the sum.
    - `members`: the questions.
    - `budgets`: joint limits of all members. `with_joint_budgets` appends them to each member's own.
    """

    name: str
    question: str
    unit: str
    members: tuple[Member, ...]
    budgets: tuple[Budget, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "question", escape.line(self.question))
        names = [each.name for each in self.members]
        if not names or len(set(names)) < len(names):
            raise UserError(f"portfolio: {'two members have the same name' if names else 'it has no members'}")
        first = self.members[0]
        for each in self.members:
            for part in parts_of(each.problem).values():
                if not part.integer and part.name not in CONTINUOUS:
                    raise UserError(
                        f"portfolio: member '{each.name}' chooses {part.name}, which members cannot share; use "
                        "stock chips, storage and memory pools (offload = 'none')"
                    )
            if differs := _differ(first, each):
                raise UserError(
                    f"portfolio: '{first.name}' and '{each.name}' differ in {differs}, but members share their parts"
                )

    @property
    def parts(self) -> dict[str, Variable]:
        """Variables that all members share, by name."""
        return parts_of(self.members[0].problem)

    @property
    def sources(self) -> tuple[str, ...]:
        """References of all members' numbers."""
        return tuple(dict.fromkeys(text for each in self.members for text in each.problem.sources))

    def over(self, change: Callable[[Problem], Problem]) -> Portfolio:
        """Return the portfolio with a function applied to each member's problem."""
        return replace(self, members=tuple(replace(each, problem=change(each.problem)) for each in self.members))

    def narrowed(self, boxes: Mapping[str, tuple[float, float]]) -> Portfolio:
        """Return the portfolio with tighter bounds of some parts, SI.

        **Raises:** `UserError` for a variable that is not a shared part, and as in `Problem.narrowed`.
        """
        self._check(boxes)
        return self.over(lambda problem: problem.narrowed(boxes))

    def frozen(self, names: Iterable[str]) -> Portfolio:
        """Return the portfolio with parts fixed at the values of the stock chip.

        **Raises:** `UserError` for a name that is neither a shared part nor a category of them.
        """
        names = tuple(names)
        self._check(names)
        return self.over(lambda problem: problem.frozen(names))

    def _check(self, names: Iterable[str]) -> None:
        known = {*self.parts, *(each.category for each in self.parts.values())}
        for name in names:
            if name not in known:
                raise UserError(
                    f"portfolio: '{name}' is not a part that members share: {suggest(name, known)}; bound a member's plan in "
                    f"the file of members"
                )


def with_joint_budgets(problem: Problem, budgets: Iterable[Budget]) -> Problem:
    """Append joint budgets to a member's question: its own use must not exceed the total."""
    shared = tuple(replace(each, name=each.name + OF_ALL) for each in budgets)
    relaxation = None if problem.relaxation is None else with_joint_budgets(problem.relaxation, budgets)
    return replace(problem, budgets=(*problem.budgets, *shared), relaxation=relaxation)


class PortfolioMembers(Protocol):
    """A design question that may be a list of questions."""

    def portfolio(self) -> Portfolio | None:
        """Return the portfolio of the question; None where it is about one member alone."""
        ...


def portfolio_of(objective: Any) -> Portfolio | None:
    """Return the portfolio that a question states; None for any other question."""
    states = getattr(objective, "portfolio", None)
    found: Any = states() if callable(states) and not isinstance(objective, type) else None
    return found


def parts_of(problem: Problem) -> dict[str, Variable]:
    """Return the variables of a question that are parts of its machine, by name."""
    return {each.name: each for each in problem.variables if each.category not in _OF_A_MEMBER}


def _differ(one: Member, other: Member) -> str:
    """Return the difference of two members' machines apart from software, plans and number of chips; empty for none."""
    box = lambda each: (each.lower, each.upper, each.integer)
    first, second = parts_of(one.problem), parts_of(other.problem)
    boxes = {name: box(each) for name, each in first.items()}, {name: box(each) for name, each in second.items()}
    if boxes[0] != boxes[1]:
        names = {name for name in boxes[0].keys() | boxes[1].keys() if boxes[0].get(name) != boxes[1].get(name)}
        return f"what of the machine is chosen ({', '.join(sorted(names))})"
    for name, value in _hardware(one.problem).items():
        if not bool(eqx.tree_equal(value, _hardware(other.problem)[name])):
            return name
    return ""


def _hardware(problem: Problem) -> dict[str, Any]:
    """Return the hardware of a cluster by name: without the number of chips, software, recovery and in-switch reduction."""
    decided = lambda c: (c.chips, c.network.reduction_factor)
    cluster = eqx.tree_at(decided, problem.template.cluster, (np.float64(1.0), np.ones(1)))
    return {name: value for name, value in vars(cluster).items() if name not in ("chips", "stack", "recovery")}


if not TYPE_CHECKING:  # old public names
    __getattr__ = renamed.getter(__name__)
