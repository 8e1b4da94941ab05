"""Time of one layer of one micro-batch on one chip: kernels, and the communication beside them."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.chip import Chip
from hwopt.hardware.cluster import Cluster
from hwopt.model import collectives, work
from hwopt.model.footprint import micro_batches
from hwopt.model.maximum import Maximum, above_zero, overlapped
from hwopt.model.parameters import Held, shard_ranks
from hwopt.model.roofline import KernelTime, bf16_rate, hbm_seconds_per_byte, kernel_time, stream_time
from hwopt.model.route import members_per_tier
from hwopt.plan import Plan
from hwopt.stack import Stack
from hwopt.types import Scalar
from hwopt.workload.training import TrainingRun

_ELEMENTWISE_KERNELS = 8.0  # norms, adds, rotary, activation of a layer, launched separately


class Exposed(NamedTuple):
    """Seconds by cause. Communication counts what is left outside compute; the rest of it is in `hidden_s`.

    `hidden_s` and `hbm_s` run under the others and are not part of the total.
    """

    compute_s: Array
    memory_bound_s: Array
    host_s: Array
    tp_comm_s: Array
    cp_comm_s: Array
    ep_comm_s: Array
    dp_comm_s: Array
    hidden_s: Array
    hbm_s: Array  # in which HBM is busy

    @property
    def total_s(self) -> Array:
        return sum(self[1:-2], start=self[0])

    def scaled(self, factor: Array | float) -> Exposed:
        return Exposed(*(part * factor for part in self))

    def plus(self, other: Exposed) -> Exposed:
        return Exposed(*(a + b for a, b in zip(self, other, strict=True)))


class LayerTime(NamedTuple):
    """One layer, forward (repeated when recomputed) and backward."""

    forward: Exposed
    backward: Exposed
    recompute: Exposed


class Kernels(NamedTuple):
    """Forward kernels of one layer by the communication that runs beside them."""

    products: KernelTime  # GEMMs outside experts: beside tensor parallelism
    attention: KernelTime  # beside context parallelism
    attention_backward: KernelTime
    experts: KernelTime  # beside expert parallelism
    passes: KernelTime  # elementwise


def _attention(
    run: TrainingRun, chip: Chip, stack: Stack, plan: Plan, maximum: Maximum
) -> tuple[KernelTime, KernelTime]:
    """Attention core of one layer forward and backward: fused (scores rebuilt: 2.5 x FLOPs) or with stored scores."""
    flops = work.attention_flops(run, plan, work.attention_span(run, work.executed_causal_fraction(run, stack)))
    stored = stack.attention_scores_stored
    elements = stored * work.attention_score_elements(run, plan)
    streams = work.attention_stream_bytes(run, plan)
    rate = bf16_rate(chip)
    forward = kernel_time(
        flops,
        rate * stack.attention_forward_efficiency,
        streams + elements * work.SCORE_BYTES_FORWARD,
        chip,
        1.0,
        stack,
        maximum,
    )
    backward = kernel_time(
        flops * (2.5 - 0.5 * stored),
        rate * stack.attention_backward_efficiency,
        3.0 * streams + elements * work.SCORE_BYTES_BACKWARD,
        chip,
        2.0,
        stack,
        maximum,
    )
    # Without a fused kernel scores pass through HBM between products, so the two times add instead of overlapping.
    return _unfused(forward, stored, elements * work.SCORE_BYTES_FORWARD, chip), _unfused(
        backward, stored, elements * work.SCORE_BYTES_BACKWARD, chip
    )


def _unfused(time: KernelTime, stored: Scalar, score_bytes: Scalar, chip: Chip) -> KernelTime:
    added = score_bytes * hbm_seconds_per_byte(chip)
    return time._replace(memory_s=(1.0 - stored) * time.memory_s + stored * added)


def layer_kernels(
    flow: work.Flow,
    cluster: Cluster,
    plan: Plan,
    moe: Scalar,
    table: KernelTime,
    attention: tuple[KernelTime, KernelTime],
    left_out: Array | float = 0.0,
) -> Kernels:
    """Kernels of one layer, forward.

    **Arguments:** `table`: times of the GEMM table; `attention` core forward and backward; `left_out`: share of the
    layer's last product that does not run.
    """
    chip, stack = cluster.chip, cluster.stack
    forward, backward = attention
    passes = stack.elementwise_passes * work.elementwise_bytes(flow, plan, moe)
    passes = passes + stack.routing_passes * moe * work.routing_bytes(flow, plan)
    run_share = 1.0 - left_out * work.IN_LAST
    own = (1.0 - moe) * work.IN_DENSE_LAYER + moe * work.IN_MOE_LAYER
    return Kernels(
        products=table.summed((work.IN_EVERY_LAYER + own) * run_share),
        attention=forward,
        attention_backward=backward,
        experts=table.summed(moe * work.IN_EXPERTS * run_share),
        passes=stream_time(passes, chip, _ELEMENTWISE_KERNELS, stack),
    )


def _beside(work_s: Array, comm_s: Array, overlap: Array, stack: Stack, maximum: Maximum) -> tuple[Array, Array]:
    """Exposed and hidden seconds of a communication beside work."""
    exposed = overlapped(work_s, comm_s, overlap, stack.communication_slowdown, maximum) - work_s
    return exposed, above_zero(comm_s - exposed)


def direction(
    cluster: Cluster, kernels: Kernels, comm: tuple[Array, Array, Array], gather_s: Array, moe: Array, maximum: Maximum
) -> Exposed:
    """One direction of one layer, from its kernels and its communication (tensor, context, expert).

    Each communication hides under what is there before it, so that no work hides two at once.
    """
    stack = cluster.stack
    tp, tp_hidden = _beside(kernels.products.total_s, comm[0], stack.tp_overlap, stack, maximum)
    cp, cp_hidden = _beside(kernels.attention.total_s, comm[1], stack.cp_overlap, stack, maximum)
    everything = kernels.products.plus(kernels.attention).plus(kernels.experts).plus(kernels.passes)
    # Dispatch and combine hide under the whole layer: another micro-batch's, or shared experts.
    inner = everything.total_s + tp + cp
    ep, ep_hidden = _beside(inner, comm[2], stack.ep_overlap, stack, maximum)
    device = inner + ep
    before = maximum(device, (1.0 - moe) * stack.host_layer_s + moe * stack.host_moe_layer_s)
    gather, gather_hidden = _beside(before, gather_s, stack.dp_overlap, stack, maximum)
    hidden = tp_hidden + cp_hidden + ep_hidden + gather_hidden
    host = everything.launch_s + (before - device)
    return Exposed(everything.compute_s, everything.memory_s, host, tp, cp, ep, gather, hidden, everything.hbm_s)


class _Communication(NamedTuple):
    """Seconds of one layer's communication, forward, before any overlap."""

    tp_s: Array  # an all-gather and a reduce-scatter of `b s h / c` around attention and around the MLP
    cp_s: Array  # a ring pass of keys and values
    ep_s: Array  # dispatch and combine
    gather_s: Array  # weights under weight sharding (ZeRO-3, FSDP)
    scatter_s: Array  # their gradients


def _distinct_domains(cluster: Cluster, plan: Plan, copies: Scalar) -> Scalar:
    """Scale-up domains that a token's k experts lie in, over k: `n / (n + 0.6 (k - 1))` for a group of n domains.

    A fit to `n (1 - (1 - 1/n)^k) / k`, the mean for experts chosen at random, within 10 % for n >= 4
    and k <= 8, 30 % for n = 2.
    """
    domains = members_per_tier(cluster.network, plan.ep, plan.expert_tp)
    beyond = domains[1] * domains[2]
    return beyond * (1.0 / (beyond + 0.6 * above_zero(copies - 1.0)))


def dispatch_s(flow: work.Flow, cluster: Cluster, plan: Plan, moe: Scalar) -> Scalar:
    """Dispatch of token copies to experts and their way back, before any overlap."""
    stack, w = cluster.stack, flow.model
    sent = work.routed_tokens(flow, plan) * w.hidden * flow.activation_bytes * flow.routing_imbalance
    once = 1.0 - stack.dispatch_deduplicated * (1.0 - _distinct_domains(cluster, plan, w.experts_per_token))
    launch = stack.collective_launch_s
    return 2.0 * moe * collectives.all_to_all_s(cluster.network, sent, plan.ep, plan.expert_tp, launch, once)


def _communication(run: TrainingRun, cluster: Cluster, plan: Plan, held: Held, moe: Scalar) -> _Communication:
    network, stack, w = cluster.network, cluster.stack, run.model
    launch = stack.collective_launch_s
    flow = work.flow(run, plan)
    block = flow.tokens * w.hidden * run.activation_bytes
    one = jnp.ones_like(block)
    around, expert_around = collectives.all_reduces_s(
        network,
        jnp.stack([block, block * w.experts_per_token]),
        jnp.stack([plan.tp, plan.expert_tp]),
        jnp.stack([one, one]),
        launch,
    )
    has_shared = jnp.where(w.shared_experts > 0, 1.0, 0.0)
    dense = (1.0 - moe) * (1.0 - w.parallel_layers)  # in parallel layers attention and MLP are reduced together
    tp = around * (1.0 + dense + moe * has_shared) + moe * expert_around
    ep = dispatch_s(flow, cluster, plan, moe)
    kv_bytes = 2.0 * plan.micro_batch * run.sequence_length * work.kv_heads_per_chip(w, plan) * (w.qk_dim + w.v_dim)
    own, routed = (1.0 - moe) * held.dense_layer + moe * held.moe_layer, held.experts_layer
    group, expert_group = shard_ranks(plan)
    expert_stride = plan.ep * plan.expert_tp
    weight, gradient = run.weight_bytes, stack.gradient_bytes * run.trainable_fraction
    cp, gather, expert_gather, scatter, expert_scatter = collectives.ring_passes_s(
        network,
        jnp.stack([kv_bytes, own * weight, routed * weight, own * gradient, routed * gradient]),
        jnp.stack([plan.cp, group, expert_group, group, expert_group]),
        jnp.stack([plan.tp, plan.tp, expert_stride, plan.tp, expert_stride]),
        launch,
        stack.logarithmic_passes,
    )
    # A pipeline gathers its stage once a step, not once a micro-batch (`footprint` holds it whole).
    single = above_zero(2.0 - plan.pp)
    times = single + (1.0 - single) * (1.0 / micro_batches(run, plan))
    sharded = plan.weights_sharded * times * (1.0 / stack.gather_efficiency)
    return _Communication(
        tp, cp, ep, sharded * (gather + moe * expert_gather), sharded * (scatter + moe * expert_scatter)
    )


def layer_time(
    run: TrainingRun,
    cluster: Cluster,
    plan: Plan,
    held: Held,
    table: KernelTime,
    moe: Scalar,
    maximum: Maximum,
) -> LayerTime:
    """One layer of one kind, all causes.

    **Arguments:** `held` weights; `table`: times of the GEMM table, forward; `moe` picks the kind (1: MoE, 0: dense).

    **Returns:** seconds of one micro-batch on the chips of one stage.
    """
    flow = work.flow(run, plan)
    attention = _attention(run, cluster.chip, cluster.stack, plan, maximum)
    kernels = layer_kernels(flow, cluster, plan, moe, table, attention)
    comm = _communication(run, cluster, plan, held, moe)
    forward = direction(cluster, kernels, (comm.tp_s, comm.cp_s, comm.ep_s), comm.gather_s, moe, maximum)
    gradients = 1.0 + run.trainable_fraction  # with respect to inputs, and to the weights that train
    backward_kernels = Kernels(
        products=kernels.products.scaled(gradients),
        attention=kernels.attention_backward,
        attention_backward=kernels.attention_backward,
        experts=kernels.experts.scaled(gradients),
        passes=kernels.passes.scaled(2.0),
    )
    backward = direction(
        cluster, backward_kernels, (comm.tp_s, 2.0 * comm.cp_s, comm.ep_s), comm.gather_s + comm.scatter_s, moe, maximum
    )
    zero = jnp.zeros_like(comm.tp_s)
    own = kernels.attention
    nothing = Exposed(zero, zero, zero, zero, zero, zero, zero, zero, zero)
    attention_again = nothing._replace(
        compute_s=own.compute_s, memory_bound_s=own.memory_s, host_s=own.launch_s, hbm_s=own.hbm_s
    )
    # Weights gathered for the backward pass serve the repetition too.
    needed = layer_kernels(flow, cluster, plan, moe, table, attention, cluster.stack.recompute_stops_early)
    repeated = direction(cluster, needed, (comm.tp_s, comm.cp_s, comm.ep_s), zero, moe, maximum)
    again = repeated.scaled(plan.recompute_full)
    attention_share = (1.0 - plan.recompute_full) * plan.recompute_attention
    return LayerTime(forward, backward, again.plus(attention_again.scaled(attention_share)))
