"""Reduction of a block of variants to counts, histograms, best variants, Pareto front and bottleneck map.

The device that evaluates a tile also counts it, and marks the few rows that may change the best, front or map of the block
(`Reduction.reduced`). The host merges these rows (`Block`). The result does not depend on how a block is split into tiles.
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
"""Bins of a histogram, at equal ratios; the first and last bins include values beyond the edges."""

CELLS = (48, 48)
"""Cells of a bottleneck map, (y, x), at equal ratios."""

BEST = 32
"""Number of best variants kept for each block."""

FRONT = 4096
"""Maximum number of Pareto points stored for a block."""

REFERENCES = 16
"""Number of points of the current front against which new points are prefiltered."""

FIRST, FIRST_REMOTE = 1 << 12, 1 << 16
"""Variants of a block that the host reads first, for local and remote device memory. Rows that they beat need not be sent."""

SENT = 4096
"""Maximum number of marked rows of a tile that an accelerator sends with its counts; above it, whole columns are sent."""

COPIES = 64
"""Copies of each counter on an accelerator, summed at the end: threads that increment the same counter wait for one another. An
H200 takes half the time with 8, 64 or 512 copies as with one."""

MAY_BE_BEST, MAY_BE_ON_FRONT, MAY_BE_LEAST = 1, 2, 4
"""Bit flags of a row that may be among the best, on the front, or the minimum of its map cell."""

INFEASIBLE = 1e3
"""Rank offset of variants over budget, larger than any log objective; impossible variants get twice this offset."""


@dataclass(frozen=True)
class Edges:
    """Histogram bins of equal ratio between two bounds."""

    low: float
    high: float
    count: int

    @property
    def values(self) -> np.ndarray:
        return np.geomspace(self.low, self.high, self.count + 1)

    def number(self, column: Array) -> Array:
        """Return the bin number of each value; values beyond the bounds go to the outermost bins."""
        scale = self.count / math.log(self.high / self.low)
        at = jnp.floor((jnp.log(column) - math.log(self.low)) * scale)
        return jnp.clip(jnp.nan_to_num(at), 0, self.count - 1).astype(jnp.int32)


@dataclass(frozen=True)
class Reduction:
    """Definition of a reduction: which columns to count, and between which bounds.

    **Arguments:**

    - `variables`: columns kept for the best variants and the front.
    - `objective`: name of the objective.
    - `pareto`: metrics of the front, all minimized.
    - `histograms`: metric -> edges.
    - `map_x`, `map_y`: variable and edges of each map axis; None without a map.
    - `constraints`: number of constraints.
    - `levels`: number of nested sampling boxes, which are counted separately.
    - `remote`: whether the columns are in device memory, outside the host's memory.
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
        """Return the number of possible codes of each counted category, such as histogram bins and map cells."""
        bins = {f"bin {name}": len(OUTCOMES) * edges.count for name, edges in self.histograms.items()}
        cells = {"cell outcome": len(OUTCOMES) * self.cells} if self.cells else {}
        return {"verdict": math.prod(self.verdicts), **bins, **cells}

    @property
    def verdicts(self) -> tuple[int, int, int]:
        """Shape of a verdict code, which combines outcome (plus one for non-finite variants), bottleneck and binding
        constraint.
        """
        return len(OUTCOMES) + 1, len(PARTS), self.constraints

    @property
    def cells(self) -> int:
        """Number of map cells, 0 without a map."""
        return self.map_x[1].count * self.map_y[1].count if self.map_x and self.map_y else 0

    @property
    def rows(self) -> tuple[str, ...]:
        """Columns that the host reads for marked rows."""
        cell = ("cell",) if self.cells else ()
        own = ("outcome", "bottleneck", "contends", "rank", *cell, *self.variables, self.objective, *self.pareto)
        return tuple(dict.fromkeys(own))

    def codes(self, columns: Mapping[str, Array]) -> dict[str, Array]:
        """Return the integer codes by which variants are counted (those of `lengths`), the map cells, and the rank of each
        variant.

        **Arguments:** `columns` of an evaluator; unused ones do not enter the compiled program.
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
        """Reduce a tile on the device.

        **Arguments:**

        - `columns`: columns of the evaluator and of `codes`.
        - `size`: number of rows that count; later ones are padding.
        - `known`: current state of the block, from `Block.known`.

        **Returns:** counts and the `marks` of each row. If columns are remote, also `sent`: the number of marked rows and the
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
            if self.remote:  # bounds tightened within the tile, so that few rows are marked and sent
                bound = bound.at[columns["cell"]].min(jnp.where(own, value, jnp.inf))
            marks = marks | jnp.where(own & (value <= bound[columns["cell"]]), MAY_BE_LEAST, 0)
        marks = jnp.where(counts, marks, 0).astype(jnp.int8)
        if self.remote:
            (first,) = jnp.nonzero(marks, size=min(SENT, len(marks)), fill_value=0)
            rows = {name: columns[name][first] for name in self.rows}
            reduced["sent"] = {"count": jnp.sum(marks != 0), "places": first, "marks": marks[first], "rows": rows}
        return reduced | {"marks": marks}

    def _promising(self, metrics: list[Array], contends: Array, references: Array) -> Array:
        """Return which contending variants no reference point weakly dominates."""
        left = contends
        for point in references:
            left = left & reduce(operator.or_, [x < bound for x, bound in zip(metrics, point, strict=True)])
        return left

    @cached_property
    def compiled(self) -> Callable[..., dict[str, Array]]:
        """Compiled version of `reduced`."""
        return jax.jit(self.reduced, compiler_options=options_of(jax.default_backend()))

    @cached_property
    def compiled_codes(self) -> Callable[..., dict[str, Array]]:
        """Compiled version of `codes`."""
        return jax.jit(self.codes, compiler_options=options_of(jax.default_backend()))

    def read(self, columns: Mapping[str, Array], places: np.ndarray) -> dict[str, np.ndarray]:
        """Copy some rows of the required columns to the host."""
        return {name: np.asarray(columns[name])[places] for name in self.rows}

    @cached_property
    def beginning(self) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
        """Compiled function that returns the first rows of the required columns."""
        count = FIRST_REMOTE if self.remote else FIRST
        return jax.jit(lambda columns: {name: columns[name][:count] for name in self.rows})


class Tile(NamedTuple):
    """A tile (variants evaluated together) whose reduction runs on the device."""

    first: int  # number of its first variant
    size: int
    columns: Mapping[str, Array]
    reduced: Mapping[str, Any]  # result of `Reduction.reduced`


class Block:
    """Running reduction of a block (variants stored together): call `begin` and `finish` for each tile, then `arrays`."""

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
        """Start the reduction of a tile on the device; wait only for the block's first columns.

        **Arguments:**

        - `first`: number of the tile's first variant.
        - `columns`: columns of the evaluator and of `Reduction.codes`.
        - `size`: number of rows that count.
        """
        if not self._begun:
            self._begun = True
            rows = jax.device_get(self.reduction.beginning(columns))
            looked_at = min(size, len(rows["rank"]))
            marks = np.full(looked_at, MAY_BE_BEST | MAY_BE_ON_FRONT | MAY_BE_LEAST)
            self._join_rows(first, np.arange(looked_at), marks, {name: x[:looked_at] for name, x in rows.items()})
        return Tile(first, size, columns, self.reduction.compiled(columns, size, self.known()))

    def finish(self, tile: Tile) -> None:
        """Add the counts of a tile, and merge its marked rows."""
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
        """Return the thresholds for new rows: rank of the last best variant, points of the front, minimum of each cell."""
        full = len(self._best["rank"]) == BEST
        known = {"rank": np.float32(self._best["rank"][-1] if full else np.inf), "front": self._references()}
        return known | {"least": np.where(self._cells == _EMPTY, np.float32(np.inf), _objective(self._cells))}

    def _join_rows(self, first: int, places: np.ndarray, marks: np.ndarray, rows: Mapping[str, np.ndarray]) -> None:
        """Merge marked rows of a tile into the best variants, the front and the map; repeated rows change nothing."""
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
            # Bits of a positive float32 sort like its value, so the minimum of one integer gives the objective and its
            # bottleneck.
            bits = rows[self.reduction.objective][own].astype(np.float32).view(np.uint32).astype(np.int64) << 8
            np.minimum.at(self._cells, rows["cell"][own], bits | rows["bottleneck"][own])

    def _references(self) -> np.ndarray:
        """Return points of the current front, (`REFERENCES`, axis), padded with infinity, which dominates nothing."""
        columns, size = [self._front[name] for name in self.reduction.pareto], len(self._front["variant"])
        points = np.full((REFERENCES, len(columns)), np.inf, np.result_type(np.float32, *columns))
        places = _spread(size, REFERENCES)
        for axis, column in enumerate(columns):
            points[: len(places), axis] = column[places]
        return points

    def arrays(self, variables: Sequence[str] = ()) -> dict[str, np.ndarray]:
        """Return the arrays to store for the block, with fixed shapes, padded with NaN, -1 or 0.

        Counts are integers, by level if there are several. They are multiplied by the sampling weights at the end of the sweep.

        **Arguments:** `variables`: variables with a column in the stored values; default: those of the reduction.
        """
        pareto, front, best = self.reduction.pareto, self._front, self._best
        variables = variables or self.reduction.variables
        kept = _spread(len(front["variant"]), FRONT)
        levels = self.reduction.levels
        verdicts = self._sums["verdict"].copy().reshape(levels, *self.reduction.verdicts)
        each = verdicts.sum(axis=(2, 3)).T  # impossible, over budget, feasible, not finite
        verdicts[:, 0] += verdicts[:, -1]  # non-finite variants are impossible
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
    """Return at most `most` evenly spaced indices of a column."""
    return np.unique(np.linspace(0, size - 1, min(size, most)).astype(int))


def _objective(cells: np.ndarray) -> np.ndarray:
    """Decode the objectives (float32) of non-empty map cells."""
    return (cells >> 8).astype(np.uint32).view(np.float32)


def _padded(column: np.ndarray, size: int, filling: float) -> np.ndarray:
    return np.pad(column, (0, size - len(column)), constant_values=filling)


def _values(columns: Mapping[str, np.ndarray], names: Sequence[str], size: int) -> np.ndarray:
    """Stack columns into an array (size, name); missing rows and missing columns are NaN."""
    missing = np.zeros(0, np.float32)
    return np.stack([_padded(columns.get(name, missing), size, np.nan) for name in names], axis=-1)


def best_of(columns: Mapping[str, np.ndarray], count: int = BEST) -> dict[str, np.ndarray]:
    """Return the best rows, ordered by `rank`, then by `variant`."""
    order = np.lexsort((columns["variant"], columns["rank"]))[:count]
    return {name: column[order] for name, column in columns.items()}


def front_of(columns: Mapping[str, np.ndarray], axes: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the Pareto-optimal rows, ordered by the axes; of equal points the first row is kept."""
    order = np.lexsort((columns["variant"], *(columns[name] for name in reversed(axes))))
    points = np.stack([columns[name][order] for name in axes], axis=-1).astype(np.float64)
    kept = order[moocore.is_nondominated(points, keep_weakly=False)]
    return {name: column[kept] for name, column in columns.items()}


def cells_of(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the minimum objective of each cell and its bottleneck: NaN and -1 if no variant is possible."""
    empty = cells == _EMPTY
    objective = _objective(np.where(empty, 0, cells)).astype(np.float64)
    return np.where(empty, np.nan, objective), np.where(empty, -1, cells & 0xFF).astype(np.int8)
