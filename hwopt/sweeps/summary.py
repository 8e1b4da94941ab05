"""Summary of a finished sweep: merged counts, best variants and fronts of all blocks, with the best re-evaluated in float64."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from hwopt.design.design import Design
from hwopt.hardware.cluster import Cluster
from hwopt.model.kernels import kernel_names, kernels
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.sweeps.attributes import BOTTLENECK, flags, number, of_binding, of_case, of_metric, of_variable
from hwopt.sweeps.program import OUTCOMES, PARTS
from hwopt.sweeps.reductions import CELLS, INFEASIBLE, Edges, best_of, cells_of, front_of
from hwopt.sweeps.specification import Specification
from hwopt.sweeps.store import Summary
from hwopt.trace.cache import evaluate_in_numpy
from hwopt.units import label
from hwopt.workload.operators import Operators

Arrays = Mapping[str, np.ndarray]


def summary(
    spec: Specification, partials: Arrays, edges: Mapping[str, Edges], weights: np.ndarray
) -> tuple[Summary, dict[str, Any]]:
    """Return the summary arrays of the root group, and attributes that accompany them.

    **Arguments:**

    - `partials`: reduced data of all blocks, (block, ...) each.
    - `edges`: edges of the histograms and of the map.
    - `weights`: importance weight of a variant, by sampling level.
    """
    best, design = _best(spec, partials)
    counted = {
        name: partials[name].sum(axis=0, dtype=np.int64) for name in partials if name in _counted(spec, partials)
    }
    raw = counted["counts"] if len(weights) == 1 else counted["counts"].sum(axis=0)
    shares = _shares(np.atleast_2d(counted["counts"]), weights)
    if len(weights) > 1:
        counted = {name: np.tensordot(weights, x, 1) for name, x in counted.items()}
    partials = dict(partials) | {"counts": partials["counts"].sum(axis=1) if len(weights) > 1 else partials["counts"]}
    arrays = _counts(spec, raw, counted, edges) | shares | _by_case(spec, partials) | _best_arrays(spec, best)
    arrays |= _roofline(design) | _map(spec, partials, counted, edges) | _front(spec, partials)
    feasible = bool(best["feasible"].any())
    return arrays, {"best_are": "feasible" if feasible else "nearest", "finished": 1}


def _counted(spec: Specification, partials: Arrays) -> tuple[str, ...]:
    """Return the names of the arrays that count variants."""
    histograms = [f"histogram_{each.name}" for each in spec.metrics]
    return ("counts", "bottleneck_count", "binding_count", "cell_count", *histograms)


def _shares(counts: np.ndarray, weights: np.ndarray) -> Summary:
    """Return the feasible and possible shares of the space, with standard errors that assume independent points.

    Weights are not normalized by their sum: their mean is 1 anyway, and the estimates stay unbiased.

    **Arguments:** `counts` (level, category): evaluated, possible, feasible.
    """
    evaluated = counts[:, 0].sum()
    arrays: Summary = {}
    for column, name in ((1, "possible"), (2, "feasible")):
        share = weights @ counts[:, column] / evaluated
        variance = max(0.0, weights**2 @ counts[:, column] / evaluated - share**2) / evaluated
        arrays[f"{name}_share"] = ("", share, number(f"share of the plain space that is {name}"))
        arrays[f"{name}_share_error"] = ("", np.sqrt(variance), number("its standard error"))
    return arrays


def _counts(spec: Specification, raw: np.ndarray, counted: Arrays, edges: Mapping[str, Edges]) -> Summary:
    """Return the number of variants by outcome, bottleneck, binding constraint and histogram bin.

    **Arguments:** `raw`: unweighted counts; `counted`: weighted counts.
    """
    evaluated, possible, feasible, nonfinite = raw
    binding = "variants by constraint nearest to or furthest beyond its limit"
    arrays: Summary = {
        "evaluated": ("", evaluated, number("variants evaluated")),
        "possible_count": ("", possible, number("variants that hold all but budgets")),
        "feasible_count": ("", feasible, number("variants that hold all")),
        "nonfinite_count": ("", nonfinite, number("variants not finite")),
        "bottleneck_count": ("outcome part", counted["bottleneck_count"], flags(PARTS, "variants by bottleneck")),
        "binding_count": ("outcome constraint", counted["binding_count"], flags(spec.constraints, binding)),
    }
    for each in spec.metrics:
        if f"histogram_{each.name}" in counted:
            words = f"variants by {label(each.name, each.unit)} and outcome ({', '.join(OUTCOMES)})"
            arrays[f"histogram_{each.name}"] = ("outcome bin", counted[f"histogram_{each.name}"], number(words))
            arrays[f"edges_{each.name}"] = ("edge", edges[each.name].values, of_metric(each))
    return arrays


def _by_case(spec: Specification, partials: Arrays) -> Summary:
    """Return the feasible and possible counts and the minimum objective of each case; NaN without a feasible variant."""
    counts = partials["counts"].reshape(len(spec.cases), -1, partials["counts"].shape[-1]).sum(axis=1)
    ranks = partials["best_rank"].reshape(len(spec.cases), -1)
    least = np.nanmin(np.where(np.isnan(ranks), np.inf, ranks), axis=1).astype(np.float64)
    least = np.exp(np.where(least < INFEASIBLE / 2, least, np.nan))
    names, unit = of_case(spec), spec.metrics[0].unit
    return {
        "possible_by_case": ("case", counts[:, 1], names | number("possible variants")),
        "feasible_by_case": ("case", counts[:, 2], names | number("feasible variants")),
        "objective_by_case": ("case", least, names | number("least objective", unit)),
    }


def _rows(spec: Specification, partials: Arrays, kind: str, *more: str) -> dict[str, np.ndarray]:
    """Concatenate the best or front rows of all blocks into columns: variant, case, `more`, and values (row, name)."""
    variant = partials[f"{kind}_variant"]
    own = np.flatnonzero(variant.ravel() >= 0)
    case = np.repeat(np.arange(len(spec.cases), dtype=np.int8), spec.blocks_per_case * variant.shape[1])
    values = partials[f"{kind}_values"]
    columns = {name: partials[f"{kind}_{name}"].ravel()[own] for name in ("variant", *more)}
    return columns | {"case": case[own], "values": values.reshape(-1, values.shape[-1])[own]}


def _best(spec: Specification, partials: Arrays) -> tuple[dict[str, np.ndarray], Design | None]:
    """Select the best variants over all blocks, and rerank them with the exact model in float64.

    **Returns:** the design of the best variant, after columns (rank, ...):

    - case, variant, and values of the specification's variables.
    - metrics, and constraints (NaN if a case lacks one).
    - `near`: constraints without those that never count as binding.
    - breakdown and bottleneck.
    - possible (all constraints except budgets are satisfied) and feasible.
    """
    rows = _rows(spec, partials, "best", "rank")
    columns = best_of({name: x[np.isfinite(rows["rank"])] for name, x in rows.items()})
    columns["values"] = columns["values"].astype(np.float64)
    size, names, exacts = len(columns["rank"]), list(spec.variables), {}
    columns |= {
        "metrics": np.full((size, len(spec.metrics)), np.nan),
        "constraints": np.full((size, len(spec.constraints)), np.nan),
        "near": np.full((size, len(spec.constraints)), -np.inf),
        "breakdown": np.zeros((size, len(PARTS))),
        "bottleneck": np.zeros(size, np.int8),
    }
    for case, program in enumerate(spec.programs):
        own = np.flatnonzero(columns["case"] == case)
        if not len(own):
            continue
        listed = tuple(program.space.variables)
        points = program.space.points("values", listed)
        complete = points.on_numbers(*(columns["values"][own, names.index(name)] for name in listed))
        designs = [np.broadcast_to(each, len(own)) for each in complete]
        exact, used = program.exact(designs)
        for column, each in enumerate(spec.metrics):
            columns["metrics"][own, column] = np.broadcast_to(each.value(exact.report), len(own))
        for column, name in enumerate(program.constraints):
            place, holds = spec.constraints.index(name), used[:, column] <= FEASIBILITY_TOLERANCE
            columns["constraints"][own, place] = used[:, column]
            columns["near"][own, place] = np.where(holds & (column in program.never_near), -np.inf, used[:, column])
        columns["breakdown"][own] = np.stack([np.broadcast_to(x, len(own)) for x in exact.report.breakdown], axis=-1)
        columns["bottleneck"][own] = exact.report.bottleneck
        exacts |= {row: (exact, place) for place, row in enumerate(own)}
    budgets, constraints = len(spec.problem.budgets), columns["constraints"]
    beyond = np.nanmax(constraints[:, budgets:], axis=1, initial=-np.inf)
    over = constraints[:, :budgets].max(axis=1, initial=-np.inf)
    possible = columns["possible"] = beyond <= FEASIBILITY_TOLERANCE
    feasible = columns["feasible"] = possible & (over <= FEASIBILITY_TOLERANCE)
    goal = np.where(feasible, columns["metrics"][:, 0], np.maximum(beyond, over))
    order = np.lexsort((columns["variant"], goal, ~feasible, ~possible))
    order = order[feasible[order]] if feasible.any() else order
    if not len(order):
        return columns, None
    exact, place = exacts[order[0]]
    return {name: x[order] for name, x in columns.items()}, exact.one(place).design


def _best_arrays(spec: Specification, best: Arrays) -> Summary:
    constraints, budgets = best["constraints"], spec.problem.budgets
    worst = np.nanargmax(best["near"], axis=1) if len(constraints) else np.zeros(0, int)
    violation = np.take_along_axis(best["near"], worst[:, None], axis=1)[:, 0]
    possible = best["possible"].astype(np.int8)
    arrays: Summary = {
        "best_variant": ("rank", best["variant"], number("number of the variant")),
        "best_case": ("rank", best["case"], of_case(spec)),
        "best_possible": ("rank", possible, number("all constraints but budgets hold")),
        "best_bottleneck": ("rank", best["bottleneck"], BOTTLENECK),
        "best_violation": ("rank", violation, number("largest log(used / limit)")),
        "best_binding": ("rank", worst.astype(np.int8), of_binding(spec)),
        "best_breakdown_s": ("rank part", best["breakdown"], flags(PARTS, "seconds of a step") | {"units": "s"}),
    }
    for column, (name, each) in enumerate(spec.variables.items()):
        arrays[f"best_{name}"] = ("rank", best["values"][:, column], of_variable(each))
    for column, each in enumerate(spec.metrics):
        arrays[f"best_{each.name}"] = ("rank", best["metrics"][:, column], of_metric(each))
    if budgets:
        names = flags([each.name for each in budgets], "budgets") | {
            "budget_units": " ".join(each.metric.unit or "1" for each in budgets),
            "budget_metrics": " ".join(each.metric.name for each in budgets),
        }
        limits = spec.problem.limits  # the same in all cases, because budgets are not choices
        arrays["best_used"] = ("rank budget", np.exp(constraints[:, : len(budgets)]) * limits, names)
        arrays["budget_limit"] = ("budget", limits, names)
    return arrays


def _roofline(design: Design | None) -> Summary:
    """Return the roofline of the GEMMs of the best design: arithmetic intensity, FLOP/s, and the limits of the chip."""
    if design is None:
        return {}
    cluster = design.inputs.cluster
    flops, traffic_s, seconds, peak = evaluate_in_numpy(_kernels, *design.inputs)
    bandwidth = float(cluster.chip.hbm_bandwidth_bytes_per_s)
    attainable = bandwidth * float(cluster.chip.hbm_efficiency)
    own = np.flatnonzero((flops > 0) & (seconds > 0) & (traffic_s > 0))
    model: Any = getattr(design.inputs.workload, "model", None)
    each = [f"operator {i + 1}" for i in range(flops.size)] if isinstance(model, Operators) else kernel_names(model)
    names = flags([each[i] for i in own], "GEMMs of a micro-batch forward, or of a pass")
    return {
        "roofline_intensity": ("kernel", flops[own] / (traffic_s[own] * attainable), names | {"units": "FLOP/B"}),
        "roofline_flops_per_s": ("kernel", flops[own] / seconds[own], names | {"units": "FLOP/s"}),
        "roofline_peak_flops_per_s": ("", peak, number("peak of the run's formats", "FLOP/s")),
        "roofline_hbm_bytes_per_s": ("", bandwidth, number("HBM bandwidth", "B/s")),
    }


def _kernels(run: Any, cluster: Cluster, plan: Any) -> tuple[Any, ...]:
    """Return FLOP, seconds of HBM traffic and seconds of each GEMM, and the peak in the run's formats (FLOP/s)."""
    table, time = kernels(run, cluster, plan)
    peak = cluster.chip.clock_ratio / jnp.sum(run.gemm_precision / cluster.chip.peak_flops_per_s)
    return table.flops, time.hbm_s, time.compute_s + time.memory_s, peak


def _map(spec: Specification, partials: Arrays, counted: Arrays, edges: Mapping[str, Edges]) -> Summary:
    if not spec.map:
        return {}
    objective, bottleneck = cells_of(partials["cells"].min(axis=0).reshape(CELLS))
    x, y = (spec.variables[name] for name in spec.map)
    of_objective = of_metric(spec.metrics[0]) | {"cells": "least of the possible variants of a cell"}
    outcomes = counted["cell_count"].reshape(len(OUTCOMES), *CELLS)
    with np.errstate(all="ignore"):
        possible, feasible = outcomes[1:].sum(axis=0) / outcomes.sum(axis=0), outcomes[2] / outcomes.sum(axis=0)
    of_share = lambda words: number(f"share of a cell's plain variants that are {words}")
    # Blocks are ordered by case, equally many each.
    case = np.where(np.isfinite(objective), partials["cells"].argmin(axis=0).reshape(CELLS) // spec.blocks_per_case, -1)
    several = {"map_case": ("map_y map_x", case.astype(np.int8), of_case(spec))} if len(spec.cases) > 1 else {}
    return several | {
        "map_possible_share": ("map_y map_x", possible, of_share("possible")),
        "map_feasible_share": ("map_y map_x", feasible, of_share("feasible")),
        "map_objective": ("map_y map_x", objective, of_objective),
        "map_bottleneck": ("map_y map_x", bottleneck, BOTTLENECK),
        "map_x_edges": ("map_x_edge", edges["map x"].values, of_variable(x)),
        "map_y_edges": ("map_y_edge", edges["map y"].values, of_variable(y)),
    }


def _front(spec: Specification, partials: Arrays) -> Summary:
    if not spec.pareto:
        return {}
    columns = _rows(spec, partials, "front", "outcome", "bottleneck")
    axes = [f"metric {name}" for name in spec.pareto]
    columns |= dict(zip([*spec.variables, *axes], columns.pop("values").T, strict=True))
    if len(columns["variant"]):
        columns = front_of(columns, axes)
    feasible = (columns["outcome"] == OUTCOMES.index("feasible")).astype(np.int8)
    dropped = partials["front_dropped"].sum()
    metrics = {each.name: each for each in spec.metrics}
    arrays: Summary = {
        "front_variant": ("point", columns["variant"], number("number of the variant")),
        "front_case": ("point", columns["case"], of_case(spec)),
        "front_feasible": ("point", feasible, number("budgets hold too")),
        "front_bottleneck": ("point", columns["bottleneck"], BOTTLENECK),
        "front_dropped": ("", dropped, number("front points of blocks beyond their capacity")),
    }
    arrays |= {f"front_{n}": ("point", columns[f"metric {n}"], of_metric(metrics[n])) for n in spec.pareto}
    return arrays | {f"front_{n}": ("point", columns[n], of_variable(each)) for n, each in spec.variables.items()}
