"""A machine for a list of workloads: questions that are answered in the same parts, each with a plan and chips of its own.

**Which machine:** one chip, one rack, its NICs and clock, bought in the number that each workload needs: a cluster for each
member, all of the same parts. That is what `train_and_serve` asks of two, and what lies between the sum of separate optima (parts
of its own for each) and the best single machine (as many chips for all, one after the other): the second is one of these designs,
the first leaves out that parts are the same. Members keep their deadlines and budgets; what they cost is added up, and so is what
they use of budgets for all of them.
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
"""Categories of variables that each member has for itself; all others are parts."""

OF_ALL = "_of_all"
"""End of the name of a budget that a member shares with the others."""

CONTINUOUS = ("clock_ratio",)
"""Parts that are no number of pieces, and may be chosen for several members at once."""


@dataclass(frozen=True)
class Member:
    """A question of a portfolio. **Arguments:** `weight`: how many units of its objective are bought, such as runs or tokens, and
    what these are (`counted`).
    """

    name: str
    problem: Problem
    weight: float
    counted: str


@dataclass(frozen=True)
class Portfolio:
    """Minimise the weighted sum of its members' objectives over parts that are the same for all, and a plan of each.

    **Arguments:** `budgets` on what all members use together: the last of each member's own, by `with_joint_budgets`.
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
            raise UserError(f"portfolio: {'a member stands twice' if names else 'it has no member'}")
        first = self.members[0]
        for each in self.members:
            for part in parts_of(each.problem).values():
                if not part.integer and part.name not in CONTINUOUS:
                    raise UserError(
                        f"portfolio: member '{each.name}' chooses {part.name}, which several workloads cannot share yet; leave "
                        "memory pools, storage and chips as they are sold (offload = 'none')"
                    )
            if differs := _differ(first, each):
                raise UserError(
                    f"portfolio: '{first.name}' and '{each.name}' differ in {differs}, and their parts are the same"
                )

    @property
    def parts(self) -> dict[str, Variable]:
        """Variables that all members share, by name."""
        return parts_of(self.members[0].problem)

    @property
    def sources(self) -> tuple[str, ...]:
        """The references behind all members' numbers."""
        return tuple(dict.fromkeys(text for each in self.members for text in each.problem.sources))

    def over(self, change: Callable[[Problem], Problem]) -> Portfolio:
        """The same list with another problem of each member."""
        return replace(self, members=tuple(replace(each, problem=change(each.problem)) for each in self.members))

    def narrowed(self, boxes: Mapping[str, tuple[float, float]]) -> Portfolio:
        """The same with parts in boxes of one's own, SI.

        **Raises:** `UserError` for what is no part, and as `Problem.narrowed`.
        """
        self._check(boxes)
        return self.over(lambda problem: problem.narrowed(boxes))

    def frozen(self, names: Iterable[str]) -> Portfolio:
        """The same with parts as the chip is sold. **Raises:** `UserError` for what is neither a part nor a category of parts."""
        names = tuple(names)
        self._check(names)
        return self.over(lambda problem: problem.frozen(names))

    def _check(self, names: Iterable[str]) -> None:
        known = {*self.parts, *(each.category for each in self.parts.values())}
        for name in names:
            if name not in known:
                raise UserError(
                    f"portfolio: '{name}' is no part that members share: {suggest(name, known)}; plans are bounded in the list, "
                    f"by member"
                )


def with_joint_budgets(problem: Problem, budgets: Iterable[Budget]) -> Problem:
    """A member's question with budgets of all members behind its own: it may use no more than all of them."""
    shared = tuple(replace(each, name=each.name + OF_ALL) for each in budgets)
    relaxation = None if problem.relaxation is None else with_joint_budgets(problem.relaxation, budgets)
    return replace(problem, budgets=(*problem.budgets, *shared), relaxation=relaxation)


class PortfolioMembers(Protocol):
    """A design question that may be a list of them."""

    def portfolio(self) -> Portfolio | None:
        """The list in mathematics; None where one of its members is asked alone."""
        ...


def portfolio_of(objective: Any) -> Portfolio | None:
    """The list that a question states; None for any other question."""
    states = getattr(objective, "portfolio", None)
    found: Any = states() if callable(states) and not isinstance(objective, type) else None
    return found


def parts_of(problem: Problem) -> dict[str, Variable]:
    """Variables of a question that are parts of its machine, by name."""
    return {each.name: each for each in problem.variables if each.category not in _OF_A_MEMBER}


def _differ(one: Member, other: Member) -> str:
    """In what two members' machines differ besides software, plans and number of chips; empty where in nothing."""
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
    """What of a cluster is bought, by name: all but its chips by number, and its software, which decides where switches reduce."""
    decided = lambda c: (c.chips, c.network.reduction_factor)
    cluster = eqx.tree_at(decided, problem.template.cluster, (np.float64(1.0), np.ones(1)))
    return {name: value for name, value in vars(cluster).items() if name not in ("chips", "stack")}


if not TYPE_CHECKING:  # old public names
    __getattr__ = renamed.getter(__name__)
