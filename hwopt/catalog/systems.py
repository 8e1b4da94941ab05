"""Systems as they are sold: servers, racks and slices with their chips, NICs and host memory."""

from pathlib import Path

from hwopt.catalog.load import record, supported
from hwopt.catalog.schema import Record, StatedQuantity

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
