"""One training step: micro-batches through pipeline stages, then gradients and the optimizer."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.hardware.cluster import Cluster
from hwopt.model import collectives, offload, sites, work
from hwopt.model.footprint import Offloaded, micro_batches
from hwopt.model.jitter import jitter_fraction
from hwopt.model.layer import Exposed, layer_time
from hwopt.model.maximum import Maximum, above_zero, hard_maximum, overlapped
from hwopt.model.parameters import Held, expert_replicas, shard_ranks
from hwopt.model.roofline import KernelTime, gemm_time, hbm_seconds_per_byte, stream_time
from hwopt.plan import Plan
from hwopt.types import Scalar
from hwopt.workload.training import TrainingRun


class Breakdown(NamedTuple):
    """Seconds of a step by cause, mean over chips; they add up to the step. Communication counts what is exposed."""

    compute_s: Array  # kernels at their arithmetic rate, recomputation included
    memory_bound_s: Array  # what HBM traffic adds
    host_s: Array  # launches and host-bound layers
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


class StepTime(NamedTuple):
    """A step, its parts, and the communication hidden under compute."""

    step_s: Array
    breakdown: Breakdown
    hidden_s: Array
    busy_s: Array  # in which a chip computes or moves HBM data
    hbm_s: Array  # in which its HBM is busy


def _stage(run: TrainingRun, cluster: Cluster, plan: Plan, held: Held, table: KernelTime, maximum: Maximum) -> Exposed:
    """Forward, recomputation and backward of one micro-batch through a mean stage."""
    kinds = jnp.asarray(np.array([0.0, 1.0]), plan.pp.dtype)  # dense, MoE
    time = jax.vmap(lambda moe: layer_time(run, cluster, plan, held, table, moe, maximum))(kinds)
    layers = jnp.stack([run.model.dense_layers, run.model.moe_layers]) / plan.pp
    each = time.forward.plus(time.backward).plus(time.recompute).scaled(layers)
    return Exposed(*(jnp.sum(part) for part in each))


def _head(run: TrainingRun, cluster: Cluster, plan: Plan, table: KernelTime) -> Exposed:
    """Embedding, output head and loss of one micro-batch, forward and backward."""
    stack = cluster.stack
    products = table.summed(work.IN_HEAD).scaled(2.0 + run.trainable_fraction)
    passes = stream_time(2.0 * work.head_bytes(run, plan), cluster.chip, 6.0, stack)
    time = products.plus(passes)
    block = work.tokens_per_chip(run, plan) * run.model.hidden * run.activation_bytes
    one = jnp.ones_like(plan.tp)
    tp = 2.0 * collectives.all_reduce_s(cluster.network, block, plan.tp, one, stack.collective_launch_s)
    zero = jnp.zeros_like(tp)
    return Exposed(time.compute_s, time.memory_s, time.launch_s, tp, zero, zero, zero, zero, time.hbm_s)


def pipeline_send_s(run: TrainingRun, cluster: Cluster, plan: Plan) -> Scalar:
    """One activation to the next stage: `b s h / (c t)` elements, each tensor-parallel rank its share."""
    message = work.tokens_per_chip(run, plan) * run.model.hidden * run.activation_bytes / plan.tp
    return collectives.neighbour_send_s(cluster.network, message, plan.pp, plan.tp * plan.cp * plan.dp)


def gradient_sync_s(run: TrainingRun, cluster: Cluster, plan: Plan, held: Held) -> Scalar:
    """Gradient reduction and weight gathering at the end of a step, before overlap.

    A reduce-scatter and an all-gather over a shard group (an all-reduce is both), and an all-reduce of the shards
    across groups. With sharded weights the first two happen layer by layer instead and only the last remains.
    """
    own, routed = held.stage, held.stage_experts
    stack, network = cluster.stack, cluster.network
    trained = run.trainable_fraction
    # Unsharded optimizers all-reduce gradients; sharded ones gather the weights they updated.
    sharded = plan.optimizer_sharded
    gathered_bytes = sharded * run.weight_bytes + (1.0 - sharded) * stack.gradient_bytes

    own_ranks, expert_ranks = plan.dp * plan.cp, expert_replicas(plan)
    own_group, expert_group = shard_ranks(plan)
    strides = jnp.stack([plan.tp, plan.ep * plan.expert_tp])
    parameters = jnp.stack([own, routed]) * trained
    groups = jnp.stack([own_group, expert_group])
    launch = stack.collective_launch_s
    scatter = collectives.ring_passes_s(
        network, parameters * stack.gradient_bytes, groups, strides, launch, stack.logarithmic_passes
    )
    gather = collectives.ring_passes_s(
        network, parameters * gathered_bytes, groups, strides, launch, stack.logarithmic_passes
    )
    across = collectives.all_reduces_s(
        network,
        parameters * stack.gradient_bytes / groups,
        hard_maximum(jnp.ones_like(groups), jnp.stack([own_ranks, expert_ranks]) / groups),
        strides * groups,
        launch,
    )
    has_experts = jnp.stack([jnp.ones_like(own), jnp.where(routed > 0, 1.0, 0.0)])  # none: no collective is launched
    return jnp.sum(has_experts * ((scatter + gather) * (1.0 - plan.weights_sharded) + across))


def optimizer_s(run: TrainingRun, cluster: Cluster, plan: Plan, held: Held) -> Scalar:
    """Optimizer update on the chip: HBM passes over gradients, master weights and moments, sharded, less what is offloaded.

    Reads gradient, master and moments, writes master, moments and weight: `(g + 2 (m + v) + w) P / shards / HBM`.
    """
    own, routed = held.stage, held.stage_experts
    ranks, expert_ranks = shard_ranks(plan)
    sharded, here = plan.optimizer_sharded, 1.0 - plan.optimizer_offloaded
    parameters = own / (1.0 + sharded * (ranks - 1.0)) + routed / (1.0 + sharded * (expert_ranks - 1.0))
    element = cluster.stack.gradient_bytes + 2.0 * (run.master_bytes + run.moment_bytes) + run.weight_bytes
    traffic = parameters * element * run.trainable_fraction * cluster.stack.optimizer_passes
    return here * traffic * hbm_seconds_per_byte(cluster.chip)


def input_s(run: TrainingRun, cluster: Cluster) -> Scalar:
    """Time to read and prepare the data of a step: `B s x bytes / (N rate)`; goes on beside everything else."""
    data = run.global_batch_sequences * run.sequence_length * run.input_bytes_per_token
    return data / (cluster.chips * cluster.storage.input_bytes_per_s_per_chip)


def _last_micro_batches(plan: Plan, micro_batches_: Scalar) -> Scalar:
    """Micro-batches beside which gradients are reduced and weights gathered.

    A stage without chunks has all its gradients with its last micro-batch. Interleaved, a chunk's are complete while the
    other chunks still work on the last p micro-batches, `min(p, m)`; weights are gathered chunk by chunk the same way.
    """
    has_chunks = 1.0 - above_zero(2.0 - plan.virtual_stages)
    fewer = plan.pp - above_zero(plan.pp - micro_batches_)
    # Never more than there are, were it less than one.
    return 1.0 + has_chunks * above_zero(fewer - 1.0) - above_zero(1.0 - micro_batches_)


def step_time(
    run: TrainingRun, cluster: Cluster, plan: Plan, held: Held, outside: Offloaded, maximum: Maximum
) -> StepTime:
    """Time of one training step of a site and its parts.

    `T = (1 + jitter)(m T_mb + (p - 1)/v F + sends + exposed gradients + optimizer) + overhead`, where F is a mean stage's
    micro-batch, `T_mb = max(F fullest, F last + head)` the slowest stage's, m the micro-batches. The memory pool's link
    and the exchange between sites add what their overlap leaves; training data, what the rest of the step does not cover.

    **Arguments:** run, cluster and plan of one site (`sites.one_site`); `held` weights; what is `outside` in the pool.

    **Source:** bubble: Narayanan et al. 2021 (arXiv 2104.04473) section 2.2.
    """
    stack = cluster.stack
    table = gemm_time(work.gemms(work.flow(run, plan), plan), run, cluster.chip, stack, maximum)
    stage, head = _stage(run, cluster, plan, held, table, maximum), _head(run, cluster, plan, table)
    m = micro_batches(run, plan)
    stage_s, head_s = stage.total_s, head.total_s
    slowest = maximum(stage_s * plan.fullest_stage, stage_s * plan.last_stage + head_s)

    send = pipeline_send_s(run, cluster, plan)
    can_overlap = 1.0 - above_zero(2.0 - plan.virtual_stages)  # 1F1B without chunks sends and receives in line
    sends = 2.0 * plan.virtual_stages * send
    with_sends = overlapped(slowest, sends, stack.pp_overlap * can_overlap, stack.communication_slowdown, maximum)
    pp_comm = m * (with_sends - slowest) + 2.0 * (plan.pp - 1.0) * send
    bubble = plan.bubble_fraction * (plan.pp - 1.0) / plan.virtual_stages * stage_s

    sync = gradient_sync_s(run, cluster, plan, held)
    # Beside the last micro-batches with their sends: no work hides two communications at once. Written as the larger of two
    # sums over all m micro-batches, not as what is added to them, so that solvers see no difference of times.
    last = _last_micro_batches(plan, m)
    hides = stack.dp_overlap * last
    with_sync = maximum(m * with_sends + stack.communication_slowdown * sync, above_zero(m - hides) * with_sends + sync)
    dp_exposed = with_sync - m * with_sends
    optimizer = optimizer_s(run, cluster, plan, held)

    on_chip = with_sync + 2.0 * (plan.pp - 1.0) * send + bubble + optimizer
    zero = jnp.zeros_like(on_chip)
    streamed = offload.stream_s(run, cluster, plan, outside)
    beside = overlapped(on_chip, streamed, stack.dp_overlap, zero, maximum)
    with_pool = beside + offload.update_s(run, cluster, outside)
    fed = maximum(with_pool, input_s(run, cluster))
    jitter = jitter_fraction(stack.jitter_sigma, sites.chips_in_step(cluster, plan))
    uneven = fed * (1.0 + jitter)
    exchange = sites.exchange_s(run, cluster, plan)
    joined = overlapped(uneven, exchange, cluster.sites.overlap, zero, maximum)
    mean = stage.plus(head.scaled(1.0 / plan.pp)).scaled(m)
    breakdown = Breakdown(
        compute_s=mean.compute_s,
        memory_bound_s=mean.memory_bound_s,
        host_s=mean.host_s,
        tp_comm_s=mean.tp_comm_s,
        cp_comm_s=mean.cp_comm_s,
        ep_comm_s=mean.ep_comm_s,
        pp_comm_s=pp_comm,
        pp_bubble_s=bubble,
        pp_imbalance_s=above_zero(m * (slowest - stage_s - head_s / plan.pp)),
        dp_comm_s=dp_exposed + mean.dp_comm_s,
        optimizer_s=optimizer,
        offload_s=with_pool - on_chip,
        input_s=fed - with_pool,
        sites_comm_s=joined - uneven,
        overhead_s=stack.step_overhead_s,
        jitter_s=fed * jitter,
    )
    step = joined + stack.step_overhead_s
    hidden = mean.hidden_s + m * above_zero(sends - (with_sends - slowest)) + above_zero(sync - dp_exposed)
    hidden = hidden + above_zero(streamed - (beside - on_chip)) + above_zero(exchange - (joined - uneven))
    busy = mean.compute_s + mean.memory_bound_s + optimizer
    return StepTime(step, breakdown, hidden, busy, mean.hbm_s + optimizer)
