"""Training time of a table of operators: kernels by their bottleneck, and the communication that overlaps with them."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.hardware.chip import Chip
from hwopt.hardware.cluster import Cluster
from hwopt.model.chip.roofline import KernelTime, gemm_time, hbm_seconds_per_byte, wide_rate
from hwopt.model.chip.sustained_clock import settled
from hwopt.model.kernels import training_kernels
from hwopt.model.layers import work
from hwopt.model.layers.layer_time import ExposedTime, Kernels, direction, leaves_domain
from hwopt.model.layers.parameters import Weights
from hwopt.model.network import collectives
from hwopt.model.numerics.maximum import Maximum, above_zero, several
from hwopt.model.operators.work import core_flops, gemms, rows, shares, steps
from hwopt.model.training.footprint import micro_batches
from hwopt.model.training.schedule import stage_times
from hwopt.plan import Plan
from hwopt.types import PRECISIONS, Scalar
from hwopt.workload.operators import Operators
from hwopt.workload.training import TrainingRun

_FP32 = PRECISIONS.index("fp32")

UPDATES = 4.0
"""Memory traffic of updating a looked-up table row, over that of reading it.

The gradient is written and read, the row read and written. Rows that several samples look up are counted each time, which is an
assumption on the slow side.
"""

LAYER_KERNELS = 7.0
"""Number of kernels in a dense transformer layer besides its elementwise passes.

They are queries, keys and values as one, the attention core, output projection, both MLP products, rotation and copies. A
stack's `host_layer_s` is divided by it (plus the passes) to get the host time per kernel.

**Source:** counted from Megatron's layer; 6 to 9.
"""


def _none(like: Array) -> KernelTime:
    return KernelTime.as_asked(*(jnp.zeros_like(like) for _ in range(4)))


def products(table: Operators, run: TrainingRun, cluster: Cluster, plan: Plan, maximum: Maximum) -> KernelTime:
    """Return the times of the matrix products of all operators, forward.

    **Shapes:** (operator,).
    """
    inner_read = table.inner_read * shares(table, plan).inner
    each = gemm_time(gemms(table, run, plan), run, cluster.chip, cluster.stack, maximum, inner_read=inner_read)
    return each.scaled(table.count * steps(table, run))


def _core(
    table: Operators, run: TrainingRun, cluster: Cluster, plan: Plan, maximum: Maximum
) -> tuple[KernelTime, KernelTime, KernelTime]:
    """Return the kernel times of attention, chunked scans and pairwise vector products, summed over operators.

    They follow a transformer's attention. Fused kernels recompute scores (2.5 x the FLOPs in the backward pass), and their
    arithmetic and memory times overlap. Stored scores pass through HBM between products, so the times add.

    **Returns:** forward, backward, and forward of attention alone.
    """
    chip, stack, w = cluster.chip, cluster.stack, table
    part = shares(w, plan)
    number = w.count * part.channels * rows(w, run, plan.micro_batch)
    has_core = jnp.where(w.attention_width + w.core_flops > 0.0, 1.0, 0.0)
    attends = jnp.where(w.attention_width > 0.0, 1.0, 0.0)
    flops = number * core_flops(w, run, work.executed_causal_fraction(run, stack))
    stored = stack.attention_scores_stored
    score_elements = stored * number * w.attention_heads * run.sequence_length
    streams = number * run.activation_bytes * w.streamed
    rate, byte_s = wide_rate(chip, run), hbm_seconds_per_byte(chip)

    def time(work_over: Scalar, efficiency: Scalar, passes: float, score_bytes: float, launches: float) -> KernelTime:
        compute = has_core * flops * work_over * (1.0 / (rate * efficiency))
        memory = has_core * streams * passes * byte_s
        scores = score_elements * score_bytes * byte_s
        exposed = maximum(compute, memory) - compute + scores
        launch = has_core * w.count * w.kernels * launches * stack.kernel_launch_s
        return KernelTime.as_asked(compute, exposed, launch, memory + scores)

    one = jnp.ones_like(stored)
    forward = time(one, stack.attention_forward_efficiency, 1.0, work.SCORE_BYTES_FORWARD, 1.0)
    backward = time(2.5 - 0.5 * stored, stack.attention_backward_efficiency, 3.0, work.SCORE_BYTES_BACKWARD, 2.0)
    every = np.ones(1, np.float32)
    return forward.summed(every), backward.summed(every), forward.summed(attends)


def _passes(table: Operators, run: TrainingRun, cluster: Cluster, plan: Plan, maximum: Maximum) -> KernelTime:
    """Return the time of elementwise passes and other work outside matrix units, forward, summed over operators.

    Each operator takes `max(FLOPs / vector rate, bytes / HBM bandwidth)`.
    """
    chip, stack, w = cluster.chip, cluster.stack, table
    number = w.count * shares(w, plan).channels * rows(w, run, plan.micro_batch)
    plain = jnp.where(w.attention_width + w.core_flops > 0.0, 0.0, 1.0)
    compute = number * w.vector_flops * vector_seconds_per_flop(chip)
    streamed = number * run.activation_bytes * w.streamed * stack.elementwise_passes
    memory = plain * streamed * hbm_seconds_per_byte(chip)
    launch = plain * w.count * w.kernels * steps(w, run) * stack.kernel_launch_s
    return KernelTime.as_asked(compute, maximum(compute, memory) - compute, launch, memory).summed(
        np.ones(1, np.float32)
    )


def vector_seconds_per_flop(chip: Chip) -> Scalar:
    """Return the seconds per 32-bit FLOP outside matrix units.

    The rate is the fp32 peak at the chip's clock times the efficiency of fp32 matrix products.
    """
    return 1.0 / (chip.peak_flops_per_s[_FP32] * chip.matmul_efficiency[_FP32] * chip.clock_ratio)


def _lookups(table: Operators, run: TrainingRun, cluster: Cluster, plan: Plan) -> tuple[KernelTime, KernelTime, Scalar]:
    """Return the times of look-ups in sharded embedding tables, and the bytes that a chip sends.

    A chip serves the look-ups of all chips that share its tables. The busiest one serves `routing_imbalance` times the mean.

    **Returns:** forward time, backward time including the update of rows, bytes sent.
    """
    number = table.count * rows(table, run, plan.micro_batch) * run.routing_imbalance
    read = jnp.sum(number * table.looked_up) * TABLE_WEIGHT_BYTES
    sent = jnp.sum(number * table.exchanged) * run.activation_bytes
    byte_s = hbm_seconds_per_byte(cluster.chip)
    stream = lambda size: _none(size)._replace(memory_s=size * byte_s, hbm_s=size * byte_s)
    return stream(read + 2.0 * sent), stream(UPDATES * run.trainable_fraction * read + 2.0 * sent), sent


TABLE_WEIGHT_BYTES = 4.0
"""Bytes of a weight in a look-up table: tables are stored in 32 bit (default of NVIDIA's DLRM and HugeCTR)."""


def _host_share(table: Operators, run: TrainingRun, cluster: Cluster, plan: Plan) -> Scalar:
    """Return the host time of a stage, forward, in units of a transformer layer's host time.

    It is the ratio of their numbers of kernels. The host time of the software stack is given per transformer layer.
    """
    has_product = jnp.where(table.columns > 0.0, 1.0, 0.0)
    each = table.count * (has_product + table.kernels)
    return jnp.sum(each) / plan.pp * (1.0 / (LAYER_KERNELS + cluster.stack.elementwise_kernels))


def _sharded_weights(
    run: TrainingRun, cluster: Cluster, plan: Plan, weights: Weights, layers: Scalar
) -> tuple[Array, Array]:
    """Return the seconds per micro-batch of gathering sharded weights and scattering sharded gradients of a stage's layers.

    Like `layer_time`, it counts each micro-batch, or once a step in a pipeline.
    """
    stack = cluster.stack
    sizes = weights.dense_layer * jnp.stack([run.weight_bytes, stack.gradient_bytes * run.trainable_fraction])
    ranks, strides = (jnp.stack([each, each]) for each in (weights.ranks, plan.tp))
    gather, scatter = collectives.ring_passes_s(cluster.network, sizes, ranks, strides, stack)
    single = above_zero(2.0 - plan.pp)
    times = (single + (1.0 - single) * (1.0 / micro_batches(run, plan))) * layers * (1.0 / stack.gather_efficiency)
    return times * plan.weights_sharded * gather, times * plan.gradients_sharded * scatter


@stage_times.register
def _(
    model: Operators, run: TrainingRun, cluster: Cluster, plan: Plan, weights: Weights, maximum: Maximum
) -> tuple[ExposedTime, ExposedTime]:
    """Return the time by cause of one micro-batch on a mean stage: forward, backward and recomputation.

    Tensor-parallel ranks all-reduce the results of products with a split inner dimension, once forward and once backward.
    Sharded tables exchange rows by an all-to-all in each direction. All pipeline stages take the same time, as if software
    balances them.

    **Returns:** the time of the stage, and zeros for the head, which a table of operators does not separate.
    """
    stack, chip = cluster.stack, cluster.chip
    share = 1.0 / plan.pp
    layers = model.layers * share
    table = products(model, run, cluster, plan, maximum)
    core, core_backward, attention = (each.scaled(share) for each in _core(model, run, cluster, plan, maximum))
    passes = _passes(model, run, cluster, plan, maximum).scaled(share)
    looking, updating, sent = _lookups(model, run, cluster, plan)
    every = np.ones(1, np.float32)
    summed = table.summed(every).scaled(share)
    repeated = table.summed(1.0 - model.wide).scaled(share)

    kernels = lambda gemms, core, others: Kernels(
        products=settled(chip, gemms, beside=others),
        attention=settled(chip, core),
        experts=_none(core.compute_s),
        passes=others,
    )
    reductions = jnp.sum(model.inner_split * model.count) * share
    block = plan.micro_batch * run.sequence_length * model.hidden * run.activation_bytes
    one = jnp.ones_like(plan.tp)
    tp = reductions * collectives.all_reduce_s(cluster.network, block, plan.tp, one, stack.collective_launch_s)
    exchange = collectives.all_to_all_s(cluster.network, sent, plan.ep, plan.expert_tp, stack.collective_launch_s)
    exchange = jnp.where(model.experts > 0.0, exchange, 0.0)
    gather, scatter = _sharded_weights(run, cluster, plan, weights, layers)
    zero, launched = jnp.zeros_like(tp), 2.0 * reductions * several(plan.tp)
    hosts, beyond = _host_share(model, run, cluster, plan), leaves_domain(cluster, plan, weights)

    def pass_(work_: Kernels, comm: tuple[Array, Array, Array], sharding: Array) -> ExposedTime:
        return direction(cluster, work_, comm, sharding, zero, maximum, launched, layers=hosts, beyond=beyond)

    forward = pass_(kernels(summed, core, passes.plus(looking)), (tp, zero, exchange), gather)
    gradients = 1.0 + run.trainable_fraction
    back = kernels(summed.scaled(gradients), core_backward, passes.scaled(2.0).plus(updating))
    backward = pass_(back, (tp, zero, exchange), gather + scatter)
    again = pass_(kernels(repeated, core, passes), (tp, zero, zero), zero).scaled(plan.recompute_full)
    attention_share = (1.0 - plan.recompute_full) * plan.recompute_attention
    again = again.plus(ExposedTime.of(settled(chip, attention)).scaled(attention_share))
    stage = forward.plus(backward).plus(again)
    return stage, ExposedTime.of(_none(stage.compute_s))


@training_kernels.register
def _(
    model: Operators, workload: TrainingRun, cluster: Cluster, plan: Plan, maximum: Maximum
) -> tuple[work.Gemms, KernelTime]:
    return gemms(model, workload, plan), products(model, workload, cluster, plan, maximum)
