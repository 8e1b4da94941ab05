"""Every integer plan that serves on a fixed cluster: the lattice declared, and its rows as plans."""

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
"""Another batch is no new plan."""


def batch_sizes(most: float) -> list[int]:
    """Batches: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, ...: powers of two and three between each and the next, up to `most`."""
    batches = dict.fromkeys(batch for k in range(64) for batch in (part * 2**k // 4 for part in (4, 5, 6, 7)))
    return [batch for batch in batches if batch <= max(most, 1)]


def most_sequences(service: Service, cluster: Cluster, tp: list[int]) -> np.ndarray:
    """Sequences, or prompts, whose keys and values alone fill the memory of a replica of one stage, by its tp.

    A replica of p stages holds p such batches of sequences, on p times the chips.
    """
    degrees = np.asarray(tp, np.float64)
    ones = np.ones_like(degrees)
    named = dict.fromkeys(("pp", "dp", "ep", "expert_tp", "micro_batch", "fullest_stage", "last_stage"), ones)
    with jax.enable_x64(True):
        tokens = service.mean_context if float(service.decodes) else service.input_tokens
        plans = plan_leaves(named | {"tp": degrees})
        each = cache.layer_mean(service.model, tokens) * cache.held_token_bytes(service, plans, cluster.stack)
        return np.asarray(cluster.chip.hbm_capacity_bytes / (each * service.model.layers))


def serving_plan_system(service: Service, cluster: Cluster, chips: int, batch: int | None = None) -> System:
    """The integers of a plan that serves on some chips, of any batch or of a given one of the whole machine.

    Batches on a ladder, no larger than memory holds keys and values of. Layout 1: weights stay where they are; 2, of prompts alone
    where the stack has it: spread over replicas and gathered layer by layer. `layout_integers` has those that few stacks have.
    """
    layers, experts = count_of(service.model.layers), count_of(service.model.experts)
    degrees = [tp for tp in tensor_degrees(service.model) if chips % tp == 0]
    fills = dict(zip(degrees, most_sequences(service, cluster, degrees), strict=True))
    by_degree = np.array([max(fills.get(tp, 1.0), 1.0) for tp in range(max(degrees) + 1)])
    stages_too = 0.0 if float(service.decodes) else 1.0  # prompts of all stages are in flight at once

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
    """Whether weights may be gathered layer by layer: of large batches of prompts, where the stack has it."""
    return bool(float(cluster.stack.layouts_sharded)) and not float(service.decodes)


def layout_integers(service: Service, stack: Stack, chips: int) -> tuple[dict[str, range], list[Relation]]:
    """Values of the integers of the layouts that a stack has, where they can matter, and their relations.

    `slots`: 1 where ranks hold as few copies as it takes to fill all of them, 2 with one more each; `halves` of a batch;
    `cache_split` divides the ranks that would hold the same keys and values: `t`, or `t / k`.
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
    """The layout of plans by the columns of their integers; nothing where there are none."""
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
    """A plan of one group or two, without a layout that says nothing: each expert once, whole batches, keys and values whole."""
    if isinstance(plan, Disaggregated):
        return Disaggregated(*(without_plain(each, experts) for each in (plan.prefill, plan.decode)))
    layout = plan.layout
    if layout is None or float(layout.two_batches) or float(layout.cache_split) != 1.0:
        return plan
    spread = experts > 0.0 and round(float(layout.expert_slots) * float(plan.ep)) != round(experts)
    return plan if spread else replace(plan, layout=None)


def layout_words(names: Collection[str]) -> list[str]:
    """What the layouts of a search are, in words; redundant experts stand beside their degrees."""
    words = {
        "halves": "batches whole or in two halves",
        "cache_split": "keys and values of a head on one rank, or by token on the ranks that share it",
    }
    return [each for name, each in words.items() if name in names]


def serving_plans(service: Service, cluster: Cluster, chips: int | None = None, batch: int | None = None) -> PlanTable:
    """Every valid plan of a lattice; `serving_scope` says which.

    **Arguments:** `chips` of a group of the cluster's; all by default; `batch` of all replicas and stages together; any by default.

    **Raises:** `UserError` where chips lie at several sites, and where there are more plans than one can wait for.
    """
    if count_of(cluster.sites.count) != 1:
        raise UserError("a service at several sites is not modelled: each site serves alone, ask for one of them")
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
    """Plans, float64, shape (plan,) a leaf; layers as even as whole ones go; `norms` 1: spread over tensor parallel ranks."""
    stages = dict(
        zip(("fullest_stage", "last_stage"), stage_layers(layers, rows["pp"].astype(float), 1.0), strict=True)
    )
    columns = {name: rows[name] for name in _DEGREES} | {"micro_batch": rows["batch"]} | stages
    columns |= {"weights_sharded": rows["layout"] > 1, "sequence_parallel": norms * (rows["tp"] > 1)}
    leaves = {name: np.asarray(column, np.float64) for name, column in columns.items()}
    return plan_leaves(leaves | laid_out(rows, experts))


def serving_scope(service: Service, cluster: Cluster, plans: int, batch: int | None = None) -> str:
    """Which plans the search covers, in a sentence."""
    first = f"global over {plans:,} plans: every tp x pp x dp = {count_of(cluster.chips):,} chips"
    return "; ".join([first, *degree_words(service, cluster, _gathers(service, cluster), batch)])


def degree_words(service: Service, cluster: Cluster, gathers: bool = False, batch: int | None = None) -> list[str]:
    """What the degrees of a plan that serves may be, and where weights may be if it `gathers` them."""
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
