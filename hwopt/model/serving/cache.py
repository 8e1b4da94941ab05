"""KV cache: bytes that a token occupies, bytes that a pass reads, and bytes that move between groups of chips."""

import jax.numpy as jnp

from hwopt.model.layers.work import kv_heads_per_chip
from hwopt.model.numerics.maximum import above_zero
from hwopt.plan import Plan
from hwopt.stack import Stack
from hwopt.types import Scalar
from hwopt.workload.service import Service
from hwopt.workload.transformer import Transformer


def token_bytes(service: Service, plan: Plan) -> Scalar:
    """Return the KV-cache bytes of one token in one layer on one chip, before sharding among ranks that share a head.

    `max(k/t, 1) (d + d_v) e` for k key-value heads of key and value dimensions d and d_v over t tensor-parallel ranks, with e
    bytes per element. `(r_kv + d_rope) e` for latent attention (MLA), with latent rank r_kv and rotary dimension d_rope. A
    latent is shared by all heads, so every tensor-parallel rank stores it whole.
    """
    w = service.model
    grouped = kv_heads_per_chip(w, plan) * (w.qk_dim + w.v_dim)
    return jnp.where(w.kv_rank > 0, w.kv_rank + w.rope_dim, grouped) * service.kv_bytes


def copies(shape: Transformer, plan: Plan) -> Scalar:
    """Return the number of ranks that share the keys and values of one head.

    It is `max(t/k, 1)` for t tensor-parallel ranks and k key-value heads, and t for latent attention.
    """
    shared = kv_heads_per_chip(shape, plan) * (
        plan.tp / shape.kv_heads
    )  # written so that the bytes shared among copies have no kink at t = k
    return jnp.where(shape.kv_rank > 0, plan.tp, shared)


def held_token_bytes(service: Service, plan: Plan, stack: Stack) -> Scalar:
    """Return the KV-cache bytes that a chip stores per token and layer.

    Ranks that share a head may shard its cache, by sequence (`Stack.cache_sharded`) or by token (the plan's `cache_split`).
    Without either it is `token_bytes`.
    """
    return spread_token_bytes(service, plan, stack, 1.0 if plan.layout is None else plan.layout.cache_split)


def spread_token_bytes(service: Service, plan: Plan, stack: Stack, split: Scalar | float) -> Scalar:
    """Return the KV-cache bytes per token and layer on ranks that shard it by token into `split` parts.

    With 1 part it is what a chip holds once such ranks have gathered all tokens.
    """
    spread = (1.0 - stack.cache_sharded) / split + stack.cache_sharded / copies(service.model, plan)
    return token_bytes(service, plan) * spread


def reads(shape: Transformer, plan: Plan, stack: Stack) -> Scalar:
    """Return how many times a generated token reads its cache.

    It is once, plus `Stack.cache_rereads` for each further query head of a grouped-query group.
    """
    group = shape.heads / plan.tp / kv_heads_per_chip(shape, plan)
    return 1.0 + stack.cache_rereads * jnp.where(shape.kv_rank > 0, 0.0, above_zero(group - 1.0))


def layer_mean(shape: Transformer, tokens: Scalar) -> Scalar:
    """Return the tokens that a layer keeps in its cache, mean over layers: all tokens, or at most a sliding window."""
    inside = tokens - above_zero(tokens - shape.window_tokens)
    local = shape.local_layers_fraction
    return (1.0 - local) * tokens + local * inside


def prompt_span(shape: Transformer, cached: Scalar, new: Scalar) -> Scalar:
    """Return the average number of keys that a prompt's new token attends to: all cached ones and half of the new ones.

    In layers with a sliding window a token attends to at most w keys. Where the window fills within the s new tokens after P
    cached ones, the mean is `((w^2 - P^2) / 2 + w (P + s - w)) / s`. The result is the mean over layers.
    """
    w = shape.window_tokens
    filling = (0.5 * (w * w - cached * cached) + w * above_zero(cached + new - w)) / new
    inside = jnp.where(cached + new <= w, cached + 0.5 * new, filling)
    local = shape.local_layers_fraction
    return (1.0 - local) * (cached + 0.5 * new) + local * jnp.where(cached >= w, w, inside)


def request_bytes(service: Service) -> Scalar:
    """Return the bytes of keys and values of one prompt over all layers, without copies."""
    w = service.model
    each = jnp.where(w.kv_rank > 0, w.kv_rank + w.rope_dim, w.kv_heads * (w.qk_dim + w.v_dim))
    return each * service.kv_bytes * w.layers * layer_mean(w, service.input_tokens)


def received_bytes(service: Service, plan: Plan, stack: Stack) -> Scalar:
    """Return the bytes of one prompt's keys and values that each chip of the plan receives.

    They include copies where a sequence has more tensor-parallel ranks than key-value heads.
    """
    w = service.model
    return held_token_bytes(service, plan, stack) * (w.layers / plan.pp) * layer_mean(w, service.input_tokens)
