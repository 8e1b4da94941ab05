"""Sweeps: a question, many variants, one labelled dataset; on disk they survive being killed."""

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
    devices: Sequence[Any] = (),
    progress: Callable[[Progress], None] | None = None,
    options: SearchOptions | None = None,
) -> xarray.Dataset:
    """Evaluates many variants of a design question.

    Every variant is an integer design of the question's box, judged by the same model and constraints as `optimize`.

    **Arguments:**

    - `objective`: a design question; `samples`: variants of each combination of choices.
    - `out`: folder of the Zarr store; the same call again goes on where a killed one stopped, and returns a finished store at
      once. Without it the dataset stays in memory.
    - `method`: "sobol" (default), "lhs" (Latin hypercube), "grid", "table". `grid`: variable -> levels, every combination,
      rounded to the nearest design that can be built; `table`: a CSV file or columns by variable, designs as they are.
      Variables that neither names stay as the question's machine has them.
    - `sampling`: "importance" draws a quarter of the variants from the whole space and the others from nested boxes of it around
      the best design that the certified search found: within half a per cent of the optimum where there are a million variants;
      with fewer it ends sooner, after about one box for 32 variants. The attribute `optima` has that design and its bound; `weight`
      of each variant is how many of the plain space it stands for, by which shares, counts and histograms are taken. "plain" draws
      all from the whole space. By default the first, where there are 65,536 variants or more of one question, drawn by Sobol's
      sequence; the attribute `sampling_note` says why not.
    - `choices`: field of the question -> values, every combination a case of its own: `{"chip": ["h100-sxm", "b200"]}`.
    - `bounds`, `freeze`: as in `optimize`: boxes of one's own, variables or categories kept as they are.
    - `within`: sample only the neighbourhood of the certified optimum, up to this ratio to both sides of each variable: 1.1 for
      10 %. Budgets that bind leave a question so few designs that uniform points of its whole box meet none.
    - `metrics` of each variant, in place of the usual ones; the objective and what budgets limit are always there.
    - `pareto`: metrics of the front, all minimised; `map_of`: two variables of the bottleneck map.
    - `gradients`: names of variables and inputs by which the objective is differentiated for each variant; True: all variables.
    - `rows`: keep every variant; by default up to 16.8 million. Without rows, counts, histograms, best variants, front and map
      are kept, and memory does not grow with `samples`.
    - `dtype`: "float32" or "float64"; `block`: variants written at a time, what a kill loses at most.
    - `devices`: all of this process by default. `progress`: called after every tile.
    - `options` of the search that says where to draw points, and of the optimum of `within`.

    **Returns:** an `xarray.Dataset` with units and long names; its attributes hold configuration, versions and seed.

    **Raises:** `UserError` for contradictory arguments, a folder that holds something else, or a disk that fails.
    """
    search = options_of("sweep", options, SearchOptions)
    stated = partial(
        Specification, objective, samples, method=method, sampling=sampling, seed=seed, grid=grid, table=table, choices=choices,
        bounds=bounds, freeze=freeze, within=within, metrics=metrics, pareto=pareto, map_of=map_of,
        gradients=gradients, rows=rows, dtype=dtype, block=block, options=search,
    )  # fmt: skip
    if within is not None:
        stated()  # rejects invalid input, and a folder of something else, before the optimum is solved
        folder = None if out is None else place_of("sweep: out", out)
        if folder is not None and folder.is_dir() and any(folder.iterdir()):
            Store.opened(folder)
    spec = stated(optima=_optima(out, search))
    if out is None and jax.process_count() > 1:
        raise UserError("sweep: several processes share a store: name a folder that all of them see (out, --out)")
    run = SweepRun(spec, tuple(devices))

    def complete(store: Store) -> None:
        run.complete(store, progress)
        store_lock.wait("blocks")
        if jax.process_index() == 0:
            run.finish(store)

    with jax.enable_x64(spec.dtype == "float64"):
        return stored(out, run.store, complete)


def _optima(out: str | Place | None, options: SearchOptions) -> Callable[[str, Problem], KnownOptimum]:
    """Optima of questions with their proof: what the store remembers, else solved for anew.

    A store of another question is refused later, by the numbers of its boxes.
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
    """The dataset of a store, in memory or in a folder that nobody else writes to meanwhile.

    **Arguments:** `prepare`: the store of a folder, new or as it was left; `complete`: what fills and finishes it.
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
    """A store as xarray reads it: loaded from memory, lazily from disk."""
    import xarray

    dataset = with_names(xarray.open_zarr(store.group.store, chunks=None, zarr_format=3))
    return dataset.load() if store.folder is None else dataset


def opened(folder: str | Place) -> xarray.Dataset:
    """The dataset of a finished sweep; `xarray.open_zarr` does as well.

    **Raises:** `UserError` where the folder holds no sweep, or an unfinished one.
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
