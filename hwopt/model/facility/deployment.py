"""Build, colocate or rent: cost while working and while idle, lead time, and power feed of each way to obtain a cluster."""

from typing import NamedTuple

import jax.numpy as jnp

from hwopt.hardware.cluster import Cluster
from hwopt.hardware.deployment import Deployment
from hwopt.model.facility.cost import Capital, Spending, spending
from hwopt.model.numerics.maximum import above_zero, hard_maximum
from hwopt.types import Scalar

COPPER_KG_PER_M3 = 8960.0
"""Density of copper at 20 degC (CRC Handbook)."""

COPPER_OHM_M = 1.72e-8
"""Resistivity of copper (CRC Handbook; IEC 60028: 1.7241e-8 annealed)."""


class Redundancy(NamedTuple):
    """Cost and availability of one redundancy level of power and cooling.

    **Arguments:**
    - `price`: cost relative to N+1;
    - `failures_per_s`: outages of the hall;
    - `lost`: share of time lost to outages and maintenance.
    """

    price: Scalar
    failures_per_s: Scalar
    lost: Scalar


class Terms(NamedTuple):
    """Cost and lead time of one way to obtain a cluster.

    **Arguments:**
    - `capital_usd`: paid up front;
    - `standing_usd_per_s`: paid always, working or idle;
    - `running_usd_per_s`: paid in addition while the cluster works;
    - `cash_usd_per_s`: cash cost at full work, without interest and depreciation;
    - `ready_s`: time from the order until the cluster is ready.
    """

    capital_usd: Scalar
    standing_usd_per_s: Scalar
    running_usd_per_s: Scalar
    cash_usd_per_s: Scalar
    ready_s: Scalar


def redundancies(market: Deployment) -> dict[str, Redundancy]:
    """Return the redundancy levels by name: N, N+1 (concurrently maintainable) and 2N.

    `lost = failures x outage + maintenance`; only N must stop for maintenance.
    """
    lost = lambda rate: rate * market.outage_s
    one = jnp.ones_like(market.outage_s)
    return {
        "N": Redundancy(market.n_price, market.n_failures_per_s, lost(market.n_failures_per_s) + market.n_maintenance),
        "N+1": Redundancy(one, market.n_1_failures_per_s, lost(market.n_1_failures_per_s)),
        "2N": Redundancy(market.two_n_price, market.two_n_failures_per_s, lost(market.two_n_failures_per_s)),
    }


def energy_usd_per_j(cluster: Cluster, market: Deployment) -> Scalar:
    """Return a site's energy price, USD/J: its mean price less the included demand charge, `p - d / load factor`, at least 0.

    Stated mean prices are bills over energy. Customers whose mean power is a share l of their peak thus pay `d / l` per joule
    for demand.
    """
    share = market.demand_usd_per_w_s / market.tariff_load_factor
    return above_zero(cluster.facility.electricity_usd_per_j - share)


def demand_usd_per_s(market: Deployment, peak_w: Scalar, contracted_w: Scalar) -> Scalar:
    """Return the demand charge, USD/s: `d max(peak, floor x contracted)`."""
    return market.demand_usd_per_w_s * hard_maximum(peak_w, market.demand_floor * contracted_w)


class Load(NamedTuple):
    """Power of a cluster, W: IT power at full load, mean power at the meter while working, and peak power at the meter."""

    fed_w: Scalar
    average_w: Scalar
    peak_w: Scalar


def built(
    cluster: Cluster, market: Deployment, capital: Capital, load: Load, building_usd: Scalar, ready_s: Scalar
) -> Terms:
    """Return the terms of an owned cluster in an owned building.

    Equipment, building and upkeep cost as much as in `spending` for a cluster that is always used. Power costs the energy price
    plus the demand charge. An idle cluster draws a share `idle_power` of its working power.

    **Arguments:**
    - `capital` of the cluster; its building cost is replaced by `building_usd`;
    - `load`: power of the cluster;
    - `ready_s`: time from the order until the cluster is ready.
    """
    priced = capital._replace(building=building_usd)
    parts = _always_used(cluster, priced)
    work, idle, demand = _power(cluster, market, load)
    kept = sum(parts[1:-1], start=parts[0])
    paid = capital.equipment + building_usd + capital.sites
    return Terms(paid, kept + demand + idle, work - idle, parts.upkeep + parts.lines + work + demand, ready_s)


def housed(cluster: Cluster, market: Deployment, capital: Capital, load: Load, ready_s: Scalar) -> Terms:
    """Return the terms of an owned cluster in a colocation hall.

    Rent for the full IT load replaces the building; the owner still pays for the cooling inside the racks.

    **Arguments:** as in `built`.
    """
    own = built(cluster, market, capital, load, cluster.cooling.capital_usd_per_w * load.fed_w, ready_s)
    rent = market.colocation_usd_per_w_s * load.fed_w
    return own._replace(standing_usd_per_s=own.standing_usd_per_s + rent, cash_usd_per_s=own.cash_usd_per_s + rent)


def rented(chips: Scalar, usd_per_chip_s: Scalar, ready_s: Scalar) -> Terms:
    """Return the terms of a rented cluster, paid only while it works."""
    nothing = jnp.zeros_like(chips)
    return Terms(nothing, nothing, chips * usd_per_chip_s, chips * usd_per_chip_s, ready_s)


def _always_used(cluster: Cluster, capital: Capital) -> Spending:
    """Return an owner's cost per second of a cluster in constant use, without electricity.

    This is `spending` without its factors for occupancy and margin.
    """
    whole = cluster.prices.occupancy / (1.0 + cluster.prices.margin)
    return Spending(*(whole * each for each in spending(cluster, capital, jnp.zeros_like(cluster.chips))))


def _power(cluster: Cluster, market: Deployment, load: Load) -> tuple[Scalar, Scalar, Scalar]:
    """Return energy cost at work, energy cost when idle, and demand charge, USD/s. The contracted power is the peak power."""
    work = energy_usd_per_j(cluster, market) * load.average_w
    return work, work * market.idle_power, demand_usd_per_s(market, load.peak_w, load.peak_w)


def usd_per_s(terms: Terms, occupancy: Scalar) -> Scalar:
    """Return the cost at a given share of time at work, USD/s: `standing + occupancy x running`."""
    return terms.standing_usd_per_s + occupancy * terms.running_usd_per_s


def break_even_occupancy(own: Terms, rent: Terms, lost: Scalar) -> Scalar:
    """Return the share of time that an owned cluster must work to cost no more than renting the same amount of work.

    `standing / ((1 - lost) rent - running)`: work lost to outages need not be rented. Above 1, owning never pays; infinite
    where running alone costs more than rent.
    """
    left = (1.0 - lost) * rent.running_usd_per_s - own.running_usd_per_s
    some = left > 0.0
    return jnp.where(some, own.standing_usd_per_s / jnp.where(some, left, 1.0), jnp.inf)


def payback_s(capital_usd: Scalar, cash_usd_per_s: Scalar, rent_usd_per_s: Scalar) -> Scalar:
    """Return the time at full work until saved rent has repaid the capital: `K / (rent - cash)`; infinite without savings."""
    left = rent_usd_per_s - cash_usd_per_s
    some = left > 0.0
    return jnp.where(some, capital_usd / jnp.where(some, left, 1.0), jnp.inf)


def horizon_usd(own: Terms, bridge: Terms, occupancy: Scalar, horizon_s: Scalar) -> Scalar:
    """Return the total cost over a horizon that starts with the order, USD.

    A cluster is rented (`bridge`) until the owned one is ready; afterwards the owned one is used.
    """
    waiting = jnp.where(own.ready_s < horizon_s, own.ready_s, horizon_s)
    return waiting * usd_per_s(bridge, occupancy) + (horizon_s - waiting) * usd_per_s(own, occupancy)


def energised_s(market: Deployment) -> Scalar:
    """Return the time from the order until a new hall has power: the longest of the parallel lead times, then commissioning."""
    parts = (market.grid_s, market.transformer_s, market.switchgear_s, market.generators_s, market.construction_s)
    longest = parts[0]
    for each in parts[1:]:
        longest = hard_maximum(longest, each)
    return longest + market.commissioning_s


def three_phase_a(watts: Scalar, volts: Scalar) -> Scalar:
    """Return the current in each of three phases, A: `P / (sqrt(3) V)`, at a power factor of 1."""
    return watts / (3.0**0.5 * volts)


class Busbar(NamedTuple):
    """Busbar of a rack: current, copper mass, and `lost`, the share of power lost in the bar."""

    amperes: Scalar
    copper_kg: Scalar
    lost: Scalar


def busbar(market: Deployment, rack_w: Scalar, volts: Scalar) -> Busbar:
    """Return current `P / V`, copper mass and loss of a busbar sized for its current; servers tap it evenly along its length.

    Two bars of length L and current density j carry half the current on average: `m = density L P / (V j)`. They lose
    `resistivity L j / V` of the power, independent of the power.
    """
    amperes = rack_w / volts
    copper = COPPER_KG_PER_M3 * market.bus_length_m * amperes / market.bus_density_a_per_m2
    return Busbar(amperes, copper, COPPER_OHM_M * market.bus_length_m * market.bus_density_a_per_m2 / volts)
