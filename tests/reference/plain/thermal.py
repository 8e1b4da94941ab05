"""What a chip may draw, the clock that leaves it, and where its temperature settles."""

from __future__ import annotations

import math

from hwopt.hardware.chip import LEAKAGE_REFERENCE_K


def bisect(function, low: float, high: float) -> float:
    """Where a function that rises through zero crosses it."""
    for _ in range(200):
        middle = 0.5 * (low + high)
        if function(middle) < 0:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def draws(chip, clock: float, kelvin: float) -> dict[str, float]:
    """Watts of one chip at full load by cause."""
    volts = chip.threshold_voltage_fraction + (1.0 - chip.threshold_voltage_fraction) * clock
    return {
        "standby": chip.standby_power_w,
        "memory": chip.hbm_bandwidth_bytes_per_s * chip.hbm_energy_j_per_byte,
        "core": chip.core_power_w * clock * volts * volts,
        "leakage": chip.leakage_power_w * volts * math.exp(chip.leakage_per_k * (kelvin - LEAKAGE_REFERENCE_K)),
    }


def operating_point(chip, cooling) -> dict[str, float]:
    """Clock, temperature and watts by cause of a chip at full load, and its two margins."""
    resistance = cooling.sink_resistance_k_per_w + cooling.area_resistance_k_m2_per_w / chip.heat_area_m2
    rise = max(cooling.junction_limit_k - cooling.coolant_temperature_k, 1e-3)
    allowed = min(chip.power_cap_w, rise / resistance, cooling.heat_flux_limit_w_per_m2 * chip.heat_area_m2)
    warmest = cooling.coolant_temperature_k + resistance * allowed
    lowest, asked = min(0.05, chip.clock_ratio), chip.clock_ratio

    def at(clock, kelvin):
        return sum(draws(chip, clock, kelvin).values())

    def hottest(clock):
        """Where most heat besides leakage leaves, where its slope is zero."""
        spare = lambda t: (t - cooling.coolant_temperature_k) / resistance - draws(chip, clock, t)["leakage"]
        low, high = cooling.coolant_temperature_k + 1e-3, warmest
        slope = lambda t: 1.0 / resistance - chip.leakage_per_k * draws(chip, clock, t)["leakage"]
        if slope(high) >= 0.0 or low >= high:
            return max(high, low)
        best = low if slope(low) <= 0.0 else bisect(lambda t: -slope(t), low, high)
        assert spare(best) >= spare(high)
        return best

    def short(clock):
        kelvin = hottest(clock)
        return at(clock, kelvin) - (kelvin - cooling.coolant_temperature_k) / resistance

    def margin(clock):
        kelvin = hottest(clock)
        return math.log((kelvin - cooling.coolant_temperature_k) / resistance / at(clock, kelvin))

    if short(asked) <= 0.0:  # settles where heat made is heat carried away
        clock, coolest = asked, cooling.coolant_temperature_k
        kelvin = bisect(lambda t: t - coolest - resistance * at(asked, t), coolest, hottest(asked))
    elif short(lowest) < 0.0:
        clock = bisect(short, lowest, asked)
        kelvin = hottest(clock)
    else:  # does not run
        clock, kelvin = lowest, hottest(lowest)
    return {
        **draws(chip, clock, kelvin),
        "clock": clock,
        "kelvin": kelvin,
        "clock_margin": margin(asked),
        "cooling_margin": margin(lowest),
    }
