"""The clock that kernels keep where a chip may not draw what full load would."""

from __future__ import annotations

from tests.reference.plain.thermal import bisect


def volts(chip, clock: float) -> float:
    return chip.threshold_voltage_fraction + (1.0 - chip.threshold_voltage_fraction) * clock


def asked_core_w(chip) -> float:
    return chip.core_power_w * chip.clock_ratio * volts(chip, chip.clock_ratio) ** 2


def pace(chip, kernels) -> tuple[float, float]:
    """How many times as long arithmetic takes as at the clock asked for, and the share of that clock's energy."""
    full, asked = chip.full_load, chip.clock_ratio
    arithmetic, added, _, hbm = kernels
    if full["clock_margin"] >= 0.0 or full["cooling_margin"] <= 0.0 or arithmetic == 0.0:
        return 1.0, 1.0
    allowed = full["standby"] + full["memory"] + full["core"] + full["leakage"]

    def too_much(clock: float) -> float:
        """Mean watts beyond those allowed."""
        joules = asked_core_w(chip) * (volts(chip, clock) / volts(chip, asked)) ** 2 * arithmetic + full["memory"] * hbm
        leaked = full["leakage"] * volts(chip, clock) / volts(chip, full["clock"])
        return full["standby"] + leaked + joules / (added + arithmetic * asked / clock) - allowed

    if too_much(asked) <= 0.0:
        return 1.0, 1.0
    clock = bisect(too_much, full["clock"], asked)
    return float(asked / clock), float((volts(chip, clock) / volts(chip, asked)) ** 2)
