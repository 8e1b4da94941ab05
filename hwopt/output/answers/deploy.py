"""Answer of `hwopt deploy`: build a hall, colocate, or rent the machine, by cost and lead time."""

import math
from collections.abc import Mapping, Sequence

from hwopt.analysis.deploy import BUILD, COLOCATE, HALL, RENT, RETROFIT, YEAR_S, DeployAnswer, DeployOption
from hwopt.hardware.deployment import Deployment
from hwopt.model.facility.deployment import energised_s
from hwopt.output.answer import Answer, Named, Section, Sentences, Table
from hwopt.output.text.layout import MODEL_ONLY
from hwopt.quantity import quantities
from hwopt.units import MULTIPLIERS, label, pretty

_WORDS = {
    BUILD: "build a hall",
    RETROFIT: "retrofit an air-cooled hall for liquid",
    HALL: "use the existing hall",
    COLOCATE: "own machine, rented space",
    RENT: "rent the machine",
}
_MONTH_S = MULTIPLIERS["month"][0]
_KW_MONTH = MULTIPLIERS["USD/(kW.month)"][0]


def months(seconds: float) -> str:
    """Return a lead time in months, days or shorter units."""
    if seconds < 2 * 86400.0:
        return pretty(seconds, "s", 2)
    return f"{seconds / _MONTH_S:.3g} months" if seconds >= 1.5 * _MONTH_S else f"{seconds / 86400.0:.2g} days"


def verdict(answer: DeployAnswer) -> str:
    """Return the recommendation to build, colocate or rent, in a sentence."""
    best, rent = answer.best, answer.option(RENT)
    years, asked = answer.horizon_s / YEAR_S, f"{100 * answer.occupancy:.3g} % of the time at work"
    if best.name == RENT:
        other = min((each for each in answer.options if each.name != RENT), key=lambda each: each.horizon_usd)
        if math.isinf(other.horizon_usd):
            return f"Rent: nothing else is ready within {years:.3g} years of the order"
        over = other.horizon_usd / best.horizon_usd - 1.0
        return (
            f"Rent: over {years:.3g} years from the order, {asked}, it costs {pretty(best.horizon_usd, 'USD')}; the next, "
            f"{_WORDS[other.name]}, {100 * over:.2g} % more with the first {months(float(other.terms.ready_s))} rented"
        )
    saved = 1.0 - best.horizon_usd / rent.horizon_usd
    return (
        f"{_WORDS[best.name].capitalize()}: over {years:.3g} years from the order, {asked}, it costs "
        f"{pretty(best.horizon_usd, 'USD')}, {100 * saved:.2g} % less than renting all the time; rented until it is ready"
    )


def occupancy_words(each: DeployOption) -> str:
    """Return the occupancy (share of time in use) from which a deployment option costs no more than renting, as text.

    It is "never" above 100 %, and "-" for renting itself.
    """
    if math.isnan(each.break_even):
        return "-"
    return f"{100 * each.break_even:.0f} %" if each.break_even <= 1.0 else "never"


def cells(each: DeployOption, horizon_s: float) -> list[str]:
    """Return the table row of a deployment option: lead time, capital, cost of a chip-hour, break-even, payback, total cost.

    **Arguments:** `horizon_s`: horizon of the comparison; the row states the share of it in which the machine is rented.
    """
    ready, date = float(each.terms.ready_s), each.ready_date
    back = (
        "-" if math.isnan(each.payback_s) else "never" if math.isinf(each.payback_s) else pretty(each.payback_s, "s", 3)
    )
    return [
        each.name,
        f"{months(ready)}{f', {date:%B %Y}' if date else ''}",
        f"{months(each.ready_range_s[0])} to {months(each.ready_range_s[1])}",
        pretty(float(each.terms.capital_usd), "USD", 4) if float(each.terms.capital_usd) else "-",
        f"{each.usd_per_chip_h:.3g} $",
        occupancy_words(each),
        back,
        f"{100 * min(ready / horizon_s, 1.0):.0f} %" if each.name != RENT else "-",
        pretty(each.horizon_usd, "USD", 4) if math.isfinite(each.horizon_usd) else "not ready",
    ]


HEADS = (
    "", "ready after", "at best to worst", "capital", "chip-hour", "pays from", "paid back", "rented first", "total cost",
)  # fmt: skip


def legend(answer: DeployAnswer) -> list[tuple[str, str]]:
    """Return the columns of the table of options with their meanings, and that of an existing hall."""
    used, years = f"at work {100 * answer.occupancy:.3g} % of the time", f"{answer.horizon_s / YEAR_S:.3g} years"
    halls = {
        HALL: "an existing hall with enough power, for which nothing is paid",
        RETROFIT: "an existing air-cooled hall with enough power, rebuilt for liquid cooling",
    }
    return [
        ("chip-hour", f"cost of an hour of useful work of a chip, once the machine is ready, {used}"),
        ("pays from", "share of the time at work from which a way costs no more than rent, once it is ready"),
        ("paid back", f"time from readiness until saved rent has repaid the capital, {used}"),
        ("rented first", f"share of the {years} until the own machine is ready, for which one is rented"),
        ("total cost", f"over the {years}, rent included; of the capital, only what is written off by then"),
        *((each.name, halls[each.name]) for each in answer.options if each.name in halls),
    ]


def energised(answer: DeployAnswer) -> str:
    """Return a sentence on when a new hall has power: the lead times of its parts, and those of commissioning and servers."""
    market = answer.market
    waits = {
        "grid connection": market.grid_s, "transformers": market.transformer_s, "switchgear": market.switchgear_s,
        "generators": market.generators_s, "construction": market.construction_s,
    }  # fmt: skip
    order = sorted(waits.items(), key=lambda each: -float(each[1]))
    told = ", ".join(f"{name} {months(float(value))}" for name, value in order)
    return (
        f"A new hall has power {months(float(energised_s(market)))} after the order: {told}, side by side, then tests of "
        f"{months(float(market.commissioning_s))}; servers take {months(float(market.chips_s))}"
    )


def power_bill(answer: DeployAnswer) -> str:
    """Return a sentence on the cost of power: energy price, demand charge, and the yearly cost of the peak draw."""
    market, own = answer.market, answer.cluster
    energy = answer.energy_usd_per_j * 3.6e6
    mean = float(own.facility.electricity_usd_per_j) * 3.6e6
    demand = float(market.demand_usd_per_w_s)
    of_all = demand * answer.feed.meter_w * YEAR_S
    floor = 100 * float(market.demand_floor)
    return (
        f"Power: the site's mean price of {mean:.3g} $/kWh is split into {energy:.3g} $/kWh of energy and a demand charge of "
        f"{demand / _KW_MONTH:.3g} $ a month for each kW of the month's peak draw. A peak of {pretty(answer.feed.meter_w, 'W')} "
        f"costs {pretty(of_all, 'USD')} a year, counted in full however much the machine works; months of less draw would still "
        f"be billed {floor:.0f} % of it"
    )


def spares(answer: DeployAnswer) -> list[str]:
    """Return a sentence on each level of redundancy: price, outages, lost time and cost of a useful chip-hour."""
    return [
        f"{name}: {each.price_over_one_spare:.2f} times the price of a building with N+1, {each.outages_per_year:.2g} outages a "
        f"year, {100 * each.lost:.2g} % of the time lost: {each.usd_per_chip_h:.4g} $ a useful chip-hour"
        f"{' (asked, and used above)' if name == answer.redundancy else ''}"
        for name, each in answer.redundancies.items()
    ]


def feed(answer: DeployAnswer) -> str:
    """Return a sentence on the electrical feed from the grid to the rack: powers, currents and busbars."""
    of, market = answer.feed, answer.market
    efficiency = 100 * float(answer.cluster.facility.distribution_efficiency)
    bars = " and ".join(
        f"{float(bar.amperes):,.0f} A and {float(bar.copper_kg):.2g} kg of copper at {float(volts):.0f} V"
        for bar, volts in ((of.busbar, market.bus_volts), (of.high_busbar, market.high_bus_volts))
    )
    medium, hall = float(market.medium_volts) / 1e3, float(market.hall_volts)
    return (
        f"Feed: {pretty(of.meter_w, 'W')} at the meter on the hottest day for {pretty(of.it_w, 'W')} of IT ({efficiency:.3g} % "
        f"from meter to rack, without cooling), {of.medium_a:,.0f} A a phase at {medium:.3g} kV; a rack of "
        f"{pretty(of.rack_w, 'W', 3)} takes {of.hall_a:,.0f} A a phase at {hall:.0f} V, and on its busbar {bars}; fewer "
        f"conversions would save {pretty(of.high_bus_saves_usd_per_year, 'USD', 3)} a year of energy"
    )


def turning(answer: DeployAnswer) -> str:
    """Return a sentence on the inputs that change the cheapest option somewhere in their ranges."""
    tried = "each number of the market, alone, at both ends of its range, and half and twice the rent"
    if not answer.turns:
        return f"Nothing that was tried changes the cheapest way: {tried}."
    said = [
        f"{_name(each.number)} ({'half' if each.number == RENT else 'low end'}: {_WORDS[each.at_low]}; "
        f"{'twice' if each.number == RENT else 'high end'}: {_WORDS[each.at_high]})"
        for each in answer.turns
    ]
    return f"The cheapest way changes with {', '.join(said)}. Tried: {tried}."


def _name(name: str) -> str:
    declared = quantities(Deployment)
    return label(name, declared[name].unit) if name in declared else name


def scope(answer: DeployAnswer) -> str:
    """Return a sentence on the scope: what the costs include and what they leave out."""
    rent = answer.rent_usd_per_chip_h
    whose = (
        "as stated" if answer.rent_stated else "a landlord's cost and margin; set another with --rent-usd-per-chip-h"
    )
    return (
        f"Rent is {rent:.3g} $ a chip-hour ({whose}), paid only while work is done. Own machines are written off, with interest "
        f"and upkeep; work that outages leave undone is rented. Not included: land, taxes, resale, moving of data; {MODEL_ONLY}."
    )


def deploy_answer(found: DeployAnswer, title: str, asked: Mapping[str, str], sources: Sequence[str]) -> Answer:
    """Return the answer of `hwopt deploy`.

    **Arguments:**

    - `title`: title of the question.
    - `asked`: its JSON keys.
    - `sources`: citations of its numbers.
    """
    said = verdict(found)
    ways = Table("ways", HEADS, [cells(each, found.horizon_s) for each in found.options])
    return Answer(
        "deploy", found, title, f"{said}.",
        (f"the cheapest way: {found.best.name}", pretty(found.best.horizon_usd, "USD", 4)),
        ("modelled", False, "no proof: every way is compared"),
        (
            Section("Ways to the machine", [ways]),
            Section("Columns", [Named(legend(found), 12)], titled=False),
            Section("When, with what power", [Sentences([f"{each(found)}." for each in (energised, power_bill, feed)])]),
            Section("Redundancy of power and cooling of a new hall", [Sentences(spares(found))]),
            Section("What would change the answer", [Sentences([turning(found)], "", "")], titled=False),
            Section("How good is it", [Sentences([scope(found)], "", "")], titled=False, joined=True),
        ),
        sources, asked=asked,
    )  # fmt: skip
