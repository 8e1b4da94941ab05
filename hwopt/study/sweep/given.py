"""Variants as users give them: levels of a grid, a table of designs."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hwopt.errors import UserError
from hwopt.study.sweep.samplers import levels

MOST_LEVELS = 100_000
"""Levels of one variable of a grid."""


def checked_levels(name: str, given: Sequence[float]) -> list[float]:
    """Levels of a variable.

    **Raises:** `UserError` for what is not positive and finite.
    """
    try:
        values = [float(x) for x in np.ravel(np.asarray(given))]
    except (TypeError, ValueError):
        values = []
    if not values or not all(math.isfinite(x) and x > 0 for x in values):
        raise UserError(f"grid: levels of '{name}' must be positive, finite numbers")
    return values


def level_range(text: str) -> list[float]:
    """Levels from `low:high:count`, or `a|b|c`, as the command line writes them.

    **Raises:** `UserError` for anything else.
    """
    try:
        if "|" in text or ":" not in text:
            return [float(x) for x in text.split("|")]
        low, high, count = text.split(":")
        if not 1 <= int(count) <= MOST_LEVELS or not 0 < float(low) <= float(high) < math.inf:
            raise ValueError
        return [float(x) for x in levels(float(low), float(high), int(count))]
    except ValueError:
        raise UserError(f"grid: '{text}' is neither low:high:count (up to {MOST_LEVELS:,} levels) nor a|b|c") from None


def table_columns(table: str | Path | Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Columns of a table, of a CSV file or given.

    **Raises:** `UserError` for a file that cannot be read, columns of different lengths, what is not positive and finite.
    """
    if isinstance(table, (str, Path)):
        try:
            with Path(table).open(newline="", encoding="utf-8-sig") as file:
                rows = [row for row in csv.reader(file) if row]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise UserError(f"table {table}: cannot be read ({error})") from None
        if len(rows) < 2:
            raise UserError(f"table {table}: a line of variables' names and at least one of numbers")
        names = [name.strip() for name in rows[0]]
        if len(set(names)) < len(names):
            raise UserError(f"table {table}: a column stands twice in {', '.join(names)}")
        held: dict[str, list] = {name: [] for name in names}
        for number, row in enumerate(rows[1:], 2):
            if len(row) != len(names):
                raise UserError(f"table {table}, line {number}: {len(row)} numbers for {len(names)} columns")
            for name, value in zip(names, row, strict=True):
                held[name].append(value)
        source = f"table {table}"
    else:
        held, source = {str(name): list(x) for name, x in table.items()}, "table"
    if not held or len({len(x) for x in held.values()}) != 1 or not len(next(iter(held.values()))):
        raise UserError(f"{source}: columns of one length, at least one row")
    made: dict[str, list[float]] = {}
    for name, column in held.items():
        made[name] = []
        for number, value in enumerate(column, 2):
            try:
                made[name].append(float(value))
            except (TypeError, ValueError):
                raise UserError(f"{source}, line {number}: {name} = '{value}' is not a number") from None
            if not (math.isfinite(made[name][-1]) and made[name][-1] > 0):
                raise UserError(f"{source}, line {number}: {name} = {value} must be a positive, finite number")
    return made
