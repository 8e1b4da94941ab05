"""Weights that one chip holds, after sharding over tensor, pipeline and expert parallel ranks."""

from functools import singledispatch
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from hwopt.model.numerics.maximum import above_zero, hard_maximum
from hwopt.plan import Plan
from hwopt.types import Scalar
from hwopt.workload.transformer import (
    Transformer,
    attention_parameters,
    dense_mlp_parameters,
    embedding_parameters,
    expert_parameters,
)


class Weights(NamedTuple):
    """Numbers of weights on one chip before any sharding over data parallel ranks, and the ranks that share a sharded state.

    Experts are counted apart: their replicas are other chips than those of the rest. Ranks are at least one.
    """

    dense_layer: Array  # a dense layer
    moe_layer: Array  # a MoE layer without its routed experts
    experts_layer: Array  # the routed experts of a MoE layer
    stage: Array  # the fullest stage and its tables, without routed experts
    stage_experts: Array  # routed experts of the fullest stage
    last: Array  # as `stage`, of the last stage
    last_experts: Array
    ranks: Array  # `d c / groups`
    expert_ranks: Array  # replicas of an expert, over groups

    def layer(self, moe: Scalar) -> Scalar:
        """Weights of a layer of a kind (1: MoE, 0: dense) without its routed experts."""
        return (1.0 - moe) * self.dense_layer + moe * self.moe_layer

    def sharded(self, share: Scalar) -> Scalar:
        """Weights of the fullest stage on a chip where `share` of them is sharded: all for 0, `1 / ranks` for 1."""
        ranks, expert_ranks = (1.0 + share * (each - 1.0) for each in (self.ranks, self.expert_ranks))
        return self.stage / ranks + self.stage_experts / expert_ranks

    @property
    def of_last_stage(self) -> "Weights":
        """The same of the last stage, which may be shorter than the fullest."""
        return self._replace(stage=self.last, stage_experts=self.last_experts)


@singledispatch
def chip_weights(shape: Transformer, plan: Plan) -> Weights:
    """Weights on one chip: layers over t, experts over e and t_e, stages over p; norms and routers are replicated.

    Dense layers come first, so the fullest stage has as many MoE layers as it has room for. Zero experts for a dense model.
    """
    attention = attention_parameters(shape) / plan.tp + 2.0 * shape.hidden
    expert = expert_parameters(shape)
    dense = attention + dense_mlp_parameters(shape) / plan.tp
    moe = attention + shape.shared_experts * expert / plan.tp + shape.hidden * shape.experts
    experts = expert_copies(shape, plan) * expert / (plan.ep * plan.expert_tp)
    tables = table_parameters(shape, plan)

    def stage(share: Scalar) -> tuple[Scalar, Scalar]:
        layers = shape.layers * share / plan.pp
        with_experts = jnp.where(layers < shape.moe_layers, layers, shape.moe_layers)
        return (layers - with_experts) * dense + with_experts * moe + tables, with_experts * experts

    one = jnp.ones_like(plan.dp)
    ranks = (hard_maximum(one, of / plan.shard_groups) for of in (plan.dp * plan.cp, expert_replicas(plan)))
    return Weights(dense, moe, experts, *stage(plan.fullest_stage), *stage(plan.last_stage), *ranks)


def larger_layer(shape: Transformer, dense: Scalar, moe: Scalar) -> Scalar:
    """The larger of what a dense and a MoE layer take, of the kinds that a model has."""
    dense = jnp.where(shape.dense_layers > 0, dense, 0.0)
    return hard_maximum(dense, jnp.where(shape.moe_layers > 0, moe, 0.0))


def table_parameters(shape: Transformer, plan: Plan) -> Scalar:
    """Embedding and head on the chip that holds more of them: one table a stage, both on a single stage.

    A tied head is a copy on the last of several stages.
    """
    embedding, head = embedding_parameters(shape), shape.vocab * shape.hidden
    untied = 1.0 - shape.tied_embeddings
    larger = hard_maximum(embedding, head)
    single = above_zero(2.0 - plan.pp)  # 1 without a pipeline, 0 from two stages on
    return (larger + untied * (embedding + head - larger) * single) / plan.tp


def expert_copies(shape: Transformer, plan: Plan) -> Scalar:
    """Experts that an expert parallel group holds, copies counted: E, or e ranks with as many slots each."""
    return shape.experts if plan.layout is None else plan.ep * plan.layout.expert_slots


def expert_replicas(plan: Plan) -> Scalar:
    """Chips that hold the same experts: `t c d / (e t_e)`."""
    return plan.tp * plan.cp * plan.dp / (plan.ep * plan.expert_tp)


@singledispatch
def splits(shape: Transformer, plan: Plan, copies: Scalar | float = 1.0) -> dict[str, tuple[Scalar, Scalar | float]]:
    """What a plan splits and copies, by margin: the most that a model allows, and what the plan takes of it.

    **Arguments:** `copies` that there must be of each expert.
    """
    experts, ranks = jnp.where(shape.experts > 0, expert_copies(shape, plan), 1.0), plan.ep
    if plan.layout is not None:  # slots hold all experts
        ranks = hard_maximum(ranks, shape.experts)
    return {
        "stages": (shape.layers + 2.0, plan.pp * plan.virtual_stages),  # embedding and head may fill one each
        "tensor_parallel": (shape.heads, plan.tp),
        "experts": (experts, ranks),
        "replicas": (expert_replicas(plan), copies),
    }
