"""Variants as users give them: levels of a grid, a table of designs."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hwopt.errors import UserError

MOST_LEVELS = 100_000
"""Levels of one variable of a grid."""


def checked_levels(name: str, levels: Sequence[float]) -> list[float]:
    """Levels of a variable.

    **Raises:** `UserError` for what is not positive and finite.
    """
    try:
        values = [float(x) for x in np.ravel(np.asarray(levels))]
    except (TypeError, ValueError):
        values = []
    if not values or not all(math.isfinite(x) and x > 0 for x in values):
        raise UserError(f"grid: levels of '{name}' must be positive, finite numbers")
    return values


def level_range(text: str, what: str = "grid") -> list[float]:
    """Levels from `low:high:count`, or `a|b|c`, as the command line writes them.

    **Arguments:** `what` they are levels of, for refusals.

    **Raises:** `UserError` for anything else.
    """
    refused = UserError(f"{what}: '{text}' is neither low:high:count (up to {MOST_LEVELS:,} levels) nor a|b|c")
    try:
        if "|" in text or ":" not in text:
            return [float(x) for x in text.split("|")]
        first, last, number = text.split(":")
        low, high, count = float(first), float(last), int(number)
    except ValueError:
        raise refused from None
    if 0 < high < low < math.inf:
        raise UserError(f"{what}: '{text}' is reversed: write {last}:{first}:{number}")
    if not (1 <= count <= MOST_LEVELS and 0 < low <= high < math.inf):
        raise refused
    return np.geomspace(low, high, count).tolist()


def table_columns(table: str | Path | Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Columns of a table: of a CSV file, or of a dictionary.

    **Raises:** `UserError` for a file that cannot be read, columns of different lengths, what is not positive and finite.
    """
    if isinstance(table, (str, Path)):
        columns, source = _file_columns(table), f"table {table}"
    else:
        try:
            columns, source = {str(name): list(x) for name, x in table.items()}, "table"
        except (AttributeError, TypeError):
            raise UserError("table: a CSV file, or a dictionary of columns, such as {'tp': [4, 8]}") from None
    if len({len(x) for x in columns.values()}) != 1 or not all(columns.values()):
        raise UserError(f"{source}: columns of one length, at least one row")
    return {
        name: [_checked(f"{source}, line {line}: {name}", x) for line, x in enumerate(column, 2)]
        for name, column in columns.items()
    }


def _file_columns(path: str | Path) -> dict[str, Sequence[str]]:
    """Columns of a CSV file, by the names in its first line."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"table {path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if len(rows) < 2:
        raise UserError(f"table {path}: a line of variables' names and at least one of numbers")
    names = [name.strip() for name in rows[0]]
    if len(set(names)) < len(names):
        raise UserError(f"table {path}: a column stands twice in {', '.join(names)}")
    for line, row in enumerate(rows[1:], 2):
        if len(row) != len(names):
            raise UserError(f"table {path}, line {line}: {len(row)} numbers for {len(names)} columns")
    return dict(zip(names, zip(*rows[1:], strict=True), strict=True))


def _checked(what: str, value: object) -> float:
    """A number of a table.

    **Raises:** `UserError` for what is not positive and finite.
    """
    try:
        number = float(value)  # pyright: ignore
    except (TypeError, ValueError):
        raise UserError(f"{what} = '{value}' is not a number") from None
    if not (math.isfinite(number) and number > 0):
        raise UserError(f"{what} = {value} must be a positive, finite number")
    return number
