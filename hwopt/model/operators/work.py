"""Compute the work of a model that is given as a table of operators.

Matrix products are those of one micro-batch on one chip. FLOPs are those of a whole training step on all chips. Weights are
those on one chip.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from hwopt.model.layers import work
from hwopt.model.layers.parameters import Weights, chip_weights, splits
from hwopt.model.numerics.maximum import hard_maximum
from hwopt.plan import Plan
from hwopt.stack import Stack
from hwopt.types import Scalar
from hwopt.workload.operators import Operators, PerOperator
from hwopt.workload.training import TrainingRun

NO_EXPERTS = np.zeros(1, np.float32)


class Share(NamedTuple):
    """Fraction of each operator on one tensor-parallel rank."""

    columns: PerOperator
    inner: PerOperator
    channels: PerOperator  # of work other than matrix products
    weights: PerOperator


def shares(table: Operators, plan: Plan) -> Share:
    """Return a tensor-parallel rank's fraction of each operator: `1 / t` of split dimensions, 1 of all others.

    Elementwise passes that sequence parallelism splits by rows are divided by t, too.
    """
    part = 1.0 / plan.tp
    split = lambda flags: jnp.where(flags > 0.0, part, 1.0)
    passes = split(table.channels_split) * jnp.where(table.residual > 0.0, work.residual_share(plan), 1.0)
    columns, inner = split(table.columns_split), split(table.inner_split)
    return Share(columns, inner, passes, columns * inner * split(table.channels_split * (table.columns <= 0.0)))


def rows(table: Operators, run: TrainingRun, samples: Scalar) -> PerOperator:
    """Return the rows that each operator processes for a number of samples: `samples (s r_token + r_sample)`.

    A sample has s tokens; the operator has r_token rows per token and r_sample further rows per sample.
    """
    return samples * (run.sequence_length * table.per_token + table.per_sample)


def steps(table: Operators, run: TrainingRun) -> PerOperator:
    """Return the number of sequential kernel launches per operator: the sequence length for recurrent operators, else 1."""
    return jnp.where(table.sequential > 0.0, run.sequence_length, 1.0)


def gemms(table: Operators, run: TrainingRun, plan: Plan) -> work.Gemms:
    """Return the matrix products of a micro-batch on one chip, forward, one entry for each operator.

    An entry describes a single kernel. The model launches it `count` times `steps` times.
    """
    part = shares(table, plan)
    m = rows(table, run, plan.micro_batch) / steps(table, run)
    n, k = table.columns * part.columns, table.inner * part.inner
    return work.Gemms(m, n, k, n, table.groups * jnp.ones_like(m), 1.0 - table.wide, NO_EXPERTS)


def span(table: Operators, run: TrainingRun, causal_fraction: Scalar) -> PerOperator:
    """Return the number of tokens that a token attends to: the whole sample, or its `causal_fraction` under causal masking."""
    return run.sequence_length * jnp.where(table.causal > 0.0, causal_fraction, 1.0)


def core_flops(table: Operators, run: TrainingRun, causal_fraction: Scalar) -> PerOperator:
    """Return the forward FLOPs per row of attention, chunked scans and pairwise vector products.

    Attention takes the span times the operator's `attention_width`; the FLOPs of the other operators are given in the table.
    """
    return span(table, run, causal_fraction) * table.attention_width + table.core_flops


@work.model_flops.register
def _(model: Operators, run: TrainingRun) -> Scalar:
    """Return the model FLOPs of a step.

    Products of n columns and inner dimension k take `2 n k` per row forward. Gradients of inputs and of trainable weights take
    as many each. Attention and other core FLOPs count three times. FLOPs outside matrix units are not counted, because
    utilization refers to matrix units.
    """
    each = rows(model, run, run.global_batch_sequences) * model.count
    products = 2.0 * model.columns * model.inner * model.groups * (2.0 + run.trainable_fraction)
    return jnp.sum(each * (products + 3.0 * core_flops(model, run, run.causal_fraction)))


@work.repeated_flops.register
def _(model: Operators, run: TrainingRun, plan: Plan, stack: Stack) -> Scalar:
    """Return the FLOPs of recomputation in a step.

    Full recomputation repeats all operators except wide ones, whose outputs enter the loss. Selective recomputation repeats
    only attention.
    """
    each = rows(model, run, run.global_batch_sequences) * model.count
    core = core_flops(model, run, work.executed_causal_fraction(run, stack))
    products = 2.0 * model.columns * model.inner * model.groups * (1.0 - model.wide)
    attention = (
        (1.0 - plan.recompute_full) * plan.recompute_attention * jnp.where(model.attention_width > 0.0, core, 0.0)
    )
    return jnp.sum(each * (plan.recompute_full * (products + core) + attention))


@chip_weights.register
def _(shape: Operators, plan: Plan) -> Weights:
    """Return the trainable weights on one chip without look-up tables. A stage's weights are proportional to its layers."""
    mean = jnp.sum(shape.count * shape.weights * shares(shape, plan).weights) / plan.pp
    layer, none = mean * plan.pp / shape.layers, jnp.zeros_like(mean)
    one = jnp.ones_like(plan.dp)
    ranks = hard_maximum(one, plan.dp * plan.cp / plan.shard_groups)
    return Weights(layer, none, none, mean * plan.fullest_stage, none, mean * plan.last_stage, none, ranks, one)


@splits.register
def _(shape: Operators, plan: Plan, copies: Scalar | float = 1.0) -> dict[str, tuple[Scalar, Scalar | float]]:
    """Return the model's limit on each parallel split and the plan's value, by the name of the margin.

    Blocks are split over pipeline chunks, operators over tensor-parallel ranks, look-up tables over `ep` chips.
    """
    shards = jnp.where(shape.experts > 0.0, shape.experts, 1.0)
    return {
        "stages": (shape.layers, plan.pp * plan.virtual_stages),
        "tensor_parallel": (shape.heads, plan.tp),
        "experts": (shards, plan.ep),
        "replicas": (plan.tp * plan.cp * plan.dp / (plan.ep * plan.expert_tp), copies),
    }
