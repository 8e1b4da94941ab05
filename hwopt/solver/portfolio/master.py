"""Master search over shared parts: branch and bound on nodes of parts, with the members' searches as subproblems.

Where members prefer different clocks, halving the range of clocks would take many nodes. Instead, a member's cost is divided by
a power `t_i` of the clock `c`, and bounded by `L_i` in a node. All members together then cost at least the minimum of
`sum_i L_i c^t_i`, which is convex in log c.

Any power gives a valid bound. With `t_i` the elasticity of the member's cost at the clock of the best joint design, the bound
is tight where costs are log-log convex: it is a tangent instead of an interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hwopt.design.portfolio import CONTINUOUS
from hwopt.solver.deadline import Deadline
from hwopt.solver.options import SEARCH, PortfolioOptions, SearchOptions
from hwopt.solver.portfolio.subproblem import Box, MemberProblem, MemberSearch
from hwopt.solver.search.node_relaxations import CHOICE
from hwopt.solver.search.search_tree import OutOfTime

_SAME = 1e-6
"""Relative difference up to which two clocks count as equal."""


def least_weighted_sum(
    members: Sequence[tuple[float, float]], low: float, high: float, halvings: int = SEARCH.portfolio.clock_halvings
) -> tuple[float, float]:
    """Return the minimum of `sum_i a_i c^t_i` over clocks c from `low` to `high`, and the clock at the minimum.

    The sum is convex in log c; the minimum is found by bisection.

    **Arguments:**

    - `members`: coefficient and exponent `(a_i, t_i)` of each member.
    - `low`, `high`: range of the clock.
    - `halvings`: number of bisections.
    """
    levels, tilts = np.array(members).T
    if not np.isfinite(levels).all() or not tilts.any() or low == high:
        return (float(np.sum(levels * low**tilts)) if np.isfinite(levels).all() else math.inf), low
    least, most = math.log(low), math.log(high)
    rising = lambda x: float(np.sum(levels * tilts * np.exp(tilts * x))) > 0.0
    for _ in range(halvings):
        middle = 0.5 * (least + most)
        least, most = (least, middle) if rising(middle) else (middle, most)
    return min((float(np.sum(levels * np.exp(tilts * x))), math.exp(x)) for x in (least, most))


@dataclass
class ChoiceFamily:
    """Combinations of choices that differ only in numbers of their machines, for all members.

    **Arguments:**

    - `combinations`: their indices among all combinations.
    - `asked`: problems of the members.
    - `tilted`: the same with objectives divided by powers of the clock, once the elasticities of the costs are known.
    """

    combinations: tuple[int, ...]
    asked: tuple[MemberProblem, ...]
    tilted: tuple[MemberProblem, ...] = ()

    @property
    def options(self) -> PortfolioOptions:
        return self.asked[0].programmes.options.portfolio

    @property
    def box(self) -> dict[str, tuple[float, float]]:
        """Bounds of all shared parts."""
        several = len(self.combinations) > 1
        choice = {CHOICE: (1.0, float(len(self.combinations)))} if several else {}
        return choice | {name: (each.lower, each.upper) for name, each in self.asked[0].parts.items()}


@dataclass
class PartsNode:
    """A node of shared parts, with each member's search within it."""

    family: ChoiceFamily
    box: Box
    works: list[MemberSearch]

    floor: float = 0.0

    @property
    def bound(self) -> float:
        """Lower bound of the total cost."""
        return max(self.floor, self._least[0])

    @property
    def _least(self) -> tuple[float, float]:
        """Minimum over clocks of the sum of the members' lower bounds, and the clock at that minimum."""
        return least_weighted_sum(
            [(work.bound, work.asked.tilt) for work in self.works], *self._clocks, self.family.options.clock_halvings
        )

    @property
    def _clocks(self) -> tuple[float, float]:
        """Range of the clock."""
        return next((self.box[name] for name in CONTINUOUS if name in self.box), (1.0, 1.0))

    def allowed(self, work: MemberSearch, most: float) -> float:
        """Return the highest cost of a member at which the total cost of all members can still be `most`.

        The cost is divided by the member's power of the clock.
        """
        others = [each for each in self.works if each is not work]
        if any(math.isinf(each.bound) for each in others):
            return -math.inf
        count = self.family.options.clocks
        clocks = np.geomspace(*self._clocks, count)
        left = most - sum((each.bound * clocks**each.asked.tilt for each in others), start=np.zeros(count))
        return float(np.max(left * clocks**-work.asked.tilt))

    @property
    def tilted(self) -> bool:
        """Whether the members' objectives are divided by powers of the clock."""
        return any(work.asked is not each for work, each in zip(self.works, self.family.asked, strict=True))

    @property
    def open(self) -> list[MemberSearch]:
        return [work for work in self.works if not work.over]

    @property
    def cut(self) -> tuple[str, float] | None:
        """Part to branch on, and last value of its lower half; None if designs agree in every part, or a member has none."""
        if any(work.result.point is None for work in self.works):
            return None
        parts = [work.parts for work in self.works]
        for name in sorted(parts[0], key=lambda name: (name != CHOICE, name in CONTINUOUS)):
            least, most = min(each[name] for each in parts), max(each[name] for each in parts)
            middle = math.sqrt(least * most)
            if name in CONTINUOUS and most > least * (1.0 + _SAME):
                return name, middle
            if name not in CONTINUOUS and round(most) > round(least):
                return name, float(min(max(math.floor(middle), round(least)), round(most) - 1))
        low, high = self._clocks
        if not self.tilted or high <= low * (1.0 + _SAME):
            return None
        at = self._least[1]  # where the sum of the tangents is least
        return CONTINUOUS[0], at if low * (1.0 + _SAME) < at < high / (1.0 + _SAME) else math.sqrt(low * high)


@dataclass(frozen=True)
class JointDesign:
    """A design of each member on the same parts.

    **Arguments:**

    - `value`: weighted sum of the members' costs.
    - `works`: the members' searches, whose best designs these are.
    - `clock`: clock of all members.
    - `family`: combinations of choices that contain the design; None without a design.
    """

    value: float = math.inf
    works: tuple[MemberSearch, ...] = ()
    clock: float = math.nan
    family: ChoiceFamily | None = None


@dataclass
class PortfolioSearch:
    """Search of a portfolio, over one machine or several.

    **Arguments:**

    - `families`: combinations of choices to search.
    - `deadline`: time limit.
    - `best`: best joint design so far.
    - `bound`: least bound of discarded nodes.
    - `bounds`: the same by combination of choices.
    - `nodes`: open nodes of parts.
    - `alone`: search of each member over all parts, by (family, member).
    - `on_parts_of`: total cost of the best joint design on the parts of each member's own best design, and its lower bound. The
      cost is infinite if none was found.
    - `asked`: parts on which a joint design was already tried.
    """

    families: Sequence[ChoiceFamily]
    deadline: Deadline
    best: JointDesign = field(default_factory=JointDesign)
    bound: float = math.inf
    bounds: dict[int, float] = field(default_factory=dict)
    nodes: list[PartsNode] = field(default_factory=list)
    alone: dict[tuple[int, int], MemberSearch] = field(default_factory=dict)
    on_parts_of: dict[int, tuple[float, float]] = field(default_factory=dict)
    asked: set[tuple] = field(default_factory=set)
    boxes: int = 0  # number of search nodes bounded, of all members
    boxes_of_parts: int = 0
    complete: bool = False
    options: SearchOptions = SEARCH

    @property
    def proved_bound(self) -> float:
        """Proved lower bound of the total cost of any joint design."""
        return min([self.bound, *(node.bound for node in self.nodes)]) if self.nodes or self.complete else 0.0

    @property
    def cutoff(self) -> float:
        return self.best.value / (1.0 + self.options.portfolio.gap)

    def run(self, progress: Callable[[PortfolioSearch], None] | None = None) -> None:
        """Search until all nodes are discarded, or until a limit of time or nodes."""
        nodes = [self._node(family, family.box) for family in self.families]
        self.alone = {(at, i): work for at, node in enumerate(nodes) for i, work in enumerate(node.works)}
        self.nodes = nodes
        try:
            while self.nodes and self.boxes < self.options.portfolio.nodes:
                node = min(self.nodes, key=lambda each: each.bound)
                if node.bound > self.cutoff or math.isinf(node.bound):
                    self._discard(node)
                elif node.open:
                    self._advance(node, max(node.open, key=lambda work: (work.gap, work.bound)))
                else:
                    self._settle(node)
                if progress:
                    progress(self)
        except OutOfTime:
            return
        self.complete = not self.nodes

    def _advance(self, node: PartsNode, work: MemberSearch) -> None:
        before = work.result.boxes
        try:
            work.advance(node.allowed(work, self.best.value))
        finally:
            self.boxes += work.result.boxes - before

    def _node(self, family: ChoiceFamily, box: Box, parent: PartsNode | None = None) -> PartsNode:
        """Return a node of parts. Members whose best design in the parent lies within the node keep their search."""
        self.boxes_of_parts += 1
        asked = family.tilted or family.asked
        if parent is None:
            return PartsNode(family, box, [each.within(box, self.deadline) for each in asked])
        works = []
        for each, before in zip(asked, parent.works, strict=True):
            same = before.asked is each
            work = before if same and _holds(box, before.parts) else each.within(box, self.deadline)
            if same and work is not before:
                work.floor = max(before.floor, before.result.proved_bound)
            works.append(work)
        return PartsNode(family, box, works, floor=parent.bound)

    def _settle(self, node: PartsNode) -> None:
        """Evaluate joint designs of a node whose members are all searched, then discard or split it."""
        family, cut = node.family, node.cut
        if all(work.result.point is not None for work in node.works):
            self._offer(family, node.works)
            for work in self._heads(node):
                self._ask(node, work)
        if cut is None or node.bound > self.cutoff:
            self._discard(node)
            return
        if not family.tilted and self.best.family is family:
            family.tilted = tuple(
                each.tilted(self._slope(work)) for each, work in zip(family.asked, self.best.works, strict=True)
            )
        name, last = cut
        low, high = node.box[name]
        first = last if name in CONTINUOUS else last + 1.0
        if name in CONTINUOUS and family.tilted and not node.tilted:
            self._replace(node, [self._node(family, node.box, node)])
            return
        self._replace(
            node, [self._node(family, {**node.box, name: ends}, node) for ends in ((low, last), (first, high))]
        )

    def _replace(self, node: PartsNode, others: list[PartsNode]) -> None:
        """Replace a node by its children in one assignment, so that a deadline in between finds a consistent list."""
        self.nodes = [*(each for each in self.nodes if each is not node), *others]

    def _slope(self, work: MemberSearch) -> float:
        """Return the elasticity of a member's cost to the clock, at the best joint design."""
        low, high = work.asked.parts[CONTINUOUS[0]].lower, work.asked.parts[CONTINUOUS[0]].upper
        step = self.options.portfolio.clock_step
        clocks = np.clip(self.best.clock * np.exp([-step, step]), low, high)
        if clocks[0] == clocks[1]:
            return 0.0
        return float(np.diff(np.log(work.at_clocks(clocks, held=False)))[0] / np.diff(np.log(clocks))[0])

    def _heads(self, node: PartsNode) -> list[MemberSearch]:
        """Return the members whose parts are tried for all: every member at the root, later only the most expensive one."""
        if node.cut is None:
            return []
        return (
            node.works
            if any(work is node.works[0] for work in self.alone.values())
            else [max(node.works, key=lambda work: work.value)]
        )

    def _ask(self, node: PartsNode, head: MemberSearch) -> None:
        """Search for a joint design on the parts of one member's best design.

        The joint design is evaluated at each member's preferred clock and at clocks in between. At most `trial_nodes` nodes are
        searched per member.

        **Arguments:**

        - `node`: node whose members are all searched.
        - `head`: member whose parts are tried.
        """
        key = (id(node.family), *(round(value, 9) for value in head.parts.values()))
        if key in self.asked:
            return
        self.asked.add(key)
        box = _box_of(node.family, head)
        asked = self._node(node.family, box)
        asked.works = [
            work if _holds(box, work.parts) else new for work, new in zip(node.works, asked.works, strict=True)
        ]
        for work in asked.works:
            while not work.over and work.result.boxes < self.options.portfolio.trial_nodes:
                self._advance(asked, work)
        found = all(work.result.point is not None for work in asked.works)
        value = self._offer(node.family, asked.works, node.works) if found else math.inf
        if self._is_first(node):
            self.on_parts_of[node.works.index(head)] = value, asked.bound

    def last_look(self) -> None:
        """Find a first joint design for a stopped search, by final heuristic runs only.

        All members take the parts of one member's best design.
        """
        looks = self.options.heuristic.last_generations // len(self.families[0].asked)
        for at, family in enumerate(self.families[: self.options.heuristic.last_lattices]):
            alone = [each.within(family.box, self.deadline).looked(looks) for each in family.asked]
            self.alone = {(at, i): work for i, work in enumerate(alone)} | self.alone
            for head in (work for work in alone if work.result.point is not None):
                box = _box_of(family, head)
                works = [
                    work if work is head else each.within(box, self.deadline).looked(looks)
                    for each, work in zip(family.asked, alone, strict=True)
                ]
                if all(work.result.point is not None for work in works):
                    self._offer(family, works)
                if self.best.family is not None:
                    return

    def _is_first(self, node: PartsNode) -> bool:
        """Return whether a node is the root of a search with a single family."""
        return len(self.families) == 1 and any(work is node.works[0] for work in self.alone.values())

    def _offer(self, family: ChoiceFamily, works: Sequence[MemberSearch], wanted: Sequence[MemberSearch] = ()) -> float:
        """Return the total cost of designs that agree in all parts but the clock, at the best clock for their plans.

        The designs become the best joint design if they improve on it.

        **Arguments:** `wanted`: other members' searches, whose clocks are tried too.

        **Returns:** the cost; infinite where parts differ, or where no clock is feasible.
        """
        parts = [work.parts for work in works]
        names = [name for name in parts[0] if name not in CONTINUOUS]
        if any(each[name] != parts[0][name] for each in parts for name in names):
            return math.inf
        parts += [work.parts for work in wanted]
        clocks = np.array([each[name] for each in parts for name in CONTINUOUS])
        if clocks.max() > clocks.min():
            clocks = np.unique(
                np.concatenate([clocks, np.geomspace(clocks.min(), clocks.max(), self.options.portfolio.clocks)])
            )
        values = np.sum([work.at_clocks(clocks) for work in works], axis=0)
        at = int(np.argmin(values))
        if values[at] < self.best.value:
            self.best = JointDesign(float(values[at]), tuple(works), float(clocks[at]), family)
        return float(values[at])

    def _discard(self, node: PartsNode) -> None:
        """Discard a node of parts, and record its bound."""
        bound = node.bound
        self.bound = min(self.bound, bound)
        first, last = map(int, node.box.get(CHOICE, (1, 1)))
        for number in node.family.combinations[first - 1 : last]:
            self.bounds[number] = min(self.bounds.get(number, math.inf), bound)
        self._replace(node, [])


def _box_of(family: ChoiceFamily, work: MemberSearch) -> dict[str, tuple[float, float]]:
    """Return the parts of a member's best design as a node."""
    box = {}
    for name, value in work.parts.items():
        room = _SAME if name in CONTINUOUS else 0.0
        least, most = family.box[name]
        box[name] = (max(value / (1.0 + room), least), min(value * (1.0 + room), most))
    return box


def _holds(box: Box, parts: Mapping[str, float]) -> bool:
    """Return whether parts lie within a node."""
    return all(low * (1.0 - _SAME / 2) <= parts[name] <= high * (1.0 + _SAME / 2) for name, (low, high) in box.items())
