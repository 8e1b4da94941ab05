"""Money: capital cost of the cluster, and the cost of it while a run lasts, owned or rented."""

from __future__ import annotations

import jax.numpy as jnp

from hwopt.hardware.cluster import Cluster
from hwopt.model.rack import optical_share, racks
from hwopt.types import Scalar


def chip_usd(cluster: Cluster) -> Scalar:
    """Price of one accelerator: `base + HBM bytes x $/B + HBM bandwidth x $/(B/s)`. The clock pays in power."""
    chip, prices = cluster.chip, cluster.prices
    memory = chip.hbm_capacity_bytes * prices.hbm_usd_per_byte
    pins = chip.hbm_bandwidth_bytes_per_s * prices.hbm_usd_per_byte_per_s
    return prices.chip_base_usd + memory + pins


def network_usd(cluster: Cluster) -> Scalar:
    """Price of links, switches and NICs a chip: `sum_i B_i $_i`, cabling that grows with the domain, optics beyond racks."""
    network, prices = cluster.network, cluster.prices
    links = jnp.sum(network.bandwidth_bytes_per_s * prices.network_usd_per_byte_per_s)
    leaving = network.bandwidth_bytes_per_s[0] * optical_share(cluster) * cluster.rack.optics_usd_per_byte_per_s
    return links + leaving + prices.domain_usd_per_chip * network.size[0] / prices.reference_domain


def racks_usd(cluster: Cluster) -> Scalar:
    """Price of racks, busbars and power shelves."""
    return racks(cluster) * cluster.rack.price_usd


def it_usd(cluster: Cluster) -> Scalar:
    """Price of the IT equipment, spares included."""
    each = chip_usd(cluster) + network_usd(cluster) + cluster.prices.host_usd
    return (1.0 + cluster.prices.spares_fraction) * (cluster.chips * each + racks_usd(cluster))


def building_usd(cluster: Cluster, it_peak_w: Scalar) -> Scalar:
    """Price of the building and its cooling, by the IT power (of one chip) it must feed."""
    return cluster.chips * it_peak_w * (cluster.facility.construction_usd_per_w + cluster.cooling.capital_usd_per_w)


def capex_usd(cluster: Cluster, it_peak_w: Scalar) -> Scalar:
    """Capital cost: equipment and building; nothing where the cluster is rented."""
    return cluster.prices.owned * (it_usd(cluster) + building_usd(cluster, it_peak_w))


def cost_parts(cluster: Cluster, it_peak_w: Scalar, average_power_w: Scalar) -> dict[str, Scalar]:
    """Cost of one second of the cluster by cause.

    Equipment and building: `price (1 / life + interest / 2)`, straight-line depreciation with half the price bound on
    average. Upkeep: a share of the equipment's price. Electricity: `P_average x price`. All over the occupancy (idle
    time is paid for too), but electricity; a landlord's margin on the sum.

    **Arguments:** `it_peak_w` of one chip; `average_power_w` at the meter. **Returns:** USD/s by name.
    """
    prices, facility = cluster.prices, cluster.facility
    interest = 0.5 * prices.capital_rate_per_s
    markup = 1.0 + prices.margin
    each = (1.0 + prices.spares_fraction) * (1.0 / prices.server_lifetime_s + interest) * markup / prices.occupancy
    building = building_usd(cluster, it_peak_w) * (1.0 / facility.construction_lifetime_s + interest)
    return {
        "chips": each * cluster.chips * chip_usd(cluster),
        "network": each * cluster.chips * network_usd(cluster),
        "hosts": each * cluster.chips * prices.host_usd,
        "racks": each * racks_usd(cluster),
        "upkeep": it_usd(cluster) * prices.maintenance_per_s * markup / prices.occupancy,
        "building": building * markup / prices.occupancy,
        "electricity": average_power_w * facility.electricity_usd_per_j * markup,
    }
