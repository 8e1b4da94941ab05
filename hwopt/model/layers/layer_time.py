"""Time of one layer for one micro-batch on one chip: kernels and the communication that overlaps with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.chip import Chip
from hwopt.hardware.cluster import Cluster
from hwopt.model.chip.roofline import KernelTime, hbm_seconds_per_byte, kernel_time, stream_time, wide_rate
from hwopt.model.chip.sustained_clock import ClockModel, settled
from hwopt.model.layers import work
from hwopt.model.layers.kinds import each_kind
from hwopt.model.layers.parameters import Weights
from hwopt.model.network import collectives
from hwopt.model.network.route import members_per_tier
from hwopt.model.numerics.maximum import Maximum, above_zero, hidden, overlapped, several
from hwopt.model.training.footprint import micro_batches
from hwopt.plan import Plan
from hwopt.stack import Stack
from hwopt.types import Scalar
from hwopt.workload.layer_work import stated, total
from hwopt.workload.mechanisms.latent_experts import expert_width
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer

MISALIGNED = 5.0
"""Slowdown of unfused attention products whose inner dimension is not a multiple of 16 B, relative to aligned products.

Such kernels load single elements. A fused kernel pads the head dimension instead.

**Source:** estimate, 2 to 8; NVIDIA, Matrix Multiplication Background (recalled), says that such kernels lose most of their
speed.
"""


_COLLECTIVES = 4.0
"""Number of tensor-parallel collectives of a layer in one direction.

Attention and the MLP each have one all-gather and one reduce-scatter.
"""


class ExposedTime(NamedTuple):
    """Seconds by cause. Communication fields count only its exposed part; the overlapped part is in `hidden_s`.

    The last five fields are not part of the total: overlapped communication, the times from which power is computed, and
    communication beyond the scale-up domain.
    """

    compute_s: Array
    memory_bound_s: Array
    host_s: Array
    tp_comm_s: Array
    cp_comm_s: Array
    ep_comm_s: Array
    dp_comm_s: Array
    hidden_s: Array
    hbm_s: Array  # time in which HBM is busy
    arithmetic_s: Array  # `compute_s` at the requested clock
    core_s: Array  # `arithmetic_s` times its energy at the sustained clock, relative to the requested clock
    nic_s: Array  # communication beyond the scale-up domain, overlapped or not

    @property
    def total_s(self) -> Array:
        return sum(self[1:-5], start=self[0])

    @property
    def mean_pace(self) -> ClockModel:
        """Average slowdown and relative energy of all arithmetic, compared with the requested clock."""
        return ClockModel(self.compute_s / self.arithmetic_s, self.core_s / self.arithmetic_s)

    @classmethod
    def of(cls, kernels: KernelTime, **others: Array) -> ExposedTime:
        """Build the times from those of kernels. Other fields are passed by name and are zero by default."""
        compute, memory, launch, hbm, arithmetic, core = kernels
        own = {"compute_s": compute, "memory_bound_s": memory, "host_s": launch}
        own |= {"hbm_s": hbm, "arithmetic_s": arithmetic, "core_s": core}
        return cls(**dict.fromkeys(cls._fields, jnp.zeros_like(compute)) | own | others)

    def scaled(self, factor: Array | float) -> ExposedTime:
        return ExposedTime(*(part * factor for part in self))

    def plus(self, other: ExposedTime) -> ExposedTime:
        return ExposedTime(*(a + b for a, b in zip(self, other, strict=True)))


class Kernels(NamedTuple):
    """Kernels of one layer in one direction, grouped by the communication that overlaps with them."""

    products: KernelTime  # GEMMs outside experts; overlap with tensor parallelism
    attention: KernelTime  # overlaps with context parallelism
    experts: KernelTime  # overlap with expert parallelism
    passes: KernelTime  # elementwise

    def settled(self, chip: Chip) -> Kernels:
        """Return the kernels at their sustained clocks under the power limit of the `chip`.

        Products (with the elementwise passes between them), attention and experts each get their own clock. This keeps the time
        available for overlap monotone: it shortens with everything that shortens its kernels. No kernel slows down because
        another one becomes faster.
        """
        return Kernels(
            products=settled(chip, self.products, beside=self.passes),
            attention=settled(chip, self.attention),
            experts=settled(chip, self.experts),
            passes=self.passes,
        )


def all_layers(model: Transformer, one: Callable[[Transformer, Scalar], ExposedTime]) -> ExposedTime:
    """Sum the time of all layers of a model.

    **Arguments:** `one`: function that returns the time of one layer of a shape, for its type (1: MoE, 0: dense). Where the
    model has several kinds of layers, the shape is one in which all layers are of that kind.
    """
    count, each = each_kind(model, one)
    return ExposedTime(*(jnp.sum(part) for part in each.scaled(count)))


def _cores(
    flow: work.Flow, run: TrainingRun, chip: Chip, stack: Stack, plan: Plan, maximum: Maximum
) -> tuple[KernelTime, KernelTime]:
    """Return the kernel times of one layer's cores (attention, indexer, scan), forward and backward.

    A fused attention kernel recomputes the scores in the backward pass, which takes 2.5 times the forward FLOPs. An unfused one
    stores them in HBM and takes 2 times the forward FLOPs. Other cores do as fused kernels do.
    """
    attention, *others = flow.work.cores
    fraction = work.executed_causal_fraction(run, stack)
    flops = flow.tokens * work.core_flops(run, attention, fraction) / plan.tp
    stored = stack.attention_scores_stored
    elements = stored * work.attention_score_elements(run, plan, flow.work.heads)
    streams = work.attention_stream_bytes(flow, plan)
    rate = wide_rate(chip, run) / (1.0 + stored * flow.model.misaligned_heads * (MISALIGNED - 1.0))

    def core(
        flops: Array, efficiency: Array, stream_bytes: Array, score_bytes: float, kernels: Scalar | float
    ) -> KernelTime:
        written = elements * score_bytes
        time = kernel_time(flops, rate * efficiency, stream_bytes + written, chip, kernels, stack, maximum)
        # Without a fused kernel scores pass through HBM between products, so the two times add instead of overlapping.
        added = written * hbm_seconds_per_byte(chip)
        return time._replace(memory_s=(1.0 - stored) * time.memory_s + stored * added)

    forward = core(flops, stack.attention_forward_efficiency, streams, work.SCORE_BYTES_FORWARD, attention.kernels)
    again = flops * (2.5 - 0.5 * stored)
    backward = core(
        again, stack.attention_backward_efficiency, 3.0 * streams, work.SCORE_BYTES_BACKWARD, 2.0 * attention.kernels
    )
    for each in others:
        split = (1.0 - each.whole) / plan.tp + each.whole
        flops = split * flow.tokens * work.core_flops(run, each, run.causal_fraction)
        span = work.attention_span(run, each, run.causal_fraction)
        streams = split * flow.tokens * (run.activation_bytes * each.streamed + each.score_bytes * span)
        some = jnp.where(flops > 0.0, each.kernels, 0.0)
        time = kernel_time(flops, rate * stack.attention_forward_efficiency, streams, chip, some, stack, maximum)
        back_rate = rate * stack.attention_backward_efficiency
        back = kernel_time(2.5 * flops, back_rate, 3.0 * streams, chip, 2.0 * some, stack, maximum)
        forward, backward = forward.plus(time), backward.plus(back)
    return forward, backward


def layer_kernels(
    flow: work.Flow,
    cluster: Cluster,
    plan: Plan,
    moe: Scalar,
    table: KernelTime,
    attention: KernelTime,
    left_out: Array | float = 0.0,
) -> Kernels:
    """Return the kernels of one layer, forward.

    **Arguments:**

    - `moe`: layer type (1: MoE, 0: dense).
    - `table`: times of the GEMM table.
    - `attention`: time of attention, and of the other cores.
    - `left_out`: share of the layer's last product that is skipped.
    """
    stack = cluster.stack
    passes = stack.elementwise_passes * work.elementwise_bytes(flow, plan, moe)
    passes = passes + stack.routing_passes * moe * work.routing_bytes(flow, plan)
    at = work.places(flow.model)
    run_share = 1.0 - left_out * at.last
    own, starts = (1.0 - moe) * at.dense + moe * at.moe, stack.elementwise_kernels
    if stated(flow.work.halves):
        starts = 0.5 * flow.work.halves * starts
    return Kernels(
        products=table.summed((at.mixer + own) * run_share),
        attention=attention,
        experts=table.summed(moe * at.experts * run_share),
        passes=stream_time(passes, cluster.chip, starts, stack),
    )


def direction(
    cluster: Cluster,
    kernels: Kernels,
    comm: tuple[Array, Array, Array],
    gather_s: Array,
    moe: Array,
    maximum: Maximum,
    collectives: Array | float = 0.0,
    ep_overlap: Array | None = None,
    layers: Array | None = None,
    beyond: Array | None = None,
    halves: Scalar | float = 2.0,
) -> ExposedTime:
    """Return the time of one direction of one layer from its kernels and its communication.

    Tensor parallelism overlaps with products, context parallelism with attention. Expert exchanges overlap with the whole
    layer, including the exposed communication so far. Weight gathering overlaps with the sum of these. The host enqueues the
    layer and its collectives at the same time; the slower of device and host counts.

    **Arguments:**

    - `comm`: seconds of tensor, context and expert parallelism, before overlap.
    - `gather_s`: seconds of weight gathering (and gradient scattering), before overlap.
    - `moe`: layer type (1: MoE, 0: dense).
    - `collectives`: number of collectives that the host launches.
    - `ep_overlap`: share of the work that can overlap with expert exchanges; the stack's by default.
    - `layers`: number of layers of host time to count; one by default.
    - `beyond`: 1 where communication of tensor, context and expert parallelism and weight gathering leaves the scale-up
      domain; None if the caller needs no `nic_s`.
    - `halves`: halves that the layer has, see `LayerWork`. A missing one saves half of a dense layer's host time.

    **Shapes:** `beyond` (4,).
    """
    stack = cluster.stack

    def beside(work_s: Array, comm_s: Array, overlap: Array) -> tuple[Array, Array]:
        """Return the exposed and the overlapped seconds of a communication that runs concurrently with work."""
        exposed = overlapped(work_s, comm_s, overlap, stack.communication_slowdown, maximum) - work_s
        return exposed, hidden(work_s, comm_s, overlap, stack.communication_slowdown)

    tp, tp_hidden = beside(kernels.products.total_s, comm[0], stack.tp_overlap)
    cp, cp_hidden = beside(kernels.attention.total_s, comm[1], stack.cp_overlap)
    everything = kernels.products.plus(kernels.attention).plus(kernels.experts).plus(kernels.passes)
    # Dispatch and combine overlap with the whole layer: that of another micro-batch, or shared experts.
    inner = everything.total_s + tp + cp
    ep, ep_hidden = beside(inner, comm[2], stack.ep_overlap if ep_overlap is None else ep_overlap)
    device = inner + ep
    enqueued = (1.0 - moe) * stack.host_layer_s + moe * stack.host_moe_layer_s
    if stated(halves):
        enqueued = enqueued - (1.0 - 0.5 * halves) * stack.host_layer_s
    enqueued = (enqueued if layers is None else layers * enqueued) + collectives * stack.host_collective_s
    before = maximum(device, enqueued)
    gather, gather_hidden = beside(before, gather_s, stack.dp_overlap)
    host = everything.launch_s + (before - device)
    unseen = tp_hidden + cp_hidden + ep_hidden + gather_hidden
    comm_s = {"tp_comm_s": tp, "cp_comm_s": cp, "ep_comm_s": ep, "dp_comm_s": gather}
    if beyond is not None:
        comm_s["nic_s"] = jnp.sum(beyond * jnp.stack([*comm, gather_s]))
    return ExposedTime.of(everything, host_s=host, hidden_s=unseen, **comm_s)


def leaves_domain(cluster: Cluster, plan: Plan, weights: Weights) -> Array:
    """Return where tensor, context and expert parallelism and weight sharding leave the scale-up domain; see `beyond_domain`.

    **Shapes:** (4,).
    """
    strides = jnp.stack([jnp.ones_like(plan.tp), plan.tp, plan.expert_tp, plan.tp])
    groups = jnp.stack([plan.tp, plan.cp, plan.ep, weights.ranks])
    return collectives.beyond_domain(cluster.network, groups, strides)


def _distinct_domains(cluster: Cluster, plan: Plan, w: Transformer) -> Scalar:
    """Return the number of scale-up domains that contain a token's k experts, divided by k.

    It is `n / (n + 0.6 (k - 1))` for an expert-parallel group that spans n domains. Group-limited routing caps it at
    `routed_groups / k` (a kink). The formula is a fit to `n (1 - (1 - 1/n)^k) / k`, the mean for experts chosen at random. It
    is within 10 % for n >= 4 and k <= 8, and within 30 % for n = 2.
    """
    copies = w.experts_per_token
    domains = members_per_tier(cluster.network, plan.ep, plan.expert_tp)
    beyond = domains[1] * domains[2]
    anywhere = beyond * (1.0 / (beyond + 0.6 * above_zero(copies - 1.0)))
    limited = w.routed_groups > 0
    most = jnp.where(limited, w.routed_groups, 1.0) / jnp.where(copies > 0, copies, 1.0)
    return jnp.where(limited, anywhere - above_zero(anywhere - most), anywhere)


def dispatch_s(flow: work.Flow, cluster: Cluster, plan: Plan, moe: Scalar, share: Scalar | float = 1.0) -> Scalar:
    """Return the seconds of dispatch and combine (token copies to experts and back), before any overlap.

    **Arguments:** `share`: fraction of tokens sent by kernels that deduplicate copies per domain, if the stack has such
    kernels.
    """
    stack, w = cluster.stack, flow.model
    sent = work.routed_tokens(flow, plan) * expert_width(w) * flow.activation_bytes * work.imbalance(flow, plan)
    sent = sent * (0.5 + 0.5 * stack.dispatch_bytes_share)
    once = 1.0 - share * stack.dispatch_deduplicated * (1.0 - _distinct_domains(cluster, plan, w))
    launch = stack.collective_launch_s
    return 2.0 * moe * collectives.all_to_all_s(cluster.network, sent, plan.ep, plan.expert_tp, launch, once)


def all_reduces_s(flow: work.Flow, cluster: Cluster, plan: Plan, copies: Scalar) -> Array:
    """Return the seconds of two all-reduces of a layer's activations, before any overlap.

    The first runs among the tensor-parallel ranks of the layer. The second runs among the tensor-parallel ranks of an expert,
    on `copies` times as many activations.

    **Shapes:** (2,).
    """
    block = flow.tokens * flow.model.hidden * flow.activation_bytes
    sizes, groups = jnp.stack([block, block * copies]), jnp.stack([plan.tp, plan.expert_tp])
    return collectives.all_reduces_s(cluster.network, sizes, groups, jnp.ones_like(sizes), cluster.stack)


def _communication(
    flow: work.Flow, run: TrainingRun, cluster: Cluster, plan: Plan, weights: Weights, moe: Scalar
) -> tuple[tuple[Array, Array, Array], Array, Array]:
    """Return the communication times of one layer, forward, before any overlap.

    **Returns:** three entries, in seconds for one micro-batch:

    - a tuple of tensor parallelism (an all-gather and a reduce-scatter around attention and around the MLP), context
      parallelism (a ring pass of keys and values, and of the state of scans) and expert parallelism (dispatch and combine);
    - gathering of sharded weights (ZeRO-3, FSDP);
    - scattering of sharded gradients (from ZeRO-2 on).

    Tensor parallelism moves `b s h / c` elements: b sequences of length s and hidden size h, over c context-parallel ranks.

    Gathering and scattering happen in every micro-batch, because a chip keeps only its own shard. In a pipeline they happen
    once a step.
    """
    stack, w, layer = cluster.stack, flow.model, flow.work
    around, expert_around = all_reduces_s(flow, cluster, plan, w.experts_per_token)
    has_shared = jnp.where(w.shared_experts > 0, 1.0, 0.0)
    dense = (1.0 - moe) * (1.0 - w.parallel_layers)  # in parallel layers attention and MLP are reduced together
    if stated(layer.mixers):  # a half of a layer may be missing
        dense = (layer.halves - layer.mixers) * dense
    tp = around * (layer.mixers + dense + moe * has_shared) + moe * expert_around
    each_token = total(work.kv_parts_per_chip(layer, plan) * (layer.qk_dim + layer.v_dim), layer.ring)
    kv_bytes = total(
        2.0 * plan.micro_batch * run.sequence_length * each_token,
        plan.micro_batch * plan.cp * layer.state_bytes / plan.tp if stated(layer.state_bytes) else 0.0,
    )
    own, routed = weights.layer(moe), weights.experts_layer
    ranks, expert_ranks, stride = weights.ranks, weights.expert_ranks, plan.ep * plan.expert_tp
    weight, gradient = run.gathered_weight_bytes, stack.gradient_bytes * run.trainable_fraction
    cp, gather, expert_gather, scatter, expert_scatter = collectives.ring_passes_s(
        cluster.network,
        jnp.stack([kv_bytes, own * weight, routed * weight, own * gradient, routed * gradient]),
        jnp.stack([plan.cp, ranks, expert_ranks, ranks, expert_ranks]),
        jnp.stack([plan.tp, plan.tp, stride, plan.tp, stride]),
        stack,
    )
    # A pipeline gathers its stage once a step, not once a micro-batch (`footprint` counts the whole stage in memory).
    single = above_zero(2.0 - plan.pp)
    times = single + (1.0 - single) * (1.0 / micro_batches(run, plan))
    each = times * (1.0 / stack.gather_efficiency)
    comm = tp, cp, dispatch_s(flow, cluster, plan, moe)
    gathered = each * plan.weights_sharded * (gather + moe * expert_gather)
    return comm, gathered, each * plan.gradients_sharded * (scatter + moe * expert_scatter)


def layer_time(
    run: TrainingRun, cluster: Cluster, plan: Plan, weights: Weights, table: KernelTime, moe: Scalar, maximum: Maximum
) -> ExposedTime:
    """Return the time of one layer by cause: forward, backward, and the repeated forward pass under recomputation.

    **Arguments:**

    - `table`: times of the GEMM table, forward.
    - `moe`: layer type (1: MoE, 0: dense).

    **Returns:** seconds of one micro-batch on the chips of one stage.
    """
    flow, stack = work.flow(run, plan), cluster.stack
    attention, attention_backward = _cores(flow, run, cluster.chip, stack, plan, maximum)
    comm, gather, scatter = _communication(flow, run, cluster, plan, weights, moe)
    tp, cp, ep = comm
    kernels = layer_kernels(flow, cluster, plan, moe, table, attention).settled(cluster.chip)
    halves = flow.work.halves
    launched = (0.5 * halves * _COLLECTIVES if stated(halves) else _COLLECTIVES) * several(plan.tp)
    beyond = leaves_domain(cluster, plan, weights)
    timed = partial(direction, cluster, moe=moe, maximum=maximum, collectives=launched, beyond=beyond, halves=halves)
    forward = timed(kernels, comm, gather)
    gradients = 1.0 + run.trainable_fraction  # with respect to inputs, and to trainable weights
    backward_kernels = Kernels(
        products=kernels.products.scaled(gradients),
        attention=settled(cluster.chip, attention_backward),
        experts=kernels.experts.scaled(gradients),
        passes=kernels.passes.scaled(2.0),
    )
    backward = timed(backward_kernels, (tp, 2.0 * cp, ep), gather + scatter)
    # Recomputation reuses the weights gathered for the backward pass.
    needed = layer_kernels(flow, cluster, plan, moe, table, attention, stack.recompute_stops_early).settled(
        cluster.chip
    )
    again = timed(needed, comm, jnp.zeros_like(tp)).scaled(plan.recompute_full)
    attention_share = (1.0 - plan.recompute_full) * plan.recompute_attention
    return forward.plus(backward).plus(again.plus(ExposedTime.of(kernels.attention).scaled(attention_share)))
