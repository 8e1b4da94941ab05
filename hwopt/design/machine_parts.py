"""Integer variables of a machine: chips per rack, NICs, links, memory stacks, dies and compute units.

Hardware can be restricted to whole units. A machine then has whole servers and full racks, and integer numbers of NICs and
lanes. A scale-up domain has whole servers, and is either within one rack or spans whole racks.
"""

from collections.abc import Sequence

from hwopt.design.variables import Ranges, count_of
from hwopt.errors import UserError
from hwopt.integers.relations import Divides, Nested, ProductLimit, Relation
from hwopt.integers.system import Integer, RangePiece, Role, integer

_PSEUDO_COST = 0.004
"""Initial pseudo-cost of coordinates that are parts of a server (with 0.05, the search needs twice the node relaxations)."""

_RACKS = 0.03
"""Initial pseudo-cost of the chips per rack where the domain size is free. Optics between racks are a third of some machines'
cost. A node whose racks may contain a whole domain has no such cost in its relaxation. Test with categories and degrees of
gpt-oss-120b's best design fixed: with `_PSEUDO_COST`, a gap of 19.8 % remained after 12,488 node relaxations; with 0.1, the
proof took 5,964.
"""

_NICS = tuple(sorted({n * m for n in (1, 3) for m in (1, 2, 4, 8, 16, 32, 64)}))
"""NIC ports per server that pair up with its chips: powers of two, and three times these."""

MACHINE_WORDS = {
    "scale_up_domain": "domains of whole groups", "chips_per_rack": "chips in a rack", "hbm_stacks": "HBM stacks", "dies": "dies",
    "enabled_fraction": "compute units left on",
    "scale_up_lanes": "lanes", "coolant_degc": "degrees of the coolant", "nics_per_server": "NICs a server",
}  # fmt: skip
"""Variable of a machine -> description of its unit, for texts about free variables."""


def machine_integers(ranges: Ranges) -> tuple[Integer, ...]:
    """Return the integer coordinates of a rack, a server and a package."""
    of, name_of = ranges.of, ranges.name
    package = tuple(
        integer(name_of(name), of(name), rounding=1, sloped=True) for name in ("hbm_stacks", "dies")
    )  # rounded up, so that memory and reticle still suffice
    if ranges.frees("coolant_degc"):  # PUE has no convex form in it: each degree has nodes of its own
        package += (integer(name_of("coolant_degc"), of("coolant_degc"), role=Role.root),)
    if _chooses_units(ranges):
        least, most = (share * _units(ranges) for share in of("enabled_fraction"))
        package += (integer(_ENABLED, (least, most), near=2, pseudo_cost=_PSEUDO_COST, sloped=True),)
    if not ranges.in_parts:
        return (integer(name_of("chips_per_rack"), of("chips_per_rack"), rounding=-1), *package)
    least, most = of("scale_up_domain")
    racks = integer(name_of("chips_per_rack"), of("chips_per_rack"), among=_rack_sizes(ranges), rounding=-1,
                    pseudo_cost=_PSEUDO_COST if least == most else _RACKS, near=3)  # fmt: skip
    ports = of("nics_per_server")
    paired = _NICS if ports[0] < ports[1] else None  # a fixed number is that of the system
    nics = integer(name_of("nics_per_server"), ports, among=paired, sloped=True, pseudo_cost=_PSEUDO_COST)
    lanes = (
        (integer(name_of("scale_up_lanes"), of("scale_up_lanes"), sloped=True, pseudo_cost=_PSEUDO_COST),)
        if ranges.frees("scale_up_lanes")
        else ()
    )
    return (racks, nics, *lanes, *package)


def _rack_sizes(ranges: Ranges) -> list[int]:
    """Return the possible numbers of chips per rack: multiples of a server that are on sale.

    With a fixed domain size, one must divide the other.

    **Raises:** `UserError` where none is within the question's bounds.
    """
    (low, high), server = ranges.of("chips_per_rack"), server_chips(ranges)
    least, most = map(round, ranges.of("scale_up_domain"))
    sold = ranges.variables[ranges.name("chips_per_rack")].among if ranges.frees("chips_per_rack") else ()
    sizes = [size for size in range(server, round(high) + 1, server) if size >= low and (not sold or size in sold)]
    if sold and not sizes:
        raise UserError(
            f"chips_per_rack from {low:g} to {high:g}: this system is sold with {', '.join(map(str, sold))} chips per rack; "
            "--free racks allows others"
        )
    if least != most or uses_part(ranges):
        return sizes
    return [size for size in sizes if size % most == 0 or most % size == 0]


def uses_part(ranges: Ranges) -> bool:
    """Return whether jobs may leave chips of each rack idle: rack and scale-up domain then have only the used chips."""
    return ranges.frees("chips_per_rack") and count_of(ranges.template.cluster.rack.sold_chips) > 0


def server_chips(ranges: Ranges) -> int:
    """Return the number of chips of one server."""
    return max(count_of(ranges.template.cluster.rack.server_chips), 1)


def system_chips(ranges: Ranges) -> int:
    """Return the number of chips of one system: the smallest purchase."""
    return max(count_of(ranges.template.cluster.rack.system_chips), server_chips(ranges))


def machine_relations(ranges: Ranges) -> list[Relation]:
    """Return the relations of domain (`tp` times `groups` chips), server and rack, and of enabled compute units."""
    units: list[Relation] = []
    if _chooses_units(ranges):
        ends = ranges.of("enabled_fraction")
        units = [
            ProductLimit(
                (_ENABLED,), (), *ends, coefficient=1.0 / _units(ranges), name="enabled_fraction", follows=_ENABLED
            )
        ]
    if uses_part(ranges):
        return [*units, Divides(("tp",), (ranges.name("chips_per_rack"),))]
    least, most = ranges.of("scale_up_domain")
    if not ranges.in_parts or least == most:
        return units
    return [
        *units,
        Divides((), ("tp", "groups"), constant=server_chips(ranges)),
        Nested(("tp", "groups"), ("chips_per_rack",)),
    ]


_ENABLED = "enabled_units"
"""Coordinate: number of enabled compute units of a die."""


def _chooses_units(ranges: Ranges) -> bool:
    """Return whether the question optimizes the number of spare compute units of a parametric chip."""
    least, most = ranges.of("enabled_fraction")
    return least < most


def _units(ranges: Ranges) -> int:
    """Return the number of compute units on one die of a parametric chip, spare ones included."""
    assert ranges.template.project is not None
    return max(count_of(ranges.template.project.compute_units), 1)


PIECES = 128
"""Number of segments of a parametric chip's areas. Cooling is not convex in the area, except within a small segment."""

_SIZES = ("compute_area_m2", "sram_bytes")


def size_pieces(ranges: Ranges) -> tuple[RangePiece, ...]:
    """Return the segments, of equal ratio, of the areas that the question optimizes."""
    free = [name for name in _SIZES if ranges.frees(name) and ranges.of(name)[0] < ranges.of(name)[1]]
    return tuple(_pieces(name, ranges.of(name), PIECES) for name in free)


def _pieces(name: str, ends: tuple[float, float], count: int) -> RangePiece:
    """Divide a range into segments of equal ratio."""
    low, high = ends
    return RangePiece(name, (*(low * (high / low) ** (i / count) for i in range(count)), high))


CLOCK_PIECES = 1024
"""Number of segments of the clock where percentiles are limited: a node bounds percentiles only by the ends of its ranges."""


def clock_pieces(ranges: Ranges) -> tuple[RangePiece, ...]:
    """Return the segments, of equal ratio, of the clock, where it is free."""
    low, high = ranges.of("clock_ratio")
    free = ranges.frees("clock_ratio") and low < high
    return (_pieces(ranges.name("clock_ratio"), (low, high), CLOCK_PIECES),) if free else ()


def piece_integer(piece: RangePiece) -> Integer:
    """Return the integer coordinate that selects a segment of a continuous variable."""
    return Integer(piece.name, 1, len(piece.edges) - 1, pseudo_cost=_PSEUDO_COST)


def whole_racks(ranges: Ranges, chips: Sequence[str], racks: bool = True, shared: bool = False) -> list[Relation]:
    """Return the relations for full racks of whole servers and for whole systems, where hardware is bought in whole units.

    **Arguments:**

    - `ranges`: bounds of the machine's variables.
    - `chips`: coordinates whose product is the number of chips.
    - `racks`: whether racks must be full.
    - `shared`: whether another group of chips serves as well, in racks of its own or of the same size.
    """
    if not ranges.in_parts:
        return []
    sites = count_of(ranges.template.cluster.sites.count)
    servers = Divides((), tuple(chips), constant=server_chips(ranges))
    if racks:  # a rack consists of whole servers, so that full racks suffice
        full = Divides((ranges.name("chips_per_rack"),), tuple(chips), sites, shared=shared)
        if not uses_part(ranges) and system_chips(ranges) > max(
            server_chips(ranges), ranges.of("chips_per_rack")[0]
        ):  # a pod of several racks
            return [full, Divides((), tuple(chips), constant=sites * system_chips(ranges))]
        return [full, servers] if shared else [full]  # the server relation is usable before the rack size is fixed
    return [servers]
