"""Racks: power, weight and floor area, and the effect of their spacing on link latency and optics."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from hwopt.hardware.cluster import Cluster
from hwopt.hardware.network import Network
from hwopt.model.numerics.maximum import above_zero, several
from hwopt.types import Scalar

SECONDS_PER_M = 4.9e-9
"""Propagation time of signals in fiber and on cable, s/m; group index 1.47 (ITU-T G.652). Not a design choice."""

_INNERMOST = np.array([1.0, 0.0, 0.0], np.float32)


def racks(cluster: Cluster) -> Scalar:
    """Return the racks of the cluster: `N / n`."""
    return cluster.chips / cluster.rack.chips


def built_chips(cluster: Cluster) -> Scalar:
    """Return the chips in a rack, used or not: `s` as it is sold, or n where jobs use all."""
    sold = cluster.rack.sold_chips
    return jnp.where(sold > 0.0, sold, cluster.rack.chips)


def chips_in_racks(cluster: Cluster) -> Scalar:
    """Return the chips of all racks, with those that a job leaves idle: `N s / n`; N where jobs use all."""
    sold = cluster.rack.sold_chips
    return cluster.chips * jnp.where(sold > 0.0, sold / cluster.rack.chips, 1.0)


def rack_limit_w(cluster: Cluster) -> Scalar:
    """Return the IT power that one rack may draw, W: the smaller of its cooling limit and its busbar limit."""
    cooled, fed = cluster.cooling.rack_limit_w, cluster.rack.busbar_limit_w
    return jnp.where(fed < cooled, fed, cooled)


def floor_area_m2(cluster: Cluster) -> Scalar:
    """Return the floor area under the racks, aisles included, m2."""
    return racks(cluster) * cluster.rack.floor_area_m2


def optical_share(cluster: Cluster) -> Scalar:
    """Return the share of scale-up links that leave the rack and are therefore optical: `max(0, 1 - n / D)`.

    A domain of D chips with n chips per rack sends `1 - n/D` of its traffic to other racks. **Not log-log convex** in n and D
    (a difference). There is a kink at D = n, where the domain begins to exceed the rack.
    """
    return above_zero(1.0 - cluster.rack.chips / cluster.network.size[0])


LEVELS_MORE = 2.0
"""Additional switches that a byte passes through two switch levels instead of one: up, across, down."""


def second_level_share(cluster: Cluster) -> Scalar:
    """Return the share of a domain's traffic that leaves its first level of switches: `max(0, 1 - L / D)`.

    Such a byte passes three switches instead of one. Two levels of full bandwidth provide them, and price and energy grow with
    the share.
    """
    return above_zero(1.0 - cluster.network.level_chips / cluster.network.size[0])


def domain_levels(cluster: Cluster) -> Scalar:
    """Return the mean number of switches that a byte of the domain passes: 1 within a level, 3 through two."""
    return 1.0 + LEVELS_MORE * second_level_share(cluster)


def cabled_bytes_per_s(cluster: Cluster) -> Scalar:
    """Return the scale-up bandwidth on a rack's copper cables, B/s: `s B` less the optical share; 0 for domains of one chip."""
    copper = above_zero(several(cluster.network.size[0])) * (1.0 - optical_share(cluster))
    return copper * built_chips(cluster) * cluster.network.bandwidth_bytes_per_s[0]


def rack_weight_kg(cluster: Cluster) -> Scalar:
    """Return the weight of a loaded rack and its cables, kg: `w_0 + s w + cables`, of all s chips in it."""
    cables = cabled_bytes_per_s(cluster) * cluster.rack.cable_weight_kg_per_byte_per_s
    return cluster.rack.empty_weight_kg + built_chips(cluster) * cluster.rack.chip_weight_kg + cables


def spread_out(cluster: Cluster) -> Network:
    """Return the network with latencies that include propagation, `latency + l / v`, and a second level of domain switches.

    A tier of s chips covers `s / n` racks of area a, so its links are `l = sqrt(a s / n)` long: denser racks have shorter
    links.
    """
    network = cluster.network
    inner = jnp.where(network.size < cluster.chips, network.size, cluster.chips)
    chips = jnp.concatenate([inner, jnp.reshape(cluster.chips, (1,))])
    switches_s = network.level_latency_s * second_level_share(cluster)
    length_m = jnp.sqrt(cluster.rack.floor_area_m2 * chips / cluster.rack.chips)
    latency = network.latency_s + SECONDS_PER_M * length_m
    return eqx.tree_at(lambda n: n.latency_s, network, latency + _INNERMOST * switches_s)


_NO_CABLE_M2 = 1e-9
"""Cable cross-section added to avoid an infinite margin for racks without scale-up cables."""


def cables_margin(cluster: Cluster) -> Scalar:
    """Return the log of a rack's room for copper cables over the cross-section of its scale-up links.

    Both are cross-sections at the cut between chips and switches that all cables cross. A bundle of thickness d has a minimum
    bend radius that is a multiple of d, so the depth of a rack limits them.
    """
    taken_m2 = cabled_bytes_per_s(cluster) * cluster.rack.cable_area_m2_per_byte_per_s
    return jnp.log(cluster.rack.cable_limit_m2 / (taken_m2 + _NO_CABLE_M2))
