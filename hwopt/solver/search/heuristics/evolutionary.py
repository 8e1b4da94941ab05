"""Evolutionary search: finds good designs with the exact model alone, before bounds show where they are.

Each generation changes a few numbers of a population's designs at random. Selection keeps the best designs of every family. A
family is a combination of values of root, categorical and stepped coordinates: those that the tree enumerates first, or whose
bounds say little until they are fixed. Hundreds of designs are evaluated in the time of one convex program.

The search proves nothing. Its best designs are solved as convex programs, and become incumbents of branch and bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np

from hwopt.design.variables import Variable
from hwopt.integers.boxes import Boxes
from hwopt.integers.system import Integer, Role, System
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.solver.options import SEARCH, HeuristicOptions

Columns = Mapping[str, np.ndarray]
"""Coordinates and variables of designs by name (design,), SI units."""

Judge = Callable[[Columns], tuple[np.ndarray, np.ndarray]]
"""Fitness function: log objective of designs (design,), and log use of each limit (design, constraint), feasible up to 0."""


@dataclass
class EvolutionarySearch:
    """Population of an evolutionary search.

    **Arguments:**

    - `lattice`: integer coordinates and their relations.
    - `variables`: variables of the problem.
    - `judge`: fitness function.
    - `seed`: seed of the random generator.
    - `options`: options of the heuristic.
    - `weight`: present penalty factor of exceeded limits; 0 for that of the options.
    """

    lattice: System
    variables: Sequence[Variable]
    judge: Judge
    seed: int = 0
    options: HeuristicOptions = SEARCH.heuristic
    weight: float = 0.0  # present penalty factor of exceeded limits; 0: as in the options
    points: np.ndarray = field(init=False)  # (design, coordinate), the best first
    sizes: np.ndarray = field(init=False)  # (design, continuous variable)
    merit: np.ndarray = field(init=False)  # (design,) log objective plus penalty of exceeded limits
    excess: np.ndarray = field(init=False)  # (design,) sum of log violations
    generations: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.weight = self.weight or self.options.penalty
        self.rng = np.random.default_rng(self.seed)
        self.points = np.zeros((0, len(self.lattice.names)), np.int64)
        self.sizes = np.zeros((0, len(self.continuous)))
        self.merit, self.excess = np.zeros(0), np.zeros(0)

    @cached_property
    def continuous(self) -> list[Variable]:
        """Variables that no integer coordinate determines."""
        decided = self.lattice.quantities_at(self.lattice.columns(np.ones((1, len(self.lattice.names)))))
        return [each for each in self.variables if each.name not in decided]

    @cached_property
    def _ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of the continuous variables."""
        return np.array([each.lower for each in self.continuous]), np.array([each.upper for each in self.continuous])

    @cached_property
    def _pieces(self) -> list[tuple[int, int, np.ndarray]]:
        """For each variable with a segmented range: column of the segment number, index of the variable, segment edges."""
        column = {each.name: i for i, each in enumerate(self.continuous)}
        known = (each for each in self.lattice.pieces if each.variable in column)
        return [(self.lattice.at[each.name], column[each.variable], np.asarray(each.edges)) for each in known]

    @cached_property
    def _free(self) -> list[int]:
        """Columns that children may change: coordinates with several values, except segment numbers."""
        pieces = {piece for piece, _, _ in self._pieces}
        ends = [each.ends for each in self.lattice.coordinates]
        return [column for column, (low, high) in enumerate(ends) if low < high and column not in pieces]

    @cached_property
    def _numbers(self) -> list[int]:
        """Columns of `_free` that are not categorical."""
        return [column for column in self._free if self.lattice.coordinates[column].role is not Role.kind]

    @cached_property
    def _kinds(self) -> list[int]:
        """Columns of root, categorical and stepped coordinates. Their values define a design's family."""
        own = lambda each: each.role in (Role.root, Role.kind) or each.stepped
        return [column for column, each in enumerate(self.lattice.coordinates) if own(each)]

    def best(self, count: int) -> np.ndarray:
        """Return the best points. Designs that exceed limits noticeably rank as if their objective were e times as high."""
        return self.points[self._best(count)]

    def _best(self, count: int) -> np.ndarray:
        return np.argsort(self.merit + (self.excess > math.sqrt(FEASIBILITY_TOLERANCE)), kind="stable")[:count]

    @property
    def feasible(self) -> tuple[np.ndarray, float, dict[str, float]] | None:
        """Best design that satisfies all limits: point, log objective and continuous variables; None if there is none."""
        holds = np.flatnonzero(self.excess <= FEASIBILITY_TOLERANCE)
        if not len(holds):
            return None
        at = holds[np.argmin(self.merit[holds])]
        sizes = {each.name: float(size) for each, size in zip(self.continuous, self.sizes[at], strict=True)}
        return self.points[at], float(self.merit[at] - self.weight * self.excess[at]), sizes

    def near(self) -> np.ndarray:
        """Return neighbors of the best few designs, whether or not the parents' continuous variables suit them."""
        points, _ = self._children(np.repeat(self._best(self.options.neighbor_parents), self.options.neighbor_children))
        return points[self.lattice.valid(points)].astype(np.int64)

    def families(self, count: int) -> Boxes:
        """Return nodes that contain all designs of a family, for the `count` families with the best designs."""
        kinds = self.points[:, self._kinds]
        first = np.sort(_first_of_each(_marks(kinds)))[:count]  # the best come first
        ends = np.array([each.ends for each in self.lattice.coordinates])
        low, high = (np.repeat(ends[None, :, end], len(first), axis=0) for end in (0, 1))
        low[:, self._kinds] = high[:, self._kinds] = kinds[first]
        return self.lattice.propagate(Boxes(low, high))[0]

    def seeded(self, machine: Mapping[str, float] = MappingProxyType({})) -> EvolutionarySearch:
        """Add random designs and return self.

        **Arguments:** `machine`: values by variable, SI units, that half of the designs get.
        """
        low, high = (
            np.array([[each.ends[end] for each in self.lattice.coordinates]] * self.options.seeds) for end in (0, 1)
        )
        wanted = low * np.exp(self.rng.random(low.shape) * np.log((high + 1.0) / np.maximum(low, 1)))
        for name in machine.keys() & self.lattice.at.keys():
            wanted[::2, self.lattice.at[name]] = machine[name]
        points, rows = self.led_back(low, high, wanted)
        low_size, high_size = self._ranges
        low_size = np.maximum(low_size, 1e-6 * high_size)
        sizes = np.exp(self.rng.uniform(np.log(low_size), np.log(high_size), (len(points), len(self.continuous))))
        for place, each in enumerate(self.continuous):
            if each.name in machine:
                sizes[rows % 2 == 0, place] = np.clip(machine[each.name], low_size[place], high_size[place])
        self.join(points, sizes)
        return self

    def join_at(self, points: np.ndarray, values: Columns) -> None:
        """Add designs to the population.

        **Arguments:** `values`: continuous variables by name, SI units; missing ones get the geometric middle of their range.
        """
        low, high = self._ranges
        sizes = np.repeat(np.sqrt(low * high)[None], len(points), axis=0)
        for place, each in enumerate(self.continuous):
            if each.name in values:
                sizes[:, place] = np.clip(values[each.name], low[place], high[place])
        self.join(points, sizes)

    def run(
        self, generations: int | None = None, patience: int | None = None, stop: Callable[[], bool] = lambda: False
    ) -> EvolutionarySearch:
        """Run generations until nothing better is found for a while, or until `stop` returns True.

        **Arguments:**

        - `generations`: maximum number of generations; the options' number by default.
        - `patience`: number of generations without progress after which the run ends; the options' number by default.
        - `stop`: called before each generation.
        """
        generations = self.options.generations if generations is None else generations
        patience = self.options.patience if patience is None else patience
        best, since = math.inf, 0
        for _ in range(generations):
            if not len(self.points) or stop():
                break
            self.generations += 1
            self.step()
            if self.excess[0] > FEASIBILITY_TOLERANCE:
                self._weigh(self.weight * self.options.penalty_growth)
            better = self.merit[0] < best - self.options.least_gain
            best, since = (float(self.merit[0]), 0) if better else (best, since + 1)
            if since == patience:
                break
        return self

    def step(self) -> None:
        """Run one generation."""
        points, sizes = self._children(self.rng.choice(len(self.merit), self.options.children, p=self._odds()))
        valid = self.lattice.valid(points)
        self.join(points[valid].astype(np.int64), sizes[valid])

    def _odds(self) -> np.ndarray:
        """Return the probability of each design to be a parent, from its rank within its family and its family's rank."""
        kind = _marks(self.points[:, self._kinds])
        among = _rank(kind)
        _, own = np.unique(kind, return_inverse=True)
        place = np.argsort(np.argsort(np.flatnonzero(among == 0)[np.argsort(own[among == 0])]))
        odds = (1.0 + among) ** -self.options.rank_power * (1.0 + place[own]) ** -self.options.family_rank_power
        return odds / odds.sum()

    def join(self, points: np.ndarray, sizes: np.ndarray) -> None:
        """Add designs to the population, and select.

        **Arguments:**

        - `points`: points of the lattice; coordinates of range segments are set from `sizes`.
        - `sizes`: continuous variables (design, variable), SI units.
        """
        if not len(points):
            return
        self._place(points, sizes)
        objective, used = self.judge(self.columns(points, sizes))
        excess = np.maximum(np.where(np.isnan(used), np.inf, used), 0.0).sum(axis=1)
        merit = objective + self.weight * excess
        good = np.isfinite(merit)
        join = lambda old, new: np.concatenate([old, new[good]])
        self.points, self.sizes = join(self.points, points), join(self.sizes, sizes)
        self.merit, self.excess = join(self.merit, merit), join(self.excess, excess)
        self._select()

    def columns(self, points: np.ndarray, sizes: np.ndarray) -> Columns:
        """Return designs as the fitness function expects them."""
        known = self.lattice.quantities_at(self.lattice.columns(points.astype(float)))
        known |= {each.name: sizes[:, i] for i, each in enumerate(self.continuous)}
        return {name: np.broadcast_to(np.asarray(value, float), (len(points),)) for name, value in known.items()}

    def _weigh(self, weight: float) -> None:
        self.merit += (weight - self.weight) * self.excess
        self.weight = weight
        self._select()

    def _select(self) -> None:
        """Keep the best design of each family, then the second best, and so on, up to the size of the population.

        Of designs in a family whose other coordinates agree in their powers of two, all but the best are kept last.
        """
        order = np.argsort(self.merit, kind="stable")
        order = order[np.sort(_first_of_each(_marks(self.points[order])))]
        points = self.points[order]
        kinds, like = points[:, self._kinds], np.log2(points[:, self._free]).astype(int)
        rank = np.lexsort((_rank(_marks(kinds)), _rank(_marks(np.concatenate([kinds, like], axis=1)))))
        order = order[np.sort(rank[: self.options.population])]
        self.points, self.sizes = self.points[order], self.sizes[order]
        self.merit, self.excess = self.merit[order], self.excess[order]

    def _children(self, parents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return points and continuous variables of children. Some points violate relations of the lattice."""
        rng, free, count = self.rng, self._free, len(parents)
        old, sizes = self.points[parents].astype(float), self.sizes[parents]
        points, changed = old.copy(), np.zeros(old.shape, bool)
        wanted = np.minimum(rng.geometric(1.0 - self.options.mutation_chance, count), self.options.most_mutations) / (
            len(free) + len(self.continuous)
        )
        chosen = rng.random((count, len(free) + len(self.continuous))) < wanted[:, None]
        mates, mated = rng.integers(len(self.merit), size=count), rng.random(count) < self.options.crossover_share
        for place, column in enumerate(free):
            rows = np.flatnonzero(chosen[:, place])
            value = _changed(rng, self.lattice.coordinates[column], old[rows, column], self.options)
            points[rows, column] = np.where(mated[rows], self.points[mates[rows], column], value)
            changed[rows, column] = points[rows, column] != old[rows, column]
        for place, (low, high) in enumerate(zip(*self._ranges, strict=True)):
            rows = np.flatnonzero(chosen[:, len(free) + place])
            value = sizes[rows, place] * np.exp(
                rng.normal(size=len(rows)) * rng.choice(self.options.size_spreads, len(rows))
            )
            sizes[rows, place] = np.clip(np.where(mated[rows], self.sizes[mates[rows], place], value), low, high)
        self._move(sizes)
        self._trade(points, sizes, changed)
        self._follow(old, points, changed)
        self._place(points, sizes)
        return points, sizes

    def _move(self, sizes: np.ndarray) -> None:
        """Move all continuous variables of some children by the ratio between two other designs (differential evolution).

        Such steps go along the surface on which budgets bind, where good designs are.
        """
        rng, rows = self.rng, np.flatnonzero(self.rng.random(len(sizes)) < self.options.difference_share)
        if not len(rows) or not self.continuous:
            return
        one, other = rng.integers(len(self.merit), size=(2, len(rows)))
        by = rng.choice(self.options.difference_powers, len(rows))[:, None]
        low, high = self._ranges
        sizes[rows] = np.clip(sizes[rows] * (self.sizes[one] / self.sizes[other]) ** by, low, high)

    def _trade(self, points: np.ndarray, sizes: np.ndarray, changed: np.ndarray) -> None:
        """Multiply or divide three numbers of some children by one ratio, because limits often apply to products of numbers."""
        rng, rows = self.rng, np.flatnonzero(self.rng.random(len(points)) < self.options.trade_share)
        numbers = len(self._numbers)
        if not len(rows) or not numbers + len(self.continuous):
            return
        ratios = rng.choice(self.options.trade_ratios, len(rows))
        ends = np.array([each.ends for each in self.lattice.coordinates], float)
        low, high = self._ranges
        for _ in range(3):
            which = rng.integers(numbers + len(self.continuous), size=len(rows))
            by, whole = ratios ** rng.choice((-1, 1), len(rows)), which < numbers
            some, columns = rows[whole], np.asarray(self._numbers, int)[which[whole]]
            value = np.round(points[some, columns] * by[whole])
            points[some, columns] = np.clip(value, ends[columns, 0], ends[columns, 1])
            changed[some, columns] = True
            some, places = rows[~whole], which[~whole] - numbers
            sizes[some, places] = np.clip(sizes[some, places] * by[~whole], low[places], high[places])

    def _follow(self, old: np.ndarray, points: np.ndarray, changed: np.ndarray) -> None:
        """Adjust coordinates that complete a product, such as replicas times chips per replica, so that it changes little."""
        for each in self.lattice.quantities.values():
            if each.follows in self.lattice.at:
                column, rows = self.lattice.at[each.follows], ~changed[:, self.lattice.at[each.follows]]
                before, after = (each.value(self.lattice.columns(table)) for table in (old, points))
                value = np.round(points[:, column] * before / after)
                points[rows, column] = np.clip(value, *self.lattice.by_name[each.follows].ends)[rows]

    def _place(self, points: np.ndarray, sizes: np.ndarray) -> None:
        """Set the coordinates of range segments to the segments that contain the continuous variables."""
        for piece, size, edges in self._pieces:
            points[:, piece] = np.searchsorted(edges[1:-1], sizes[:, size], side="left") + 1

    def led_back(self, low: np.ndarray, high: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Round to valid points of the lattice inside nodes, one coordinate after the other, each close to `wanted`.

        **Returns:** valid points, and the row of each one's node.
        """
        lattice, rows, low, high = self.lattice, np.arange(len(low)), low.copy(), high.copy()
        for column, each in enumerate(lattice.coordinates):
            boxes, left = lattice.propagate(Boxes(low, high))
            low, high, rows = boxes.low, boxes.high, rows[left]
            if not len(rows):
                break
            step = lattice.steps(each.name, *(lattice.columns(end.astype(float)) for end in (low, high)))
            first, last = -(-low[:, column] // step) * step, high[:, column] // step * step
            value = np.round(wanted[rows, column] / step) * step
            if each.values is not None:
                values = np.asarray(each.values)
                value = values[np.minimum(np.searchsorted(values, value), len(values) - 1)]
            low[:, column] = high[:, column] = np.clip(value, first, last).astype(np.int64)
        valid = lattice.valid(low) if len(low) else np.zeros(0, bool)
        return low[valid], rows[valid]


def _changed(rng: np.random.Generator, each: Integer, old: np.ndarray, options: HeuristicOptions) -> np.ndarray:
    """Return other values of a coordinate: any value if it is categorical or has few values, else a near one."""
    if each.role is Role.kind or (each.values is not None and len(each.values) <= options.exchangeable_values):
        return rng.choice(np.asarray(System.values_of(each), float), len(old))
    if each.values is not None:
        values = np.asarray(each.values, float)
        step = rng.choice((-2, -1, 1, 2), len(old), p=(0.15, 0.35, 0.35, 0.15))
        return values[np.clip(np.searchsorted(values, old) + step, 0, len(values) - 1)]
    value = np.round(old * np.exp(rng.normal(size=len(old)) * rng.choice(options.integer_spreads, len(old))))
    return np.clip(np.where(value == old, old + rng.choice((-1, 1), len(old)), value), *each.ends)


def _marks(table: np.ndarray) -> np.ndarray:
    """Return a hash of each row of integers. Equal rows have equal hashes."""
    weights = np.random.default_rng(0).integers(1 << 63, size=table.shape[1], dtype=np.int64)
    with np.errstate(over="ignore"):
        return table @ weights


def _rank(marks: np.ndarray) -> np.ndarray:
    """Return, for each element, how many equal elements come before it."""
    order = np.argsort(marks, kind="stable")
    first = np.flatnonzero(np.diff(marks[order], prepend=marks[order][:1] - 1))
    rank = np.empty(len(marks), int)
    rank[order] = np.arange(len(marks)) - np.repeat(first, np.diff(np.append(first, len(marks))))
    return rank


def _first_of_each(marks: np.ndarray) -> np.ndarray:
    return np.unique(marks, return_index=True)[1]
