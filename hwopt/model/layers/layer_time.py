"""Time of one layer of one micro-batch on one chip: kernels, and the communication beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.hardware.chip import Chip
from hwopt.hardware.cluster import Cluster
from hwopt.model.chip.roofline import KernelTime, hbm_seconds_per_byte, kernel_time, stream_time, wide_rate
from hwopt.model.chip.sustained_clock import ClockModel, settled
from hwopt.model.layers import work
from hwopt.model.layers.parameters import Weights
from hwopt.model.network import collectives
from hwopt.model.network.route import members_per_tier
from hwopt.model.numerics.maximum import Maximum, above_zero, hidden, overlapped, several
from hwopt.model.training.footprint import micro_batches
from hwopt.plan import Plan
from hwopt.stack import Stack
from hwopt.types import Scalar
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer

MISALIGNED = 5.0
"""Time of products of stored scores whose inner side is no multiple of 16 B over that of aligned ones: loads of single elements.

**Source:** estimate, 2 to 8; NVIDIA, Matrix Multiplication Background (recalled), says that kernels lose most of their speed; a
fused kernel pads a head instead.
"""


_COLLECTIVES = 4.0
"""Of a layer in one direction among tensor-parallel ranks: an all-gather and a reduce-scatter around attention and the MLP each."""


class ExposedTime(NamedTuple):
    """Seconds by cause. Communication counts what is left outside compute; the rest of it is in `hidden_s`.

    The last four are no part of the total: what runs under the others, and what power follows from.
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
    arithmetic_s: Array  # what `compute_s` would be at the clock asked for
    core_s: Array  # the same, by the energy that it takes at the clock that is kept

    @property
    def total_s(self) -> Array:
        return sum(self[1:-4], start=self[0])

    @property
    def mean_pace(self) -> ClockModel:
        """Of all arithmetic."""
        return ClockModel(self.compute_s / self.arithmetic_s, self.core_s / self.arithmetic_s)

    @classmethod
    def of(cls, kernels: KernelTime, **others: Array) -> ExposedTime:
        """Seconds of kernels, and others by name; none of what is not named."""
        compute, memory, launch, hbm, arithmetic, core = kernels
        own = {"compute_s": compute, "memory_bound_s": memory, "host_s": launch}
        own |= {"hbm_s": hbm, "arithmetic_s": arithmetic, "core_s": core}
        return cls(**dict.fromkeys(cls._fields, jnp.zeros_like(compute)) | own | others)

    def scaled(self, factor: Array | float) -> ExposedTime:
        return ExposedTime(*(part * factor for part in self))

    def plus(self, other: ExposedTime) -> ExposedTime:
        return ExposedTime(*(a + b for a, b in zip(self, other, strict=True)))


class Kernels(NamedTuple):
    """Kernels of one layer in one direction, by the communication that runs beside them."""

    products: KernelTime  # GEMMs outside experts: beside tensor parallelism
    attention: KernelTime  # beside context parallelism
    experts: KernelTime  # beside expert parallelism
    passes: KernelTime  # elementwise

    def settled(self, chip: Chip) -> Kernels:
        """At the clocks that they keep: products with the passes between them, attention, experts.

        So what communication hides under shortens with all that shortens it, and no kernel slows where another gets faster than the
        step does.
        """
        return Kernels(
            products=settled(chip, self.products, beside=self.passes),
            attention=settled(chip, self.attention),
            experts=settled(chip, self.experts),
            passes=self.passes,
        )


def all_layers(count: Array, one: Callable[[Scalar], ExposedTime]) -> ExposedTime:
    """Time of several layers. **Arguments:** `count` of dense and of MoE layers; time of `one`, by kind (1: MoE, 0: dense)."""
    each = jax.vmap(one)(jnp.asarray(np.array([0.0, 1.0]), count.dtype)).scaled(count)
    return ExposedTime(*(jnp.sum(part) for part in each))


def _attention(
    run: TrainingRun, chip: Chip, stack: Stack, plan: Plan, maximum: Maximum
) -> tuple[KernelTime, KernelTime]:
    """Attention core of one layer forward and backward: fused (scores rebuilt: 2.5 x FLOPs) or with stored scores."""
    flops = work.attention_flops(run, plan, work.attention_span(run, work.executed_causal_fraction(run, stack)))
    stored = stack.attention_scores_stored
    elements = stored * work.attention_score_elements(run, plan)
    streams = work.attention_stream_bytes(run, plan)
    rate = wide_rate(chip, run) / (1.0 + stored * run.model.misaligned_heads * (MISALIGNED - 1.0))

    def core(flops: Array, efficiency: Array, stream_bytes: Array, score_bytes: float, kernels: float) -> KernelTime:
        written = elements * score_bytes
        time = kernel_time(flops, rate * efficiency, stream_bytes + written, chip, kernels, stack, maximum)
        # Without a fused kernel scores pass through HBM between products, so the two times add instead of overlapping.
        added = written * hbm_seconds_per_byte(chip)
        return time._replace(memory_s=(1.0 - stored) * time.memory_s + stored * added)

    forward = core(flops, stack.attention_forward_efficiency, streams, work.SCORE_BYTES_FORWARD, 1.0)
    again = flops * (2.5 - 0.5 * stored)
    return forward, core(again, stack.attention_backward_efficiency, 3.0 * streams, work.SCORE_BYTES_BACKWARD, 2.0)


def layer_kernels(
    flow: work.Flow,
    cluster: Cluster,
    plan: Plan,
    moe: Scalar,
    table: KernelTime,
    attention: KernelTime,
    left_out: Array | float = 0.0,
) -> Kernels:
    """Kernels of one layer, forward.

    **Arguments:** `table`: times of the GEMM table; `attention` core; `left_out`: share of the layer's last product that
    does not run.
    """
    stack = cluster.stack
    passes = stack.elementwise_passes * work.elementwise_bytes(flow, plan, moe)
    passes = passes + stack.routing_passes * moe * work.routing_bytes(flow, plan)
    run_share = 1.0 - left_out * work.IN_LAST
    own = (1.0 - moe) * work.IN_DENSE_LAYER + moe * work.IN_MOE_LAYER
    return Kernels(
        products=table.summed((work.IN_EVERY_LAYER + own) * run_share),
        attention=attention,
        experts=table.summed(moe * work.IN_EXPERTS * run_share),
        passes=stream_time(passes, cluster.chip, stack.elementwise_kernels, stack),
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
) -> ExposedTime:
    """One direction of one layer, from its kernels and its communication (tensor, context, expert).

    Each communication hides under what is there before it, so that no work hides two at once. The host enqueues the layer and
    its `collectives` meanwhile. `ep_overlap`: share of the work that hides exchanges with experts, the stack's by default; `layers`
    that the host enqueues as long as, one by default.
    """
    stack = cluster.stack

    def beside(work_s: Array, comm_s: Array, overlap: Array) -> tuple[Array, Array]:
        """Exposed and hidden seconds of a communication beside work."""
        exposed = overlapped(work_s, comm_s, overlap, stack.communication_slowdown, maximum) - work_s
        return exposed, hidden(work_s, comm_s, overlap, stack.communication_slowdown)

    tp, tp_hidden = beside(kernels.products.total_s, comm[0], stack.tp_overlap)
    cp, cp_hidden = beside(kernels.attention.total_s, comm[1], stack.cp_overlap)
    everything = kernels.products.plus(kernels.attention).plus(kernels.experts).plus(kernels.passes)
    # Dispatch and combine hide under the whole layer: another micro-batch's, or shared experts.
    inner = everything.total_s + tp + cp
    ep, ep_hidden = beside(inner, comm[2], stack.ep_overlap if ep_overlap is None else ep_overlap)
    device = inner + ep
    enqueued = (1.0 - moe) * stack.host_layer_s + moe * stack.host_moe_layer_s
    enqueued = (enqueued if layers is None else layers * enqueued) + collectives * stack.host_collective_s
    before = maximum(device, enqueued)
    gather, gather_hidden = beside(before, gather_s, stack.dp_overlap)
    host = everything.launch_s + (before - device)
    unseen = tp_hidden + cp_hidden + ep_hidden + gather_hidden
    comm_s = {"tp_comm_s": tp, "cp_comm_s": cp, "ep_comm_s": ep, "dp_comm_s": gather}
    return ExposedTime.of(everything, host_s=host, hidden_s=unseen, **comm_s)


def _distinct_domains(cluster: Cluster, plan: Plan, w: Transformer) -> Scalar:
    """Scale-up domains that a token's k experts lie in, over k: `n / (n + 0.6 (k - 1))` for a group of n domains, at most
    `routed_groups / k` where routing is limited to so many (a kink).

    A fit to `n (1 - (1 - 1/n)^k) / k`, the mean for experts chosen at random, within 10 % for n >= 4
    and k <= 8, 30 % for n = 2.
    """
    copies = w.experts_per_token
    domains = members_per_tier(cluster.network, plan.ep, plan.expert_tp)
    beyond = domains[1] * domains[2]
    anywhere = beyond * (1.0 / (beyond + 0.6 * above_zero(copies - 1.0)))
    limited = w.routed_groups > 0
    most = jnp.where(limited, w.routed_groups, 1.0) / jnp.where(copies > 0, copies, 1.0)
    return jnp.where(limited, anywhere - above_zero(anywhere - most), anywhere)


def dispatch_s(flow: work.Flow, cluster: Cluster, plan: Plan, moe: Scalar, share: Scalar | float = 1.0) -> Scalar:
    """Dispatch of token copies to experts and their way back, before any overlap.

    **Arguments:** `share` of the tokens that go by kernels which send one copy a domain, where the stack has them.
    """
    stack, w = cluster.stack, flow.model
    sent = work.routed_tokens(flow, plan) * w.hidden * flow.activation_bytes * work.imbalance(flow, plan)
    sent = sent * (0.5 + 0.5 * stack.dispatch_bytes_share)
    once = 1.0 - share * stack.dispatch_deduplicated * (1.0 - _distinct_domains(cluster, plan, w))
    launch = stack.collective_launch_s
    return 2.0 * moe * collectives.all_to_all_s(cluster.network, sent, plan.ep, plan.expert_tp, launch, once)


def all_reduces_s(flow: work.Flow, cluster: Cluster, plan: Plan, copies: Scalar) -> Array:
    """All-reduces of a layer's activations among tensor-parallel ranks, and of `copies` of each among those of an expert."""
    block = flow.tokens * flow.model.hidden * flow.activation_bytes
    sizes, groups = jnp.stack([block, block * copies]), jnp.stack([plan.tp, plan.expert_tp])
    return collectives.all_reduces_s(cluster.network, sizes, groups, jnp.ones_like(sizes), cluster.stack)


def _communication(
    run: TrainingRun, cluster: Cluster, plan: Plan, weights: Weights, moe: Scalar
) -> tuple[tuple[Array, Array, Array], Array, Array]:
    """Communication of one layer, forward, before any overlap.

    **Returns:** seconds of tensor parallelism (an all-gather and a reduce-scatter of `b s h / c` around attention and around
    the MLP), context parallelism (a ring pass of keys and values) and expert parallelism (dispatch and combine); of gathering
    weights under weight sharding (ZeRO-3, FSDP); of scattering gradients that are sharded too (ZeRO-2 on): each micro-batch's,
    since a chip keeps its share alone, and once a step in a pipeline.
    """
    stack, w, flow = cluster.stack, run.model, work.flow(run, plan)
    around, expert_around = all_reduces_s(flow, cluster, plan, w.experts_per_token)
    has_shared = jnp.where(w.shared_experts > 0, 1.0, 0.0)
    dense = (1.0 - moe) * (1.0 - w.parallel_layers)  # in parallel layers attention and MLP are reduced together
    tp = around * (1.0 + dense + moe * has_shared) + moe * expert_around
    kv_bytes = 2.0 * plan.micro_batch * run.sequence_length * work.kv_heads_per_chip(w, plan) * (w.qk_dim + w.v_dim)
    own, routed = weights.layer(moe), weights.experts_layer
    ranks, expert_ranks, stride = weights.ranks, weights.expert_ranks, plan.ep * plan.expert_tp
    weight, gradient = run.weight_bytes, stack.gradient_bytes * run.trainable_fraction
    cp, gather, expert_gather, scatter, expert_scatter = collectives.ring_passes_s(
        cluster.network,
        jnp.stack([kv_bytes, own * weight, routed * weight, own * gradient, routed * gradient]),
        jnp.stack([plan.cp, ranks, expert_ranks, ranks, expert_ranks]),
        jnp.stack([plan.tp, plan.tp, stride, plan.tp, stride]),
        stack,
    )
    # A pipeline gathers its stage once a step, not once a micro-batch (`footprint` holds it whole).
    single = above_zero(2.0 - plan.pp)
    times = single + (1.0 - single) * (1.0 / micro_batches(run, plan))
    each = times * (1.0 / stack.gather_efficiency)
    comm = tp, cp, dispatch_s(flow, cluster, plan, moe)
    gathered = each * plan.weights_sharded * (gather + moe * expert_gather)
    return comm, gathered, each * plan.gradients_sharded * (scatter + moe * expert_scatter)


def layer_time(
    run: TrainingRun, cluster: Cluster, plan: Plan, weights: Weights, table: KernelTime, moe: Scalar, maximum: Maximum
) -> ExposedTime:
    """One layer of one kind, forward (repeated when recomputed) and backward, all causes.

    **Arguments:** `table`: times of the GEMM table, forward; `moe` picks the kind (1: MoE, 0: dense).

    **Returns:** seconds of one micro-batch on the chips of one stage.
    """
    flow, stack = work.flow(run, plan), cluster.stack
    attention, attention_backward = _attention(run, cluster.chip, stack, plan, maximum)
    comm, gather, scatter = _communication(run, cluster, plan, weights, moe)
    tp, cp, ep = comm
    kernels = layer_kernels(flow, cluster, plan, moe, table, attention).settled(cluster.chip)
    launched = _COLLECTIVES * several(plan.tp)
    forward = direction(cluster, kernels, comm, gather, moe, maximum, launched)
    gradients = 1.0 + run.trainable_fraction  # with respect to inputs, and to the weights that train
    backward_kernels = Kernels(
        products=kernels.products.scaled(gradients),
        attention=settled(cluster.chip, attention_backward),
        experts=kernels.experts.scaled(gradients),
        passes=kernels.passes.scaled(2.0),
    )
    backward = direction(cluster, backward_kernels, (tp, 2.0 * cp, ep), gather + scatter, moe, maximum, launched)
    # Weights gathered for the backward pass serve the repetition too.
    needed = layer_kernels(flow, cluster, plan, moe, table, attention, stack.recompute_stops_early).settled(
        cluster.chip
    )
    again = direction(cluster, needed, comm, jnp.zeros_like(tp), moe, maximum, launched).scaled(plan.recompute_full)
    attention_share = (1.0 - plan.recompute_full) * plan.recompute_attention
    return forward.plus(backward).plus(again.plus(ExposedTime.of(kernels.attention).scaled(attention_share)))
