"""How heat leaves a chip, its rack and the building."""

from __future__ import annotations

import equinox as eqx

from hwopt.types import Scalar


class Cooling(eqx.Module):
    """One cooling technology around one kind of chip."""

    sink_resistance_k_per_w: Scalar  # coolant to lid, whatever the die: the air or liquid stream, the sink
    area_resistance_k_m2_per_w: Scalar  # junction to lid, times the die's area: interface, spreading, cold plate
    coolant_temperature_k: Scalar  # supplied to the rack
    junction_limit_k: Scalar  # where the chip throttles
    heat_flux_limit_w_per_m2: Scalar  # mean over the die
    rack_limit_w: Scalar
    fan_fraction: Scalar  # of server power that its fans take
    plant_fraction: Scalar  # pumps and coolers of the building over the heat they carry
    approach_k: Scalar  # coolant supply above the wet bulb without a chiller
    captured_fraction: Scalar  # heat that this coolant carries; the room's air takes the rest
    capital_usd_per_w: Scalar  # beyond the building's own cooling, per watt of IT load
