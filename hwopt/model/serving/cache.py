"""KV cache: bytes that a token occupies, bytes that a pass reads, and bytes that move between groups of chips."""

from collections.abc import Callable

import jax.numpy as jnp

from hwopt.model.layers.kinds import each_kind
from hwopt.model.numerics.maximum import above_zero, hard_maximum
from hwopt.plan import Plan
from hwopt.stack import Stack
from hwopt.types import Scalar
from hwopt.workload.layer_work import Cache, Core, layer_work, stated, total
from hwopt.workload.service import Service
from hwopt.workload.transformer import Transformer, mean_layer


def token_bytes(service: Service, plan: Plan) -> Scalar:
    """Return the KV-cache bytes of one token in one layer on one chip, before sharding among ranks that share a head.

    `max(k/t, 1) (d + d_v) e` for k key-value heads of key and value dimensions d and d_v over t tensor-parallel ranks, with e
    bytes per element. `(r_kv + d_rope) e` for latent attention (MLA), with latent rank r_kv and rotary dimension d_rope. A
    latent is shared by all heads, so every tensor-parallel rank stores it whole.
    """
    return _part_bytes(service, plan, layer_work(service.model).caches[0])


def _part_bytes(service: Service, plan: Plan, part: Cache) -> Scalar:
    """Return the bytes of one token in one part of a layer's cache on one chip: `max(parts / t, 1) elements e`."""
    return hard_maximum(part.parts / plan.tp, jnp.ones_like(plan.tp)) * part.elements * service.kv_bytes


def copies(shape: Transformer, plan: Plan) -> Scalar:
    """Return the number of ranks that share the keys and values of one head.

    It is `max(t/k, 1)` for t tensor-parallel ranks and k key-value heads, and t for latent attention.
    """
    heads = hard_maximum(shape.kv_heads / plan.tp, jnp.ones_like(plan.tp))
    shared = heads * (plan.tp / shape.kv_heads)  # written so that the bytes shared among copies have no kink at t = k
    return jnp.where(shape.kv_rank > 0, plan.tp, shared)


def sharing(service: Service, plan: Plan, stack: Stack, split: Scalar | float | None = None) -> Scalar:
    """Return the share of a cache that a chip stores where ranks with the same keys and values divide it.

    Ranks that share a head may shard its cache, by sequence (`Stack.cache_sharded`) or by token (the plan's `cache_split`).
    Without either it is 1.

    **Arguments:** `split`: parts by token; those of the plan by default. With 1 part it is what a chip holds once such ranks
    have gathered all tokens.
    """
    if split is None:
        split = 1.0 if plan.layout is None else plan.layout.cache_split
    return (1.0 - stack.cache_sharded) / split + stack.cache_sharded / copies(service.model, plan)


def rereads(shape: Transformer, plan: Plan, stack: Stack) -> Scalar:
    """Return how many times a generated token reads its cache.

    It is once, plus `Stack.cache_rereads` for each further query head of a grouped-query group.
    """
    group = shape.heads / plan.tp / hard_maximum(shape.kv_heads / plan.tp, jnp.ones_like(plan.tp))
    return 1.0 + stack.cache_rereads * jnp.where(shape.kv_rank > 0, 0.0, above_zero(group - 1.0))


def kept_tokens(local: Scalar | float, window: Scalar | float, tokens: Scalar) -> Scalar:
    """Return the tokens that a layer keeps or reads, mean over layers: all tokens, or at most a window in a share of them."""
    inside = tokens - above_zero(tokens - window)
    return (1.0 - local) * tokens + local * inside


def layer_mean(shape: Transformer, tokens: Scalar) -> Scalar:
    """Return the tokens that a layer keeps in its cache of keys and values, mean over layers."""

    def kept(s: Transformer) -> Scalar:
        first = layer_work(s).caches[0]
        return kept_tokens(first.local, first.window, tokens)

    return mean_layer(shape, kept)


def sequence_bytes(service: Service, plan: Plan, stack: Stack, tokens: Scalar) -> Scalar:
    """Return the bytes of one sequence of `tokens` tokens on a chip, in one layer, mean over layers: its cache and its state.

    The state of a scan has the same size whatever the length; tensor-parallel ranks divide it.
    """
    share = sharing(service, plan, stack)

    def each(shape: Transformer, _: Scalar) -> Scalar:
        work = layer_work(shape)
        cached = total(*(kept_tokens(p.local, p.window, tokens) * _part_bytes(service, plan, p) for p in work.caches))
        state = work.state_bytes / plan.tp if stated(work.state_bytes) else 0.0
        return total(cached * share, state)

    return over_layers(service.model, each)


def over_layers(model: Transformer, of: Callable[[Transformer, Scalar], Scalar]) -> Scalar:
    """Return the mean of a number over a model's kinds of layers; without kinds, that of its one kind."""
    if model.kinds is None:
        return of(model, jnp.ones_like(model.layers))
    count, each = each_kind(model, of)
    return jnp.sum(count * each) / model.layers


def read_bytes(
    service: Service, plan: Plan, stack: Stack, tokens: Scalar, times: Scalar | float | None = None
) -> Scalar:
    """Return the bytes that a generated token with `tokens` tokens before it reads in one layer on one chip.

    With an indexer attention reads only the chosen tokens.

    **Arguments:** `times`: how often attention reads its part, by default `rereads`. Other parts are read once.
    """
    work, share = layer_work(service.model), sharing(service, plan, stack)

    def part(each: Cache) -> Scalar:
        local = each.local if each.read_local is None else each.read_local
        window = each.window if each.read_window is None else each.read_window
        return kept_tokens(local, window, tokens) * _part_bytes(service, plan, each) * share

    first, *others = work.caches
    times = rereads(service.model, plan, stack) if times is None else times
    return total(part(first) * times, *map(part, others))


def prompt_span(core: Core, cached: Scalar, new: Scalar) -> Scalar:
    """Return the average number of keys that a prompt's new token attends to: all cached ones and half of the new ones.

    In layers with a sliding window a token attends to at most w keys. Where the window fills within the s new tokens after P
    cached ones, the mean is `((w^2 - P^2) / 2 + w (P + s - w)) / s`. The result is the mean over layers.
    """
    w = core.window
    filling = (0.5 * (w * w - cached * cached) + w * above_zero(cached + new - w)) / new
    inside = jnp.where(cached + new <= w, cached + 0.5 * new, filling)
    local = core.local
    return (1.0 - local) * (cached + 0.5 * new) + local * jnp.where(cached >= w, w, inside)


def request_bytes(service: Service) -> Scalar:
    """Return the bytes of keys, values and states of one prompt over all layers, without copies."""

    def each(shape: Transformer, _: Scalar) -> Scalar:
        work = layer_work(shape)
        cached = total(
            *(
                p.parts * p.elements * service.kv_bytes * kept_tokens(p.local, p.window, service.input_tokens)
                for p in work.caches
            )
        )
        return total(cached, work.state_bytes)

    return over_layers(service.model, each) * service.model.layers


def received_bytes(service: Service, plan: Plan, stack: Stack) -> Scalar:
    """Return the bytes of one prompt's keys, values and states that each chip of the plan receives.

    They include copies where a sequence has more tensor-parallel ranks than key-value heads.
    """
    return sequence_bytes(service, plan, stack, service.input_tokens) * (service.model.layers / plan.pp)
