"""Day of requests as a section of an answer."""

import math

from hwopt.analysis.daily_load import DailyLoad, HourlyLoad
from hwopt.output.answer import Lines, Section, Table
from hwopt.units import pretty


def day_section(day: DailyLoad) -> Section:
    """Return the totals of the day, and a table with a row for each hour."""
    idle = 100.0 * day.idle_j / day.energy_j
    said = [
        f"{day.requests:,.0f} requests, {day.energy_j / 3.6e9:,.4g} MWh at the meter ({idle:.3g} % of it idle power), "
        f"{day.usd:,.0f} $"
    ]
    if day.overloaded:
        said.append(
            f"In {day.overloaded} hours requests exceed the capacity: the queue grows without limit and has no latencies."
        )
    heads = ("hour", "requests/s", "load", "TTFT p99", "TPOT p99", "power", "$/hour")
    rows = [[str(place), *_cells(hour)] for place, hour in enumerate(day.hours)]
    table = Table("hours", heads, rows, "r" * len(heads), (4, 10, 6, 10, 10, 10, 8))
    return Section("Daily load", [Lines(said), table])


def _cells(hour: HourlyLoad) -> list[str]:
    times = (pretty(each, "s", 3) if math.isfinite(each) else "-" for each in (hour.first_p99_s, hour.token_p99_s))
    load, usd = f"{100.0 * hour.load:.0f} %", 3600.0 * hour.usd_per_s
    return [f"{hour.requests_per_s:.4g}", load, *times, pretty(hour.power_w, "W", 3), f"{usd:.4g}"]
