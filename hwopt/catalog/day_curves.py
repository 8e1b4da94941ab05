"""Measured hourly requests of a day: 24 counts in a `.toml` (`requests = [...]`) or a `.csv` (`hour,requests`)."""

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwopt.catalog.load import read_text, read_toml
from hwopt.errors import UserError
from hwopt.units import read_number

HOURS = 24
"""Number of counts of a day curve, one an hour."""

EXAMPLE = "24 rows of hour,requests in a .csv, or requests = [24 numbers] in a .toml"


def day_curve(path: str) -> tuple[float, ...]:
    """Return the requests of each hour of a day, divided by their mean. The file states counts or rates in any unit.

    **Arguments:** `path` of a `.csv` or `.toml` file.

    **Raises:** `UserError` for a missing file, and for anything but 24 numbers that are not negative and not all 0.
    """
    file = Path(path)
    if file.suffix.lower() not in (".csv", ".toml"):
        raise UserError(f"day_curve '{path}': write {EXAMPLE}")
    try:
        hours = _of_csv(path, read_text(file)) if file.suffix.lower() == ".csv" else _of_toml(path, read_toml(file))
    except csv.Error as error:
        raise UserError(f"day_curve '{path}': not CSV ({error})") from None
    if len(hours) != HOURS:
        raise UserError(f"day_curve '{path}': has {len(hours)} hours instead of {HOURS}: write {EXAMPLE}")
    for hour, value in enumerate(hours):
        if not (math.isfinite(value) and value >= 0.0):
            raise UserError(f"day_curve '{path}': {value:g} requests in hour {hour}: must be 0 or more")
    mean = sum(hours) / HOURS
    if mean == 0.0:
        raise UserError(f"day_curve '{path}': all hours have 0 requests")
    return tuple(value / mean for value in hours)


def _of_toml(path: str, stated: Mapping[str, object]) -> list[float]:
    requests = stated.get("requests")
    if set(stated) != {"requests"} or not isinstance(requests, list):
        raise UserError(f"day_curve '{path}': has {', '.join(sorted(stated)) or 'nothing'}: write {EXAMPLE}")
    return [_number(path, hour, value) for hour, value in enumerate(requests)]


def _of_csv(path: str, text: str) -> list[float]:
    rows = [row for row in csv.reader(text.splitlines()) if row]
    if not rows or [name.strip() for name in rows[0]] != ["hour", "requests"]:
        raise UserError(f"day_curve '{path}': has the header '{','.join(rows[0]) if rows else ''}': write {EXAMPLE}")
    for place, row in enumerate(rows[1:]):
        if len(row) != 2 or row[0].strip() != str(place):
            raise UserError(f"day_curve '{path}': row '{','.join(row)}' instead of hour {place}: write {EXAMPLE}")
    return [_number(path, hour, row[1]) for hour, row in enumerate(rows[1:])]


def _number(path: str, hour: int, value: Any) -> float:
    try:
        return math.nan if isinstance(value, bool) else read_number(str(value))
    except UserError:
        raise UserError(f"day_curve '{path}': '{value}' in hour {hour} is not a number") from None
