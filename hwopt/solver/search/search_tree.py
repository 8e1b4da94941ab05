"""State of a branch-and-bound search: incumbent, open nodes, and the choice of the coordinate to branch on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hwopt.design.exact import ExactModel
from hwopt.integers.boxes import Boxes, joined_boxes
from hwopt.integers.relations import LARGEST, SLIP
from hwopt.integers.system import RangePiece, Role, System
from hwopt.solver.deadline import Deadline
from hwopt.solver.interior_point.result import SolveStatus
from hwopt.solver.options import SearchOptions, TreeOptions
from hwopt.solver.search.bounding import BoundedNodes, bound_nodes, solve_nodes
from hwopt.solver.search.heuristics.feasibility_repair import repaired
from hwopt.solver.search.node_relaxations import CHOICE, NodeRelaxations


@dataclass
class SearchResult:
    """Result of a search, valid at any time while it runs. Objectives and bounds are logarithms."""

    point: np.ndarray | None = None  # integers of the best design
    value: float = math.inf
    design: dict[str, float] = field(default_factory=dict)  # continuous variables of the best design, as solved
    bound: float = math.inf  # least bound of the discarded nodes
    boxes: int = 0  # number of nodes bounded
    infeasible: int = 0
    rounds: int = 0
    looked: bool = False  # whether a full evolutionary run ended
    open_boxes: int = 0  # number of open nodes
    open_bound: float = -math.inf  # least bound of the open nodes; -inf before the first round
    complete: bool = False  # whether no open node is left
    machines: dict[int, MachineState] = field(default_factory=dict)  # by `CHOICE`, for several machines

    @property
    def proved_bound(self) -> float:
        """Proved lower bound: no design has a lower objective."""
        return self.bound if self.complete else min(self.bound, self.open_bound)

    @property
    def gap(self) -> float:
        """Relative gap between incumbent and lower bound; infinite while either is missing."""
        if not (math.isfinite(self.value) and math.isfinite(self.proved_bound)):
            return math.inf
        return math.expm1(max(0.0, self.value - self.proved_bound))


@dataclass
class MachineState:
    """Incumbent and bounds of one alternative machine, where a search covers several. Logarithms."""

    point: np.ndarray | None = None  # integers of its best design
    value: float = math.inf  # objective of its best design
    design: dict[str, float] = field(default_factory=dict)  # continuous variables of its best design, as solved
    bound: float = math.inf  # least bound of its discarded nodes
    open_bound: float = math.inf  # least bound of its open nodes

    @property
    def proved_bound(self) -> float:
        return min(self.bound, self.open_bound)


class BranchedNodes(NamedTuple):
    """Nodes after branching: the coordinate along which each was split, its children, and the row of each child's parent."""

    boxes: Boxes
    columns: np.ndarray
    pieces: Boxes
    parents: np.ndarray


@dataclass(frozen=True)
class OpenNodes:
    """Open nodes: those that may contain a design better than the incumbent."""

    boxes: Boxes
    bounds: np.ndarray  # of the log objective: their own, or inherited from parents
    lower: np.ndarray  # their own bounds, without inheritance
    slopes: np.ndarray  # (node, coordinate) of the tangents at these bounds

    def __len__(self) -> int:
        return len(self.boxes)

    def of(self, rows: np.ndarray) -> OpenNodes:
        return OpenNodes(self.boxes[rows], self.bounds[rows], self.lower[rows], self.slopes[rows])

    def with_more(self, other: OpenNodes) -> OpenNodes:
        pair = lambda a, b: np.concatenate([a, b])
        return OpenNodes(
            joined_boxes([self.boxes, other.boxes]), pair(self.bounds, other.bounds), pair(self.lower, other.lower),
            pair(self.slopes, other.slopes),
        )  # fmt: skip


@dataclass
class Incumbent:
    """Best objective found by any of several searches that share it.

    Nodes of every search are discarded by this common value.
    """

    value: float = math.inf  # logarithm of the objective


class OutOfTime(Exception):
    """Raised where the deadline passes in the middle of a round."""


@dataclass
class SearchState:
    """A branch-and-bound search in progress.

    **Arguments:**

    - `programmes`: node relaxations.
    - `tolerance`: relative gap at which nodes are discarded.
    - `deadline`: time at which `OutOfTime` is raised.
    - `result`: incumbent and bounds, updated in place.
    - `incumbent`: best value, possibly shared with other searches.
    - `exact`: exact model of each alternative machine. It evaluates integer designs whose convex program is relaxed; without
      it, such designs never become incumbents.
    - `seen`: keys of nodes that were met before.
    - `gains`, `splits`: sums behind the pseudo-costs of each coordinate (coordinate,): observed gains of the bound per log
      width, and number of splits.
    """

    programmes: NodeRelaxations
    tolerance: float
    deadline: Deadline
    result: SearchResult = field(default_factory=SearchResult)
    incumbent: Incumbent = field(default_factory=Incumbent)
    exact: Sequence[ExactModel] = ()
    seen: set[bytes] = field(default_factory=set)
    gains: np.ndarray = field(init=False)
    splits: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        costs = [0.0 if each.role is Role.kind else each.pseudo_cost for each in self.lattice.coordinates]
        self.gains = self.tree.pseudo_cost_weight * np.array(costs)
        self.splits = np.full(len(self.lattice.names), self.tree.pseudo_cost_weight)

    @property
    def lattice(self) -> System:
        return self.programmes.lattice

    @property
    def options(self) -> SearchOptions:
        return self.programmes.options

    @property
    def tree(self) -> TreeOptions:
        return self.options.tree

    @property
    def cutoff(self) -> float:
        """Bound above which a node is discarded: the incumbent, less the tolerance. Logarithm."""
        return min(self.result.value, self.incumbent.value) - math.log1p(self.tolerance)

    def drop(self) -> None:
        """Complete the search with its present bound: no open node can beat the incumbent."""
        result = self.result
        result.bound = min(result.bound, result.open_bound)
        for each in result.machines.values():
            each.bound, each.open_bound = each.proved_bound, math.inf
        result.open_boxes, result.complete = 0, True

    def discard(self, boxes: Boxes, bounds: np.ndarray) -> None:
        """Record the bounds of nodes that leave the search."""
        if len(bounds):
            self.result.bound = min(self.result.bound, float(bounds.min()))
            for machine, least in self._by_machine(boxes, bounds):
                machine.bound = min(machine.bound, least)

    def note_open(self, boxes: Boxes, bounds: np.ndarray) -> None:
        """Record number and least bound of the open nodes, so that a result is available at any time."""
        self.result.open_boxes = len(bounds)
        self.result.open_bound = float(bounds.min()) if len(bounds) else math.inf
        for machine in self.result.machines.values():
            machine.open_bound = math.inf
        for machine, least in self._by_machine(boxes, bounds):
            machine.open_bound = least

    def _by_machine(self, boxes: Boxes, bounds: np.ndarray) -> Iterator[tuple[MachineState, float]]:
        """Yield each machine that occurs among some nodes, with the least bound of its nodes."""
        if CHOICE not in self.lattice.at:
            return
        numbers = boxes.low[:, self.lattice.at[CHOICE]]
        for number in np.unique(numbers):
            yield self.result.machines.setdefault(int(number), MachineState()), float(bounds[numbers == number].min())

    def bound(self, boxes: Boxes) -> BoundedNodes:
        """Bound nodes, update the incumbent, and return the solved relaxations.

        All programs of a batch share one structure. A single design may therefore be relaxed in its batch though it would be
        exact alone; such designs are canonicalized and solved again, alone. Designs whose steps stall are solved again to
        looser gaps.

        **Raises:** `OutOfTime` if the deadline has passed.
        """
        if self.deadline.over:
            raise OutOfTime
        self.result.boxes += len(boxes)
        known = bound_nodes(self.programmes, boxes, self.cutoff, loose=self.tree.loose_gap)
        self._keep_best(boxes, known, alone=len(boxes) == 1)
        lower = known.lower
        rows = (
            boxes.points & (known.answers.status == SolveStatus.unresolved) & (lower < self.cutoff) & np.isfinite(lower)
        )
        for tolerance in self.tree.retry_gaps:
            if not rows.any() or self.deadline.over:
                break
            again = bound_nodes(self.programmes, boxes[rows], self.cutoff, tolerance=tolerance)
            self._keep_best(boxes[rows], again)
            lower[rows] = np.maximum(lower[rows], again.lower)
            rows[rows] = again.answers.status == SolveStatus.unresolved
        doubtful = boxes.points & known.programme.inexact() & (lower < self.cutoff) & (len(boxes) > 1)
        rows = np.flatnonzero(doubtful)
        for some, programme, holds in self.programmes.alone(boxes[rows]):
            if self.deadline.over:
                break
            points = boxes[rows[some]]
            self.result.boxes += len(points)
            exact = solve_nodes(programme, holds, points.points, self.cutoff, options=self.options)
            self._keep_best(points, exact, alone=True)
            lower[rows[some]] = np.maximum(lower[rows[some]], exact.lower)
        return known

    def relaxed(self, boxes: Boxes, known: BoundedNodes) -> np.ndarray:
        """Return the relaxed coordinates of nodes (node, coordinate).

        Coordinates that a program does not contain get the geometric middle of their range.
        """
        relaxed = np.sqrt(boxes.low.astype(float) * boxes.high)
        coordinates, variables = self._integers(known)
        relaxed[:, coordinates] = np.exp(known.answers.y[:, variables])
        for piece, column, variable in self._pieces(known):
            number = piece.number(np.exp(known.answers.y[:, variable]))
            relaxed[:, column] = np.clip(number, boxes.low[:, column], boxes.high[:, column])
        return relaxed

    def slopes(self, known: BoundedNodes) -> np.ndarray:
        """Return how fast the bounds of nodes rise along each coordinate (node, coordinate), log per log.

        A coordinate that numbers the segments of a continuous variable has the slope of that variable. The slope is 0 for
        coordinates that the program does not contain.
        """
        slopes = np.zeros((len(known.lower), len(self.lattice.names)))
        coordinates, variables = self._integers(known)
        slopes[:, coordinates] = known.slopes[:, variables]
        for _, column, variable in self._pieces(known):
            slopes[:, column] = known.slopes[:, variable]
        return slopes

    def _integers(self, known: BoundedNodes) -> tuple[list[int], list[int]]:
        """Return the lattice coordinates that the programs contain, and the columns of their variables."""
        at = self.lattice.at
        held = [(at[name], column) for column, name in enumerate(known.programme.names) if name in at]
        return [coordinate for coordinate, _ in held], [column for _, column in held]

    def _pieces(self, known: BoundedNodes) -> list[tuple[RangePiece, int, int]]:
        """Return segments of variables that the programs contain, with their coordinates and the columns of the variables."""
        names, at = known.programme.names, self.lattice.at
        held = [each for each in self.lattice.pieces if each.variable in names]
        return [(each, at[each.name], names.index(each.variable)) for each in held]

    def _keep_best(self, boxes: Boxes, known: BoundedNodes, alone: bool = False) -> None:
        """Make the best integer design of some nodes the incumbent, if it improves on it.

        Designs whose convex program is relaxed count only after evaluation by the exact model.

        **Arguments:** `alone`: whether each design was canonicalized alone, so that its program is as tight as possible.
        """
        programme, answers, lower = known.programme, known.answers, known.lower
        good = boxes.points & (answers.status == SolveStatus.solved) & np.isfinite(lower)
        values, relaxed = answers.objective + programme.constant, programme.inexact()
        doubtful = np.flatnonzero(good & relaxed & (lower < self.result.value))
        values[doubtful] = np.inf
        if self.exact and alone and len(doubtful):
            values[doubtful], answers.y[doubtful] = repaired(
                self.programmes, self.exact, boxes[doubtful], programme, doubtful, answers.y[doubtful]
            )
        for i in np.flatnonzero(good & np.isfinite(values)):
            value = float(values[i])
            for each in (
                self.result,
                *(machine for machine, _ in self._by_machine(boxes[i : i + 1], values[i : i + 1])),
            ):
                if value < each.value:
                    pairs = zip(programme.names, answers.y[i], strict=True)
                    each.design = {name: math.exp(y) for name, y in pairs if name}
                    each.point, each.value = boxes.low[i].copy(), value
            self.incumbent.value = min(self.incumbent.value, value)

    def tightened(self, queue: OpenNodes) -> tuple[Boxes, np.ndarray]:
        """Remove the parts of nodes that their tangents place above the cutoff (bound tightening).

        A tangent that bounds a node by `lower` and rises by `slope` along a coordinate passes the cutoff after
        `(cutoff - lower) / slope`, in logarithms.

        **Returns:** the tightened nodes that are not empty, and their row numbers in `queue`.
        """
        boxes, slopes = queue.boxes, queue.slopes
        room = (self.cutoff - queue.lower)[:, None]
        with np.errstate(all="ignore"):
            up = np.exp(np.where(slopes > 0, room / slopes, np.inf)) * (1.0 + SLIP)
            down = np.exp(np.where(slopes < 0, room / slopes, -np.inf)) * (1.0 - SLIP)
            high = np.minimum(boxes.high, np.floor(np.minimum(boxes.low * up, LARGEST))).astype(np.int64)
            low = np.maximum(boxes.low, np.ceil(np.minimum(boxes.high * down, LARGEST))).astype(np.int64)
            for piece in self.lattice.pieces:
                at, edges = self.lattice.at[piece.name], np.asarray(piece.edges)
                least, most = edges[boxes.low[:, at] - 1], edges[boxes.high[:, at]]
                high[:, at] = np.minimum(boxes.high[:, at], piece.number(np.minimum(least * up[:, at], most)))
                low[:, at] = np.maximum(boxes.low[:, at], piece.number(np.maximum(most * down[:, at], least)))
        cut = ((low > boxes.low) | (high < boxes.high)).any(axis=1)
        if math.isfinite(self.cutoff) and cut.any():
            self.discard(boxes[np.flatnonzero(cut)], np.full(int(cut.sum()), self.cutoff))
            return self.lattice.propagate(Boxes(low, high))
        return boxes, np.arange(len(boxes))

    def fresh(self, boxes: Boxes) -> Boxes:
        """Return the nodes that the search has not met before, and remember them."""
        marks = [low.tobytes() + high.tobytes() for low, high in zip(boxes.low, boxes.high, strict=True)]
        new = [i for i, mark in enumerate(marks) if mark not in self.seen and not self.seen.add(mark)]
        return boxes[np.asarray(new, int)]

    def split(self, boxes: Boxes) -> BranchedNodes:
        """Split each node along the coordinate with the largest expected gain of the bound (pseudo-cost times width)."""
        width = self._width(boxes)
        kinds = [column for column, each in enumerate(self.lattice.coordinates) if each.role is Role.kind]
        rate = self.gains / self.splits
        promise = width * rate
        for first, then in self.lattice.looked_up_together:  # `then` inherits the gain of `first` once that is fixed
            follows = np.maximum(promise[:, then], width[:, then] * rate[first])
            promise[:, then] = np.where(width[:, first] == 0, follows, promise[:, then])
        declared = np.array([self.lattice.coordinates[column].pseudo_cost for column in kinds])
        promise[:, kinds] = np.where(width[:, kinds] > 0, declared, 0.0)  # declared, not learned: see the lattice
        columns = promise.argmax(axis=1)
        pieces, parents = self.lattice.split(boxes, columns, self.tree.parts)
        return BranchedNodes(boxes, columns, pieces, parents)

    def _width(self, boxes: Boxes) -> np.ndarray:
        """Return the log width of each coordinate in nodes (node, coordinate).

        The width is the log ratio of the ends. For `stepped` coordinates, whose bounds say little until they are a point, it is
        the log number of values.
        """
        stepped = np.array([each.stepped for each in self.lattice.coordinates])
        return np.log(np.where(stepped, boxes.high - boxes.low + 1.0, boxes.high / np.maximum(boxes.low, 1)))

    def learn(self, split: BranchedNodes, before: np.ndarray, after: np.ndarray) -> None:
        """Update the pseudo-costs with the gains of the last splits.

        **Arguments:**

        - `split`: the nodes that were split.
        - `before`: bounds that the children inherited.
        - `after`: bounds of the new nodes, the children first.
        """
        count = len(split.pieces)
        limit = np.minimum(self.cutoff, before[:count] + 1.0)  # a gain beyond the cutoff does not count
        gain = np.maximum(np.minimum(after[:count], limit) - before[:count], 0.0)
        pieces = np.maximum(np.bincount(split.parents, minlength=len(split.boxes)), 1)
        gained = np.bincount(split.parents, gain, len(split.boxes)) / pieces
        rows = np.arange(len(split.boxes))
        width = self._width(split.boxes)[rows, split.columns]
        np.add.at(self.gains, split.columns, gained / np.maximum(width * (1.0 - 1.0 / self.tree.parts), 1e-9))
        np.add.at(self.splits, split.columns, 1.0)
