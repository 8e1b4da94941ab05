"""Convex relaxations of a problem's nodes: traced once, then replayed for other nodes and other budget limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hwopt.design.problem import Problem
from hwopt.integers.boxes import Boxes, joined_boxes
from hwopt.integers.system import System
from hwopt.solver.gp.canonical import ConvexProgram
from hwopt.solver.gp.integer_relaxation import Ends, quantity_ranges
from hwopt.solver.gp.reader import NotDGP
from hwopt.solver.gp.replay import Replay
from hwopt.solver.gp.signomial import Algebra, Signomial
from hwopt.solver.gp.tape import NotRecordable, Tape
from hwopt.solver.options import SEARCH, SearchOptions
from hwopt.solver.search.canonicalize import canonicalize, free_values


@dataclass(frozen=True)
class ElasticProblem:
    """Elastic objective: the factor, at most `most`, by which the limits of the named `budgets` are exceeded.

    The search minimizes it in place of the problem's objective, to find the smallest relaxation that makes a problem feasible.
    """

    budgets: tuple[str, ...]
    most: float

    def __call__(self, algebra: Algebra) -> tuple[Signomial, dict[str, Signomial]]:
        factor = algebra.variable("elastic factor", 1.0, self.most)
        return factor, dict.fromkeys(self.budgets, factor)


CHOICE = "choice"
"""Coordinate that numbers alternative machines from 1, where one search covers several that differ in numbers only."""


@dataclass(frozen=True)
class MachineRelaxations:
    """Alternative machines that one lattice covers, distinguished by the coordinate `CHOICE`; they differ in numbers only.

    **Arguments:**

    - `places`: indices, ascending, of the template's numbers (`flat_numbers`) in which the machines differ.
    - `table`: these numbers for each machine (machine, place).
    """

    places: tuple[int, ...]
    table: np.ndarray

    def at(self, ends: Ends) -> dict[int, np.ndarray]:
        """Return the numbers of each node's machine (node,), by index in the template."""
        rows = self.table[np.asarray(ends[CHOICE][0]).astype(int) - 1]
        return dict(zip(self.places, rows.T, strict=True))


@dataclass
class NodeRelaxations:
    """Convex relaxations of one problem's nodes, perhaps for several `machines`.

    **Arguments:**

    - `problem`, `lattice`: the problem and its lattice of integer designs.
    - `elastic`: elastic objective that replaces the problem's, to find the smallest relaxation of budgets.
    - `machines`: the machines that the lattice distinguishes, if there are several.
    - `boxed`: continuous variables whose bounds are inputs of the cached traces, so that problems with other bounds share them.
    - `tilt`: exponents by variable. The minimized function is the objective divided by these powers.
    - `options`: options of the search.
    """

    problem: Problem
    lattice: System
    elastic: ElasticProblem | None = None
    machines: MachineRelaxations | None = None
    boxed: tuple[str, ...] = ()
    tilt: Mapping[str, float] = field(default_factory=dict)
    options: SearchOptions = SEARCH
    recordings: list[_CachedTrace] = field(default_factory=list)  # traces of nodes and of designs
    forms: list[_CachedTrace] = field(default_factory=list)  # traces of designs canonicalized alone
    unrecordable: set[bool] = field(
        default_factory=set
    )  # contains False where nodes are canonicalized each time: too long to trace

    def with_limits(self, problem: Problem) -> NodeRelaxations:
        """Return relaxations of the same problem with other budget limits. Both share all cached traces."""
        return replace(self, problem=problem)

    def within(self, problem: Problem, lattice: System) -> NodeRelaxations:
        """Return relaxations of the same problem over narrower ranges of integers and `boxed` variables.

        Both share all cached traces.

        **Arguments:** `problem`, `lattice`: the problem and its lattice with the narrower ranges.
        """
        return replace(self, problem=problem, lattice=lattice)

    def tilted(self, tilt: Mapping[str, float]) -> NodeRelaxations:
        """Return relaxations of the same problem with the objective divided by powers of variables."""
        return replace(self, tilt=tilt, recordings=[], forms=[])

    def _ends(self, boxes: Boxes) -> Ends:
        """Return lower and upper bounds (node,), by name, of all quantities that nodes decide and of `boxed` variables."""
        ends, count = quantity_ranges(self.lattice, boxes), len(boxes)
        return ends | {
            each.name: (np.full(count, each.lower), np.full(count, each.upper))
            for each in self.problem.variables
            if each.name in self.boxed
        }

    def of(self, boxes: Boxes) -> tuple[ConvexProgram, np.ndarray]:
        """Return the convex programs of nodes, and whether each node's constant constraints are satisfied (node,)."""
        ends = self._ends(boxes)
        points = bool(boxes.points.all())
        if len(boxes) == 1:
            if not points:
                return self._read(ends, 1)
            _, programme, holds = next(self.alone(boxes))
            return programme, holds
        inputs = self._inputs(ends)
        for each in self.recordings:
            known = each.programmes(inputs) if each.points == points else None
            if known is not None:
                return known
        made = sum(each.points == points for each in self.recordings)
        if made < self.options.replay.recordings and points not in self.unrecordable:
            recorded = self._recorded(boxes, points)
            known = recorded and recorded.programmes(inputs)
            if recorded and known:
                self.recordings.append(recorded)
                return known
        return self._read(ends, len(boxes))

    def alone(self, points: Boxes) -> Iterator[tuple[np.ndarray, ConvexProgram, np.ndarray]]:
        """Yield the programs of single designs as each is canonicalized alone, in groups that share a structure.

        A batch of different designs shares one structure and may be relaxed more than each design alone.

        **Returns:** for each group, row numbers of its designs, their programs, and whether their constant constraints are
        satisfied.
        """
        left, tried = np.arange(len(points)), 0
        while len(left):
            if tried == len(self.forms):  # no cached trace covers the first design
                recorded = self._recorded(points[left[:1]], True) if tried < self.options.replay.point_forms else None
                ends = self._ends(points[left[:1]])
                if recorded is None or recorded.programmes(self._inputs(ends)) is None:
                    yield left[:1], *self._read(ends, 1)
                    left = left[1:]
                    continue
                self.forms.append(recorded)
            known, programme, holds = self.forms[tried].some(self._inputs(self._ends(points[left])))
            tried += 1
            if known.any():
                yield left[known], programme, holds
                left = left[~known]

    def _inputs(self, ends: Ends) -> np.ndarray:
        """Return the inputs of cached traces (input, node): bounds of quantities, budget limits, numbers of machines."""
        numbers = [end for both in ends.values() for end in both]
        limits = (np.full_like(numbers[0], each.limit) for each in self.problem.budgets)
        return np.stack([*numbers, *limits, *self._varied(ends).values()])

    def _varied(self, ends: Ends) -> dict[int, np.ndarray]:
        return {} if self.machines is None else self.machines.at(ends)

    def _draft(
        self, ends: Ends, limits: Sequence[Any] | None = None, varied: Mapping[int, Any] | None = None
    ) -> tuple[ConvexProgram, np.ndarray]:
        algebra = Algebra(options=self.options.reformulation)
        values, ties = free_values(self.problem, self.lattice, algebra, ends)
        goal, budgets = (None, None) if self.elastic is None else self.elastic(algebra)
        varied = self._varied(ends) if varied is None else varied
        canonical = canonicalize(self.problem, algebra, values, budgets, limits, varied=varied)
        for name, exponent in self.tilt.items():
            goal = algebra.times(goal or canonical.objective, algebra.power(values[name], -exponent))
        return canonical.draft(ties | canonical.implied, goal), canonical.holds

    def _read(self, ends: Ends, count: int) -> tuple[ConvexProgram, np.ndarray]:
        draft, holds = self._draft(ends)
        return draft.programme(count), np.broadcast_to(holds, (count,))

    def _recorded(self, boxes: Boxes, points: bool) -> _CachedTrace | None:
        """Trace the canonicalization of designs, or of nodes together with `_narrowing`; None if it cannot be replayed."""
        every = boxes if points else joined_boxes([boxes, *_narrowing(self.lattice, self.options.replay.trails)])
        tape = Tape(len(every), self.options.reformulation.most_operations)
        known = self._ends(every)
        ends = {name: (tape.input(low), tape.input(high)) for name, (low, high) in known.items()}
        limits = [tape.input(np.full(len(every), each.limit)) for each in self.problem.budgets]
        varied = {place: tape.input(column) for place, column in self._varied(known).items()}
        try:
            draft, holds = self._draft(ends, limits, varied)
            nodes = draft.nodes
            recording = Replay(tape, [*nodes, holds])
            without_tape = draft.with_nodes(np.zeros((len(nodes), 1)))  # the tape takes gigabytes
            return _CachedTrace(without_tape, recording, points)
        except NotRecordable:
            if not points:  # traces of designs are short: that of another batch may be replayable
                self.unrecordable.add(points)
        except NotDGP:  # reported by the canonicalization without a trace
            pass
        finally:
            tape.forget()
        return None


def _narrowing(lattice: System, trails: int = SEARCH.replay.trails) -> list[Boxes]:
    """Return nodes for tracing: the first nodes of a search, and random descents from these to single designs.

    Each descent halves the widest coordinate and follows one half at random. Conditions that are undecided in a wide node are
    decided in narrow ones; a trace over both has a form that covers each.

    **Arguments:** `trails`: number of descents.
    """
    rng = np.random.default_rng(0)
    boxes = lattice.initial_boxes()
    trail = [boxes]
    boxes = boxes[rng.integers(len(boxes), size=trails)] if len(boxes) else boxes
    while len(boxes := boxes[~boxes.points]):
        halves, parents = lattice.split(boxes, np.log(boxes.high / np.maximum(boxes.low, 1)).argmax(axis=1))
        order = rng.permutation(len(halves))
        _, first = np.unique(parents[order], return_index=True)
        boxes = halves[order[first]]
        trail.append(boxes)
    return trail


@dataclass(frozen=True)
class _CachedTrace:
    """Traced canonicalization that can be replayed for other nodes and budget limits."""

    draft: ConvexProgram
    recording: Replay
    points: bool

    def programmes(self, inputs: np.ndarray) -> tuple[ConvexProgram, np.ndarray] | None:
        """Return the programs of other nodes, and whether their constant constraints are satisfied; None if any is not covered.

        **Arguments:** `inputs`: inputs of the trace for each node (input, node).
        """
        values, known = self.recording.run(inputs, whole=True)
        return self._filled(values) if known.all() else None

    def some(self, inputs: np.ndarray) -> tuple[np.ndarray, ConvexProgram, np.ndarray]:
        """Return the programs of those other nodes that the trace covers.

        **Arguments:** `inputs`: inputs of the trace for each node (input, node).

        **Returns:** which nodes are covered (node,), their programs, and whether their constant constraints are satisfied.
        """
        values, known = self.recording.run(inputs)
        programme, holds = self._filled(values[:, known])
        return known, programme, holds

    def _filled(self, values: np.ndarray) -> tuple[ConvexProgram, np.ndarray]:
        return self.draft.with_nodes(values[:-1]).programme(values.shape[1]), values[-1] != 0
