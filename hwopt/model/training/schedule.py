"""Time of one training step: micro-batches through pipeline stages, then gradient reduction and optimizer."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.cluster import Cluster
from hwopt.hardware.peripherals import Operation
from hwopt.model.chip.roofline import KernelTime, gemm_time, hbm_seconds_per_byte, stream_time
from hwopt.model.chip.sustained_clock import ClockModel, settled
from hwopt.model.layers import work
from hwopt.model.layers.layer_time import ExposedTime, all_layers, layer_time
from hwopt.model.layers.parameters import Weights, chip_weights, expert_replicas
from hwopt.model.network import collectives, sites
from hwopt.model.numerics.maximum import Maximum, above_zero, hard_maximum, hidden, jitter_fraction, overlapped, several
from hwopt.model.training.footprint import Offloaded, micro_batches
from hwopt.plan import Plan
from hwopt.stack import Stack
from hwopt.types import Scalar
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer


class Breakdown(NamedTuple):
    """Seconds of a step by cause, mean over chips. They add up to the step; communication counts only its exposed part."""

    compute_s: Array  # kernels at their arithmetic rate, recomputation included
    memory_bound_s: Array  # extra time of kernels that are bound by HBM bandwidth
    host_s: Array  # kernel launches and host-bound layers
    tp_comm_s: Array
    cp_comm_s: Array
    ep_comm_s: Array
    pp_comm_s: Array
    pp_bubble_s: Array  # filling and draining the pipeline
    pp_imbalance_s: Array  # waiting for the fullest stage
    dp_comm_s: Array
    optimizer_s: Array
    offload_s: Array  # waiting for the memory pool
    input_s: Array  # waiting for training data
    sites_comm_s: Array  # exchange with other sites
    overhead_s: Array
    jitter_s: Array
    production_s: Array  # straggler and stall overhead of a long run, compared with a benchmark

    @classmethod
    def of(cls, mean: ExposedTime, **others: Array) -> Breakdown:
        """Build the breakdown from the times of a mean chip. Other fields are passed by name and are zero by default."""
        own = {name: part for name, part in mean._asdict().items() if name in cls._fields}
        return cls(**dict.fromkeys(cls._fields, jnp.zeros_like(mean.compute_s)) | own | others)


class StepTime(NamedTuple):
    """Time of a step, its breakdown, and the communication overlapped with compute."""

    step_s: Array
    breakdown: Breakdown
    hidden_s: Array
    busy_s: Array  # time in which a chip computes or moves HBM data
    hbm_s: Array  # time in which HBM is busy
    keeps: ClockModel  # slowdown and energy at the sustained clock, mean of all arithmetic


def _head(run: TrainingRun, cluster: Cluster, plan: Plan, table: KernelTime) -> ExposedTime:
    """Return the time of embedding, output head and loss for one micro-batch, forward and backward."""
    stack = cluster.stack
    products = table.summed(work.places(run.model).head).scaled(2.0 + run.trainable_fraction)
    passes = stream_time(2.0 * work.head_bytes(run, plan), cluster.chip, 6.0, stack)
    block = work.tokens_per_chip(run, plan) * run.model.hidden * run.activation_bytes
    one = jnp.ones_like(plan.tp)
    tp = 2.0 * collectives.all_reduce_s(cluster.network, block, plan.tp, one, stack.collective_launch_s)
    return ExposedTime.of(settled(cluster.chip, products, beside=passes).plus(passes), tp_comm_s=tp)


@singledispatch
def stage_times(
    model: Any, run: TrainingRun, cluster: Cluster, plan: Plan, weights: Weights, maximum: Maximum
) -> tuple[ExposedTime, ExposedTime]:
    """Return the times of one micro-batch, forward and backward, dispatched on the type of the model.

    **Returns:** the time on a mean pipeline stage, and the extra time of the last stage (output head and loss).

    **Raises:** `TypeError` for a model type without a rule.
    """
    raise TypeError(f"no time of a {type(model).__name__}")


@stage_times.register
def _(
    model: Transformer, run: TrainingRun, cluster: Cluster, plan: Plan, weights: Weights, maximum: Maximum
) -> tuple[ExposedTime, ExposedTime]:
    gemms = lambda part: gemm_time(work.gemms(work.flow(part, plan), plan), part, cluster.chip, cluster.stack, maximum)
    table = gemms(run)

    def layer(shape: Transformer, moe: Scalar) -> ExposedTime:
        if shape is model:
            return layer_time(run, cluster, plan, weights, table, moe, maximum)
        part = replace(run, model=shape)
        return layer_time(part, cluster, plan, chip_weights(shape, plan), gemms(part), moe, maximum)

    stage = all_layers(model, layer).scaled(1.0 / plan.pp)
    return stage, _head(run, cluster, plan, table)


def pipeline_send_s(run: TrainingRun, cluster: Cluster, plan: Plan) -> Scalar:
    """Return the seconds to send one micro-batch's activations to the next stage.

    Each of t tensor-parallel ranks sends its share, `b s h / (c t)` elements: b sequences of length s and hidden size h, over c
    context-parallel ranks.
    """
    message = work.tokens_per_chip(run, plan) * run.model.hidden * run.activation_bytes / plan.tp
    return collectives.neighbour_send_s(cluster.network, message, plan.pp, plan.tp * plan.cp * plan.dp)


def gradient_sync_s(run: TrainingRun, cluster: Cluster, plan: Plan, weights: Weights) -> Scalar:
    """Return the seconds of gradient reduction and weight gathering at the end of a step, before overlap.

    They consist of a reduce-scatter and an all-gather over a shard group (together an all-reduce), and an all-reduce of the
    shards across groups. With sharded gradients the reduce-scatter happens layer by layer instead, with sharded weights the
    all-gather.
    """
    stack, network = cluster.stack, cluster.network
    # Unsharded optimizers all-reduce gradients; sharded ones gather the weights they updated.
    sharded = plan.optimizer_sharded
    gathered_bytes = sharded * run.weight_bytes + (1.0 - sharded) * stack.gradient_bytes

    all_ranks = jnp.stack([plan.dp * plan.cp, expert_replicas(plan)])
    groups = jnp.stack([weights.ranks, weights.expert_ranks])
    strides = jnp.stack([plan.tp, plan.ep * plan.expert_tp])
    parameters = jnp.stack([weights.stage, weights.stage_experts]) * run.trainable_fraction
    gradients = parameters * stack.gradient_bytes
    scatter = collectives.ring_passes_s(network, gradients, groups, strides, stack)
    gather = collectives.ring_passes_s(network, parameters * gathered_bytes, groups, strides, stack)
    apart = hard_maximum(jnp.ones_like(groups), all_ranks / groups)
    across = collectives.all_reduces_s(network, gradients / groups, apart, strides * groups, stack)
    has_experts = jnp.where(weights.stage_experts > 0, 1.0, 0.0)  # none: no collective is launched
    launched = jnp.stack([jnp.ones_like(weights.stage), has_experts])
    at_end = scatter * (1.0 - plan.gradients_sharded) + gather * (1.0 - plan.weights_sharded)
    return jnp.sum(launched * (at_end + across))


def update_bytes(run: TrainingRun, cluster: Cluster) -> Scalar:
    """Return the bytes of memory traffic for the optimizer update of one weight: `g + 2 (m + v) + w`.

    The update reads gradient (g bytes), master weight (m) and moments (v). It writes master weight, moments and weight (w).
    """
    return cluster.stack.gradient_bytes + 2.0 * (run.master_bytes + run.moment_bytes) + run.weight_bytes


def optimizer_s(run: TrainingRun, cluster: Cluster, plan: Plan, weights: Weights) -> Scalar:
    """Return the seconds of the optimizer update of P trained weights on the chip: `update_bytes P / shards / HBM bandwidth`.

    The update streams the chip's shard of gradients, master weights and moments through HBM. The offloaded share is excluded.
    """
    parameters = weights.sharded(plan.optimizer_sharded) * run.trainable_fraction
    traffic = parameters * update_bytes(run, cluster) * cluster.stack.optimizer_passes
    return (1.0 - plan.optimizer_offloaded) * traffic * hbm_seconds_per_byte(cluster.chip)


def pool_stream_s(run: TrainingRun, cluster: Cluster, plan: Plan, outside: Offloaded) -> tuple[Scalar, Scalar]:
    """Return the seconds in which one step keeps a chip's link to the memory pool busy, and the pool's memory.

    The link's time is that of its slower direction, `max(in, out) / link`. All chips of a host share its memory. Each byte that
    crosses a link is read from it or written to it, so the memory's time is `(in + out) / memory share`. Updates of optimizer
    states in the pool read and write more bytes; `step_time` adds them.

    - Into the chip: weights for the forward and again for the backward pass of every micro-batch, activations, weights updated
      in the pool, and gradients of streamed weights that the chip updates.
    - Out of the chip: gradients of streamed weights, activations, gradients for the update in the pool, and streamed weights
      that the chip has updated.

    **Returns:** (link, memory), s.

    **Source:** weight streaming: Cerebras, Hot Chips 2022; ZeRO-Offload: Ren et al., arXiv 2101.06840 (recalled).
    """
    batches, pool = micro_batches(run, plan), cluster.pool
    stays = 1.0 - plan.weights_offloaded  # streamed weights and gradients have crossed already
    there, back = stays * outside.updated_parameters, plan.weights_offloaded * outside.updated_here
    weight, gradient = run.weight_bytes, cluster.stack.gradient_bytes
    into = batches * (2.0 * outside.weights_bytes + outside.micro_batch_activations_bytes)
    out = batches * (outside.gradients_bytes + outside.micro_batch_activations_bytes)
    sent = there * gradient
    if (hosted := run.stated("gradients_offloaded")) is not None:  # they have crossed already
        sent *= 1.0 - hosted
    into, out = into + there * weight + back * gradient, out + sent + back * weight
    slower = hard_maximum(into, out)
    return slower * (1.0 / pool.bandwidth_bytes_per_s), (into + out) * (1.0 / pool.update_bandwidth_bytes_per_s)


def link_shared_s(cluster: Cluster, plan: Plan, layers_s: Scalar, sync_s: Scalar, sends_s: Scalar) -> Scalar:
    """Return the seconds in which the NIC keeps a chip's link to the memory pool busy in one step.

    These are the seconds of all communication beyond the scale-up domain, overlapped or not, where the NIC is behind the
    same link. A NIC is at most as fast as the link, so this is an upper bound of `NIC bytes / link`. It counts in proportion
    to the offloaded share of a plan's state, up to 1, because a plan without offloading streams nothing.

    **Arguments:** communication of a step before overlap, s: `layers_s` beyond the domain in layers, `sync_s` of gradients,
    `sends_s` between pipeline stages.
    """
    dp, pp = collectives.beyond_domain(
        cluster.network, jnp.stack([plan.dp * plan.cp, plan.pp]), jnp.stack([plan.tp, plan.tp * plan.cp * plan.dp])
    )
    offloaded = plan.weights_offloaded + plan.optimizer_offloaded + plan.activations_offloaded
    return cluster.pool.shares_link * several(1.0 + offloaded) * (layers_s + dp * sync_s + pp * sends_s)


def input_s(run: TrainingRun, cluster: Cluster) -> Scalar:
    """Return the seconds in which the chips read and prepare the training data of one step: `B s d / (N r)`.

    A step has B sequences of s tokens, with d bytes each token. Each of N chips reads r bytes per second. The caller overlaps this
    time with the rest of the step.
    """
    data = work.batch_tokens(run) * run.input_bytes_per_token
    return data / (cluster.chips * cluster.storage.input_bytes_per_s_per_chip)


def hidden_micro_batches(plan: Plan, micro_batches_: Scalar) -> Scalar:
    """Return the number of micro-batches that gradient reduction and weight gathering can overlap with.

    In a stage without chunks (virtual stages), gradients are complete only with the last micro-batch, so the number is 1. With
    an interleaved schedule a chunk's gradients are complete while the other chunks still process the last `min(p, m)`
    micro-batches. Weights are gathered chunk by chunk in the same way.
    """
    fewer = plan.pp - above_zero(plan.pp - micro_batches_)
    # Never more than the step has, even if that is less than one (a relaxed variable).
    return 1.0 + several(plan.virtual_stages) * above_zero(fewer - 1.0) - above_zero(1.0 - micro_batches_)


def plain_micro_batches(stack: Stack, plan: Plan, micro_batches_: Scalar) -> Scalar:
    """Return the micro-batches without concurrent gradient communication: `m max(1 - overlap hidden / m, 0)`.

    It is written as a share of m, not as a difference. A bound of the product over a range of m still depends on m. A bound of
    the difference would depend only on the ends of the range.
    """
    hides = stack.dp_overlap * hidden_micro_batches(plan, micro_batches_)
    return micro_batches_ * above_zero(1.0 - hides / micro_batches_)


def production_fraction(operation: Operation, chips: Scalar) -> Scalar:
    """Return the relative straggler and stall overhead of a step: `stall + sigma E[max of N]`; 0 in a benchmark.

    E[max of N] is the expected maximum of N standard normal variables.

    **Arguments:**

    - `operation`: how the machine is run, with the stall fraction and the spread sigma of stragglers.
    - `chips`: number N of chips that wait for each other.

    **Source:** `hwopt/data/operations/production.toml`, from pairs in `hwopt/data/runs/production.csv`.
    """
    return operation.stall_fraction + jitter_fraction(operation.straggler_sigma, chips)


def step_time(
    run: TrainingRun, cluster: Cluster, plan: Plan, weights: Weights, outside: Offloaded, maximum: Maximum
) -> StepTime:
    """Return the time of one training step of a site and its breakdown.

    `T = (1 + jitter + production)(m T_mb + (p - 1)/v F + sends + exposed gradients + optimizer) + overhead`

    - F is a mean stage's time for one micro-batch, m the number of micro-batches, p that of stages, v that of chunks per stage.
    - `T_mb = max(F fullest, F last + head)` is the time of the slowest stage.
    - The stack's `level`, a global step-time factor, multiplies all kernel and communication times.
    - The memory pool and the exchange between sites add their exposed time. A step is at least as long as the memory pool's
      link is busy, with the NIC's traffic where both share it (`link_shared_s`).
    - Training data adds the part of its input time that exceeds the rest of the step.

    **Arguments:**

    - `run`, `cluster`, `plan`: those of one site (`sites.one_site`).
    - `weights`: weights of a chip.
    - `outside`: bytes offloaded to the memory pool.
    - `maximum`: exact or smooth maximum.

    **Source:** bubble: Narayanan et al. 2021 (arXiv 2104.04473) section 2.2.
    """
    stack = cluster.stack
    level = stack.level
    stage, head = (each.scaled(level) for each in stage_times(run.model, run, cluster, plan, weights, maximum))
    m = micro_batches(run, plan)
    stage_s, head_s = stage.total_s, head.total_s
    slowest = maximum(stage_s * plan.fullest_stage, stage_s * plan.last_stage + head_s)

    send = level * pipeline_send_s(run, cluster, plan)
    can_overlap = several(plan.virtual_stages)  # 1F1B without chunks sends and receives without overlap
    sends = 2.0 * plan.virtual_stages * send
    with_sends = overlapped(slowest, sends, stack.pp_overlap * can_overlap, stack.communication_slowdown, maximum)
    pp_comm = m * (with_sends - slowest) + 2.0 * (plan.pp - 1.0) * send
    bubble = plan.bubble_fraction * (plan.pp - 1.0) / plan.virtual_stages * stage_s

    sync = level * gradient_sync_s(run, cluster, plan, weights)
    # Gradients overlap with the last micro-batches including their sends, so that no work hides two communications at once.
    # Written as the larger of two sums over all m micro-batches, so that solvers see no difference of times.
    left = plain_micro_batches(stack, plan, m)
    with_sync = maximum(m * with_sends + stack.communication_slowdown * sync, left * with_sends + sync)
    dp_exposed = with_sync - m * with_sends
    optimizer = level * optimizer_s(run, cluster, plan, weights)

    on_chip = with_sync + 2.0 * (plan.pp - 1.0) * send + bubble + optimizer
    zero = jnp.zeros_like(on_chip)
    link_s, memory_s = pool_stream_s(run, cluster, plan, outside)
    nic_s = link_shared_s(cluster, plan, m * stage.nic_s, sync, m * sends)
    streamed = hard_maximum(link_s, memory_s)
    alone = overlapped(on_chip, streamed, stack.dp_overlap, zero, maximum)
    beside = maximum(alone, link_s + nic_s)
    pool_traffic = outside.updated_parameters * update_bytes(run, cluster)
    with_pool = beside + pool_traffic * (1.0 / cluster.pool.update_bandwidth_bytes_per_s)
    fed = maximum(with_pool, input_s(run, cluster))
    jitter = jitter_fraction(stack.jitter_sigma, sites.chips_in_step(cluster, plan))
    production = production_fraction(cluster.operation, sites.chips_in_step(cluster, plan))
    uneven = fed * (1.0 + jitter + production)
    exchange = sites.exchange_s(run, cluster, plan)
    joined = overlapped(uneven, exchange, cluster.sites.overlap, zero, maximum)
    mean = stage.plus(head.scaled(1.0 / plan.pp)).scaled(m)
    breakdown = Breakdown.of(
        mean,
        pp_comm_s=pp_comm,
        pp_bubble_s=bubble,
        pp_imbalance_s=m * above_zero(slowest - (stage_s + head_s / plan.pp)),
        dp_comm_s=dp_exposed + mean.dp_comm_s,
        optimizer_s=optimizer,
        offload_s=with_pool - on_chip,
        input_s=fed - with_pool,
        sites_comm_s=joined - uneven,
        overhead_s=stack.step_overhead_s,
        jitter_s=fed * jitter,
        production_s=fed * production,
    )
    step = joined + stack.step_overhead_s
    beside_sends = hidden(slowest, sends, stack.pp_overlap * can_overlap, stack.communication_slowdown)
    beside_sync = hidden(with_sends, sync, m - left, stack.communication_slowdown)
    beside_step = above_zero(hidden(on_chip, streamed, stack.dp_overlap, zero) - above_zero(beside - alone))
    beside_step += hidden(uneven, exchange, cluster.sites.overlap, zero)
    unseen = mean.hidden_s + m * beside_sends + beside_sync + beside_step
    busy = mean.compute_s + mean.memory_bound_s + optimizer
    return StepTime(step, breakdown, unseen, busy, mean.hbm_s + optimizer, mean.mean_pace)
