"""The main loop of a sweep: evaluate, reduce and write all unfinished blocks, tile by tile, shared among processes."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np

from hwopt.cleanup import removed_on_exit
from hwopt.sweeps import attributes
from hwopt.sweeps.evaluator import Evaluator, in_order
from hwopt.sweeps.integrity import open_to_resume
from hwopt.sweeps.pilot import pilot_strata
from hwopt.sweeps.program import OUTCOMES, VariantElasticities
from hwopt.sweeps.program_cache import decided, evaluator_of, recent_programs
from hwopt.sweeps.reductions import BINS, CELLS, Block, Edges, Reduction
from hwopt.sweeps.specification import KnownOptimum, Specification, canonical
from hwopt.sweeps.storage import Place
from hwopt.sweeps.store import Store, StoreColumn, check_room, damaged, writing
from hwopt.sweeps.strata import Strata
from hwopt.sweeps.stratified import StratifiedSobol
from hwopt.sweeps.summary import summary
from hwopt.sweeps.warm_start import around, strata_around_optimum

PILOT_ROOM = 4.0
"""Ratio by which histograms extend beyond the range of values in the first tile of each case."""


@dataclass(frozen=True)
class Progress:
    """Progress of a sweep, passed to the callback."""

    done: int  # variants evaluated by this process
    total: int
    seconds: float
    best: float  # objective of the best feasible variant so far; infinite without one

    @property
    def per_second(self) -> float:
        return self.done / self.seconds if self.seconds > 0 else 0.0


@dataclass
class _Open:
    """A block of variants (the unit of writing) in progress."""

    number: int
    first: int
    count: int
    block: Block
    left: int  # number of variants not evaluated yet
    rows: dict[str, np.ndarray]


def _evaluated(
    open_: _Open,
    first: int,
    size: int,
    evaluator: Evaluator,
    reduction: Reduction,
    weights: np.ndarray,
    starts: np.ndarray,
) -> tuple[_Open, int, int, dict[str, Any]]:
    """Evaluate a tile of a block, and copy its columns to the block's rows.

    **Returns:** the block, the number of the tile's first variant, the number of its variants, and the columns of the
    whole tile, padding included.
    """
    columns = evaluator(starts)
    columns |= reduction.compiled_codes(columns)
    if open_.rows:
        own = slice(first - open_.first, first - open_.first + size)
        outcome = np.asarray(columns["outcome"])
        stored = columns | {"possible": outcome > 0, "feasible": outcome == OUTCOMES.index("feasible")}
        if "level" in columns:
            stored["weight"] = weights[np.asarray(columns["level"])]
        for name, rows in open_.rows.items():
            for row, column in zip(np.atleast_2d(rows), stored[name] if rows.ndim > 1 else [stored[name]], strict=True):
                row[own] = np.asarray(column)[:size]
    return open_, first, size, columns


class SweepRun:
    """A sweep in progress. **Arguments:** `devices`: devices to use; empty: all of this process."""

    def __init__(self, spec: Specification, devices: tuple[Any, ...] = ()):
        self.spec, self.devices = spec, devices
        self.edges: dict[str, Edges] = {}  # of histograms and of the map; set when a store is opened
        self.levels: Strata | None = None  # nested boxes of importance sampling; set when a store is opened
        self._spare: list[dict[str, np.ndarray]] = []  # row buffers of written blocks, for reuse

    @cached_property
    def evaluators(self) -> list[Evaluator]:
        """One evaluator for each case."""
        spec, evaluators = self.spec, []
        for case, program in enumerate(spec.programs):
            slopes = VariantElasticities(program, spec.inputs(case)) if spec.gradients else None
            evaluators.append(evaluator_of(program, spec.sampler(case), spec.tile, spec.dtype, slopes, self.devices))
        return evaluators

    @property
    def weights(self) -> np.ndarray:
        """Importance weight of a variant, by its level: the number of uniformly drawn variants that it represents."""
        sampler = self.evaluators[0].sampler
        return sampler.levels.weights(sampler.counts) if isinstance(sampler, StratifiedSobol) else np.ones(1)

    def _focus(self, levels: Strata) -> None:
        """Switch the sampler to the given levels of importance sampling."""
        self.levels = levels
        self.evaluators[0] = self.evaluators[0].at(self.spec.focused(levels))

    @cached_property
    def reductions(self) -> list[Reduction]:
        """One reduction for each case, so that it is compiled once."""
        spec, goal = self.spec, self.spec.problem.objective.name
        histograms = {name: x for name, x in self.edges.items() if not name.startswith("map ")}
        axes = [(name, self.edges[f"map {axis}"]) for axis, name in zip("xy", spec.map, strict=False)]
        x, y = axes or (None, None)
        levels = 1 if self.levels is None else len(self.levels)
        remote = spec.platform != "cpu"
        shared = goal, spec.pareto, histograms, x, y, len(spec.constraints), levels, remote
        return [Reduction(tuple(program.space.variables), *shared) for program in spec.programs]

    def store(self, folder: Place | None) -> Store:
        """Return the store of the sweep, new or partly filled, and adopt its histogram bins and sampling levels."""
        spec, document = self.spec, self.spec.document()
        if store := open_to_resume(folder, canonical(document), canonical(spec.versions())):
            try:
                self.edges = {name: Edges(*x) for name, x in store.attribute("edges").items()}
            except TypeError:
                raise damaged(folder, "its edges cannot be read") from None
            if spec.focuses:
                try:
                    self._focus(Strata.of_document(store.attribute("levels")))
                except (KeyError, TypeError, ValueError):
                    raise damaged(folder, "its levels cannot be read") from None
            return store
        check_room(folder)
        optima = {case.name: case.optimum for case in spec.cases if case.optimum is not None}
        if spec.focuses:
            optima |= self._look()
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
            sampling="importance" if spec.focuses else "plain",
            sampling_note=spec.why_plain,
            levels=canonical(self.levels.document() if self.levels else {}),
            optima=canonical({name: each._asdict() for name, each in optima.items()}),
            edges=canonical({name: [x.low, x.high, x.count] for name, x in self.edges.items()}),
        )
        example = Block(self.reductions[0]).arrays(tuple(spec.variables))
        floats = [name for name, x in example.items() if x.dtype == np.float32 and name != "best_rank"]
        example |= {name: example[name].astype(spec.dtype) for name in floats}
        return Store.created(folder, attrs, self._rows(), example, spec.blocks)

    def _look(self) -> dict[str, KnownOptimum]:
        """Find the sampling levels of a sweep with one case. **Returns:** the optimum of the search that located them, by case
        name.
        """
        (case,), (program,) = self.spec.cases, self.spec.programs
        space, goal = program.space, self.spec.problem.objective.name
        samples, evaluator = self.spec.samples, self.evaluators[0]  # rejects more samples than a Sobol sequence has
        options = self.spec.options
        decides = ("searched", samples, options, decided(program))
        optimum = recent_programs(decides, lambda: strata_around_optimum(case.problem, samples, options))
        ranks = Reduction(tuple(space.variables), goal, (), {}, None, None, len(self.spec.constraints))
        integers = [name for name, each in space.variables.items() if each.integer]
        starts = [] if optimum is None else around(space, optimum.design, options.sweep)
        self._focus(pilot_strata(evaluator, ranks, integers, self.spec.seed, starts, options.sweep))
        return {} if optimum is None else {case.name: optimum}

    def _pilot(self) -> dict[str, Edges]:
        """Return the bins of histograms, from the first tile of each case, and of the map, from variable bounds or levels."""
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

    def _rows(self) -> dict[str, StoreColumn]:
        """Return the arrays of the root group that contain the rows of every variant."""
        spec = self.spec
        if not spec.rows:
            return {}
        dims, shape, chunks = ("variant",), (spec.samples,), (min(spec.block, spec.samples),)
        if len(spec.cases) > 1:
            dims, shape, chunks = ("case", *dims), (len(spec.cases), *shape), (1, *chunks)
        numbers = {name: attributes.of_variable(each) for name, each in spec.variables.items()}
        numbers |= {each.name: attributes.of_metric(each) for each in spec.metrics}
        numbers["violation"] = attributes.number("largest log(used / limit); feasible at 0 or less")
        if spec.focuses:
            numbers["weight"] = attributes.number("variants of the plain space that this one stands for")
        codes = {
            "binding": attributes.of_binding(spec),
            "bottleneck": attributes.BOTTLENECK,
            "possible": attributes.number("all constraints but budgets hold"),
            "feasible": attributes.number("all constraints hold"),
        }
        rows = {name: StoreColumn(dims, shape, chunks, spec.dtype, attrs) for name, attrs in numbers.items()}
        rows |= {name: StoreColumn(dims, shape, chunks, np.int8, attrs) for name, attrs in codes.items()}
        if count := len(spec.gradients):
            attrs = attributes.flags(spec.gradients, "d log objective / d log input, by input")
            before = lambda axes, new: (*axes[:-1], new, axes[-1])  # inserts an axis before the variants
            sizes = before(shape, count), before(chunks, count)
            rows["elasticity"] = StoreColumn(before(dims, "input"), *sizes, spec.dtype, attrs)
        return rows

    def complete(self, store: Store, tell: Callable[[Progress], None] | None) -> None:
        """Evaluate and write all unfinished blocks of this process.

        Process i of P evaluates every P-th block. A separate thread writes rows while the next block is evaluated.

        **Arguments:** `tell`: progress callback.
        """
        spec = self.spec
        own = np.arange(jax.process_index(), spec.blocks, jax.process_count())
        todo = [int(block) for block in own[~store.done()[own]]]
        total, variants, begun, best = sum(spec.place(b)[2] for b in todo), 0, time.monotonic(), math.inf

        def kept() -> str:
            return f"{int(store.done().sum())} of {spec.blocks} blocks are kept"

        tiles = in_order(self._calls(todo), self.evaluators[0].devices)
        with (
            ThreadPoolExecutor(1) as writer,
            writing(store.folder, kept),
            removed_on_exit(store.sweep_up),
            closing(tiles),
        ):
            pending: deque[tuple[Future, dict[str, np.ndarray]]] = deque()
            for open_, first, size, columns in tiles:
                tile = open_.block.begin(first, columns, size)
                open_.block.finish(tile)
                open_.left -= tile.size
                variants += tile.size
                if not open_.left:
                    arrays = open_.block.arrays(tuple(spec.variables))
                    rank = arrays["best_rank"][0]
                    best = min(best, math.exp(rank) if rank < 700.0 else math.inf)
                    written = writer.submit(store.write, open_.number, self._region(open_), open_.rows, arrays)
                    pending.append((written, open_.rows))
                    while len(pending) > 1:
                        future, rows = pending.popleft()
                        future.result()
                        if store.folder is not None:  # a store in memory keeps these arrays
                            self._spare.append(rows)
                if tell is not None:
                    tell(Progress(variants, total, time.monotonic() - begun, best))
            for future, _ in pending:
                future.result()

    def _calls(self, todo: list[int]) -> Iterator[Callable[[], tuple[_Open, int, int, dict[str, Any]]]]:
        """Yield the tiles of blocks in order, each as a function that evaluates it."""
        spec = self.spec
        for number in todo:
            case, first, count = spec.place(number)
            evaluator, reduction, weights = self.evaluators[case], self.reductions[case], self.weights
            open_ = _Open(number, first, count, Block(reduction), count, self._room(case, count))
            step = spec.tile * evaluator.tiles
            for at, starts in enumerate(evaluator.starts(range(first, first + count, spec.tile))):
                size = min(step, count - at * step)
                yield partial(_evaluated, open_, first + at * step, size, evaluator, reduction, weights, starts)

    def _room(self, case: int, count: int) -> dict[str, np.ndarray]:
        """Return row buffers for a block; buffers of a written block are reused, because their memory is already mapped."""
        missing = self.spec.variables.keys() - set(self.evaluators[case].names)
        columns = {name: each for name, each in self._rows().items() if name not in missing}
        inputs = {name: each.shape[-2:-1] if "input" in each.dims else () for name, each in columns.items()}
        spare = self._spare.pop() if self._spare else {}
        if {name: rows.shape for name, rows in spare.items()} == {name: (*x, count) for name, x in inputs.items()}:
            return spare
        return {name: np.empty((*inputs[name], count), each.dtype) for name, each in columns.items()}

    def _region(self, open_: _Open) -> tuple[Any, ...]:
        """Return where a block's rows go in the store: the case if there are several, and the range of variants."""
        variants = slice(open_.first, open_.first + open_.count)
        return (variants,) if len(self.spec.cases) == 1 else (self.spec.place(open_.number)[0], variants)

    def finish(self, store: Store) -> None:
        """Write the summary of a sweep whose blocks are all done."""
        arrays, attrs = summary(self.spec, store.partials(), self.edges, self.weights)
        with writing(store.folder, lambda: "all blocks are kept"):
            store.finish(arrays, attrs)
