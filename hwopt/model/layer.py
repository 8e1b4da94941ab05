"""Time of one layer of one micro-batch on one chip: kernels, and the communication beside them."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.chip import Chip
from hwopt.hardware.cluster import Cluster
from hwopt.model import collectives, work
from hwopt.model.footprint import layer_parameters
from hwopt.model.maximum import Maximum, overlapped
from hwopt.model.roofline import KernelTime, bf16_rate, gemm_time, kernel_time, stream_time
from hwopt.plan import Plan
from hwopt.stack import Stack
from hwopt.types import Scalar
from hwopt.workload.training import TrainingRun

_ELEMENTWISE_KERNELS = 8.0  # norms, adds, rotary, activation of a layer, launched separately


class Exposed(NamedTuple):
    """Seconds by cause. Communication counts what is left outside compute; the rest of it is in `hidden_s`."""

    compute_s: Array
    memory_bound_s: Array
    host_s: Array
    tp_comm_s: Array
    cp_comm_s: Array
    ep_comm_s: Array
    dp_comm_s: Array
    hidden_s: Array

    @property
    def total_s(self) -> Array:
        return sum(self[1:-1], start=self[0])

    def scaled(self, factor: Array | float) -> Exposed:
        return Exposed(*(part * factor for part in self))

    def plus(self, other: Exposed) -> Exposed:
        return Exposed(*(a + b for a, b in zip(self, other, strict=True)))


class LayerTime(NamedTuple):
    """One layer, forward (repeated when recomputed) and backward."""

    forward: Exposed
    backward: Exposed
    recompute: Exposed


class _Kernels(NamedTuple):
    """Forward kernels of one layer by the communication that runs beside them."""

    products: KernelTime  # GEMMs outside experts: beside tensor parallelism
    attention: KernelTime  # beside context parallelism
    attention_backward: KernelTime
    experts: KernelTime  # beside expert parallelism
    passes: KernelTime  # elementwise


def _attention(run: TrainingRun, chip: Chip, stack: Stack, plan: Plan, maximum: Maximum) -> tuple[KernelTime, KernelTime]:
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
    added = score_bytes / (chip.hbm_bandwidth_bytes_per_s * chip.hbm_efficiency)
    return time._replace(memory_s=(1.0 - stored) * time.memory_s + stored * added)


def _kernels(run: TrainingRun, cluster: Cluster, plan: Plan, moe: bool, table: KernelTime, maximum: Maximum) -> _Kernels:
    chip, stack = cluster.chip, cluster.stack
    own = work.IN_MOE_LAYER if moe else work.IN_DENSE_LAYER
    forward, backward = _attention(run, chip, stack, plan, maximum)
    passes = stack.elementwise_passes * work.elementwise_bytes(run, plan, moe)
    return _Kernels(
        products=table.summed(work.IN_EVERY_LAYER + own),
        attention=forward,
        attention_backward=backward,
        experts=table.summed(work.IN_EXPERTS) if moe else table.summed(0.0 * work.IN_EXPERTS),
        passes=stream_time(passes, chip, _ELEMENTWISE_KERNELS, stack),
    )


def _beside(kernels: KernelTime, comm_s: Array, overlap: Array, stack: Stack, maximum: Maximum) -> tuple[Array, Array]:
    """Exposed and hidden seconds of a communication beside kernels."""
    total = overlapped(kernels.total_s, comm_s, overlap, stack.communication_slowdown, maximum)
    exposed = total - kernels.total_s
    return exposed, jnp.maximum(comm_s - exposed, 0.0)


def _direction(
    cluster: Cluster,
    products: KernelTime,
    attention: KernelTime,
    experts: KernelTime,
    passes: KernelTime,
    comm: tuple[Array, Array, Array],
    gather_s: Array,
    maximum: Maximum,
) -> Exposed:
    """One direction of one layer, from its kernels and its communication."""
    stack = cluster.stack
    tp, tp_hidden = _beside(products, comm[0], stack.tp_overlap, stack, maximum)
    cp, cp_hidden = _beside(attention, comm[1], stack.cp_overlap, stack, maximum)
    # Dispatch and combine hide under the other micro-batch's or the shared experts' work: the whole layer.
    everything = products.plus(attention).plus(experts).plus(passes)
    ep, ep_hidden = _beside(everything, comm[2], stack.ep_overlap, stack, maximum)
    device = everything.total_s + tp + cp + ep
    host = maximum(device, stack.host_layer_s) - device
    before = device + host
    with_gather = overlapped(before, gather_s, stack.dp_overlap, stack.communication_slowdown, maximum)
    gather = with_gather - before
    hidden = tp_hidden + cp_hidden + ep_hidden + jnp.maximum(gather_s - gather, 0.0)
    return Exposed(
        everything.compute_s, everything.memory_s, everything.launch_s + host, tp, cp, ep, gather, hidden
    )


def _communication(run: TrainingRun, cluster: Cluster, plan: Plan, moe: bool) -> tuple[Array, Array, Array]:
    """Tensor, context and expert communication of one layer, forward, s.

    TP: an all-gather and a reduce-scatter of `b s h / c` around attention and around the MLP (an all-reduce is both).
    CP: a ring pass of keys and values. EP: dispatch and combine.
    """
    network, launch = cluster.network, cluster.stack.collective_launch_s
    w = run.model
    tokens = work.tokens_per_chip(run, plan)
    block = tokens * w.hidden * run.activation_bytes
    one = jnp.ones_like(plan.tp)
    half = collectives.all_reduce_s(network, block, plan.tp, one, launch)
    if moe:
        shared = jnp.where(w.shared_experts > 0, 1.0, 0.0)
        experts = collectives.all_reduce_s(network, block * w.experts_per_token, plan.expert_tp, one, launch)
        tp = half * (1.0 + shared) + experts
        sent = work.routed_tokens(run, plan) * w.hidden * run.activation_bytes * run.routing_imbalance
        ep = 2.0 * collectives.all_to_all_s(network, sent, plan.ep, plan.expert_tp, launch)
    else:
        tp, ep = 2.0 * half, jnp.zeros_like(half)
    kv_bytes = plan.micro_batch * run.sequence_length * w.kv_heads * (w.qk_dim + w.v_dim) / plan.tp * 2.0
    cp = collectives.ring_pass_s(network, kv_bytes, plan.cp, plan.tp, launch)
    return tp, cp, ep


def gather_s(run: TrainingRun, cluster: Cluster, plan: Plan, moe: bool) -> tuple[Array, Array]:
    """Weight all-gather and gradient reduce-scatter of one layer under weight sharding (ZeRO-3, FSDP), s.

    Zero without it. Expert weights travel among expert replicas only.
    """
    network, stack = cluster.network, cluster.stack
    dense, routed = layer_parameters(run.model, plan, moe)
    group = jnp.maximum(plan.dp * plan.cp / plan.shard_groups, 1.0)
    replicas = expert_replicas(plan)
    expert_group = jnp.maximum(replicas / plan.shard_groups, 1.0)
    expert_stride = plan.ep * plan.expert_tp

    def one_pass(element_bytes: Scalar) -> Array:
        whole = collectives.ring_pass_s(network, dense * element_bytes, group, plan.tp, stack.collective_launch_s)
        if moe:
            whole = whole + collectives.ring_pass_s(
                network, routed * element_bytes, expert_group, expert_stride, stack.collective_launch_s
            )
        return whole * plan.weights_sharded

    return one_pass(run.weight_bytes), one_pass(stack.gradient_bytes) * jnp.minimum(run.trainable_fraction, 1.0)


def expert_replicas(plan: Plan) -> Scalar:
    """Chips that hold the same experts: `t c d / (e t_e)`."""
    return plan.tp * plan.cp * plan.dp / (plan.ep * plan.expert_tp)


def layer_time(run: TrainingRun, cluster: Cluster, plan: Plan, moe: bool, maximum: Maximum) -> LayerTime:
    """One layer of one kind, all causes.

    **Arguments:** `moe` picks the kind. **Returns:** seconds of one micro-batch on the chips of one stage.
    """
    table = gemm_time(work.gemms(run, plan), run, cluster.chip, cluster.stack, maximum)
    kernels = _kernels(run, cluster, plan, moe, table, maximum)
    comm = _communication(run, cluster, plan, moe)
    gather, scatter = gather_s(run, cluster, plan, moe)
    forward = _direction(
        cluster, kernels.products, kernels.attention, kernels.experts, kernels.passes, comm, gather, maximum
    )
    gradients = 1.0 + run.trainable_fraction  # with respect to inputs, and to the weights that train
    backward = _direction(
        cluster,
        kernels.products.scaled(gradients),
        kernels.attention_backward,
        kernels.experts.scaled(gradients),
        kernels.passes.scaled(2.0),
        (comm[0], 2.0 * comm[1], comm[2]),
        gather + scatter,
        maximum,
    )
    attention_again = Exposed(
        kernels.attention.compute_s,
        kernels.attention.memory_s,
        kernels.attention.launch_s,
        *(jnp.zeros_like(comm[0]) for _ in range(5)),
    )
    again = forward._replace(dp_comm_s=jnp.zeros_like(gather)).scaled(plan.recompute_full)
    return LayerTime(forward, backward, again.plus(attention_again.scaled(plan.recompute_attention)))
