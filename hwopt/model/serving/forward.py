"""Time of one forward pass in serving: a batch of decoding sequences, of prompts, or of both (continuous batching)."""

from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.chip import Chip
from hwopt.hardware.cluster import Cluster
from hwopt.model.chip.roofline import KernelTime, gemm_time, hbm_seconds_per_byte, kernel_time, stream_time, wide_rate
from hwopt.model.chip.sustained_clock import settled
from hwopt.model.layers import work
from hwopt.model.layers.kinds import each_kind
from hwopt.model.layers.layer_time import ExposedTime, all_layers, direction, layer_kernels
from hwopt.model.layers.parameters import chip_weights, expert_copies
from hwopt.model.network import collectives
from hwopt.model.numerics.maximum import Maximum, hard_maximum, jitter_fraction, several
from hwopt.model.serving import cache, exchanges
from hwopt.model.serving.batch import Batch
from hwopt.model.training.schedule import Breakdown
from hwopt.plan import Plan
from hwopt.stack import Stack
from hwopt.types import Scalar
from hwopt.workload.layer_work import Core, layer_work, stated, total
from hwopt.workload.service import Service
from hwopt.workload.transformer import Transformer

SCORE_BYTES = 8.0
"""HBM bytes per 16-bit attention score without a fused kernel.

Score product written (2), softmax read and written (4), value product read (2). Training's 13 bytes also include dropout.
"""

SAMPLING_BYTES = 12.0
"""HBM bytes per logit in sampling: written (4), read for penalty and softmax (4), read for the choice (4).

**Source:** estimate, 8 to 20.
"""

_SAMPLING_KERNELS = 6.0


class PassTime(NamedTuple):
    """Time of one pass through all pipeline stages, and the activity of chips in it."""

    latency_s: Array  # from the first stage back to it
    period_s: Array  # time between two passes of the same sequences, with a micro-batch for every stage
    breakdown: Breakdown  # of the period
    hidden_s: Array
    busy_s: Array  # time in which a chip computes or moves HBM data, for one micro-batch
    hbm_s: Array
    arithmetic_s: Array  # the breakdown's `compute_s` at the requested clock
    chip_flops: Array  # FLOPs of one micro-batch, weighted by their energy at the sustained clock


def active_experts(flow: work.Flow, plan: Plan) -> tuple[Scalar, Scalar]:
    """Return the number of a chip's E_l experts that a pass activates, and the token copies of each.

    The number is `E_l (1 - (1 - k/E)^T)`, at least one, because some chip of the group activates one. T tokens of the
    expert-parallel group choose k of E experts each, at random. With few tokens only few experts are active, and the weights of
    the others are not read. Copies of an expert share its tokens. The expression saturates, so it is not log-log convex in the
    batch.
    """
    w = flow.model
    has = w.experts > 0
    experts = jnp.where(has, w.experts, 1.0)
    local = jnp.where(has, expert_copies(w, plan), 1.0) / plan.ep
    tokens = flow.tokens * (plan.ep * plan.expert_tp / plan.tp)
    if plan.layout is not None:
        tokens = tokens * jnp.where(has, w.experts / expert_copies(w, plan), 1.0)
    chosen = jnp.where(has & (w.experts_per_token < experts), w.experts_per_token / experts, 0.5)
    met = local * (1.0 - jnp.exp(tokens * jnp.log1p(-chosen)))
    met = jnp.where(w.experts_per_token < experts, hard_maximum(met, jnp.ones_like(met)), local)
    met = jnp.where(has, met, 1.0)
    return met, work.expert_rank_tokens(flow, plan) / met


def _flow(service: Service, batch: Batch) -> work.Flow:
    return work.Flow(
        service.model, layer_work(service.model), batch.rows, service.activation_bytes, service.routing_imbalance
    )


def _table(service: Service, plan: Plan, batch: Batch) -> work.Gemms:
    """Return the GEMM table of a pass, with active experts only, and the head only for sampled tokens."""
    flow = _flow(service, batch)
    table = work.gemms(flow, plan)
    met, tokens = active_experts(flow, plan)
    at = work.places(service.model)
    experts, head = at.experts, at.head
    return table._replace(
        m=table.m * (1.0 - experts - head) + experts * tokens + head * batch.sampled,
        n_launched=table.n_launched * (1.0 - experts + experts * met),  # one grouped kernel fills and drains once
        count=table.count * (1.0 - experts) + experts * met,
    )


def core_flops(core: Core, batch: Batch) -> tuple[Scalar, Scalar]:
    """Return the FLOPs of a core of one layer for one replica: of generated tokens and of prompts.

    - Generated tokens: for b sequences with q tokens each over a context of L tokens, attention takes `2 b q L a (d + d_v)`, with
      a heads of key and value dimensions d and d_v. Latent attention multiplies queries with the latent itself:
      `2 b q L a (2 r_kv + d_rope)`.
    - Prompts: `2 c span a (d + d_v)` for c new tokens, where span is the cached tokens and half of the new ones.

    A scan takes the same FLOPs for each token, independent of its context.
    """
    generated = batch.sequences * batch.queries
    met = cache.kept_tokens(core.local, core.window, batch.context)
    span = cache.prompt_span(core, batch.prompt_context, batch.prompt_length)
    decoding = generated * total(met * core.decode_flops, core.decode_token_flops)
    prompts = work.fewer(span, batch.prompt_context + 0.5 * batch.prompt_length, core)
    return decoding, batch.prompt_tokens * total(prompts, core.token_flops)


def attention_flops(w: Transformer, batch: Batch) -> Scalar:
    """Return the FLOPs of the cores of one layer for one replica, mean over layers, of generated tokens and prompts."""
    return cache.over_layers(w, lambda shape, _: total(*(sum(core_flops(c, batch)) for c in layer_work(shape).cores)))


def _attention(service: Service, chip: Chip, stack: Stack, plan: Plan, batch: Batch, maximum: Maximum) -> KernelTime:
    """Return the kernel time of one layer's cores: decoding, which reads cache and state, and prefill, as in training."""
    w, layer = service.model, layer_work(service.model)
    rate = wide_rate(chip, service) * stack.attention_forward_efficiency
    attention, *others = layer.cores
    decoding, prompts = (flops / plan.tp for flops in core_flops(attention, batch))
    read = batch.sequences * cache.read_bytes(service, plan, stack, batch.context)
    read_time = kernel_time(decoding, rate, read, chip, attention.kernels, stack, maximum)
    some = lambda count: jnp.where(count > 0.0, 1.0, 0.0)
    starts = some(batch.sequences) * stack.attention_start_s + some(batch.prompts) * stack.prompt_start_s
    if stated(attention.kernels):
        starts = attention.kernels * starts
    read_time = read_time._replace(launch_s=read_time.launch_s + starts)

    heads = layer.heads / plan.tp
    own_heads = work.kv_parts_per_chip(layer, plan)
    streams = 2.0 * batch.prompt_tokens * (heads + own_heads) * (layer.qk_dim + layer.v_dim)
    whole = cache.token_bytes(service, plan) * cache.sharing(service, plan, stack, 1.0)
    streams = streams + batch.prompts * cache.layer_mean(w, batch.prompt_context) * whole
    stored = stack.attention_scores_stored
    scores = stored * batch.prompt_tokens * (batch.prompt_context + batch.prompt_length) * heads
    # An unfused kernel computes the masked half of the scores, too.
    unseen = 0.5 * batch.prompt_length / (batch.prompt_context + 0.5 * batch.prompt_length)
    computed = prompts * (1.0 + stored * unseen)
    of_prompts = kernel_time(computed, rate, streams, chip, 0.0, stack, maximum)
    unfused = stream_time(SCORE_BYTES * scores, chip, 0.0, stack)
    time = read_time.plus(of_prompts).plus(unfused)
    for each in others:
        time = time.plus(_core(each, service, chip, stack, plan, batch, maximum))
    return time


def _core(
    core: Core, service: Service, chip: Chip, stack: Stack, plan: Plan, batch: Batch, maximum: Maximum
) -> KernelTime:
    """Return the kernel time of an indexer or a scan in one layer: of generated tokens, then of prompts.

    A generated token reads and writes the state of a scan; the keys of an indexer are read with the cache.
    """
    split = (1.0 - core.whole) / plan.tp + core.whole
    decoding, prompts = (split * flops for flops in core_flops(core, batch))
    rate = wide_rate(chip, service) * stack.attention_forward_efficiency
    generated = batch.sequences * batch.queries
    met = cache.kept_tokens(core.local, core.window, batch.context)
    span = cache.prompt_span(core, batch.prompt_context, batch.prompt_length)
    moved = generated * (core.score_bytes * met + core.state_bytes)
    streams = batch.prompt_tokens * (service.activation_bytes * core.streamed + core.score_bytes * span)
    some = lambda flops, kernels: jnp.where(flops > 0.0, kernels, 0.0)
    one = kernel_time(decoding, rate, split * moved, chip, some(decoding, 1.0), stack, maximum)
    return one.plus(kernel_time(prompts, rate, split * streams, chip, some(prompts, core.kernels), stack, maximum))


def _in_halves(plan: Plan, batch: Batch) -> tuple[Scalar | float, Batch]:
    """Return the number of parts (1 or 2) into which two-batch overlap splits a batch, and one such part."""
    if plan.layout is None:
        return 1.0, batch
    parts = 1.0 + plan.layout.two_batches
    each = 1.0 / parts
    return parts, batch._replace(
        sequences=each * batch.sequences,
        prompts=each * batch.prompts,
        prompt_tokens=each * batch.prompt_tokens,
    )


def _head(service: Service, cluster: Cluster, plan: Plan, table: KernelTime, batch: Batch) -> ExposedTime:
    """Return the time of embedding, output head and sampling for one micro-batch."""
    stack, w = cluster.stack, service.model
    logits = batch.sampled * w.vocab
    passes = stream_time(SAMPLING_BYTES * logits / plan.tp, cluster.chip, _SAMPLING_KERNELS, stack)
    time = settled(cluster.chip, table.summed(work.places(w).head), beside=passes).plus(passes)
    one = jnp.ones_like(plan.tp)
    launch = stack.collective_launch_s
    embedded = batch.rows * w.hidden * service.activation_bytes
    tp = collectives.all_reduce_s(cluster.network, embedded, plan.tp, one, launch)
    tp = tp + collectives.ring_pass_s(cluster.network, 2.0 * logits, plan.tp, one, launch, stack.logarithmic_passes)
    return ExposedTime.of(time, tp_comm_s=tp)


def pass_flops(w: Transformer, batch: Batch) -> Scalar:
    """Return the model FLOPs of one pass of one replica: 2 per weight and token, the head for sampled tokens, attention."""
    layers = work.matrix_parameters(w) - w.vocab * w.hidden
    cores = attention_flops(w, batch) * w.layers
    return 2.0 * batch.rows * layers + 2.0 * batch.sampled * w.vocab * w.hidden + cores


def pass_gemms(
    service: Service, cluster: Cluster, plan: Plan, batch: Batch, maximum: Maximum
) -> tuple[work.Gemms, KernelTime]:
    """Return the GEMM table of a pass and the time of each GEMM."""
    table = _table(service, plan, batch)
    return table, gemm_time(table, service, cluster.chip, cluster.stack, maximum, service.weight_bytes)


def _layers(
    service: Service, cluster: Cluster, plan: Plan, batch: Batch, table: KernelTime | None, maximum: Maximum
) -> ExposedTime:
    """Return the time of all layers in one pass of a batch.

    With two-batch overlap, expert exchanges of one half of a batch overlap with all work of the other half
    (`Stack.two_batch_overlap`). The exposed exchange of the first layer is neglected.

    **Arguments:** `table`: times of the batch's GEMMs; None to compute them.

    **Source:** DeepSeek-AI, DeepSeek-V3 Technical Report, arXiv 2412.19437, sections 3.4.1 and 3.4.2; SGLang, two-batch
    overlap.
    """
    model = service.model
    if table is None:
        _, table = pass_gemms(service, cluster, plan, batch, maximum)
    overlap, parts = cluster.stack.ep_overlap, 1.0
    if plan.layout is not None:
        two = plan.layout.two_batches
        parts = 1.0 + two
        overlap = (1.0 - two) * overlap + two * cluster.stack.two_batch_overlap

    eager = 1.0 - cluster.stack.passes_graphed * jnp.where(batch.prompts > 0.0, 0.0, 1.0)
    enqueued = eager * cluster.chip.host_slowness

    def layer(shape: Transformer, moe: Scalar) -> ExposedTime:
        part = service if shape is model else replace(service, model=shape)
        times = table if shape is model else pass_gemms(part, cluster, plan, batch, maximum)[1]
        flow, weights = _flow(part, batch), chip_weights(shape, plan)
        attention = _attention(part, cluster.chip, cluster.stack, plan, batch, maximum)
        spread = exchanges.spread_s(part, cluster, plan, batch)
        if plan.layout is not None:
            spread = spread + exchanges.split_s(part, cluster, plan, batch)
        kernels = layer_kernels(flow, cluster, plan, moe, times, attention)
        launch = kernels.passes.launch_s + moe * cluster.stack.expert_start_s
        kernels = kernels._replace(passes=kernels.passes._replace(launch_s=launch)).settled(cluster.chip)
        tp, ep = exchanges.exchanges_s(flow, cluster, plan, moe, batch.prompt_tokens / batch.rows)
        comm = tp + spread, jnp.zeros_like(tp), ep
        gather = exchanges.gather_s(part, cluster, plan, weights, moe)
        gather = gather if plan.layout is None else gather / parts  # once for both halves
        halves = flow.work.halves
        return direction(
            cluster, kernels, comm, gather, moe, maximum, ep_overlap=overlap, layers=enqueued, halves=halves
        )

    return all_layers(model, layer)


def pass_time(service: Service, cluster: Cluster, plan: Plan, batch: Batch, maximum: Maximum) -> PassTime:
    """Return the time of a pass of `batch`, which is one micro-batch of each replica.

    - The latency is `L layers + head + p sends`. More pipeline stages add capacity and sends, but do not shorten it.
    - The period is the largest of the latency, p times the slowest stage (where stages are uneven), and the host's time for its
      sequences.

    Weights are read once a pass regardless of the batch; the KV cache is read once for each sequence.

    **Returns:** s; `breakdown` adds up to `period_s`.
    """
    stack, w = cluster.stack, service.model
    parts, part = _in_halves(plan, batch)
    _, table = pass_gemms(service, cluster, plan, batch, maximum)
    layers = _layers(service, cluster, plan, part, table if plan.layout is None else None, maximum)
    layers = layers if plan.layout is None else layers.scaled(parts)
    head = _head(service, cluster, plan, table, batch)
    if stack.pass_level is not None:
        layers, head = layers.scaled(stack.pass_level), head.scaled(stack.pass_level)
    mean = layers.plus(head)

    chips_of_stage = hard_maximum(plan.tp, plan.ep * plan.expert_tp)
    message = batch.rows * w.hidden * service.activation_bytes / plan.tp
    send = collectives.neighbour_send_s(cluster.network, message, plan.pp, chips_of_stage)
    sends = plan.pp * send
    latency = mean.total_s + sends
    stage = layers.total_s / plan.pp
    slowest = maximum(stage * plan.fullest_stage, stage * plan.last_stage + head.total_s) + send
    period = maximum(latency, several(plan.pp) * plan.pp * slowest)
    host_s = batch.sequences * stack.host_sequence_s * cluster.chip.host_slowness
    between_s = stack.step_overhead_s * cluster.chip.host_slowness
    overhead_s = between_s + maximum(period, plan.pp * host_s) - period
    jitter = period * jitter_fraction(stack.jitter_sigma, chips_of_stage)
    breakdown = Breakdown.of(
        mean,
        pp_comm_s=sends,
        pp_imbalance_s=period - latency,
        overhead_s=overhead_s,
        jitter_s=jitter,
    )
    return PassTime(
        latency_s=maximum(latency, host_s) + jitter + between_s,
        period_s=period + jitter + overhead_s,
        breakdown=breakdown,
        hidden_s=mean.hidden_s,
        busy_s=(mean.compute_s + mean.memory_bound_s) / plan.pp,
        hbm_s=mean.hbm_s / plan.pp,
        arithmetic_s=mean.arithmetic_s,
        chip_flops=pass_flops(w, batch) / (plan.tp * plan.pp) * (mean.core_s / mean.arithmetic_s),
    )


def floor_s(service: Service, cluster: Cluster, plan: Plan, batch: Batch) -> Scalar:
    """Return the memory-bandwidth floor of a pass: bytes of weights and KV cache read, over the bandwidth of the chips.

    `(weights of active layers and experts + head + b L cache) / (t HBM)`. Pipeline stages work one after the other, so the
    floor counts the bandwidth of t tensor-parallel chips only.

    **Returns:** s.
    """
    stack, byte_s = cluster.stack, hbm_seconds_per_byte(cluster.chip)

    def layer(shape: Transformer, moe: Scalar) -> Scalar:
        part = replace(service, model=shape)
        at = work.places(shape)
        own = at.mixer + (1.0 - moe) * at.dense + moe * (at.moe + at.experts)
        read = batch.sequences * cache.read_bytes(part, plan, stack, batch.context, 1.0)
        states = total(*(batch.sequences * each.state_bytes / plan.tp for each in layer_work(shape).cores[1:]))
        return total(jnp.sum(_stored_bytes(part, plan, batch) * own) + read, states)

    count, each = each_kind(service.model, layer)
    head = jnp.sum(_stored_bytes(service, plan, batch) * work.places(service.model).head)
    return (jnp.sum(count * each) + head) * byte_s


def _stored_bytes(service: Service, plan: Plan, batch: Batch) -> Array:
    """Return the bytes of the weights that a pass reads on one chip, for each GEMM."""
    table = _table(service, plan, batch)
    low = table.low_precision
    element = low * service.weight_bytes + (1.0 - low) * 2.0
    return jnp.where(table.n > 0, table.n * table.k * table.count, 0.0) * element
