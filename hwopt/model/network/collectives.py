"""Time of collectives on nested tiers: alpha-beta with pipelined steps, hierarchical, continuous in the group's size.

One step of `s` bytes over a link of latency alpha and bandwidth B takes `alpha + 2 rho sqrt(alpha s / B) + s / B`. At
rho = 1 that is `(sqrt(alpha) + sqrt(s / B))^2`, a message cut into the number of chunks that makes it fastest, which is
what switching from low-latency to bulk protocols comes close to; at rho = 0 a message goes as a whole.
`hwopt.calibration.collectives` fits the constants of links and scores the formulas on measured collectives.

What a group of chips finds on each tier, and in how many steps it passes it, is a `route`. A group of one costs nothing. All
groups of one kind communicate at once: each chip has its own links, and those beyond count by each tier's bandwidth a chip.
Each formula below has the launch of its software, `launch_s`, besides.
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
"""Time to copy a byte of the part that a chip keeps for itself, over that of a byte on the innermost link.

It explains bus bandwidth on 2, 4 and 8 chips: at 512 MB, ring passes show 0.4 to 0.5 on A100, H100 and B200. Fitted over
all sizes it is 0.65 in ring passes and 0.9 in all-to-alls. Buffers are apart in the tests; where a pass runs in place it
would be nearer to 0. An assumption on other links.
"""

PEER_GAP = 0.5
"""What a further message of an all-to-all adds to its latency, over that of a step. Measured: 0.45 to
0.5 on NVLink 3 to 5; an assumption on other links."""


def ramp_s(network: Network, latency_s: PerTier, transfer_s: PerTier) -> PerTier:
    """What one step of each tier takes above its latency and its bytes' time: `2 rho sqrt(alpha s / B)`.

    A posynomial: log-log convex in latency, bytes and bandwidth.

    **Arguments:** `latency_s` and `transfer_s`, `s / B`, of the step, s. **Returns:** s.

    **Source:** least of `(1 + 1/k) x + (1 + k) alpha` over k chunks; Sanders and Traeff 2006 (recalled). Fitted freely to
    measurements, the 2 comes out at 2.5 (NVLink 3), 1.8 (NVLink 4), 1.9 (NVLink 5), 1.6 and 2.1 (EFA).
    """
    product = latency_s * transfer_s
    moves = product > 0.0
    return jnp.where(moves, 2.0 * network.ramp * jnp.sqrt(jnp.where(moves, product, 1.0)), 0.0)


def _launch(launch_s: Scalar, group: Scalar) -> Scalar:
    """Software latency of one collective; none for a group of one. Continuous: grows in over a group of 1 to 2."""
    return launch_s * above_zero(several(group))


def _waits_s(network: Network, message_bytes: Scalar, along: Route, steps: PerTier, share: PerTier) -> Scalar:
    """Latency and ramp of all steps: `steps` messages follow each other on each tier, each a `share` of the whole."""
    step_s = share * message_bytes * along.s_per_byte
    return jnp.sum(steps * (along.latency_s + ramp_s(network, along.latency_s, step_s)))


def _nested_waits_s(network: Network, message_bytes: Scalar, along: Route, steps: PerTier, traffic: PerTier | float):
    """Waits of a pass through one tier after the other, whose messages are what one of a tier's members contributes."""
    return _waits_s(network, message_bytes, along, steps, traffic * (1.0 / (along.inner * along.members)))


def _busy_s(message_bytes: Scalar, along: Route, traffic: PerTier | float) -> Scalar:
    """Time that a pass's bytes take."""
    leaving = (1.0 - 1.0 / along.members) * (1.0 / along.inner)
    crossing = jnp.cumsum(leaving[::-1])[::-1]  # this tier or any outside it
    return _slowest_s(traffic * crossing * message_bytes * along.s_per_byte)


def _slowest_s(busy_s: PerTier) -> Scalar:
    """Tiers move bytes at the same time: the one that is busy longest sets the pace. A kink where two take as long."""
    return reduce(hard_maximum, [busy_s[i] for i in range(busy_s.shape[0])])


def _own_part_s(network: Network, message_bytes: Scalar, group: Scalar) -> Scalar:
    """Copy of the part that a chip keeps, from the buffer sent to the one received: `OWN_PART S / n / B_0`."""
    return OWN_PART * several(group) * (1.0 / group) * message_bytes * seconds_per_byte(network)[0]


def ring_pass_s(
    network: Network,
    message_bytes: Scalar,
    group: Scalar,
    stride: Scalar,
    launch_s: Scalar,
    logarithmic: Scalar | float = 0.0,
) -> Scalar:
    """An all-gather or a reduce-scatter of `message_bytes` (the gathered size).

    `sum_i steps_i (alpha_i + ramp_i) + max_i (1/inner_i - 1/n) S / B_i + OWN_PART S / n / B_0`: rings inside each tier,
    all tiers at once in a pipeline whose slowest tier sets the pace. What a chip exchanges with the outside passes its
    inner links too, and `r` chips of a domain share its `r` links outwards.

    **Arguments:** bytes; chips; chips; s; `logarithmic` 1 where the software has passes of `kappa log2 n` steps (recursive
    halving, PAT), 0 for rings. **Returns:** s.

    **Source:** Thakur, Rabenseifner, Gropp 2005 (ring); hierarchical as in NCCL. Two nodes of H100 and of A100 reach
    bus bandwidths that tiers one after the other would not, at any efficiency up to 1.
    """
    along = route(network, group, stride)
    rings = ring_steps(network, along.members)
    steps = (1.0 - logarithmic) * rings + logarithmic * fastest_steps(network, along.members)
    once = _nested_waits_s(network, message_bytes, along, steps, 1.0) + _busy_s(message_bytes, along, 1.0)
    return once + _own_part_s(network, message_bytes, group) + _launch(launch_s, group)


def ring_passes_s(network: Network, message_bytes: Array, group: Array, stride: Array, stack: Stack) -> Array:
    """Several ring passes at once, shape (collective,) each: one traced copy serves them all."""
    launch_s, logarithmic = stack.collective_launch_s, stack.logarithmic_passes
    one = lambda size, n, apart: ring_pass_s(network, size, n, apart, launch_s, logarithmic)
    return jax.vmap(one)(message_bytes, group, stride)


def all_reduce_s(network: Network, message_bytes: Scalar, group: Scalar, stride: Scalar, launch_s: Scalar) -> Scalar:
    """An all-reduce: a reduce-scatter and an all-gather in one, less what switches reduce on the way.

    `2 [sum_i steps_i (alpha_i + ramp_i) + max_i r_i (1/inner_i - 1/n) S / B_i]`: two passes whose traffic counts by the tier's
    `reduction_factor` r, by the faster algorithm of each tier; no part is copied, it stays where it is reduced. Over more
    than two domains of several servers each it is one ring through all chips, whose steps carry an n-th of the message
    (`flat_ring`).

    **Arguments:** bytes; chips; chips; s. **Returns:** s. **Source:** as `ring_pass_s`; SHARP: Graham et al. 2016.
    """
    along = route(network, group, stride)
    traffic, flat = network.reduction_factor, flat_ring(network, along.members)
    nested = _nested_waits_s(network, message_bytes, along, fastest_steps(network, along.members), traffic)
    around = _waits_s(network, message_bytes, along, flat_ring_steps(network, along.members), traffic * (1.0 / group))
    waits = (1.0 - flat) * nested + flat * around
    return 2.0 * (waits + _busy_s(message_bytes, along, traffic)) + _launch(launch_s, group)


def all_reduces_s(network: Network, message_bytes: Array, group: Array, stride: Array, stack: Stack) -> Array:
    """Several all-reduces at once, shape (collective,) each."""
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
    """An all-to-all in which each chip sends `sent_bytes` in equal parts to the group.

    On tier i a chip has `n_i - 1` messages of `inner_i / n` of the bytes to send, `share_i = (n_i - 1) inner_i / n` in all.
    They leave without waiting for each other, so a further one adds `PEER_GAP` of a latency, not all of it:
    `sum_i [(1 + PEER_GAP (n_i - 2)) alpha_i + (n_i - 1) ramp_i] + max_i share_i S / B_i + OWN_PART S / n / B_0`, without
    tiers on which the group has one member: parts for the domain and parts for beyond it are under way at once, on links of
    their own. On direct networks bytes take up every link they cross (`links_crossed`).

    **Arguments:** bytes a chip sends (its own part included); chips; chips; s; `outer_share` of them that is left to send
    beyond the innermost tier, where copies for one domain travel once. **Returns:** s.

    **Source:** gap between messages: Culler et al. 1993 (LogP). Tiers at once: 8.6 GB on two servers of B300 take 44.5 ms
    (NCCL 2.28), of which half would keep 800 Gb/s busy for 43 and the rest NVLink for 5; DeepEP's tables, less
    what stays in a node, make 43 to 46 GB/s of 50 on NICs while domains pass copies on (its first version on 16 ranks: 22).
    """
    along = route(network, group, stride)
    inner, byte_s = along.inner, along.s_per_byte * links_crossed(network, along.members)
    left = jnp.concatenate([jnp.ones_like(inner[:1]), jnp.ones_like(inner[1:]) * outer_share])
    message_s = left * inner * (1.0 / group) * sent_bytes * byte_s
    peers = along.members * (1.0 - 1.0 / along.members)  # not n - 1: bounds over ranges keep a product together
    first = (1.0 - PEER_GAP) * several(along.members)
    alpha_s = along.latency_s
    waits = (first + PEER_GAP * peers) * alpha_s + peers * ramp_s(network, alpha_s, message_s)
    time = jnp.sum(waits) + _slowest_s(peers * message_s)
    return time + _own_part_s(network, sent_bytes, group) + _launch(launch_s, group)


def neighbour_send_s(network: Network, message_bytes: Scalar, group: Scalar, stride: Scalar) -> Scalar:
    """One send to the next of `group` members; the slowest pair counts, so the outermost tier in use decides.

    A tier is in use by `clip(n_i - 1, 0, 1)`; a group of one sends nothing. On a direct network stages lie next to each
    other along an axis, and a pair uses the one link between them.

    **Arguments:** bytes; chips; chips. **Returns:** s.
    """
    members = members_per_tier(network, group, stride)
    transfer = message_bytes * _pair_s_per_byte(network, members)
    alpha_s = waiting_latency_s(network, members)
    each = alpha_s + ramp_s(network, alpha_s, transfer) + transfer
    return jnp.sum(_outermost(members) * each)


def far_s_per_byte(network: Network, group: Scalar, stride: Scalar) -> Scalar:
    """Time of a byte between two chips on the outermost tier that a group uses. **Arguments:** chips. **Returns:** s/B."""
    members = members_per_tier(network, group, stride)
    return jnp.sum(_outermost(members) * _pair_s_per_byte(network, members))


def _pair_s_per_byte(network: Network, members: PerTier) -> PerTier:
    """On a direct network a pair of neighbours uses the one link between them."""
    pair = jnp.full_like(members, 2.0)
    return links_left_out(network, pair) * slowest_link(network, members) * seconds_per_byte(network)


def _outermost(members: PerTier) -> PerTier:
    """1 on the outermost tier in use, by `clip(n_i - 1, 0, 1)`, 0 elsewhere."""
    used = several(members)
    beyond = jnp.cumprod((1.0 - used)[::-1])[::-1]  # no use of this tier or any outside it
    return used * jnp.concatenate([beyond[1:], jnp.ones_like(beyond[:1])])
