"""Floating-point operations of a step, and tokens on a chip."""

from __future__ import annotations

from tests.reference.plain.weights import held_experts, multiplying_weights


def keys_met(run, causal: float) -> float:
    """Keys that a query meets, mean over layers."""
    s, w = run.sequence_length, run.model
    window = min(w.window_tokens, s)
    everywhere, local = causal * s, 2.0 * causal * (window - window**2 / (2.0 * s))
    return everywhere + w.local_layers_fraction * (local - everywhere)


def computed_causal(run, stack) -> float:
    if stack.attention_scores_stored == 1:
        return 1.0
    return run.causal_fraction


def last_products(w) -> float:
    """Weights, over all layers, of the matrices that a token meets last in each."""
    total = 0.0
    for is_moe, layers in ((False, w.layers - w.moe_layers), (True, w.moe_layers)):
        width = w.expert_ffn * (w.experts_per_token + w.shared_experts) if is_moe else w.ffn
        total += layers * width * w.hidden
    return total


def flops(run, plan, stack) -> tuple[float, float]:
    """Model FLOPs and repeated FLOPs of a step, all chips."""
    w = run.model
    tokens = run.global_batch_sequences * run.sequence_length
    weights = multiplying_weights(w, per_token=True)
    width = w.heads * (w.qk_dim + w.v_dim) * w.layers
    attention = 2.0 * keys_met(run, run.causal_fraction) * width
    model = 0.0
    for weight_pass, attention_pass in ((1.0, 1.0), (1.0, 1.0), (run.trainable_fraction, 1.0)):
        model += 2.0 * (weights + w.vocab * w.hidden) * weight_pass + attention * attention_pass
    attention_again = 2.0 * keys_met(run, computed_causal(run, stack)) * width
    only_attention = (1.0 - plan.recompute_full) * plan.recompute_attention
    weights_again = weights - stack.recompute_stops_early * last_products(w)
    again = plan.recompute_full * (2.0 * weights_again + attention_again) + only_attention * attention_again
    return tokens * model, tokens * again


def tokens_of(run, plan) -> float:
    return plan.micro_batch * run.sequence_length / plan.cp


def micro_batches(run, plan) -> float:
    return run.global_batch_sequences / plan.dp / plan.micro_batch


def sequence_shards(plan) -> float:
    return plan.tp if plan.sequence_parallel == 1 else 1.0


def expert_tokens(run, plan) -> float:
    """Token copies that the busiest expert rank computes."""
    copies = tokens_of(run, plan) / plan.tp * run.model.experts_per_token
    return plan.expert_tp * copies * busiest(run, plan)


def busiest(run, plan) -> float:
    """Tokens of the busiest expert rank over the mean; a further copy of an expert a rank halves what is above it."""
    above = run.routing_imbalance - 1.0
    if plan.layout:
        above *= plan.ep / (plan.ep + held_experts(run.model, plan) - run.model.experts)
    return 1.0 + above
