"""Cost and carbon: capital cost of the cluster, its cost per second (owned or rented), and its emissions."""

from typing import NamedTuple

import jax.numpy as jnp

from hwopt.hardware.cluster import Cluster
from hwopt.model.facility.rack import domain_levels, optical_share
from hwopt.model.numerics.maximum import above_zero, hard_maximum, several
from hwopt.types import Scalar


class Capital(NamedTuple):
    """Capital cost of a cluster by category, USD; spares included."""

    chips: Scalar
    network: Scalar
    hosts: Scalar
    pool: Scalar  # memory beyond HBM, if not included in the hosts' price
    storage: Scalar
    racks: Scalar
    redesign: Scalar  # engineering cost of a modified chip
    sites: Scalar  # fixed cost of every further site
    building: Scalar  # including its cooling

    @property
    def equipment(self) -> Scalar:
        """Equipment, depreciated over the lifetime of servers, USD."""
        return sum(self[1:7], start=self[0])


class Spending(NamedTuple):
    """Cost of a cluster per second by category, USD/s."""

    chips: Scalar
    network: Scalar
    hosts: Scalar
    pool: Scalar
    storage: Scalar
    racks: Scalar
    redesign: Scalar
    upkeep: Scalar
    building: Scalar
    lines: Scalar  # leased lines between sites
    electricity: Scalar

    @property
    def standing(self) -> Scalar:
        """Cost that does not depend on the load: all but electricity, USD/s."""
        return sum(self[1:-1], start=self[0])


def chip_usd(cluster: Cluster) -> Scalar:
    """Return the price of one accelerator, USD: `base + HBM bytes x $/B + HBM bandwidth x $/(B/s)`.

    The clock does not change the price; it costs power.
    """
    chip, prices = cluster.chip, cluster.prices
    memory = chip.hbm_capacity_bytes * prices.hbm_usd_per_byte
    pins = chip.hbm_bandwidth_bytes_per_s * prices.hbm_usd_per_byte_per_s
    return prices.chip_base_usd + memory + pins


def network_usd(cluster: Cluster) -> Scalar:
    """Return the price of links, switches and NICs per chip, USD: `sum_i B_i $_i`, domain cabling, and optics.

    The scale-up tier's price grows with the switch levels of the domain. Optics are needed for scale-up links that leave a
    rack.
    """
    network, prices = cluster.network, cluster.prices
    tiers = network.bandwidth_bytes_per_s * prices.network_usd_per_byte_per_s
    links = tiers[0] * domain_levels(cluster) + tiers[1] + tiers[2]
    leaving = network.bandwidth_bytes_per_s[0] * optical_share(cluster) * cluster.rack.optics_usd_per_byte_per_s
    return links + leaving + prices.domain_usd_per_chip * network.size[0] / prices.reference_domain


def pool_usd(cluster: Cluster) -> Scalar:
    """Return the price of a chip's share of the memory pool, USD: `bytes x $/B + bandwidth x $/(B/s)`."""
    pool = cluster.pool
    return pool.capacity_bytes * pool.usd_per_byte + pool.bandwidth_bytes_per_s * pool.usd_per_byte_per_s


def storage_usd(cluster: Cluster) -> Scalar:
    """Return the price of a chip's share of storage, USD: `bytes x $/B + bandwidth x $/(B/s)`."""
    storage = cluster.storage
    rate_usd = storage.checkpoint_bytes_per_s_per_chip * storage.usd_per_byte_per_s
    return storage.capacity_bytes * storage.usd_per_byte + rate_usd


def ordered_chips(cluster: Cluster, bought: Scalar) -> Scalar:
    """Return the chips to pay for: those `bought`, but at least the vendor's minimum order for a redesigned chip."""
    least = cluster.prices.least_order
    return jnp.where(least > 0.0, hard_maximum(bought, least), bought)


def lines_usd_per_s(cluster: Cluster) -> Scalar:
    """Return the lease of the lines between S sites of bandwidth B, USD/s: `S B $/B`; 0 for one site."""
    sites = cluster.sites
    return above_zero(several(sites.count)) * sites.count * sites.bandwidth_bytes_per_s * sites.lease_usd_per_byte


def capital(cluster: Cluster, fed_w: Scalar, hot_spares: Scalar) -> Capital:
    """Return the capital cost by category, USD.

    Equipment is counted per chip, spares included; racks by their number; building and cooling by the IT power that they must
    feed.

    **Arguments:** `fed_w`: IT power of all chips at full load; `hot_spares`: running spare chips.
    """
    prices = cluster.prices
    bought = cluster.chips * (1.0 + prices.spares_fraction) + hot_spares
    a_watt = cluster.facility.construction_usd_per_w + cluster.cooling.capital_usd_per_w
    return Capital(
        chips=ordered_chips(cluster, bought) * chip_usd(cluster),
        network=bought * network_usd(cluster),
        hosts=bought * prices.host_usd,
        pool=bought * pool_usd(cluster),
        storage=cluster.chips * storage_usd(cluster),
        racks=bought / cluster.rack.chips * cluster.rack.price_usd,
        redesign=prices.redesign_usd,
        sites=(cluster.sites.count - 1.0) * cluster.sites.fixed_usd,
        building=fed_w * a_watt,
    )


def capex_usd(cluster: Cluster, built: Capital) -> Scalar:
    """Return the user's capital cost, USD: equipment, further sites and building; 0 where the cluster is rented."""
    return cluster.prices.owned * (built.equipment + built.sites + built.building)


def electricity_usd_per_j(cluster: Cluster) -> Scalar:
    """Return the price of a joule at the meter, a landlord's margin included, USD/J."""
    return cluster.facility.electricity_usd_per_j * (1.0 + cluster.prices.margin)


def spending(cluster: Cluster, built: Capital, average_power_w: Scalar) -> Spending:
    """Return the cost of the cluster per second by category: equipment, building, upkeep, leases, and electricity.

    - Electricity: `P_average x price`.
    - Equipment and building: `price (1 / life + interest / 2)`, straight-line depreciation; on average half the price is tied
      up.
    - Upkeep: a share of the equipment's price. Lines between sites are leased.

    All but electricity is divided by the occupancy (idle time is paid for too). A landlord's margin applies to the total.

    **Arguments:** `built`: result of `capital`; `average_power_w` at the meter. **Returns:** USD/s.
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
        storage=equipment * built.storage,
        racks=equipment * built.racks,
        redesign=equipment * built.redesign,
        upkeep=(built.equipment - built.redesign) * prices.maintenance_per_s * used,
        building=(built.building + built.sites) * (1.0 / facility.construction_lifetime_s + interest) * used,
        lines=lines_usd_per_s(cluster) * used,
        electricity=average_power_w * electricity_usd_per_j(cluster),
    )


def embodied_parts(cluster: Cluster, fed_w: Scalar, hot_spares: Scalar) -> dict[str, Scalar]:
    """Return the carbon of building the cluster, per second of its productive life: `embodied / life / occupancy`.

    Equipment: chips, hosts, memory pool, spares included. Building: by the IT power that it must feed.

    **Arguments:** `fed_w`: IT power of all chips at full load; `hot_spares`: running spare chips. **Returns:** kgCO2e/s by
    name.
    """
    prices, facility = cluster.prices, cluster.facility
    pool = cluster.pool.capacity_bytes * cluster.pool.carbon_kg_per_byte
    each = cluster.chip.embodied_carbon_kg + prices.host_carbon_kg + pool
    equipment = (cluster.chips * (1.0 + prices.spares_fraction) + hot_spares) * each
    building = fed_w * facility.construction_carbon_kg_per_w
    return {
        "equipment": equipment / (prices.server_lifetime_s * prices.occupancy),
        "building": building / (facility.construction_lifetime_s * prices.occupancy),
    }


def carbon_parts(cluster: Cluster, fed_w: Scalar, hot_spares: Scalar, average_power_w: Scalar) -> dict[str, Scalar]:
    """Return the carbon of one second of the cluster: electricity, `P x grid`, and `embodied_parts`.

    **Arguments:** `fed_w`, `hot_spares`: as in `embodied_parts`; `average_power_w` at the meter. **Returns:** kgCO2e/s by name.
    """
    return {"electricity": average_power_w * cluster.facility.carbon_kg_per_j} | embodied_parts(
        cluster, fed_w, hot_spares
    )
