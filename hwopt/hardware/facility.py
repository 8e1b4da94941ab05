"""The building and the servers around the chips: power, climate, electricity, carbon."""

from __future__ import annotations

import equinox as eqx

from hwopt.types import Scalar


class Facility(eqx.Module):
    """What turns chip power into power at the meter, and energy into money and carbon."""

    host_power_w: Scalar  # CPU, memory, NIC, storage per chip at full load, without fans and conversion
    idle_host_fraction: Scalar  # share of host power drawn without work
    supply_efficiency: Scalar  # rack inlet to boards: power shelves and converters ahead of the chip's own
    distribution_efficiency: Scalar  # meter to rack inlet: transformers, UPS, busway
    other_fraction: Scalar  # lighting, redundancy, plant at part load, over IT power
    wet_bulb_k: Scalar  # mean over the year
    wet_bulb_spread_k: Scalar  # standard deviation over the year
    room_temperature_k: Scalar  # air for the heat that liquid does not capture
    room_approach_k: Scalar  # room air above the wet bulb without a chiller
    room_plant_fraction: Scalar  # its fans and pumps, over the heat they carry
    chiller_cop: Scalar  # heat moved over work of compressors
    electricity_usd_per_j: Scalar
    carbon_kg_per_j: Scalar
    construction_usd_per_w: Scalar  # facility capex per watt of IT load
    construction_lifetime_s: Scalar
    construction_carbon_kg_per_w: Scalar
