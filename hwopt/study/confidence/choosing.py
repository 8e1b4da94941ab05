"""The best of all choices whose budgets hold with a probability: branches asked in the order of their bounds without a promise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hwopt.convex.reader import NotDGP
from hwopt.design.problem import Problem
from hwopt.errors import UserError
from hwopt.optim.choices import branches, certified_choice
from hwopt.optim.solution import Branch, Fate, Solution
from hwopt.study.confidence.search import Asking, promised


def confident_choice(
    objective: Any,
    choices: Mapping[str, Sequence[str]],
    asking: Asking,
    *,
    relaxed: bool,
    freeze: Iterable[str],
    bounds: Mapping[str, tuple[float, float]],
) -> Solution:
    """The cheapest design of all combinations whose budgets hold with the probability.

    All are first proved together without a promise. A promise tightens limits, so that no answer of a branch is below its bound
    without one: branches are asked in the order of these bounds until the next is above the best answer.

    **Arguments:** as of `confident`; `relaxed`: over hardware of any size.

    **Returns:** the best of the answers; its `choices` say what became of each, with the bound without a promise where a branch was
    left at that.
    """
    questions = branches(objective, choices, freeze, bounds, relaxed=relaxed)
    try:
        plain = certified_choice(questions, deadline=asking.deadline, progress=asking.progress, explain=asking.explain)
    except NotDGP as reason:
        raise UserError(f"choices: a combination cannot be proved beside others: {reason}") from None
    if not plain.feasible:
        return plain
    problems = {each.chosen: each.problem for each in questions if each.problem is not None}
    best, first, rows = None, None, []
    for branch in sorted(plain.choices, key=_least):
        problem = problems.get(branch.chosen)
        if problem is None or branch.fate is Fate.infeasible:
            rows.append(branch)
            continue
        if best is not None and _least(branch) >= best.objective:
            rows.append(replace(branch, fate=Fate.beaten, objective=None))
            continue
        if asking.deadline.over:
            rows.append(replace(branch, fate=Fate.open, objective=None))
            continue
        answer = promised(problem, replace(asking, explain=False))
        first = first or answer
        rows.append(_row(branch, answer))
        if answer.feasible and (best is None or answer.objective < best.objective):
            best = answer
    if best is None:
        assert first is not None
        return replace(first, choices=tuple(rows))
    rows = [replace(each, fate=Fate.best) if _is_of(each, best, problems) else each for each in rows]
    rows.sort(key=lambda each: (each.fate is not Fate.best, each.fate is Fate.refused, _known(each)))
    asked = f"{len(problems)} combinations of choices, each above this or asked with the promise; of the one shown "
    scope = best.certificate.scope.replace("global over ", f"global over {asked}", 1)
    return replace(best, choices=tuple(rows), certificate=replace(best.certificate, scope=scope))


def _row(branch: Branch, answer: Solution) -> Branch:
    """What became of a branch that was asked with the promise."""
    if not answer.feasible:
        return replace(branch, fate=Fate.infeasible, objective=None, lower_bound=None)
    return replace(branch, fate=Fate.beaten, objective=answer.objective, lower_bound=answer.certificate.lower_bound)


def _is_of(branch: Branch, best: Solution, problems: Mapping[tuple[tuple[str, str], ...], Problem]) -> bool:
    return problems.get(branch.chosen) is best.problem


def _least(branch: Branch) -> float:
    """What no design of a branch is below."""
    return math.inf if branch.lower_bound is None else branch.lower_bound


def _known(branch: Branch) -> float:
    return next((each for each in (branch.objective, branch.lower_bound) if each is not None), math.inf)
