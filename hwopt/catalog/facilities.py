"""Buildings, cooling and racks around chips, from catalog entries."""

import math
from pathlib import Path
from typing import Any

from hwopt.catalog.load import built, record, supported
from hwopt.catalog.systems import rack_sizes, system_of, used_chips
from hwopt.hardware.facility import Cooling, Facility, Rack
from hwopt.hardware.network import Network
from hwopt.hardware.peripherals import MemoryPool
from hwopt.units import ZERO_CELSIUS_K

_USUAL_CABLES = "nvlink-5"
"""Link whose copper cables are assumed for links that state none (estimate)."""


def facility(site: str | Path, chip: str | Path) -> Facility:
    """Return the building at a site, equipped for servers of a chip.

    Host power is the chip's `host_power` where its entry states one, the site's otherwise.

    **Arguments:** name or path of a `site` and of a `chip`.

    **Raises:** `UserError` for unknown names or bad files.
    """
    place = supported("sites", site)
    return built(Facility, place, host_power_w=supported("chips", chip).si("host_power", place.si("host_power")))


def default_cooling(chip: str | Path, site: str | Path) -> str:
    """Return the name of the cooling technology that a chip's servers are built for.

    If the chip's entry states none, it is the site's cooling; if the site's states none either, `air`.
    """
    return str(record("chips", chip).text.get("cooling") or record("sites", site).text.get("cooling") or "air")


def own_cooling(chip: str | Path) -> Cooling:
    """Return the cooling that a chip's servers are built for: air where its entry names none."""
    return cooling(str(record("chips", chip).text.get("cooling") or "air"), chip)


def coolant_range(name: str | Path, chip: str | Path | None = None) -> tuple[float, float]:
    """Return the lowest and highest supply temperature of a cooling technology's coolant, degC.

    It is the range that the entry states, up to the limit at the inlet that the chip's system states, if any.
    """
    stated = supported("cooling", name).quantities["coolant_temperature"]
    low, high = (stated.value if end is None else end for end in (stated.low, stated.high))
    return low, high if chip is None else min(high, system_of(chip).si("coolant_limit", high))


def cooling(name: str | Path, chip: str | Path | None = None, coolant_degc: float | None = None) -> Cooling:
    """Return a cooling technology around a chip. The chip's own `junction_limit` replaces the entry's where it states one.

    **Arguments:** `coolant_degc`: supply temperature of the coolant, within `coolant_range`; by default the entry's.

    **Raises:** `UserError` for unknown names, bad files, or a coolant that is out of range or not cooler than the junction
    limit.
    """
    entry = supported("cooling", name)
    usual, (low, high) = entry.si("coolant_temperature"), coolant_range(name, chip)
    if coolant_degc is not None:
        if not low <= coolant_degc <= high:
            entry.refuse(f"coolant_degc = {coolant_degc:g} must be within {low:g} .. {high:g} degC")
        own = {"value": float(coolant_degc), "low": low, "high": high}
        stated = entry.quantities["coolant_temperature"].model_copy(update=own)
        entry = entry.model_copy(update={"quantities": entry.quantities | {"coolant_temperature": stated}})
    limit = entry.si("junction_temperature")
    if chip is not None:
        limit = supported("chips", chip).si("junction_limit", limit)
    coolant = entry.si("coolant_temperature")
    if coolant >= limit:
        entry.refuse(f"a coolant of {coolant:g} degC cannot hold a junction at {limit:g} degC")
    if entry.si("fan_fraction") == 1.0:
        entry.refuse("'fan_fraction' = 1 leaves power for fans only")
    return built(Cooling, entry, junction_limit_k=limit + ZERO_CELSIUS_K, usual_coolant_k=usual + ZERO_CELSIUS_K)


def rack(
    name: str | Path,
    chip: str | Path,
    around: Cooling,
    building: Facility,
    network: Network,
    pool: MemoryPool,
    chips: float | None = None,
    scale_up: str | Path | None = None,
) -> Rack:
    """Return a rack of servers of a chip, filled as far as power, weight and cables allow.

    Power provisioned per chip is `(TDP + host + network + memory pool) / (1 - fans) / efficiency`. It includes optics
    on all scale-up links if the scale-up domain does not fit into the rack. A rack with room for a whole scale-up
    domain contains whole domains only. Any rack contains at least one chip; the `rack_power` margin reports when even
    that is too much.

    **Arguments:**

    - `name`: a rack of the catalog, or a path.
    - `chip`, `around`, `building`, `network`, `pool`: the chip and everything that determines its power.
    - `chips`: chips per rack, instead of as many as fit among those in which the chip's system is sold.
    - `scale_up`: the link whose cables fill the rack, instead of the chip's own.

    A link that states no cables has those of NVLink 5. A link may state energy and price of its optics between racks;
    they replace the rack's, which are those of a domain behind switches.

    **Raises:** `UserError` for unknown names or bad files.
    """
    entry, system = supported("racks", name), system_of(chip)
    link = supported("links", str(supported("chips", chip).text["scale_up"]) if scale_up is None else scale_up)
    usual = supported("links", _USUAL_CABLES)
    area, weight = (link.si(key, usual.si(key)) for key in ("cable_area", "cable_weight"))
    optics_energy, optics_price = (link.si(key, entry.si(key)) for key in ("optics_energy", "optics_price"))
    if chips is None:
        inside = (network.bandwidth_bytes_per_s * network.energy_j_per_byte).sum()
        beside = pool.capacity_bytes * pool.power_w_per_byte + pool.bandwidth_bytes_per_s * pool.energy_j_per_byte
        boards = supported("chips", chip).si("tdp") + building.host_power_w + inside + beside
        optics = network.bandwidth_bytes_per_s[0] * optics_energy
        losses = (1.0 - around.fan_fraction) * building.supply_efficiency
        limit, domain = min(float(around.rack_limit_w), entry.si("busbar_limit")), float(network.size[0])
        cabled = float(network.bandwidth_bytes_per_s[0]) if domain > 1.0 else 0.0
        room = entry.si("weight_limit") - entry.si("empty_weight")
        by_weight = room / (entry.si("chip_weight") + cabled * weight)
        by_cables = entry.si("cable_limit") / (cabled * area) if cabled else math.inf
        if by_cables < domain:  # of n chips of a larger domain, a share n / D of the links is copper
            by_cables = math.sqrt(by_cables * domain)

        def fit(each_w: Any) -> int:
            return max(math.floor(min(limit * losses / each_w, by_weight, by_cables)), 1)

        most = fit(boards)
        chips = domain * (most // domain) if most >= domain else fit(boards + optics)
        chips = max((size for size in rack_sizes(system) if size <= chips), default=chips)
    servers = supported("chips", chip).si("server_chips", 1.0)
    whole = bool(used_chips(system)) and system.si("chips") == chips == float(network.size[0])
    return built(
        Rack,
        entry,
        chips=chips,
        server_chips=servers,
        system_chips=system.si("chips"),
        sold_chips=chips if whole else 0.0,
        cable_area_m2_per_byte_per_s=area,
        cable_weight_kg_per_byte_per_s=weight,
        optics_energy_j_per_byte=optics_energy,
        optics_usd_per_byte_per_s=optics_price,
    )
