"""What a table of operators computes, moves and keeps: of a micro-batch on one chip, and of a step."""

from typing import NamedTuple

import jax.numpy as jnp

from hwopt.model.layers import work
from hwopt.model.layers.parameters import Weights, chip_weights, splits
from hwopt.model.numerics.maximum import hard_maximum
from hwopt.plan import Plan
from hwopt.stack import Stack
from hwopt.types import Scalar
from hwopt.workload.operators import Operators, PerOperator
from hwopt.workload.training import TrainingRun


class Share(NamedTuple):
    """What of each operator a chip has under tensor parallelism."""

    columns: PerOperator
    inner: PerOperator
    channels: PerOperator  # of what is no product
    weights: PerOperator


def shares(table: Operators, plan: Plan) -> Share:
    """Shares of a tensor parallel rank: `1 / t` of what is split, all of the rest; of rows that sequence parallelism splits its
    part of the passes.
    """
    part = 1.0 / plan.tp
    split = lambda flags: jnp.where(flags > 0.0, part, 1.0)
    passes = split(table.channels_split) * jnp.where(table.residual > 0.0, work.residual_share(plan), 1.0)
    columns, inner = split(table.columns_split), split(table.inner_split)
    return Share(columns, inner, passes, columns * inner * split(table.channels_split * (table.columns <= 0.0)))


def rows(table: Operators, run: TrainingRun, samples: Scalar) -> PerOperator:
    """Rows of each operator in so many samples: `samples (s r_token + r_sample)`."""
    return samples * (run.sequence_length * table.per_token + table.per_sample)


def steps(table: Operators, run: TrainingRun) -> PerOperator:
    """Kernels that follow each other: one a token of a sequence where tokens do, else one."""
    return jnp.where(table.sequential > 0.0, run.sequence_length, 1.0)


def gemms(table: Operators, run: TrainingRun, plan: Plan) -> work.Gemms:
    """The products of a micro-batch on one chip, forward: a kernel of each operator, which has `count` and `steps` of it."""
    part = shares(table, plan)
    m = rows(table, run, plan.micro_batch) / steps(table, run)
    n, k = table.columns * part.columns, table.inner * part.inner
    return work.Gemms(m, n, k, n, table.groups * jnp.ones_like(m), 1.0 - table.wide)


def span(table: Operators, run: TrainingRun, causal_fraction: Scalar) -> PerOperator:
    """Tokens that one meets in attention: all of its sample, or the share `causal_fraction` of them."""
    return run.sequence_length * jnp.where(table.causal > 0.0, causal_fraction, 1.0)


def core_flops(table: Operators, run: TrainingRun, causal_fraction: Scalar) -> PerOperator:
    """FLOPs a row of attention, scans in chunks and pairs of vectors, forward: `2 span (d + d_v)` over heads, and those stated."""
    return span(table, run, causal_fraction) * table.attention_width + table.core_flops


@work.model_flops.register
def _(model: Operators, run: TrainingRun) -> Scalar:
    """FLOPs of a step: `2 n k` a row of products forward, again for gradients of inputs and of weights; thrice the core's.

    What runs outside matrix units is not counted: utilisation is of them.
    """
    each = rows(model, run, run.global_batch_sequences) * model.count
    products = 2.0 * model.columns * model.inner * model.groups * (2.0 + run.trainable_fraction)
    return jnp.sum(each * (products + 3.0 * core_flops(model, run, run.causal_fraction)))


@work.repeated_flops.register
def _(model: Operators, run: TrainingRun, plan: Plan, stack: Stack) -> Scalar:
    """FLOPs that a step repeats: of all operators but those whose outputs the loss is taken of, or of the core alone."""
    each = rows(model, run, run.global_batch_sequences) * model.count
    core = core_flops(model, run, work.executed_causal_fraction(run, stack))
    products = 2.0 * model.columns * model.inner * model.groups * (1.0 - model.wide)
    attention = (
        (1.0 - plan.recompute_full) * plan.recompute_attention * jnp.where(model.attention_width > 0.0, core, 0.0)
    )
    return jnp.sum(each * (plan.recompute_full * (products + core) + attention))


@chip_weights.register
def _(shape: Operators, plan: Plan) -> Weights:
    """Trained weights on one chip, tables of look-ups left out: stages are as heavy as they have layers."""
    mean = jnp.sum(shape.count * shape.weights * shares(shape, plan).weights) / plan.pp
    layer, none = mean * plan.pp / shape.layers, jnp.zeros_like(mean)
    one = jnp.ones_like(plan.dp)
    ranks = hard_maximum(one, plan.dp * plan.cp / plan.shard_groups)
    return Weights(layer, none, none, mean * plan.fullest_stage, none, mean * plan.last_stage, none, ranks, one)


@splits.register
def _(shape: Operators, plan: Plan, copies: Scalar | float = 1.0) -> dict[str, tuple[Scalar, Scalar | float]]:
    """What a plan splits: blocks over chunks, operators over tensor parallel ranks, tables over `ep` chips."""
    shards = jnp.where(shape.experts > 0.0, shape.experts, 1.0)
    return {
        "stages": (shape.layers, plan.pp * plan.virtual_stages),
        "tensor_parallel": (shape.heads, plan.tp),
        "experts": (shards, plan.ep),
        "replicas": (plan.tp * plan.cp * plan.dp / (plan.ep * plan.expert_tp), copies),
    }
