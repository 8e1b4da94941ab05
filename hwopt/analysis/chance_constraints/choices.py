"""Chance-constrained optimization over categorical choices, in the order of the deterministic lower bounds."""

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
    """Find the best design over all combinations of choices whose budgets hold with the given probability.

    All combinations are first certified together without the chance constraint. The chance constraint only tightens limits, so
    that these lower bounds remain valid. The combinations are then solved in the order of their bounds, until the next bound
    exceeds the best answer.

    **Arguments:**

    - `objective`, `choices`, `freeze`, `bounds`: as in `confident`.
    - `asking`: the chance constraint and the search's settings.
    - `relaxed`: whether hardware is continuous.

    **Returns:** the best answer. Its `choices` hold the outcome of each combination; those that were not solved keep the
    deterministic bound.

    **Raises:** `UserError` for a combination that cannot be certified.
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
        raise UserError(f"choices: a combination cannot be proved together with others: {reason}") from None
    if not plain.feasible:
        return plain
    best, said, rows = None, plain, []
    for branch in sorted((replace(each, solution=None) for each in plain.choices), key=_least):
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
    """Return the outcome of a branch that was solved with the chance constraint."""
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
        solution=answer if answer.promise is not None else None,
    )


def _covering(best: Solution, rows: Sequence[Branch]) -> dict[str, Any]:
    """Return the outcome and the certificate of the best answer, extended to all branches."""
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
    """Return the answer where no branch satisfies the chance constraint, or none was found to in time.

    **Arguments:**

    - `said`: the answer of the first branch that was solved.
    - `rows`: outcomes of all branches.
    - `asking`: the chance constraint.
    """
    if all(each.fate in (BranchOutcome.infeasible, BranchOutcome.refused) for each in rows):
        return replace(said, choices=tuple(rows))
    asked = f"{100 * asking.confidence:.3g} %"
    text = f"No design was found whose budgets hold with a probability of {asked} before the search stopped."
    return replace(said, choices=tuple(rows), outcome=Outcome.not_found, infeasibility=text, promise=None)


def _least(branch: Branch) -> float:
    """Return the lower bound of a branch: minus infinity for an open branch without one, infinity for a closed one."""
    if branch.lower_bound is None:
        return -math.inf if branch.fate is BranchOutcome.open else math.inf
    return branch.lower_bound
