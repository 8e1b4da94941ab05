"""Chance constraints of an answer under uncertain inputs, in words."""

import math

from hwopt.output.answer import Section, Sentences, Table
from hwopt.solver.chance_constraints import BudgetProbability, ChanceConstraint
from hwopt.solver.solution import Solution
from hwopt.units import label, pretty

_MOST_CAUSES = 3
"""Maximum number of causes of variance named for a budget."""


def promise_section(solution: Solution) -> Section:
    """Return the section on the probability of each budget, its tightened limit, and the cost of the chance constraint."""
    title, promise = "Chance constraint: budgets under uncertain inputs", solution.promise
    if promise is None:
        return Section(title, [])
    known = {each.name: (each.limit, each.unit) for each in solution.budgets}
    cells = [_budget_cells(each, *known[each.name]) for each in promise.budgets]
    drawn = ", ".join(
        f"{each.name} {_side(-each.deviation_down)}/{_side(each.deviation_up)}" for each in promise.causes
    )
    meaning = (
        "Ranges of the catalog are read as 80 % intervals. Inputs with a common cause move together; causes are independent. "
        "Memory use is not varied."
    )
    inputs = f"Uncertain inputs, with one standard deviation down and up in %: {drawn}. {meaning}"
    heads = ("budget", "holds in", "limit in the search", "variance due to")
    table = Table("budgets under uncertain inputs", heads, cells, "lrll")
    return Section(title, [Sentences([kept_words(promise)]), table, Sentences([cost_words(solution), inputs])])


def _side(deviation: float) -> str:
    return f"{100 * math.expm1(deviation):+.0f}"


def kept_words(promise: ChanceConstraint) -> str:
    """Return the probability that all limits hold, the confidence level of the budgets, and limits that may fail, in words."""
    kept = f"{100 * promise.probability:.1f} % of {promise.draws:,} draws of the uncertain inputs"
    said = f"All budgets hold together in {kept} (requested: {100 * promise.confidence:.4g} %)."
    if not promise.others:
        return said
    own = ", ".join(f"{name} holds in {100 * share:.1f} %" for name, share in promise.others.items())
    return (
        f"{said} With the design's own limits, all hold together in {100 * promise.together:.1f} %: {own}. The search does not "
        "tighten these limits, and the requested probability does not cover them."
    )


def _budget_cells(each: BudgetProbability, limit: float, unit: str) -> list[str]:
    tight = pretty(limit * each.tightened, unit)
    asked = "as requested" if each.tightened == 1.0 else f"tightened by {100 * (1 - each.tightened):.3g} % to {tight}"
    causes = ", ".join(f"{name} {100 * share:.0f} %" for name, share in list(each.causes.items())[:_MOST_CAUSES])
    return [each.name, f"{100 * each.probability:.1f} %", asked, causes]


def cost_words(solution: Solution) -> str:
    """Return the cost of the chance constraint in a sentence."""
    assert solution.promise is not None
    goal, promise, plain = solution.problem.objective, solution.promise, solution.promise.plain
    before = f"{pretty(plain.objective, goal.unit, 6)}"
    kept = f"satisfies all budgets in {100 * plain.probability:.1f} %"
    if promise.multiple == 0.0:
        return f"The chance constraint costs nothing: the best design without it ({before}) {kept} of the draws."
    more = 100 * (solution.objective / plain.objective - 1.0)
    return (
        f"The chance constraint costs {more:.3g} %: without it the {label(goal.name, goal.unit)} is {before}, but that design "
        f"{kept} of the draws ({promise.solves} searches)."
    )
