"""What a finished sweep says: all blocks' counts, best variants and fronts as one, the best ones again in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from hwopt.design.variables import Design
from hwopt.model import work
from hwopt.model.maximum import hard_maximum
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.model.roofline import gemm_time
from hwopt.model.serving.forward import pass_gemms
from hwopt.model.serving.steady_state import steady_pass
from hwopt.study.sweep import attributes
from hwopt.study.sweep.program import OUTCOMES, PARTS, Program
from hwopt.study.sweep.reductions import CELLS, INFEASIBLE, Edges, best_of, cells_of, front_of
from hwopt.study.sweep.specification import Specification
from hwopt.study.sweep.store import Column
from hwopt.workload.service import Service

Summary = dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, Any]]]
"""Name -> dimensions, numbers, attributes."""


@dataclass(frozen=True)
class _Best:
    """The best variants of a sweep in float64, best first."""

    case: np.ndarray
    variant: np.ndarray
    values: np.ndarray  # (rank, variable of the specification), NaN where a case lacks it
    metrics: np.ndarray  # (rank, metric)
    constraints: np.ndarray  # (rank, constraint of the specification), NaN likewise
    breakdown: np.ndarray  # (rank, part)
    bottleneck: np.ndarray
    possible: np.ndarray  # whether all but budgets holds
    designs: list[Design]


def summary(
    spec: Specification, partials: Mapping[str, np.ndarray], edges: Mapping[str, Edges]
) -> tuple[Summary, dict[str, Any]]:
    """Arrays of the root, and attributes that go with them.

    **Arguments:** `partials`: what all blocks left, (block, ...) each; `edges` of histograms and of the map.
    """
    made: Summary = {}
    counts = partials["counts"].sum(axis=0)
    for name, value, words in zip(
        ("evaluated", "possible_count", "feasible_count", "nonfinite_count"),
        counts,
        ("variants evaluated", "variants that hold all but budgets", "variants that hold all", "variants not finite"),
        strict=True,
    ):
        made[name] = ((), np.asarray(value), {"units": "1", "long_name": words})
    made |= _by_case(spec, partials)
    best = _best(spec, partials)
    made |= _best_arrays(spec, best)
    made |= _roofline(best)
    made |= _counts(spec, partials, edges)
    made |= _map(spec, partials, edges)
    made |= _front(spec, partials)
    feasible = bool(len(best.variant)) and _holds(best)[0]
    return made, {"best_are": "feasible" if feasible else "nearest", "finished": 1}


def _by_case(spec: Specification, partials: Mapping[str, np.ndarray]) -> Summary:
    """Counts and the least objective of feasible variants of each combination of choices; NaN where none is."""
    counts = partials["counts"].reshape(len(spec.cases), -1, partials["counts"].shape[-1]).sum(axis=1)
    ranks = partials["best_rank"].reshape(len(spec.cases), -1)
    least = np.nanmin(np.where(np.isnan(ranks), np.inf, ranks), axis=1).astype(np.float64)
    least = np.exp(np.where(least < INFEASIBLE / 2, least, np.nan))
    named = attributes.of_case(spec)
    objective = attributes.of_metric(spec.metrics[0])
    return {
        "possible_by_case": (("case",), counts[:, 1], named | {"long_name": "possible variants"}),
        "feasible_by_case": (("case",), counts[:, 2], named | {"long_name": "feasible variants"}),
        "objective_by_case": (("case",), least, named | {"long_name": "least objective", "units": objective["units"]}),
    }


def _holds(best: _Best) -> np.ndarray:
    return np.nanmax(best.constraints, axis=1) <= FEASIBILITY_TOLERANCE


def _cases(spec: Specification) -> np.ndarray:
    """Case of each block."""
    return np.repeat(np.arange(len(spec.cases), dtype=np.int8), spec.blocks_per_case)


def _best(spec: Specification, partials: Mapping[str, np.ndarray]) -> _Best:
    """Variants that all blocks together rank best, ranked again by the exact model in float64."""
    variants = partials["best_variant"]
    held = np.flatnonzero((variants >= 0).ravel() & np.isfinite(partials["best_rank"]).ravel())
    columns = {
        "rank": partials["best_rank"].ravel()[held],
        "variant": variants.ravel()[held],
        "case": np.repeat(_cases(spec), variants.shape[1])[held],
        "values": partials["best_values"].reshape(-1, partials["best_values"].shape[-1])[held].astype(np.float64),
    }
    columns = best_of(columns)
    rows = len(columns["rank"])
    names = list(spec.variables)
    metrics = np.full((rows, len(spec.metrics)), np.nan)
    constraints = np.full((rows, len(spec.constraints)), np.nan)
    breakdown, bottleneck = np.zeros((rows, len(PARTS))), np.zeros(rows, np.int8)
    designs: list[Any] = [None] * rows
    for case, program in enumerate(spec.programs):
        own = np.flatnonzero(columns["case"] == case)
        if not len(own):
            continue
        values = {name: columns["values"][own, names.index(name)] for name in program.space.variables}
        design, report, used = program.exact(_completed(program, values))
        for column, each in enumerate(spec.metrics):
            metrics[own, column] = np.broadcast_to(each.value(report), len(own))
        for column, name in enumerate(program.constraints):
            constraints[own, spec.constraints.index(name)] = used[:, column]
        breakdown[own] = np.stack([np.broadcast_to(x, len(own)) for x in report.breakdown], axis=-1)
        bottleneck[own] = report.bottleneck
        for place, row in enumerate(own):
            designs[row] = jax.tree.map(lambda leaf, place=place: leaf[place], design)
    budgets = len(spec.problem.budgets)
    own = np.nanmax(constraints[:, budgets:], axis=1) if rows else np.zeros(0)
    over = constraints[:, :budgets].max(axis=1) if budgets else np.full(rows, -np.inf)
    possible = own <= FEASIBILITY_TOLERANCE
    feasible = possible & (over <= FEASIBILITY_TOLERANCE)
    order = np.lexsort(
        (columns["variant"], np.where(feasible, metrics[:, 0], np.maximum(own, over)), ~feasible, ~possible)
    )
    if feasible.any():
        order = order[feasible[order]]
    return _Best(
        columns["case"][order], columns["variant"][order], columns["values"][order], metrics[order], constraints[order],
        breakdown[order], bottleneck[order], possible[order], [designs[i] for i in order],
    )  # fmt: skip


def _completed(program: Program, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """A column for each of the program's variables, stages filled as their whole numbers say."""
    with jax.enable_x64(True):
        given: Any = {name: np.asarray(x) for name, x in values.items()}
        made = program.space.as_given(given)
        return [
            np.broadcast_to(np.asarray(made[name]), next(iter(values.values())).shape) for name in program.variables
        ]


def _best_arrays(spec: Specification, best: _Best) -> Summary:
    made: Summary = {
        "best_variant": (("rank",), best.variant, {"units": "1", "long_name": "number of the variant"}),
        "best_case": (("rank",), best.case, attributes.of_case(spec)),
        "best_possible": (
            ("rank",), best.possible.astype(np.int8), {"units": "1", "long_name": "all constraints but budgets hold"},
        ),
        "best_bottleneck": (("rank",), best.bottleneck, attributes.BOTTLENECK),
        "best_violation": (
            ("rank",), np.nanmax(best.constraints, axis=1) if len(best.case) else np.zeros(0),
            {"units": "1", "long_name": "largest log(used / limit)"},
        ),
        "best_binding": (
            ("rank",), np.nanargmax(best.constraints, axis=1).astype(np.int8) if len(best.case) else np.zeros(0, np.int8),
            attributes.of_binding(spec),
        ),
        "best_breakdown_s": (
            ("rank", "part"), best.breakdown, attributes.flags(PARTS, "seconds of a step") | {"units": "s"},
        ),
    }  # fmt: skip
    for column, (name, each) in enumerate(spec.variables.items()):
        made[f"best_{name}"] = (("rank",), best.values[:, column], attributes.of_variable(each))
    for column, each in enumerate(spec.metrics):
        made[f"best_{each.name}"] = (("rank",), best.metrics[:, column], attributes.of_metric(each))
    budgets = spec.problem.budgets
    if budgets:
        named = attributes.flags([each.name for each in budgets], "budgets") | {
            "budget_units": " ".join(each.metric.unit for each in budgets),
            "budget_metrics": " ".join(each.metric.name for each in budgets),
        }
        limits = np.array([each.limit for each in budgets])  # of all cases: budgets are no choices
        made["best_used"] = (("rank", "budget"), np.exp(best.constraints[:, : len(budgets)]) * limits, named)
        made["budget_limit"] = (("budget",), limits, named)
    return made


def _roofline(best: _Best) -> Summary:
    """GEMMs of the best design under its chip's roof."""
    if not best.designs:
        return {}
    run, cluster, plan, _ = best.designs[0]
    with jax.enable_x64(True):
        if isinstance(run, Service):
            table, time = pass_gemms(run, cluster, *steady_pass(run, plan), hard_maximum)
        else:
            table = work.gemms(work.flow(run, plan), plan)
            time = gemm_time(table, run, cluster.chip, cluster.stack, hard_maximum)
        flops, traffic_s = np.asarray(table.flops, np.float64), np.asarray(time.hbm_s)
        seconds = np.asarray(time.compute_s + time.memory_s)
        peak = float(1.0 / np.sum(run.gemm_precision / cluster.chip.peak_flops_per_s) * cluster.chip.clock_ratio)
    bandwidth = float(cluster.chip.hbm_bandwidth_bytes_per_s)
    attainable = bandwidth * float(cluster.chip.hbm_efficiency)
    own = np.flatnonzero((flops > 0) & (seconds > 0) & (traffic_s > 0))
    named = attributes.flags([work.GEMMS[i] for i in own], "GEMMs of a micro-batch forward, or of a pass")
    return {
        "roofline_intensity": (("kernel",), flops[own] / (traffic_s[own] * attainable), named | {"units": "FLOP/B"}),
        "roofline_flops_per_s": (("kernel",), flops[own] / seconds[own], named | {"units": "FLOP/s"}),
        "roofline_peak_flops_per_s": (
            (),
            np.asarray(peak),
            {"units": "FLOP/s", "long_name": "peak of the run's formats"},
        ),
        "roofline_hbm_bytes_per_s": ((), np.asarray(bandwidth), {"units": "B/s", "long_name": "HBM bandwidth"}),
    }


def _counts(spec: Specification, partials: Mapping[str, np.ndarray], edges: Mapping[str, Edges]) -> Summary:
    made: Summary = {
        "bottleneck_count": (
            ("outcome", "part"), partials["bottleneck_count"].sum(axis=0), attributes.flags(PARTS, "variants by bottleneck"),
        ),
        "binding_count": (
            ("outcome", "constraint"), partials["binding_count"].sum(axis=0),
            attributes.flags(spec.constraints, "variants by constraint nearest to or furthest beyond its limit"),
        ),
    }  # fmt: skip
    for each in spec.metrics:
        if f"histogram_{each.name}" in partials:
            counted = partials[f"histogram_{each.name}"].sum(axis=0)
            words = f"variants by {attributes.words(each.name)} and outcome ({', '.join(OUTCOMES)})"
            made[f"histogram_{each.name}"] = (("outcome", "bin"), counted, {"units": "1", "long_name": words})
            made[f"edges_{each.name}"] = (("edge",), edges[each.name].values, attributes.of_metric(each))
    return made


def _map(spec: Specification, partials: Mapping[str, np.ndarray], edges: Mapping[str, Edges]) -> Summary:
    if spec.map is None:
        return {}
    objective, bottleneck = cells_of(partials["cells"].min(axis=0))
    x, y = spec.map
    objective_of = attributes.of_metric(spec.metrics[0]) | {"cells": "least of the possible variants of a cell"}
    return {
        "map_objective": (("map_y", "map_x"), objective.reshape(CELLS), objective_of),
        "map_bottleneck": (("map_y", "map_x"), bottleneck.reshape(CELLS), attributes.BOTTLENECK),
        "map_x_edges": (("map_x_edge",), edges["map x"].values, attributes.of_variable(spec.variables[x])),
        "map_y_edges": (("map_y_edge",), edges["map y"].values, attributes.of_variable(spec.variables[y])),
    }


def _front(spec: Specification, partials: Mapping[str, np.ndarray]) -> Summary:
    if not spec.pareto:
        return {}
    variant = partials["front_variant"]
    held = np.flatnonzero(variant.ravel() >= 0)
    names = list(spec.variables)
    values = partials["front_values"].reshape(-1, partials["front_values"].shape[-1])[held]
    columns = {"variant": variant.ravel()[held], "case": np.repeat(_cases(spec), variant.shape[1])[held]}
    columns |= {name: partials[f"front_{name}"].ravel()[held] for name in ("outcome", "bottleneck")}
    columns |= {name: values[:, i] for i, name in enumerate((*names, *(f"metric {n}" for n in spec.pareto)))}
    axes = [f"metric {name}" for name in spec.pareto]
    columns = front_of(columns, axes) if len(held) else columns
    metrics = {each.name: each for each in spec.metrics}
    made: Summary = {
        "front_variant": (("point",), columns["variant"], {"units": "1", "long_name": "number of the variant"}),
        "front_case": (("point",), columns["case"], attributes.of_case(spec)),
        "front_feasible": (
            ("point",), (columns["outcome"] == OUTCOMES.index("feasible")).astype(np.int8),
            {"units": "1", "long_name": "budgets hold too"},
        ),
        "front_bottleneck": (("point",), columns["bottleneck"], attributes.BOTTLENECK),
        "front_dropped": (
            (), partials["front_dropped"].sum(), {"units": "1", "long_name": "front points of blocks beyond their capacity"},
        ),
    }  # fmt: skip
    for name in spec.pareto:
        made[f"front_{name}"] = (("point",), columns[f"metric {name}"], attributes.of_metric(metrics[name]))
    for name, each in spec.variables.items():
        made[f"front_{name}"] = (("point",), columns[name], attributes.of_variable(each))
    return made


def as_columns(made: Summary) -> dict[str, tuple[Column, np.ndarray]]:
    """The summary as arrays of a store."""
    return {
        name: (
            Column(
                dims, values.shape, values.shape, values.dtype, np.nan if values.dtype.kind == "f" else 0, attrs,
            ),
            values,
        )
        for name, (dims, values, attrs) in made.items()
    }  # fmt: skip
