"""Sweeps: a question, many variants, one labelled dataset; on disk they survive being killed."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from hwopt.design.problem import Problem
from hwopt.errors import UserError
from hwopt.study.sweep import processes
from hwopt.study.sweep.reductions import Edges
from hwopt.study.sweep.run import Progress, Run, example, finish, run
from hwopt.study.sweep.specification import Optimum, Specification, canonical, specification
from hwopt.study.sweep.store import Store, alone, same_sweep, writing

if TYPE_CHECKING:
    import xarray


def sweep(
    objective: Any,
    samples: int | None = None,
    *,
    out: str | Path | None = None,
    method: str | None = None,
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
) -> xarray.Dataset:
    """Evaluates many variants of a design question.

    Every variant is a whole-number design of the question's box, judged by the same model and constraints as `optimize`.

    **Arguments:**

    - `objective`: a design question; `samples`: variants of each combination of choices.
    - `out`: folder of the Zarr store; the same call again goes on where a killed one stopped, and returns a finished store at
      once. Without it the dataset stays in memory.
    - `method`: "sobol" (default), "lhs" (Latin hypercube), "grid", "table". `grid`: variable -> levels, every combination,
      rounded to the nearest design that can be built; `table`: a CSV file or columns by variable, designs as they are.
      Variables that neither names stay as the question's machine has them.
    - `choices`: field of the question -> values, every combination a case of its own: `{"chip": ["h100-sxm", "b200"]}`.
    - `bounds`, `freeze`: as in `optimize`: boxes of one's own, variables or categories held.
    - `within`: sample only the surroundings of the certified optimum, up to this ratio to both sides of each variable: 1.1 for
      10 %. Budgets that bind leave a question so few designs that uniform points of its whole box meet none.
    - `metrics` of each variant, in place of the usual ones; the objective and what budgets limit are always there.
    - `pareto`: metrics of the front, all made small; `map_of`: two variables of the bottleneck map.
    - `gradients`: names of variables and inputs by which the objective is differentiated for each variant; True: all variables.
    - `rows`: keep every variant; by default up to 16.8 million. Without rows, counts, histograms, best variants, front and map
      are kept, and memory does not grow with `samples`.
    - `dtype`: "float32" or "float64"; `block`: variants written at a time, what a kill loses at most.
    - `devices`: all of this process by default. `progress`: called after every tile.

    **Returns:** an `xarray.Dataset` with units and long names; its attributes hold configuration, versions and seed.

    **Raises:** `UserError` for what cannot be meant, a folder that holds something else, or a disk that fails.
    """
    spec = specification(
        objective, samples, method=method, seed=seed, grid=grid, table=table, choices=choices, bounds=bounds, freeze=freeze,
        within=within, optima=_optima(out), metrics=metrics, pareto=pareto, map_of=map_of, gradients=gradients, rows=rows,
        dtype=dtype, block=block,
    )  # fmt: skip
    return swept(spec, out, devices=devices, progress=progress)


def _optima(out: str | Path | None) -> Callable[[str, Problem], Optimum]:
    """Optima of questions with their proof: what the store remembers, else found anew.

    A store of another question is refused later, by the numbers of its boxes.
    """
    known: dict[str, Any] = {}
    if out is not None:
        with contextlib.suppress(UserError, ValueError):
            known = json.loads(str(Store.opened(Path(out)).attributes.get("optima", "{}")))

    def optimum(name: str, problem: Problem) -> Optimum:
        if name in known:
            held = known[name]
            return Optimum(**held | {"lower_bound": math.nan if held["lower_bound"] is None else held["lower_bound"]})
        from hwopt.optim.optimize import optimize

        found = optimize(problem)
        proved = found.certificate.lower_bound
        design = {name: each.value for name, each in found.design.items()}
        return Optimum(design, found.objective, math.nan if proved is None else proved, found.feasible)

    return optimum


def swept(
    spec: Specification,
    out: str | Path | None = None,
    *,
    devices: Sequence[Any] = (),
    progress: Callable[[Progress], None] | None = None,
) -> xarray.Dataset:
    """The dataset of a specification; arguments as in `sweep`."""
    with jax.enable_x64(spec.kind == "float64"):
        run_ = Run(spec, tuple(devices))
        if out is None:
            if jax.process_count() > 1:
                raise UserError(
                    "sweep: several processes share a store: name a folder that all of them see (out, --out)"
                )
            store, edges = _prepared(run_, None)
            run(run_, store, edges, progress)
            finish(run_, store, edges)
            return _dataset(store)
        folder = Path(out).expanduser().absolute()
        first = jax.process_index() == 0
        with alone(folder) if first else contextlib.nullcontext():
            store, edges = processes.in_turn(lambda: _prepared(run_, folder))
            if not store.finished:
                run(run_, store, edges, progress)
                processes.wait("blocks")
                if first:
                    finish(run_, store, edges)
            processes.wait("summary")
        return _dataset(Store.opened(folder))


def _prepared(run_: Run, folder: Path | None) -> tuple[Store, dict[str, Edges]]:
    """The store of a sweep, new or as it was left, and the bins it counts by."""
    spec = run_.spec
    configuration = canonical(spec.document())
    versions = canonical(spec.versions())
    if folder is not None and folder.exists() and not folder.is_dir():
        raise UserError(f"sweep: {folder} is a file; a sweep needs a folder")
    if folder is None or not folder.exists() or not any(folder.iterdir()):
        edges = run_.pilot()
        attrs = _attributes(spec, configuration, versions) | {
            "edges": canonical({name: [x.low, x.high, x.count] for name, x in edges.items()})
        }
        store = Store.created(folder, attrs, run_.columns(), example(run_, edges), spec.blocks)
        return store, edges
    with writing(folder, lambda: "nothing was changed"):
        store = Store.opened(folder)
    held = store.attributes
    differing = same_sweep(str(held.get("configuration", "{}")), configuration)
    if differing:
        raise UserError(
            f"sweep: {folder} holds another sweep (it differs in {', '.join(differing)}): choose another --out"
        )
    if held.get("versions") != versions:
        changed = ", ".join(same_sweep(str(held.get("versions", "{}")), versions))
        if not store.finished:
            raise UserError(
                f"sweep: {folder} was begun by other versions of {changed}: finish it with those, or choose another --out"
            )
    if jax.process_index() == 0 and not store.finished:
        with writing(folder, lambda: "nothing was changed"):
            store.sweep_up()
    return store, {name: Edges(*x) for name, x in json.loads(str(held["edges"])).items()}


def _attributes(spec: Specification, configuration: str, versions: str) -> dict[str, Any]:
    problem = spec.problem
    return {
        "title": problem.name,
        "question": problem.question,
        "objective": problem.objective.name,
        "objective_unit": problem.objective.unit,
        "metrics": " ".join(each.name for each in spec.metrics),
        "variables": " ".join(spec.variables),
        "pareto": " ".join(spec.pareto),
        "map_variables": " ".join(spec.map or ()),
        "cases": " ".join(case.name for case in spec.cases),
        "samples": spec.samples,
        "method": spec.method,
        "seed": spec.seed,
        "dtype": spec.kind,
        "configuration": configuration,
        "versions": versions,
        "optima": canonical({case.name: case.optimum._asdict() for case in spec.cases if case.optimum is not None}),
        "sources": "\n".join(dict.fromkeys(text for case in spec.cases for text in case.problem.sources)),
    }


def _dataset(store: Store) -> xarray.Dataset:
    """A store as xarray reads it: loaded from memory, lazily from disk."""
    import xarray

    made = xarray.open_zarr(store.group.store, chunks=None)
    return made.load() if store.folder is None else made


def opened(folder: str | Path) -> xarray.Dataset:
    """The dataset of a finished sweep; `xarray.open_zarr` does as well.

    **Raises:** `UserError` where the folder holds no sweep, or an unfinished one.
    """
    store = Store.opened(Path(folder))
    if not store.finished:
        done = store.done()
        raise UserError(
            f"sweep: {folder} is unfinished ({int(np.sum(done))} of {len(done)} blocks): run its command again"
        )
    return _dataset(store)
