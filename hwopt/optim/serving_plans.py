"""Every integer plan that serves on a fixed cluster: the lattice declared, and its rows as plans."""

from collections.abc import Mapping
from operator import itemgetter

import jax
import numpy as np

from hwopt.catalog.plans import plan_leaves
from hwopt.design.variables import count_of
from hwopt.errors import UserError
from hwopt.hardware.cluster import Cluster
from hwopt.integers.enumeration import divisors, enumerated
from hwopt.integers.relations import Allowed, Divides, Product, Relation, at_most, equal
from hwopt.integers.system import System, integer
from hwopt.model.serving import cache
from hwopt.optim.plan_table import MOST_PLANS, PlanTable
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
        each = cache.layer_mean(service.model, tokens) * cache.token_bytes(service, plans)
        return np.asarray(cluster.chip.hbm_capacity_bytes / (each * service.model.layers))


def serving_plan_system(service: Service, cluster: Cluster, chips: int) -> System:
    """The integers of a plan that serves on some chips.

    `N = t p d`; t divides the heads; e divides the experts, t_e divides t, `e t_e` divides `t d`; stages are no more than
    layers, embedding and head; batches on a ladder, no larger than memory holds keys and values of. Layout 1: weights stay where
    they are; 2, of prompts alone where the stack has it: spread over replicas and gathered layer by layer.
    """
    layers, experts = count_of(service.model.layers), count_of(service.model.experts)
    degrees = [tp for tp in tensor_degrees(service.model) if chips % tp == 0]
    fills = dict(zip(degrees, most_sequences(service, cluster, degrees), strict=True))
    by_degree = np.array([max(fills.get(tp, 1.0), 1.0) for tp in range(max(degrees) + 1)])
    stages_too = 0.0 if float(service.decodes) else 1.0  # prompts of all stages are in flight at once

    def most(columns: Mapping[str, np.ndarray]) -> np.ndarray:
        return by_degree[columns["tp"].astype(int)] * columns["pp"] ** stages_too

    relations: list[Relation] = [
        Product(("tp", "pp", "dp"), (), chips, chips),
        Divides(("expert_tp",), ("tp",)) if experts else equal(("expert_tp",), ("tp",)),
        Divides(("ep", "expert_tp"), ("tp", "dp")),
        at_most(("batch",), Allowed(("tp", "pp"), most)),
        at_most(("layout",), 1.0, over=("dp",)),
    ]
    layouts = 2 if _gathers(service, cluster) else 1
    largest = max(fills.values()) * (layers + 2.0) ** stages_too
    coordinates = (
        integer("tp", (1, chips), among=degrees),
        integer("pp", (1, layers + 2)),
        integer("dp", (1, chips)),
        integer("ep", (1, max(experts, 1)), among=divisors(max(experts, 1))),
        integer("expert_tp", (1, max(degrees))),
        integer("batch", (1, max(largest, 1.0)), among=ladder(largest)),
        integer("layout", (1, layouts)),
    )
    return System(coordinates, tuple(relations))


def _gathers(service: Service, cluster: Cluster) -> bool:
    """Whether weights may be gathered layer by layer: of large batches of prompts, where the stack has it."""
    return bool(float(cluster.stack.layouts_sharded)) and not float(service.decodes)


def serving_plans(service: Service, cluster: Cluster, chips: int | None = None) -> PlanTable:
    """Every valid plan of a lattice; `scope` says which.

    **Arguments:** `chips` of a group of the cluster's; all by default.

    **Raises:** `UserError` where chips lie at several sites, and where there are more plans than one can wait for.
    """
    if count_of(cluster.sites.count) != 1:
        raise UserError("a service at several sites is not modelled: each site serves alone, ask for one of them")
    total, layers = count_of(cluster.chips) if chips is None else chips, count_of(service.model.layers)

    too_many = f"more than {MOST_PLANS:,} plans serve on {total:,} chips: give one with --plan"
    rows = enumerated(serving_plan_system(service, cluster, total), MOST_PLANS, too_many)
    norms = float(cluster.stack.layouts_sharded)
    return PlanTable(rows, itemgetter(*_DEGREES), lambda columns: _plans(columns, layers, norms))


def _plans(rows: Mapping[str, np.ndarray], layers: int, norms: float) -> Plan:
    """Plans, float64, shape (plan,) a leaf; layers as even as whole ones go; `norms` 1: spread over tensor parallel ranks."""
    stages = dict(
        zip(("fullest_stage", "last_stage"), stage_layers(layers, rows["pp"].astype(float), 1.0), strict=True)
    )
    columns = {name: rows[name] for name in _DEGREES} | {"micro_batch": rows["batch"]} | stages
    columns |= {"weights_sharded": rows["layout"] > 1, "sequence_parallel": norms * (rows["tp"] > 1)}
    return plan_leaves({name: np.asarray(column, np.float64) for name, column in columns.items()})


def scope(service: Service, cluster: Cluster, plans: int) -> str:
    """Which plans the search covers, in a sentence."""
    first = f"global over {plans:,} plans: every tp x pp x dp = {count_of(cluster.chips):,} chips"
    return "; ".join([first, *degree_words(service, _gathers(service, cluster))])


def degree_words(service: Service, gathers: bool = False) -> list[str]:
    """What the degrees of a plan that serves may be, and where weights may be if it `gathers` them."""
    experts = count_of(service.model.experts)
    return [
        f"tp dividing the {count_of(service.model.heads)} heads",
        *([f"every ep that divides the {experts} experts and expert_tp that divides tp"] if experts else []),
        "batches of 1, 2, ... 8, 10, 12, 14, 16, 20, ... sequences as far as memory holds their keys and values",
        "layers spread evenly",
        *(["weights in place or gathered layer by layer"] if gathers else []),
    ]
