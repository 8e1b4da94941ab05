"""Cost and carbon: capital cost of the cluster, its cost per second (owned or rented), and its emissions."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from hwopt.hardware.cluster import Cluster
from hwopt.model.facility.power import design_pue
from hwopt.model.facility.rack import built_chips, domain_levels, optical_share
from hwopt.model.numerics.maximum import above_zero, hard_maximum, several
from hwopt.types import Scalar
from hwopt.units import YEAR_S


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
    """Return the price of the storage, USD: `bytes x $/B + N x bandwidth x $/(B/s)`."""
    storage = cluster.storage
    rate_usd = cluster.chips * storage.checkpoint_bytes_per_s_per_chip * storage.usd_per_byte_per_s
    return storage.capacity_bytes * storage.usd_per_byte + rate_usd


def ordered_chips(cluster: Cluster, bought: Scalar) -> Scalar:
    """Return the chips to pay for: those `bought`, but at least the vendor's minimum order for a redesigned chip."""
    least = cluster.prices.least_order
    return jnp.where(least > 0.0, hard_maximum(bought, least), bought)


def lines_usd_per_s(cluster: Cluster) -> Scalar:
    """Return the lease of the lines between S sites of bandwidth B, USD/s: `S B $/B`; 0 for one site."""
    sites = cluster.sites
    return above_zero(several(sites.count)) * sites.count * sites.bandwidth_bytes_per_s * sites.lease_usd_per_byte


def building_usd_per_w(cluster: Cluster) -> Scalar:
    """Return the cost of building and cooling per watt of IT power, USD/W.

    Construction cost is stated for halls with the usual coolant. With another coolant, it scales with the power at the meter on
    the design day, because chillers, transformers and generators are sized for it (assumption; the shell is not).
    """
    facility, cooling = cluster.facility, cluster.cooling
    usual = eqx.tree_at(lambda c: c.coolant_temperature_k, cooling, cooling.usual_coolant_k)
    plant = design_pue(facility, cooling) / design_pue(facility, usual)
    return facility.construction_usd_per_w * plant + cooling.capital_usd_per_w


def capital(cluster: Cluster, fed_w: Scalar, powered: Scalar) -> Capital:
    """Return the capital cost by category, USD.

    Equipment is counted per chip, spares included; racks by their number; building and cooling by the IT power that they must
    feed.

    **Arguments:** `fed_w`: IT power of all chips at full load; `powered`: chips of the job and its hot spares.
    """
    prices = cluster.prices
    bought = powered + cluster.chips * prices.spares_fraction
    return Capital(
        chips=ordered_chips(cluster, bought) * chip_usd(cluster),
        network=bought * network_usd(cluster),
        hosts=bought * prices.host_usd,
        pool=bought * pool_usd(cluster),
        storage=storage_usd(cluster),
        racks=bought / built_chips(cluster) * cluster.rack.price_usd,
        redesign=prices.redesign_usd,
        sites=(cluster.sites.count - 1.0) * cluster.sites.fixed_usd,
        building=fed_w * building_usd_per_w(cluster),
    )


def capex_usd(cluster: Cluster, built: Capital) -> Scalar:
    """Return the user's capital cost, USD: equipment, further sites and building; 0 where the cluster is rented."""
    return cluster.prices.owned * (built.equipment + built.sites + built.building)


def electricity_usd_per_j(cluster: Cluster) -> Scalar:
    """Return the price of a joule at the meter, a landlord's margin included, USD/J."""
    return cluster.facility.electricity_usd_per_j * (1.0 + cluster.prices.margin)


_SERIES_BELOW = 1e-3
"""Interest a year below which the annuity is computed by its series; the error there is below 1e-8 for lives up to 20 years."""


def annuity_per_s(rate_per_s: Scalar, life_s: Scalar) -> Scalar:
    """Return the payment per second that repays 1 USD with interest over a life of L years, 1/s.

    `r / (1 - (1 + r)^-L)` a year, in arrears, compounded yearly: the PMT of a spreadsheet. It is `1 / L` without interest.
    Log-log convex in r and L.

    **Arguments:** `rate_per_s`: interest r, 1/s; `life_s`: L, s.
    """
    rate, years = rate_per_s * YEAR_S, life_s / YEAR_S
    some = rate > _SERIES_BELOW
    safe = jnp.where(some, rate, 1.0)
    whole = -safe / jnp.expm1(-years * jnp.log1p(safe))
    series = (1.0 + 0.5 * rate * (years + 1.0) + rate * rate * (years * years - 1.0) / 12.0) / years
    return jnp.where(some, whole, series) / YEAR_S


def spending(cluster: Cluster, built: Capital, average_power_w: Scalar) -> Spending:
    """Return the cost of the cluster per second by category: equipment, building, upkeep, leases, and electricity.

    - Electricity: `P_average x price`.
    - Equipment and building: `price x annuity(interest, life)`, see `annuity_per_s`.
    - Upkeep: a share of the equipment's price. Lines between sites are leased.

    All but electricity is divided by the occupancy (idle time is paid for too). A landlord's margin applies to the total.

    **Arguments:** `built`: result of `capital`; `average_power_w` at the meter. **Returns:** USD/s.
    """
    prices, facility = cluster.prices, cluster.facility
    used = (1.0 + prices.margin) / prices.occupancy
    equipment = annuity_per_s(prices.capital_rate_per_s, prices.server_lifetime_s) * used
    building = annuity_per_s(prices.capital_rate_per_s, facility.construction_lifetime_s) * used
    return Spending(
        chips=equipment * built.chips,
        network=equipment * built.network,
        hosts=equipment * built.hosts,
        pool=equipment * built.pool,
        storage=equipment * built.storage,
        racks=equipment * built.racks,
        redesign=equipment * built.redesign,
        upkeep=(built.equipment - built.redesign) * prices.maintenance_per_s * used,
        building=(built.building + built.sites) * building,
        lines=lines_usd_per_s(cluster) * used,
        electricity=average_power_w * electricity_usd_per_j(cluster),
    )


def embodied_parts(cluster: Cluster, fed_w: Scalar, powered: Scalar) -> dict[str, Scalar]:
    """Return the carbon of building the cluster, per second of its productive life: `embodied / life / occupancy`.

    - Equipment: chips, hosts, memory pool and racks, spares included.
    - Network: by its price, since footprints of switches, NICs and optics are not published.
    - Storage: by its capacity. Building: by the IT power that it must feed.

    **Arguments:** `fed_w`: IT power of all chips at full load; `powered`: chips of the job and its hot spares.

    **Returns:** kgCO2e/s by name.
    """
    prices, facility = cluster.prices, cluster.facility
    pool = cluster.pool.capacity_bytes * cluster.pool.carbon_kg_per_byte
    each = cluster.chip.embodied_carbon_kg + prices.host_carbon_kg + pool
    bought = powered + cluster.chips * prices.spares_fraction
    building = fed_w * facility.construction_carbon_kg_per_w
    made = {
        "equipment": bought * (each + cluster.rack.carbon_kg / built_chips(cluster)),
        "network": bought * network_usd(cluster) * prices.network_carbon_kg_per_usd,
        "storage": cluster.storage.capacity_bytes * cluster.storage.carbon_kg_per_byte,
    }
    return {name: kg / (prices.server_lifetime_s * prices.occupancy) for name, kg in made.items()} | {
        "building": building / (facility.construction_lifetime_s * prices.occupancy),
    }


def carbon_parts(cluster: Cluster, fed_w: Scalar, powered: Scalar, average_power_w: Scalar) -> dict[str, Scalar]:
    """Return the carbon of one second of the cluster: electricity, `P x grid`, and `embodied_parts`.

    **Arguments:** `fed_w`, `powered`: as in `embodied_parts`; `average_power_w` at the meter. **Returns:** kgCO2e/s by name.
    """
    return {"electricity": average_power_w * cluster.facility.carbon_kg_per_j} | embodied_parts(cluster, fed_w, powered)
