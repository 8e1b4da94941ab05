"""`hwopt deploy`: build a hall, retrofit one, rent space or rent the machine."""

import argparse
import datetime
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hwopt import escape
from hwopt.cli.cluster_flags import MACHINE
from hwopt.cli.flags import Flag
from hwopt.cli.paths import REPORT
from hwopt.cli.value_types import INTEGER, POSITIVE, SHARE, SWITCH, TEXT, ValueType, one_of
from hwopt.errors import UserError

if TYPE_CHECKING:
    from hwopt.output.answer import Answer


def _date(flag: str, text: str) -> datetime.date:
    """Read a date.

    **Raises:** `UserError` for an invalid date.
    """
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise UserError(f"{flag} {text}: a day is written 2027-01-31") from None


_SURROUNDINGS = (
    "--site",
    "--cooling",
    "--fabric",
    "--storage",
    "--reliability",
    "--recovery",
    "--rack-chips",
    "--prices",
)
_OWN = tuple(each for each in MACHINE if each.name in _SURROUNDINGS)

FLAGS = (
    Flag("--chip", "a name of the catalogue or a .toml file", TEXT, needed=True),
    Flag("--chips", "accelerators of the machine", INTEGER, needed=True),
    *_OWN,
    Flag("--market", "an entry of hwopt catalog deployments or a .toml: tariffs, rents of halls, lead times", TEXT, "us-2026"),
    Flag("--used", "share of the time in which the machine works (default 0.8)", SHARE, 0.8),
    Flag("--years", "years from the order over which costs are counted (default 5)", POSITIVE, 5.0),
    Flag("--redundancy", "redundancy of power and cooling of a new hall: N, N+1 or 2N", one_of("N", "N+1", "2N"), "N+1"),
    Flag("--hall", "an air-cooled hall with enough power exists, and may be retrofitted for the machine", SWITCH, False),
    Flag("--rent-usd-per-chip-h", "what a chip-hour costs to rent (default: as the price list rented says)", POSITIVE),
    Flag("--ordered", "date of the order, 2027-01-31, to print dates (default: months)", ValueType("DAY", _date)),
    replace(REPORT, meaning="also write the answer as one self-contained HTML page: ways, dates, power, what would "
        "change the answer, sources"),
)  # fmt: skip


def answer(options: argparse.Namespace) -> "Answer":
    """Return the comparison of building, colocating and renting for the machine that the flags state."""
    from hwopt import catalog
    from hwopt.analysis.deploy import deploy
    from hwopt.output.answers.deploy import deploy_answer

    named: dict[str, Any] = {each.attribute: getattr(options, each.attribute) for each in _OWN}
    found = deploy(
        options.chip,
        options.chips,
        market=options.market,
        hall=options.hall,
        occupancy=options.used,
        years=options.years,
        redundancy=options.redundancy,
        rent_usd_per_chip_h=options.rent_usd_per_chip_h,
        ordered=options.ordered,
        **{name: value for name, value in named.items() if value is not None},
    )
    asked = {"chip": options.chip, "site": options.site, "prices": options.prices, "market": options.market}
    title = f"{options.chips:,} x {options.chip}, site {options.site}, prices {options.prices}, market {options.market}"
    kinds = {"deployments": options.market, "sites": options.site, "prices": options.prices, "chips": options.chip}
    sources = catalog.sources_of(*(catalog.record(kind, name) for kind, name in kinds.items()))
    return deploy_answer(found, escape.line(title), asked, sources)
