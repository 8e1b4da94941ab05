"""One-sided prices of budgets: the problem re-solved slightly to either side of each limit, with all integers free."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax
import numpy as np

from hwopt.design.exact import ExactModel
from hwopt.design.lattices import lattice_of, limits_percentiles
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.solver.deadline import Deadline, by_deadline
from hwopt.solver.options import SEARCH, SearchOptions
from hwopt.solver.search.branch_and_bound import search
from hwopt.solver.search.search_tree import SearchResult
from hwopt.solver.search.solve_global import AGREES, SearchProblem, best_design, design_values
from hwopt.solver.solution import BudgetUse, OneSidedPrice, OneSidedPrices, Solution


class _Ends(NamedTuple):
    """Interval of the optimal objective under some limits: best objective found (infinite if none) and proved lower bound."""

    value: float
    bound: float


_NOTHING_KNOWN = _Ends(math.inf, 0.0)


@dataclass
class _MovedBudgets:
    """A problem under moved limits.

    **Arguments:**

    - `question`: the problem at its own limits.
    - `points`: integer designs found so far, from which each search starts.
    - `tolerance`: relative gap of the searches.
    """

    question: SearchProblem
    points: list[np.ndarray] = field(default_factory=list)
    tolerance: float = SEARCH.prices.gap

    def ends(self, factors: Sequence[float]) -> _Ends:
        """Return the interval of the optimal objective with the limit of each budget multiplied by a factor."""
        asked = self.question.problem.relaxed(factors)
        programmes, model = self.question.programmes.with_limits(asked), ExactModel(asked)
        question = replace(self.question, problem=asked, model=model, result=SearchResult(), like=programmes)
        found = search(
            programmes, tolerance=self.tolerance, designs=self.points, deadline=question.deadline,
            result=question.result, exact=[model],
        )  # fmt: skip
        bound = math.exp(found.proved_bound) if math.isfinite(found.proved_bound) else max(0.0, found.proved_bound)
        if found.point is None:
            return _Ends(math.inf, bound)
        best = best_design(question, asked, found.point)
        objective = float(best.exact.objective)
        if best.violation > FEASIBILITY_TOLERANCE or abs(objective - best.objective) > AGREES:
            return _NOTHING_KNOWN
        if not any(np.array_equal(found.point, point) for point in self.points):
            self.points.append(found.point)
        return _Ends(math.exp(objective), min(bound, math.exp(objective)))


def with_one_sided_prices(
    solution: Solution,
    step: float | None = None,
    deadline: Deadline | None = None,
    tolerance: float | None = None,
    options: SearchOptions = SEARCH,
) -> Solution:
    """Return the solution with one-sided prices of each budget, re-optimized at `1 - step` and `1 + step` times its limit.

    Let U and L be the objective and its lower bound at the present limit, U' and L' those at a limit moved by d. The price per
    unit is between `(L' - U) / d` and `(U' - L) / d` where the budget is tightened. It is between `(L - U') / d` and
    `(U - L') / d` where the budget is loosened, and never below 0.

    `shadow_price` holds with the plan fixed. Where the best plan changes with the budget, the two one-sided prices differ from
    it and from each other. The combination of choices is kept.

    Convex relaxations know percentiles of latency by their range only. Searches under such limits therefore end at a gap of
    about 1e-4, which a segment of the clock's range leaves, and the prices are as uncertain.

    **Arguments:**

    - `solution`: a proved solution; others are returned unchanged.
    - `step`: relative move of the limits; that of the options by default.
    - `deadline`: time limit. Budgets that are not reached keep their shadow price only, and a search that it stops leaves a
      wider interval.
    - `tolerance`: relative gap of the searches; that of the options by default. A larger step may resolve prices as well.
    - `options`: options of the searches.
    """
    today = solution.certificate.lower_bound
    if today is None or not solution.feasible:
        return solution
    deadline, problem = deadline or Deadline(), solution.problem
    step = options.prices.step if step is None else step
    tolerance = options.prices.gap if tolerance is None else tolerance
    budgets = list(solution.budgets)

    def work() -> Solution:
        with jax.enable_x64(True):
            lattice = lattice_of(problem)
            question = SearchProblem(problem, lattice, ExactModel(problem).prepare(), deadline, options=options)
            coarse = limits_percentiles(problem)
            within = max(tolerance, options.tree.gap) if coarse else tolerance
            moved = _MovedBudgets(question, [lattice.point(design_values(solution))], within)
            here = _Ends(solution.objective, today)
            ends_within = here.value <= here.bound * (1.0 + 1.01 * within)  # up to rounding
            if not (coarse or ends_within):
                here = here._replace(bound=max(here.bound, moved.ends([1.0] * len(budgets)).bound))
            for index, budget in enumerate(budgets):
                sides = OneSidedPrices(*(_side(moved, here, budgets, index, sign * step) for sign in (-1.0, 1.0)))
                if not deadline.over:
                    budgets[index] = replace(budget, one_sided_prices=sides)
        return replace(solution, budgets=list(budgets))

    return by_deadline(deadline, work, lambda: replace(solution, budgets=list(budgets)))


def _side(moved: _MovedBudgets, here: _Ends, budgets: Sequence[BudgetUse], index: int, by: float) -> OneSidedPrice:
    """Return the price of a budget whose limit moves by the share `by`.

    Proofs at one limit also hold at the other: the lower bound of a looser limit bounds the tighter one, and a design for a
    tighter limit is feasible under a looser one.
    """
    budget = budgets[index]
    limit = budget.limit * (1.0 + by)
    if by < 0.0 and budget.used <= limit:
        ends = here  # the design satisfies this limit too
    else:
        ends = moved.ends(np.where(np.arange(len(budgets)) == index, 1.0 + by, 1.0).tolist())
    if by < 0.0:
        ends = ends._replace(bound=max(ends.bound, here.bound))
        low, high = ends.bound - here.value, ends.value - here.bound
    else:
        ends = ends._replace(value=min(ends.value, here.value))
        low, high = here.bound - ends.value, here.value - ends.bound if ends.bound > 0.0 else math.inf
    per = budget.limit * abs(by)
    return OneSidedPrice(limit, ends.value, ends.bound, max(0.0, low) / per, max(0.0, high) / per)
