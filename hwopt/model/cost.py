"""Money and carbon: capital cost of the cluster, the cost of it by the second, owned or rented, and what it emits."""

from typing import NamedTuple

import jax.numpy as jnp

from hwopt.hardware.cluster import Cluster
from hwopt.model.maximum import above_zero, several
from hwopt.model.rack import optical_share, racks
from hwopt.types import Scalar


class Capital(NamedTuple):
    """What a cluster costs to build, USD; spares included."""

    chips: Scalar
    network: Scalar
    hosts: Scalar
    pool: Scalar  # memory beyond HBM that the hosts' price does not hold
    racks: Scalar
    sites: Scalar  # what every further site costs whatever its size
    building: Scalar  # with its cooling

    @property
    def equipment(self) -> Scalar:
        return sum(self[1:5], start=self[0])


class Spending(NamedTuple):
    """What a second of a cluster costs by cause, USD/s."""

    chips: Scalar
    network: Scalar
    hosts: Scalar
    pool: Scalar
    racks: Scalar
    upkeep: Scalar
    building: Scalar
    lines: Scalar  # leased between sites
    electricity: Scalar

    @property
    def standing(self) -> Scalar:
        """What it costs whatever it does."""
        return sum(self[1:-1], start=self[0])


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


def pool_usd(cluster: Cluster) -> Scalar:
    """Price of a chip's share of the memory pool: `bytes x $/B + bandwidth x $/(B/s)`."""
    pool = cluster.pool
    return pool.capacity_bytes * pool.usd_per_byte + pool.bandwidth_bytes_per_s * pool.usd_per_byte_per_s


def lines_usd_per_s(cluster: Cluster) -> Scalar:
    """Lease of the lines between sites: `S B $/B`, none for one site."""
    sites = cluster.sites
    return above_zero(several(sites.count)) * sites.count * sites.bandwidth_bytes_per_s * sites.lease_usd_per_byte


def capital(cluster: Cluster, it_peak_w: Scalar) -> Capital:
    """Capital cost by cause.

    Equipment by the chip, spares included; racks by their number; building and cooling by the IT power they must feed.

    **Arguments:** `it_peak_w` of one chip.
    """
    prices = cluster.prices
    bought = cluster.chips * (1.0 + prices.spares_fraction)
    a_watt = cluster.facility.construction_usd_per_w + cluster.cooling.capital_usd_per_w
    return Capital(
        chips=bought * chip_usd(cluster),
        network=bought * network_usd(cluster),
        hosts=bought * prices.host_usd,
        pool=bought * pool_usd(cluster),
        racks=(1.0 + prices.spares_fraction) * racks(cluster) * cluster.rack.price_usd,
        sites=(cluster.sites.count - 1.0) * cluster.sites.fixed_usd,
        building=cluster.chips * it_peak_w * a_watt,
    )


def capex_usd(cluster: Cluster, built: Capital) -> Scalar:
    """Capital cost to the user: equipment and building; nothing where the cluster is rented."""
    return cluster.prices.owned * (built.equipment + built.sites + built.building)


def electricity_usd_per_j(cluster: Cluster) -> Scalar:
    """Price of a joule at the meter, a landlord's margin included."""
    return cluster.facility.electricity_usd_per_j * (1.0 + cluster.prices.margin)


def spending(cluster: Cluster, built: Capital, average_power_w: Scalar) -> Spending:
    """Cost of one second of the cluster by cause: what stands there, and electricity, `P_average x price`.

    Equipment and building: `price (1 / life + interest / 2)`, straight-line depreciation with half the price bound on
    average. Upkeep: a share of the equipment's price. Links between sites are leased.
    Capital, upkeep and leases over the occupancy (idle time is paid for too); a landlord's margin on the sum.

    **Arguments:** `built` as `capital` says; `average_power_w` at the meter. **Returns:** USD/s.
    """
    prices, facility = cluster.prices, cluster.facility
    interest, markup = 0.5 * prices.capital_rate_per_s, 1.0 + prices.margin
    used = markup / prices.occupancy
    equipment = (1.0 / prices.server_lifetime_s + interest) * used
    return Spending(
        chips=equipment * built.chips,
        network=equipment * built.network,
        hosts=equipment * built.hosts,
        pool=equipment * built.pool,
        racks=equipment * built.racks,
        upkeep=built.equipment * prices.maintenance_per_s * used,
        building=(built.building + built.sites) * (1.0 / facility.construction_lifetime_s + interest) * used,
        lines=lines_usd_per_s(cluster) * used,
        electricity=average_power_w * electricity_usd_per_j(cluster),
    )


def embodied_parts(cluster: Cluster, it_peak_w: Scalar) -> dict[str, Scalar]:
    """Carbon of making the cluster, by the second of its life in use: `embodied / life / occupancy`.

    Equipment: chips, hosts, memory pool, spares included. Building: by the IT power it must feed.

    **Arguments:** `it_peak_w` of one chip. **Returns:** kgCO2e/s by name.
    """
    prices, facility = cluster.prices, cluster.facility
    pool = cluster.pool.capacity_bytes * cluster.pool.carbon_kg_per_byte
    each = cluster.chip.embodied_carbon_kg + prices.host_carbon_kg + pool
    equipment = cluster.chips * (1.0 + prices.spares_fraction) * each
    building = cluster.chips * it_peak_w * facility.construction_carbon_kg_per_w
    return {
        "equipment": equipment / (prices.server_lifetime_s * prices.occupancy),
        "building": building / (facility.construction_lifetime_s * prices.occupancy),
    }


def carbon_parts(cluster: Cluster, it_peak_w: Scalar, average_power_w: Scalar) -> dict[str, Scalar]:
    """Carbon of one second of the cluster: `P x grid` and `embodied_parts`.

    **Arguments:** `it_peak_w` of one chip; `average_power_w` at the meter. **Returns:** kgCO2e/s by name.
    """
    return {"electricity": average_power_w * cluster.facility.carbon_kg_per_j} | embodied_parts(cluster, it_peak_w)
