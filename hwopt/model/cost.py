"""Money: capital cost of the cluster, and the cost of owning it while a run lasts."""

from __future__ import annotations

import jax.numpy as jnp

from hwopt.hardware.cluster import Cluster
from hwopt.model.power import it_peak_w
from hwopt.types import Scalar


def chip_usd(cluster: Cluster) -> Scalar:
    """Price of one accelerator: `base f/f_0 ... + HBM bytes x $/B + HBM bandwidth x $/(B/s)`.

    The clock is free of charge here; it pays in power.
    """
    chip, prices = cluster.chip, cluster.prices
    memory = chip.hbm_capacity_bytes * prices.hbm_usd_per_byte
    pins = chip.hbm_bandwidth_bytes_per_s * prices.hbm_usd_per_byte_per_s
    return prices.chip_base_usd + memory + pins


def network_usd(cluster: Cluster) -> Scalar:
    """Price of links, switches and NICs a chip: `sum_i B_i $_i`, and cabling that grows with the scale-up domain."""
    network, prices = cluster.network, cluster.prices
    links = jnp.sum(network.bandwidth_bytes_per_s * prices.network_usd_per_byte_per_s)
    return links + prices.domain_usd_per_chip * network.size[0] / prices.reference_domain


def it_usd(cluster: Cluster) -> Scalar:
    """Price of the IT equipment, spares included."""
    each = chip_usd(cluster) + network_usd(cluster) + cluster.prices.host_usd
    return cluster.chips * (1.0 + cluster.prices.spares_fraction) * each


def construction_usd(cluster: Cluster) -> Scalar:
    """Price of the building, by the IT power it must feed and cool."""
    return cluster.chips * it_peak_w(cluster) * cluster.facility.construction_usd_per_w


def capex_usd(cluster: Cluster) -> Scalar:
    """Capital cost: IT equipment and construction."""
    return it_usd(cluster) + construction_usd(cluster)


def ownership_usd_per_s(cluster: Cluster, average_power_w: Scalar) -> Scalar:
    """Cost of one second of the cluster: depreciation, maintenance, electricity.

    `IT / life + building / life + IT maintenance + P_average x price`.
    """
    prices, facility = cluster.prices, cluster.facility
    hardware = it_usd(cluster) * (1.0 / prices.server_lifetime_s + prices.maintenance_per_s)
    building = construction_usd(cluster) / facility.construction_lifetime_s
    return hardware + building + average_power_w * facility.electricity_usd_per_j
