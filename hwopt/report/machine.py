"""Lines that the screens of training and of serving share: time, what is violated, chip, racks, power, constants."""

from __future__ import annotations

import math

from hwopt.evidence.intervals import Interval
from hwopt.model.report import Report
from hwopt.model.serving.report import ServingReport
from hwopt.report.layout import bar, heading
from hwopt.report.parts import breakdown_shares
from hwopt.units import pretty


def time_parts(report: Report | ServingReport) -> list[str]:
    """Parts of a step, largest first."""
    lines = heading(f"Where a step of {pretty(float(report.step_time_s), 's')} goes")
    lines += [
        f"  {name:<14} {pretty(seconds, 's'):>10}  {bar(share)} {100 * share:5.1f} %"
        for name, seconds, share in breakdown_shares(report)
    ]
    hidden = float(report.hidden_s)
    return (
        [*lines, f"  hidden under other work: {pretty(hidden, 's')} of communication"]
        if hidden > 1e-6 * float(report.step_time_s)
        else lines
    )


def violations_text(report: Report | ServingReport) -> list[str]:
    """Violated constraints, each with its amount."""
    phrases = {
        "memory": "needs {over} more memory than a chip has",
        "chips": "uses a number of chips {over} off the cluster's",
        "demand": "answers fewer requests than arrive: {over} more arrive",
        "stages": "has {over} more pipeline chunks than layers",
        "tensor_parallel": "splits attention {over} finer than there are heads",
        "experts": "splits experts {over} finer than there are",
        "replicas": "needs {over} more chips a stage to hold one copy of its experts",
        "batch": "needs a global batch {over} larger to fill every replica",
        "context": "splits the sequence {over} finer than its tokens",
        "cooling": "draws {over} more than its cooling or power cap allows even at the lowest clock",
        "pool": "offloads {over} more than the memory pool holds",
        "sites": "has {over} fewer replicas than there are sites",
        "rack_cables": "fills a rack with {over} more cables than it has room to bend",
        "rack_power": "fills a rack to {over} more power than it can feed or cool",
        "rack_weight": "fills a rack to {over} more weight than the floor carries",
        "failures": "loses {over} more time to failures than there is: the job does not get ahead",
    }
    return [phrases[name].format(over=f"{100 * over:.3g} %") for name, over in report.violations().items()]


def surroundings(r: Report | ServingReport) -> list[str]:
    """Chip, racks and power of a concrete report."""
    slowed = "" if float(r.clock_margin) >= -1e-9 else ", slowed by its power cap or cooling"
    return [
        f"  chip           {pretty(float(r.chip_power_w), 'W')} at full load, "
        f"{float(r.junction_temperature_k) - 273.15:.1f} degC, {float(r.heat_flux_w_per_m2) / 1e4:.0f} W/cm2, "
        f"clock {float(r.clock_ratio):.3f} of nominal{slowed}",
        f"  racks          {math.ceil(float(r.racks) - 1e-9):,} of {pretty(float(r.rack_power_w), 'W')} at full load, "
        f"{float(r.floor_area_m2):,.0f} m2",
        f"  power          {pretty(float(r.power_w), 'W')} on average at the meter, "
        f"{pretty(float(r.peak_power_w), 'W')} at full load, PUE {float(r.pue):.3f}",
    ]


def interval_line(report: Report | ServingReport, around: Interval | None, constants: str) -> str:
    """Line of `interval_words`."""
    return f"  constants      {interval_words(report, around, constants)}"


def interval_words(report: Report | ServingReport, around: Interval | None, constants: str) -> str:
    """Which constants, and where a measured step time would lie."""
    if around is None:
        return f"{constants}: no interval"
    low, high = around.times(float(report.step_time_s))
    return f"{constants}: four in five measured steps lie within {pretty(low, 's')} .. {pretty(high, 's')}"
