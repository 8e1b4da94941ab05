"""Parameters of a model, of a stage, and how they spread over chips."""

from __future__ import annotations


def attention_weights(w) -> float:
    total = w.hidden * w.heads * w.v_dim  # output
    if w.query_rank > 0:
        total += w.hidden * w.query_rank + w.query_rank * w.heads * w.qk_dim
    else:
        total += w.hidden * w.heads * w.qk_dim
    if w.kv_rank > 0:
        total += w.hidden * w.kv_rank + w.kv_rank * w.heads * ((w.qk_dim - w.rope_dim) + w.v_dim)
    else:
        total += w.hidden * w.kv_heads * (w.qk_dim + w.v_dim)
    return total + w.hidden * w.rope_dim


def expert_weights(w) -> float:
    return w.mlp_matrices * w.hidden * w.expert_ffn


def multiplying_weights(w, per_token: bool) -> float:
    """Weights of layers without norms: those one token meets, or all."""
    dense = (w.layers - w.moe_layers) * w.mlp_matrices * w.hidden * w.ffn
    routed = w.experts_per_token if per_token else w.experts
    moe = w.moe_layers * ((routed + w.shared_experts) * expert_weights(w) + w.hidden * w.experts)
    return w.layers * attention_weights(w) + dense + moe


def parameters(w, per_token: bool) -> float:
    tables = w.vocab * w.hidden * (1.0 if w.tied_embeddings == 1 else 2.0 - w.tied_embeddings)
    norms = 2.0 * w.layers * w.hidden + w.hidden
    return multiplying_weights(w, per_token) + tables + w.learned_positions * w.hidden + norms


def held_experts(w, plan) -> float:
    """Experts of an expert parallel group, those held twice counted twice."""
    return plan.layout.expert_slots * plan.ep if plan.layout else w.experts


def layer_weights(w, plan, moe: bool) -> tuple[float, float]:
    """Weights of a layer on one chip: all but routed experts, and routed experts."""
    own = attention_weights(w) / plan.tp + 2.0 * w.hidden
    if not moe:
        return own + w.mlp_matrices * w.hidden * w.ffn / plan.tp, 0.0
    own += w.shared_experts * expert_weights(w) / plan.tp + w.hidden * w.experts
    return own, held_experts(w, plan) * expert_weights(w) / plan.ep / plan.expert_tp


def stage_weights(w, plan, last: bool = False) -> tuple[float, float]:
    """Weights of the fullest stage, or the last, on one chip, tables included: (all but routed experts, routed experts)."""
    own, routed = 0.0, 0.0
    here = w.layers * (plan.last_stage if last else plan.fullest_stage) / plan.pp
    with_experts = min(here, w.moe_layers)  # dense layers come first, so a later stage has none
    for moe, layers in ((False, here - with_experts), (True, with_experts)):
        of_own, of_routed = layer_weights(w, plan, moe)
        own += of_own * layers
        routed += of_routed * layers
    embedding, logits = (w.vocab + w.learned_positions) * w.hidden, w.vocab * w.hidden
    tables = max(embedding, logits) + (1.0 - w.tied_embeddings) * min(embedding, logits) * max(2.0 - plan.pp, 0.0)
    return own + tables / plan.tp, routed


def expert_replicas(plan) -> float:
    return plan.tp * plan.cp * plan.dp / plan.ep / plan.expert_tp


def shards(plan) -> tuple[float, float]:
    """Over how many chips a sharded state spreads: (all but routed experts, routed experts)."""
    return (
        max(plan.dp * plan.cp / plan.shard_groups, 1.0),
        max(expert_replicas(plan) / plan.shard_groups, 1.0),
    )


def sharded_weights(w, plan, is_sharded: float, last: bool = False) -> float:
    own, routed = stage_weights(w, plan, last)
    if is_sharded == 1:
        own, routed = own / shards(plan)[0], routed / shards(plan)[1]
    return own + routed
