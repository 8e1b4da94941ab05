"""Bytes on the fullest chip."""

from __future__ import annotations

from tests.reference.plain.flops import expert_tokens, micro_batches, sequence_shards, tokens_of
from tests.reference.plain.weights import layer_weights, sharded_weights, stage_weights

ELEMENT_BYTES = (4.0, 4.0, 2.0, 1.0, 1.0, 0.5)  # of fp32, tf32, bf16, fp8, int8, fp4


def core_activations(run, plan, stack) -> float:
    rows = tokens_of(run, plan) * run.model.heads / plan.tp
    if stack.attention_scores_stored == 1:
        return rows * run.sequence_length * (5.0 if stack.dropout_masks == 1 else 2.0)
    return 4.0 * rows


def body_activations(run, plan, stack, moe: bool) -> float:
    w, a, tokens = run.model, run.activation_bytes, tokens_of(run, plan)
    cast = sum(share * size for share, size in zip(run.gemm_precision, ELEMENT_BYTES, strict=True))
    gemm_input, second_copy = a, 0.0
    if stack.cast_inputs_kept == 1 and cast < 2.0:
        gemm_input, second_copy = cast, cast
    # Two norms' inputs, and of their outputs as many as the stack keeps, in shards or as they were gathered.
    total = 2.0 * a * w.hidden * tokens / sequence_shards(plan)
    for share, width in ((stack.gathered_inputs_kept, 1.0), (1.0 - stack.gathered_inputs_kept, sequence_shards(plan))):
        total += share * (stack.residual_tensors - 2.0) * gemm_input * w.hidden * tokens / width
    if stack.dropout_masks == 1:
        total += 2.0 * w.hidden * tokens / sequence_shards(plan)
    keys = w.heads if w.kv_rank > 0 else max(w.kv_heads, plan.tp)
    total += a * tokens * (w.heads + keys) * (w.qk_dim + w.v_dim) / plan.tp
    total += second_copy * tokens * w.heads * w.v_dim / plan.tp
    total += a * tokens * (w.query_rank + w.kv_rank + w.rope_dim)
    inner = a * (w.mlp_matrices - 1.0) + (gemm_input if stack.product_kept == 1 else 0.0)
    if w.mlp_matrices == 3:
        inner += stack.activation_kept * a
    if moe:
        total += expert_tokens(run, plan) * (inner * w.expert_ffn / plan.expert_tp + gemm_input * w.hidden)
        total += tokens * inner * w.shared_experts * w.expert_ffn / plan.tp
    else:
        total += tokens * inner * w.ffn / plan.tp
    return total


def kinds(w):
    """Kinds of layers the model has: (MoE or not, layers)."""
    for moe, layers in ((False, w.layers - w.moe_layers), (True, w.moe_layers)):
        if layers > 0:
            yield moe, layers


def checkpoint_bytes(run, plan) -> float:
    """A layer's input."""
    return run.activation_bytes * run.model.hidden * tokens_of(run, plan) / sequence_shards(plan)


def layers_kept(run, plan, stack) -> float:
    """Layers whose activations the fullest stage keeps, counted once for each micro-batch in flight."""
    w = run.model
    fullest = plan.fullest_stage * w.layers / plan.pp
    missing = fullest * plan.pp - w.layers
    first = fullest if stack.first_stage_full == 1 else fullest - min(max(missing - 1.0, 0.0), 1.0)
    on_first, on_second = plan.pp, plan.pp - 1.0
    if plan.virtual_stages > 1:
        chunked = min(plan.virtual_stages - 1.0, 1.0)
        on_first = plan.pp + chunked * (plan.pp - 1.0) / plan.virtual_stages
        on_second = on_first - (1.0 - chunked + chunked * 2.0 / plan.virtual_stages)
    count = micro_batches(run, plan)
    return max(first * min(on_first, count), fullest * min(on_second, count))


def kept_activations(run, plan, stack) -> float:
    """Bytes of the fullest stage, in the chip and offloaded."""
    checkpoint, core = checkpoint_bytes(run, plan), core_activations(run, plan, stack)
    mean = 0.0
    for moe, layers in kinds(run.model):
        normal = body_activations(run, plan, stack, moe) + (1.0 - plan.recompute_attention) * core
        mean += layers / run.model.layers * (normal + plan.recompute_full * (checkpoint - normal))
    return mean * layers_kept(run, plan, stack)


def states(run, plan, stack, last: bool = False) -> tuple[float, float, float, float]:
    """Bytes a chip holds, in itself or offloaded: weights, gradients, optimizer states, kept activations."""
    w, trained = run.model, run.trainable_fraction
    moments = stack.master_kept * run.master_bytes + run.moment_bytes + stack.share_gradient_bytes
    gradients = stack.gradient_bytes * trained * sharded_weights(w, plan, plan.gradients_sharded, last)
    buckets = stack.gradient_copy_bytes * trained * sharded_weights(w, plan, 0.0, last)
    return (
        run.weight_bytes * sharded_weights(w, plan, plan.weights_sharded, last),
        gradients + buckets * min(plan.dp * plan.cp - 1.0, 1.0),
        moments * trained * sharded_weights(w, plan, plan.optimizer_sharded, last),
        kept_activations(run, plan, stack),
    )


def working_set(run, plan, stack) -> float:
    """Bytes of what is computed just now."""
    w, core, trained = run.model, core_activations(run, plan, stack), run.trainable_fraction
    working, largest, summed = 0.0, 0.0, 0.0
    for moe, _ in kinds(w):
        working = max(working, plan.recompute_full * (body_activations(run, plan, stack, moe) + core))
        largest = max(largest, sum(layer_weights(w, plan, moe)))
        summed = max(summed, layer_weights(w, plan, moe)[0])
    # A gathered input of a tensor-parallel region and its gradient; layers' gradients before they are added up.
    working += 2.0 * checkpoint_bytes(run, plan) * (sequence_shards(plan) - 1.0)
    working += stack.layers_whole * summed * run.weight_bytes * trained
    working += stack.table_gradient_bytes * w.vocab * w.hidden * trained / plan.tp
    working += plan.weights_offloaded * stack.layers_whole * largest * run.weight_bytes  # fetched from the pool
    if plan.weights_sharded == 1:
        stage = sum(stage_weights(w, plan)) * run.weight_bytes
        if plan.gradients_sharded == 1:
            stage += sum(stage_weights(w, plan)) * stack.gradient_bytes * trained
        pipelined = min(plan.pp - 1.0, 1.0)
        working += pipelined * stage + (1.0 - pipelined) * stack.layers_whole * largest * run.weight_bytes
    return working


def memory(run, plan, stack) -> dict[str, float]:
    weights, gradients, optimizer, activations = states(run, plan, stack)
    activations *= 1.0 - plan.activations_offloaded
    logits = stack.logit_bytes * tokens_of(run, plan) * run.model.vocab / plan.tp
    on_last = activations / min(plan.pp, micro_batches(run, plan)) * plan.last_stage / plan.fullest_stage
    working = working_set(run, plan, stack)
    near, far = 1.0 - plan.weights_offloaded, 1.0 - plan.optimizer_offloaded
    of_last = states(run, plan, stack, last=True)
    first = near * (weights + gradients) + far * optimizer + activations
    last = near * (of_last[0] + of_last[1]) + far * of_last[2] + on_last + logits
    return {
        "weights_bytes": near * weights,
        "gradients_bytes": near * gradients,
        "optimizer_bytes": far * optimizer,
        "activations_bytes": activations,
        "logits_bytes": max(last - first, 0.0),
        "working_bytes": working,
        "reserve_bytes": stack.memory_reserve_bytes + stack.fragmentation * (activations + working),
    }
