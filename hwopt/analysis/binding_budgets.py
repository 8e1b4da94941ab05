"""What binds next as a machine grows: budgets lifted one after the other, each answer proved."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from hwopt.design.choices import left_open
from hwopt.design.lattices import lattice_of
from hwopt.design.portfolio import portfolio_of
from hwopt.errors import UserError
from hwopt.options import options_of
from hwopt.solver.deadline import Deadline
from hwopt.solver.optimize import optimize
from hwopt.solver.options import BindingOptions, SearchOptions
from hwopt.solver.search.solve_global import design_values
from hwopt.solver.solution import BudgetUse, Outcome, Solution
from hwopt.validation import boxes_of, check_question, check_seconds, names_of


@dataclass(frozen=True)
class BindingBudget:
    """A budget that binds, and what happens where it does not.

    **Arguments:** `names` of the budgets lifted, one but for the last of all; `before` with them, `after` without.
    """

    names: tuple[str, ...]
    before: Solution
    after: Solution

    def limit(self, name: str) -> BudgetUse:
        """A lifted budget as it was asked, with what the answer before used of it."""
        return _budget(self.before, name)

    def until(self, name: str) -> float:
        """How much of a lifted budget the answer without it uses: with that much it binds no more."""
        return _budget(self.after, name).used

    @property
    def gained(self) -> float:
        """Share of the objective that is saved without them."""
        return 1.0 - self.after.objective / self.before.objective


@dataclass(frozen=True)
class BindingBudgets:
    """Budgets of one question in the order in which they bind.

    **Arguments:** `start`: the answer as asked; `walls` one after the other, all before lifted; `idle`: budgets that cost nothing
    at any stage; `over`: whether time ran out before all were tried.
    """

    start: Solution
    walls: list[BindingBudget]
    idle: tuple[str, ...]
    over: bool

    @property
    def answers(self) -> list[Solution]:
        """As asked, then without each wall."""
        return [self.start, *(each.after for each in self.walls)]


def walls(
    objective: Any,
    *,
    seconds: float = math.inf,
    freeze: Iterable[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    choices: Mapping[str, Sequence[str]] | None = None,
    progress: bool = False,
    options: SearchOptions | None = None,
) -> BindingBudgets:
    """Which budget of a question binds, how much of it would be enough, and which one binds next.

    The answer's fullest budget is lifted. Where the objective gets better than was proved possible with it, it is a wall, which
    ends where the answer without it stands: with that much of it, and all else as it was, it binds no more. It stays lifted, and
    the next fullest is looked for. Where those that are nearly used up cost nothing alone, all that are left are lifted together:
    if that gains nothing either, none of them binds; if it does, the others are tried alone too, and what then is left binds
    together.

    **Arguments:** `objective`: a question with budgets; `seconds` for all answers together; `freeze`, `bounds`, `choices`,
    `progress`, `options` as of `optimize`: each answer is the best of all combinations of choices.

    **Returns:** the answers, and walls between them; none where no design satisfies the budgets.

    **Raises:** `UserError` for a question without budgets, and for a list of questions.
    """
    check_question(objective, "walls")
    if portfolio_of(objective) is not None:
        raise UserError("walls: a list of questions has budgets of each; ask about one of them")
    names = [each.name for each in objective.problem().budgets]
    if not names:
        raise UserError("walls: the question has no budget, so that none can bind; give it one, such as power_budget_w")
    deadline = Deadline(check_seconds(seconds, "walls"))
    search = options_of("walls", options, SearchOptions)
    own = search.binding
    how = {
        "freeze": names_of("freeze", freeze),
        "bounds": boxes_of(bounds or {}),
        "choices": choices,
        "progress": progress,
        "options": search,
    }
    ask = lambda asked, near: _answer(asked, near, deadline, how)
    start = ask(objective, None)
    found: list[BindingBudget] = []
    now, asked, left = start, objective, tuple(names) if start.feasible else ()
    while left and not deadline.over:
        wall = _next(
            now, left, lambda lifted, now=now, asked=asked: ask(_lifted(asked, lifted, own), now), deadline, own
        )
        if wall is None:
            break
        found.append(wall)
        now, asked = wall.after, _lifted(asked, wall.names, own)
        left = tuple(name for name in left if name not in wall.names)
    return BindingBudgets(start, found, () if deadline.over else left, deadline.over and bool(left))


def _next(
    now: Solution,
    left: Sequence[str],
    without: Callable[[Sequence[str]], Solution],
    deadline: Deadline,
    own: BindingOptions,
) -> BindingBudget | None:
    """The next wall: one budget, or several that give way together only; None where all cost nothing, or time is over.

    **Arguments:** `left`: budgets in force; `without` some of them: the answer.
    """
    near = _fullest(now, left, own.near)
    for name in near:
        if not deadline.over and _better(now, other := without([name]), own):
            return BindingBudget((name,), now, other)
    if deadline.over or list(left) == near[:1] or not _better(now, all_lifted := without(left), own):
        return None
    for name in _fullest(now, left):
        if name not in near and not deadline.over and _better(now, other := without([name]), own):
            return BindingBudget((name,), now, other)
    needed = [name for name in left if _budget(all_lifted, name).used > _budget(now, name).limit]
    return BindingBudget(tuple(needed), now, all_lifted) if needed else None


def _answer(asked: Any, near: Solution | None, deadline: Deadline, how: Mapping[str, Any]) -> Solution:
    """The answer of a question, searched from that of one with tighter budgets."""
    designs: Sequence[Any] = []
    several = bool(how["choices"]) or left_open(asked)
    if near is not None and near.certificate.lower_bound is not None and not several:
        with jax.enable_x64(True):
            designs = [lattice_of(near.problem).point(design_values(near))]
    return optimize(asked, seconds=max(deadline.left, 1e-3), designs=designs, explain=near is None, **how)


def _lifted(objective: Any, names: Iterable[str], own: BindingOptions) -> Any:
    """The question without budgets, which stay in it with limits that nothing reaches."""
    return replace(objective, **{name: own.lifted * getattr(objective, name) for name in names})


def _budget(solution: Solution, name: str) -> BudgetUse:
    return next(each for each in solution.budgets if each.name == name)


def _fullest(solution: Solution, names: Iterable[str], least: float = 0.0) -> list[str]:
    """Budgets of which an answer uses a `least` share: those with a price first, then by that share."""
    known = [each for each in solution.budgets if each.name in names and each.used >= least * each.limit]
    price = lambda each: each.elasticity if math.isfinite(each.elasticity) else 0.0
    return [each.name for each in sorted(known, key=lambda each: (-round(price(each), 4), -each.used / each.limit))]


def _better(before: Solution, after: Solution, own: BindingOptions) -> bool:
    """Whether an answer is better than what was proved possible before, or else than what was found."""
    bound = before.certificate.lower_bound if before.outcome is Outcome.proved else None
    return after.feasible and after.objective < (bound or before.objective) * (1.0 - own.least_gain)
