"""Dollars and carbon of owning and running a cluster."""

from __future__ import annotations

from tests.reference.plain.pool import price as pool_price
from tests.reference.plain.power import usage_effectiveness
from tests.reference.plain.rack import filled, leaving_bandwidth, levels, replaced
from tests.reference.plain.sites import lease
from tests.reference.plain.weights import parameters


def trains(cluster, run):
    """The cluster with shelves for what any job has, for its training data, and for the checkpoints it keeps."""
    shelf = cluster.storage
    checkpoint = run.weight_bytes + run.trainable_fraction * (run.master_bytes + run.moment_bytes)
    held = shelf.checkpoints * checkpoint * parameters(run.model, per_token=False)
    held += shelf.data_copies * run.input_bytes_per_token * run.tokens
    return replaced(cluster, storage=replaced(shelf, capacity_bytes=shelf.capacity_bytes + held))


def serves(cluster, service):
    """The same for copies of the weights that are served."""
    shelf = cluster.storage
    held = shelf.data_copies * service.weight_bytes * parameters(service.model, per_token=False)
    return replaced(cluster, storage=replaced(shelf, capacity_bytes=shelf.capacity_bytes + held))


def a_watt_built(cluster) -> float:
    """Dollars of building and cooling per watt of IT: plant for the design day with another coolant than the usual one."""
    plant = usage_effectiveness(cluster, design_day=True) / usage_effectiveness(cluster, design_day=True, usual=True)
    return cluster.facility.construction_usd_per_w * plant + cluster.cooling.capital_usd_per_w


def storage_price(cluster) -> float:
    """Dollars of all of it."""
    storage = cluster.storage
    rate = cluster.chips * storage.checkpoint_bytes_per_s_per_chip
    return storage.usd_per_byte * storage.capacity_bytes + storage.usd_per_byte_per_s * rate


def payment(rate_per_s: float, life_s: float) -> float:
    """Share of a loan that a second pays, from the present value of equal payments at the end of each year."""
    year = 365.25 * 24.0 * 3600.0
    years, discount = life_s / year, 1.0 / (1.0 + rate_per_s * year)
    worth = years if discount == 1.0 else discount * (1.0 - discount**years) / (1.0 - discount)
    return 1.0 / (worth * year)


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
    each += cluster.rack.price_usd / filled(cluster)
    each += pool_price(cluster.pool)
    bought = cluster.chips * (1.0 + price.spares_fraction) + spares
    equipment = bought * each + storage_price(cluster)
    equipment += max(price.least_order - bought, 0.0) * chip_price(cluster)
    building = fed_w * a_watt_built(cluster)
    building += (cluster.sites.count - 1.0) * cluster.sites.fixed_usd
    written_off = equipment + price.redesign_usd
    capital = (written_off + building) * price.owned

    rate = price.capital_rate_per_s
    idle_too = written_off * payment(rate, price.server_lifetime_s)
    idle_too += building * payment(rate, site.construction_lifetime_s)
    idle_too += equipment * price.maintenance_per_s + lease(cluster.sites)
    a_second = idle_too / price.occupancy + average_w * site.electricity_usd_per_j
    return capital, a_second + price.margin * a_second


def chip_price(cluster) -> float:
    """Dollars of one chip with its memory."""
    chip, price = cluster.chip, cluster.prices
    memory = chip.hbm_capacity_bytes * price.hbm_usd_per_byte
    return price.chip_base_usd + memory + chip.hbm_bandwidth_bytes_per_s * price.hbm_usd_per_byte_per_s


def wires(cluster) -> float:
    """Dollars of links, switches, NICs and optics of one chip."""
    network, price = cluster.network, cluster.prices
    usd = leaving_bandwidth(cluster) * cluster.rack.optics_usd_per_byte_per_s
    usd += price.domain_usd_per_chip * float(network.size[0]) / price.reference_domain
    switches = (levels(cluster), 1.0, 1.0)
    for many, bandwidth, each in zip(
        switches, network.bandwidth_bytes_per_s, price.network_usd_per_byte_per_s, strict=True
    ):
        usd += many * float(bandwidth) * float(each)
    return usd


def spending(cluster, fed_w: float, spares: float, average_w: float) -> dict[str, float]:
    """Dollars that a second of the cluster costs, by cause."""
    site, price = cluster.facility, cluster.prices
    count = cluster.chips * (1.0 + price.spares_fraction) + spares
    bought = {
        "chips": chip_price(cluster) * max(count, price.least_order) / count,
        "network": wires(cluster),
        "hosts": price.host_usd,
        "pool": pool_price(cluster.pool),
        "racks": cluster.rack.price_usd / filled(cluster),
    }
    bought = {name: usd * count for name, usd in bought.items()}
    bought |= {"storage": storage_price(cluster), "redesign": price.redesign_usd}
    built = fed_w * a_watt_built(cluster)
    built += (cluster.sites.count - 1.0) * cluster.sites.fixed_usd
    rate = price.capital_rate_per_s
    a_second = {name: usd * payment(rate, price.server_lifetime_s) for name, usd in bought.items()}
    a_second["upkeep"] = (sum(bought.values()) - price.redesign_usd) * price.maintenance_per_s
    a_second["building"] = built * payment(rate, site.construction_lifetime_s)
    a_second["lines"] = lease(cluster.sites)
    parts = {name: usd / price.occupancy for name, usd in a_second.items()}
    parts["electricity"] = average_w * site.electricity_usd_per_j
    return {name: usd + price.margin * usd for name, usd in parts.items()}


def carbon(cluster, fed_w: float, spares: float, average_w: float) -> float:
    """kgCO2e a second."""
    site, price = cluster.facility, cluster.prices
    pool = cluster.pool.capacity_bytes * cluster.pool.carbon_kg_per_byte
    equipment = cluster.chip.embodied_carbon_kg + price.host_carbon_kg + pool
    equipment += cluster.rack.carbon_kg / filled(cluster) + wires(cluster) * price.network_carbon_kg_per_usd
    equipment *= cluster.chips * (1.0 + price.spares_fraction) + spares
    equipment += cluster.storage.capacity_bytes * cluster.storage.carbon_kg_per_byte
    made = equipment / price.server_lifetime_s
    made += fed_w * site.construction_carbon_kg_per_w / site.construction_lifetime_s
    return made / price.occupancy + average_w * site.carbon_kg_per_j
