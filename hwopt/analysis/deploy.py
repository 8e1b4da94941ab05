"""Build, colocate or rent a cluster: costs, lead times, break-even occupancy, and assumptions that would change the answer."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax

from hwopt import catalog
from hwopt.catalog import leaf
from hwopt.declared import Result, derived, shown
from hwopt.errors import UserError, suggest
from hwopt.hardware.cluster import Cluster
from hwopt.hardware.deployment import Deployment
from hwopt.model.facility import cost, deployment, power, rack
from hwopt.model.facility.deployment import Load, Terms
from hwopt.model.machine import machine
from hwopt.model.numerics.maximum import hard_maximum
from hwopt.quantity import quantities
from hwopt.units import MULTIPLIERS
from hwopt.validation import check_kinds

AT_WORK = power.Activity(*(leaf(x) for x in (0.6, 0.3, 0.85)))
"""Activity of chips that train at some 40 % of their peak: kernels run in 0.72 to 0.92 of the model's steps on H100."""

LEAD_TIMES = (
    "grid_s", "transformer_s", "switchgear_s", "generators_s", "construction_s", "retrofit_s", "chips_s", "colocation_s", "cloud_s",
    "commissioning_s",
)  # fmt: skip
"""Names of the fields of a market (`Deployment`) that are lead times."""

YEAR_S = MULTIPLIERS["year"][0]

BUILD, RETROFIT, HALL, COLOCATE, RENT = "build", "retrofit", "own hall", "colocate", "rent"


@dataclass(frozen=True)
class DeployOption:
    """One way to get the machine (build, retrofit, own hall, colocate or rent), with its costs and dates."""

    name: str = shown()
    terms: Terms = shown(spliced=True)
    ready_range_s: tuple[float, float] = shown("s", "at the low and the high end of what is known of lead times")
    ready_date: datetime.date | None = shown(meaning="a day, YYYY-MM-DD; null without a date of the order")
    usd_per_chip_h: float = shown("USD/h", "of useful work at the specified occupancy")
    break_even: float = shown(meaning="occupancy from which it costs no more than rent")
    payback_s: float = shown("s", "of its capital at the specified occupancy")
    horizon_usd: float = shown("USD", "from the order on, rented until it is ready; null where that is later")


@dataclass(frozen=True)
class BreakPoint:
    """A market input whose uncertainty range changes which option is the cheapest."""

    number: str = shown()
    at_low: str = shown(meaning="the cheapest option at the low end of its range")
    at_high: str = shown(meaning="the cheapest option at the high end")


@dataclass(frozen=True)
class PowerFeed:
    """Power path from the grid to a rack."""

    meter_w: float = shown("W", "at the meter on the hottest day")
    it_w: float = shown("W")
    rack_w: float = shown("W")
    medium_a: float = shown("A", "a phase at medium voltage")
    hall_a: float = shown("A", "a phase of a rack at the voltage of the hall")
    busbar: deployment.Busbar = shown(meaning="of a rack today")
    high_busbar: deployment.Busbar = shown(meaning="of a rack at the voltage that replaces it")
    high_bus_saves_usd_per_year: float = shown("USD/year", "what fewer conversions would save of the energy bill")


@dataclass(frozen=True)
class Spare:
    """A redundancy level (N, N+1 or 2N) of power and cooling of a new building."""

    price_over_one_spare: float = shown(meaning="price of the building over that of one with a spare")
    outages_per_year: float = shown("1/year")
    lost: float = shown(meaning="share of the time")
    usd_per_chip_h: float = shown("USD/h", "of useful work in a building of that level")


@dataclass(frozen=True)
class DeployAnswer(Result):
    """All deployment options of one machine, the cheapest over the horizon first."""

    rows = "options"

    cluster: Cluster
    market: Deployment
    liquid: bool
    options: tuple[DeployOption, ...] = shown()
    redundancy: str = shown()
    redundancies: Mapping[str, Spare] = shown()
    occupancy: float = shown(meaning="share of the time in which the machine works")
    horizon_s: float = shown("s", "from the order on")
    rent_usd_per_chip_h: float = shown("USD/h")
    rent_stated: bool = shown()
    turns: tuple[BreakPoint, ...] = shown()
    feed: PowerFeed = shown()

    @property
    def best(self) -> DeployOption:
        return self.options[0]

    @derived(key="best")
    def best_name(self) -> str:
        """Return the name of the cheapest option over the horizon."""
        return self.best.name

    @derived()
    def chips(self) -> float:
        """Return the number of chips."""
        return float(self.cluster.chips)

    @derived("USD/J")
    def energy_usd_per_j(self) -> float:
        """Return the price of energy without the demand charge."""
        return float(deployment.energy_usd_per_j(self.cluster, self.market))

    @derived("USD/(W.s)")
    def demand_usd_per_w_s(self) -> float:
        """Return the demand charge, which is paid for the highest draw."""
        return float(self.market.demand_usd_per_w_s)

    def option(self, name: str) -> DeployOption:
        return next(each for each in self.options if each.name == name)


def deploy(
    chip: str,
    chips: int,
    *,
    market: str | Path | Deployment = "us-2026",
    hall: bool = False,
    cluster: Cluster | None = None,
    occupancy: float = 0.8,
    years: float = 5.0,
    redundancy: str = "N+1",
    rent_usd_per_chip_h: float | None = None,
    ordered: datetime.date | None = None,
    prices: str = "default",
    **peripherals: Any,
) -> DeployAnswer:
    """Compare building a data hall, converting one, colocating and renting for one machine.

    An owned machine works for the share `occupancy` of the time and costs what `hwopt.model.facility.cost` computes. Rent is
    paid only while work is done. Costs are compared at equal useful work. Costs over the horizon of `years` from the
    order include rent until the owned machine is ready.

    **Arguments:**

    - `chip`, `chips`: a chip of the catalog or a file, and the number of chips.
    - `market`: an entry of `deployments`, a file, or a `Deployment`, whose inputs then have no uncertainty ranges.
    - `hall`: whether an air-cooled hall with enough power exists; using it costs only its conversion for the machine.
    - `cluster`: cluster to use instead of the one that `catalog.cluster` builds from `chip`, `prices` and `peripherals`.
    - `occupancy`: share of the time in which an owned machine works.
    - `years`: horizon of the comparison, from the order.
    - `redundancy`: N, N+1 or 2N, for a new building.
    - `rent_usd_per_chip_h`: rent of a chip. By default it is what the machine costs a landlord with the price list `rented`.
    - `ordered`: date of the order, from which the dates of readiness follow.

    **Returns:** all options, the cheapest first, with redundancy levels, break points and the power path.

    **Raises:** `UserError` for invalid shares and times, and for unknown names.
    """
    occupancy = _share("occupancy", occupancy)
    horizon_s = catalog.positive(years, "years", most=100.0) * YEAR_S
    own = cluster if cluster is not None else catalog.cluster(chip, chips, prices=prices, **peripherals)
    if not isinstance(market, str | Path | Deployment):
        raise UserError(f"market = {market!r}: must be an entry of hwopt catalog deployments or a .toml file")
    place = market if isinstance(market, Deployment) else catalog.deployment(market)
    known = {} if isinstance(market, Deployment) else ranges(catalog.record("deployments", market))
    check_kinds("deploy", {"cluster": own, "market": place}, {"cluster": (Cluster,), "market": (Deployment,)})
    if float(own.prices.owned) == 0.0:
        raise UserError(
            f"prices = {prices}: a list of what an owner pays is compared with rent; name default or hyperscale"
        )
    with jax.enable_x64(True):
        levels = deployment.redundancies(place)
        if redundancy not in levels:
            raise UserError(f"redundancy = {redundancy!r}: {suggest(redundancy, levels)}")
        if rent_usd_per_chip_h is None:
            landlord = eqx.tree_at(lambda c: c.prices, own, catalog.prices("rented", chip, chips=chips))
            rent = _landlords(landlord)
        else:
            rent = catalog.positive(rent_usd_per_chip_h, "rent_usd_per_chip_h") / 3600.0
        asked = _DeployRequest(own, place, occupancy, horizon_s, redundancy, rent, _machine(own), hall, known)
        options = asked.options()
        early, late = ({each.name: float(each.terms.ready_s) for each in asked.at_all(end).options()} for end in (0, 1))
        date = lambda seconds: None if ordered is None else ordered + datetime.timedelta(seconds=float(seconds))
        options = [
            replace(each, ready_range_s=(early[each.name], late[each.name]), ready_date=date(each.terms.ready_s))
            for each in options
        ]
        spares = {
            name: Spare(
                float(each.price),
                float(each.failures_per_s) * YEAR_S,
                float(each.lost),
                replace(asked, redundancy=name).option(BUILD).usd_per_chip_h,
            )
            for name, each in levels.items()
        }
        options.sort(key=lambda each: each.horizon_usd)
        return DeployAnswer(
            own, place, asked.liquid, tuple(options), redundancy, spares, occupancy, horizon_s, 3600.0 * rent,
            rent_usd_per_chip_h is not None, tuple(asked.turns()), asked.feed(),
        )  # fmt: skip


def _share(name: str, value: float) -> float:
    number = catalog.positive(value, name)
    if number > 1.0:
        raise UserError(f"{name} = {number:g} is a share of time: at most 1")
    return number


def _landlords(cluster: Cluster) -> float:
    """Return the rent of one chip for one second that covers the landlord's spending, in USD."""
    it = _machine(cluster)
    return float(sum(cost.spending(cluster, it.capital, it.load.average_w)) / cluster.chips)


def ranges(record: catalog.Record) -> dict[str, tuple[float, float]]:
    """Return the uncertainty of a market's inputs: for each field, the factors (low, high) on its value in the catalog."""
    found = {}
    for name, declared in quantities(Deployment).items():
        stated = record.quantities[str(declared.key)]
        if stated.value > 0.0 and not (stated.low is None and stated.high is None):
            ends = (stated.value if end is None else end for end in (stated.low, stated.high))
            found[name] = tuple(end / stated.value for end in ends)
    return found


class _MachineCosts(NamedTuple):
    """Costs and power of the machine itself, which do not depend on the market."""

    capital: cost.Capital
    load: Load
    pue: float
    it_peak_w: float


def _machine(cluster: Cluster) -> _MachineCosts:
    it = machine(cluster, None)
    average_w = it.pue * (cluster.chips * power.active_it_w(cluster, it.point, AT_WORK) + it.standing_w)
    load = Load(*map(leaf, (it.fed_w, average_w, it.design_pue * it.fed_w)))
    return _MachineCosts(cost.Capital(*map(leaf, it.capital)), load, float(it.pue), float(it.it_peak_w))


@dataclass(frozen=True)
class _DeployRequest:
    cluster: Cluster
    market: Deployment
    occupancy: float
    horizon_s: float
    redundancy: str
    rent: float
    it: _MachineCosts
    hall: bool
    known: Mapping[str, tuple[float, float]]  # (low, high) factors on each market input

    @property
    def liquid(self) -> bool:
        """Return whether an air-cooled hall must be converted, because the machine needs liquid cooling of its own."""
        return float(self.cluster.cooling.capital_usd_per_w) > 0.0

    def moved(self, name: str, factor: float) -> _DeployRequest:
        """Return the request with one market input multiplied by a factor."""
        where = lambda market: getattr(market, name)
        return replace(self, market=eqx.tree_at(where, self.market, leaf(where(self.market) * factor)))

    def at_all(self, end: int) -> _DeployRequest:
        """Return the request with all lead times at the low (0) or high (1) end of their ranges."""
        asked = self
        for name in LEAD_TIMES:
            asked = asked.moved(name, self.known.get(name, (1.0, 1.0))[end])
        return asked

    def option(self, name: str) -> DeployOption:
        return next(each for each in self.options() if each.name == name)

    def options(self) -> list[DeployOption]:
        own, market, capital, load = self.cluster, self.market, self.it.capital, self.it.load
        known = deployment.redundancies(market)
        later = lambda there: hard_maximum(there, market.chips_s)
        building = capital.building * known[self.redundancy].price
        rent = deployment.rented(own.chips, leaf(self.rent), market.cloud_s)
        ways = {
            BUILD: deployment.built(own, market, capital, load, building, later(deployment.energised_s(market))),
            COLOCATE: deployment.housed(own, market, capital, load, later(market.colocation_s)),
            RENT: rent,
        }
        if self.hall:
            fitted = (market.retrofit_usd_per_w if self.liquid else 0.0) + own.cooling.capital_usd_per_w
            there = market.retrofit_s if self.liquid else market.chips_s
            ways[RETROFIT if self.liquid else HALL] = deployment.built(
                own, market, capital, load, leaf(fitted * load.fed_w), later(there)
            )
        spares = {BUILD: known[self.redundancy], **dict.fromkeys((RETROFIT, HALL, COLOCATE), known["N+1"])}
        return [
            self._option(name, each, rent, float(spares[name].lost) if name in spares else 0.0)
            for name, each in ways.items()
        ]

    def _option(self, name: str, terms: Terms, rent: Terms, lost: float) -> DeployOption:
        """Evaluate one option. Work lost to outages of its hall is done on rented chips."""
        used, rented = leaf(self.occupancy), float(rent.running_usd_per_s)
        useful, ready_s = self.occupancy * (1.0 - lost), float(terms.ready_s)
        whole = float(deployment.horizon_usd(terms, rent, used, leaf(self.horizon_s)))
        whole += self.occupancy * lost * rented * max(0.0, self.horizon_s - ready_s)
        if ready_s >= self.horizon_s and name != RENT:
            whole = math.inf
        even = back = math.nan
        if name != RENT:
            even = float(deployment.break_even_occupancy(terms, rent, leaf(lost)))
            paid = terms.cash_usd_per_s - (1.0 - used) * terms.running_usd_per_s
            back = float(deployment.payback_s(terms.capital_usd, paid, leaf(useful * rented)))
        an_hour = 3600.0 * float(deployment.usd_per_s(terms, used)) / (useful * float(self.cluster.chips))
        return DeployOption(name, Terms(*map(leaf, terms)), (ready_s, ready_s), None, an_hour, even, back, whole)

    def turns(self) -> list[BreakPoint]:
        """Return the market inputs whose range changes the cheapest option over the horizon.

        The rent ranges from half to twice its value.
        """
        first = lambda asked: min(asked.options(), key=lambda each: each.horizon_usd).name
        now = first(self)
        ends = {name: [first(self.moved(name, each)) for each in factors] for name, factors in self.known.items()}
        ends["rent"] = [first(replace(self, rent=each * self.rent)) for each in (0.5, 2.0)]
        return [BreakPoint(name, *each) for name, each in ends.items() if each != [now, now]]

    def feed(self) -> PowerFeed:
        own, market, load = self.cluster, self.market, self.it.load
        rack_w = rack.built_chips(own) * self.it.it_peak_w
        energy = float(deployment.energy_usd_per_j(own, market)) * float(load.average_w) * self.occupancy
        bars = [
            deployment.Busbar(*map(leaf, deployment.busbar(market, leaf(rack_w), volts)))
            for volts in (market.bus_volts, market.high_bus_volts)
        ]
        saves = float(market.high_bus_saves) * energy * YEAR_S
        phases = [
            float(deployment.three_phase_a(watts, volts))
            for watts, volts in ((load.peak_w, market.medium_volts), (leaf(rack_w), market.hall_volts))
        ]
        return PowerFeed(
            float(load.peak_w), float(load.fed_w), float(rack_w), phases[0], phases[1], bars[0], bars[1], saves
        )
