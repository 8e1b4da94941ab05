"""Budgets that all members of a portfolio share: branch and bound over their allocation to members.

Once each member has a share e_i of a joint budget, with `sum_i e_i <= 1`, members are coupled by their parts only.
`PortfolioSearch` then finds the best joint design. In a node of allocations, each member may use the upper end of its share.
This is a relaxation: its bound holds for all allocations in the node, and its joint design is optimal there if it satisfies the
joint budgets.

If it does not, each member's least use of the budget, from a search of its own, tightens the shares. The node is then split
between the members' uses, in proportion to what the budget leaves beyond the least uses. That allocation is also tried: a joint
design for it satisfies the joint budgets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hwopt.design.exact import ExactModel
from hwopt.design.problem import Budget, Problem
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.solver.deadline import Deadline
from hwopt.solver.options import SEARCH, SearchOptions
from hwopt.solver.portfolio.master import ChoiceFamily, JointDesign, MemberSearch, PortfolioSearch
from hwopt.solver.portfolio.subproblem import MemberProblem
from hwopt.solver.search.solve_global import solve_global
from hwopt.solver.solution import Outcome


@dataclass(frozen=True)
class BudgetAllocation:
    """Node of allocations: range of each member's share of each budget (budget, member), and lower bound of the total cost."""

    low: np.ndarray
    high: np.ndarray
    floor: float = 0.0

    @property
    def tightened(self) -> BudgetAllocation:
        """The node without shares that leave the other members less than their lower ends."""
        others = self.low.sum(axis=1, keepdims=True) - self.low
        return replace(self, high=np.minimum(self.high, 1.0 - others))

    def wanted(self, used: np.ndarray) -> np.ndarray:
        """Return shares that add up to 1: the lower ends, and the rest in proportion to the use beyond these.

        **Arguments:** `used`: shares that the members use (budget, member).
        """
        beyond = np.maximum(used - self.low, 1e-12)
        left = np.maximum(1.0 - self.low.sum(axis=1, keepdims=True), 0.0)
        return self.low + left * beyond / beyond.sum(axis=1, keepdims=True)

    def halves(self, used: np.ndarray, narrowest: float = SEARCH.portfolio.narrowest_share) -> list[BudgetAllocation]:
        """Split the node so that, as far as possible, neither child's relaxation allows what was used in this one.

        **Arguments:**

        - `used`: shares that the members use (budget, member).
        - `narrowest`: share below which a range is not split.

        **Returns:** two children; none if all ranges are too narrow.
        """
        budget = int(np.argmax(used.sum(axis=1)))
        wanted = self.wanted(used)[budget]
        width = self.high[budget] - self.low[budget]
        member = int(np.argmax(np.where(width > narrowest, used[budget] - self.low[budget], -1.0)))
        low, high = self.low[budget, member], self.high[budget, member]
        if high - low <= narrowest:
            return []
        at = wanted[member]
        at = at if low + 0.1 * (high - low) < at < high - 0.1 * (high - low) else 0.5 * (low + high)
        less, more = self.high.copy(), self.low.copy()
        less[budget, member] = more[budget, member] = at
        return [replace(self, high=less).tightened, replace(self, low=more).tightened]


@dataclass
class JointBudgetSearch:
    """Search of a portfolio under joint budgets, with the interface of `PortfolioSearch`.

    **Arguments:**

    - `families`: sets of choice combinations that differ only in numbers of their machines. The last budgets of each member are
      the joint ones, unallocated.
    - `budgets`: the joint budgets.
    - `deadline`: time limit.
    - `most`: number of `PortfolioSearch` runs after which no further node is searched. A node takes one or two runs. Default: that
      of the options.
    - `best`: best joint design that satisfies the joint budgets.
    - `bound`: least bound of discarded nodes.
    - `nodes`: open nodes of allocations.
    - `root`: the first search, in which each member may use the whole budget.
    - `running`: the search over parts in progress.
    """

    families: Sequence[ChoiceFamily]
    budgets: Sequence[Budget]
    deadline: Deadline
    most: int | None = None
    best: JointDesign = field(default_factory=JointDesign)
    bound: float = math.inf
    nodes: list[BudgetAllocation] = field(default_factory=list)
    root: PortfolioSearch | None = None
    running: PortfolioSearch | None = None
    searches: int = 0
    boxes: int = 0
    boxes_of_parts: int = 0
    complete: bool = False
    options: SearchOptions = SEARCH

    @property
    def proved_bound(self) -> float:
        """Proved lower bound of the total cost of any joint design."""
        if self.root is not None and self.running is self.root:
            return self.root.proved_bound
        return min([self.bound, *(each.floor for each in self.nodes)]) if self.nodes or self.complete else 0.0

    @property
    def alone(self) -> dict[tuple[int, int], MemberSearch]:
        """Search of each member over all parts, by (family, member)."""
        return {} if self.root is None else self.root.alone

    @property
    def bounds(self) -> dict[int, float]:
        """Lower bound of each combination of choices. It may be loose, because each member may use the whole budget."""
        return {} if self.root is None else self.root.bounds

    @property
    def on_parts_of(self) -> dict[int, tuple[float, float]]:
        """Costs on the parts of each member's best design; empty after more than one search, when they are no longer valid."""
        return self.root.on_parts_of if self.root is not None and self.searches == 1 else {}

    def run(self, progress: Callable[[Any], None] | None = None) -> None:
        """Search until all nodes are discarded, or until a limit of time, nodes or searches."""
        shape = len(self.budgets), len(self.families[0].asked)
        self.nodes = [BudgetAllocation(np.zeros(shape), np.ones(shape))]
        options = self.options.portfolio
        most = options.joint_searches if self.most is None else self.most
        while self.nodes and self.searches < most and self.boxes < options.nodes and not self.deadline.over:
            box = min(self.nodes, key=lambda each: each.floor)
            if box.floor > self.best.value / (1.0 + options.joint_gap):
                self._replace(box, [])
                continue
            found = self._searched(box.high, progress)
            box = self._replace(box, [replace(box, floor=max(box.floor, found.proved_bound))])[0]
            if not found.complete:
                return
            if found.best is self.best:  # no better joint design in this node
                self._replace(box, [])
                continue
            used = self.used(found.best)
            if self._hold(used):
                self.best = found.best
                self._replace(box, [])
                continue
            if self.searches == 1:
                box = self._replace(box, [replace(box, low=self._least()).tightened])[0]
                if (box.low.sum(axis=1) > 1.0).any():
                    self._replace(box, [replace(box, floor=math.inf)])
                    continue
            self._replace(box, box.halves(used, options.narrowest_share))
            tried = self._searched(box.wanted(used), progress)
            if tried.best is not self.best and self._hold(self.used(tried.best)):
                self.best = tried.best
        self.complete = not self.nodes

    def last_look(self) -> None:
        """Find a first joint design that satisfies the joint budgets; see `PortfolioSearch.last_look`."""
        found = PortfolioSearch(self.families, self.deadline, options=self.options)
        found.last_look()
        self.root = self.root or found
        if found.best.family is not None and self._hold(self.used(found.best)):
            self.best = found.best

    def _least(self) -> np.ndarray:
        """Return the least share of each budget that each member uses (budget, member), on its most economical machine.

        With more combinations of choices than the options allow, the shares are 0.
        """
        least = np.zeros((len(self.budgets), len(self.families[0].asked)))
        if sum(len(family.combinations) for family in self.families) > self.options.portfolio.joint_machines:
            return least
        for k, budget in enumerate(self.budgets):
            for i in range(least.shape[1]):
                problems = [each for family in self.families for each in family.asked[i].problems]
                bounds = [_least_use(problem, budget, self.deadline, self.options) for problem in problems]
                least[k, i] = min(bounds) / budget.limit
        return least

    def _replace(self, box: BudgetAllocation, others: list[BudgetAllocation]) -> list[BudgetAllocation]:
        """Replace a node by its children. Without children, its bound is recorded."""
        if not others:
            self.bound = min(self.bound, box.floor)
        self.nodes = [*(each for each in self.nodes if each is not box), *others]
        return others

    def _searched(self, shares: np.ndarray, progress: Callable[[Any], None] | None) -> PortfolioSearch:
        """Run the search over parts with given shares of the budgets (budget, member)."""
        families = self.families if (shares == 1.0).all() else [self._allotted(each, shares) for each in self.families]
        search = PortfolioSearch(families, self.deadline, best=self.best, options=self.options)
        self.running, self.root = search, self.root or search
        search.run(progress)
        self.running = None
        self.searches, self.boxes = self.searches + 1, self.boxes + search.boxes
        self.boxes_of_parts += search.boxes_of_parts
        return search

    def _allotted(self, family: ChoiceFamily, shares: np.ndarray) -> ChoiceFamily:
        """Return a family whose members have shares of the budgets. Powers of the clock that are already known are kept."""
        pairs = [*zip(family.asked, shares.T, strict=True)]
        tilted = zip(family.tilted, shares.T, strict=True) if family.tilted else ()
        return replace(
            family, asked=tuple(_allotted(*pair) for pair in pairs), tilted=tuple(_allotted(*pair) for pair in tilted)
        )

    def used(self, listed: JointDesign) -> np.ndarray:
        """Return the shares of the budgets that a joint design uses (budget, member)."""
        return np.stack([self._used(work, listed.clock) for work in listed.works], axis=1)

    def _used(self, work: MemberSearch, clock: float) -> np.ndarray:
        problem = work.asked.problems[work.machine]
        own = len(problem.budgets) - len(self.budgets)
        logarithms = work.exact(np.array([clock])).constraints[0]
        limits = np.array([each.limit for each in problem.budgets])
        used = np.exp(logarithms[: len(limits)]) * limits
        return used[own:] / np.array([each.limit for each in self.budgets])

    @staticmethod
    def _hold(used: np.ndarray) -> bool:
        return bool((used.sum(axis=1) <= 1.0 + FEASIBILITY_TOLERANCE).all())


def _least_use(problem: Problem, budget: Budget, deadline: Deadline, options: SearchOptions) -> float:
    """Return a lower bound of a member's use of a budget, SI units: infinite if infeasible, 0 if none is proved in time."""
    found = solve_global(replace(problem, objective=budget.metric), deadline=deadline, explain=False, options=options)
    if found.outcome is Outcome.infeasible:
        return math.inf
    return found.certificate.lower_bound or 0.0


def _allotted(asked: MemberProblem, shares: np.ndarray) -> MemberProblem:
    """Return a member's problem whose last budgets are multiplied by its shares."""
    of = lambda problem: problem.relaxed([*[1.0] * (len(problem.budgets) - len(shares)), *map(float, shares)])
    problems = tuple(of(problem) for problem in asked.problems)
    models = tuple(ExactModel(problem).prepare() for problem in problems)
    return replace(asked, problems=problems, models=models, programmes=asked.programmes.with_limits(problems[0]))
