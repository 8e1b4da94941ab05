"""The integers of a machine: what it is bought in, where it is bought in whole units, and what of it is counted in any case.

In parts: whole servers and full racks; NICs, lanes and stacks by number; domains of whole servers, each within one rack or over
whole racks.
"""

from collections.abc import Sequence

from hwopt.design.variables import Ranges, count_of
from hwopt.integers.relations import Divides, Nested, ProductLimit, Relation
from hwopt.integers.system import Integer, RangePiece, integer

_PSEUDO_COST = 0.004
"""What a bound is expected to gain where parts of a server are split (tried: 0.05 takes twice the programmes)."""

_RACKS = 0.03
"""The same of racks where the domain is free: optics between them are a third of some machines' cost, of which a box that holds a
rack of a whole domain knows nothing. Within the kinds and degrees of gpt-oss-120b's best design 19.8 % were left after 12,488
programmes with the other figure; with 0.1 it was proved by 5,964."""

_NICS = tuple(sorted({n * m for n in (1, 3) for m in (1, 2, 4, 8, 16, 32, 64)}))
"""Ports of a server that fit its chips in pairs and fours: powers of two, and three times these."""

MACHINE_WORDS = {
    "scale_up_domain": "domains of whole groups", "chips_per_rack": "chips in a rack", "hbm_stacks": "HBM stacks", "dies": "dies",
    "enabled_fraction": "compute units left on",
    "scale_up_lanes": "lanes", "nics_per_server": "NICs a server",
}  # fmt: skip
"""What each variable of a machine counts, where it is free."""


def machine_integers(ranges: Ranges) -> tuple[Integer, ...]:
    """What a rack, a server and a package count."""
    of, name_of = ranges.of, ranges.name
    package = tuple(
        integer(name_of(name), of(name), rounding=1, sloped=True) for name in ("hbm_stacks", "dies")
    )  # memory and reticle still do
    if _chooses_units(ranges):
        least, most = (share * _units(ranges) for share in of("enabled_fraction"))
        package += (integer(_ENABLED, (least, most), near=2, pseudo_cost=_PSEUDO_COST, sloped=True),)
    if not ranges.in_parts:
        return (integer(name_of("chips_per_rack"), of("chips_per_rack"), rounding=-1), *package)
    least, most = of("scale_up_domain")
    racks = integer(name_of("chips_per_rack"), of("chips_per_rack"), among=_rack_sizes(ranges), rounding=-1,
                    pseudo_cost=_PSEUDO_COST if least == most else _RACKS, near=3)  # fmt: skip
    nics = integer(
        name_of("nics_per_server"), of("nics_per_server"), among=_NICS, sloped=True, pseudo_cost=_PSEUDO_COST
    )
    lanes = (
        (integer(name_of("scale_up_lanes"), of("scale_up_lanes"), sloped=True, pseudo_cost=_PSEUDO_COST),)
        if ranges.frees("scale_up_lanes")
        else ()
    )
    return (racks, nics, *lanes, *package)


def _rack_sizes(ranges: Ranges) -> list[int]:
    """Chips of a rack: whole servers, and where the domain is given, whole domains or a part of one that its racks share out."""
    (low, high), server = ranges.of("chips_per_rack"), server_chips(ranges)
    least, most = map(round, ranges.of("scale_up_domain"))
    sizes = [size for size in range(server, round(high) + 1, server) if size >= low]
    if least != most:
        return sizes
    return [size for size in sizes if size % most == 0 or most % size == 0]


def server_chips(ranges: Ranges) -> int:
    """Chips of one server."""
    return max(count_of(ranges.template.cluster.rack.server_chips), 1)


def machine_relations(ranges: Ranges) -> list[Relation]:
    """How domains, servers and racks hold each other, where the domain is `tp` times `groups`; and units left on as a share."""
    units: list[Relation] = []
    if _chooses_units(ranges):
        ends = ranges.of("enabled_fraction")
        units = [
            ProductLimit(
                (_ENABLED,), (), *ends, coefficient=1.0 / _units(ranges), name="enabled_fraction", follows=_ENABLED
            )
        ]
    least, most = ranges.of("scale_up_domain")
    if not ranges.in_parts or least == most:
        return units
    return [
        *units,
        Divides((), ("tp", "groups"), constant=server_chips(ranges)),
        Nested(("tp", "groups"), ("chips_per_rack",)),
    ]


_ENABLED = "enabled_units"
"""Coordinate of the compute units of a die that are left on."""


def _chooses_units(ranges: Ranges) -> bool:
    """Whether a question decides how many units of a drawn chip are spare."""
    least, most = ranges.of("enabled_fraction")
    return least < most


def _units(ranges: Ranges) -> int:
    """Compute units of one die of a drawn chip, made."""
    assert ranges.template.project is not None
    return max(count_of(ranges.template.project.compute_units), 1)


PIECES = 128
"""Pieces in which the areas of a drawn chip are taken: how much silicon cools is no convex question, only within a small piece."""

_SIZES = ("compute_area_m2", "sram_bytes")


def size_pieces(ranges: Ranges) -> tuple[RangePiece, ...]:
    """The areas that a question decides, in pieces of equal ratio."""
    free = [name for name in _SIZES if ranges.frees(name) and ranges.of(name)[0] < ranges.of(name)[1]]
    return tuple(_pieces(name, ranges.of(name), PIECES) for name in free)


def _pieces(name: str, ends: tuple[float, float], count: int) -> RangePiece:
    """A range in pieces of equal ratio."""
    low, high = ends
    return RangePiece(name, (*(low * (high / low) ** (i / count) for i in range(count)), high))


CLOCK_PIECES = 256
"""Pieces in which the clock is taken where percentiles are limited: a proof knows these by their ends alone."""


def clock_pieces(ranges: Ranges) -> tuple[RangePiece, ...]:
    """The clock, where it is free, in pieces of equal ratio."""
    low, high = ranges.of("clock_ratio")
    free = ranges.frees("clock_ratio") and low < high
    return (_pieces(ranges.name("clock_ratio"), (low, high), CLOCK_PIECES),) if free else ()


def piece_integer(piece: RangePiece) -> Integer:
    """The coordinate of a size in pieces."""
    return Integer(piece.name, 1, len(piece.edges) - 1, pseudo_cost=_PSEUDO_COST)


def whole_racks(
    ranges: Ranges, chips: Sequence[str], multiple: int = 1, racks: bool = True, shared: bool = False
) -> list[Relation]:
    """Full racks of whole servers, where a machine is bought in parts.

    **Arguments:** `chips`: coordinates whose product, times `multiple`, they hold; `racks`: whether racks are full;
    `shared`: whether other chips serve beside these, in racks of their own or in racks as large.
    """
    if not ranges.in_parts:
        return []
    sites = count_of(ranges.template.cluster.sites.count)
    servers = Divides((), tuple(chips), constant=server_chips(ranges), multiple=multiple)
    if racks:  # of whole servers
        full = Divides((ranges.name("chips_per_rack"),), tuple(chips), sites, multiple, shared)
        return [full, servers] if shared else [full]  # known of a group whose rack is not yet
    return [servers]
