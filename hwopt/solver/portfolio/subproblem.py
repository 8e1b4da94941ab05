"""Subproblem of a portfolio's member: the search over its own designs within a node of shared parts.

Once the shared parts (chip, chips of a rack, NICs of a server, clock) are given, the members are independent. In a node of
parts, the sum of each member's least cost,

    sum_i  weight_i  min over (parts in the node, plan_i) of cost_i,

is a lower bound on the total cost. It is the total cost where the best designs of all members have the same parts. Where these
differ, the node is split between them.

A member's search within a node covers part of its own lattice and reuses the traces of its relaxations. It stops where, given
the lower bounds of the other members, it cannot improve on the best joint design.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hwopt.design.exact import ExactModel, ExactValues
from hwopt.design.lattices import lattice_of
from hwopt.design.portfolio import CONTINUOUS, Member, parts_of
from hwopt.design.problem import Problem
from hwopt.design.variables import Variable
from hwopt.integers.system import Integer, Role
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.solver.deadline import Deadline
from hwopt.solver.search.branch_and_bound import final_heuristic, rounds
from hwopt.solver.search.node_relaxations import CHOICE, NodeRelaxations
from hwopt.solver.search.search_tree import SearchResult, SearchState
from hwopt.solver.search.solve_global import log_values

Box = Mapping[str, tuple[float, float]]
"""Lower and upper bound of each part by name, SI units; for `CHOICE`, the first and last number of a machine."""


@dataclass(frozen=True)
class MemberProblem:
    """A member's problem over all parts, on one machine or on several that differ in numbers only.

    **Arguments:**

    - `member`: the member, with its weight.
    - `problems`, `models`: problem and exact model of each machine.
    - `programmes`: node relaxations.
    """

    member: Member
    problems: tuple[Problem, ...]
    models: tuple[ExactModel, ...]
    programmes: NodeRelaxations

    @property
    def parts(self) -> dict[str, Variable]:
        """Variables that the members share, by name."""
        return parts_of(self.problems[0])

    @property
    def tilt(self) -> float:
        """Exponent of the clock in the power by which the objective is divided."""
        return sum(self.programmes.tilt.values())

    def tilted(self, exponent: float) -> MemberProblem:
        """Return the problem with its objective divided by a power of the clock."""
        boxed = self.programmes.boxed
        return replace(self, programmes=self.programmes.tilted(dict.fromkeys(boxed, exponent))) if boxed else self

    def within(self, box: Box, deadline: Deadline) -> MemberSearch:
        """Return the member's search within a node of parts."""
        problem = self.problems[0].narrowed({name: ends for name, ends in box.items() if name != CHOICE})
        lattice = lattice_of(problem)
        if CHOICE in box:
            first, last = map(int, box[CHOICE])
            choice = Integer(CHOICE, first, last, role=Role.root)
            lattice = replace(lattice, coordinates=(*lattice.coordinates, choice))
        programmes = self.programmes.within(problem, lattice)
        search = SearchState(programmes, programmes.options.tree.gap, deadline, exact=self.models)
        return MemberSearch(self, search)


@dataclass
class MemberSearch:
    """A member's search within a node of parts.

    **Arguments:**

    - `asked`: the member's problem.
    - `search`: state of the search.
    - `floor`: log lower bound inherited from the parent node.
    - `over`: whether the search has ended.
    - `under_way`: rounds of the search, once it has started.
    """

    asked: MemberProblem
    search: SearchState
    floor: float = -math.inf
    over: bool = False
    under_way: Iterator[SearchResult] | None = None

    @property
    def result(self) -> SearchResult:
        return self.search.result

    @property
    def weight(self) -> float:
        return self.asked.member.weight

    @property
    def bound(self) -> float:
        """Lower bound of the member's weighted cost, divided by the power of the clock in `tilt`."""
        return self.weight * math.exp(max(self.floor, self.result.proved_bound))

    @property
    def value(self) -> float:
        """Weighted cost of the member's best design, divided by the same power of the clock; infinite without a design."""
        return self.weight * math.exp(self.result.value)

    @property
    def gap(self) -> float:
        return math.inf if self.result.point is None else self.value - self.bound

    def looked(self, generations: int) -> MemberSearch:
        """Improve the result by a final heuristic run, and return self."""
        self.search.result = final_heuristic(self.search.programmes, self.result, generations)
        return self

    def advance(self, allowed: float) -> None:
        """Run one more round of the search.

        **Arguments:** `allowed`: the highest cost of the member in a joint design that improves on the incumbent.
        """
        most = math.log(allowed / self.weight) if 0.0 < allowed < math.inf else math.copysign(math.inf, allowed)
        self.search.incumbent.value = min(self.result.value, most)
        if (
            self.under_way is None
        ):  # the heuristic helps while there is no joint design; later, bounds settle a node sooner
            self.under_way = rounds(self.search, looks=math.isinf(allowed))
        if self.result.rounds and self.result.open_bound > self.search.cutoff:
            self.search.drop()
        elif next(self.under_way, None) is not None and self.result.boxes < self.search.tree.nodes:
            return
        self.over = True

    @cached_property
    def values(self) -> dict[str, float]:
        """Variables of the best design by name. Available once the search is over."""
        assert self.result.point is not None
        return self.result.design | self.search.lattice.design(self.result.point)

    @property
    def parts(self) -> dict[str, float]:
        """Parts of the best design; with several machines, also the number of its machine, from 1."""
        machine = {CHOICE: self.values[CHOICE]} if CHOICE in self.values else {}
        parts = parts_of(self.search.programmes.problem)
        return machine | {name: self.values.get(name, each.lower) for name, each in parts.items()}

    @property
    def machine(self) -> int:
        """Index of the best design's machine, from 0."""
        return int(self.values.get(CHOICE, 1.0)) - 1

    def exact(self, clocks: np.ndarray) -> ExactValues:
        """Evaluate the best design's plan at some clocks by the exact model."""
        problem = self.asked.problems[self.machine]
        points = np.repeat(log_values(problem, self.values)[None], len(clocks), axis=0)
        for column, each in enumerate(problem.variables):
            if each.name in CONTINUOUS:
                points[:, column] = np.log(clocks)
        return self.asked.models[self.machine].at(points)

    def at_clocks(self, clocks: np.ndarray, held: bool = True) -> np.ndarray:
        """Return the weighted cost of the best design's plan at some clocks, by the exact model.

        **Arguments:**

        - `clocks`: clocks to evaluate.
        - `held`: whether the cost is infinite where the plan is infeasible.
        """
        exact = self.exact(clocks)
        holds = (exact.violation <= FEASIBILITY_TOLERANCE) | (not held)
        return np.where(holds, self.weight * np.exp(exact.objective), np.inf)
