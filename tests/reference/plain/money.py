"""Dollars and carbon of owning and running a cluster."""

from __future__ import annotations

from tests.reference.plain.pool import price as pool_price
from tests.reference.plain.rack import leaving_bandwidth, levels
from tests.reference.plain.sites import lease


def storage_price(storage) -> float:
    """Dollars a chip."""
    return (
        storage.usd_per_byte * storage.capacity_bytes
        + storage.usd_per_byte_per_s * storage.checkpoint_bytes_per_s_per_chip
    )


def money(cluster, fed_w: float, spares: float, average_w: float) -> tuple[float, float]:
    """Capital of the user, and what a second of the cluster costs him."""
    site, network, price = cluster.facility, cluster.network, cluster.prices
    each = chip_price(cluster) + price.host_usd
    switches = (levels(cluster), 1.0, 1.0)
    for many, bandwidth, usd in zip(
        switches, network.bandwidth_bytes_per_s, price.network_usd_per_byte_per_s, strict=True
    ):
        each += many * float(bandwidth) * float(usd)
    each += leaving_bandwidth(cluster) * cluster.rack.optics_usd_per_byte_per_s
    each += price.domain_usd_per_chip * float(network.size[0]) / price.reference_domain
    each += cluster.rack.price_usd / cluster.rack.chips
    each += pool_price(cluster.pool)
    bought = cluster.chips * (1.0 + price.spares_fraction) + spares
    equipment = bought * each + cluster.chips * storage_price(cluster.storage)
    equipment += max(price.least_order - bought, 0.0) * chip_price(cluster)
    building = fed_w * (site.construction_usd_per_w + cluster.cooling.capital_usd_per_w)
    building += (cluster.sites.count - 1.0) * cluster.sites.fixed_usd
    written_off = equipment + price.redesign_usd
    capital = (written_off + building) * price.owned

    idle_too = price.capital_rate_per_s * (written_off + building) / 2.0
    idle_too += written_off / price.server_lifetime_s + building / site.construction_lifetime_s
    idle_too += equipment * price.maintenance_per_s + lease(cluster.sites)
    a_second = idle_too / price.occupancy + average_w * site.electricity_usd_per_j
    return capital, a_second + price.margin * a_second


def chip_price(cluster) -> float:
    """Dollars of one chip with its memory."""
    chip, price = cluster.chip, cluster.prices
    memory = chip.hbm_capacity_bytes * price.hbm_usd_per_byte
    return price.chip_base_usd + memory + chip.hbm_bandwidth_bytes_per_s * price.hbm_usd_per_byte_per_s


def spending(cluster, fed_w: float, spares: float, average_w: float) -> dict[str, float]:
    """Dollars that a second of the cluster costs, by cause."""
    site, network, price = cluster.facility, cluster.network, cluster.prices
    wires = leaving_bandwidth(cluster) * cluster.rack.optics_usd_per_byte_per_s
    wires += price.domain_usd_per_chip * float(network.size[0]) / price.reference_domain
    switches = (levels(cluster), 1.0, 1.0)
    for many, bandwidth, usd in zip(
        switches, network.bandwidth_bytes_per_s, price.network_usd_per_byte_per_s, strict=True
    ):
        wires += many * float(bandwidth) * float(usd)
    count = cluster.chips * (1.0 + price.spares_fraction) + spares
    bought = {
        "chips": chip_price(cluster) * max(count, price.least_order) / count,
        "network": wires,
        "hosts": price.host_usd,
        "pool": pool_price(cluster.pool),
        "racks": cluster.rack.price_usd / cluster.rack.chips,
    }
    bought = {name: usd * count for name, usd in bought.items()}
    bought |= {"storage": storage_price(cluster.storage) * cluster.chips, "redesign": price.redesign_usd}
    built = fed_w * (site.construction_usd_per_w + cluster.cooling.capital_usd_per_w)
    built += (cluster.sites.count - 1.0) * cluster.sites.fixed_usd
    a_second = {
        name: usd / price.server_lifetime_s + usd * price.capital_rate_per_s / 2.0 for name, usd in bought.items()
    }
    a_second["upkeep"] = (sum(bought.values()) - price.redesign_usd) * price.maintenance_per_s
    a_second["building"] = built / site.construction_lifetime_s + built * price.capital_rate_per_s / 2.0
    a_second["lines"] = lease(cluster.sites)
    parts = {name: usd / price.occupancy for name, usd in a_second.items()}
    parts["electricity"] = average_w * site.electricity_usd_per_j
    return {name: usd + price.margin * usd for name, usd in parts.items()}


def carbon(cluster, fed_w: float, spares: float, average_w: float) -> float:
    """kgCO2e a second."""
    site, price = cluster.facility, cluster.prices
    pool = cluster.pool.capacity_bytes * cluster.pool.carbon_kg_per_byte
    equipment = cluster.chip.embodied_carbon_kg + price.host_carbon_kg + pool
    equipment *= cluster.chips * (1.0 + price.spares_fraction) + spares
    made = equipment / price.server_lifetime_s
    made += fed_w * site.construction_carbon_kg_per_w / site.construction_lifetime_s
    return made / price.occupancy + average_w * site.carbon_kg_per_j
