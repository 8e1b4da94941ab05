"""Bytes on the fullest chip."""

from __future__ import annotations

from tests.reference.plain.flops import expert_tokens, micro_batches, sequence_shards, tokens_of
from tests.reference.plain.weights import layer_weights, sharded_weights


def core_activations(run, plan, stack) -> float:
    rows = tokens_of(run, plan) * run.model.heads / plan.tp
    if stack.attention_scores_stored == 1:
        return rows * run.sequence_length * (5.0 if stack.dropout_masks == 1 else 2.0)
    return 4.0 * rows


def body_activations(run, plan, stack, moe: bool) -> float:
    w, a, tokens = run.model, run.activation_bytes, tokens_of(run, plan)
    total = 4.0 * a * w.hidden * tokens / sequence_shards(plan)  # two norms' inputs and outputs
    if stack.dropout_masks == 1:
        total += 2.0 * w.hidden * tokens / sequence_shards(plan)
    keys = w.heads if w.kv_rank > 0 else max(w.kv_heads, plan.tp)
    total += a * tokens * (w.heads + keys) * (w.qk_dim + w.v_dim) / plan.tp
    total += a * tokens * (w.query_rank + w.kv_rank + w.rope_dim)
    if moe:
        total += a * expert_tokens(run, plan) * (w.mlp_matrices * w.expert_ffn / plan.expert_tp + w.hidden)
        total += a * tokens * w.mlp_matrices * w.shared_experts * w.expert_ffn / plan.tp
    else:
        total += a * tokens * w.mlp_matrices * w.ffn / plan.tp
    return total


def memory(run, plan, stack) -> dict[str, float]:
    w, tokens = run.model, tokens_of(run, plan)
    checkpoint = run.activation_bytes * w.hidden * tokens / sequence_shards(plan)
    core = core_activations(run, plan, stack)
    kept, working, largest = 0.0, 0.0, 0.0
    for moe, layers in ((False, w.layers - w.moe_layers), (True, w.moe_layers)):
        if layers == 0:
            continue
        body = body_activations(run, plan, stack, moe)
        normal = body + (1.0 - plan.recompute_attention) * core
        kept += layers / w.layers * (normal + plan.recompute_full * (checkpoint - normal))
        working = max(working, plan.recompute_full * (body + core))
        largest = max(largest, sum(layer_weights(w, plan, moe)))
    fullest = plan.fullest_stage * w.layers / plan.pp
    missing = fullest * plan.pp - w.layers
    first = fullest - min(max(missing - 1.0, 0.0), 1.0)
    on_first, on_second = plan.pp, plan.pp - 1.0
    if plan.virtual_stages > 1:
        chunked = min(plan.virtual_stages - 1.0, 1.0)
        on_first = plan.pp + chunked * (plan.pp - 1.0) / plan.virtual_stages
        on_second = on_first - (1.0 - chunked + chunked * 2.0 / plan.virtual_stages)
    count = micro_batches(run, plan)
    activations = kept * max(first * min(on_first, count), fullest * min(on_second, count))
    last = activations / min(plan.pp, micro_batches(run, plan)) + 8.0 * tokens * w.vocab / plan.tp
    if plan.weights_sharded == 1:
        working += 2.0 * largest * run.weight_bytes
    trained = run.trainable_fraction
    return {
        "weights_bytes": run.weight_bytes * sharded_weights(w, plan, plan.weights_sharded),
        "gradients_bytes": stack.gradient_bytes * trained * sharded_weights(w, plan, plan.gradients_sharded),
        "optimizer_bytes": (run.master_bytes + run.moment_bytes)
        * trained
        * sharded_weights(w, plan, plan.optimizer_sharded),
        "activations_bytes": activations,
        "logits_bytes": max(last - activations, 0.0),
        "working_bytes": working,
        "reserve_bytes": stack.memory_reserve_bytes + stack.fragmentation * (activations + working),
    }
