"""Time of collectives on nested tiers: alpha-beta, hierarchical, continuous in the group's size.

A group of `n` chips whose neighbours lie `stride` chips apart fills tier by tier: `n_i` members at tier i, with
`n_0 = clip(D_0 / stride, 1, n)` and so on outwards, where D_i is the tier's size. A group of one costs nothing.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.network import Network
from hwopt.model.maximum import above_zero, hard_maximum
from hwopt.types import PerTier, Scalar


def members_per_tier(network: Network, group: Scalar, stride: Scalar) -> PerTier:
    """How many sub-groups of the tier below each tier joins; their product is the group.

    **Arguments:** `group` chips in it; `stride` distance between neighbours in chips.

    **Returns:** members of each tier, >= 1, shape (tier,). Kinks where a group just fills a tier.
    """
    fits = network.size * (1.0 / stride)
    inside = jnp.where(fits < group, hard_maximum(jnp.ones_like(fits), fits), group)
    reach = jnp.concatenate([inside, jnp.broadcast_to(group, (1,))])
    inner = jnp.concatenate([jnp.ones_like(reach[:1]), reach[:-1]])
    members = reach / inner
    return hard_maximum(members, jnp.ones_like(members))  # never less; says so to readers of ranges


def seconds_per_byte(network: Network) -> PerTier:
    """Reciprocal of each tier's bus bandwidth, s/B.

    A reciprocal and a product, not a quotient: the gradient of a quotient squares the denominator first, which leaves the
    range of float32.
    """
    return 1.0 / (network.bandwidth_bytes_per_s * network.efficiency)


def _inner(members: PerTier) -> PerTier:
    """Chips of the group below each tier."""
    return jnp.concatenate([jnp.ones_like(members[:1]), jnp.cumprod(members)[:-1]])


def _launch(launch_s: Scalar, group: Scalar) -> Scalar:
    """Software latency of one collective; none for a group of one. Continuous: grows in over a group of 1 to 2."""
    return launch_s * above_zero(1.0 - above_zero(2.0 - group))


def ring_pass_s(
    network: Network,
    message_bytes: Scalar,
    group: Scalar,
    stride: Scalar,
    launch_s: Scalar,
    traffic: PerTier | float = 1.0,
) -> Scalar:
    """An all-gather or a reduce-scatter of `message_bytes` (the gathered size).

    `sum_i (n_i - 1) alpha_i + f_i (n_i - 1)/n_i (S / inner_i) / B_i`: a ring inside each tier on what the tiers below
    have left of the message, so `r` chips of a domain share its `r` links outwards.

    **Arguments:** bytes; chips; chips; s; `traffic` f, over that of a ring. **Returns:** s.

    **Source:** Thakur, Rabenseifner, Gropp 2005 (ring); hierarchical as in NCCL.
    """
    members = members_per_tier(network, group, stride)
    transfer = traffic * (1.0 - 1.0 / members) * (1.0 / _inner(members)) * message_bytes * seconds_per_byte(network)
    return jnp.sum((members - 1.0) * network.latency_s + transfer) + _launch(launch_s, group)


def ring_passes_s(network: Network, message_bytes: Array, group: Array, stride: Array, launch_s: Scalar) -> Array:
    """Several ring passes at once, shape (collective,) each: one traced copy serves them all."""
    return jax.vmap(ring_pass_s, in_axes=(None, 0, 0, 0, None))(network, message_bytes, group, stride, launch_s)


def all_reduce_s(network: Network, message_bytes: Scalar, group: Scalar, stride: Scalar, launch_s: Scalar) -> Scalar:
    """An all-reduce: a reduce-scatter and an all-gather, less what switches reduce on the way.

    Two ring passes whose traffic counts by the tier's `reduction_factor`.

    **Arguments:** bytes; chips; chips; s. **Returns:** s. **Source:** as `ring_pass_s`; SHARP: Graham et al. 2016.
    """
    one_pass = ring_pass_s(network, message_bytes, group, stride, 0.5 * launch_s, network.reduction_factor)
    return 2.0 * one_pass


def all_reduces_s(network: Network, message_bytes: Array, group: Array, stride: Array, launch_s: Scalar) -> Array:
    """Several all-reduces at once, shape (collective,) each."""
    return jax.vmap(all_reduce_s, in_axes=(None, 0, 0, 0, None))(network, message_bytes, group, stride, launch_s)


def all_to_all_s(network: Network, sent_bytes: Scalar, group: Scalar, stride: Scalar, launch_s: Scalar) -> Scalar:
    """An all-to-all in which each chip sends `sent_bytes` in equal parts to the group.

    Of the parts, `(reach_i - reach_{i-1}) / n` cross tier i: `sum_i (n_i - 1) alpha_i + share_i S / B_i`.

    **Arguments:** bytes a chip sends (its own part included); chips; chips; s. **Returns:** s.
    """
    members = members_per_tier(network, group, stride)
    inner = _inner(members)
    share = inner * (members - 1.0) * (1.0 / group)
    transfer = share * sent_bytes * seconds_per_byte(network)
    return jnp.sum((members - 1.0) * network.latency_s + transfer) + _launch(launch_s, group)


def neighbour_send_s(network: Network, message_bytes: Scalar, group: Scalar, stride: Scalar) -> Scalar:
    """One send to the next of `group` members; the slowest pair counts, so the outermost tier in use decides.

    A tier is in use by `clip(n_i - 1, 0, 1)`; a group of one sends nothing.

    **Arguments:** bytes; chips; chips. **Returns:** s.
    """
    members = members_per_tier(network, group, stride)
    used = 1.0 - above_zero(2.0 - members)
    beyond = jnp.cumprod((1.0 - used)[::-1])[::-1]  # no use of this tier or any outside it
    outside = jnp.concatenate([beyond[1:], jnp.ones_like(beyond[:1])])
    each = network.latency_s + message_bytes * seconds_per_byte(network)
    return jnp.sum(used * outside * each)
