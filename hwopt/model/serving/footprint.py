"""Memory that serving takes of a chip, and what else a plan uses of what there is."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.cluster import Cluster
from hwopt.model.maximum import above_zero, hard_maximum
from hwopt.model.parameters import expert_replicas, held_parameters, shard_ranks, table_parameters
from hwopt.model.serving import cache
from hwopt.model.serving.batch import Batch
from hwopt.model.serving.report import ServingFootprint
from hwopt.plan import Plan
from hwopt.types import Scalar
from hwopt.workload.service import Service

LOGIT_BYTES = 4.0
"""A logit in memory: 32 bit."""

CHUNK_TOKENS = 512.0
"""Tokens of prompts whose activations are held at a time (assumption, 128 to 8,192: engines cut prompts where memory is
short)."""

TABLE_BYTES = 2.0
"""An element of embedding and head, which stay 16 bit in narrow formats."""


def footprint(service: Service, cluster: Cluster, plan: Plan, batch: Batch, resident: Scalar) -> ServingFootprint:
    """Memory of the fullest chip. **Arguments:** `resident` tokens in the cache of a replica, mean over layers."""
    w, stack = service.model, cluster.stack
    held = held_parameters(w, plan)
    wider = above_zero(TABLE_BYTES - service.weight_bytes)
    ranks, expert_ranks = (1.0 + plan.weights_sharded * (each - 1.0) for each in shard_ranks(plan))
    weights = service.weight_bytes * (held.stage / ranks + held.stage_experts / expert_ranks)
    weights = weights + wider * table_parameters(w, plan) / ranks
    dense = jnp.where(w.dense_layers > 0, held.dense_layer, 0.0)
    layer = hard_maximum(dense, jnp.where(w.moe_layers > 0, held.moe_layer + held.experts_layer, 0.0))
    whole = plan.weights_sharded * stack.layers_whole * layer * service.weight_bytes  # gathered: at work, and the next
    drafts = jnp.where(service.drafted_tokens > 0.0, service.draft_fraction, 0.0)
    kept = resident * cache.held_token_bytes(service, plan, stack) * (w.layers / plan.pp) * plan.fullest_stage
    ffn = hard_maximum(w.ffn, w.expert_ffn * w.experts_per_token)
    row = service.activation_bytes * (4.0 * w.hidden + w.mlp_matrices * ffn / plan.tp)
    chunk = batch.prompt_tokens - above_zero(batch.prompt_tokens - CHUNK_TOKENS)
    rows = batch.sequences * batch.queries + chunk
    working = whole + rows * row + LOGIT_BYTES * batch.sampled * w.vocab / plan.tp
    return ServingFootprint(
        weights_bytes=weights * (1.0 + drafts),
        cache_bytes=kept,
        working_bytes=working,
        reserve_bytes=stack.memory_reserve_bytes + stack.fragmentation * (kept + working),
    )


def shares_used(service: Service, cluster: Cluster, plan: Plan, memory: ServingFootprint) -> dict[str, Array]:
    """What a plan uses of what there is, by margin."""
    w = service.model
    experts = jnp.where(w.experts > 0, w.experts, 1.0)
    return {
        "memory": memory.total_bytes / cluster.chip.hbm_capacity_bytes,
        "stages": plan.pp / (w.layers + 2.0),
        "tensor_parallel": plan.tp / w.heads,
        "experts": plan.ep / experts,
        "replicas": 1.0 / expert_replicas(plan),
    }
