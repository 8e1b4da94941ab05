"""Watts of a chip at the rack's inlet and at the meter."""

from __future__ import annotations

import math

from tests.reference.plain.failures import interruptions, standing_by
from tests.reference.plain.pool import watts as pool_watts
from tests.reference.plain.rack import filled, idle, leaving_bandwidth, levels


def at_the_inlet(cluster, point, core: float, memory: float, host: float) -> float:
    """One chip with its share of the server, by what its parts do (1: full load)."""
    network, site = cluster.network, cluster.facility
    core = 0.95 * host + 0.05 * core  # most core power flows for as long as kernels run
    watts = point["standby"] + point["leakage"] + core * point["core"] + memory * point["memory"]
    switches = (levels(cluster), 1.0, 1.0)
    for many, bandwidth, energy in zip(switches, network.bandwidth_bytes_per_s, network.energy_j_per_byte, strict=True):
        watts += many * float(bandwidth) * float(energy)
    watts += leaving_bandwidth(cluster) * cluster.rack.optics_energy_j_per_byte
    watts += pool_watts(cluster.pool)
    idle = site.host_power_w * site.idle_host_fraction
    watts += idle + host * (site.host_power_w - idle)
    return watts / (1.0 - cluster.cooling.fan_fraction) / site.supply_efficiency


def above_on_average(mean: float, spread: float) -> float:
    """Kelvin above zero, on average, of a normal variable that counts as zero below."""
    density = math.exp(-0.5 * (mean / spread) ** 2) / math.sqrt(2.0 * math.pi)
    return mean * 0.5 * math.erfc(-mean / spread / math.sqrt(2.0)) + spread * density


def usage_effectiveness(cluster, design_day: bool = False, usual: bool = False) -> float:
    """Power at the meter over IT power, over the year or on the day that the plant is sized for; with the usual coolant."""
    site, cooling = cluster.facility, cluster.cooling
    overhead = site.other_fraction * cooling.other_share
    mean, spread = (site.design_wet_bulb_k, 1.0) if design_day else (site.wet_bulb_k, site.wet_bulb_spread_k)
    coolant = cooling.usual_coolant_k if usual else cooling.coolant_temperature_k
    room = site.room_temperature_k
    for share, plant, leaves, supply, rise in (
        (cooling.captured_fraction, cooling.plant_fraction, mean + cooling.approach_k, coolant, cooling.range_k),
        (
            1.0 - cooling.captured_fraction,
            site.room_plant_fraction,
            mean + site.room_approach_k,
            room,
            site.room_range_k,
        ),
    ):
        above = above_on_average(leaves - supply, spread) - above_on_average(leaves - supply - rise, spread)
        overhead += share * (plant + above / rise / site.chiller_cop)
    return (1.0 + overhead) / site.distribution_efficiency


def beside(cluster, point) -> dict[str, float]:
    """Chips that stand by, and IT watts of all: at full load, and of spares and storage on average."""
    spares = max(standing_by(cluster, interruptions(cluster, cluster.chips, point["kelvin"])), idle(cluster))
    shelf = cluster.storage.capacity_bytes * cluster.storage.power_w_per_byte
    shelf += cluster.chips * cluster.storage.checkpoint_bytes_per_s_per_chip * cluster.storage.energy_j_per_byte
    full = at_the_inlet(cluster, point, 1.0, 1.0, 1.0)
    return {
        "spares": spares,
        "fed": cluster.chips * full + shelf + spares * full,
        "standing": shelf + spares * at_the_inlet(cluster, point, 0.0, 0.0, 0.0),
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
        "rack": full * filled(cluster),
        "pue": pue,
        "design_pue": usage_effectiveness(cluster, design_day=True),
        "peak": others["fed"] * usage_effectiveness(cluster, design_day=True),
        "average": pue * (cluster.chips * average + others["standing"]),
    }
