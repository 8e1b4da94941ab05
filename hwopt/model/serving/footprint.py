"""Memory footprint of a chip in serving: weights, KV cache, activations, reserve."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.cluster import Cluster
from hwopt.model.layers.parameters import chip_weights, larger_layer, table_parameters
from hwopt.model.numerics.maximum import above_zero, hard_maximum
from hwopt.model.serving.batch import Batch
from hwopt.plan import Plan
from hwopt.types import Scalar
from hwopt.workload.service import Service

LOGIT_BYTES = 4.0
"""Bytes of a logit in memory (32 bit)."""

CHUNK_TOKENS = 512.0
"""Maximum number of prompt tokens whose activations are in memory at the same time.

**Source:** assumption, 128 to 8,192; engines split prompts into chunks where memory is short.
"""

TABLE_BYTES = 2.0
"""Bytes of an element of embedding and head, which stay 16 bit when layers use narrower formats."""


class ServingFootprint(NamedTuple):
    """Bytes needed in the fullest chip's memory. The fields add up to the total."""

    weights_bytes: Array
    cache_bytes: Array  # keys, values and states of all sequences
    working_bytes: Array  # activations and logits of a pass
    reserve_bytes: Array

    @property
    def total_bytes(self) -> Array:
        return sum(self[1:], start=self[0])


def draft_share(service: Service) -> Scalar:
    """Return the weights and pass time of the draft model relative to the target model; 0 without speculative decoding."""
    return jnp.where(service.drafted_tokens > 0.0, service.draft_fraction, 0.0)


def footprint(service: Service, cluster: Cluster, plan: Plan, batch: Batch, resident_bytes: Scalar) -> ServingFootprint:
    """Return the memory footprint of the fullest chip.

    **Arguments:**

    - `batch`: largest batch of a forward pass.
    - `resident_bytes`: bytes of all sequences of a replica in one layer on one chip, mean over layers (`cache.sequence_bytes`).
    """
    w, stack = service.model, cluster.stack
    weights = chip_weights(w, plan)
    wider = above_zero(TABLE_BYTES - service.weight_bytes)
    tables = table_parameters(w, plan) / (1.0 + plan.weights_sharded * (weights.ranks - 1.0))
    weights_bytes = service.weight_bytes * weights.sharded(plan.weights_sharded) + wider * tables
    layer = larger_layer(w, weights.dense_layer, weights.moe_layer + weights.experts_layer)
    whole = plan.weights_sharded * stack.layers_whole * layer * service.weight_bytes  # gathered: current and next layer
    kept = resident_bytes * (w.layers / plan.pp) * plan.fullest_stage
    ffn = hard_maximum(w.ffn, w.expert_ffn * w.experts_per_token)
    row = service.activation_bytes * (4.0 * w.hidden + w.mlp_matrices * ffn / plan.tp)
    chunk = batch.prompt_tokens - above_zero(batch.prompt_tokens - CHUNK_TOKENS)
    rows = batch.sequences * batch.queries + chunk
    working = whole + rows * row + LOGIT_BYTES * batch.sampled * w.vocab / plan.tp
    return ServingFootprint(
        weights_bytes=weights_bytes * (1.0 + draft_share(service)),
        cache_bytes=kept,
        working_bytes=working,
        reserve_bytes=stack.memory_reserve_bytes + stack.fragmentation * (kept + working),
    )
