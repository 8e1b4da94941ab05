"""Time of collectives on nested network tiers: hierarchical alpha-beta model with pipelined steps, continuous in group size.

One step of `s` bytes over a link of latency alpha and bandwidth B takes `alpha + 2 rho sqrt(alpha s / B) + s / B`. At
rho = 1 that is `(sqrt(alpha) + sqrt(s / B))^2`: the message is cut into the number of chunks that minimizes the time.
Switching from low-latency to bulk protocols comes close to that. At rho = 0 the message is sent whole.
`results.benchmarks.collectives` fits the link constants and scores the formulas against measured collectives.

A `Route` describes the members, latency and bandwidth of a group on each tier, and `ring_steps` the steps. A group of one
costs nothing. All groups of the same parallelism communicate at once: each chip has its own links, and links beyond the
chip count by each tier's bandwidth per chip. Each function also adds `launch_s`, the software latency of one collective.
"""

from functools import reduce

import jax
import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.network import Network
from hwopt.model.network.route import (
    Route,
    fastest_steps,
    flat_ring,
    flat_ring_steps,
    links_crossed,
    links_left_out,
    members_per_tier,
    ring_steps,
    route,
    seconds_per_byte,
    slowest_link,
    waiting_latency_s,
)
from hwopt.model.numerics.maximum import above_zero, hard_maximum, several
from hwopt.stack import Stack
from hwopt.types import PerTier, Scalar

OWN_PART = 0.5
"""Time to copy a byte of a chip's own part between its buffers, relative to a byte's time on the innermost link.

It explains the measured bus bandwidth on 2, 4 and 8 chips: at 512 MB, ring passes imply 0.4 to 0.5 on A100, H100 and B200.
Fitted over all sizes it is 0.65 for ring passes and 0.9 for all-to-alls. The tests use separate send and receive buffers; for
an in-place pass it would be closer to 0. For other links the value is an assumption.
"""

PEER_GAP = 0.5
"""Latency added by each further message of an all-to-all, relative to the latency of a step.

Measured: 0.45 to 0.5 on NVLink 3 to 5. For other links the value is an assumption.
"""


def ramp_s(network: Network, latency_s: PerTier, transfer_s: PerTier) -> PerTier:
    """Return the ramp of one step on each tier: its time beyond latency and transfer time, `2 rho sqrt(alpha s / B)`.

    A posynomial: log-log convex in latency, bytes and bandwidth.

    **Arguments:**
    - `network`: supplies rho of each tier;
    - `latency_s`: alpha of the step, s;
    - `transfer_s`: transfer time of the step's bytes, `s / B`, s.

    **Returns:** s.

    **Source:** minimum of `(1 + 1/k) x + (1 + k) alpha` over the number of chunks k; Sanders and Traeff 2006 (recalled). Fitted
    freely to measurements, the factor 2 becomes 2.5 (NVLink 3), 1.8 (NVLink 4), 1.9 (NVLink 5), 1.6 and 2.1 (EFA).
    """
    product = latency_s * transfer_s
    moves = product > 0.0
    return jnp.where(moves, 2.0 * network.ramp * jnp.sqrt(jnp.where(moves, product, 1.0)), 0.0)


def _launch(launch_s: Scalar, group: Scalar) -> Scalar:
    """Return the software latency of one collective: 0 for a group of one, rising linearly to `launch_s` for a group of two."""
    return launch_s * above_zero(several(group))


def _waits_s(network: Network, message_bytes: Scalar, along: Route, steps: PerTier, share: PerTier) -> Scalar:
    """Return latency plus ramp of all steps.

    On each tier `steps` messages follow each other; each carries a fraction `share` of `message_bytes`.
    """
    step_s = share * message_bytes * along.s_per_byte
    return jnp.sum(steps * (along.latency_s + ramp_s(network, along.latency_s, step_s)))


def _nested_waits_s(network: Network, message_bytes: Scalar, along: Route, steps: PerTier, traffic: PerTier | float):
    """Return latency plus ramp of a pass that runs through the tiers in turn.

    On each tier a message is the contribution of one member of that tier, times the traffic factor `traffic`.
    """
    return _waits_s(network, message_bytes, along, steps, traffic * (1.0 / (along.inner * along.members)))


def _busy_s(message_bytes: Scalar, along: Route, traffic: PerTier | float) -> Scalar:
    """Return the bandwidth time of a pass: the transfer time of its bytes on the slowest tier."""
    leaving = (1.0 - 1.0 / along.members) * (1.0 / along.inner)
    crossing = jnp.cumsum(leaving[::-1])[::-1]  # bytes that leave the chip also cross its inner tiers
    return _slowest_s(traffic * crossing * message_bytes * along.s_per_byte)


def _slowest_s(busy_s: PerTier) -> Scalar:
    """Return the transfer time of the slowest tier, since all tiers move bytes at the same time. A kink where two tiers tie."""
    return reduce(hard_maximum, [busy_s[i] for i in range(busy_s.shape[0])])


def _own_part_s(network: Network, message_bytes: Scalar, group: Scalar) -> Scalar:
    """Return the time to copy a chip's own part from its send buffer to its receive buffer: `OWN_PART S / n / B_0`."""
    return OWN_PART * several(group) * (1.0 / group) * message_bytes * seconds_per_byte(network)[0]


def ring_pass_s(
    network: Network,
    message_bytes: Scalar,
    group: Scalar,
    stride: Scalar,
    launch_s: Scalar,
    logarithmic: Scalar | float = 0.0,
) -> Scalar:
    """Return the time of one all-gather or one reduce-scatter of `message_bytes` (the gathered size).

    `sum_i steps_i (alpha_i + ramp_i) + max_i (1/inner_i - 1/n) S / B_i + OWN_PART S / n / B_0`. Rings run inside each tier, and
    all tiers form a pipeline whose slowest tier sets the pace. Data that a chip exchanges with the outside also crosses its
    inner links. The `r` chips of a domain share the domain's `r` outward links.

    **Arguments:**
    - `message_bytes`: gathered size S, B;
    - `group`: chips n of the group;
    - `stride`: distance between neighbors of the group, in chips;
    - `launch_s`: software latency of the collective, s;
    - `logarithmic`: 1 where the software uses passes of `kappa log2 n` steps (recursive halving, PAT), 0 for rings only.

    **Returns:** s.

    **Source:** Thakur, Rabenseifner, Gropp 2005 (ring); hierarchical as in NCCL. Two nodes of H100 or of A100 reach bus
    bandwidths that tiers used one after the other could not reach, even at an efficiency of 1.
    """
    along = route(network, group, stride)
    rings = ring_steps(network, along.members)
    steps = (1.0 - logarithmic) * rings + logarithmic * fastest_steps(network, along.members)
    once = _nested_waits_s(network, message_bytes, along, steps, 1.0) + _busy_s(message_bytes, along, 1.0)
    return once + _own_part_s(network, message_bytes, group) + _launch(launch_s, group)


def ring_passes_s(network: Network, message_bytes: Array, group: Array, stride: Array, stack: Stack) -> Array:
    """Return the times of several ring passes, shape (collective,); all share one traced copy of `ring_pass_s`."""
    launch_s, logarithmic = stack.collective_launch_s, stack.logarithmic_passes
    one = lambda size, n, apart: ring_pass_s(network, size, n, apart, launch_s, logarithmic)
    return jax.vmap(one)(message_bytes, group, stride)


def all_reduce_s(network: Network, message_bytes: Scalar, group: Scalar, stride: Scalar, launch_s: Scalar) -> Scalar:
    """Return the time of one all-reduce: a reduce-scatter and an all-gather, less the traffic that in-network reduction saves.

    `2 [sum_i steps_i (alpha_i + ramp_i) + max_i r_i (1/inner_i - 1/n) S / B_i]`. Both passes scale their traffic by the tier's
    `reduction_factor` r and use the faster algorithm of each tier. No part is copied: it stays where it is reduced. Where
    `flat_ring` applies, steps and messages are those of one ring through all chips, whose messages are 1/n of the buffer.

    **Arguments:** `message_bytes` S, B; `group` n and `stride`, chips; `launch_s`, s. **Returns:** s.

    **Source:** as in `ring_pass_s`; SHARP: Graham et al. 2016.
    """
    along = route(network, group, stride)
    traffic, flat = network.reduction_factor, flat_ring(network, along.members)
    nested = _nested_waits_s(network, message_bytes, along, fastest_steps(network, along.members), traffic)
    around = _waits_s(network, message_bytes, along, flat_ring_steps(network, along.members), traffic * (1.0 / group))
    waits = (1.0 - flat) * nested + flat * around
    return 2.0 * (waits + _busy_s(message_bytes, along, traffic)) + _launch(launch_s, group)


def all_reduces_s(network: Network, message_bytes: Array, group: Array, stride: Array, stack: Stack) -> Array:
    """Return the times of several all-reduces, shape (collective,); all share one traced copy of `all_reduce_s`."""
    one = lambda size, n, apart: all_reduce_s(network, size, n, apart, stack.collective_launch_s)
    return jax.vmap(one)(message_bytes, group, stride)


def all_to_all_s(
    network: Network,
    sent_bytes: Scalar,
    group: Scalar,
    stride: Scalar,
    launch_s: Scalar,
    outer_share: Scalar | float = 1.0,
) -> Scalar:
    """Return the time of an all-to-all in which each chip sends `sent_bytes` in equal parts to the members of its group.

    On tier i a chip sends `n_i - 1` messages of a fraction `inner_i / n` of the bytes each: a total of
    `share_i = (n_i - 1) inner_i / n`. Messages leave without waiting for each other, so a further message adds only `PEER_GAP`
    of a latency: `sum_i [(1 + PEER_GAP (n_i - 2)) alpha_i + (n_i - 1) ramp_i] + max_i share_i S / B_i + OWN_PART S / n / B_0`.
    Tiers on which the group has one member do not count. Parts for the own domain and parts for other domains travel at the
    same time, on separate links. On direct networks bytes take up every link they cross (`links_crossed`).

    **Arguments:**
    - `sent_bytes`: bytes S that a chip sends, its own part included, B;
    - `group`: chips n of the group;
    - `stride`: distance between neighbors of the group, in chips;
    - `launch_s`: software latency of the collective, s;
    - `outer_share`: share of the bytes sent beyond the innermost tier; below 1 where copies for one domain travel only once.

    **Returns:** s.

    **Source:** gap between messages: Culler et al. 1993 (LogP). Tiers at the same time: 8.6 GB on two servers of B300 take 44.5
    ms (NCCL 2.28); half of those bytes would keep 800 Gb/s busy for 43 ms, the rest NVLink for 5 ms. DeepEP's tables, less the
    traffic inside a node, give 43 to 46 GB/s of 50 on NICs while domains forward copies (its first version on 16 ranks: 22).
    """
    along = route(network, group, stride)
    inner, byte_s = along.inner, along.s_per_byte * links_crossed(network, along.members)
    left = jnp.concatenate([jnp.ones_like(inner[:1]), jnp.ones_like(inner[1:]) * outer_share])
    message_s = left * inner * (1.0 / group) * sent_bytes * byte_s
    peers = along.members * (1.0 - 1.0 / along.members)  # not n - 1: interval bounds of a product are tighter
    first = (1.0 - PEER_GAP) * several(along.members)
    alpha_s = along.latency_s
    waits = (first + PEER_GAP * peers) * alpha_s + peers * ramp_s(network, alpha_s, message_s)
    time = jnp.sum(waits) + _slowest_s(peers * message_s)
    return time + _own_part_s(network, sent_bytes, group) + _launch(launch_s, group)


def neighbour_send_s(network: Network, message_bytes: Scalar, group: Scalar, stride: Scalar) -> Scalar:
    """Return the time of one send to the next of `group` members, such as between pipeline stages.

    The slowest pair counts, so the outermost tier in use decides. A tier is in use by the continuous switch
    `clip(n_i - 1, 0, 1)`; a group of one sends nothing. On a direct network, stages are adjacent along an axis, and a pair uses
    the one link between them.

    **Arguments:** `message_bytes`, B; `group` and `stride`, chips. **Returns:** s.
    """
    members = members_per_tier(network, group, stride)
    transfer = message_bytes * _pair_s_per_byte(network, members)
    alpha_s = waiting_latency_s(network, members)
    each = alpha_s + ramp_s(network, alpha_s, transfer) + transfer
    return jnp.sum(_outermost(members) * each)


def far_s_per_byte(network: Network, group: Scalar, stride: Scalar) -> Scalar:
    """Return the time per byte between two chips on the outermost tier that a group uses.

    **Arguments:** `group` and `stride`, chips. **Returns:** s/B.
    """
    members = members_per_tier(network, group, stride)
    return jnp.sum(_outermost(members) * _pair_s_per_byte(network, members))


def _pair_s_per_byte(network: Network, members: PerTier) -> PerTier:
    """Return the time per byte between two neighbors on each tier, s/B; on a direct network they use one link."""
    pair = jnp.full_like(members, 2.0)
    return links_left_out(network, pair) * slowest_link(network, members) * seconds_per_byte(network)


def _outermost(members: PerTier) -> PerTier:
    """Return 1 on the outermost tier in use, 0 elsewhere; a tier is in use by `clip(n_i - 1, 0, 1)`."""
    used = several(members)
    beyond = jnp.cumprod((1.0 - used)[::-1])[::-1]  # 1 where neither this tier nor any outside it is used
    return used * jnp.concatenate([beyond[1:], jnp.ones_like(beyond[:1])])


def beyond_domain(network: Network, groups: Array, strides: Array) -> Array:
    """Return 1 for each group that extends beyond one scale-up domain, 0 for others; linear from one domain to two.

    **Arguments:** `groups`: chips of each group; `strides`: distance between their neighbors, in chips. **Shapes:** (group,).
    """
    members = jax.vmap(lambda group, stride: members_per_tier(network, group, stride))(groups, strides)
    return several(members[:, 1] * members[:, 2])
