"""What is kept of a block of variants without its rows: counts, histograms, the best, the Pareto front, a bottleneck map.

On CPU a tile's columns are NumPy arrays already, and NumPy counts several times faster than compiled code scatters; the little
arithmetic before that, numbers of bins and cells, is compiled with the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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

REFERENCES = 24
"""Points of the front so far that new ones are first held against."""

INFEASIBLE = 1e3
"""What the rank of a variant that holds not all constraints begins at: more than any objective's logarithm."""


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
        """Numbers that the host counts, compiled with the rest: bins by outcome, cells, and the rank of each variant."""
        outcome = columns["outcome"].astype(jnp.int32)
        objective = columns[self.objective]
        rank = jnp.where(
            outcome == OUTCOMES.index("feasible"), jnp.log(objective), INFEASIBLE + columns["violation"]
        ).astype(jnp.float32)
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


@dataclass
class Block:
    """What is known of a block so far; `add` a tile, then `arrays`."""

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

    def add(self, first: int, columns: Mapping[str, np.ndarray]) -> None:
        """Count a tile.

        **Arguments:** `first`: number of its first variant; `columns` of evaluator and `Reduction.codes`, only variants that
        count.
        """
        outcome, finite = columns["outcome"], columns["finite"]
        possible = np.flatnonzero(outcome)
        self.counts += (
            len(outcome),
            len(possible),
            np.count_nonzero(outcome == 2),
            len(finite) - np.count_nonzero(finite),
        )
        self._of_parts += np.bincount(columns["part"], minlength=len(self._of_parts))
        self._of_constraints += np.bincount(columns["constraint"], minlength=len(self._of_constraints))
        for name, bins in self._bins.items():
            bins += np.bincount(columns[f"bin {name}"], minlength=len(bins))
        self._rank(first, columns)
        if len(possible):
            if len(self._cells):
                self._map(columns, possible)
            if self.reduction.pareto:
                self._extend_front(first, columns, possible)

    def _map(self, columns: Mapping[str, np.ndarray], possible: np.ndarray) -> None:
        # The bits of a positive float32 ascend with it: one least integer holds the objective and its bottleneck.
        bits = columns[self.reduction.objective][possible].astype(np.float32).view(np.uint32).astype(np.int64)
        np.minimum.at(self._cells, columns["cell"][possible], (bits << 8) | columns["bottleneck"][possible])

    def _rank(self, first: int, columns: Mapping[str, np.ndarray]) -> None:
        rank, worst = columns["rank"], self._best["rank"][-1] if len(self._best["rank"]) == BEST else np.inf
        better = np.flatnonzero(rank < worst)
        if not len(better):
            return
        if len(better) > BEST:
            better = better[np.sort(np.argpartition(rank[better], BEST - 1)[:BEST])]
        new = {"rank": rank[better], "variant": first + better}
        new |= {name: columns[name][better] for name in self.reduction.variables}
        self._best = best_of({name: np.concatenate([x, new[name]]) for name, x in self._best.items()})

    def _extend_front(self, first: int, columns: Mapping[str, np.ndarray], possible: np.ndarray) -> None:
        axes = self.reduction.pareto
        held = len(self._front["variant"])
        if held:
            points = [columns[name][possible] for name in axes]
            left = np.ones(len(possible), bool)
            for place in np.linspace(0, held - 1, min(REFERENCES, held)).astype(int):
                below = points[0] < self._front[axes[0]][place]
                for name, column in zip(axes[1:], points[1:], strict=True):
                    below |= column < self._front[name][place]
                left &= below
            possible = possible[left]
        if not len(possible):
            return
        new = {"variant": first + possible, "outcome": columns["outcome"][possible]}
        new |= {"bottleneck": columns["bottleneck"][possible]}
        new |= {name: columns[name][possible] for name in (*self.reduction.variables, *axes)}
        joined = {name: np.concatenate([x, new[name]]) for name, x in self._front.items()}
        self._front = front_of(joined, axes)

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
