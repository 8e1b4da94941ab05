"""Number of weights on one chip, after sharding over tensor-, pipeline- and expert-parallel ranks."""

from functools import singledispatch
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from hwopt.model.numerics.maximum import above_zero, hard_maximum
from hwopt.plan import Plan
from hwopt.types import Scalar
from hwopt.workload.layer_work import DENSE, EXPERTS, MIXER, MOE, layer_work, total
from hwopt.workload.transformer import Transformer, embedding_parameters, kind_least


class Weights(NamedTuple):
    """Numbers of weights on one chip before data-parallel sharding, and the numbers of ranks that share a sharded state.

    Routed experts are counted separately, because they are replicated on different chips than the other weights. Ranks are at
    least one.
    """

    dense_layer: Array  # a dense layer
    moe_layer: Array  # a MoE layer without its routed experts
    experts_layer: Array  # the routed experts of a MoE layer
    stage: Array  # the fullest stage with its embedding tables, without routed experts
    stage_experts: Array  # routed experts of the fullest stage
    last: Array  # like `stage`, but of the last stage
    last_experts: Array  # routed experts of the last stage
    ranks: Array  # ranks of a shard group: `d c / groups`
    expert_ranks: Array  # replicas of an expert, over groups

    def layer(self, moe: Scalar) -> Scalar:
        """Return the weights of one layer without its routed experts. **Arguments:** `moe`: layer type (1: MoE, 0: dense)."""
        return (1.0 - moe) * self.dense_layer + moe * self.moe_layer

    def sharded(self, share: Scalar) -> Scalar:
        """Return the weights of the fullest stage that one chip stores under data-parallel sharding.

        **Arguments:** `share`: 0 to store all of the stage's weights, 1 to store the part `1 / ranks`.
        """
        ranks, expert_ranks = (1.0 + share * (each - 1.0) for each in (self.ranks, self.expert_ranks))
        return self.stage / ranks + self.stage_experts / expert_ranks

    @property
    def of_last_stage(self) -> "Weights":
        """The same weights, with the last stage in place of the fullest. The last stage may have fewer layers."""
        return self._replace(stage=self.last, stage_experts=self.last_experts)


@singledispatch
def chip_weights(shape: Transformer, plan: Plan) -> Weights:
    """Return the weights on one chip.

    Layers are sharded over tensor-parallel ranks. Routed experts are sharded over expert-parallel ranks, and within an expert
    over its own tensor-parallel ranks. Pipeline stages have separate layers. Norms and routers are replicated. Dense layers
    come first, so the fullest stage has as many MoE layers as possible. Weights of experts are zero for a dense model.

    Where layers are of several kinds, each stage has the mean mix, and one layer means the largest dense or MoE layer.
    """
    if shape.kinds is None:
        return _weights_alike(shape, plan)
    each, moe = _weights_alike(shape.each_kind, plan), shape.kinds.moe
    mean = {
        name: jnp.sum(shape.kinds.share * getattr(each, name))
        for name in ("stage", "stage_experts", "last", "last_experts")
    }
    largest = {
        name: jnp.max(share * getattr(each, name))
        for name, share in (("dense_layer", 1.0 - moe), ("moe_layer", moe), ("experts_layer", moe))
    }
    return each._replace(**mean, **largest)


def _weights_alike(shape: Transformer, plan: Plan) -> Weights:
    """Return the weights on one chip of a model whose layers differ only by dense MLP or mixture of experts."""
    work = layer_work(shape)
    mixer = total(work.placed(MIXER) / plan.tp, work.halves * shape.hidden, work.vectors)
    dense = mixer + work.placed(DENSE) / plan.tp
    moe = mixer + work.placed(MOE, replicated=False) / plan.tp + work.placed(MOE, replicated=True)
    experts = expert_copies(shape, plan) * work.placed(EXPERTS) / (plan.ep * plan.expert_tp)
    tables = table_parameters(shape, plan)

    def stage(share: Scalar) -> tuple[Scalar, Scalar]:
        layers = shape.layers * share / plan.pp
        with_experts = jnp.where(layers < shape.moe_layers, layers, shape.moe_layers)
        return (layers - with_experts) * dense + with_experts * moe + tables, with_experts * experts

    one = jnp.ones_like(plan.dp)
    ranks = (hard_maximum(one, of / plan.shard_groups) for of in (plan.dp * plan.cp, expert_replicas(plan)))
    return Weights(dense, moe, experts, *stage(plan.fullest_stage), *stage(plan.last_stage), *ranks)


def larger_layer(shape: Transformer, dense: Scalar, moe: Scalar) -> Scalar:
    """Return the larger of a `dense` and a `moe` layer's requirement, counting only layer types present in the model."""
    dense = jnp.where(shape.dense_layers > 0, dense, 0.0)
    return hard_maximum(dense, jnp.where(shape.moe_layers > 0, moe, 0.0))


def table_parameters(shape: Transformer, plan: Plan) -> Scalar:
    """Return the embedding and output-head weights on the chip that stores more of them.

    A pipeline stores one table on its first and one on its last stage; a single stage stores both. With several stages, a tied
    head is stored as a copy on the last one.
    """
    embedding, head = embedding_parameters(shape), shape.vocab * shape.hidden
    untied = 1.0 - shape.tied_embeddings
    larger = hard_maximum(embedding, head)
    single = above_zero(2.0 - plan.pp)  # 1 without a pipeline, 0 from two stages on
    return (larger + untied * (embedding + head - larger) * single) / plan.tp


def expert_copies(shape: Transformer, plan: Plan) -> Scalar:
    """Return the number of experts stored in an expert-parallel group, copies included.

    It is the model's E experts, or e ranks times the slots per rank where a layout with redundant experts is given.
    """
    return shape.experts if plan.layout is None else plan.ep * plan.layout.expert_slots


def expert_replicas(plan: Plan) -> Scalar:
    """Return the number of chips that store the same experts: `t c d / (e t_e)`.

    t, c, d and e are the degrees of tensor, context, data and expert parallelism, t_e is that of tensor parallelism in an
    expert.
    """
    return plan.tp * plan.cp * plan.dp / (plan.ep * plan.expert_tp)


@singledispatch
def splits(shape: Transformer, plan: Plan, copies: Scalar | float = 1.0) -> dict[str, tuple[Scalar, Scalar | float]]:
    """Return the model's limit on each parallel split and the plan's value, by the name of the margin.

    **Arguments:** `copies`: minimum number of replicas of each expert.

    **Returns:** for each margin, the largest value that the model allows and the value that the plan uses.
    """
    experts, ranks = jnp.where(shape.experts > 0, expert_copies(shape, plan), 1.0), plan.ep
    if plan.layout is not None:  # the slots must have room for all experts
        ranks = hard_maximum(ranks, shape.experts)
    return {
        "stages": (shape.layers + 2.0, plan.pp * plan.virtual_stages),  # embedding and head may fill one each
        "tensor_parallel": (kind_least(shape, "heads"), plan.tp),
        "experts": (experts, ranks),
        "replicas": (expert_replicas(plan), copies),
    }
