"""Weights that one chip holds, after sharding over tensor, pipeline and expert parallel ranks."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from hwopt.model.maximum import above_zero, hard_maximum
from hwopt.plan import Plan
from hwopt.types import Scalar
from hwopt.workload.transformer import (
    Transformer,
    attention_parameters,
    dense_mlp_parameters,
    embedding_parameters,
    expert_parameters,
)


class Held(NamedTuple):
    """Weights on one chip before any sharding over data parallel ranks.

    Experts are counted apart: their replicas are other chips than those of the rest.
    """

    dense_layer: Scalar  # a dense layer
    moe_layer: Scalar  # a MoE layer without its routed experts
    experts_layer: Scalar  # the routed experts of a MoE layer
    stage: Scalar  # the fullest stage and its tables, without routed experts
    stage_experts: Scalar  # routed experts of the fullest stage


def held_parameters(shape: Transformer, plan: Plan) -> Held:
    """Weights on one chip: layers over t, experts over e and t_e, stages over p; norms and routers are replicated.

    Dense layers come first, so the fullest stage has as many MoE layers as it has room for.

    **Returns:** numbers of weights. Zero experts for a dense model.
    """
    attention = attention_parameters(shape) / plan.tp + 2.0 * shape.hidden
    expert = expert_parameters(shape)
    dense = attention + dense_mlp_parameters(shape) / plan.tp
    moe = attention + shape.shared_experts * expert / plan.tp + shape.hidden * shape.experts
    experts = shape.experts * expert / (plan.ep * plan.expert_tp)
    full = shape.layers * plan.fullest_stage / plan.pp
    with_experts = jnp.where(full < shape.moe_layers, full, shape.moe_layers)
    stage = (full - with_experts) * dense + with_experts * moe + table_parameters(shape, plan)
    return Held(dense, moe, experts, stage, with_experts * experts)


def table_parameters(shape: Transformer, plan: Plan) -> Scalar:
    """Embedding and head on the chip that holds more of them: one table a stage, both on a single stage.

    A tied head is a copy on the last of several stages.
    """
    embedding, head = embedding_parameters(shape), shape.vocab * shape.hidden
    untied = 1.0 - shape.tied_embeddings
    larger = hard_maximum(embedding, head)
    single = above_zero(2.0 - plan.pp)  # 1 without a pipeline, 0 from two stages on
    return (larger + untied * (embedding + head - larger) * single) / plan.tp


def expert_replicas(plan: Plan) -> Scalar:
    """Chips that hold the same experts: `t c d / (e t_e)`."""
    return plan.tp * plan.cp * plan.dp / (plan.ep * plan.expert_tp)


def shard_ranks(plan: Plan) -> tuple[Scalar, Scalar]:
    """Ranks that share one sharded state: `(d c / groups, replicas of an expert / groups)`, at least one each."""
    one = jnp.ones_like(plan.dp)
    own = hard_maximum(one, plan.dp * plan.cp / plan.shard_groups)
    return own, hard_maximum(one, expert_replicas(plan) / plan.shard_groups)
