"""Systems as they are sold: servers, racks and slices with their chips, NICs and host memory."""

import math
from pathlib import Path
from typing import NamedTuple

from hwopt.catalog.load import record, supported
from hwopt.catalog.schema import Record, StatedQuantity
from hwopt.errors import UserError, suggest

TYPICAL = "typical"
"""Start of the name of a system whose chip names none: a server with the chip's own links, of any number in a rack."""


def system_of(chip: str | Path) -> Record:
    """Return the system in which a chip is sold: the one that its entry names, else a typical server.

    A user's file that changes the number of chips of a server or of a scale-up domain has a typical server, too.

    **Arguments:** `chip` by name, or the path of a `.toml` file.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    entry = supported("chips", chip)
    server, domain = entry.si("server_chips", 1.0), entry.si("scale_up_domain")
    if "system" in entry.text:
        named = record("systems", str(entry.text["system"]))
        if named.si("chips") % server == 0.0 and named.si("scale_up_domain") == domain:
            return named
    link = supported("links", str(entry.text["scale_out"]))
    rate = entry.si("scale_out_bandwidth")
    nics = server * rate / link.si("lane", rate)
    return Record(
        slug=f"{TYPICAL}-{entry.slug}",
        title=f"server of {server:g} {entry.title}",
        kind="systems",
        text={"chip": entry.slug, "note": "estimate: a typical server, since the catalog has no system of this chip"},
        quantities={
            "chips": _estimate(server, "chips"),
            "compute_nics": _estimate(nics, "1"),
            "nic_rate": _estimate(server * rate / nics, "B/s"),
            "scale_up_domain": _estimate(domain, "chips"),
        },
        sources={_ESTIMATE: record("pools", "host-pcie5").sources[_ESTIMATE]},
    )


_ESTIMATE = "hwopt-estimate"


def _estimate(value: float, unit: str) -> StatedQuantity:
    return StatedQuantity(value=value, unit=unit, kind="estimate", source=_ESTIMATE, low=value, high=value)


def usual_rack(system: Record) -> str:
    """Return the rack in which a system is sold: the one that its entry names, else Open Rack v3."""
    return str(system.text.get("rack", "orv3"))


def used_chips(system: Record) -> tuple[int, ...]:
    """Return how many of a system's chips jobs use, the fewest first; empty where they use all. The others are hot spares."""
    return tuple(sorted(map(int, system.words("used_chips"))))


def rack_sizes(system: Record) -> tuple[int, ...]:
    """Return the numbers of chips in the racks in which a system is sold; empty for any whole servers.

    A system of one or several whole racks has only racks of that size.
    """
    chips = system.si("chips")
    if "racks" in system.quantities:
        return (round(chips / system.si("racks")),)
    return tuple(round(chips * int(each)) for each in system.words("systems_per_rack"))


class Slice(NamedTuple):
    """A torus of chips as it is rented."""

    shape: str
    chips: int
    ring_share: float  # usable bandwidth over that of a torus whose sides all wrap around
    elongation: float  # longest side over that of a torus with as many chips and equal sides


def slices(system: Record) -> dict[str, Slice]:
    """Return the slices in which a torus is rented, by shape such as `8x8x16`, the smallest first; empty for other systems.

    A side wraps around where its length is a multiple of `wrap_side` of the system's entry. A side that does not has half the
    usable bandwidth of a ring (estimate), since no link closes it. The longest side limits an all-to-all.

    **Source:** Google's scaling book, tpus.md: without wraparound links most communication typically takes twice as long; an
    all-to-all takes `S n_max / (8 B_link)`.
    """
    wrap, found = system.si("wrap_side", 1.0), []
    for shape in system.words("slices"):
        chips = math.prod(sides := [int(each) for each in shape.split("x")])
        closed, equal = sum(side % wrap == 0.0 for side in sides), chips ** (1.0 / len(sides))
        found.append(Slice(shape, chips, 0.5 + 0.5 * closed / len(sides), max(sides) / equal))
    return {each.shape: each for each in sorted(found, key=lambda each: each.chips)}


def slice_words(chips: float, shape: str) -> str:
    """Return the slices of which a number of chips consists, in words such as 4 slices of 8x8x16."""
    count = round(chips / math.prod(map(int, shape.split("x"))))
    return f"{count:,} slice{'s' * (count != 1)} of {shape}"


def slice_of(chip: str | Path, shape: str) -> Slice:
    """Return a slice of a chip's system by its shape.

    **Raises:** `UserError` for a shape that is not on offer.
    """
    system = system_of(chip)
    known = slices(system)
    if shape not in known:
        raise UserError(f"slice = {shape}: {suggest(shape, known) if known else f'{system.title} has no slices'}")
    return known[shape]


def largest_slice(chip: str | Path, chips: float) -> str | None:
    """Return the shape of the largest slices of which a number of chips consists; None where there are none."""
    return next((each.shape for each in reversed(slices(system_of(chip)).values()) if chips % each.chips == 0.0), None)
