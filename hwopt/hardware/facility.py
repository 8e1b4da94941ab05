"""The building, its racks and their cooling: power, heat, climate, electricity, carbon."""

import equinox as eqx

from hwopt.quantity import computed, quantity, ratio, switch
from hwopt.types import Scalar

COOLANT_K = (290.15, 333.15)
"""Physical bounds of a coolant's supply temperature: facility water of class W17 up to the highest boiling point of two-phase
fluids. Each technology states its own range within them, such as 17 to 45 degC of cold plates."""


class Facility(eqx.Module):
    """A building that supplies and cools chips: efficiencies, climate, prices of energy and construction, and carbon."""

    host_power_w: Scalar = quantity("W", "CPU, memory, NIC, storage per chip at full load, without fans and conversion")
    idle_host_fraction: Scalar = ratio("share of host power drawn without work")
    supply_efficiency: Scalar = ratio(
        "rack inlet to boards: power shelves and converters ahead of the chip's own", most=1.0
    )
    distribution_efficiency: Scalar = ratio("meter to rack inlet: transformers, UPS, busway", most=1.0)
    other_fraction: Scalar = ratio("lighting, redundancy, plant at part load of an air-cooled hall, over IT power")
    wet_bulb_k: Scalar = quantity("K", "mean over the year", stated="degC")
    wet_bulb_spread_k: Scalar = quantity("K", "standard deviation over the year")
    design_wet_bulb_k: Scalar = quantity(
        "K", "exceeded in 0.4 % of the hours of a year: what cooling is sized for", stated="degC"
    )
    room_temperature_k: Scalar = quantity("K", "air for the heat that liquid does not capture", stated="degC")
    room_approach_k: Scalar = quantity("K", "room air above the wet bulb without a chiller")
    room_range_k: Scalar = quantity("K", "rise of the room's air from supply to return")
    room_plant_fraction: Scalar = ratio("its fans and pumps, over the heat they carry")
    chiller_cop: Scalar = ratio("heat moved over work of compressors")
    electricity_usd_per_j: Scalar = quantity("USD/J", "price at the meter")
    carbon_kg_per_j: Scalar = quantity("kg/J", "of the grid's electricity")
    construction_usd_per_w: Scalar = quantity("USD/W", "facility capex per watt of IT load")
    construction_lifetime_s: Scalar = quantity("s", "over which the building is written off")
    construction_carbon_kg_per_w: Scalar = quantity("kg/W", "of making the building, per watt of IT load")


class Rack(eqx.Module):
    """A rack of servers. Links within it are copper; links of a scale-up domain that leave the rack are optical."""

    chips: Scalar = computed("chip", "in one rack that a job uses")
    server_chips: Scalar = switch("chips in one server or tray, which fails and is repaired whole", key="")
    system_chips: Scalar = switch("chips in one system, which is bought whole: a server, a rack or a pod", key="")
    sold_chips: Scalar = switch(
        "chips in one rack as sold, where jobs may use fewer and the others are hot spares; else 0", key="", default=0.0
    )
    busbar_limit_w: Scalar = quantity("W", "IT power the rack's busbar and supplies carry")
    chip_weight_kg: Scalar = quantity("kg", "one chip with its share of server, switches and cold plates")
    empty_weight_kg: Scalar = quantity("kg", "frame, busbar, power shelves, manifold")
    weight_limit_kg: Scalar = quantity("kg", "what the floor carries")
    floor_area_m2: Scalar = quantity("m2", "with its share of aisles")
    price_usd: Scalar = quantity("USD", "frame, busbar, power shelves, manifold")
    carbon_kg: Scalar = quantity("kg", "of making frame, busbar, power shelves and manifold")
    cable_area_m2_per_byte_per_s: Scalar = quantity(
        "m2/(B/s)", "cross-section of the copper cables of a scale-up link", of="scale_up"
    )
    cable_limit_m2: Scalar = quantity("m2", "cross-section of cables that the rack has room to bend")
    cable_weight_kg_per_byte_per_s: Scalar = quantity("kg/(B/s)", "of those cables", of="scale_up")
    optics_energy_j_per_byte: Scalar = quantity("J/B", "both ends of a link that leaves the rack")
    optics_usd_per_byte_per_s: Scalar = quantity("USD/(B/s)", "both ends of such a link", key="optics_price")


class Cooling(eqx.Module):
    """One cooling technology around one type of chip."""

    sink_resistance_k_per_w: Scalar = quantity(
        "K/W", "coolant to lid, whatever the die: the air or liquid stream, the sink"
    )
    area_resistance_k_m2_per_w: Scalar = quantity(
        "K.m2/W", "junction to lid, times the die's area: interface, spreading, cold plate"
    )
    coolant_temperature_k: Scalar = quantity(
        "K", "supplied to the rack", stated="degC", least=COOLANT_K[0], most=COOLANT_K[1]
    )
    usual_coolant_k: Scalar = quantity(
        "K", "coolant of the halls whose construction cost is stated: the technology's usual one", key="", varies=False
    )
    junction_limit_k: Scalar = quantity("K", "where the chip throttles", key="junction_temperature", stated="degC")
    heat_flux_limit_w_per_m2: Scalar = quantity("W/m2", "mean over the die", key="heat_flux")
    rack_limit_w: Scalar = quantity("W", "IT power of a rack that it cools", key="rack_power")
    loop_racks: Scalar = ratio("racks that one loop, or row of air handlers, cools and stops with it", default=8.0)
    fan_fraction: Scalar = ratio("of server power that its fans take", most=1.0)
    plant_fraction: Scalar = ratio("pumps and coolers of the building over the heat they carry")
    approach_k: Scalar = quantity("K", "coolant supply above the wet bulb without a chiller")
    range_k: Scalar = quantity("K", "rise of the coolant from supply to return")
    other_share: Scalar = ratio("of the site's other losses, which are those of an air-cooled hall", most=1.0)
    captured_fraction: Scalar = ratio(
        "heat that this coolant carries; the room's air takes the rest", key="heat_captured", most=1.0
    )
    capital_usd_per_w: Scalar = quantity(
        "USD/W", "beyond the building's own cooling, per watt of IT load", key="capital_cost"
    )
