"""What is kept of a block of variants without its rows: counts, histograms, the best, the Pareto front, a bottleneck map.

A tile is reduced on the device that evaluated it (`Reduction.reduced`); what is left of it is joined on the host (`Block`).
Which tiles a block is made of changes nothing.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
"""Points of the front so far that new ones are first held against."""

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

    **Arguments:** `variables`: columns kept of the best and of the front; `objective`; `pareto`: metrics, all made small;
    `histograms`: metric -> edges; `map_x`, `map_y`: variable and edges, None without a map; `constraints`: how many.
    """

    variables: tuple[str, ...]
    objective: str
    pareto: tuple[str, ...]
    histograms: Mapping[str, Edges]
    map_x: tuple[str, Edges] | None
    map_y: tuple[str, Edges] | None
    constraints: int

    def codes(self, columns: Mapping[str, Array]) -> dict[str, Array]:
        """Numbers by which variants are counted: bins by outcome, cells, and the rank of each variant."""
        outcome = columns["outcome"].astype(jnp.int32)
        objective = columns[self.objective]
        missed = (len(OUTCOMES) - 1 - outcome) * INFEASIBLE + columns["violation"]
        rank = jnp.where(outcome == OUTCOMES.index("feasible"), jnp.log(objective), missed).astype(jnp.float32)
        made = {
            "rank": jnp.where(columns["finite"], rank, jnp.inf),
            "part": outcome * len(PARTS) + columns["bottleneck"],
            "constraint": outcome * self.constraints + columns["binding"],
        }
        for name, edges in self.histograms.items():
            made[f"bin {name}"] = outcome * edges.count + edges.number(columns[name])
        if self.map_x and self.map_y:
            (x, of_x), (y, of_y) = self.map_x, self.map_y
            made["cell"] = of_y.number(columns[y]) * of_x.count + of_x.number(columns[x])
        return made

    def reduced(self, columns: Mapping[str, Array], size: Array, references: Array) -> dict[str, Array]:
        """A tile reduced, for `Block.join`.

        **Arguments:** `columns` with `codes`; `size`: how many of them count; `references`: points of the block's front so far.

        **Returns:** counts, the best rows, and rows that may be on the front: `front size` of them, more than `FRONT` where
        they did not fit.
        """
        outcome = columns["outcome"]
        counts = jnp.arange(outcome.shape[0]) < size
        possible = counts & (outcome > 0)

        def counted(codes: Array, length: int) -> Array:
            return jnp.bincount(jnp.where(counts, codes, length), length=length + 1)[:length]

        made = {
            "counts": jnp.stack([
                jnp.sum(counts), jnp.sum(possible), jnp.sum(counts & (outcome == OUTCOMES.index("feasible"))),
                jnp.sum(counts & ~columns["finite"]),
            ]),
            "part": counted(columns["part"], len(OUTCOMES) * len(PARTS)),
            "constraint": counted(columns["constraint"], len(OUTCOMES) * self.constraints),
        }  # fmt: skip
        for name, edges in self.histograms.items():
            made[f"bin {name}"] = counted(columns[f"bin {name}"], len(OUTCOMES) * edges.count)
        rank = jnp.where(counts, columns["rank"], jnp.inf)
        best = jax.lax.top_k(-rank, min(BEST, rank.shape[0]))[1]
        made |= {"best rank": rank[best], "best place": best}
        made |= {f"best {name}": columns[name][best] for name in self.variables}
        if self.map_x and self.map_y:
            made |= self._cells(columns, possible, self.map_x[1].count * self.map_y[1].count)
        if self.pareto:
            left = self._promising([columns[name] for name in self.pareto], counts & columns["contends"], references)
            held = jnp.nonzero(left, size=min(FRONT, left.shape[0]), fill_value=0)[0]
            made |= {"front size": jnp.sum(left), "front place": held}
            for name in ("outcome", "bottleneck", *self.variables, *self.pareto):
                made[f"front {name}"] = columns[name][held]
        return made

    def _cells(self, columns: Mapping[str, Array], possible: Array, count: int) -> dict[str, Array]:
        """Least objective of each cell, and the first bottleneck of the variants that have it."""
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

    @property
    def coded(self) -> tuple[str, ...]:
        """Columns that `codes` reads."""
        axes = [each[0] for each in (self.map_x, self.map_y) if each]
        judged = ("outcome", "violation", "finite", "bottleneck", "binding")
        return tuple(dict.fromkeys([self.objective, *self.histograms, *axes, *judged]))

    @property
    def counted(self) -> tuple[str, ...]:
        """Columns that `reduced` reads."""
        codes = ["rank", "part", "constraint", *(f"bin {name}" for name in self.histograms)]
        codes += ["cell"] if self.map_x and self.map_y else []
        own = (self.objective, "outcome", "finite", "bottleneck", "contends", *self.variables, *self.pareto)
        return tuple(dict.fromkeys([*own, *codes]))


class Tile(NamedTuple):
    """A tile that the device is counting."""

    first: int  # number of its first variant
    size: int
    columns: Mapping[str, Array]
    found: Mapping[str, Array]


@dataclass
class Block:
    """What is known of a block so far; `add` tiles, then `arrays`."""

    reduction: Reduction
    counts: np.ndarray = field(
        default_factory=lambda: np.zeros(4, np.int64)
    )  # evaluated, possible, feasible, not finite
    _of_parts: np.ndarray = field(init=False)
    _of_constraints: np.ndarray = field(init=False)
    _bins: dict[str, np.ndarray] = field(init=False)
    _cells: np.ndarray = field(init=False)
    _best: dict[str, np.ndarray] = field(init=False)
    _front: dict[str, np.ndarray] = field(init=False)
    _dropped: int = 0

    def __post_init__(self) -> None:
        r, outcomes = self.reduction, len(OUTCOMES)
        self._of_parts = np.zeros(outcomes * len(PARTS), np.int64)
        self._of_constraints = np.zeros(outcomes * r.constraints, np.int64)
        self._bins = {name: np.zeros(outcomes * edges.count, np.int64) for name, edges in r.histograms.items()}
        cells = r.map_x[1].count * r.map_y[1].count if r.map_x and r.map_y else 0
        self._cells = np.full(cells, _EMPTY, np.int64)
        self._best = {"rank": np.zeros(0, np.float32), "variant": np.zeros(0, np.int64)}
        self._best |= {name: np.zeros(0, np.float32) for name in r.variables}
        self._front = {
            "variant": np.zeros(0, np.int64),
            "outcome": np.zeros(0, np.int8),
            "bottleneck": np.zeros(0, np.int8),
        }
        self._front |= {name: np.zeros(0, np.float32) for name in (*r.variables, *r.pareto)}

    def add(self, first: int, columns: Mapping[str, Array], size: int | None = None) -> None:
        """Count a tile.

        **Arguments:** `first`: number of its first variant; `columns` of evaluator and `Reduction.codes`; `size`: how many of
        them count, all by default.
        """
        self.finish(self.begin(first, columns, len(columns["outcome"]) if size is None else size))

    def begin(self, first: int, columns: Mapping[str, Array], size: int) -> Tile:
        """Let the device count a tile, and wait for nothing; arguments as in `add`."""
        if self.reduction.pareto and not len(self._front["variant"]):
            self._extend_front(first, columns, min(size, FIRST))
        return Tile(first, size, columns, self.reduction.compiled(columns, size, self.references()))

    def finish(self, tile: Tile) -> None:
        """Take what the device counted."""
        self.join(tile.first, {name: np.asarray(x) for name, x in tile.found.items()})
        if self.reduction.pareto and int(tile.found["front size"]) > FRONT:
            self._extend_front(tile.first, tile.columns, tile.size)

    def _extend_front(self, first: int, columns: Mapping[str, Array], size: int) -> None:
        """The front with the first rows of a tile, on the host."""
        own = {name: np.asarray(columns[name][:size]) for name in self._front if name != "variant"}
        contending = np.flatnonzero(np.asarray(columns["contends"][:size]))
        self._join_front({"variant": first + contending} | {name: x[contending] for name, x in own.items()})

    def join(self, first: int, found: Mapping[str, np.ndarray]) -> None:
        """Count what `Reduction.reduced` left of a tile."""
        r = self.reduction
        self.counts += found["counts"]
        self._of_parts += found["part"]
        self._of_constraints += found["constraint"]
        for name, bins in self._bins.items():
            bins += found[f"bin {name}"]
        if len(self._cells):
            # The bits of a positive float32 ascend with it: one least integer holds the objective and its bottleneck.
            bits = found["cell objective"].view(np.uint32).astype(np.int64)
            cells = np.where(np.isfinite(found["cell objective"]), (bits << 8) | found["cell bottleneck"], _EMPTY)
            np.minimum(self._cells, cells, out=self._cells)
        own = np.isfinite(found["best rank"])
        new = {"rank": found["best rank"][own], "variant": first + found["best place"][own].astype(np.int64)}
        new |= {name: found[f"best {name}"][own] for name in r.variables}
        self._best = best_of({name: np.concatenate([x, new[name]]) for name, x in self._best.items()})
        size = int(found["front size"]) if r.pareto else 0
        if 0 < size <= FRONT:
            new = {"variant": first + found["front place"][:size].astype(np.int64)}
            self._join_front(new | {name: found[f"front {name}"][:size] for name in self._front if name != "variant"})

    def _join_front(self, new: Mapping[str, np.ndarray]) -> None:
        joined = {name: np.concatenate([x, new[name]]) for name, x in self._front.items()}
        self._front = front_of(joined, self.reduction.pareto)

    def references(self) -> np.ndarray:
        """Points of the front so far, (`REFERENCES`, axis), infinite where there are fewer: they dominate nothing."""
        kinds = [self._front[name].dtype for name in self.reduction.pareto]
        made = np.full((REFERENCES, len(kinds)), np.inf, np.result_type(np.float32, *kinds))
        held = len(self._front["variant"])
        if held:
            places = np.linspace(0, held - 1, min(REFERENCES, held)).astype(int)
            made[: len(places)] = np.stack([self._front[name][places] for name in self.reduction.pareto], axis=-1)
        return made

    def arrays(self) -> dict[str, np.ndarray]:
        """What is stored of the block, arrays of fixed shapes: NaN, -1 and 0 where there is nothing."""
        r, outcomes = self.reduction, len(OUTCOMES)
        front, size = self._front, len(self._front["variant"])
        kept = np.unique(np.linspace(0, size - 1, min(size, FRONT)).astype(int))
        made = {
            "counts": self.counts,
            "front_dropped": np.asarray(size - len(kept), np.int64),
            "bottleneck_count": self._of_parts.reshape(outcomes, -1),
            "binding_count": self._of_constraints.reshape(outcomes, -1),
            "cells": self._cells,
            "best_variant": _padded(self._best["variant"], BEST, -1),
            "best_rank": _padded(self._best["rank"], BEST, np.nan),
            "best_values": np.stack([_padded(self._best[name], BEST, np.nan) for name in r.variables], axis=-1),
        }
        made |= {f"histogram_{name}": bins.reshape(outcomes, -1) for name, bins in self._bins.items()}
        if r.pareto:
            made |= {
                "front_variant": _padded(front["variant"][kept], FRONT, -1),
                "front_outcome": _padded(front["outcome"][kept], FRONT, -1),
                "front_bottleneck": _padded(front["bottleneck"][kept], FRONT, -1),
                "front_values": np.stack(
                    [_padded(front[name][kept], FRONT, np.nan) for name in (*r.variables, *r.pareto)], axis=-1
                ),
            }
        return made


_EMPTY = np.iinfo(np.int64).max


def _padded(column: np.ndarray, size: int, filling: float) -> np.ndarray:
    made = np.full(size, filling, column.dtype)
    made[: len(column)] = column
    return made


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
