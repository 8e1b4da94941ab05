"""Lattice (declared set) of all integer serving plans of a fixed cluster, and its points as plans."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any

import jax
import numpy as np

from hwopt.catalog.plans import plan_leaves
from hwopt.design.plan_lattice import named, plan_lattice, plan_relations, serving_sizes, spread_degrees
from hwopt.design.serving_layouts import LAYOUTS
from hwopt.design.variables import count_of
from hwopt.errors import UserError
from hwopt.hardware.cluster import Cluster
from hwopt.integers.enumeration import divisors, enumerate_points
from hwopt.integers.relations import AllowedRange, ConditionalRelation, Relation, at_least, at_most
from hwopt.integers.system import System
from hwopt.model.serving import cache
from hwopt.plan import Disaggregated, Plan, ServingLayout, stage_layers
from hwopt.planning.plan_table import MOST_PLANS, PlanTable
from hwopt.stack import Stack
from hwopt.workload.service import Service
from hwopt.workload.transformer import cache_copies, tensor_degrees

_DEGREES = ("tp", "pp", "dp", "ep", "expert_tp")
"""Columns that distinguish plans: two plans that differ only in batch size count as one."""


def batch_sizes(most: float) -> list[int]:
    """Return batch sizes up to `most`: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, ... (powers of two, and three sizes
    between them).
    """
    batches = dict.fromkeys(batch for k in range(64) for batch in (part * 2**k // 4 for part in (4, 5, 6, 7)))
    return [batch for batch in batches if batch <= max(most, 1)]


def most_sequences(service: Service, cluster: Cluster, tp: list[int]) -> np.ndarray:
    """Return the number of sequences whose KV cache alone fills the memory of a single-stage replica, for each `tp`.

    Without a decode phase these are prompts. A replica of p stages processes p such batches of sequences, on p times the
    chips.
    """
    degrees = np.asarray(tp, np.float64)
    ones = np.ones_like(degrees)
    named = dict.fromkeys(("pp", "dp", "ep", "expert_tp", "micro_batch", "fullest_stage", "last_stage"), ones)
    with jax.enable_x64(True):
        tokens = service.mean_context if float(service.decodes) else service.input_tokens
        plans = plan_leaves(named | {"tp": degrees})
        each = cache.sequence_bytes(service, plans, cluster.stack, tokens)
        return np.asarray(cluster.chip.hbm_capacity_bytes / (each * service.model.layers))


def serving_plan_system(service: Service, cluster: Cluster, chips: int, batch: int | None = None) -> System:
    """Return the integer system of serving plans on `chips` chips.

    Batch sizes are those of `batch_sizes`, or divisors of `batch`, up to the number of sequences whose KV cache fits in
    memory. In layout 1 the weights stay in place. In layout 2 they are sharded over replicas and gathered layer by layer;
    only prefill uses it, if the software stack supports it. `layout_integers` adds the layouts that few stacks support.

    **Arguments:**

    - `service`, `cluster`: workload and hardware.
    - `chips`: number of chips.
    - `batch`: sequences that the whole machine processes at a time; None allows any batch size.
    """
    layers, experts = count_of(service.model.layers), count_of(service.model.experts)
    degrees = [tp for tp in tensor_degrees(service.model) if chips % tp == 0]
    fills = dict(zip(degrees, most_sequences(service, cluster, degrees), strict=True))
    by_degree = np.array([max(fills.get(tp, 1.0), 1.0) for tp in range(max(degrees) + 1)])
    stages_too = 0.0 if float(service.decodes) else 1.0  # prefill: prompts of all stages are in flight at once

    def most(columns: Mapping[str, np.ndarray]) -> np.ndarray:
        split = columns.get("cache_split", 1.0)
        return by_degree[columns["tp"].astype(int)] * columns["pp"] ** stages_too * split

    further, further_relations = layout_integers(service, cluster.stack, chips)
    split = "cache_split" in further
    layouts = 2 if _gathers(service, cluster) else 1
    largest = max(fills.values()) * (layers + 2.0) ** stages_too * (max(degrees) if split else 1)
    batches = batch_sizes(largest) if batch is None else [each for each in divisors(batch) if each <= max(largest, 1.0)]
    values = {
        "tp": degrees, "pp": range(1, layers + 3), "dp": range(1, chips + 1),
        "ep": spread_degrees(experts, "slots" in further, chips), "expert_tp": range(1, max(degrees) + 1),
        "batch": batches, "layout": range(1, layouts + 1), **further,
    }  # fmt: skip
    sizes = serving_sizes(service, cluster.stack, named(*values), chips=(chips, chips), batch=(batch or 1, batch or 1))
    relations = [
        *plan_relations(sizes, "chips", "chunks", "expert_tp", "experts", *(["held"] if batch is not None else [])),
        at_most(("batch",), AllowedRange(("tp", "pp", *(["cache_split"] if split else [])), most)),
        at_most(("layout",), 1.0, over=("dp",)),
        *further_relations,
    ]
    return plan_lattice(values, relations)


def _gathers(service: Service, cluster: Cluster) -> bool:
    """Return whether weights may be gathered layer by layer: for large prefill batches, if the stack supports it."""
    return bool(float(cluster.stack.layouts_sharded)) and not float(service.decodes)


def layout_integers(service: Service, stack: Stack, chips: int) -> tuple[dict[str, range], list[Relation]]:
    """Return the integers of the optional layouts that a stack supports, where they can matter, and their relations.

    - `slots`: 1 if ranks hold only as many redundant experts as fill all ranks, 2 with one more per rank.
    - `halves`: 2 if a batch is processed in two halves that overlap communication with compute, else 1.
    - `cache_split`: number of ranks that share one KV cache by token instead of replicating it; it divides their number,
      `t` or `t / k`.
    """
    has = {name: float(getattr(stack, name)) > 0.0 for name in LAYOUTS}
    model = service.model
    experts = count_of(model.experts)
    values: dict[str, range] = {}
    relations: list[Relation] = []
    if has["redundant_experts"] and experts and chips > 1:
        values["slots"] = range(1, 3)
        relations += [
            at_most(("slots",), 1.0, over=("ep",)),
            ConditionalRelation("slots", 2, at_most(("ep",), float(experts))),
        ]
    if has["two_batches"] and experts and chips > 1:
        values["halves"] = range(1, 3)
        relations += [ConditionalRelation("halves", 2, at_least((name,), 2.0)) for name in ("ep", "batch")]
    most = max(cache_copies(model, each) for each in tensor_degrees(model) if chips % each == 0)
    if has["cache_split"] and float(service.decodes) and most > 1:
        values["cache_split"] = range(1, most + 1)
        relations += plan_relations(serving_sizes(service, stack, named("tp", "cache_split")), "cache_split")
    return values, relations


def laid_out(rows: Mapping[str, np.ndarray], experts: int) -> dict[str, Any]:
    """Return the layouts of plans from the columns of their integers; an empty mapping if there are no such columns."""
    if not {"slots", "halves", "cache_split"} & rows.keys():
        return {}
    ones = np.ones(len(rows["tp"]))
    column = lambda name: np.asarray(rows.get(name, ones), np.float64)
    ep = column("ep")
    slots = np.ceil(experts / ep) + column("slots") - 1.0 if "slots" in rows else experts / ep
    leaves: dict[str, Any] = {
        "expert_slots": slots,
        "two_batches": column("halves") - 1.0,
        "cache_split": column("cache_split"),
    }
    return {"layout": ServingLayout(**leaves)}


def without_plain(plan: Any, experts: float) -> Any:
    """Return a plan, with one group or two, without a layout that equals the default.

    The default is one copy of each expert, undivided batches and an unsplit KV cache.
    """
    if isinstance(plan, Disaggregated):
        return Disaggregated(*(without_plain(each, experts) for each in (plan.prefill, plan.decode)))
    layout = plan.layout
    if layout is None or float(layout.two_batches) or float(layout.cache_split) != 1.0:
        return plan
    spread = experts > 0.0 and round(float(layout.expert_slots) * float(plan.ep)) != round(experts)
    return plan if spread else replace(plan, layout=None)


def layout_words(names: Collection[str]) -> list[str]:
    """Return descriptions of the layouts of a search. Redundant experts are described with their degrees instead."""
    words = {
        "halves": "batches whole or in two halves",
        "cache_split": "keys and values of a head on one rank, or by token on the ranks that share it",
    }
    return [each for name, each in words.items() if name in names]


def serving_plans(service: Service, cluster: Cluster, chips: int | None = None, batch: int | None = None) -> PlanTable:
    """Return every valid serving plan of the lattice that `serving_scope` describes.

    **Arguments:**

    - `service`, `cluster`: workload and hardware.
    - `chips`: chips of a group of the cluster; all by default.
    - `batch`: total over all replicas and stages; any by default.

    **Raises:** `UserError` if the cluster has several sites, if no plan is valid, or if there are more than `MOST_PLANS`.
    """
    if count_of(cluster.sites.count) != 1:
        raise UserError(
            "a service at several sites is not modeled: each site serves on its own, so search for one of them"
        )
    total, layers = count_of(cluster.chips) if chips is None else chips, count_of(service.model.layers)

    too_many = f"more than {MOST_PLANS:,} plans serve on {total:,} chips: give one with --plan"
    rows = enumerate_points(serving_plan_system(service, cluster, total, batch), MOST_PLANS, too_many)
    if not len(rows["tp"]):
        raise UserError(
            f"no plan serves {batch:,} sequences at a time on {total:,} chips: no replicas x stages x batch is that number and fits"
        )
    norms, experts = float(cluster.stack.layouts_sharded), count_of(service.model.experts)
    keys = itemgetter(*_DEGREES, *(["cache_split"] if "cache_split" in rows else []))
    return PlanTable(rows, keys, lambda columns: _plans(columns, layers, norms, experts))


def _plans(rows: Mapping[str, np.ndarray], layers: int, norms: float, experts: int) -> Plan:
    """Return plans from rows, float64, shape (plan,) per leaf, with layers distributed as evenly as possible.

    **Arguments:** `norms`: 1 if norms are sharded over tensor-parallel ranks (sequence parallelism).
    """
    stages = dict(
        zip(("fullest_stage", "last_stage"), stage_layers(layers, rows["pp"].astype(float), 1.0), strict=True)
    )
    columns = {name: rows[name] for name in _DEGREES} | {"micro_batch": rows["batch"]} | stages
    columns |= {"weights_sharded": rows["layout"] > 1, "sequence_parallel": norms * (rows["tp"] > 1)}
    leaves = {name: np.asarray(column, np.float64) for name, column in columns.items()}
    return plan_leaves(leaves | laid_out(rows, experts))


def serving_scope(service: Service, cluster: Cluster, plans: int, batch: int | None = None) -> str:
    """Return a sentence that describes the plans covered by the search."""
    first = f"global over {plans:,} plans: every tp x pp x dp = {count_of(cluster.chips):,} chips"
    return "; ".join([first, *degree_words(service, cluster, _gathers(service, cluster), batch)])


def degree_words(service: Service, cluster: Cluster, gathers: bool = False, batch: int | None = None) -> list[str]:
    """Describe in words which plans a search for serving plans covers, one phrase for each setting.

    Settings are the tensor- and expert-parallel degrees, the batch size, the layers of a stage and optional layouts. An example is
    "tp dividing the 64 heads".

    **Arguments:**

    - `service`, `cluster`: the workload and the hardware of the search.
    - `gathers`: whether the search also tries to gather weights layer by layer.
    - `batch`: sequences in process on the whole cluster, where the user fixed them; None where the search chooses.
    """
    experts = count_of(service.model.experts)
    names = layout_integers(service, cluster.stack, count_of(cluster.chips))[0]
    spread = f"every ep that divides the {experts} experts"
    if "slots" in names:
        spread = f"every ep, with as few further copies of the {experts} experts as it needs or one more a rank,"
    batches = "batches of 1, 2, ... 8, 10, 12, 14, 16, 20, ... sequences"
    if batch is not None:
        batches = f"{batch:,} sequences at a time over all replicas and stages,"
    return [
        f"tp dividing the {count_of(service.model.heads)} heads",
        *([f"{spread} and expert_tp that divides tp"] if experts else []),
        f"{batches} as far as memory holds their keys and values",
        "layers spread evenly",
        *(["weights in place or gathered layer by layer"] if gathers else []),
        *layout_words(names),
    ]
