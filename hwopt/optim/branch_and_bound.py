"""The best whole-number design and a proof: boxes of designs are bounded by convex programmes, split, and discarded.

A box's programme relaxes whole numbers to their ranges and replaces what is not convex by what it can be at best, so its
optimum bounds every design inside. Boxes that cannot beat the best design known, by more than the tolerance, are discarded
with their bound on record; the least bound of all that were discarded bounds the question.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hwopt.convex import certificate
from hwopt.convex.canonical import Programme
from hwopt.convex.feasibility import infeasible
from hwopt.convex.interior_point import Answers, Status, solve
from hwopt.convex.signomial import Algebra, Signomial
from hwopt.design.problem import Problem
from hwopt.optim.boxes import Boxes, DesignLattice, joined
from hwopt.optim.reading import programme_of, read_design

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


Stretch = Callable[[Algebra], tuple[Signomial, dict[int, Signomial]]]
"""What is minimised in place of the objective, and by what each budget (by number) may be exceeded."""


@dataclass
class Found:
    """Outcome of a search. Objectives are logarithms."""

    point: np.ndarray | None = None  # whole numbers of the best design
    value: float = math.inf
    bound: float = math.inf  # least bound of what was discarded
    boxes: int = 0  # programmes bounded
    infeasible: int = 0
    rounds: int = 0
    open_boxes: int = 0  # left when the search was cut short

    @property
    def gap(self) -> float:
        """Relative distance between the best design and the bound."""
        return math.expm1(max(0.0, self.value - self.bound)) if math.isfinite(self.value) else math.inf


def bounded(
    problem: Problem,
    lattice: DesignLattice,
    boxes: Boxes,
    cutoff: float = math.inf,
    stretch: Stretch | None = None,
    tolerance: float = 1e-7,
) -> tuple[Programme, Answers, np.ndarray]:
    """Programmes of boxes, solved.

    **Returns:** the programme, its answers, and lower bounds of the objective's logarithm (box,), checked by the certificate.
    """
    algebra = Algebra()
    values, ties = lattice.values(algebra, boxes)
    goal, budgets = None, None
    if stretch is not None:
        goal, budgets = stretch(algebra)
    read = read_design(problem, algebra, values, len(boxes), budgets)
    programme = programme_of(read, ties, goal)
    answers = solve(programme.structure, programme.numbers, cutoff=cutoff - programme.constant, tolerance=tolerance)
    lower = certificate.lower_bound(programme.structure, programme.numbers, answers.y, answers.multipliers)
    proved = certificate.infeasibility(programme.structure, programme.numbers, answers.y, answers.multipliers) > 0
    impossible = ~read.holds | ((answers.status == Status.infeasible) & proved)
    unsure = np.flatnonzero((answers.status == Status.unresolved) & ~impossible)
    if len(unsure):
        impossible[unsure] |= infeasible(programme.structure, programme.numbers.take(unsure))
    return programme, answers, np.where(impossible, np.inf, lower + programme.constant)


@dataclass
class _Search:
    """A search under way."""

    problem: Problem
    lattice: DesignLattice
    tolerance: float
    stretch: Stretch | None = None
    found: Found = field(default_factory=Found)
    seen: set[bytes] = field(default_factory=set)
    gains: np.ndarray = field(init=False)
    splits: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.gains = _BELIEF * np.array(self.lattice.GAINS)
        self.splits = np.full(len(self.lattice.COORDINATES), _BELIEF)

    @property
    def cutoff(self) -> float:
        """Bound from which a box is not worth more work."""
        return self.found.value - math.log1p(self.tolerance)

    def bound(self, boxes: Boxes) -> tuple[Programme, Answers, np.ndarray]:
        self.found.boxes += len(boxes)
        return bounded(self.problem, self.lattice, boxes, self.cutoff, self.stretch)

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

    def learn(self, parents: Boxes, columns: np.ndarray, gained: np.ndarray) -> None:
        """Count what the bounds of split boxes gained."""
        rows = np.arange(len(parents))
        width = np.log(parents.high[rows, columns] / np.maximum(parents.low[rows, columns], 1))
        np.add.at(self.gains, columns, gained / np.maximum(width * (1.0 - 1.0 / PARTS), 1e-9))
        np.add.at(self.splits, columns, 1.0)

    def keep(self, boxes: Boxes, programme: Programme, answers: Answers, lower: np.ndarray) -> None:
        """Remember the best whole-number design among boxes."""
        good = boxes.points & (answers.status == Status.solved) & np.isfinite(lower) & ~_inexact(programme, len(boxes))
        for i in np.flatnonzero(good):
            value = float(answers.objective[i] + programme.constant[i])
            if value < self.found.value:
                self.found.value, self.found.point = value, boxes.low[i].copy()


def search(
    problem: Problem,
    lattice: DesignLattice,
    *,
    tolerance: float = TOLERANCE,
    seconds: float = math.inf,
    most_boxes: int = MOST_BOXES,
    progress: Callable[[Found], None] | None = None,
    stretch: Stretch | None = None,
    designs: Sequence[np.ndarray] = (),
) -> Found:
    """Minimise over the lattice.

    **Arguments:** `tolerance`: relative gap at which boxes are discarded; `seconds` and `most_boxes` after which the search
    stops with what it has; `progress` is told after each round; `stretch`: what to minimise instead, and which budgets give
    way by it; `designs`: whole-number designs to start from, such as the answer of a like question.
    """
    work = _Search(problem, lattice, tolerance, stretch)
    found = work.found
    ends = time.monotonic() + seconds
    none = np.zeros((0, len(lattice.COORDINATES)), np.int64)
    queue, bounds = Boxes(none, none), np.zeros(0)
    boxes = _spread(work, lattice.roots())
    inherited = np.full(len(boxes), -np.inf)
    history: tuple[Boxes, np.ndarray, np.ndarray] | None = None
    _leaves(work, list(designs))
    _dive(work, lattice.samples())
    while len(boxes):
        programme, answers, lower = work.bound(boxes)
        lower = np.maximum(lower, inherited)
        if history is not None:
            split_boxes, columns, parents = history
            limit = np.minimum(work.cutoff, inherited + 1.0)  # what lies beyond the cutoff is no gain
            gain = np.maximum(np.minimum(lower, limit) - inherited, 0.0)
            count = np.bincount(parents, minlength=len(split_boxes))
            mean = np.bincount(parents, gain, len(split_boxes)) / np.maximum(count, 1)
            work.learn(split_boxes, columns, mean)
        found.rounds += 1
        found.infeasible += int(np.isinf(lower).sum())
        work.keep(boxes, programme, answers, lower)
        single = boxes.points & np.isfinite(lower)
        if single.any():
            found.bound = min(found.bound, float(lower[single].min()))
        alive = np.isfinite(lower) & ~boxes.points
        if found.rounds & (found.rounds - 1) == 0:  # 1, 2, 4, 8, ...
            best = np.argsort(np.where(alive, lower, np.inf), kind="stable")[:CANDIDATES]
            near = [
                _around(lattice, boxes[i], _relaxed(lattice, boxes, programme, answers, i), 1.5)
                for i in best
                if alive[i]
            ]
            _dive(work, lattice.shrunk(joined(near))[0] if near else boxes[:0])
        queue, bounds = joined([queue, boxes[alive]]), np.concatenate([bounds, lower[alive]])
        gone = bounds > work.cutoff
        if gone.any():
            found.bound = min(found.bound, float(bounds[gone].min()))
        queue, bounds = queue[~gone], bounds[~gone]
        found.open_boxes = len(queue)
        if progress:
            progress(found)
        if time.monotonic() > ends or found.boxes >= most_boxes:
            break
        order = np.argsort(bounds, kind="stable")
        now, later = order[:ROUND], order[ROUND:]
        boxes, parents, columns = work.split(queue[now])
        history = queue[now], columns, parents
        inherited = bounds[now][parents]
        queue, bounds = queue[later], bounds[later]
    found.open_boxes = len(queue)
    if len(queue):
        found.bound = min(found.bound, float(bounds.min()))
    return found


def _inexact(programme: Programme, count: int) -> np.ndarray:
    """Boxes in which something was replaced."""
    marked = np.zeros(count, bool)
    for each in programme.replaced:
        marked |= np.broadcast_to(each.nodes, (count,))
    return marked


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
    counts = [lattice.at[name] for name in lattice.COUNTS]
    boxes = work.fresh(boxes)
    if not len(boxes):
        return
    programme, answers, lower = work.bound(boxes)
    order = np.argsort(lower, kind="stable")[:CANDIDATES]
    alive = order[np.isfinite(lower[order])]
    shapes = [
        each for i in alive for each in lattice.rounded(boxes[i], _relaxed(lattice, boxes, programme, answers, i))
    ]
    if not shapes:
        return
    boxes = work.fresh(lattice.shrunk(joined(shapes))[0])
    for _ in range(_DIVE_ROUNDS):
        if not len(boxes):
            return
        programme, answers, lower = work.bound(boxes)
        work.keep(boxes, programme, answers, lower)
        alive = np.flatnonzero(np.isfinite(lower) & (lower < work.cutoff) & ~boxes.points)
        alive = alive[np.argsort(lower[alive], kind="stable")][:_DIVE_WIDTH]
        if not len(alive):
            return
        points = [
            point
            for i in alive[: CANDIDATES // 2]
            for point in lattice.counted(boxes[i], _relaxed(lattice, boxes, programme, answers, i))
        ]
        _leaves(work, points)
        narrow = boxes[alive]
        widths = np.log(narrow.high[:, counts] / narrow.low[:, counts])
        halves, _ = lattice.split(narrow, np.asarray(counts)[widths.argmax(axis=1)])
        boxes = work.fresh(halves)


def _leaves(work: _Search, points: list[np.ndarray]) -> None:
    """Solve whole-number designs."""
    if not points:
        return
    table = np.unique(np.stack(points), axis=0)
    table = table[work.lattice.valid(table)]
    leaves = work.fresh(Boxes(table, table))
    if len(leaves):
        work.keep(leaves, *work.bound(leaves))


def _relaxed(lattice: DesignLattice, boxes: Boxes, programme: Programme, answers: Answers, i: int) -> np.ndarray:
    """Whole numbers of a box where its programme puts them; the middle where it does not mind."""
    columns = {name: column for column, name in enumerate(programme.names) if name}
    middle = np.sqrt(boxes.low[i].astype(float) * boxes.high[i])
    return np.array(
        [math.exp(answers.y[i, columns[n]]) if n in columns else middle[c] for c, n in enumerate(lattice.COORDINATES)]
    )


def _around(lattice: DesignLattice, box: Boxes, relaxed: np.ndarray, factor: float) -> Boxes:
    """A box narrowed around a relaxed point in everything but counts."""
    shape = [column for name, column in lattice.at.items() if name not in lattice.COUNTS]
    low, high = box.low.copy(), box.high.copy()
    low[shape] = np.clip(np.floor(relaxed[shape] / factor), low[shape], high[shape])
    high[shape] = np.clip(np.ceil(relaxed[shape] * factor), low[shape], high[shape])
    return Boxes(low[None], high[None])
