"""Lattice (declared set) of all integer training plans of a fixed cluster, and its points as plans."""

from collections.abc import Collection, Mapping
from operator import itemgetter
from types import MappingProxyType

import numpy as np

from hwopt.catalog.load import leaf
from hwopt.design.plan_lattice import (
    PARTS,
    TRAINING,
    contexts_of,
    named,
    plan_lattice,
    plan_relations,
    ramp_words,
    software_words,
    training_sizes,
)
from hwopt.design.variables import count_of
from hwopt.errors import UserError, suggest
from hwopt.hardware.cluster import Cluster
from hwopt.hardware.peripherals import NO_POOL_BYTES
from hwopt.integers.enumeration import divisors, enumerate_points
from hwopt.integers.system import System
from hwopt.plan import OFFLOADED, Plan, stage_layers
from hwopt.planning.plan_table import MOST_PLANS, PlanTable
from hwopt.workload.operators import Operators
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import tensor_degrees

NONE, SELECTIVE, FULL = 1, 2, 3
"""Values of the column `recompute`: activation recomputation of no layer part, of attention only, or of full layers."""

COMMON = (*OFFLOADED, "local_steps")
"""Settings that all plans of a search may be given in common.

By default each part is offloaded entirely or not at all, and gradients are exchanged after every step.
"""

_KEYS = ("tp", "pp", "dp", "cp", "ep", "expert_tp", "virtual_stages", "micro_batch")
"""Columns that distinguish plans: plans that differ only in recomputation, sharding or offloading count as one."""


def training_plan_system(
    run: TrainingRun, cluster: Cluster, held: Mapping[str, float] = MappingProxyType({})
) -> System:
    """Return the integer system of the training plans of a fixed cluster.

    It contains all relations of `TRAINING`. Expert-parallel groups may divide experts by tensor parallelism, and a single
    rank is not sharded. Without a memory pool beyond the chips' memory, nothing is offloaded.

    **Arguments:** `held`: shares of `OFFLOADED` that are fixed rather than chosen. A part in the pool, even a share of it, is
    2 in the system, else 1.
    """
    chips, batch = count_of(cluster.chips), count_of(run.global_batch_sequences)
    heads, experts, layers = (count_of(x) for x in (run.model.heads, run.model.experts, run.model.layers))
    pooled = float(cluster.pool.capacity_bytes) > NO_POOL_BYTES
    values = {
        "tp": tensor_degrees(run.model), "cp": contexts_of(run), "pp": range(1, layers + 3), "dp": range(1, chips + 1),
        "ep": divisors(max(experts, 1)), "expert_tp": range(1, heads + 1),
        "micro_batch": range(1, batch + 1), "micro_batches": range(1, batch + 1), "virtual_stages": range(1, layers + 3),
        "recompute": range(NONE, FULL + 1), "zero": range(1, 4),
        **{name: range(1, 3) if pooled and name not in held else [1 + (held.get(name, 0.0) > 0.0)] for name in OFFLOADED},
    }  # fmt: skip
    degrees = named(*values) | {part: f"{part}_offloaded" for part in PARTS}
    sizes = training_sizes(run, cluster, degrees, chips=(chips, chips), batch=(batch, batch))
    return plan_lattice(values, plan_relations(sizes, *TRAINING, "expert_tp", "zero_ranks"))


def training_plans(run: TrainingRun, cluster: Cluster, common: Mapping[str, float] | None = None) -> PlanTable:
    """Return every valid training plan of the lattice that `training_scope` describes.

    **Arguments:** `common`: values of `COMMON` that all plans share.

    **Raises:** `UserError` if no plan is valid, if there are more than `MOST_PLANS`, and for an unknown name or an
    invalid value.
    """
    alike = dict(common or {})
    for name, value in alike.items():
        if name not in COMMON:
            raise UserError(f"'{name}' is not the same for all plans of a search: {suggest(name, COMMON)}")
        if name == "local_steps" and (value < 1.0 or value != round(value)):
            raise UserError(f"local_steps = {value:g} must be an integer of at least 1")
        if name != "local_steps" and not 0.0 <= value <= 1.0:
            raise UserError(f"{name} = {value:g} must lie between 0 and 1")
    chips, batch = count_of(cluster.chips), count_of(run.global_batch_sequences)

    too_many = (
        f"more than {MOST_PLANS:,} plans split {chips:,} chips and a batch of {batch:,} sequences: choose a batch or "
        "a number of chips with fewer factors, or give a plan with --plan to hwopt estimate"
    )
    rows = enumerate_points(training_plan_system(run, cluster, alike), MOST_PLANS, too_many)
    if not len(rows["tp"]):
        raise UserError(
            f"no plan divides {chips:,} chips, {count_of(run.model.heads)} heads and a global batch of {batch:,} sequences: "
            "choose chips with small factors or another batch, or lift what the software documents with --any-software"
            + (f", or another ramp{ramp_words(run.ramp)}" if run.ramp is not None else "")
        )
    sequence, layers = count_of(run.sequence_length), count_of(run.model.layers)
    return PlanTable(rows, itemgetter(*_KEYS), lambda columns: _plans(columns, sequence, layers, alike))


def _plans(rows: Mapping[str, np.ndarray], sequence: int, layers: int, common: Mapping[str, float]) -> Plan:
    """Return plans from rows, float64, shape (plan,) per leaf.

    Layers are distributed as evenly as possible, the schedule is 1F1B, and sequence parallelism is used where the
    sequence length is divisible.
    """
    stages = stage_layers(layers, rows["pp"].astype(float), rows["virtual_stages"].astype(float))
    ones = np.ones(len(rows["tp"]))
    columns = {name: rows[name] for name in _KEYS} | {
        "fullest_stage": stages[0],
        "last_stage": stages[1],
        "sequence_parallel": (rows["tp"] > 1) & (sequence % (rows["tp"] * rows["cp"]) == 0),
        "optimizer_sharded": ones,
        "gradients_sharded": rows["zero"] >= 2,
        "weights_sharded": rows["zero"] >= 3,
        "shard_groups": ones,
        "recompute_full": rows["recompute"] == FULL,
        "recompute_attention": rows["recompute"] == SELECTIVE,
        "bubble_fraction": ones,
        **{name: rows[name] - 1.0 for name in OFFLOADED},
        "local_steps": ones,
        **{name: value * ones for name, value in common.items()},
    }
    return Plan(**{name: leaf(column) for name, column in columns.items()})


def training_scope(run: TrainingRun, cluster: Cluster, plans: int, held: Collection[str] = ()) -> str:
    """Return a sentence that describes the plans covered by the search. **Arguments:** `held`: see `training_plan_system`."""
    pooled = float(cluster.pool.capacity_bytes) > NO_POOL_BYTES
    free = [name.removesuffix("_offloaded") for name in OFFLOADED if pooled and name not in held]
    layers, chips, batch = (count_of(x) for x in (run.model.layers, cluster.chips, run.global_batch_sequences))
    degrees, experts = contexts_of(run), count_of(run.model.experts)
    heads, table = count_of(run.model.heads), isinstance(run.model, Operators)
    split = f"the {heads} {'parts that all operators split into' if table else 'heads'}"
    words = [
        f"global over {plans:,} plans: every tp x pp x dp x cp = {chips:,} chips with tp dividing {split}, "
        f"cp in {{{', '.join(map(str, degrees))}}} and dp x micro-batch x micro-batches = {batch:,} sequences",
        f"tables of look-ups on every ep chips that divide {experts}" if experts and table else "",
        f"every ep that divides the {experts} experts and expert_tp that divides tp" if experts and not table else "",
        f"every number of pipeline chunks per stage that the {layers} {'blocks' if table else 'layers, embedding and head'} can "
        "fill (interleaving where micro-batches are a multiple of pp)"
        if layers > 1
        else "",
        "recompute none, selective or full",
        "ZeRO-1 to 3",
        f"{', '.join(free)} in HBM or in the pool" if free else "",
        "layers spread evenly, 1F1B schedules, sequence parallel",
        software_words(cluster.stack.capabilities),
        f"whole micro-batches in every stage of the batch ramp{ramp_words(run.ramp)}" if run.ramp is not None else "",
    ]
    return "; ".join(filter(None, words))
