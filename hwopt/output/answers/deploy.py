"""Answer of `hwopt deploy`: build a hall, colocate, or rent the machine, by cost and lead time."""

import math
from collections.abc import Mapping, Sequence

from hwopt.analysis.deploy import BUILD, COLOCATE, HALL, RENT, RETROFIT, YEAR_S, DeployAnswer, DeployOption
from hwopt.hardware.deployment import Deployment
from hwopt.model.facility.deployment import energised_s
from hwopt.output.answer import Answer, Section, Sentences, Table
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
            f"{_WORDS[other.name]}, {100 * over:.2g} % more"
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


def cells(each: DeployOption) -> list[str]:
    """Return the table row of a deployment option: lead time, capital, cost of a chip-hour, break-even, payback, total cost."""
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
        pretty(each.horizon_usd, "USD", 4) if math.isfinite(each.horizon_usd) else "not ready",
    ]


HEADS = ("", "ready after", "between", "capital", "chip-hour", "pays from", "paid back", "whole time")


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
        f"Power: the site's mean {mean:.3g} $/kWh is {energy:.3g} $/kWh of energy and {demand / _KW_MONTH:.3g} $ a kW of the "
        f"highest draw and month, at least {floor:.0f} % of the contract: {pretty(answer.feed.meter_w, 'W')} cost "
        f"{pretty(of_all, 'USD')} a year whatever is done"
    )


def spares(answer: DeployAnswer) -> list[str]:
    """Return a sentence on each level of redundancy: price, outages, lost time and cost of a useful chip-hour."""
    return [
        f"{name}: a building at {each.price_over_one_spare:.2f} of the price of one with a spare, {each.outages_per_year:.2g} "
        f"outages a year, {100 * each.lost:.2g} % of the time lost: {each.usd_per_chip_h:.4g} $ a useful chip-hour"
        f"{' (asked)' if name == answer.redundancy else ''}"
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
    if not answer.turns:
        return "No number of the market changes the answer anywhere in its range, nor does half or twice the rent."
    said = [f"{_name(each.number)} (low: {each.at_low}, high: {each.at_high})" for each in answer.turns]
    return (
        f"Which is cheapest depends on {', '.join(said)}; each alone at the end of its range, rent halved and doubled."
    )


def _name(name: str) -> str:
    declared = quantities(Deployment)
    return label(name, declared[name].unit) if name in declared else name


def scope(answer: DeployAnswer) -> str:
    """Return a sentence on the scope: what the costs include and what they leave out."""
    rent = answer.rent_usd_per_chip_h
    whose = (
        "as stated"
        if answer.rent_stated
        else "what it costs a landlord and his margin, --rent-usd-per-chip-h says otherwise"
    )
    return (
        f"Rent {rent:.3g} $ a chip-hour ({whose}), paid while work is done. Own machines are written off, with interest and "
        f"upkeep, as in every other answer; what outages leave undone is rented. Not in it: land, taxes, resale, moving of data; "
        f"{MODEL_ONLY}."
    )


def deploy_answer(found: DeployAnswer, title: str, asked: Mapping[str, str], sources: Sequence[str]) -> Answer:
    """Return the answer of `hwopt deploy`.

    **Arguments:**

    - `title`: title of the question.
    - `asked`: its JSON keys.
    - `sources`: citations of its numbers.
    """
    said = verdict(found)
    return Answer(
        "deploy", found, title, f"{said}.",
        (f"the cheapest way: {found.best.name}", pretty(found.best.horizon_usd, "USD", 4)),
        ("modelled", False, "no proof: every way is compared"),
        (
            Section("Ways to the machine", [Table("ways", HEADS, [cells(each) for each in found.options])]),
            Section("When, with what power", [Sentences([f"{each(found)}." for each in (energised, power_bill, feed)])]),
            Section("Spare power and cooling of what is built", [Sentences(spares(found))]),
            Section("What would change the answer", [Sentences([turning(found)], "", "")], titled=False),
            Section("How good is it", [Sentences([scope(found)], "", "")], titled=False, joined=True),
        ),
        sources, asked=asked, also={"verdict": said},
    )  # fmt: skip
