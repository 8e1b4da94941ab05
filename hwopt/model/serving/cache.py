"""Keys and values: what a token leaves behind in memory, and what a pass reads of it."""

import jax.numpy as jnp

from hwopt.model.layers.work import kv_heads_per_chip
from hwopt.model.numerics.maximum import above_zero
from hwopt.plan import Plan
from hwopt.stack import Stack
from hwopt.types import Scalar
from hwopt.workload.service import Service
from hwopt.workload.transformer import Transformer


def token_bytes(service: Service, plan: Plan) -> Scalar:
    """Bytes that one token keeps in one layer on one chip: `max(k/t, 1) (d + d_v) e`; latent attention `(r_kv + d_rope) e`.

    A latent is shared by all heads, so every tensor-parallel rank holds it whole.
    """
    w = service.model
    grouped = kv_heads_per_chip(w, plan) * (w.qk_dim + w.v_dim)
    return jnp.where(w.kv_rank > 0, w.kv_rank + w.rope_dim, grouped) * service.kv_bytes


def copies(shape: Transformer, plan: Plan) -> Scalar:
    """Ranks that share the keys and values of one head, or of one latent: `max(t/k, 1)`."""
    shared = kv_heads_per_chip(shape, plan) * (
        plan.tp / shape.kv_heads
    )  # so that what copies share keeps no kink at t = k
    return jnp.where(shape.kv_rank > 0, plan.tp, shared)


def held_token_bytes(service: Service, plan: Plan, stack: Stack) -> Scalar:
    """`token_bytes`, less what ranks that share a head spread among them: by sequence, or by token where the plan says so."""
    return _spread_token_bytes(service, plan, stack, 1.0 if plan.layout is None else plan.layout.cache_split)


def gathered_token_bytes(service: Service, plan: Plan, stack: Stack) -> Scalar:
    """The same where ranks that hold some of the tokens each have all of them again."""
    return _spread_token_bytes(service, plan, stack, 1.0)


def _spread_token_bytes(service: Service, plan: Plan, stack: Stack, split: Scalar | float) -> Scalar:
    spread = (1.0 - stack.cache_sharded) / split + stack.cache_sharded / copies(service.model, plan)
    return token_bytes(service, plan) * spread


def reads(shape: Transformer, plan: Plan, stack: Stack) -> Scalar:
    """How often a generated token reads keys and values: once, and again for a share of the group's further query heads."""
    group = shape.heads / plan.tp / kv_heads_per_chip(shape, plan)
    return 1.0 + stack.cache_rereads * jnp.where(shape.kv_rank > 0, 0.0, above_zero(group - 1.0))


def layer_mean(shape: Transformer, tokens: Scalar) -> Scalar:
    """Tokens that a layer keeps, mean over layers: all, or no more than its window."""
    inside = tokens - above_zero(tokens - shape.window_tokens)
    local = shape.local_layers_fraction
    return (1.0 - local) * tokens + local * inside


def prompt_span(shape: Transformer, cached: Scalar, new: Scalar) -> Scalar:
    """Keys that a prompt's new token meets, mean over its tokens and over layers: cached ones and half of the new ones.

    In layers of window w, each token meets no more than w: `((w^2 - P^2) / 2 + w (P + s - w)) / s` where the window fills
    within the s new tokens after P cached ones.
    """
    w = shape.window_tokens
    filling = (0.5 * (w * w - cached * cached) + w * above_zero(cached + new - w)) / new
    inside = jnp.where(cached + new <= w, cached + 0.5 * new, filling)
    local = shape.local_layers_fraction
    return (1.0 - local) * (cached + 0.5 * new) + local * jnp.where(cached >= w, w, inside)


def request_bytes(service: Service) -> Scalar:
    """Keys and values of one prompt, all layers, once."""
    w = service.model
    each = jnp.where(w.kv_rank > 0, w.kv_rank + w.rope_dim, w.kv_heads * (w.qk_dim + w.v_dim))
    return each * service.kv_bytes * w.layers * layer_mean(w, service.input_tokens)


def received_bytes(service: Service, plan: Plan, stack: Stack) -> Scalar:
    """Keys and values of one prompt that a chip of the plan needs: copies where more ranks than heads share a sequence."""
    w = service.model
    return held_token_bytes(service, plan, stack) * (w.layers / plan.pp) * layer_mean(w, service.input_tokens)
