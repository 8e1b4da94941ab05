"""What budgets are worth with all integers free: the question solved again a little to either side of each limit."""

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
    """The best objective found under some limits, infinite where none was, and a bound of all."""

    value: float
    bound: float


_NOTHING_KNOWN = _Ends(math.inf, 0.0)


@dataclass
class _MovedBudgets:
    """A question under moved limits. **Arguments:** `points` of its lattice met so far, from which each search begins."""

    question: SearchProblem
    points: list[np.ndarray] = field(default_factory=list)
    tolerance: float = SEARCH.prices.gap

    def ends(self, factors: Sequence[float]) -> _Ends:
        """The question with the limit of each budget times a factor."""
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
    """The same answer with the price of each budget on both sides: all integers solved again at `1 - step` and `1 + step` of it.

    With U and L the objective and its bound at today's limit, U' and L' at the limit moved by d, a unit is worth between
    `(L' - U) / d` and `(U' - L) / d` where the budget is tightened, between `(L - U') / d` and `(U - L') / d` where it is
    loosened, and never less than 0. `shadow_price` holds with the plan of the answer; where the best plan changes with the
    budget, what a little less costs and what a little more saves differ from it and from each other. Of several choices the one
    of the answer is kept.

    Percentiles are known to programmes by their range, so that searches end within what a piece of the clock leaves open (some
    1e-4), and prices are as wide.

    **Arguments:** `solution`: a proved one, others come back as they are; `deadline`: budgets for which there is no time keep
    the one price, and a search that it ends leaves a wider interval; `tolerance`: relative gap of the searches, which a larger
    step may be told apart by as well; `options` of the searches, with the step and the tolerance by default.
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
            ends_within = here.value <= here.bound * (1.0 + 1.01 * within)  # a search's tolerance, but for rounding
            if not (coarse or ends_within):
                here = here._replace(bound=max(here.bound, moved.ends([1.0] * len(budgets)).bound))
            for index, budget in enumerate(budgets):
                sides = OneSidedPrices(*(_side(moved, here, budgets, index, sign * step) for sign in (-1.0, 1.0)))
                if not deadline.over:
                    budgets[index] = replace(budget, one_sided_prices=sides)
        return replace(solution, budgets=list(budgets))

    return by_deadline(deadline, work, lambda: replace(solution, budgets=list(budgets)))


def _side(moved: _MovedBudgets, here: _Ends, budgets: Sequence[BudgetUse], index: int, by: float) -> OneSidedPrice:
    """The price of a budget moved `by` a share of it.

    What is proved of one limit helps at the other: no design of a tighter limit is below the bound of a looser one, and every
    design of a tighter limit holds a looser one.
    """
    budget = budgets[index]
    limit = budget.limit * (1.0 + by)
    if by < 0.0 and budget.used <= limit:
        ends = here  # the answer holds this limit too
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
