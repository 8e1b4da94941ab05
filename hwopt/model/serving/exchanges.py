"""Communication of one layer in a serving pass, before overlap: tensor parallel, expert parallel, attention, weights."""

import jax.numpy as jnp

from hwopt.hardware.cluster import Cluster
from hwopt.model.layers import work
from hwopt.model.layers.layer_time import all_reduces_s, dispatch_s
from hwopt.model.layers.parameters import Weights
from hwopt.model.network import collectives
from hwopt.model.network.route import seconds_per_byte
from hwopt.model.numerics.maximum import above_zero, pick, several
from hwopt.model.serving import cache
from hwopt.model.serving.batch import Batch
from hwopt.plan import Plan
from hwopt.types import Scalar
from hwopt.workload.layer_work import layer_work, stated
from hwopt.workload.mechanisms.latent_experts import expert_width
from hwopt.workload.service import Service

LOG_WEIGHT_BYTES = 4.0
"""Bytes of a head's log-sum-exp (32 bit), sent with each partial attention output."""


DIRECT_BYTES = 1e6
"""Bytes up to which engines let a rank read the buffers of all others.

**Source:** vllm-project/vllm, pull request 39080: messages of less than 64 KB on 8 ranks (0.45 MB read) and 512 KB on 4 (1.5 MB).
"""


def exchanges_s(flow: work.Flow, cluster: Cluster, plan: Plan, moe: Scalar, prompts: Scalar) -> tuple[Scalar, Scalar]:
    """Return the tensor- and expert-parallel communication times of one layer, before any overlap.

    Tensor parallelism all-reduces the activations after attention and after the MLP, in parallel layers once for both. Without
    expert parallelism the outputs of routed and shared experts are summed first. With it, shared experts have their own
    all-reduce, and so do experts that are split over tensor-parallel ranks. Expert parallelism dispatches and combines tokens
    as in training, or gathers all tokens at all ranks (`gathered_s`).

    **Arguments:** `prompts`: share of the tokens that are new prompt tokens. Only these use kernels that deduplicate copies per
    domain; low-latency kernels for decoding send each copy separately.

    **Returns:** seconds of tensor and of expert parallelism.
    """
    w, layer = flow.model, flow.work
    copies = w.experts_per_token / plan.tp * plan.expert_tp
    around, within = all_reduces_s(flow, cluster, plan, copies)
    block = flow.tokens * w.hidden * flow.activation_bytes
    around = direct_reduce_s(cluster, block, plan.tp, around)
    within = direct_reduce_s(cluster, block * copies, plan.expert_tp, within)
    whole = above_zero(2.0 - plan.ep)  # 1: experts are split like the rest of the layer
    has_shared = jnp.where(w.shared_experts > 0, 1.0, 0.0)
    mlp = (1.0 - moe) * (1.0 - w.parallel_layers) + moe * (whole + (1.0 - whole) * has_shared)
    if stated(layer.mixers):  # a half of a layer may be missing
        mlp = (layer.halves - layer.mixers) * mlp
    tp = around * (layer.mixers + mlp) + moe * (1.0 - whole) * within
    gathered = cluster.stack.tokens_gathered
    there = (1.0 - gathered) * dispatch_s(flow, cluster, plan, moe, prompts)
    return tp, there + gathered * moe * gathered_s(flow, cluster, plan)


def direct_reduce_s(cluster: Cluster, message_bytes: Scalar, group: Scalar, library_s: Scalar) -> Scalar:
    """Return the seconds of an all-reduce: by one kernel of direct reads for small messages, else by the library.

    In the kernel each of n ranks reads the whole buffers of all others: `t_0 + (n - 1) S / B` for S bytes over a scale-up link
    of bandwidth B. The start t_0 (`Stack.direct_reduce_s`) replaces the library's steps and launch. Ranks must lie in one
    scale-up domain, and read at most `DIRECT_BYTES`. The choice depends on no speed of the hardware, so that times stay log-log
    convex in them.

    **Arguments:** `group`: n; `library_s`: seconds of the library's collective.

    **Source:** sgl-project/sglang, pull request 2904: 3.7, 4.8 and 5.9 us on 2, 4 and 8 H100 at 512 B. vllm-project/vllm, pull
    request 39080: 6.3 us on 8 MI355X at 24 KB.
    """
    network, start_s, read = cluster.network, cluster.stack.direct_reduce_s, above_zero(group - 1.0) * message_bytes
    direct_s = several(group) * start_s + read * seconds_per_byte(network)[0]
    small = (group <= network.size[0]) & (read <= DIRECT_BYTES) & (start_s < 1.0)
    return pick(small, direct_s, library_s)


def gathered_s(flow: work.Flow, cluster: Cluster, plan: Plan) -> Scalar:
    """Return the seconds of expert parallelism by an all-gather of tokens and a reduce-scatter of outputs.

    Each moves `e tokens h / t` elements for e expert-parallel and t tensor-parallel ranks and hidden size h, independent of the
    k experts per token. This is less than an all-to-all of k copies where `k > e - 1`, and e - 1 times an all-to-all of one
    copy. The all-gather uses the number format of the dispatch (`Stack.dispatch_bytes_share`).

    **Source:** NVIDIA, TensorRT LLM tech blog 18, One-Sided AlltoAll over NVLink, 2026: background.
    """
    stack, ranks = cluster.stack, plan.ep
    whole = ranks * (flow.tokens / plan.tp) * expert_width(flow.model) * flow.activation_bytes
    sizes = jnp.stack([whole * stack.dispatch_bytes_share, whole])
    groups, strides = jnp.stack([ranks, ranks]), jnp.stack([plan.expert_tp, plan.expert_tp])
    passes = collectives.ring_passes_s(cluster.network, sizes, groups, strides, stack)
    return jnp.sum(passes) + 2.0 * several(ranks) * (stack.gathered_launch_s - stack.collective_launch_s)


def spread_s(service: Service, cluster: Cluster, plan: Plan, batch: Batch) -> Scalar:
    """Return the seconds of two all-to-alls of one layer where ranks that share a head shard the KV cache by sequence.

    The first sends queries to the rank that stores the sequence, the second returns attention outputs. Each moves
    `b q (a / t) (d + d_v) / 2` elements: b sequences with q tokens each, and a heads of key and value dimensions d and d_v over
    t ranks. For latent attention a head takes `(2 r_kv + d_rope) / 2` elements (latent rank, rotary dimension) in place of
    `(d + d_v) / 2`, because each rank does the up-projection only for its own heads.

    **Source:** Pope et al., arXiv 2211.05102, section 3.3.
    """
    w, stack, heads = service.model, cluster.stack, layer_work(service.model).heads
    width = jnp.where(w.kv_rank > 0, 2.0 * w.kv_rank + w.rope_dim, w.qk_dim + w.v_dim)
    sent = 0.5 * batch.sequences * batch.queries * (heads / plan.tp) * width * service.activation_bytes
    group = cache.copies(w, plan)
    each = collectives.all_to_all_s(cluster.network, sent, group, jnp.ones_like(group), stack.collective_launch_s)
    decodes = jnp.where(batch.sequences > 0.0, 1.0, 0.0)
    return 2.0 * stack.cache_sharded * decodes * each


def split_s(service: Service, cluster: Cluster, plan: Plan, batch: Batch) -> Scalar:
    """Return the seconds of one layer's exchanges among n ranks that shard the KV cache of a head by token.

    Each rank computes attention of all queries over its own tokens. Queries are gathered: `b q n (a / t) d` elements for b
    sequences with q tokens each and a heads of dimension d over t ranks. Partial outputs of width `d_v`, each with its
    log-sum-exp (4 bytes), are reduce-scattered. For latent attention d is `r_kv + d_rope` (latent rank, rotary dimension) and
    d_v is `r_kv`. Prompts gather the cached tokens before them. The result is 0 for a plan without a serving layout.

    **Source:** the sums of partial softmaxes: Dao et al., Flash-Decoding, 2023; layouts: vLLM, decode context parallel; Bhatia
    et al., Helix Parallelism, arXiv 2507.07120.
    """
    if plan.layout is None:
        return jnp.zeros_like(plan.tp)
    w, stack, ranks = service.model, cluster.stack, plan.layout.cache_split
    latent = w.kv_rank > 0
    query, value = jnp.where(latent, w.kv_rank + w.rope_dim, w.qk_dim), jnp.where(latent, w.kv_rank, w.v_dim)
    rows = batch.sequences * batch.queries * (layer_work(w).heads / plan.tp) * ranks
    element = service.activation_bytes
    before = batch.prompts * cache.layer_mean(w, batch.prompt_context) * cache.token_bytes(service, plan)
    sizes = jnp.stack([rows * query * element, rows * (value * element + LOG_WEIGHT_BYTES), before])
    groups = jnp.stack([ranks, ranks, ranks])
    times = collectives.ring_passes_s(cluster.network, sizes, groups, jnp.ones_like(groups), stack)
    some = jnp.stack([jnp.where(count > 0.0, 1.0, 0.0) for count in (rows, rows, before)])
    return (1.0 - stack.cache_sharded) * jnp.sum(times * some)


def gather_s(service: Service, cluster: Cluster, plan: Plan, weights: Weights, moe: Scalar) -> Scalar:
    """Return the seconds to gather one layer's weights that are sharded over replicas, before any overlap.

    It is 0 where each replica stores all its weights.
    """
    own, experts = collectives.ring_passes_s(
        cluster.network,
        jnp.stack([weights.layer(moe), weights.experts_layer]) * service.weight_bytes,
        jnp.stack([weights.ranks, weights.expert_ranks]),
        jnp.stack([plan.tp, plan.ep * plan.expert_tp]),
        cluster.stack,
    )
    return plan.weights_sharded * (own + moe * experts) * (1.0 / cluster.stack.gather_efficiency)
