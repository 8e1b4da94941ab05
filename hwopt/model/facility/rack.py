"""Racks: power, weight and floor of what stands in them, and what their distance does to the links."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from hwopt.hardware.cluster import Cluster
from hwopt.hardware.network import Network
from hwopt.model.numerics.maximum import above_zero, several
from hwopt.types import Scalar

SECONDS_PER_M = 4.9e-9
"""Light in fibre and on cable, group index 1.47 (ITU-T G.652); a signal's own speed is not a design choice."""

_INNERMOST = np.array([1.0, 0.0, 0.0], np.float32)


def racks(cluster: Cluster) -> Scalar:
    """Racks of the cluster: `N / n`."""
    return cluster.chips / cluster.rack.chips


def rack_limit_w(cluster: Cluster) -> Scalar:
    """IT power one rack may draw: the lesser of its cooling's limit and its busbar's."""
    cooled, fed = cluster.cooling.rack_limit_w, cluster.rack.busbar_limit_w
    return jnp.where(fed < cooled, fed, cooled)


def floor_area_m2(cluster: Cluster) -> Scalar:
    """Floor under the racks, aisles included."""
    return racks(cluster) * cluster.rack.floor_area_m2


def optical_share(cluster: Cluster) -> Scalar:
    """Share of the scale-up links that leave the rack and so are optical: `max(0, 1 - n / D)`.

    A domain of D chips on n to a rack sends `1 - n/D` of its traffic to other racks. **Not log-log convex** in n and D (a
    difference), and a kink at D = n, where the domain begins to leave the rack.
    """
    return above_zero(1.0 - cluster.rack.chips / cluster.network.size[0])


LEVELS_MORE = 2.0
"""Switches and cables more that a byte passes through two levels instead of one: up, across, down."""


def second_level_share(cluster: Cluster) -> Scalar:
    """Share of a domain's traffic that leaves its first level of switches: `max(0, 1 - L / D)`.

    Such a byte passes three switches instead of one, which two levels of full bandwidth hold: price and energy grow with it.
    """
    return above_zero(1.0 - cluster.network.level_chips / cluster.network.size[0])


def domain_levels(cluster: Cluster) -> Scalar:
    """Switches that a byte of the domain passes, on average: 1 within a level, 3 through two."""
    return 1.0 + LEVELS_MORE * second_level_share(cluster)


def cabled_bytes_per_s(cluster: Cluster) -> Scalar:
    """Scale-up bandwidth that a rack's copper carries: `n B` less what leaves on optics, none where a domain is one chip."""
    copper = above_zero(several(cluster.network.size[0])) * (1.0 - optical_share(cluster))
    return copper * cluster.rack.chips * cluster.network.bandwidth_bytes_per_s[0]


def rack_weight_kg(cluster: Cluster) -> Scalar:
    """Weight of a loaded rack: `w_0 + n w` and its cables."""
    cables = cabled_bytes_per_s(cluster) * cluster.rack.cable_weight_kg_per_byte_per_s
    return cluster.rack.empty_weight_kg + cluster.rack.chips * cluster.rack.chip_weight_kg + cables


def spread_out(cluster: Cluster) -> Network:
    """The network with the time light takes across the floor its tiers cover, and a second level of switches: `latency + l / v`.

    A tier of s chips covers `s / n` racks of area a, so its links are `l = sqrt(a s / n)` long: denser racks, shorter
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
"""Cross-section of what a rack without scale-up cables has of them: keeps its margin finite."""


def cables_margin(cluster: Cluster) -> Scalar:
    """Logarithm of the copper that a rack has room for over what its scale-up links take.

    Cross-sections at the cut between chips and switches that all cables cross: a bundle of thickness d bends at no less than a
    multiple of d, so the depth of a rack limits them.
    """
    taken_m2 = cabled_bytes_per_s(cluster) * cluster.rack.cable_area_m2_per_byte_per_s
    return jnp.log(cluster.rack.cable_limit_m2 / (taken_m2 + _NO_CABLE_M2))
