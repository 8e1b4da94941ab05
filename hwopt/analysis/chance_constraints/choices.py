"""The best of all choices whose budgets hold with a probability: branches asked in the order of their bounds without a promise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hwopt.analysis.chance_constraints.search import ConfidenceRequest, solve_chance_constrained
from hwopt.analysis.chance_constraints.uncertainty_factors import check_one_chip_type
from hwopt.errors import UserError
from hwopt.solver.gp.reader import NotDGP
from hwopt.solver.search.categorical import certified_choice, choice_states
from hwopt.solver.solution import Branch, BranchOutcome, Outcome, Solution


def best_confident_choice(
    objective: Any,
    choices: Mapping[str, Sequence[str]],
    asking: ConfidenceRequest,
    *,
    relaxed: bool,
    freeze: Iterable[str],
    bounds: Mapping[str, tuple[float, float]],
) -> Solution:
    """The cheapest design of all combinations whose budgets hold with the probability.

    All are first proved together without a promise. A promise tightens limits, so that no answer of a branch is below its bound
    without one: branches are asked in the order of these bounds until the next is above the best answer.

    **Arguments:** as of `confident`; `relaxed`: over continuous hardware.

    **Returns:** the best of the answers; its `choices` say what became of each, with the bound without a promise where a branch was
    left at that.
    """
    questions = choice_states(objective, choices, freeze, bounds, relaxed=relaxed)
    for each in questions:
        if each.question is not None:
            check_one_chip_type(each.question, "confidence")
    try:
        plain = certified_choice(
            questions,
            deadline=asking.deadline,
            progress=asking.progress,
            explain=asking.explain,
            options=asking.options,
        )
    except NotDGP as reason:
        raise UserError(f"choices: a combination cannot be proved beside others: {reason}") from None
    if not plain.feasible:
        return plain
    best, said, rows = None, plain, []
    for branch in sorted(plain.choices, key=_least):
        if branch.question is None or branch.fate is BranchOutcome.infeasible:
            rows.append(branch)
        elif best is not None and _least(branch) >= best.objective:
            rows.append(replace(branch, fate=BranchOutcome.beaten, objective=None))
        elif asking.deadline.over:
            rows.append(replace(branch, fate=BranchOutcome.open, objective=None))
        else:
            answer = solve_chance_constrained(
                branch.question, replace(asking, explain=False), best.objective if best else math.inf
            )
            rows.append(_row(branch, answer))
            said = answer if said is plain else said
            if answer.promise is not None and (best is None or answer.objective < best.objective):
                best = answer
    if best is None:
        return _none(said, rows, asking)
    rows = [replace(each, fate=BranchOutcome.best) if each.question is best.problem else each for each in rows]
    rows.sort(key=lambda each: each.rank)
    return replace(best, choices=tuple(rows), **_covering(best, rows))


def _row(branch: Branch, answer: Solution) -> Branch:
    """What became of a branch that was asked with the promise."""
    bound = answer.certificate.lower_bound
    if answer.outcome is Outcome.infeasible:
        return replace(branch, fate=BranchOutcome.infeasible, objective=None, lower_bound=None)
    if not answer.feasible:
        return replace(branch, fate=BranchOutcome.open, objective=None)
    return replace(
        branch,
        fate=BranchOutcome.beaten,
        objective=answer.objective if answer.promise is not None else None,
        lower_bound=bound,
    )


def _covering(best: Solution, rows: Sequence[Branch]) -> dict[str, Any]:
    """Outcome and certificate of the best, over all branches."""
    proof = best.certificate
    asked = sum(each.fate is not BranchOutcome.refused for each in rows)
    among = f"global over {asked} combinations of choices; of the one shown "
    proof = replace(proof, scope=proof.scope.replace("global over ", among, 1))
    left = [each.lower_bound for each in rows if each.fate is BranchOutcome.open]
    if not left:
        return {"certificate": proof}
    bounds = [proof.lower_bound, *left]
    bound = None if None in bounds else min(filter(None, bounds))
    gap = None if bound is None else best.objective / bound - 1.0
    return {"certificate": replace(proof, lower_bound=bound, gap=gap), "outcome": Outcome.best_found}


def _none(said: Solution, rows: Sequence[Branch], asking: ConfidenceRequest) -> Solution:
    """No branch holds the promise, or none was known to in time. **Arguments:** `said`: what the first that was asked says."""
    if all(each.fate in (BranchOutcome.infeasible, BranchOutcome.refused) for each in rows):
        return replace(said, choices=tuple(rows))
    text = f"No design was found whose budgets hold with {100 * asking.confidence:.3g} % before the search stopped."
    return replace(said, choices=tuple(rows), outcome=Outcome.not_found, infeasibility=text, promise=None)


def _least(branch: Branch) -> float:
    """What no design of a branch is below."""
    if branch.lower_bound is None:
        return -math.inf if branch.fate is BranchOutcome.open else math.inf
    return branch.lower_bound
