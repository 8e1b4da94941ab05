"""What chips exchange in one layer of a pass: activations, token copies, queries of spread caches, gathered weights."""

from __future__ import annotations

import jax.numpy as jnp

from hwopt.hardware.cluster import Cluster
from hwopt.model import collectives, work
from hwopt.model.layer import dispatch_s
from hwopt.model.maximum import above_zero
from hwopt.model.parameters import Held, shard_ranks
from hwopt.model.serving import cache
from hwopt.model.serving.batch import Batch
from hwopt.plan import Plan
from hwopt.types import Scalar
from hwopt.workload.service import Service


def exchanges_s(flow: work.Flow, cluster: Cluster, plan: Plan, moe: Scalar) -> tuple[Scalar, Scalar]:
    """Tensor- and expert-parallel communication of one layer, before any overlap.

    All-reduces of the activations after attention and after the MLP, once for both in parallel layers; outputs of experts and
    shared experts are added up before. Where experts are spread, shared experts have their own, and experts that tensor ranks
    share too. Dispatch and combine as in training.
    """
    network, stack, w = cluster.network, cluster.stack, flow.model
    launch = stack.collective_launch_s
    block = flow.tokens * w.hidden * flow.activation_bytes
    one = jnp.ones_like(block)
    around, within = collectives.all_reduces_s(
        network,
        jnp.stack([block, block * w.experts_per_token / plan.tp * plan.expert_tp]),
        jnp.stack([plan.tp, plan.expert_tp]),
        jnp.stack([one, one]),
        launch,
    )
    whole = above_zero(2.0 - plan.ep)  # 1: experts are split like the rest of the layer
    has_shared = jnp.where(w.shared_experts > 0, 1.0, 0.0)
    mlp = (1.0 - moe) * (1.0 - w.parallel_layers) + moe * (whole + (1.0 - whole) * has_shared)
    tp = around * (1.0 + mlp) + moe * (1.0 - whole) * within
    return tp, dispatch_s(flow, cluster, plan, moe)


def spread_s(service: Service, cluster: Cluster, plan: Plan, batch: Batch) -> Scalar:
    """Two all-to-alls of one layer where ranks keep keys and values by sequence: queries there, and what they met back.

    `b q (a / t) (d + d_v) / 2` elements each, among the ranks that share a head; of latent attention `(2 r_kv + d_rope) / 2` a
    head, since ranks multiply up to their own heads alone.

    **Source:** Pope et al., arXiv 2211.05102, section 3.3.
    """
    w, stack = service.model, cluster.stack
    width = jnp.where(w.kv_rank > 0, 2.0 * w.kv_rank + w.rope_dim, w.qk_dim + w.v_dim)
    sent = 0.5 * batch.sequences * batch.queries * (w.heads / plan.tp) * width * service.activation_bytes
    group = cache.copies(w, plan)
    each = collectives.all_to_all_s(cluster.network, sent, group, jnp.ones_like(group), stack.collective_launch_s)
    decodes = jnp.where(batch.sequences > 0.0, 1.0, 0.0)
    return 2.0 * stack.cache_sharded * decodes * each


def gather_s(service: Service, cluster: Cluster, plan: Plan, held: Held, moe: Scalar) -> Scalar:
    """Gathering one layer's weights where they are spread over replicas, before any overlap; 0 where each holds its own."""
    stack = cluster.stack
    own = (1.0 - moe) * held.dense_layer + moe * held.moe_layer
    group, expert_group = shard_ranks(plan)
    gathered = collectives.ring_passes_s(
        cluster.network,
        jnp.stack([own, held.experts_layer]) * service.weight_bytes,
        jnp.stack([group, expert_group]),
        jnp.stack([plan.tp, plan.ep * plan.expert_tp]),
        stack.collective_launch_s,
        stack.logarithmic_passes,
    )
    return plan.weights_sharded * (gathered[0] + moe * gathered[1]) * (1.0 / stack.gather_efficiency)
