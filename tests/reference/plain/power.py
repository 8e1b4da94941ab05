"""Watts of a chip at the rack's inlet and at the meter."""

from __future__ import annotations

import math

from tests.reference.plain.failures import interruptions, standing_by
from tests.reference.plain.pool import watts as pool_watts
from tests.reference.plain.rack import leaving_bandwidth, levels


def at_the_inlet(cluster, point, core: float, memory: float, host: float) -> float:
    """One chip with its share of the server, by what its parts do (1: full load)."""
    network, site = cluster.network, cluster.facility
    watts = point["standby"] + point["leakage"] + core * point["core"] + memory * point["memory"]
    switches = (levels(cluster), 1.0, 1.0)
    for many, bandwidth, energy in zip(switches, network.bandwidth_bytes_per_s, network.energy_j_per_byte, strict=True):
        watts += many * float(bandwidth) * float(energy)
    watts += leaving_bandwidth(cluster) * cluster.rack.optics_energy_j_per_byte
    watts += pool_watts(cluster.pool)
    idle = site.host_power_w * site.idle_host_fraction
    watts += idle + host * (site.host_power_w - idle)
    return watts / (1.0 - cluster.cooling.fan_fraction) / site.supply_efficiency


def usage_effectiveness(cluster, design_day: bool = False) -> float:
    """Power at the meter over IT power, over the year or on the day that the plant is sized for."""
    site, cooling = cluster.facility, cluster.cooling
    overhead = site.other_fraction
    for share, plant, approach, supply in (
        (cooling.captured_fraction, cooling.plant_fraction, cooling.approach_k, cooling.coolant_temperature_k),
        (1.0 - cooling.captured_fraction, site.room_plant_fraction, site.room_approach_k, site.room_temperature_k),
    ):
        mean, spread = (site.design_wet_bulb_k, 1.0) if design_day else (site.wet_bulb_k, site.wet_bulb_spread_k)
        sigmas = (mean + approach - supply) / spread
        too_warm = 0.5 * (1.0 + math.erf(sigmas / math.sqrt(2.0)))
        overhead += share * (plant + too_warm / site.chiller_cop)
    return (1.0 + overhead) / site.distribution_efficiency


def beside(cluster, point) -> dict[str, float]:
    """Chips that stand by, and IT watts of all: at full load, and of spares and storage on average."""
    spares = standing_by(cluster, interruptions(cluster, cluster.chips, point["kelvin"]))
    shelf = cluster.storage.capacity_bytes * cluster.storage.power_w_per_byte
    shelf += cluster.storage.checkpoint_bytes_per_s_per_chip * cluster.storage.energy_j_per_byte
    full = at_the_inlet(cluster, point, 1.0, 1.0, 1.0)
    return {
        "spares": spares,
        "fed": cluster.chips * (full + shelf) + spares * full,
        "standing": cluster.chips * shelf + spares * at_the_inlet(cluster, point, 0.0, 0.0, 0.0),
    }


def power(cluster, point, step: dict, arithmetic_s: float) -> dict[str, float]:
    """Watts of one chip and at the meter; `arithmetic_s` of a step by the power of full load, at the clock asked for."""
    step_s = step["step"]
    core = arithmetic_s / step_s * step["energy"]
    full = at_the_inlet(cluster, point, 1.0, 1.0, 1.0)
    average = at_the_inlet(cluster, point, core, step["hbm"] / step_s, step["busy"] / step_s)
    pue, others = usage_effectiveness(cluster), beside(cluster, point)
    return {
        **others,
        "chip": point["standby"] + point["leakage"] + point["core"] + point["memory"],
        "it_peak": full,
        "rack": full * cluster.rack.chips,
        "pue": pue,
        "design_pue": usage_effectiveness(cluster, design_day=True),
        "peak": others["fed"] * usage_effectiveness(cluster, design_day=True),
        "average": pue * (cluster.chips * average + others["standing"]),
    }
