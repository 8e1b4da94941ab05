"""Convex programmes of a question's boxes: read once, and recorded for all boxes and limits of budgets that follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hwopt.design.problem import Problem
from hwopt.integers.boxes import Boxes, joined_boxes
from hwopt.integers.system import System
from hwopt.solver.gp.canonical import ConvexProgram, ProgramDraft
from hwopt.solver.gp.integer_relaxation import Ends, quantity_ranges
from hwopt.solver.gp.reader import NotDGP
from hwopt.solver.gp.replay import Replay
from hwopt.solver.gp.signomial import Algebra, Signomial
from hwopt.solver.gp.tape import NotRecordable, Tape
from hwopt.solver.options import SEARCH, SearchOptions
from hwopt.solver.search.canonicalize import canonicalize, free_values


@dataclass(frozen=True)
class ElasticProblem:
    """What is minimised in place of the objective: the factor by which some `budgets`, by name, are exceeded, `most` at most."""

    budgets: tuple[str, ...]
    most: float

    def __call__(self, algebra: Algebra) -> tuple[Signomial, dict[str, Signomial]]:
        factor = algebra.variable("elastic factor", 1.0, self.most)
        return factor, dict.fromkeys(self.budgets, factor)


CHOICE = "choice"
"""Coordinate of a lattice that counts machines from 1: several that differ in numbers alone."""


@dataclass(frozen=True)
class MachineRelaxations:
    """Several machines of one question, as a lattice with the coordinate `CHOICE` tells them apart.

    **Arguments:** `places` of numbers in which they differ, among all of the template's (`flat_numbers`), ascending; `table` of
    these (machine, place).
    """

    places: tuple[int, ...]
    table: np.ndarray

    def at(self, ends: Ends) -> dict[int, np.ndarray]:
        """The numbers of the machine of each box (box,), by place."""
        rows = self.table[np.asarray(ends[CHOICE][0]).astype(int) - 1]
        return dict(zip(self.places, rows.T, strict=True))


@dataclass
class NodeRelaxations:
    """The programmes of one question, perhaps on several `machines`.

    **Arguments:** `boxed`: continuous variables whose boxes are read anew for each question that uses these recordings; `tilt`:
    exponents by variable: what is minimised is the objective over these powers of them; `options` of the search.
    """

    problem: Problem
    lattice: System
    elastic: ElasticProblem | None = None
    machines: MachineRelaxations | None = None
    boxed: tuple[str, ...] = ()
    tilt: Mapping[str, float] = field(default_factory=dict)
    options: SearchOptions = SEARCH
    recordings: list[_CachedTrace] = field(default_factory=list)  # of boxes and of points
    forms: list[_CachedTrace] = field(default_factory=list)  # of points read alone
    unrecordable: set[bool] = field(
        default_factory=set
    )  # holds False where boxes are read each time: too long to record

    def with_limits(self, problem: Problem) -> NodeRelaxations:
        """Those of the same question with other limits of its budgets; both use what either has read."""
        return replace(self, problem=problem)

    def within(self, problem: Problem, lattice: System) -> NodeRelaxations:
        """Those of the same question with narrower boxes of integers and of variables that are `boxed`; both use what either has
        read.
        """
        return replace(self, problem=problem, lattice=lattice)

    def tilted(self, tilt: Mapping[str, float]) -> NodeRelaxations:
        """Those of the same question whose objective is divided by powers of variables."""
        return replace(self, tilt=tilt, recordings=[], forms=[])

    def _ends(self, boxes: Boxes) -> Ends:
        """Both ends of all that boxes decide, and of variables that are boxed."""
        ends, count = quantity_ranges(self.lattice, boxes), len(boxes)
        return ends | {
            each.name: (np.full(count, each.lower), np.full(count, each.upper))
            for each in self.problem.variables
            if each.name in self.boxed
        }

    def of(self, boxes: Boxes) -> tuple[ConvexProgram, np.ndarray]:
        """The programmes of boxes, and where the constraints that are numbers hold (box,)."""
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
        """The programmes of points as each is read alone, in groups of one form: numbers of the points, and as `of`."""
        left, tried = np.arange(len(points)), 0
        while len(left):
            if tried == len(self.forms):  # none of them is the first one's
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
        """What recordings begin with (input, box): both ends of all quantities, and the limits."""
        numbers = [end for both in ends.values() for end in both]
        limits = (np.full_like(numbers[0], each.limit) for each in self.problem.budgets)
        return np.stack([*numbers, *limits, *self._varied(ends).values()])

    def _varied(self, ends: Ends) -> dict[int, np.ndarray]:
        return {} if self.machines is None else self.machines.at(ends)

    def _draft(
        self, ends: Ends, limits: Sequence[Any] | None = None, varied: Mapping[int, Any] | None = None
    ) -> tuple[ProgramDraft, np.ndarray]:
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
        """A reading of points, or of boxes beside those that hold all there are; None where it cannot be done again."""
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
            without_tape = draft.with_nodes(np.zeros((len(nodes), 1)))  # which takes gigabytes
            return _CachedTrace(without_tape, recording, points)
        except NotRecordable:
            if not points:  # points are short: another batch may have a form that can be done again
                self.unrecordable.add(points)
        except NotDGP:  # said where it is read
            pass
        finally:
            tape.forget()
        return None


def _narrowing(lattice: System, trails: int = SEARCH.replay.trails) -> list[Boxes]:
    """Boxes that hold all others, and boxes within them down to points, halved where they are widest and followed at random.

    What is open in a wide box is decided in narrow ones: a reading of both has a form for each.
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
    """A reading that can be done again for other boxes and limits."""

    draft: ProgramDraft
    recording: Replay
    points: bool

    def programmes(self, inputs: np.ndarray) -> tuple[ConvexProgram, np.ndarray] | None:
        """The programmes of other boxes (input, box); None where they need a reading of their own."""
        values, known = self.recording.run(inputs, whole=True)
        return self._filled(values) if known.all() else None

    def some(self, inputs: np.ndarray) -> tuple[np.ndarray, ConvexProgram, np.ndarray]:
        """Which of other boxes (input, box) need no reading of their own, (box,), and the programmes of these."""
        values, known = self.recording.run(inputs)
        programme, holds = self._filled(values[:, known])
        return known, programme, holds

    def _filled(self, values: np.ndarray) -> tuple[ConvexProgram, np.ndarray]:
        return self.draft.with_nodes(values[:-1]).programme(values.shape[1]), values[-1] != 0
