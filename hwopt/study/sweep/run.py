"""The loop of a sweep: blocks that are not done, tile by tile, reduced and written; several processes share them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np

from hwopt.study.sweep import attributes
from hwopt.study.sweep.evaluator import Evaluator
from hwopt.study.sweep.program import OUTCOMES, Elasticities
from hwopt.study.sweep.reductions import BINS, CELLS, Block, Edges, Reduction, Tile
from hwopt.study.sweep.specification import Specification
from hwopt.study.sweep.store import Column, Store, writing
from hwopt.study.sweep.summary import as_columns, summary

IN_FLIGHT = 3
"""Tiles dispatched ahead of the one that is being reduced."""

PILOT_ROOM = 4.0
"""How far histograms reach beyond what the first tile of each case shows, as a ratio."""


@dataclass(frozen=True)
class Progress:
    """How far a sweep is."""

    done: int  # variants, of those that this process had to do
    total: int
    seconds: float
    best: float  # objective of the best feasible variant so far; infinite without one

    @property
    def per_second(self) -> float:
        return self.done / self.seconds if self.seconds > 0 else 0.0


@dataclass
class _Open:
    """A block under way."""

    block: int
    case: int
    first: int
    count: int
    held: Block
    left: int  # variants
    rows: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass
class Run:
    """A sweep under way. **Arguments:** `devices`: none for all of this process."""

    spec: Specification
    devices: tuple[Any, ...] = ()
    _reductions: dict[int, Reduction] = field(default_factory=dict)

    @cached_property
    def evaluators(self) -> list[Evaluator]:
        """One for each case."""
        made = []
        for number, program in enumerate(self.spec.programs):
            slopes = Elasticities(program, self.spec.inputs(number)) if self.spec.gradients else None
            made.append(
                Evaluator(program, self.spec.sampler(number), self.spec.tile, self.spec.kind, slopes, self.devices)
            )
        return made

    def pilot(self) -> dict[str, Edges]:
        """Bins of histograms, from the first tile of each case, and of the map, from the variables' boxes."""
        spec, ends = self.spec, {}
        counted = tuple(dict.fromkeys((spec.problem.objective.name, *spec.pareto)))
        for number, evaluator in enumerate(self.evaluators):
            found = evaluator(evaluator.starts([0])[0])
            columns = {name: np.asarray(found[name]) for name in (*counted, "outcome")}
            size = min(spec.tile, spec.place(number * spec.blocks_per_case)[2])
            some = columns["outcome"][:size] > 0
            for name in counted:
                values = columns[name][:size][some] if some.any() else columns[name][:size]
                values = values[np.isfinite(values) & (values > 0)]
                low, high = (float(values.min()), float(values.max())) if len(values) else (1.0, 1.0)
                old = ends.get(name, (math.inf, 0.0))
                ends[name] = (min(old[0], low), max(old[1], high))
        made = {name: Edges(low / PILOT_ROOM, high * PILOT_ROOM, BINS) for name, (low, high) in ends.items()}
        for axis, name, count in zip("xy", spec.map or (), CELLS[::-1], strict=False):
            each = spec.variables[name]
            low, high = each.lower, each.upper
            given = spec.levels.get(name) or spec.table.get(name)
            if given is not None:
                low, high = min(given), max(given)
                step = (high / low) ** (0.5 / max(1, len(set(given)) - 1)) if high > low else 2.0
                low, high = low / step, high * step
            made[f"map {axis}"] = Edges(low, high, count)
        return made

    def reduction(self, case: int, edges: Mapping[str, Edges]) -> Reduction:
        """What is kept of a case's tiles: one object, which compiles once."""
        if case not in self._reductions:
            self._reductions[case] = self._reduction(case, edges)
        return self._reductions[case]

    def _reduction(self, case: int, edges: Mapping[str, Edges]) -> Reduction:
        spec = self.spec
        counted = {name: x for name, x in edges.items() if not name.startswith("map ")}
        x, y = (
            ((name, edges[f"map {axis}"]) for axis, name in zip("xy", spec.map, strict=True))
            if spec.map
            else (None, None)
        )
        own = spec.programs[case].space.variables
        return Reduction(tuple(own), spec.problem.objective.name, spec.pareto, counted, x, y, len(spec.constraints))

    def blocks(self, todo: np.ndarray, edges: Mapping[str, Edges]) -> Iterator[tuple[int, dict, dict, int]]:
        """Blocks evaluated one after the other: number, rows, what it leaves, 0; and between, for each tile, -1 and its size."""
        flying: list[tuple[_Open, Tile, dict[str, Any]]] = []

        def landed() -> Iterator[tuple[int, dict, dict, int]]:
            open_, tile, columns = flying.pop(0)
            open_.held.finish(tile)
            if self.spec.rows:
                self._keep(open_, tile, columns)
            open_.left -= tile.size
            yield -1, {}, {}, tile.size
            if not open_.left:
                yield open_.block, open_.rows, self._wide(open_.case, open_.held.arrays()), 0

        for block in todo:
            case, first, count = self.spec.place(int(block))
            evaluator, reduction = self.evaluators[case], self.reduction(case, edges)
            open_ = _Open(int(block), case, first, count, Block(reduction), count)
            step = self.spec.tile * evaluator.tiles
            for number, starts in enumerate(evaluator.starts(range(first, first + count, self.spec.tile))):
                columns = evaluator(starts)
                columns |= reduction.compiled_codes({name: columns[name] for name in reduction.coded})
                at = number * step
                counted = {name: columns[name] for name in reduction.counted}
                flying.append((open_, open_.held.begin(first + at, counted, min(step, count - at)), columns))
                if len(flying) > IN_FLIGHT:
                    yield from landed()
        while flying:
            yield from landed()

    def _keep(self, open_: _Open, tile: Tile, columns: Mapping[str, Any]) -> None:
        """Copy a tile's columns to where the block's rows are gathered."""
        at = tile.first - open_.first
        for name, column in self._stored(columns, tile.size).items():
            if name not in open_.rows:
                open_.rows[name] = np.empty((*column.shape[:-1], open_.count), column.dtype)
            open_.rows[name][..., at : at + tile.size] = column

    def _stored(self, columns: Mapping[str, Any], size: int) -> dict[str, np.ndarray]:
        """Columns as the store holds them."""
        names = [*self.spec.variables, *(each.name for each in self.spec.metrics), "violation", "binding", "bottleneck"]
        names += ["elasticity"] if self.spec.gradients else []
        made = {name: np.asarray(columns[name])[..., :size] for name in names if name in columns}
        outcome = np.asarray(columns["outcome"])[:size]
        return made | {"possible": outcome > 0, "feasible": outcome == OUTCOMES.index("feasible")}

    def _wide(self, case: int, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What a block leaves with a place for the variables of all cases."""
        own, all_ = tuple(self.spec.programs[case].space.variables), tuple(self.spec.variables)
        if own == all_:
            return arrays
        for name in ("best_values", "front_values"):
            if name in arrays:
                old = arrays[name]
                wide = np.full((*old.shape[:-1], old.shape[-1] - len(own) + len(all_)), np.nan, old.dtype)
                wide[..., [all_.index(each) for each in own]] = old[..., : len(own)]
                wide[..., len(all_) :] = old[..., len(own) :]
                arrays[name] = wide
        return arrays

    def columns(self) -> dict[str, Column]:
        """Arrays of the root in which rows are kept."""
        spec = self.spec
        if not spec.rows:
            return {}
        cases = len(spec.cases)
        dims, shape, chunks = ("variant",), (spec.samples,), (min(spec.block, spec.samples),)
        if cases > 1:
            dims, shape, chunks = ("case", *dims), (cases, *shape), (1, *chunks)
        kind, byte = np.dtype(spec.kind), np.dtype(np.int8)
        number = {name: (kind, np.nan, attributes.of_variable(each)) for name, each in spec.variables.items()}
        number |= {each.name: (kind, np.nan, attributes.of_metric(each)) for each in spec.metrics}
        number |= {
            "violation": (
                kind,
                np.nan,
                {"units": "1", "long_name": "largest log(used / limit); feasible at 0 or less"},
            ),
            "binding": (byte, -1, attributes.of_binding(spec)),
            "bottleneck": (byte, -1, attributes.BOTTLENECK),
            "possible": (byte, -1, {"units": "1", "long_name": "all constraints but budgets hold"}),
            "feasible": (byte, -1, {"units": "1", "long_name": "all constraints hold"}),
        }
        made = {name: Column(dims, shape, chunks, dtype, fill, attrs) for name, (dtype, fill, attrs) in number.items()}
        if spec.gradients:
            count = len(spec.gradients)
            attrs = attributes.flags(spec.gradients, "d log objective / d log input, by input")
            made["elasticity"] = Column(
                (*dims[:-1], "input", "variant"), (*shape[:-1], count, shape[-1]), (*chunks[:-1], count, chunks[-1]),
                kind, np.nan, attrs,
            )  # fmt: skip
        return made

    def region(self, block: int) -> tuple[Any, ...]:
        """Where a block's rows go: case where there are several, and variants."""
        case, first, count = self.spec.place(block)
        return (slice(first, first + count),) if len(self.spec.cases) == 1 else (case, slice(first, first + count))


def run(run_: Run, store: Store, edges: Mapping[str, Edges], tell: Callable[[Progress], None] | None) -> None:
    """Do all blocks of this process that are not done.

    Process i of P does every P-th block. Rows are written by a thread of its own while the next block is evaluated.
    """
    spec = run_.spec
    own = np.arange(jax.process_index(), spec.blocks, jax.process_count())
    done = store.done()
    todo = own[~done[own]]
    total, variants, begun, best = sum(spec.place(int(b))[2] for b in todo), 0, time.monotonic(), math.inf

    def kept() -> str:
        return f"{int(store.done().sum())} of {spec.blocks} blocks are kept"

    with ThreadPoolExecutor(1) as writer, writing(store.folder, kept):
        pending: list[Future] = []
        for block, rows, left, size in run_.blocks(todo, edges):
            variants += size
            if block >= 0:
                rank = left["best_rank"][0]
                best = min(best, math.exp(rank) if rank < 700.0 else math.inf)
                pending.append(writer.submit(store.write, block, run_.region(block), rows, left))
                while len(pending) > 1:
                    pending.pop(0).result()
            if tell is not None:
                tell(Progress(variants, total, time.monotonic() - begun, best))
        for each in pending:
            each.result()


def finish(run_: Run, store: Store, edges: Mapping[str, Edges]) -> None:
    """Write the summary of a sweep whose blocks are all done."""
    made, attrs = summary(run_.spec, store.partials(), edges)
    with writing(store.folder, lambda: "all blocks are kept"):
        store.finish(as_columns(made), attrs)


def example(run_: Run, edges: Mapping[str, Edges]) -> dict[str, np.ndarray]:
    """What a block leaves, of nothing yet."""
    held = {name: x for name, x in Block(run_.reduction(0, edges)).arrays().items()}
    made = run_._wide(0, held)
    kind = np.dtype(run_.spec.kind)
    return {name: x.astype(kind) if x.dtype == np.float32 and name != "best_rank" else x for name, x in made.items()}
