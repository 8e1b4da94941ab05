"""The way of a group of chips through the tiers of a network: members, latency, usable bandwidth and steps on each.

A group of `n` chips whose neighbours lie `stride` chips apart fills tier by tier: `n_i` members at tier i, with
`n_0 = clip(D_0 / stride, 1, n)` and so on outwards, where D_i is the tier's size.

On each tier an all-reduce takes the faster of two algorithms, all-gathers and reduce-scatters only where the software has the
second (`Stack.logarithmic_passes`). Both move the same bytes, so which one it is depends on the members alone, and times stay
log-log convex in bandwidth, latency and message: rings run through the D dimensions of the tier one after the other
(`D (n^(1/D) - 1)` steps; D = 1 behind switches), or a logarithmic one (`kappa log2 n` steps: trees, recursive halving and
doubling, reduction in switches).

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
    """What a group finds on each tier, shape (tier,) each."""

    members: Array  # sub-groups of the tier below that the tier joins
    inner: Array  # chips of the group below the tier
    latency_s: Array  # of a step, the wait for late neighbours included
    s_per_byte: Array  # reciprocal of the bus bandwidth that the members can use


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
    """Reciprocal of each tier's bus bandwidth, s/B, where all of a chip's links are in use.

    A reciprocal and a product, not a quotient: the gradient of a quotient squares the denominator first, which leaves the
    range of float32.
    """
    return 1.0 / (network.bandwidth_bytes_per_s * network.efficiency)


def links_left_out(network: Network, members: PerTier) -> PerTier:
    """How much longer bytes take where a group is but a part of a direct network: `(m / n)^q`, 1 behind switches.

    Two neighbours share one of a chip's links, all m chips of the tier use all of them; in between, a power, never less
    than one link: 16 of 4,096 chips of a 3D torus use 0.27 of their links (a ring along one of three axes would use 0.33),
    256 use 0.52 (0.67). The power is that of the tier's size in the catalogue. A group of one uses no link. The
    outermost tier is switched. A kink where a group fills the tier: all links, no gradient.
    """
    capacity = jnp.concatenate([network.size[:1], network.size[1:] / network.size[:-1]])
    inside = members[:-1]
    # Sizes are compared, not the rounded ratio with 1, which would choose the side of the kink.
    slower = (hard_maximum(inside, capacity) * (1.0 / inside)) ** network.sharing
    slower = pick(slower > network.links, network.links, slower)  # never less than one link
    left_out = 1.0 + several(inside) * above_zero(slower - 1.0)
    return jnp.concatenate([left_out, jnp.ones_like(members[-1:])])


def waiting_latency_s(network: Network, members: PerTier) -> PerTier:
    """Latency of a step where every member waits for its neighbour: `alpha + tau (2 - 1/n)`.

    With exponential tails of mean tau a pair waits for the later of two, 1.5 tau; long rings take 2 tau a step, the pace
    of last-passage percolation. The term holds both ends and is within 12 % of simulation between them.

    **Source:** Johansson, Shape fluctuations and random matrices, 2000 (the limit); the form between is our own.
    """
    return network.latency_s + network.latency_tail_s * (2.0 - 1.0 / members)


def slowest_link(network: Network, members: PerTier) -> PerTier:
    """Time over that of mean links: the slowest of n sets the pace, `1 + spread E[max of n]`. Normal spread."""
    return 1.0 + network.bandwidth_spread * expected_maximum_sigmas(members)


def route(network: Network, group: Scalar, stride: Scalar) -> Route:
    """What a group of chips finds on each tier of the network."""
    members = members_per_tier(network, group, stride)
    inner = jnp.concatenate([jnp.ones_like(members[:1]), jnp.cumprod(members)[:-1]])
    slower = links_left_out(network, members) * slowest_link(network, members)
    return Route(members, inner, waiting_latency_s(network, members), seconds_per_byte(network) * slower)


def ring_steps(network: Network, members: PerTier) -> PerTier:
    """Steps of rings along each dimension of a tier: `D (n^(1/D) - 1)`; n - 1 on one ring.

    Up to 2^D members have pairs along some dimensions and nobody along the others: log2 n steps.
    """
    along = network.dimensions * (members ** (1.0 / network.dimensions) - 1.0)
    levels = _levels(members)
    pairs = pick(levels < network.dimensions, levels, network.dimensions)
    return pick(network.dimensions > 1.0, hard_maximum(along, pairs), along)


def fastest_steps(network: Network, members: PerTier) -> PerTier:
    """Steps of the faster algorithm: rings, or `kappa log2 n`. A kink where they take as long."""
    ring, tree = ring_steps(network, members), network.tree_step * _levels(members)
    return pick(tree < ring, tree, ring)


def flat_ring(network: Network, members: PerTier) -> Scalar:
    """Whether an all-reduce is one ring through all chips: 1 over more than two domains of several servers each.

    Libraries have no tree inside a domain; two domains exchange halves of what switches reduced. Between two and three domains
    the two are mixed in proportion: `clip(domains - 2, 0, 1)`.

    **Source:** 0.5 to 17 GB over 1, 2 and 20 racks of GB200, NCCL 2.26 (coreweave/nccl-tests): on 20 racks 4.6 ms and more
    whatever the size, and half the bandwidth of 2. Between 2 and 20 nothing is measured.
    """
    domains = members[1] * members[2]
    return network.flat_rings * above_zero(several(hard_maximum(domains - 1.0, jnp.ones_like(domains))))


def flat_ring_steps(network: Network, members: PerTier) -> PerTier:
    """Steps on each tier of one ring through all chips: as many rings of the tier as there are groups of it, n - 1 in all.

    1,440 chips in 20 racks: 1,420 steps inside racks and 19 between them, where a pass of one tier after the other
    takes 71 and 19.
    """
    groups = jnp.concatenate([jnp.cumprod(members[::-1])[::-1][1:], jnp.ones_like(members[-1:])])
    return ring_steps(network, members) * groups


def _levels(members: PerTier) -> PerTier:
    """Levels of a binary tree: log2 n; up to two members n - 1, as rings, so that algorithms part with one slope."""
    return pick(members < 2.0, members - 1.0, jnp.log(members) * (1.0 / _LN_2))


def links_crossed(network: Network, members: PerTier) -> PerTier:
    """Links that a byte of an all-to-all crosses over its share of a chip's: `max(1, c n^(1/D))`, 1 behind switches.

    On a torus of n chips with wraparound the mean distance is `D n^(1/D) / 4` links: the cut through the middle decides.

    **Source:** Dally and Towles 2004; Google's scaling book gives `S n_max / (8 B_link)`, the same.
    """
    far = network.crossings * members[:-1] ** (1.0 / network.dimensions[:-1])
    return jnp.concatenate([pick(far > 1.0, far, jnp.ones_like(far)), jnp.ones_like(members[-1:])])
