"""Money: capital cost of the cluster, and the cost of owning it while a run lasts."""

from __future__ import annotations

import jax.numpy as jnp

from hwopt.hardware.cluster import Cluster
from hwopt.model.power import it_peak_w
from hwopt.types import Scalar


def chip_usd(cluster: Cluster) -> Scalar:
    """Price of one accelerator: `base + HBM bytes x $/B + HBM bandwidth x $/(B/s)`. The clock pays in power."""
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


def ownership_parts(cluster: Cluster, average_power_w: Scalar) -> dict[str, Scalar]:
    """Cost of one second of the cluster by cause: depreciation of what was bought, upkeep, electricity.

    `price / life` for equipment and building, a share of the equipment's price for upkeep, `P_average x price`.

    **Arguments:** `average_power_w` at the meter. **Returns:** USD/s by name.
    """
    prices, facility = cluster.prices, cluster.facility
    each = cluster.chips * (1.0 + prices.spares_fraction) / prices.server_lifetime_s
    return {
        "chips": each * chip_usd(cluster),
        "network": each * network_usd(cluster),
        "hosts": each * prices.host_usd,
        "upkeep": it_usd(cluster) * prices.maintenance_per_s,
        "building": construction_usd(cluster) / facility.construction_lifetime_s,
        "electricity": average_power_w * facility.electricity_usd_per_j,
    }


def ownership_usd_per_s(cluster: Cluster, average_power_w: Scalar) -> Scalar:
    """Cost of one second of the cluster: the sum of `ownership_parts`."""
    return sum(ownership_parts(cluster, average_power_w).values(), start=jnp.zeros(()))
