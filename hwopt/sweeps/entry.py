"""Public functions for design-space sweeps: one design problem, many variants, one labeled dataset that survives a kill."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from hwopt.design.problem import Problem
from hwopt.errors import UserError
from hwopt.options import options_of
from hwopt.solver.options import SearchOptions
from hwopt.sweeps import store_lock
from hwopt.sweeps.coordinates import with_names
from hwopt.sweeps.integrity import find_damage
from hwopt.sweeps.run import Progress, SweepRun
from hwopt.sweeps.specification import KnownOptimum, Specification
from hwopt.sweeps.storage import Place, place_of
from hwopt.sweeps.store import Store

if TYPE_CHECKING:
    import xarray


def sweep(
    objective: Any,
    samples: int | None = None,
    *,
    out: str | Place | None = None,
    method: str | None = None,
    sampling: str | None = None,
    seed: int = 0,
    grid: Mapping[str, Sequence[float]] | None = None,
    table: str | Path | Mapping[str, Sequence[float]] | None = None,
    choices: Mapping[str, Sequence[str]] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    freeze: Sequence[str] = (),
    within: float | None = None,
    metrics: Sequence[str] = (),
    pareto: Sequence[str] | None = None,
    map_of: Sequence[str] | None = None,
    gradients: Sequence[str] | bool = (),
    rows: bool | None = None,
    dtype: str = "float32",
    block: int | None = None,
    as_sold: bool = False,
    devices: Sequence[Any] = (),
    progress: Callable[[Progress], None] | None = None,
    options: SearchOptions | None = None,
) -> xarray.Dataset:
    """Evaluate many variants of a design problem.

    Every variant is an integer design within the bounds of the problem. It is evaluated by the same model and constraints as in
    `optimize`.

    **Arguments:**

    - `objective`: a design problem; `samples`: number of variants for each combination of choices.
    - `out`: folder of the Zarr store. The same call again resumes a killed sweep, and returns a finished one at once. Without
      it the dataset stays in memory.
    - `method`: "sobol" (default), "lhs" (Latin hypercube), "grid" or "table".
    - `grid`: variable -> levels. Every combination is evaluated, rounded to the nearest buildable design.
    - `table`: a CSV file, or columns by variable; designs are evaluated as given. Variables missing from the grid or table keep
      the values of the machine in the design problem.
    - `sampling`: "importance" draws a quarter of the variants from the whole space. The others come from nested boxes around
      the best design of the branch-and-bound search. That search ends within half a per cent of the optimum for a million
      variants; for fewer it ends sooner, after about one node per 32 variants. The attribute `optima` has that design and its
      lower bound. The `weight` of a variant is the number of uniformly drawn variants that it represents; shares, counts and
      histograms use it. "plain" draws all variants from the whole space. Default: "importance" for a Sobol sweep of 65,536 or
      more variants of one problem, otherwise "plain"; the attribute `sampling_note` gives the reason.
    - `choices`: field of the design problem -> values; every combination becomes one case: `{"chip": ["h100-sxm", "b200"]}`.
    - `bounds`, `freeze`: as in `optimize`: custom bounds, and variables or categories that are not varied.
    - `within`: sample only the neighborhood of the certified optimum, up to this ratio to both sides of each variable: 1.1 for
      10 %. With binding budgets, feasible designs can be so rare that uniform samples of the whole space contain none.
    - `metrics`: metrics of each variant instead of the defaults. The objective and the budgeted metrics are always included.
      A metric with the name of a variable (`clock_ratio`) is left out: the column of this name is the variable.
    - `pareto`: metrics of the Pareto front, all minimized; `map_of`: the two variables of the bottleneck map.
    - `gradients`: names of variables and inputs with respect to which the objective is differentiated, for each variant. True
      means all variables.
    - `rows`: store every variant; default: up to 16.8 million variants. Without rows the store has counts, histograms, best
      variants, front and map, and memory does not grow with `samples`.
    - `dtype`: "float32" or "float64"; `block`: variants written at a time, the most that a kill can lose.
    - `as_sold`: whether variants are machines that `optimize` searches: systems as sold with plans that the software documents.
      By default, hardware is continuous and free.
    - `devices`: devices to use, by default all of this process; `progress`: callback after every tile.
    - `options`: options of the search for the importance-sampling boxes and for the optimum of `within`.

    **Returns:** an `xarray.Dataset` with units and long names. Its attributes contain configuration, versions and seed.

    **Raises:** `UserError` for contradictory arguments, a folder that contains something else, or a disk failure.
    """
    search = options_of("sweep", options, SearchOptions)
    stated = partial(
        Specification, objective, samples, method=method, sampling=sampling, seed=seed, grid=grid, table=table, choices=choices,
        bounds=bounds, freeze=freeze, within=within, metrics=metrics, pareto=pareto, map_of=map_of,
        gradients=gradients, rows=rows, dtype=dtype, block=block, as_sold=as_sold, options=search,
    )  # fmt: skip
    if within is not None:
        stated()  # rejects invalid input, and a folder of something else, before the optimum is solved
        folder = None if out is None else place_of("sweep: out", out)
        if folder is not None and folder.is_dir() and any(folder.iterdir()):
            Store.opened(folder)
    spec = stated(optima=_optima(out, search))
    if out is None and jax.process_count() > 1:
        raise UserError(
            "sweep: processes that share a sweep need one store: pass out (--out), a folder that all of them can access"
        )
    run = SweepRun(spec, tuple(devices))

    def complete(store: Store) -> None:
        run.complete(store, progress)
        store_lock.wait("blocks")
        if jax.process_index() == 0:
            run.finish(store)

    with jax.enable_x64(spec.dtype == "float64"):
        return stored(out, run.store, complete)


def _optima(out: str | Place | None, options: SearchOptions) -> Callable[[str, Problem], KnownOptimum]:
    """Return a function that gives the certified optimum of a case: stored in `out` if available, otherwise solved.

    A store of a different design problem is rejected later, because its variable bounds differ.
    """
    known: dict[str, Any] = {}
    if out is not None:
        with contextlib.suppress(UserError, OSError):
            known = Store.opened(place_of("sweep: out", out)).attribute("optima")

    def optimum(name: str, problem: Problem) -> KnownOptimum:
        if name in known:
            bound = known[name]["lower_bound"]
            return KnownOptimum(**known[name] | {"lower_bound": math.nan if bound is None else bound})
        from hwopt.solver.optimize import optimize

        solution = optimize(problem, options=options)
        bound = solution.certificate.lower_bound
        design = {name: each.value for name, each in solution.design.items()}
        return KnownOptimum(design, solution.objective, math.nan if bound is None else bound, solution.feasible)

    return optimum


def stored(
    out: str | Place | None, prepare: Callable[[Place | None], Store], complete: Callable[[Store], None]
) -> xarray.Dataset:
    """Return the dataset of a store, in memory or in a folder locked against other writers.

    **Arguments:**

    - `prepare`: opens the store of a folder, new or partly filled.
    - `complete`: fills and finishes the store.
    """
    if out is None:
        store = prepare(None)
        complete(store)
        return _dataset(store)
    folder = place_of("sweep: out", out, room=len(store_lock.BESIDE))
    with store_lock.exclusive(folder) if jax.process_index() == 0 else contextlib.nullcontext():
        store = store_lock.first_process_first(lambda: prepare(folder))
        if not store.finished:
            complete(store)
        store_lock.wait("summary")
    return _dataset(Store.opened(folder))


def _dataset(store: Store) -> xarray.Dataset:
    """Open a store with xarray: fully loaded for a store in memory, lazily for one on disk."""
    import xarray

    dataset = with_names(xarray.open_zarr(store.group.store, chunks=None, zarr_format=3))
    return dataset.load() if store.folder is None else dataset


def opened(folder: str | Place) -> xarray.Dataset:
    """Open the dataset of a finished sweep; `xarray.open_zarr` works too.

    **Raises:** `UserError` for a folder without a sweep, or with an unfinished or damaged one.
    """
    store = Store.opened(place_of("sweep:", folder))
    if not store.finished:
        done = store.done()
        raise UserError(
            f"sweep: {folder} is unfinished ({int(np.sum(done))} of {len(done)} blocks): run its command again"
        )
    if wrong := find_damage(store):
        raise UserError(f"sweep: {folder} is damaged ({wrong}): run its command again")
    return _dataset(store)
