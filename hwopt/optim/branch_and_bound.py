"""The best integer design and a proof: boxes of designs are bounded by convex programmes, split, and discarded.

A box's programme relaxes integers to their ranges and replaces what is not convex by what it can be at best, so its
optimum bounds every design inside. Boxes that cannot beat the best design known, by more than the tolerance, are discarded
with their bound on record; the least bound of all that were discarded bounds the question.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hwopt.convex import certificate
from hwopt.convex.canonical import Programme
from hwopt.convex.feasibility import impossible
from hwopt.convex.interior_point import Answers, Status, solve
from hwopt.convex.signomial import Algebra, Signomial
from hwopt.design.problem import Problem
from hwopt.integers.boxes import Boxes, joined
from hwopt.integers.system import System
from hwopt.optim.canonicalize import canonicalize, free_values
from hwopt.optim.deadline import Deadline

TOLERANCE = 9e-5
"""Relative gap at which a box is discarded: what the answer may be above the optimum."""

MOST_BOXES = 60_000
"""Boxes bounded before a search stops with what it has: one to two minutes. Not a time, so that answers do not depend on the
machine."""

ROUND = 512
"""Boxes split at a time: enough to keep the reading of a batch cheap for each."""

CANDIDATES = 48
"""Boxes that a dive starts from."""

_BELIEF = 30.0
"""How many splits seen weigh as much as the expectation."""

PARTS = 2
"""Parts into which a box is split along one coordinate."""

Elastic = Callable[[Algebra], tuple[Signomial, dict[str, Signomial]]]
"""What is minimised in place of the objective, and by what each budget (by name) may be exceeded."""


@dataclass
class SearchResult:
    """Outcome of a search, also while it is under way. Objectives are logarithms."""

    point: np.ndarray | None = None  # integers of the best design
    value: float = math.inf
    design: dict[str, float] = field(default_factory=dict)  # its continuous variables, as solved
    bound: float = math.inf  # least bound of what was discarded
    boxes: int = 0  # programmes bounded
    infeasible: int = 0
    rounds: int = 0
    open_boxes: int = 0  # left when the search was cut short
    open_bound: float = -math.inf  # least bound of all that is still open, while the search is under way
    complete: bool = False  # nothing was left unlooked at

    @property
    def proved_bound(self) -> float:
        """What no design is below."""
        return self.bound if self.complete else min(self.bound, self.open_bound)

    @property
    def gap(self) -> float:
        """Relative distance between the best design and the bound."""
        if not (math.isfinite(self.value) and math.isfinite(self.proved_bound)):
            return math.inf
        return math.expm1(max(0.0, self.value - self.proved_bound))


def bounded(
    problem: Problem,
    lattice: System,
    boxes: Boxes,
    cutoff: float = math.inf,
    elastic: Elastic | None = None,
    tolerance: float = 1e-7,
) -> tuple[Programme, Answers, np.ndarray]:
    """Programmes of boxes, solved.

    **Returns:** the programme, its answers, and lower bounds of the objective's logarithm (box,), checked by the certificate.
    """
    algebra = Algebra()
    values, ties = free_values(problem, lattice, algebra, boxes)
    goal, budgets = (None, None) if elastic is None else elastic(algebra)
    canonical = canonicalize(problem, algebra, values, len(boxes), budgets)
    programme = canonical.programme(ties, goal)
    answers = solve(programme.structure, programme.numbers, cutoff=cutoff - programme.constant, tolerance=tolerance)
    lower = certificate.lower_bound(programme.structure, programme.numbers, answers.y, answers.multipliers)
    none = ~canonical.holds | impossible(programme.structure, programme.numbers, answers)
    return programme, answers, np.where(none, np.inf, lower + programme.constant)


class _OutOfTime(Exception):
    """The deadline has come in the middle of something."""


@dataclass
class _Search:
    """A search under way."""

    problem: Problem
    lattice: System
    tolerance: float
    deadline: Deadline
    elastic: Elastic | None = None
    result: SearchResult = field(default_factory=SearchResult)
    seen: set[bytes] = field(default_factory=set)
    gains: np.ndarray = field(init=False)
    splits: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.gains = _BELIEF * np.array([each.pseudo_cost for each in self.lattice.coordinates])
        self.splits = np.full(len(self.lattice.names), _BELIEF)

    @property
    def cutoff(self) -> float:
        """Bound from which a box is not worth more work."""
        return self.result.value - math.log1p(self.tolerance)

    def bound(self, boxes: Boxes) -> tuple[np.ndarray, np.ndarray]:
        """Where the programmes of boxes put their integers (box, coordinate), the middle where they do not mind; and bounds.

        Points that were relaxed for the sake of the boxes read beside them are read again alone, best first.
        """
        if self.deadline.over:
            raise _OutOfTime
        programme, answers, lower = self._bounded(boxes, self.cutoff)
        doubtful = np.flatnonzero(boxes.points & programme.inexact() & np.isfinite(lower) & (len(boxes) > 1))
        for i in doubtful[np.argsort(lower[doubtful], kind="stable")]:
            if lower[i] >= self.cutoff or self.deadline.over:
                break
            lower[i] = max(lower[i], self._bounded(boxes[i : i + 1], math.inf)[2][0])
        relaxed = np.sqrt(boxes.low.astype(float) * boxes.high)
        for column, name in enumerate(programme.names):
            if name in self.lattice.at:
                relaxed[:, self.lattice.at[name]] = np.exp(answers.y[:, column])
        return relaxed, lower

    def _bounded(self, boxes: Boxes, cutoff: float) -> tuple[Programme, Answers, np.ndarray]:
        """Programmes of boxes and their bounds; the best integer design among them is kept."""
        self.result.boxes += len(boxes)
        programme, answers, lower = bounded(self.problem, self.lattice, boxes, cutoff, self.elastic)
        good = boxes.points & (answers.status == Status.solved) & np.isfinite(lower) & ~programme.inexact()
        for i in np.flatnonzero(good):
            value = float(answers.objective[i] + programme.constant[i])
            if value < self.result.value:
                pairs = zip(programme.names, answers.y[i], strict=True)
                self.result.design = {name: math.exp(y) for name, y in pairs if name}
                self.result.point, self.result.value = boxes.low[i].copy(), value
        return programme, answers, lower

    def fresh(self, boxes: Boxes) -> Boxes:
        """Those that no dive has met."""
        marks = [low.tobytes() + high.tobytes() for low, high in zip(boxes.low, boxes.high, strict=True)]
        new = [i for i, mark in enumerate(marks) if mark not in self.seen and not self.seen.add(mark)]
        return boxes[np.asarray(new, int)]

    def split(self, boxes: Boxes) -> tuple[Boxes, np.ndarray, np.ndarray]:
        """Each box in parts along the coordinate that promises most: parts, the box of each, and the coordinate of each box."""
        width = np.log(boxes.high / np.maximum(boxes.low, 1))
        columns = (width * (self.gains / self.splits)).argmax(axis=1)
        pieces, parents = self.lattice.split(boxes, columns, PARTS)
        return pieces, parents, columns

    def update_pseudo_costs(self, parents: Boxes, columns: np.ndarray, gained: np.ndarray) -> None:
        """Count what the bounds of split boxes gained."""
        rows = np.arange(len(parents))
        width = np.log(parents.high[rows, columns] / np.maximum(parents.low[rows, columns], 1))
        np.add.at(self.gains, columns, gained / np.maximum(width * (1.0 - 1.0 / PARTS), 1e-9))
        np.add.at(self.splits, columns, 1.0)


def search(
    problem: Problem,
    lattice: System,
    *,
    tolerance: float = TOLERANCE,
    deadline: Deadline | None = None,
    most_boxes: int = MOST_BOXES,
    progress: Callable[[SearchResult], None] | None = None,
    elastic: Elastic | None = None,
    designs: Sequence[np.ndarray] = (),
    result: SearchResult | None = None,
) -> SearchResult:
    """Minimise over the lattice.

    **Arguments:** `tolerance`: relative gap at which boxes are discarded; `deadline` and `most_boxes` after which the search
    stops with what it has; `progress` is told after each round; `elastic`: what to minimise instead, and which budgets give
    way by it; `designs`: integer designs to start from, such as the answer of a like question; `result`: where to keep what
    comes out, for who looks on.
    """
    work = _Search(problem, lattice, tolerance, deadline or Deadline(), elastic, result or SearchResult())
    with contextlib.suppress(_OutOfTime):
        _branch(work, most_boxes, progress, designs)
    return work.result


def _branch(
    work: _Search, most_boxes: int, progress: Callable[[SearchResult], None] | None, designs: Sequence[np.ndarray]
) -> None:
    result, lattice = work.result, work.lattice
    none = np.zeros((0, len(lattice.names)), np.int64)
    queue, bounds = Boxes(none, none), np.zeros(0)
    initial = lattice.initial_boxes()
    boxes = _spread(work, initial)
    result.open_boxes = len(boxes)
    inherited = np.full(len(boxes), -np.inf)
    history: tuple[Boxes, np.ndarray, np.ndarray] | None = None
    _leaves(work, designs)
    if result.boxes >= most_boxes:
        return
    _dive(work, lattice.looked_at(initial))
    while len(boxes):
        relaxed, lower = work.bound(boxes)
        lower = np.maximum(lower, inherited)
        if history is not None:
            split_boxes, columns, parents = history
            limit = np.minimum(work.cutoff, inherited + 1.0)  # what lies beyond the cutoff is no gain
            gain = np.maximum(np.minimum(lower, limit) - inherited, 0.0)
            count = np.bincount(parents, minlength=len(split_boxes))
            mean = np.bincount(parents, gain, len(split_boxes)) / np.maximum(count, 1)
            work.update_pseudo_costs(split_boxes, columns, mean)
        result.rounds += 1
        result.infeasible += int(np.isinf(lower).sum())
        single = boxes.points & np.isfinite(lower)
        if single.any():
            result.bound = min(result.bound, float(lower[single].min()))
        alive = np.isfinite(lower) & ~boxes.points
        queue, bounds = joined([queue, boxes[alive]]), np.concatenate([bounds, lower[alive]])
        _note_open(result, queue, bounds)
        if result.rounds & (result.rounds - 1) == 0:  # 1, 2, 4, 8, ...
            best = np.argsort(np.where(alive, lower, np.inf), kind="stable")[:CANDIDATES]
            best = best[alive[best]]
            _dive(work, lattice.propagate(_around(lattice, boxes[best], relaxed[best], 1.5))[0])
        gone = bounds > work.cutoff
        if gone.any():
            result.bound = min(result.bound, float(bounds[gone].min()))
        queue, bounds = queue[~gone], bounds[~gone]
        _note_open(result, queue, bounds)
        if progress:
            progress(result)
        if work.deadline.over or result.boxes >= most_boxes:
            return
        order = np.argsort(bounds, kind="stable")
        now, later = order[:ROUND], order[ROUND:]
        boxes, parents, columns = work.split(queue[now])
        history = queue[now], columns, parents
        inherited = bounds[now][parents]
        queue, bounds = queue[later], bounds[later]
    result.open_boxes, result.complete = 0, True


def _note_open(result: SearchResult, queue: Boxes, bounds: np.ndarray) -> None:
    """What is still open, for an answer that cannot wait."""
    result.open_boxes = len(queue)
    result.open_bound = float(bounds.min()) if len(queue) else math.inf


def _spread(work: _Search, boxes: Boxes, target: int = 256) -> Boxes:
    """Boxes split until there are enough to fill a batch."""
    while 0 < len(boxes) < target and not boxes.points.all():
        keep, rest = boxes[boxes.points], boxes[~boxes.points]
        boxes = joined([keep, work.split(rest)[0]])
    return boxes


_DIVE_ROUNDS = 10
"""Splits of counts in a dive: from thousands to single ones in halves."""

_DIVE_WIDTH = 96
"""Boxes that a dive keeps."""


def _dive(work: _Search, boxes: Boxes) -> None:
    """Look for good designs: all else rounded, then the lattice's counts branched alone.

    **Arguments:** `boxes` with most degrees fixed.
    """
    lattice = work.lattice
    counts = [lattice.at[name] for name in lattice.counts]
    boxes = work.fresh(boxes)
    if not len(boxes):
        return
    relaxed, lower = work.bound(boxes)
    order = np.argsort(lower, kind="stable")[:CANDIDATES]
    alive = order[np.isfinite(lower[order])]
    if not len(alive):
        return
    boxes = work.fresh(lattice.propagate(rounded(lattice, boxes[alive], relaxed[alive]))[0])
    for _ in range(_DIVE_ROUNDS):
        if not len(boxes):
            return
        relaxed, lower = work.bound(boxes)
        alive = np.flatnonzero(np.isfinite(lower) & (lower < work.cutoff) & ~boxes.points)
        alive = alive[np.argsort(lower[alive], kind="stable")][:_DIVE_WIDTH]
        if not len(alive):
            return
        some = alive[: CANDIDATES // 2]
        _leaves(work, counted(lattice, boxes[some], relaxed[some]))
        narrow = boxes[alive]
        widths = np.log(narrow.high[:, counts] / narrow.low[:, counts])
        halves, _ = lattice.split(narrow, np.asarray(counts)[widths.argmax(axis=1)])
        boxes = work.fresh(halves)


def _leaves(work: _Search, points: Sequence[np.ndarray] | np.ndarray) -> None:
    """Solve integer designs; points that are none are left out."""
    if not len(points):
        return
    table = np.unique(np.asarray(points, np.int64), axis=0)
    leaves = work.fresh(Boxes.of_points(table[work.lattice.valid(table)]))
    if len(leaves):
        work.bound(leaves)


def _around(lattice: System, boxes: Boxes, relaxed: np.ndarray, factor: float) -> Boxes:
    """Boxes narrowed around relaxed points in everything but counts."""
    shape = [column for name, column in lattice.at.items() if name not in lattice.counts]
    low, high = boxes.low.copy(), boxes.high.copy()
    low[:, shape] = np.clip(np.floor(relaxed[:, shape] / factor), low[:, shape], high[:, shape])
    high[:, shape] = np.clip(np.ceil(relaxed[:, shape] * factor), low[:, shape], high[:, shape])
    return Boxes(low, high)


def rounded(lattice: System, boxes: Boxes, relaxed: np.ndarray) -> Boxes:
    """Boxes with all but counts at integers next to relaxed points (box, coordinate): the nearest, and either side of some.

    Each coordinate in its order, within what those before leave it.
    """
    counts = {lattice.at[name] for name in lattice.counts}
    near = np.clip(np.round(relaxed), boxes.low, boxes.high).astype(np.int64)
    wanted = [near]
    for column in (c for c, each in enumerate(lattice.coordinates) if each.sided):
        for side in (np.floor, np.ceil):
            other = near.copy()
            other[:, column] = np.clip(side(relaxed[:, column]), boxes.low[:, column], boxes.high[:, column])
            wanted.append(other)
    targets, rows = np.concatenate(wanted), np.tile(np.arange(len(boxes)), len(wanted))
    low, high = boxes.low[rows].copy(), boxes.high[rows].copy()
    for column in (c for c in range(len(lattice.names)) if c not in counts):
        least, most = low[:, column].copy(), high[:, column].copy()
        tight, left = lattice.propagate(Boxes(low, high))
        least[left], most[left] = tight.low[:, column], tight.high[:, column]
        low[:, column] = high[:, column] = np.clip(targets[:, column], least, most)
    return Boxes(low, high)


def counted(lattice: System, boxes: Boxes, relaxed: np.ndarray) -> np.ndarray:
    """Designs with integer counts around relaxed points (box, coordinate) of boxes whose other coordinates are points."""
    for name in sorted(lattice.counts, key=lambda name: lattice.by_name[name].fills):  # what fills up comes last
        each, column = lattice.by_name[name], lattice.at[name]
        boxes, left = lattice.propagate(boxes)
        relaxed = relaxed[left]
        lows, highs = (lattice.columns(end.astype(float)) for end in (boxes.low, boxes.high))
        step = lattice.steps(name, lows, highs)
        below, above = each.reach
        values = [(np.floor(relaxed[:, column] / step) + k) * step for k in range(-below, above + 1)]
        if each.fills:
            most = boxes.high[:, column] // step * step
            values += [most, most - step]
        rows = np.tile(np.arange(len(boxes)), len(values))
        low, high = boxes.low[rows].copy(), boxes.high[rows].copy()
        chosen = np.clip(np.concatenate(values).astype(np.int64), low[:, column], high[:, column])
        low[:, column] = high[:, column] = chosen
        boxes, relaxed = Boxes(low, high), relaxed[rows]
    return boxes.low[boxes.points]
