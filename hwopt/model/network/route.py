"""Route of a group of chips through the tiers of a network: members, latency, usable bandwidth and steps on each tier.

A group of `n` chips whose neighbors are `stride` chips apart fills the network tier by tier. It has `n_i` members at tier i,
with `n_0 = clip(D_0 / stride, 1, n)` and so on outwards, where D_i is the tier's size.

On each tier an all-reduce uses the faster of two algorithms. All-gathers and reduce-scatters use the second only where the
software has it (`Stack.logarithmic_passes`). Both algorithms move the same bytes, so the choice depends on the members alone,
and times stay log-log convex in bandwidth, latency and message size:
- rings, run through the D dimensions of the tier one after the other: `D (n^(1/D) - 1)` steps; D = 1 behind switches;
- a logarithmic algorithm: `kappa log2 n` steps (trees, recursive halving and doubling, in-switch reduction).

**Source:** Thakur, Rabenseifner, Gropp 2005; Sanders, Speck, Traeff 2009 (double trees); Chan et al. 2007 (torus).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.hardware.network import Network
from hwopt.model.numerics.maximum import above_zero, expected_maximum_sigmas, hard_maximum, pick, several
from hwopt.types import PerTier, Scalar

_LN_2 = float(np.log(2.0))


class Route(NamedTuple):
    """Route of a group: its properties on each tier, shape (tier,) each."""

    members: Array  # subgroups of the tier below that this tier connects
    inner: Array  # chips of one such subgroup
    latency_s: Array  # of one step, including the wait for late neighbors
    s_per_byte: Array  # reciprocal of the members' usable bus bandwidth


def members_per_tier(network: Network, group: Scalar, stride: Scalar) -> PerTier:
    """Return the number of subgroups of the tier below that each tier connects; their product is the group size.

    **Arguments:** `group`: chips of the group; `stride`: distance between neighbors, in chips.

    **Returns:** members of each tier, >= 1, shape (tier,). Kinks where a group exactly fills a tier.
    """
    fits = network.size * (1.0 / stride)
    inside = jnp.where(fits < group, hard_maximum(jnp.ones_like(fits), fits), group)
    reach = jnp.concatenate([inside, jnp.broadcast_to(group, (1,))])
    inner = jnp.concatenate([jnp.ones_like(reach[:1]), reach[:-1]])
    members = reach / inner
    return hard_maximum(members, jnp.ones_like(members))  # >= 1 by construction; helps interval analysis


def seconds_per_byte(network: Network) -> PerTier:
    """Return the reciprocal of each tier's bus bandwidth, s/B, where all links of a chip are in use.

    Callers multiply by this reciprocal instead of dividing: the gradient of a quotient squares the denominator first, which
    overflows float32.
    """
    return 1.0 / (network.bandwidth_bytes_per_s * network.efficiency)


def links_left_out(network: Network, members: PerTier) -> PerTier:
    """Return the slowdown of transfers in a group that covers part of a direct network: `(m / n)^q`; 1 behind switches.

    Two neighbors share one link of a chip; all m chips of the tier use all links. In between, a power law applies, never below
    the bandwidth of one link. 16 of the 4,096 chips of a 3D torus use 0.27 of their links (a ring along one of three axes:
    0.33); 256 chips use 0.52 (0.67). The exponent q belongs to the tier's size in the catalog. A group of one uses no link. The
    outermost tier is always switched. A kink where a group fills the tier: all links, zero gradient.
    """
    capacity = jnp.concatenate([network.size[:1], network.size[1:] / network.size[:-1]])
    inside = members[:-1]
    # Compare sizes: rounding of the ratio would decide the side of the kink.
    slower = (hard_maximum(inside, capacity) * (1.0 / inside)) ** network.sharing
    slower = pick(slower > network.links, network.links, slower)
    left_out = 1.0 + several(inside) * above_zero(slower - 1.0)
    return jnp.concatenate([left_out, jnp.ones_like(members[-1:])])


def waiting_latency_s(network: Network, members: PerTier) -> PerTier:
    """Return the latency of a step in which every member waits for its neighbor: `alpha + tau (2 - 1/n)`.

    With exponential latency tails of mean tau a pair waits for the later of two, 1.5 tau. Long rings take 2 tau a step, the
    pace of last-passage percolation. The formula matches both limits and is within 12 % of simulation between them.

    **Source:** Johansson, Shape fluctuations and random matrices, 2000 (the limit); the interpolation is our own.
    """
    return network.latency_s + network.latency_tail_s * (2.0 - 1.0 / members)


def slowest_link(network: Network, members: PerTier) -> PerTier:
    """Return the slowdown by straggling links: the slowest of n normally distributed links, `1 + spread E[max of n]`."""
    return 1.0 + network.bandwidth_spread * expected_maximum_sigmas(members)


def route(network: Network, group: Scalar, stride: Scalar) -> Route:
    """Return the route of a group of chips: members, latency and usable bandwidth on each tier."""
    members = members_per_tier(network, group, stride)
    inner = jnp.concatenate([jnp.ones_like(members[:1]), jnp.cumprod(members)[:-1]])
    slower = links_left_out(network, members) * slowest_link(network, members)
    return Route(members, inner, waiting_latency_s(network, members), seconds_per_byte(network) * slower)


def ring_steps(network: Network, members: PerTier) -> PerTier:
    """Return the steps of rings along each dimension of a tier: `D (n^(1/D) - 1)`; n - 1 on a single ring.

    Up to 2^D members form pairs along some dimensions and have no neighbor along the others: log2 n steps.
    """
    along = network.dimensions * (members ** (1.0 / network.dimensions) - 1.0)
    levels = _levels(members)
    pairs = pick(levels < network.dimensions, levels, network.dimensions)
    return pick(network.dimensions > 1.0, hard_maximum(along, pairs), along)


def fastest_steps(network: Network, members: PerTier) -> PerTier:
    """Return the steps of the faster algorithm: rings, or `kappa log2 n`. A kink where both take the same time."""
    ring, tree = ring_steps(network, members), network.tree_step * _levels(members)
    return pick(tree < ring, tree, ring)


def flat_ring(network: Network, members: PerTier) -> Scalar:
    """Return 1 where an all-reduce is one ring through all chips: over more than two domains of several servers each.

    It applies where `Network.flat_rings` is 1. Libraries have no tree inside a domain; two domains exchange halves of the data
    that switches reduced. Between two and three domains both forms are mixed linearly: `clip(domains - 2, 0, 1)`.

    **Source:** 0.5 to 17 GB over 1, 2 and 20 racks of GB200, NCCL 2.26 (coreweave/nccl-tests). 20 racks take at least 4.6 ms at
    any size and reach half the bandwidth of 2 racks. Nothing is measured between 2 and 20 racks.
    """
    domains = members[1] * members[2]
    return network.flat_rings * above_zero(several(hard_maximum(domains - 1.0, jnp.ones_like(domains))))


def flat_ring_steps(network: Network, members: PerTier) -> PerTier:
    """Return the steps on each tier of one ring through all chips; the total is n - 1.

    Each tier contributes as many rings as the group has units of that tier. Example: 1,440 chips in 20 racks take 1,420 steps
    inside racks and 19 between racks. A pass through one tier after the other would take 71 and 19.
    """
    groups = jnp.concatenate([jnp.cumprod(members[::-1])[::-1][1:], jnp.ones_like(members[-1:])])
    return ring_steps(network, members) * groups


def _levels(members: PerTier) -> PerTier:
    """Return the levels of a binary tree, log2 n; up to two members n - 1, so that trees and rings have equal slope there."""
    return pick(members < 2.0, members - 1.0, jnp.log(members) * (1.0 / _LN_2))


def links_crossed(network: Network, members: PerTier) -> PerTier:
    """Return the links that a byte of an all-to-all crosses, over its share of a chip's links: `max(1, c n^(1/D))`.

    It is 1 behind switches. On a torus of n chips with wraparound the mean distance is `D n^(1/D) / 4` links: the bisection
    bandwidth is the bottleneck.

    **Source:** Dally and Towles 2004; Google's scaling book gives the same, `S n_max / (8 B_link)`.
    """
    far = network.crossings * members[:-1] ** (1.0 / network.dimensions[:-1])
    return jnp.concatenate([pick(far > 1.0, far, jnp.ones_like(far)), jnp.ones_like(members[-1:])])
