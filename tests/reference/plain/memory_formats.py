"""Bytes on the fullest chip of a run that states its memory formats."""

from __future__ import annotations

import copy

from tests.reference.plain import memory as usual
from tests.reference.plain.flops import expert_tokens, micro_batches, tokens_of
from tests.reference.plain.weights import layer_weights, sharded_weights, shards, stage_weights


def tables(w, plan) -> float:
    embedding, logits = (w.vocab + w.learned_positions) * w.hidden, w.vocab * w.hidden
    both = max(embedding, logits) + (1.0 - w.tied_embeddings) * min(embedding, logits) * max(2.0 - plan.pp, 0.0)
    return both / plan.tp


def body(run, plan, stack, moe: bool) -> float:
    """Kept activations of a layer: in the format of what is kept, without inputs of frozen layers that no adapter needs."""
    f, w, own = run.formats, run.model, copy.copy(run)
    if f.kept_bytes is not None:
        own.activation_bytes = f.kept_bytes
    total = usual.body_activations(own, plan, stack, moe)
    if f.adapted_mlp is None:
        return total
    kept, dropped = copy.copy(stack), 1.0 - f.adapted_mlp
    kept.residual_tensors, kept.product_kept = 2.0 + 0.5 * (1.0 + f.adapted_mlp) * (stack.residual_tensors - 2.0), 0.0
    without = usual.body_activations(own, plan, kept, moe)  # no inputs of the last product at all
    kept.product_kept = stack.product_kept
    with_product = usual.body_activations(own, plan, kept, moe)
    total = without + f.adapted_mlp * (with_product - without)
    if moe:
        cast = sum(share * size for share, size in zip(run.gemm_precision, usual.ELEMENT_BYTES, strict=True))
        narrow = cast if stack.cast_inputs_kept == 1 and cast < 2.0 else own.activation_bytes
        total -= dropped * narrow * expert_tokens(run, plan) * w.hidden
    return total


def gradients_of_layer(run, plan, stack, moe: bool) -> float:
    every, own = copy.copy(stack), run
    every.residual_tensors, every.product_kept = 4.0, 1.0
    total = usual.body_activations(own, plan, every, moe)
    return total + (18.0 * expert_tokens(run, plan) * run.model.hidden if moe else 0.0)


def states(run, plan, stack, last: bool) -> list[float]:
    """Weights, gradients and optimizer states, in the chip and offloaded."""
    f, w, trained = run.formats, run.model, run.trainable_fraction
    number = sharded_weights(w, plan, plan.weights_sharded, last)
    weights = run.weight_bytes * number
    if f.frozen_bytes is not None:
        shared = tables(w, plan) / (shards(plan)[0] if plan.weights_sharded == 1 else 1.0)
        weights = f.frozen_bytes * (number - shared) + max(f.frozen_bytes, run.weight_bytes) * shared
        weights += trained * run.weight_bytes * number
    each = stack.gradient_bytes if f.gradient_bytes is None else f.gradient_bytes
    exchanging = min(plan.dp * plan.cp - 1.0, 1.0)
    gradients = each * sharded_weights(w, plan, plan.gradients_sharded, last)
    if (
        f.gradients_unreduced is not None
    ):  # a single stage: a pipeline holds whole gradients with the weights of its stage
        share = f.gradients_unreduced * exchanging * min(max(micro_batches(run, plan) - 1.0, 0.0), 1.0)
        share *= max(2.0 - plan.pp, 0.0)
        gradients += share * (stack.gradient_bytes * sharded_weights(w, plan, 0.0, last) - gradients)
    gradients += stack.gradient_copy_bytes * sharded_weights(w, plan, 0.0, last) * exchanging
    updated = trained * sharded_weights(w, plan, plan.optimizer_sharded, last)
    moments = stack.master_kept * run.master_bytes + run.moment_bytes + stack.share_gradient_bytes
    optimizer = moments * updated
    if f.table_moment_bytes is not None:
        shared = tables(w, plan) / (shards(plan)[0] if plan.optimizer_sharded == 1 else 1.0)
        optimizer += trained * (f.table_moment_bytes - run.moment_bytes) * shared
    stay = 1.0 if f.gradients_kept is None else f.gradients_kept
    near, far = 1.0 - plan.weights_offloaded, 1.0 - plan.optimizer_offloaded
    return [near * weights, near * stay * trained * gradients, far * optimizer]


def activations(run, plan, stack) -> tuple[float, float]:
    """Kept activations, and the activations of the layer at work."""
    f, core, mean, working = run.formats, usual.core_activations(run, plan, stack), 0.0, 0.0
    for moe, layers in usual.kinds(run.model):
        own = body(run, plan, stack, moe)
        normal = own + (1.0 - plan.recompute_attention) * core
        kept = normal + plan.recompute_full * (usual.checkpoint_bytes(run, plan) - normal)
        mean += layers / run.model.layers * kept
        again = plan.recompute_full * (own + core)
        if f.chunk_tokens is not None:
            again += gradients_of_layer(run, plan, stack, moe)
        working = max(working, again)
    return mean * usual.layers_kept(run, plan, stack), working


def working_set(run, plan, stack, working: float) -> float:
    f, w, trained = run.formats, run.model, run.trainable_fraction
    working += 2.0 * usual.checkpoint_bytes(run, plan) * (usual.sequence_shards(plan) - 1.0)
    of_layers = [layer_weights(w, plan, moe) for moe, _ in usual.kinds(w)]
    largest, summed = max(map(sum, of_layers)), max(own for own, _ in of_layers)
    width = run.weight_bytes
    if f.layers_gathered is None:
        whole = stack.layers_whole * largest * width
        working += stack.layers_whole * summed * width * trained
        working += stack.table_gradient_bytes * w.vocab * w.hidden / plan.tp * trained
        working += plan.weights_offloaded * whole
    else:
        stored, a = run.weight_bytes if f.frozen_bytes is None else f.frozen_bytes, run.activation_bytes
        width = min(stored, a)
        whole = f.layers_gathered * largest * width + tables(w, plan) * a
        pending = a * tables(w, plan) + (a + stack.gradient_bytes) * largest
        working += plan.weights_sharded * trained * pending
        working += (1.0 - plan.weights_sharded) * plan.weights_offloaded * whole
    pipelined = min(plan.pp - 1.0, 1.0)
    stage = sum(stage_weights(w, plan)) * (width + stack.gradient_bytes * trained * plan.gradients_sharded)
    return working + plan.weights_sharded * (pipelined * stage + (1.0 - pipelined) * whole)


def memory(run, plan, stack) -> dict[str, float]:
    f, w, tokens = run.formats, run.model, tokens_of(run, plan)
    weights, gradients, optimizer = states(run, plan, stack, False)
    kept, of_layer = activations(run, plan, stack)
    kept *= 1.0 - plan.activations_offloaded
    working = working_set(run, plan, stack, of_layer)
    logits = stack.logit_bytes * tokens * w.vocab / plan.tp
    first = weights + gradients + optimizer + kept
    if f.chunk_tokens is not None:
        logits = stack.logit_bytes * min(tokens, f.chunk_tokens) * w.vocab / plan.tp
        logits = max(logits + 2.0 * run.activation_bytes * w.hidden * tokens - working, 0.0)
        single = max(2.0 - micro_batches(run, plan), 0.0)
        gradients = max((1.0 - single) * gradients, gradients - kept)
    on_last = kept / min(plan.pp, micro_batches(run, plan)) * plan.last_stage / plan.fullest_stage
    last = sum(states(run, plan, stack, True)) + on_last + logits
    reserve = stack.memory_reserve_bytes + stack.fragmentation * (kept + working)
    return {
        "weights_bytes": weights,
        "gradients_bytes": gradients,
        "optimizer_bytes": optimizer,
        "activations_bytes": kept,
        "logits_bytes": max(last - first, 0.0),
        "working_bytes": working,
        "reserve_bytes": reserve if f.reserve_bytes is None else f.reserve_bytes,
    }
