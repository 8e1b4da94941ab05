"""A portfolio's members over boxes of parts: each is a search of its own.

Once parts are given, members have nothing in common: in a box of parts (chip, chips of a rack, NICs of a server, clock), the sum of
what each member costs at least there,

    sum_i  weight_i  min over (parts in the box, plan_i) of cost_i,

bounds what all cost together, and is what they cost where their best designs have the same parts. Where these differ, the box is
split between them. A member's search over part of a box is the search of its own question over fewer designs: its programmes are
read once, and it stops where, with what the others cost at least, it could not beat the best list known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hwopt.design.exact import ExactModel
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
"""Both ends of parts by name, SI; of `CHOICE` the numbers of machines."""


@dataclass(frozen=True)
class MemberProblem:
    """A member over all parts, on one machine or on several that differ in numbers alone.

    **Arguments:** `problems` and `models` of the machines; `programmes` of its boxes.
    """

    member: Member
    problems: tuple[Problem, ...]
    models: tuple[ExactModel, ...]
    programmes: NodeRelaxations

    @property
    def parts(self) -> dict[str, Variable]:
        """What members share, by name."""
        return parts_of(self.problems[0])

    @property
    def tilt(self) -> float:
        """Power of the clock that the objective is divided by."""
        return sum(self.programmes.tilt.values())

    def tilted(self, exponent: float) -> MemberProblem:
        """The same, its objective divided by a power of the clock."""
        boxed = self.programmes.boxed
        return replace(self, programmes=self.programmes.tilted(dict.fromkeys(boxed, exponent))) if boxed else self

    def within(self, box: Box, deadline: Deadline) -> MemberSearch:
        """Its search in a box of parts."""
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
    """A member's search in a box of parts. **Arguments:** `floor`: bound of a box that holds this one, a logarithm."""

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
        """What the member costs at least, weighted, over the power of the clock that it is tilted by."""
        return self.weight * math.exp(max(self.floor, self.result.proved_bound))

    @property
    def value(self) -> float:
        """What its best design costs, likewise; infinite where none is known."""
        return self.weight * math.exp(self.result.value)

    @property
    def gap(self) -> float:
        return math.inf if self.result.point is None else self.value - self.bound

    def looked(self, generations: int) -> MemberSearch:
        """Take the result of a last look, and return self."""
        self.search.result = final_heuristic(self.search.programmes, self.result, generations)
        return self

    def advance(self, allowed: float) -> None:
        """One round more. **Arguments:** `allowed`: what the member may cost for a list that is better than the best."""
        most = math.log(allowed / self.weight) if 0.0 < allowed < math.inf else math.copysign(math.inf, allowed)
        self.search.incumbent.value = min(self.result.value, most)
        if (
            self.under_way is None
        ):  # looks help where no list is known yet; else bounds say sooner that there is nothing
            self.under_way = rounds(self.search, looks=math.isinf(allowed))
        if self.result.rounds and self.result.open_bound > self.search.cutoff:
            self.search.drop()
        elif next(self.under_way, None) is not None and self.result.boxes < self.search.tree.nodes:
            return
        self.over = True

    @cached_property
    def values(self) -> dict[str, float]:
        """What the best design comes to, by name. Asked when the search is over."""
        assert self.result.point is not None
        return self.result.design | self.search.lattice.design(self.result.point)

    @property
    def parts(self) -> dict[str, float]:
        """The parts of the best design; and the number of its machine, from 1, where there are several."""
        machine = {CHOICE: self.values[CHOICE]} if CHOICE in self.values else {}
        parts = parts_of(self.search.programmes.problem)
        return machine | {name: self.values.get(name, each.lower) for name, each in parts.items()}

    @property
    def machine(self) -> int:
        """Number of the machine of the best design, from 0."""
        return int(self.values.get(CHOICE, 1.0)) - 1

    def at_clocks(self, clocks: np.ndarray, held: bool = True) -> np.ndarray:
        """What the plan of the best design costs at some clocks, by the exact model, weighted; infinite where it does not hold,
        unless it need not be `held`.
        """
        problem = self.asked.problems[self.machine]
        points = np.repeat(log_values(problem, self.values)[None], len(clocks), axis=0)
        for column, each in enumerate(problem.variables):
            if each.name in CONTINUOUS:
                points[:, column] = np.log(clocks)
        exact = self.asked.models[self.machine].at(points)
        holds = (exact.violation <= FEASIBILITY_TOLERANCE) | (not held)
        return np.where(holds, self.weight * np.exp(exact.objective), np.inf)
