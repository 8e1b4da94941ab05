"""Day of requests as lines of a screen and as JSON."""

import math
from typing import Any

from hwopt.analysis.daily_load import DailyLoad, HourlyLoad
from hwopt.output.text.layout import heading
from hwopt.output.text.parts import number
from hwopt.units import pretty


def day_document(day: DailyLoad | None) -> dict[str, Any]:
    """Return the hours and totals of the day for JSON; empty where no day was requested."""
    if day is None:
        return {}
    hours = [{name: number(value) for name, value in hour._asdict().items()} for hour in day.hours]
    sums = {name: number(getattr(day, name)) for name in ("requests", "energy_j", "usd", "idle_j")}
    return {"day": sums | {"overloaded_hours": day.overloaded, "hours": hours}}


def day_lines(day: DailyLoad | None) -> list[str]:
    """Return a heading, the totals of the day, and a line for each hour."""
    if day is None:
        return []
    idle = 100.0 * day.idle_j / day.energy_j
    lines = [
        *heading("Over the day"),
        f"  {day.requests:,.0f} requests, {pretty(day.energy_j, 'J', 4)}, {idle:.3g} % of which chips take idle; {day.usd:,.0f} $",
    ]
    if day.overloaded:
        lines.append(
            f"  In {day.overloaded} hours more comes than is answered: a queue grows, and what they take is not told."
        )
    lines.append(
        f"  {'hour':>4}{'requests/s':>12}{'load':>8}{'first p99':>12}{'next p99':>12}{'power':>12}{'$/hour':>10}"
    )
    return [*lines, *(_line(place, hour) for place, hour in enumerate(day.hours))]


def _line(place: int, hour: HourlyLoad) -> str:
    times = (pretty(each, "s", 3) if math.isfinite(each) else "-" for each in (hour.first_p99_s, hour.token_p99_s))
    first, later = times
    usd = 3600.0 * hour.usd_per_s
    load = f"{100.0 * hour.load:.0f} %"
    return f"  {place:>4}{hour.requests_per_s:>12.4g}{load:>8}{first:>12}{later:>12}{pretty(hour.power_w, 'W', 3):>12}{usd:>10.4g}"
