"""Binding budgets in sequence: relax the binding budget, re-solve, and find the next one. Each answer is certified."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from hwopt.declared import Result
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
    """A binding budget and the effect of removing it.

    **Arguments:**

    - `names`: budgets that were removed. There is one, except where only several together have an effect.
    - `before`, `after`: the answers with and without these budgets.
    """

    names: tuple[str, ...]
    before: Solution
    after: Solution

    def limit(self, name: str) -> BudgetUse:
        """Return a removed budget with its requested limit and its use in the answer before."""
        return _budget(self.before, name)

    def until(self, name: str) -> float:
        """Return how much of a removed budget the answer without it uses. With that limit the budget is no longer binding."""
        return _budget(self.after, name).used

    @property
    def gained(self) -> float:
        """Return the share of the objective that is saved without these budgets."""
        return 1.0 - self.after.objective / self.before.objective

    @property
    def proved(self) -> bool:
        """Return whether the answers with and without these budgets are both proved optimal."""
        return self.before.outcome is self.after.outcome is Outcome.proved


@dataclass(frozen=True)
class BindingBudgets(Result):
    """Budgets of one question in the order in which they become binding.

    **Arguments:**

    - `start`: the answer with all budgets.
    - `walls`: binding budgets in sequence. At each one, all earlier ones are removed.
    - `idle`: budgets that are not binding at any stage.
    - `over`: whether time ran out before all budgets were tried.
    """

    rows = "walls"

    start: Solution
    walls: list[BindingBudget]
    idle: tuple[str, ...]
    over: bool

    @property
    def answers(self) -> list[Solution]:
        """Return the answer with all budgets, then the answer after each removal."""
        return [self.start, *(each.after for each in self.walls)]

    @property
    def stages(self) -> list[tuple[Solution, tuple[str, ...]]]:
        """Return each answer with the budgets that are removed in it."""
        names = [each.names for each in self.walls]
        return [(each, tuple(itertools.chain(*names[:place]))) for place, each in enumerate(self.answers)]


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
    """Find which budget of a question binds, which limit would be enough, and which budget binds next.

    The budget with the highest utilization is removed. It is binding if the new objective beats the lower bound that was proved
    with it in force. The use in the new answer is the limit at which it stops binding, all else equal. It stays removed, and
    the search goes on with the next fullest budget.

    If no nearly exhausted budget is binding alone, all remaining budgets are removed together. If that has no effect, none is
    binding. If it has, the other budgets are tried alone as well. If none of them binds alone, those whose limits are exceeded
    without budgets bind jointly.

    **Arguments:**

    - `objective`: a question with budgets.
    - `seconds`: time limit for all answers together.
    - `freeze`, `bounds`, `choices`, `progress`, `options`: as in `optimize`. Each answer is the best of all combinations of
      choices.

    **Returns:** the answers and the binding budgets between them. There are none where no design satisfies the budgets.

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
    """Find the next binding budget, or several that bind only jointly. Return None where none binds, or time is over.

    **Arguments:**

    - `now`: the current answer.
    - `left`: names of the budgets in force.
    - `without`: function that solves the question without the named budgets.
    - `deadline`: time limit.
    - `own`: tolerances of the search for binding budgets.
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
    """Solve a question, warm-started from the answer `near` of the question with tighter budgets."""
    designs: Sequence[Any] = []
    several = bool(how["choices"]) or left_open(asked)
    if near is not None and near.certificate.lower_bound is not None and not several:
        with jax.enable_x64(True):
            designs = [lattice_of(near.problem).point(design_values(near))]
    return optimize(asked, seconds=max(deadline.left, 1e-3), designs=designs, explain=near is None, **how)


def _lifted(objective: Any, names: Iterable[str], own: BindingOptions) -> Any:
    """Return the question without the named budgets. They remain in it with limits out of reach."""
    return replace(objective, **{name: own.lifted * getattr(objective, name) for name in names})


def _budget(solution: Solution, name: str) -> BudgetUse:
    return next(each for each in solution.budgets if each.name == name)


def _fullest(solution: Solution, names: Iterable[str], least: float = 0.0) -> list[str]:
    """Return the budgets with at least a share `least` in use, ordered by shadow price, then by utilization."""
    known = [each for each in solution.budgets if each.name in names and each.used >= least * each.limit]
    price = lambda each: each.elasticity if math.isfinite(each.elasticity) else 0.0
    return [each.name for each in sorted(known, key=lambda each: (-round(price(each), 4), -each.used / each.limit))]


def _better(before: Solution, after: Solution, own: BindingOptions) -> bool:
    """Return whether `after` beats the proved lower bound of `before`, or its objective where nothing is proved."""
    bound = before.certificate.lower_bound if before.outcome is Outcome.proved else None
    return after.feasible and after.objective < (bound or before.objective) * (1.0 - own.least_gain)
