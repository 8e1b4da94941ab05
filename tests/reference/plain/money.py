"""Dollars and carbon of owning and running a cluster."""

from __future__ import annotations

from tests.reference.plain.pool import price as pool_price
from tests.reference.plain.rack import leaving_bandwidth
from tests.reference.plain.sites import lease


def money(cluster, it_peak_w: float, average_w: float) -> tuple[float, float]:
    """Capital of the user, and what a second of the cluster costs him."""
    chip, site, network, price = cluster.chip, cluster.facility, cluster.network, cluster.prices
    each = price.chip_base_usd + price.host_usd
    each += chip.hbm_capacity_bytes * price.hbm_usd_per_byte
    each += chip.hbm_bandwidth_bytes_per_s * price.hbm_usd_per_byte_per_s
    for bandwidth, usd in zip(network.bandwidth_bytes_per_s, price.network_usd_per_byte_per_s, strict=True):
        each += float(bandwidth) * float(usd)
    each += leaving_bandwidth(cluster) * cluster.rack.optics_usd_per_byte_per_s
    each += price.domain_usd_per_chip * float(network.size[0]) / price.reference_domain
    each += cluster.rack.price_usd / cluster.rack.chips
    each += pool_price(cluster.pool)
    equipment = cluster.chips * each * (1.0 + price.spares_fraction)
    building = cluster.chips * it_peak_w * (site.construction_usd_per_w + cluster.cooling.capital_usd_per_w)
    building += (cluster.sites.count - 1.0) * cluster.sites.fixed_usd
    capital = (equipment + building) * price.owned

    idle_too = price.capital_rate_per_s * (equipment + building) / 2.0
    idle_too += equipment / price.server_lifetime_s + building / site.construction_lifetime_s
    idle_too += equipment * price.maintenance_per_s + lease(cluster.sites)
    a_second = idle_too / price.occupancy + average_w * site.electricity_usd_per_j
    return capital, a_second + price.margin * a_second


def spending(cluster, it_peak_w: float, average_w: float) -> dict[str, float]:
    """Dollars that a second of the cluster costs, by cause."""
    chip, site, network, price = cluster.chip, cluster.facility, cluster.network, cluster.prices
    wires = leaving_bandwidth(cluster) * cluster.rack.optics_usd_per_byte_per_s
    wires += price.domain_usd_per_chip * float(network.size[0]) / price.reference_domain
    for bandwidth, usd in zip(network.bandwidth_bytes_per_s, price.network_usd_per_byte_per_s, strict=True):
        wires += float(bandwidth) * float(usd)
    memory = chip.hbm_capacity_bytes * price.hbm_usd_per_byte
    memory += chip.hbm_bandwidth_bytes_per_s * price.hbm_usd_per_byte_per_s
    bought = {
        "chips": price.chip_base_usd + memory,
        "network": wires,
        "hosts": price.host_usd,
        "pool": pool_price(cluster.pool),
        "racks": cluster.rack.price_usd / cluster.rack.chips,
    }
    bought = {name: usd * cluster.chips * (1.0 + price.spares_fraction) for name, usd in bought.items()}
    built = cluster.chips * it_peak_w * (site.construction_usd_per_w + cluster.cooling.capital_usd_per_w)
    built += (cluster.sites.count - 1.0) * cluster.sites.fixed_usd
    a_second = {
        name: usd / price.server_lifetime_s + usd * price.capital_rate_per_s / 2.0 for name, usd in bought.items()
    }
    a_second["upkeep"] = sum(bought.values()) * price.maintenance_per_s
    a_second["building"] = built / site.construction_lifetime_s + built * price.capital_rate_per_s / 2.0
    a_second["lines"] = lease(cluster.sites)
    parts = {name: usd / price.occupancy for name, usd in a_second.items()}
    parts["electricity"] = average_w * site.electricity_usd_per_j
    return {name: usd + price.margin * usd for name, usd in parts.items()}


def carbon(cluster, it_peak_w: float, average_w: float) -> float:
    """kgCO2e a second."""
    site, price = cluster.facility, cluster.prices
    pool = cluster.pool.capacity_bytes * cluster.pool.carbon_kg_per_byte
    equipment = (cluster.chip.embodied_carbon_kg + price.host_carbon_kg + pool) * (1.0 + price.spares_fraction)
    made = equipment / price.server_lifetime_s
    made += it_peak_w * site.construction_carbon_kg_per_w / site.construction_lifetime_s
    return cluster.chips * made / price.occupancy + average_w * site.carbon_kg_per_j
