"""Build, house or rent a machine: what each costs while it runs and while it waits, when it is ready, and its feed of power."""

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
"""Its resistivity (CRC Handbook; IEC 60028: 1.7241e-8 annealed)."""


class Redundancy(NamedTuple):
    """What spare power and cooling come to. **Arguments:** `price` over that of one spare; share of time that is `lost`."""

    price: Scalar
    failures_per_s: Scalar
    lost: Scalar


class Terms(NamedTuple):
    """One way to a machine.

    **Arguments:** `capital_usd` paid at once; `standing_usd_per_s`, whatever is done; `running_usd_per_s` on top while it works;
    `cash_usd_per_s` that is paid out at full work, without interest and what is written off; `ready_s` after the order.
    """

    capital_usd: Scalar
    standing_usd_per_s: Scalar
    running_usd_per_s: Scalar
    cash_usd_per_s: Scalar
    ready_s: Scalar


def redundancies(market: Deployment) -> dict[str, Redundancy]:
    """N, N+1 (maintained while it runs) and 2N: `lost = failures x outage + maintenance`."""
    lost = lambda rate: rate * market.outage_s
    one = jnp.ones_like(market.outage_s)
    return {
        "N": Redundancy(market.n_price, market.n_failures_per_s, lost(market.n_failures_per_s) + market.n_maintenance),
        "N+1": Redundancy(one, market.n_1_failures_per_s, lost(market.n_1_failures_per_s)),
        "2N": Redundancy(market.two_n_price, market.two_n_failures_per_s, lost(market.two_n_failures_per_s)),
    }


def energy_usd_per_j(cluster: Cluster, market: Deployment) -> Scalar:
    """A site's mean price without what it holds of demand: `p - d / load factor`, not below 0.

    Mean prices are bills over energy, so that customers whose mean power is a share l of their highest paid `d / l` a joule.
    """
    share = market.demand_usd_per_w_s / market.tariff_load_factor
    return above_zero(cluster.facility.electricity_usd_per_j - share)


def demand_usd_per_s(market: Deployment, peak_w: Scalar, contracted_w: Scalar) -> Scalar:
    """What the highest power costs by the second: `d max(peak, floor x contracted)`."""
    return market.demand_usd_per_w_s * hard_maximum(peak_w, market.demand_floor * contracted_w)


class Load(NamedTuple):
    """What a machine draws, W: IT power at full load, power at the meter at work, and the highest there."""

    fed_w: Scalar
    average_w: Scalar
    peak_w: Scalar


def built(
    cluster: Cluster, market: Deployment, capital: Capital, load: Load, building_usd: Scalar, ready_s: Scalar
) -> Terms:
    """A machine of one's own in a hall of one's own.

    Equipment, building and upkeep cost what `spending` says of a machine that is always used; power what energy and the
    highest draw cost; a machine without work draws `idle_power` of what it does at work.

    **Arguments:** `capital` of the machine, whose building is `building_usd` here.
    """
    priced = capital._replace(building=building_usd)
    parts = _always_used(cluster, priced)
    work, idle, demand = _power(cluster, market, load)
    kept = sum(parts[1:-1], start=parts[0])
    paid = capital.equipment + building_usd + capital.sites
    return Terms(paid, kept + demand + idle, work - idle, parts.upkeep + parts.lines + work + demand, ready_s)


def housed(cluster: Cluster, market: Deployment, capital: Capital, load: Load, ready_s: Scalar) -> Terms:
    """A machine of one's own in somebody's hall: rent of its full IT load in place of a building; cooling in its racks is its own.

    **Arguments:** as of `built`.
    """
    own = built(cluster, market, capital, load, cluster.cooling.capital_usd_per_w * load.fed_w, ready_s)
    rent = market.colocation_usd_per_w_s * load.fed_w
    return own._replace(standing_usd_per_s=own.standing_usd_per_s + rent, cash_usd_per_s=own.cash_usd_per_s + rent)


def rented(chips: Scalar, usd_per_chip_s: Scalar, ready_s: Scalar) -> Terms:
    """Somebody's machine, paid while it works."""
    nothing = jnp.zeros_like(chips)
    return Terms(nothing, nothing, chips * usd_per_chip_s, chips * usd_per_chip_s, ready_s)


def _always_used(cluster: Cluster, capital: Capital) -> Spending:
    """What a machine in constant use costs its owner by the second, electricity apart: `spending` without occupancy and margin."""
    whole = cluster.prices.occupancy / (1.0 + cluster.prices.margin)
    return Spending(*(whole * each for each in spending(cluster, capital, jnp.zeros_like(cluster.chips))))


def _power(cluster: Cluster, market: Deployment, load: Load) -> tuple[Scalar, Scalar, Scalar]:
    """Energy at work and without, and demand, USD/s. The contract is over the highest power."""
    work = energy_usd_per_j(cluster, market) * load.average_w
    return work, work * market.idle_power, demand_usd_per_s(market, load.peak_w, load.peak_w)


def usd_per_s(terms: Terms, occupancy: Scalar) -> Scalar:
    """Cost at a share of time at work: `standing + occupancy x running`."""
    return terms.standing_usd_per_s + occupancy * terms.running_usd_per_s


def break_even_occupancy(own: Terms, rent: Terms, lost: Scalar) -> Scalar:
    """Share of its time that a machine must work to cost no more than a rented one that does as much.

    `standing / ((1 - lost) rent - running)`: what it stands still for outages is rented too. Above 1 it never pays; infinite where
    running alone costs more than rent.
    """
    left = (1.0 - lost) * rent.running_usd_per_s - own.running_usd_per_s
    some = left > 0.0
    return jnp.where(some, own.standing_usd_per_s / jnp.where(some, left, 1.0), jnp.inf)


def payback_s(capital_usd: Scalar, cash_usd_per_s: Scalar, rent_usd_per_s: Scalar) -> Scalar:
    """Time at full work after which rent saved has paid the capital: `K / (rent - cash)`; infinite where it saves nothing."""
    left = rent_usd_per_s - cash_usd_per_s
    some = left > 0.0
    return jnp.where(some, capital_usd / jnp.where(some, left, 1.0), jnp.inf)


def horizon_usd(own: Terms, bridge: Terms, occupancy: Scalar, horizon_s: Scalar) -> Scalar:
    """Cost over a time from the order on: rented until the own machine is ready, its own after that."""
    waiting = jnp.where(own.ready_s < horizon_s, own.ready_s, horizon_s)
    return waiting * usd_per_s(bridge, occupancy) + (horizon_s - waiting) * usd_per_s(own, occupancy)


def energised_s(market: Deployment) -> Scalar:
    """From the order until a new hall has power: the longest of what is waited for at once, then tests."""
    parts = (market.grid_s, market.transformer_s, market.switchgear_s, market.generators_s, market.construction_s)
    longest = parts[0]
    for each in parts[1:]:
        longest = hard_maximum(longest, each)
    return longest + market.commissioning_s


def three_phase_a(watts: Scalar, volts: Scalar) -> Scalar:
    """Current in each of three phases: `P / (sqrt(3) V)`, at a power factor of 1."""
    return watts / (3.0**0.5 * volts)


class Busbar(NamedTuple):
    """The busbar of a rack. **Arguments:** `lost`: share of its power."""

    amperes: Scalar
    copper_kg: Scalar
    lost: Scalar


def busbar(market: Deployment, rack_w: Scalar, volts: Scalar) -> Busbar:
    """Current `P / V`, copper and loss of a bar whose cross-section follows its current, which servers along it take off evenly.

    Two bars of length L and current density j carry half the current on average: `m = density L P / (V j)`, and lose
    `resistivity L j / V` of the power, which does not depend on it.
    """
    amperes = rack_w / volts
    copper = COPPER_KG_PER_M3 * market.bus_length_m * amperes / market.bus_density_a_per_m2
    return Busbar(amperes, copper, COPPER_OHM_M * market.bus_length_m * market.bus_density_a_per_m2 / volts)
