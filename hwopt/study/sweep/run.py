"""The loop of a sweep: blocks that are not done, tile by tile, reduced and written; several processes share them."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hwopt.leftovers import removed_behind
from hwopt.study.sweep import attributes
from hwopt.study.sweep.damage import resumed
from hwopt.study.sweep.evaluator import Evaluator
from hwopt.study.sweep.program import OUTCOMES, Elasticities
from hwopt.study.sweep.reductions import BINS, CELLS, Block, Edges, Reduction, Tile
from hwopt.study.sweep.specification import Specification, canonical
from hwopt.study.sweep.store import Column, Store, damaged, writing
from hwopt.study.sweep.summary import summary

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

    number: int
    first: int
    count: int
    block: Block
    left: int  # variants
    rows: dict[str, np.ndarray] = field(default_factory=dict)


class Run:
    """A sweep under way. **Arguments:** `devices`: none for all of this process."""

    def __init__(self, spec: Specification, devices: tuple[Any, ...] = ()):
        self.spec, self.devices = spec, devices
        self.edges: dict[str, Edges] = {}  # of histograms and of the map, once a store is opened

    @cached_property
    def evaluators(self) -> list[Evaluator]:
        """One for each case."""
        spec, evaluators = self.spec, []
        for case, program in enumerate(spec.programs):
            slopes = Elasticities(program, spec.inputs(case)) if spec.gradients else None
            evaluators.append(Evaluator(program, spec.sampler(case), spec.tile, spec.dtype, slopes, self.devices))
        return evaluators

    @cached_property
    def reductions(self) -> list[Reduction]:
        """What is kept of each case's tiles: one object a case, which compiles once."""
        spec, goal = self.spec, self.spec.problem.objective.name
        histograms = {name: x for name, x in self.edges.items() if not name.startswith("map ")}
        axes = [(name, self.edges[f"map {axis}"]) for axis, name in zip("xy", spec.map, strict=False)]
        x, y = axes or (None, None)
        return [
            Reduction(tuple(program.space.variables), goal, spec.pareto, histograms, x, y, len(spec.constraints))
            for program in spec.programs
        ]

    def store(self, folder: Path | None) -> Store:
        """The store of the sweep, new or as it was left, by whose bins this counts."""
        spec, document = self.spec, self.spec.document()
        if store := resumed(folder, canonical(document), canonical(spec.versions())):
            try:
                self.edges = {name: Edges(*x) for name, x in store.attribute("edges").items()}
            except TypeError:
                raise damaged(folder, "its edges cannot be read") from None
            return store
        self.edges = self._pilot()
        attrs = attributes.of_root(
            spec,
            document,
            pareto=" ".join(spec.pareto),
            map_variables=" ".join(spec.map),
            cases=" ".join(case.name for case in spec.cases),
            samples=spec.samples,
            method=spec.method,
            seed=spec.seed,
            dtype=spec.dtype,
            optima=canonical({case.name: case.optimum._asdict() for case in spec.cases if case.optimum is not None}),
            edges=canonical({name: [x.low, x.high, x.count] for name, x in self.edges.items()}),
        )
        example = Block(self.reductions[0]).arrays(tuple(spec.variables))
        floats = [name for name, x in example.items() if x.dtype == np.float32 and name != "best_rank"]
        example |= {name: example[name].astype(spec.dtype) for name in floats}
        return Store.created(folder, attrs, self._rows(), example, spec.blocks)

    def _pilot(self) -> dict[str, Edges]:
        """Bins of histograms, from the first tile of each case, and of the map, from the variables' boxes."""
        spec, ends = self.spec, {}
        for case, evaluator in enumerate(self.evaluators):
            columns = evaluator(evaluator.starts([0])[0])
            size = min(spec.tile, spec.place(case * spec.blocks_per_case)[2])
            possible = np.asarray(columns["outcome"])[:size] > 0
            for name in dict.fromkeys((spec.problem.objective.name, *spec.pareto)):
                values = np.asarray(columns[name])[:size]
                values = values[possible] if possible.any() else values
                values = values[np.isfinite(values) & (values > 0)]
                low, high = (float(values.min()), float(values.max())) if len(values) else (1.0, 1.0)
                old = ends.get(name, (math.inf, 0.0))
                ends[name] = (min(old[0], low), max(old[1], high))
        edges = {name: Edges(low / PILOT_ROOM, high * PILOT_ROOM, BINS) for name, (low, high) in ends.items()}
        for axis, name, count in zip("xy", spec.map, CELLS[::-1], strict=False):
            low, high = spec.variables[name].lower, spec.variables[name].upper
            levels = spec.columns.get(name)
            if levels is not None:
                low, high = min(levels), max(levels)
                step = (high / low) ** (0.5 / max(1, len(set(levels)) - 1)) if high > low else 2.0
                low, high = low / step, high * step
            edges[f"map {axis}"] = Edges(low, high, count)
        return edges

    def _rows(self) -> dict[str, Column]:
        """Arrays of the root in which rows are kept."""
        spec = self.spec
        if not spec.rows:
            return {}
        dims, shape, chunks = ("variant",), (spec.samples,), (min(spec.block, spec.samples),)
        if len(spec.cases) > 1:
            dims, shape, chunks = ("case", *dims), (len(spec.cases), *shape), (1, *chunks)
        numbers = {name: attributes.of_variable(each) for name, each in spec.variables.items()}
        numbers |= {each.name: attributes.of_metric(each) for each in spec.metrics}
        numbers["violation"] = attributes.number("largest log(used / limit); feasible at 0 or less")
        codes = {
            "binding": attributes.of_binding(spec),
            "bottleneck": attributes.BOTTLENECK,
            "possible": attributes.number("all constraints but budgets hold"),
            "feasible": attributes.number("all constraints hold"),
        }
        rows = {name: Column(dims, shape, chunks, spec.dtype, attrs) for name, attrs in numbers.items()}
        rows |= {name: Column(dims, shape, chunks, np.int8, attrs) for name, attrs in codes.items()}
        if count := len(spec.gradients):
            attrs = attributes.flags(spec.gradients, "d log objective / d log input, by input")
            before = lambda axes, new: (*axes[:-1], new, axes[-1])  # the variants
            sizes = before(shape, count), before(chunks, count)
            rows["elasticity"] = Column(before(dims, "input"), *sizes, spec.dtype, attrs)
        return rows

    def complete(self, store: Store, tell: Callable[[Progress], None] | None) -> None:
        """Do all blocks of this process that are not done.

        Process i of P does every P-th block. Rows are written by a thread of its own while the next block is evaluated.
        """
        spec = self.spec
        own = np.arange(jax.process_index(), spec.blocks, jax.process_count())
        todo = [int(block) for block in own[~store.done()[own]]]
        total, variants, begun, best = sum(spec.place(b)[2] for b in todo), 0, time.monotonic(), math.inf

        def kept() -> str:
            return f"{int(store.done().sum())} of {spec.blocks} blocks are kept"

        with ThreadPoolExecutor(1) as writer, writing(store.folder, kept), removed_behind(store.sweep_up):
            pending: list[Future] = []
            for open_, tile in self._dispatched(todo):
                open_.block.finish(tile)
                if spec.rows:
                    self._keep(open_, tile)
                open_.left -= tile.size
                variants += tile.size
                if not open_.left:
                    arrays = open_.block.arrays(tuple(spec.variables))
                    rank = arrays["best_rank"][0]
                    best = min(best, math.exp(rank) if rank < 700.0 else math.inf)
                    pending.append(writer.submit(store.write, open_.number, self._region(open_), open_.rows, arrays))
                    while len(pending) > 1:
                        pending.pop(0).result()
                if tell is not None:
                    tell(Progress(variants, total, time.monotonic() - begun, best))
            for each in pending:
                each.result()

    def _dispatched(self, todo: list[int]) -> Iterator[tuple[_Open, Tile]]:
        """Tiles of blocks in their order; devices work on `IN_FLIGHT` more meanwhile."""
        spec, flying = self.spec, deque()
        for number in todo:
            case, first, count = spec.place(number)
            evaluator, reduction = self.evaluators[case], self.reductions[case]
            open_ = _Open(number, first, count, Block(reduction), count)
            step = spec.tile * evaluator.tiles
            for at, starts in enumerate(evaluator.starts(range(first, first + count, spec.tile))):
                columns = evaluator(starts)
                columns |= reduction.compiled_codes(columns)
                tile = open_.block.begin(first + at * step, columns, min(step, count - at * step))
                flying.append((open_, tile))
                if len(flying) > IN_FLIGHT:
                    yield flying.popleft()
        yield from flying

    def _keep(self, open_: _Open, tile: Tile) -> None:
        """Copy a tile's columns, as the store holds them, to where the block's rows are gathered."""
        spec, at = self.spec, tile.first - open_.first
        outcome = np.asarray(tile.columns["outcome"])
        stored = {"possible": outcome > 0, "feasible": outcome == OUTCOMES.index("feasible")}
        names = [*spec.variables, *(each.name for each in spec.metrics), "violation", "binding", "bottleneck"]
        stored |= {name: np.asarray(tile.columns[name]) for name in names if name in tile.columns}
        if not open_.rows:
            open_.rows = {name: np.empty(open_.count, x.dtype) for name, x in stored.items()}
        for name, column in stored.items():
            open_.rows[name][at : at + tile.size] = column[: tile.size]
        if slopes := tile.columns.get("elasticity"):
            kept = open_.rows.setdefault("elasticity", np.empty((len(slopes), open_.count), slopes[0].dtype))
            for row, column in zip(kept, slopes, strict=True):
                row[at : at + tile.size] = np.asarray(column)[: tile.size]

    def _region(self, open_: _Open) -> tuple[Any, ...]:
        """Where a block's rows go: case where there are several, and variants."""
        variants = slice(open_.first, open_.first + open_.count)
        return (variants,) if len(self.spec.cases) == 1 else (self.spec.place(open_.number)[0], variants)

    def finish(self, store: Store) -> None:
        """Write the summary of a sweep whose blocks are all done."""
        arrays, attrs = summary(self.spec, store.partials(), self.edges)
        with writing(store.folder, lambda: "all blocks are kept"):
            store.finish(arrays, attrs)
