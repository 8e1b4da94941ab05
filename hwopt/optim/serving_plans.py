"""Every integer plan that serves on a fixed cluster: the lattice declared, and its rows as plans."""

from collections.abc import Mapping
from operator import itemgetter

import jax
import numpy as np

from hwopt.catalog.plans import plan_leaves
from hwopt.design.plan_lattice import named, plan_lattice, plan_relations, serving_sizes
from hwopt.design.variables import count_of
from hwopt.errors import UserError
from hwopt.hardware.cluster import Cluster
from hwopt.integers.enumeration import divisors, enumerated
from hwopt.integers.relations import Allowed, at_most
from hwopt.integers.system import System
from hwopt.model.serving import cache
from hwopt.optim.plan_table import MOST_PLANS, PlanTable
from hwopt.optim.serving_layouts import laid_out, layout_integers, layout_words, spread_degrees
from hwopt.plan import Plan, stage_layers
from hwopt.workload.service import Service
from hwopt.workload.transformer import tensor_degrees

_DEGREES = ("tp", "pp", "dp", "ep", "expert_tp")
"""Another batch is no new plan."""


def ladder(most: float) -> list[int]:
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
    batches = ladder(largest) if batch is None else [each for each in divisors(batch) if each <= max(largest, 1.0)]
    values = {
        "tp": degrees, "pp": range(1, layers + 3), "dp": range(1, chips + 1),
        "ep": spread_degrees(experts, chips, "slots" in further), "expert_tp": range(1, max(degrees) + 1),
        "batch": batches, "layout": range(1, layouts + 1), **further,
    }  # fmt: skip
    sizes = serving_sizes(service, cluster.stack, named(*values), chips=(chips, chips), held=batch or 1)
    names = ("chips", "chunks", "expert_tp", "experts", *(["held"] if batch is not None else []))
    relations = [
        *plan_relations(sizes, *names),
        at_most(("batch",), Allowed(("tp", "pp", *(["cache_split"] if split else [])), most)),
        at_most(("layout",), 1.0, over=("dp",)),
        *further_relations,
    ]
    return plan_lattice(values, relations)


def _gathers(service: Service, cluster: Cluster) -> bool:
    """Whether weights may be gathered layer by layer: of large batches of prompts, where the stack has it."""
    return bool(float(cluster.stack.layouts_sharded)) and not float(service.decodes)


def serving_plans(service: Service, cluster: Cluster, chips: int | None = None, batch: int | None = None) -> PlanTable:
    """Every valid plan of a lattice; `scope` says which.

    **Arguments:** `chips` of a group of the cluster's; all by default; `batch` of all replicas and stages together; any by default.

    **Raises:** `UserError` where chips lie at several sites, and where there are more plans than one can wait for.
    """
    if count_of(cluster.sites.count) != 1:
        raise UserError("a service at several sites is not modelled: each site serves alone, ask for one of them")
    total, layers = count_of(cluster.chips) if chips is None else chips, count_of(service.model.layers)

    too_many = f"more than {MOST_PLANS:,} plans serve on {total:,} chips: give one with --plan"
    rows = enumerated(serving_plan_system(service, cluster, total, batch), MOST_PLANS, too_many)
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


def scope(service: Service, cluster: Cluster, plans: int, batch: int | None = None) -> str:
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
