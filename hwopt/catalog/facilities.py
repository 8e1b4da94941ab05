"""Buildings, cooling and racks around chips."""

from __future__ import annotations

import math
from pathlib import Path

from hwopt.catalog.load import leaf, record, supported
from hwopt.errors import UserError
from hwopt.hardware.cooling import Cooling
from hwopt.hardware.facility import Facility
from hwopt.hardware.memory_pool import MemoryPool
from hwopt.hardware.network import Network
from hwopt.hardware.rack import Rack

_USUAL_CABLES = "nvlink-5"
"""Link whose copper stands for that of links that state none (estimate)."""

_ZERO_CELSIUS_K = 273.15  # by definition


def facility(site: str | Path, chip: str | Path) -> Facility:
    """The building at a site around servers of a chip.

    Host power is the chip's `host_power` where it states one, the site's otherwise.

    **Raises:** `UserError` for unknown names or bad files.
    """
    place, held = supported("sites", site), supported("chips", chip)
    return Facility(
        host_power_w=leaf(held.si("host_power", place.si("host_power"))),
        idle_host_fraction=leaf(place.si("idle_host_fraction")),
        supply_efficiency=leaf(place.si("supply_efficiency")),
        distribution_efficiency=leaf(place.si("distribution_efficiency")),
        other_fraction=leaf(place.si("other_fraction")),
        wet_bulb_k=leaf(place.si("wet_bulb") + _ZERO_CELSIUS_K),
        wet_bulb_spread_k=leaf(place.si("wet_bulb_spread")),
        room_temperature_k=leaf(place.si("room_temperature") + _ZERO_CELSIUS_K),
        room_approach_k=leaf(place.si("room_approach")),
        room_plant_fraction=leaf(place.si("room_plant_fraction")),
        chiller_cop=leaf(place.si("chiller_cop")),
        electricity_usd_per_j=leaf(place.si("electricity")),
        carbon_kg_per_j=leaf(place.si("carbon")),
        construction_usd_per_w=leaf(place.si("construction")),
        construction_lifetime_s=leaf(place.si("construction_lifetime")),
        construction_carbon_kg_per_w=leaf(place.si("construction_carbon")),
    )


def default_cooling(chip: str | Path, site: str | Path) -> str:
    """The cooling that a chip's servers are built for, or else the site's."""
    return str(record("chips", chip).text.get("cooling") or record("sites", site).text.get("cooling") or "air")


def cooling(name: str | Path, chip: str | Path | None = None) -> Cooling:
    """A cooling technology around a chip, whose own `junction_limit` counts where it states one.

    **Raises:** `UserError` for unknown names, bad files, or a coolant that is no cooler than the junction may be.
    """
    held = supported("cooling", name)
    limit = held.si("junction_temperature")
    if chip is not None:
        limit = supported("chips", chip).si("junction_limit", limit)
    coolant = held.si("coolant_temperature")
    if coolant >= limit:
        raise UserError(
            f"cooling '{held.slug}': a coolant of {coolant:g} degC cannot hold a junction at {limit:g} degC"
        )
    for share in ("fan_fraction", "heat_captured"):
        if held.si(share) > 1.0 or (share == "fan_fraction" and held.si(share) == 1.0):
            raise UserError(f"cooling '{held.slug}': '{share}' = {held.si(share):g} is no share of a whole")
    return Cooling(
        sink_resistance_k_per_w=leaf(held.si("sink_resistance")),
        area_resistance_k_m2_per_w=leaf(held.si("area_resistance")),
        coolant_temperature_k=leaf(coolant + _ZERO_CELSIUS_K),
        junction_limit_k=leaf(limit + _ZERO_CELSIUS_K),
        heat_flux_limit_w_per_m2=leaf(held.si("heat_flux")),
        rack_limit_w=leaf(held.si("rack_power")),
        fan_fraction=leaf(held.si("fan_fraction")),
        plant_fraction=leaf(held.si("plant_fraction")),
        approach_k=leaf(held.si("approach")),
        captured_fraction=leaf(held.si("heat_captured")),
        capital_usd_per_w=leaf(held.si("capital_cost")),
    )


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
    """A rack of servers of a chip, filled as far as power, weight and cables allow.

    Chips are provisioned at `(TDP + host + network + memory pool) / (1 - fans) / efficiency`, with optics on all scale-up
    links where the domain does not fit. A rack that has room for a whole scale-up domain holds whole domains; any rack holds
    one chip, and says so where even that is too much (`rack_power` margin).

    **Arguments:** `name` of a rack, or a path; `chips` a rack, instead of as many as fit; `scale_up` link, whose cables the
    rack holds, instead of the chip's own. A link that states no cables has NVLink 5's.

    **Raises:** `UserError` for unknown names or bad files.
    """
    held = supported("racks", name)
    link = supported("links", str(supported("chips", chip).text["scale_up"]) if scale_up is None else scale_up)
    usual = supported("links", _USUAL_CABLES)
    area, weight = (link.si(key, usual.si(key)) for key in ("cable_area", "cable_weight"))
    if chips is None:
        inside = (network.bandwidth_bytes_per_s * network.energy_j_per_byte).sum()
        beside = pool.capacity_bytes * pool.power_w_per_byte + pool.bandwidth_bytes_per_s * pool.energy_j_per_byte
        boards = supported("chips", chip).si("tdp") + building.host_power_w + inside + beside
        optics = network.bandwidth_bytes_per_s[0] * held.si("optics_energy")
        losses = (1.0 - around.fan_fraction) * building.supply_efficiency
        limit = min(float(around.rack_limit_w), held.si("busbar_limit"))
        cabled = float(network.bandwidth_bytes_per_s[0]) if float(network.size[0]) > 1.0 else 0.0
        room = held.si("weight_limit") - held.si("empty_weight")
        by_weight = room / (held.si("chip_weight") + cabled * weight)
        by_cables = held.si("cable_limit") / (cabled * area) if cabled else math.inf
        if by_cables < float(network.size[0]):  # of n chips of a larger domain, a share n / D of the links is copper
            by_cables = math.sqrt(by_cables * float(network.size[0]))

        def fit(each_w: float) -> int:
            return max(math.floor(min(limit * losses / each_w, by_weight, by_cables)), 1)

        most, domain = fit(boards), float(network.size[0])
        chips = domain * (most // domain) if most >= domain else fit(boards + optics)
    return Rack(
        chips=leaf(chips),
        busbar_limit_w=leaf(held.si("busbar_limit")),
        chip_weight_kg=leaf(held.si("chip_weight")),
        empty_weight_kg=leaf(held.si("empty_weight")),
        weight_limit_kg=leaf(held.si("weight_limit")),
        floor_area_m2=leaf(held.si("floor_area")),
        price_usd=leaf(held.si("price")),
        cable_area_m2_per_byte_per_s=leaf(area),
        cable_limit_m2=leaf(held.si("cable_limit")),
        cable_weight_kg_per_byte_per_s=leaf(weight),
        optics_energy_j_per_byte=leaf(held.si("optics_energy")),
        optics_usd_per_byte_per_s=leaf(held.si("optics_price")),
    )
