"""Pilot search for importance sampling: finds boxes of good designs with the sweep's own compiled program, reproducibly.

Rounds of points narrow a box of the unit cube around the best points. Points are ranked by constraint violation first, then by
the objective. The first box is the whole cube; others are boxes around known good designs (`warm_start.py`).

When all points of a box are about equally good, the search widens it again. One to three integers at a time regain their whole
ranges, and continuous coordinates a small neighborhood. An improvement gives the next box. The boxes along the way become the
levels of the sweep (`Strata`).

Whatever the pilot misses, a part of the sweep is drawn from the whole space, and weights keep the estimates unbiased.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from hwopt.solver.options import SEARCH, SweepOptions
from hwopt.sweeps.evaluator import Evaluator, in_order
from hwopt.sweeps.reductions import INFEASIBLE, Reduction
from hwopt.sweeps.samplers import Sobol
from hwopt.sweeps.strata import Strata
from hwopt.sweeps.stratified import GROUP, MOST_LEVELS, StratifiedSobol


def pilot_strata(
    evaluator: Evaluator,
    reduction: Reduction,
    integers: Sequence[str],
    seed: int,
    starts: Sequence[tuple[np.ndarray, np.ndarray]] = (),
    options: SweepOptions = SEARCH.sweep,
) -> Strata:
    """Return the nested boxes in which good designs were found, from the whole cube to the box of the best one.

    **Arguments:**

    - `evaluator`: evaluator of a `StratifiedSobol` sampler.
    - `reduction`: ranks the variants.
    - `integers`: integer coordinates, which are widened in combinations of up to three.
    - `starts`: lower and upper ends of boxes known to contain good designs.
    - `options`: points, rounds and tolerances.
    """
    pilot = _Pilot(evaluator, reduction, seed, frozenset(integers), options)
    axes = len(pilot.names)
    pilot.narrow(_PilotBox(np.zeros(axes), np.ones(axes)))
    wide = [*pilot.path]
    for low, high in starts:
        pilot.begin(_PilotBox(low, high))
    opened = [each for size in (1, 2, 3) for each in itertools.combinations(pilot.whole, size)]
    batches = [
        opened[first : first + options.boxes_per_round] for first in range(0, len(opened), options.boxes_per_round)
    ]
    while pilot.rounds < options.rounds:
        tried = (pilot.reopened(batch) for batch in batches if pilot.rounds < options.rounds)
        box = next((each for each in tried if each is not None), None)
        if box is None:
            break
        pilot.narrow(box)
    pilot.narrow(pilot.box, options.sharp)
    # Estimates for the whole space rely on the boxes of the first path, the best designs on the last box.
    chosen = [*_spread_by_volume(wide, MOST_LEVELS - 2), pilot.box]
    return Strata.nested(pilot.names, np.stack([x.low for x in chosen]), np.stack([x.high for x in chosen]))


@dataclass(frozen=True)
class _PilotBox:
    low: np.ndarray
    high: np.ndarray

    @property
    def volume(self) -> float:
        """Logarithm of the box's share of the cube."""
        return float(np.log(self.high - self.low).sum())

    def wider(self, by: float) -> "_PilotBox":
        """Return the box extended at both ends by a fraction `by` of each side."""
        side = by * (self.high - self.low)
        return _PilotBox(np.maximum(self.low - side, 0.0), np.minimum(self.high + side, 1.0))

    def hull(self, points: np.ndarray, best: np.ndarray, room: float) -> "_PilotBox":
        """Return the part of the box that contains the given points (coordinate, point) and the best one."""
        low, high = np.minimum(points.min(axis=1), best), np.maximum(points.max(axis=1), best)
        return _PilotBox(np.maximum(self.low, low - room), np.minimum(self.high, high + room))

    def around(self, best: np.ndarray, room: float) -> "_PilotBox":
        """Return a box that contains this one and an equally large neighborhood of a point."""
        side = np.maximum(self.high - self.low, 0.02) / 2.0
        low, high = np.minimum(self.low - side, best - side), np.maximum(self.high + side, best + side)
        return _PilotBox(np.clip(low, 0.0, 1.0 - room), np.clip(high, room, 1.0))

    def near(self, best: np.ndarray, axes: Sequence[int], loose: float, room: float) -> "_PilotBox":
        """Return the box with some coordinates, `axes`, restricted to the neighborhood of a point."""
        low, high = self.low.copy(), self.high.copy()
        low[axes], high[axes] = best[axes] - loose, best[axes] + loose
        return _PilotBox(np.clip(low, 0.0, 1.0 - room), np.clip(high, room, 1.0))

    def opened(self, axes: Sequence[int]) -> "_PilotBox":
        """Return the box with some coordinates at their full ranges."""
        low, high = self.low.copy(), self.high.copy()
        low[list(axes)], high[list(axes)] = 0.0, 1.0
        return _PilotBox(low, high)


@dataclass
class _Pilot:
    """State of a pilot search."""

    evaluator: Evaluator
    reduction: Reduction
    seed: int
    integers: frozenset[str]
    options: SweepOptions
    rounds: int = 0
    best: float = math.inf  # rank
    point: np.ndarray = field(default_factory=lambda: np.zeros(0))
    path: list[_PilotBox] = field(default_factory=list)
    box: _PilotBox = field(init=False)

    def __post_init__(self) -> None:
        self.names = self.evaluator.sampler.names
        self.whole = [axis for axis, name in enumerate(self.names) if name in self.integers]
        self.loose = [axis for axis, name in enumerate(self.names) if name not in self.integers]

    def ranked(self, boxes: Sequence[_PilotBox]) -> tuple[StratifiedSobol, np.ndarray]:
        """Evaluate a round of points, equally many in each box, and return the sampler and the rank of each point."""
        # Another seed than for the sweep itself: its points must be independent of the boxes found here.
        count = self.options.round_points
        base = Sobol(self.names, count, [self.seed, 2, self.rounds])
        turns = np.arange(count // GROUP) * len(boxes) // (count // GROUP)
        ends = np.stack([[box.low, box.high] for box in boxes])
        sampler = StratifiedSobol(base, ends, Strata.plain(self.names), turns)
        evaluator = self.evaluator.at(sampler)
        starts = evaluator.starts(range(0, count, evaluator.tile))
        tiles = in_order((partial(self._ranks, evaluator, each) for each in starts), evaluator.devices)
        self.rounds += 1
        return sampler, np.concatenate(list(tiles))[:count]

    def _ranks(self, evaluator: Evaluator, starts: np.ndarray) -> Any:
        return np.asarray(self.reduction.compiled_codes(evaluator(starts))["rank"])

    def narrow(self, box: _PilotBox, alike: float | None = None) -> None:
        """Narrow a box until all its points are about as good as the best one; append each intermediate box to `path`."""
        self.box, own = box, self.options
        alike = own.alike if alike is None else alike
        while self.rounds < own.rounds:
            sampler, rank = self.ranked([box])
            order = np.argsort(rank, kind="stable")[: own.level_points]
            points = sampler.points(order)
            self._note(float(rank[order[0]]), points[:, 0])
            self.path.append(box.hull(points, self.point, own.room).wider(own.margin))
            inner = box.hull(points[:, : own.elite], self.point, own.room)
            last = float(rank[order[own.elite - 1]])
            done = (last - self.best < alike and last < INFEASIBLE / 2) or inner.volume > box.volume - own.room
            self.box = box = inner
            if done:
                break
        self.path.append(self.box)

    def begin(self, box: _PilotBox) -> None:
        """Narrow another box, and continue from it if it contains a better point."""
        before = self.best, self.point, self.box
        self.best, self.point = math.inf, np.zeros(0)
        self.narrow(box)
        if before[0] <= self.best:
            self.best, self.point, self.box = before

    def reopened(self, axes: Sequence[Sequence[int]]) -> _PilotBox | None:
        """Return a box to narrow next, around a better point found with some coordinates free; None without one."""
        before = self.best
        near = self.box.near(self.point, self.loose, self.options.loose, self.options.room)
        sampler, rank = self.ranked([near.opened(each) for each in axes])
        first = int(np.argmin(rank))
        if not before - rank[first] >= self.options.least_gain:
            return None
        self._note(float(rank[first]), sampler.points(np.array([first]))[:, 0])
        return self.box.around(self.point, self.options.room)

    def _note(self, rank: float, point: np.ndarray) -> None:
        if rank < self.best or not self.point.size:
            self.best, self.point = rank, point


def _spread_by_volume(path: Sequence[_PilotBox], most: int) -> list[_PilotBox]:
    """Select boxes of a path, from the widest, about evenly spaced in the logarithm of their volume."""
    volumes = np.array([box.volume for box in path])
    wanted = np.linspace(0.0, volumes[-1], most + 2)[1:-1]
    places = sorted({int(np.abs(volumes - volume).argmin()) for volume in wanted})
    return [path[place] for place in places]
