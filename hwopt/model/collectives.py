"""Time of collectives on nested tiers: alpha-beta with pipelined steps, hierarchical, continuous in the group's size.

One step of `s` bytes over a link of latency alpha and bandwidth B takes `alpha + 2 rho sqrt(alpha s / B) + s / B`. At
rho = 1 that is `(sqrt(alpha) + sqrt(s / B))^2`, a message cut into the number of chunks that makes it fastest, which is
what switching from low-latency to bulk protocols comes close to; at rho = 0 a message goes as a whole.
`hwopt.study.collectives` fits the constants of links and scores the formulas on measured collectives.

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

OWN_PART = 0.5
"""Time to copy a byte of the own part over that of a byte on the innermost link.

It explains bus bandwidth on 2, 4 and 8 chips: at 512 MB, ring passes show 0.4 to 0.5 on A100, H100 and B200. Fitted over
all sizes it is 0.65 in ring passes and 0.9 in all-to-alls. Buffers are apart in the tests; where a pass runs in place it
would be nearer to 0. An assumption on other links.
"""

PEER_GAP = 0.5
"""What a further message of an all-to-all adds to its latency, over that of a step. Measured: 0.45 to
0.5 on NVLink 3 to 5; an assumption on other links."""


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


def _tail(share: PerTier) -> PerTier:
    """What crosses each tier or any tier outside it."""
    return jnp.cumsum(share[::-1])[::-1]


def _slowest(seconds: PerTier) -> Scalar:
    """The largest of all tiers; kinks where another tier becomes the slowest."""
    largest = seconds[0]
    for i in range(1, seconds.shape[0]):
        largest = hard_maximum(largest, seconds[i])
    return largest


def _used(group: Array) -> Array:
    """0 for a group of one, 1 from two on, in proportion between: lets a cost grow in."""
    return 1.0 - above_zero(2.0 - group)


def ramp_s(network: Network, transfer_s: PerTier) -> PerTier:
    """What one step of each tier takes above its latency and its bytes' time: `2 rho sqrt(alpha s / B)`.

    A posynomial: log-log convex in latency, bytes and bandwidth.

    **Arguments:** `transfer_s` of the step, `s / B`, s. **Returns:** s.

    **Source:** least of `(1 + 1/k) x + (1 + k) alpha` over k chunks; Sanders and Traeff 2006 (recalled). Fitted freely to
    measurements, the 2 comes out at 2.5 (NVLink 3), 1.8 (NVLink 4), 1.9 (NVLink 5), 1.6 and 2.1 (EFA).
    """
    product = network.latency_s * transfer_s
    moves = product > 0.0
    return jnp.where(moves, 2.0 * network.ramp * jnp.sqrt(jnp.where(moves, product, 1.0)), 0.0)


def _launch(launch_s: Scalar, group: Scalar) -> Scalar:
    """Software latency of one collective; none for a group of one. Continuous: grows in over a group of 1 to 2."""
    return launch_s * above_zero(_used(group))


def _ring_s(network: Network, message_bytes: Scalar, members: PerTier, traffic: PerTier | float) -> Scalar:
    """A ring pass without launch and without the copy of a chip's own part."""
    inner, byte_s = _inner(members), seconds_per_byte(network)
    step_s = traffic * (1.0 / (inner * members)) * message_bytes * byte_s
    steps = (members - 1.0) * (network.latency_s + ramp_s(network, step_s))
    share = _tail((1.0 - 1.0 / members) * (1.0 / inner))
    return jnp.sum(steps) + _slowest(traffic * share * message_bytes * byte_s)


def _own_part_s(network: Network, message_bytes: Scalar, group: Scalar) -> Scalar:
    """Copy of the part that a chip keeps, from the buffer sent to the one received: `OWN_PART S / n / B_0`."""
    return OWN_PART * _used(group) * (1.0 / group) * message_bytes * seconds_per_byte(network)[0]


def ring_pass_s(network: Network, message_bytes: Scalar, group: Scalar, stride: Scalar, launch_s: Scalar) -> Scalar:
    """An all-gather or a reduce-scatter of `message_bytes` (the gathered size).

    `sum_i (n_i - 1) (alpha_i + ramp_i) + max_i (1/inner_i - 1/n) S / B_i + OWN_PART S / n / B_0`: a ring inside each tier,
    all tiers at once in a pipeline whose slowest tier sets the pace. What a chip exchanges with the outside passes its
    inner links too, and `r` chips of a domain share its `r` links outwards.

    **Arguments:** bytes; chips; chips; s. **Returns:** s.

    **Source:** Thakur, Rabenseifner, Gropp 2005 (ring); hierarchical as in NCCL. Two nodes of H100 and of A100 reach
    bus bandwidths that tiers one after the other would not, at any efficiency up to 1.
    """
    members = members_per_tier(network, group, stride)
    once = _ring_s(network, message_bytes, members, 1.0)
    return once + _own_part_s(network, message_bytes, group) + _launch(launch_s, group)


def ring_passes_s(network: Network, message_bytes: Array, group: Array, stride: Array, launch_s: Scalar) -> Array:
    """Several ring passes at once, shape (collective,) each: one traced copy serves them all."""
    return jax.vmap(ring_pass_s, in_axes=(None, 0, 0, 0, None))(network, message_bytes, group, stride, launch_s)


def all_reduce_s(network: Network, message_bytes: Scalar, group: Scalar, stride: Scalar, launch_s: Scalar) -> Scalar:
    """An all-reduce: a reduce-scatter and an all-gather in one, less what switches reduce on the way.

    Two ring passes whose traffic counts by the tier's `reduction_factor`; no part is copied, it stays where it is reduced.

    **Arguments:** bytes; chips; chips; s. **Returns:** s. **Source:** as `ring_pass_s`; SHARP: Graham et al. 2016.
    """
    members = members_per_tier(network, group, stride)
    return 2.0 * _ring_s(network, message_bytes, members, network.reduction_factor) + _launch(launch_s, group)


def all_reduces_s(network: Network, message_bytes: Array, group: Array, stride: Array, launch_s: Scalar) -> Array:
    """Several all-reduces at once, shape (collective,) each."""
    return jax.vmap(all_reduce_s, in_axes=(None, 0, 0, 0, None))(network, message_bytes, group, stride, launch_s)


def all_to_all_s(
    network: Network,
    sent_bytes: Scalar,
    group: Scalar,
    stride: Scalar,
    launch_s: Scalar,
    outer_share: Scalar | float = 1.0,
) -> Scalar:
    """An all-to-all in which each chip sends `sent_bytes` in equal parts to the group.

    Of the parts, `(reach_i - reach_{i-1}) / n` cross tier i, `n_i - 1` messages of `reach_{i-1} / n` of the bytes. They
    leave without waiting for each other, so a further one adds `PEER_GAP` of a latency, not all of it:
    `sum_i (1 + PEER_GAP (n_i - 2)) alpha_i + (n_i - 1) ramp_i + share_i S / B_i`, and the copy of the own part.

    **Arguments:** bytes a chip sends (its own part included); chips; chips; s; `outer_share` of them that is left to send
    beyond the innermost tier, where copies for one domain travel once. **Returns:** s.

    **Source:** gap between messages: Culler et al. 1993 (LogP). Across tiers nothing is measured: their times add up.
    """
    members = members_per_tier(network, group, stride)
    inner, byte_s = _inner(members), seconds_per_byte(network)
    left = jnp.concatenate([jnp.ones_like(inner[:1]), jnp.ones_like(inner[1:]) * outer_share])
    message_s = left * inner * (1.0 / group) * sent_bytes * byte_s
    peers = members - 1.0
    first = (1.0 - PEER_GAP) * _used(members)
    time = (first + PEER_GAP * peers) * network.latency_s + peers * (ramp_s(network, message_s) + message_s)
    return jnp.sum(time) + _own_part_s(network, sent_bytes, group) + _launch(launch_s, group)


def neighbour_send_s(network: Network, message_bytes: Scalar, group: Scalar, stride: Scalar) -> Scalar:
    """One send to the next of `group` members; the slowest pair counts, so the outermost tier in use decides.

    A tier is in use by `clip(n_i - 1, 0, 1)`; a group of one sends nothing.

    **Arguments:** bytes; chips; chips. **Returns:** s.
    """
    members = members_per_tier(network, group, stride)
    used = _used(members)
    beyond = jnp.cumprod((1.0 - used)[::-1])[::-1]  # no use of this tier or any outside it
    outside = jnp.concatenate([beyond[1:], jnp.ones_like(beyond[:1])])
    transfer = message_bytes * seconds_per_byte(network)
    each = network.latency_s + ramp_s(network, transfer) + transfer
    return jnp.sum(used * outside * each)
