"""What is kept of a block of variants without its rows: counts, histograms, the best, the Pareto front, a bottleneck map.

A tile is reduced on the device that evaluated it (`Reduction.reduced`); what is left of it is joined on the host (`Block`).
Which tiles a block is made of changes nothing.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import moocore
import numpy as np
from jaxtyping import Array

from hwopt.study.sweep.program import OUTCOMES, PARTS

BINS = 64
"""Bins of a histogram, of equal ratio; the first and the last hold what lies beyond as well."""

CELLS = (48, 48)
"""Cells of a bottleneck map, (y, x), of equal ratio."""

BEST = 32
"""Best variants of a block that are kept."""

FRONT = 4096
"""Points of a block's Pareto front that can be kept."""

REFERENCES = 16
"""Points of the front so far with which new ones are compared first."""

FIRST = 4096
"""Variants of a block from which the first references are taken."""

INFEASIBLE = 1e3
"""What the rank of a variant over budget begins at, and half of what that of an impossible one does: more than any logarithm."""


@dataclass(frozen=True)
class Edges:
    """Bins of equal ratio between two bounds."""

    low: float
    high: float
    count: int

    @property
    def values(self) -> np.ndarray:
        return np.geomspace(self.low, self.high, self.count + 1)

    def number(self, column: Array) -> Array:
        """The bin of each value, the outermost ones for what lies beyond."""
        scale = self.count / math.log(self.high / self.low)
        at = jnp.floor((jnp.log(column) - math.log(self.low)) * scale)
        return jnp.clip(jnp.nan_to_num(at), 0, self.count - 1).astype(jnp.int32)


@dataclass(frozen=True)
class Reduction:
    """What is counted, and between which bounds.

    **Arguments:** `variables`: columns kept of the best and of the front; `objective`; `pareto`: metrics, all minimised;
    `histograms`: metric -> edges; `map_x`, `map_y`: variable and edges, None without a map; `constraints`: how many.
    """

    variables: tuple[str, ...]
    objective: str
    pareto: tuple[str, ...]
    histograms: Mapping[str, Edges]
    map_x: tuple[str, Edges] | None
    map_y: tuple[str, Edges] | None
    constraints: int

    @property
    def lengths(self) -> dict[str, int]:
        """How many codes of each kind there are: parts, constraints and bins, by outcome."""
        kinds = {"part": len(PARTS), "constraint": self.constraints}
        kinds |= {f"bin {name}": edges.count for name, edges in self.histograms.items()}
        return {name: len(OUTCOMES) * count for name, count in kinds.items()}

    @property
    def cells(self) -> int:
        """Cells of the map, 0 without one."""
        return self.map_x[1].count * self.map_y[1].count if self.map_x and self.map_y else 0

    def codes(self, columns: Mapping[str, Array]) -> dict[str, Array]:
        """Numbers by which variants are counted: those of `lengths`, cells, and the rank of each variant.

        **Arguments:** `columns` of an evaluator; what is not read does not reach the device's program.
        """
        outcome = columns["outcome"].astype(jnp.int32)
        objective = columns[self.objective]
        missed = (len(OUTCOMES) - 1 - outcome) * INFEASIBLE + columns["violation"]
        rank = jnp.where(outcome == OUTCOMES.index("feasible"), jnp.log(objective), missed).astype(jnp.float32)
        codes = {
            "rank": jnp.where(columns["finite"], rank, jnp.inf),
            "part": outcome * len(PARTS) + columns["bottleneck"],
            "constraint": outcome * self.constraints + columns["binding"],
        }
        for name, edges in self.histograms.items():
            codes[f"bin {name}"] = outcome * edges.count + edges.number(columns[name])
        if self.map_x and self.map_y:
            (x, of_x), (y, of_y) = self.map_x, self.map_y
            codes["cell"] = of_y.number(columns[y]) * of_x.count + of_x.number(columns[x])
        return codes

    def reduced(self, columns: Mapping[str, Array], size: Array, references: Array) -> dict[str, Array]:
        """A tile reduced, for `Block.join`.

        **Arguments:** `columns` with `codes`; `size`: how many of them count; `references`: points of the block's front so far.

        **Returns:** counts, the best rows, and rows that may be on the front: `front size` of them, more than `FRONT` where
        they did not fit.
        """
        outcome, finite = columns["outcome"], columns["finite"]
        counts = jnp.arange(outcome.shape[0]) < size
        possible = counts & (outcome > 0)
        feasible = counts & (outcome == OUTCOMES.index("feasible"))
        reduced = {"counts": jnp.stack([jnp.sum(each) for each in (counts, possible, feasible, counts & ~finite)])}
        for name, length in self.lengths.items():
            codes = jnp.where(counts, columns[name], length)
            reduced[name] = jnp.bincount(codes, length=length + 1)[:length]
        rank = jnp.where(counts, columns["rank"], jnp.inf)
        best = jax.lax.top_k(-rank, min(BEST, rank.shape[0]))[1]
        reduced |= {"best rank": rank[best], "best place": best}
        reduced |= {f"best {name}": columns[name][best] for name in self.variables}
        if self.cells:
            reduced |= self._least(columns, possible)
        if self.pareto:
            left = self._promising([columns[name] for name in self.pareto], counts & columns["contends"], references)
            places = jnp.nonzero(left, size=min(FRONT, left.shape[0]), fill_value=0)[0]
            reduced |= {"front size": jnp.sum(left), "front place": places}
            for name in ("outcome", "bottleneck", *self.variables, *self.pareto):
                reduced[f"front {name}"] = columns[name][places]
        return reduced

    def _least(self, columns: Mapping[str, Array], possible: Array) -> dict[str, Array]:
        """Least objective of each cell, and the first bottleneck of the variants that have it."""
        count = self.cells
        cell = jnp.where(possible, columns["cell"], count)
        objective = columns[self.objective].astype(jnp.float32)
        least = jnp.full(count + 1, jnp.inf, jnp.float32).at[cell].min(objective)
        winner = jnp.where(possible & (objective == least[cell]), columns["bottleneck"], len(PARTS)).astype(jnp.int32)
        part = jnp.full(count + 1, len(PARTS), jnp.int32).at[cell].min(winner)
        return {"cell objective": least[:count], "cell bottleneck": part[:count]}

    def _promising(self, metrics: list[Array], contends: Array, references: Array) -> Array:
        """Variants that no reference is as good as on every metric."""
        left = contends
        for point in references:
            left = left & reduce(operator.or_, [x < bound for x, bound in zip(metrics, point, strict=True)])
        return left

    @cached_property
    def compiled(self) -> Callable[..., dict[str, Array]]:
        """`reduced`, compiled."""
        return jax.jit(self.reduced)

    @cached_property
    def compiled_codes(self) -> Callable[..., dict[str, Array]]:
        """`codes`, compiled."""
        return jax.jit(self.codes)


class Tile(NamedTuple):
    """A tile that the device is counting."""

    first: int  # number of its first variant
    size: int
    columns: Mapping[str, Array]
    reduced: Mapping[str, Array]


class Block:
    """What is known of a block so far: `begin` and `finish` tiles, then `arrays`."""

    def __init__(self, reduction: Reduction):
        self.reduction = reduction
        lengths = {"counts": 4} | reduction.lengths  # evaluated, possible, feasible, not finite
        self._sums = {name: np.zeros(length, np.int64) for name, length in lengths.items()}
        self._cells = np.full(reduction.cells, _EMPTY, np.int64)
        nothing, small, number = np.zeros(0, np.float32), np.zeros(0, np.int8), np.zeros(0, np.int64)
        self._best = {"rank": nothing, "variant": number} | dict.fromkeys(reduction.variables, nothing)
        self._front = {"variant": number, "outcome": small, "bottleneck": small}
        self._front |= dict.fromkeys((*reduction.variables, *reduction.pareto), nothing)

    def begin(self, first: int, columns: Mapping[str, Array], size: int) -> Tile:
        """Let the device count a tile, and wait for nothing.

        **Arguments:** `first`: number of its first variant; `columns` of evaluator and `Reduction.codes`; `size`: how many of
        them count.
        """
        if self.reduction.pareto and not len(self._front["variant"]):
            self._extend_front(first, columns, min(size, FIRST))
        return Tile(first, size, columns, self.reduction.compiled(columns, size, self.references()))

    def finish(self, tile: Tile) -> None:
        """Take what the device counted."""
        self.join(tile.first, {name: np.asarray(x) for name, x in tile.reduced.items()})
        if self.reduction.pareto and int(tile.reduced["front size"]) > FRONT:
            self._extend_front(tile.first, tile.columns, tile.size)

    def _extend_front(self, first: int, columns: Mapping[str, Array], size: int) -> None:
        """The front with the first rows of a tile, on the host."""
        contending = np.flatnonzero(np.asarray(columns["contends"][:size]))
        own = {name: np.asarray(columns[name][:size])[contending] for name in self._front if name != "variant"}
        self._join_front({"variant": first + contending} | own)

    def join(self, first: int, reduced: Mapping[str, np.ndarray]) -> None:
        """Count what `Reduction.reduced` left of a tile."""
        for name, total in self._sums.items():
            total += reduced[name]
        if len(self._cells):
            # The bits of a positive float32 ascend with it: one least integer holds the objective and its bottleneck.
            least = reduced["cell objective"]
            bits = (least.view(np.uint32).astype(np.int64) << 8) | reduced["cell bottleneck"]
            np.minimum(self._cells, np.where(np.isfinite(least), bits, _EMPTY), out=self._cells)
        own = np.isfinite(reduced["best rank"])
        new = {name: reduced[f"best {name}"][own] for name in self._best if name != "variant"}
        new["variant"] = first + reduced["best place"][own].astype(np.int64)
        self._best = best_of({name: np.concatenate([x, new[name]]) for name, x in self._best.items()})
        size = int(reduced["front size"]) if self.reduction.pareto else 0
        if 0 < size <= FRONT:
            new = {"variant": first + reduced["front place"][:size].astype(np.int64)}
            self._join_front(new | {name: reduced[f"front {name}"][:size] for name in self._front if name != "variant"})

    def _join_front(self, new: Mapping[str, np.ndarray]) -> None:
        joined = {name: np.concatenate([x, new[name]]) for name, x in self._front.items()}
        self._front = front_of(joined, self.reduction.pareto)

    def references(self) -> np.ndarray:
        """Points of the front so far, (`REFERENCES`, axis), infinite where there are fewer: they dominate nothing."""
        columns, size = [self._front[name] for name in self.reduction.pareto], len(self._front["variant"])
        points = np.full((REFERENCES, len(columns)), np.inf, np.result_type(np.float32, *columns))
        places = _spread(size, REFERENCES)
        for axis, column in enumerate(columns):
            points[: len(places), axis] = column[places]
        return points

    def arrays(self, variables: Sequence[str] = ()) -> dict[str, np.ndarray]:
        """What is stored of the block, arrays of fixed shapes: NaN, -1 and 0 where there is nothing.

        **Arguments:** `variables`: those that values have a place for, by default those of the reduction.
        """
        pareto, front, best = self.reduction.pareto, self._front, self._best
        variables = variables or self.reduction.variables
        kept = _spread(len(front["variant"]), FRONT)
        names = {"bottleneck_count": "part", "binding_count": "constraint"}
        names |= {f"histogram_{name}": f"bin {name}" for name in self.reduction.histograms}
        arrays = {stored: self._sums[name].reshape(len(OUTCOMES), -1) for stored, name in names.items()} | {
            "counts": self._sums["counts"],
            "front_dropped": np.asarray(len(front["variant"]) - len(kept), np.int64),
            "cells": self._cells,
            "best_variant": _padded(best["variant"], BEST, -1),
            "best_rank": _padded(best["rank"], BEST, np.nan),
            "best_values": _values(best, variables, BEST),
        }
        if pareto:
            front = {name: column[kept] for name, column in front.items()}
            for name in ("variant", "outcome", "bottleneck"):
                arrays[f"front_{name}"] = _padded(front[name], FRONT, -1)
            arrays["front_values"] = _values(front, (*variables, *pareto), FRONT)
        return arrays


_EMPTY = np.iinfo(np.int64).max


def _spread(size: int, most: int) -> np.ndarray:
    """At most so many places of a column, evenly spread."""
    return np.unique(np.linspace(0, size - 1, min(size, most)).astype(int))


def _padded(column: np.ndarray, size: int, filling: float) -> np.ndarray:
    return np.pad(column, (0, size - len(column)), constant_values=filling)


def _values(columns: Mapping[str, np.ndarray], names: Sequence[str], size: int) -> np.ndarray:
    """Columns side by side, (size, name), NaN where there are fewer rows and in those that are missing."""
    missing = np.zeros(0, np.float32)
    return np.stack([_padded(columns.get(name, missing), size, np.nan) for name in names], axis=-1)


def best_of(columns: Mapping[str, np.ndarray], count: int = BEST) -> dict[str, np.ndarray]:
    """The best rows, in order of `rank`, then of `variant`."""
    order = np.lexsort((columns["variant"], columns["rank"]))[:count]
    return {name: column[order] for name, column in columns.items()}


def front_of(columns: Mapping[str, np.ndarray], axes: Sequence[str]) -> dict[str, np.ndarray]:
    """Rows that no other is as good as on all axes and better on one; ordered by the axes, the first row of equals kept."""
    order = np.lexsort((columns["variant"], *(columns[name] for name in reversed(axes))))
    points = np.stack([columns[name][order] for name in axes], axis=-1).astype(np.float64)
    kept = order[moocore.is_nondominated(points, keep_weakly=False)]
    return {name: column[kept] for name, column in columns.items()}


def cells_of(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least objective and its bottleneck of each cell: NaN and -1 where no variant is possible."""
    empty = cells == _EMPTY
    objective = (np.where(empty, 0, cells) >> 8).astype(np.uint32).view(np.float32).astype(np.float64)
    return np.where(empty, np.nan, objective), np.where(empty, -1, cells & 0xFF).astype(np.int8)
