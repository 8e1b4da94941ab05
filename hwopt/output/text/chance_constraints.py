"""Chance constraints of an answer under uncertain inputs, in words and as JSON."""

import math
from typing import Any

from hwopt.output.text.layout import fact, heading, listed, wrapped
from hwopt.output.text.parts import number
from hwopt.solver.chance_constraints import BudgetProbability, ChanceConstraint
from hwopt.solver.solution import Solution
from hwopt.units import pretty

_MOST_CAUSES = 3
"""Maximum number of causes of variance named for a budget."""


def promise_lines(solution: Solution) -> list[str]:
    """Return lines on the probability of each budget, its tightened limit, and the cost of the chance constraint."""
    promise = solution.promise
    if promise is None:
        return []
    lines = heading("When the numbers are off")
    lines.append(wrapped(kept_words(promise), *_INDENT))
    for name, kept, limit, causes in promise_cells(solution):
        lines.append(f"  {name:<20} holds in {kept:>7}   limit {limit:<34} {causes and 'variance: ' + causes}".rstrip())
    lines.append(wrapped(cost_words(solution), *_INDENT))
    drawn = [f"{name} {_side(-down)}/{_side(up)}" for name, _, down, up in promise.causes]
    lines.append(listed(drawn, f"{fact('drawn', ''):<17}", " " * 17))
    lines.append(
        wrapped(
            "One standard deviation each, down and up; ranges of the catalogue are read as holding four in five, as intervals do. "
            "Numbers with one cause move together; causes are independent. Memory is not drawn.",
            " " * 17,
        )
    )
    return lines


_INDENT = "  ", "    "


def _side(deviation: float) -> str:
    return f"{100 * math.expm1(deviation):+.0f} %"


def kept_words(promise: ChanceConstraint) -> str:
    """Return the probability that all limits hold, the confidence level of the budgets, and limits that may fail, in words."""
    draws, asked = f"of {promise.draws:,} draws", f"asked: {100 * promise.confidence:.4g} %"
    kept = f"{100 * promise.probability:.1f} %"
    if not promise.others:
        return f"all budgets hold together in {kept} {draws}; {asked}"
    own = ", ".join(f"{name} (holds in {100 * share:.1f} %)" for name, share in promise.others)
    return (
        f"all limits hold together in {100 * promise.together:.1f} % {draws}, the budgets alone in {kept}; {asked} of the budgets; "
        f"not tightened, and not covered by it: the design's own {own}"
    )


def promise_cells(solution: Solution) -> list[tuple[str, str, str, str]]:
    """Return for each budget its name, the probability that it holds, its limit, and its main causes of variance."""
    assert solution.promise is not None
    known = {each.name: (each.limit, each.unit) for each in solution.budgets}
    return [_budget_cells(each, *known[each.name]) for each in solution.promise.budgets]


def _budget_cells(each: BudgetProbability, limit: float, unit: str) -> tuple[str, str, str, str]:
    tight = pretty(limit * each.tightened, unit)
    asked = "as asked" if each.tightened == 1.0 else f"tightened by {100 * (1 - each.tightened):.3g} % to {tight}"
    causes = ", ".join(f"{name} {100 * share:.0f} %" for name, share in each.causes[:_MOST_CAUSES])
    return each.name, f"{100 * each.probability:.1f} %", asked, causes


def cost_words(solution: Solution) -> str:
    """Return the cost of the chance constraint in a sentence."""
    assert solution.promise is not None
    goal, promise, plain = solution.problem.objective, solution.promise, solution.promise.plain
    before = f"{pretty(plain.objective, goal.unit, 6)}"
    kept = f"satisfies all budgets in {100 * plain.probability:.1f} %"
    if promise.multiple == 0.0:
        return f"costs nothing: the best design without a promise ({before}) {kept}"
    more = 100 * (solution.objective / plain.objective - 1.0)
    return f"costs {more:.3g} %: without it {goal.name} is {before}, which {kept}; {promise.solves} searches"


def promise_document(promise: ChanceConstraint | None) -> dict[str, Any] | None:
    """Return the chance constraint of an answer (probabilities, tightened limits, causes of variance) for JSON."""
    if promise is None:
        return None
    return {
        "confidence": promise.confidence,
        "probability": number(promise.probability),
        "probability_with_others": number(promise.together),
        "draws": promise.draws,
        "seed": promise.seed,
        "multiple": number(promise.multiple),
        "solves": promise.solves,
        "budgets": [
            {
                "name": each.name,
                "probability": number(each.probability),
                "tightened": number(each.tightened),
                "deviation": number(each.deviation),
                "causes": dict(each.causes),
            }
            for each in promise.budgets
        ],
        "others": {name: number(share) for name, share in promise.others},
        "causes": [
            {"name": name, "meaning": meaning, "deviation_down": number(down), "deviation_up": number(up)}
            for name, meaning, down, up in promise.causes
        ],
        "without": {"objective": number(promise.plain.objective), "probability": number(promise.plain.probability)},
    }
