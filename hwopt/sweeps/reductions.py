"""What is kept of a block of variants without its rows: counts, histograms, the best, the Pareto front, a bottleneck map.

A tile is counted on the device that evaluated it, which also marks the few rows that may change what is known of the block:
its best, its front and its map (`Reduction.reduced`). Those are joined on the host (`Block`). Which tiles a block is made of
changes nothing.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import moocore
import numpy as np
from jaxtyping import Array

from hwopt.sweeps.evaluator import options_of
from hwopt.sweeps.program import OUTCOMES, PARTS

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

FIRST, FIRST_REMOTE = 1 << 12, 1 << 16
"""Variants of a block that the host looks at first, in its own memory and in another: what they beat need not be sent."""

SENT = 4096
"""Marked rows of a tile that an accelerator sends along with its counts; of more it sends whole columns."""

COPIES = 64
"""Counters of each code on an accelerator, added in the end: threads that count the same code wait for one another. An H200
takes half the time with 8, 64 or 512 as with one."""

MAY_BE_BEST, MAY_BE_ON_FRONT, MAY_BE_LEAST = 1, 2, 4
"""Marks of a row that may be among the best, on the front, or least of its cell."""

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
    `histograms`: metric -> edges; `map_x`, `map_y`: variable and edges, None without a map; `constraints`: how many; `levels`:
    how many nested boxes variants are drawn from, which are counted apart; `remote`: columns are not in the host's memory.
    """

    variables: tuple[str, ...]
    objective: str
    pareto: tuple[str, ...]
    histograms: Mapping[str, Edges]
    map_x: tuple[str, Edges] | None
    map_y: tuple[str, Edges] | None
    constraints: int
    levels: int = 1
    remote: bool = False

    @property
    def lengths(self) -> dict[str, int]:
        """How many codes of each kind there are."""
        bins = {f"bin {name}": len(OUTCOMES) * edges.count for name, edges in self.histograms.items()}
        cells = {"cell outcome": len(OUTCOMES) * self.cells} if self.cells else {}
        return {"verdict": math.prod(self.verdicts), **bins, **cells}

    @property
    def verdicts(self) -> tuple[int, int, int]:
        """How many outcomes, behind them that of what is not finite, bottlenecks and constraints a verdict is made of."""
        return len(OUTCOMES) + 1, len(PARTS), self.constraints

    @property
    def cells(self) -> int:
        """Cells of the map, 0 without one."""
        return self.map_x[1].count * self.map_y[1].count if self.map_x and self.map_y else 0

    @property
    def rows(self) -> tuple[str, ...]:
        """Columns that are read of the rows that are marked."""
        cell = ("cell",) if self.cells else ()
        own = ("outcome", "bottleneck", "contends", "rank", *cell, *self.variables, self.objective, *self.pareto)
        return tuple(dict.fromkeys(own))

    def codes(self, columns: Mapping[str, Array]) -> dict[str, Array]:
        """Numbers by which variants are counted: those of `lengths`, cells, and the rank of each variant.

        **Arguments:** `columns` of an evaluator; what is not read does not reach the device's program.
        """
        outcome, finite = columns["outcome"].astype(jnp.int32), columns["finite"]
        missed = (len(OUTCOMES) - 1 - outcome) * INFEASIBLE + columns["violation"]
        ranked = jnp.where(outcome == OUTCOMES.index("feasible"), jnp.log(columns[self.objective]), missed)
        _, parts, constraints = self.verdicts
        verdict = jnp.where(finite, outcome, len(OUTCOMES)) * parts + columns["bottleneck"]
        codes = {
            "rank": jnp.where(finite, ranked.astype(jnp.float32), jnp.inf),
            "verdict": verdict * constraints + columns["binding"],
        }
        for name, edges in self.histograms.items():
            codes[f"bin {name}"] = outcome * edges.count + edges.number(columns[name])
        if self.map_x and self.map_y:
            (x, of_x), (y, of_y) = self.map_x, self.map_y
            codes["cell"] = of_y.number(columns[y]) * of_x.count + of_x.number(columns[x])
            codes["cell outcome"] = outcome * self.cells + codes["cell"]
        return codes

    def reduced(self, columns: Mapping[str, Array], size: Array, known: Mapping[str, Array]) -> dict[str, Array]:
        """A tile reduced, for `Block.join`.

        **Arguments:** `columns` with `codes`; `size`: how many of them count; `known` of the block so far: `Block.known`.

        **Returns:** counts, the `marks` of each row, and where columns are remote `sent`: how many rows are marked, and the
        first `SENT` of them.
        """
        places = jnp.arange(columns["outcome"].shape[0])
        counts, copies = places < size, COPIES if self.remote else 1
        reduced: dict[str, Any] = {}
        for name, length in self.lengths.items():
            every = self.levels * length
            codes = columns[name] if self.levels == 1 else columns["level"].astype(jnp.int32) * length + columns[name]
            codes = jnp.where(counts, codes, every)
            if self.remote:
                codes = codes + places % COPIES * (every + 1)
            table = jnp.zeros(copies * (every + 1), jnp.int32).at[codes].add(1)
            reduced[name] = table.reshape(copies, -1).sum(axis=0)[:every]
        marks = jnp.where(columns["rank"] < known["rank"], MAY_BE_BEST, 0)
        if self.pareto:
            left = self._promising([columns[name] for name in self.pareto], columns["contends"], known["front"])
            marks = marks | jnp.where(left, MAY_BE_ON_FRONT, 0)
        if self.cells:
            value, bound = columns[self.objective].astype(jnp.float32), jnp.asarray(known["least"])
            own = counts & (columns["outcome"] > 0)
            if self.remote:  # so that few rows are sent: most that beat what was known beat each other
                bound = bound.at[columns["cell"]].min(jnp.where(own, value, jnp.inf))
            marks = marks | jnp.where(own & (value <= bound[columns["cell"]]), MAY_BE_LEAST, 0)
        marks = jnp.where(counts, marks, 0).astype(jnp.int8)
        if self.remote:
            (first,) = jnp.nonzero(marks, size=min(SENT, len(marks)), fill_value=0)
            rows = {name: columns[name][first] for name in self.rows}
            reduced["sent"] = {"count": jnp.sum(marks != 0), "places": first, "marks": marks[first], "rows": rows}
        return reduced | {"marks": marks}

    def _promising(self, metrics: list[Array], contends: Array, references: Array) -> Array:
        """Variants that no reference is as good as on every metric."""
        left = contends
        for point in references:
            left = left & reduce(operator.or_, [x < bound for x, bound in zip(metrics, point, strict=True)])
        return left

    @cached_property
    def compiled(self) -> Callable[..., dict[str, Array]]:
        """`reduced`, compiled."""
        return jax.jit(self.reduced, compiler_options=options_of(jax.default_backend()))

    @cached_property
    def compiled_codes(self) -> Callable[..., dict[str, Array]]:
        """`codes`, compiled."""
        return jax.jit(self.codes, compiler_options=options_of(jax.default_backend()))

    def read(self, columns: Mapping[str, Array], places: np.ndarray) -> dict[str, np.ndarray]:
        """The columns that are read, at some places, on the host."""
        return {name: np.asarray(columns[name])[places] for name in self.rows}

    @cached_property
    def beginning(self) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
        """The first rows of the columns that are read, compiled."""
        count = FIRST_REMOTE if self.remote else FIRST
        return jax.jit(lambda columns: {name: columns[name][:count] for name in self.rows})


class Tile(NamedTuple):
    """A tile that the device is counting."""

    first: int  # number of its first variant
    size: int
    columns: Mapping[str, Array]
    reduced: Mapping[str, Any]  # of `Reduction.reduced`


class Block:
    """What is known of a block so far: `begin` and `finish` tiles, then `arrays`."""

    def __init__(self, reduction: Reduction):
        self.reduction = reduction
        self._begun = False
        self._sums = {name: np.zeros(reduction.levels * size, np.int64) for name, size in reduction.lengths.items()}
        self._cells = np.full(reduction.cells, _EMPTY, np.int64)
        nothing, small, number = np.zeros(0, np.float32), np.zeros(0, np.int8), np.zeros(0, np.int64)
        self._best = {"rank": nothing, "variant": number} | dict.fromkeys(reduction.variables, nothing)
        self._front = {"variant": number, "outcome": small, "bottleneck": small}
        self._front |= dict.fromkeys((*reduction.variables, *reduction.pareto), nothing)

    def begin(self, first: int, columns: Mapping[str, Array], size: int) -> Tile:
        """Let the device count a tile, and wait for nothing but the block's first columns.

        **Arguments:** `first`: number of its first variant; `columns` of evaluator and `Reduction.codes`; `size`: how many of
        them count.
        """
        if not self._begun:
            self._begun = True
            rows = jax.device_get(self.reduction.beginning(columns))
            looked_at = min(size, len(rows["rank"]))
            marks = np.full(looked_at, MAY_BE_BEST | MAY_BE_ON_FRONT | MAY_BE_LEAST)
            self._join_rows(first, np.arange(looked_at), marks, {name: x[:looked_at] for name, x in rows.items()})
        return Tile(first, size, columns, self.reduction.compiled(columns, size, self.known()))

    def finish(self, tile: Tile) -> None:
        """Take what the device counted, and the rows that it marked."""
        counted = jax.device_get({name: x for name, x in tile.reduced.items() if name != "marks"})
        for name, total in self._sums.items():
            total += counted[name]
        if self.reduction.remote and (count := int(counted["sent"]["count"])) <= len(counted["sent"]["places"]):
            places, marks, rows = (
                jax.tree.map(lambda x: x[:count], counted["sent"][name]) for name in ("places", "marks", "rows")
            )
        else:
            marks = np.asarray(tile.reduced["marks"])
            places = np.flatnonzero(marks)
            marks, rows = marks[places], self.reduction.read(tile.columns, places)
        if len(places):
            self._join_rows(tile.first, places, marks, rows)

    def known(self) -> dict[str, np.ndarray]:
        """What a row has to beat: the last of the best, points of the front, and the least of each cell."""
        full = len(self._best["rank"]) == BEST
        known = {"rank": np.float32(self._best["rank"][-1] if full else np.inf), "front": self._references()}
        return known | {"least": np.where(self._cells == _EMPTY, np.float32(np.inf), _objective(self._cells))}

    def _join_rows(self, first: int, places: np.ndarray, marks: np.ndarray, rows: Mapping[str, np.ndarray]) -> None:
        """Join rows of a tile to what they are marked for; that some are known already changes nothing."""
        rows = {**rows, "variant": first + places.astype(np.int64)}
        chosen = lambda wanted, names: {name: rows[name][wanted] for name in names}
        own = (marks & MAY_BE_BEST > 0) & np.isfinite(rows["rank"]) & ~np.isin(rows["variant"], self._best["variant"])
        if own.any():
            new = chosen(own, self._best)
            self._best = best_of({name: np.concatenate([x, new[name]]) for name, x in self._best.items()})
        own = (marks & MAY_BE_ON_FRONT > 0) & rows["contends"]
        if self.reduction.pareto and own.any():
            new = chosen(own, self._front)
            joined = {name: np.concatenate([x, new[name]]) for name, x in self._front.items()}
            self._front = front_of(joined, self.reduction.pareto)
        own = (marks & MAY_BE_LEAST > 0) & (rows["outcome"] > 0)
        if self.reduction.cells and own.any():
            # The bits of a positive float32 ascend with it: one least integer holds the objective and its bottleneck.
            bits = rows[self.reduction.objective][own].astype(np.float32).view(np.uint32).astype(np.int64) << 8
            np.minimum.at(self._cells, rows["cell"][own], bits | rows["bottleneck"][own])

    def _references(self) -> np.ndarray:
        """Points of the front so far, (`REFERENCES`, axis), infinite where there are fewer: they dominate nothing."""
        columns, size = [self._front[name] for name in self.reduction.pareto], len(self._front["variant"])
        points = np.full((REFERENCES, len(columns)), np.inf, np.result_type(np.float32, *columns))
        places = _spread(size, REFERENCES)
        for axis, column in enumerate(columns):
            points[: len(places), axis] = column[places]
        return points

    def arrays(self, variables: Sequence[str] = ()) -> dict[str, np.ndarray]:
        """What is stored of the block, arrays of fixed shapes: NaN, -1 and 0 where there is nothing.

        Counts are whole numbers, level by level where there are several: what each stands for is multiplied in the end.

        **Arguments:** `variables`: those that values have a place for, by default those of the reduction.
        """
        pareto, front, best = self.reduction.pareto, self._front, self._best
        variables = variables or self.reduction.variables
        kept = _spread(len(front["variant"]), FRONT)
        levels = self.reduction.levels
        verdicts = self._sums["verdict"].copy().reshape(levels, *self.reduction.verdicts)
        each = verdicts.sum(axis=(2, 3)).T  # impossible, over budget, feasible, not finite
        verdicts[:, 0] += verdicts[:, -1]  # what is not finite is impossible
        verdicts = verdicts[:, :-1]
        counted = {f"histogram_{name}": self._sums[f"bin {name}"] for name in self.reduction.histograms}
        if self.reduction.cells:
            counted["cell_count"] = self._sums["cell outcome"]
        arrays = {name: x.reshape(levels, len(OUTCOMES), -1) for name, x in counted.items()} | {
            "bottleneck_count": verdicts.sum(axis=3),
            "binding_count": verdicts.sum(axis=2),
            "counts": np.stack([each.sum(axis=0), each[1:3].sum(axis=0), each[2], each[3]], axis=1),
        }
        if levels == 1:
            arrays = {name: x[0] for name, x in arrays.items()}
        arrays |= {
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


def _objective(cells: np.ndarray) -> np.ndarray:
    """Objectives of cells that are not empty, float32."""
    return (cells >> 8).astype(np.uint32).view(np.float32)


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
    objective = _objective(np.where(empty, 0, cells)).astype(np.float64)
    return np.where(empty, np.nan, objective), np.where(empty, -1, cells & 0xFF).astype(np.int8)
