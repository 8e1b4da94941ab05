"""User-specified variants: levels of a grid, or a table of designs."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hwopt.catalog.load import read_text
from hwopt.errors import UserError
from hwopt.units import read_amount, read_number, unit_in_name

MOST_LEVELS = 100_000
"""Maximum number of levels of a grid variable."""


def checked_levels(name: str, levels: Sequence[float]) -> list[float]:
    """Return the validated levels of a variable.

    **Raises:** `UserError` for a level that is not positive and finite, or that is repeated.
    """
    try:
        values = [float(x) for x in np.ravel(np.asarray(levels))]
    except (TypeError, ValueError):
        values = []
    if not values or not all(math.isfinite(x) and x > 0 for x in values):
        raise UserError(f"grid: levels of '{name}' must be positive, finite numbers")
    if len(set(values)) < len(values):
        raise UserError(f"grid: level listed twice for '{name}'")
    return values


def level_range(text: str, what: str = "grid") -> list[float]:
    """Parse levels from `low:high:count` (log-spaced) or `a|b|c`, as written on the command line.

    **Arguments:** `what`: name of the quantity, for error messages.

    **Raises:** `UserError` for anything else.
    """
    refused = UserError(f"{what}: '{text}' is neither low:high:count (up to {MOST_LEVELS:,} levels) nor a|b|c")
    several = ":" in text and "|" not in text
    try:
        ends = [read_amount(each, unit_in_name(what)) for each in text.split(":" if several else "|")]
    except UserError as error:
        raise UserError(f"{refused}; {error}") from None
    if not several:
        return ends
    if len(ends) != 3:
        raise refused
    low, high, count = ends
    if 0 < high < low < math.inf:
        first, last, number = text.split(":")
        raise UserError(f"{what}: '{text}' is reversed: write {last}:{first}:{number}")
    if not (1 <= count <= MOST_LEVELS and count == int(count) and 0 < low <= high < math.inf):
        raise refused
    return np.geomspace(low, high, int(count)).tolist()


def table_columns(table: str | Path | Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Return the validated columns of a table, from a CSV file or a dictionary.

    **Raises:** `UserError` for an unreadable file, columns of different lengths, or numbers that are not positive and finite.
    """
    if isinstance(table, (str, Path)):
        columns, source = _file_columns(table), f"table {table}"
    else:
        try:
            columns, source = {str(name): list(x) for name, x in table.items()}, "table"
        except (AttributeError, TypeError):
            raise UserError("table: pass a CSV file, or a dictionary of columns, such as {'tp': [4, 8]}") from None
    if len({len(x) for x in columns.values()}) != 1 or not all(columns.values()):
        raise UserError(f"{source}: columns must have equal lengths and at least one row")
    return {
        name: [_checked(f"{source}, line {line}: {name}", x) for line, x in enumerate(column, 2)]
        for name, column in columns.items()
    }


def _file_columns(path: str | Path) -> dict[str, Sequence[str]]:
    """Read the columns of a CSV file, named by its first line.

    **Raises:** `UserError` for text that is not CSV, repeated names, and lines with missing or extra numbers.
    """
    try:
        rows = [row for row in csv.reader(io.StringIO(read_text(Path(path)), newline="")) if row]
    except csv.Error as error:
        raise UserError(f"table {path}: not CSV ({error})") from None
    if len(rows) < 2:
        raise UserError(f"table {path}: needs a header of variable names and at least one row of numbers")
    names = [name.strip() for name in rows[0]]
    if len(set(names)) < len(names):
        raise UserError(f"table {path}: a column name occurs twice in {', '.join(names)}")
    for line, row in enumerate(rows[1:], 2):
        if len(row) != len(names):
            raise UserError(f"table {path}, line {line}: {len(row)} numbers for {len(names)} columns")
    return dict(zip(names, zip(*rows[1:], strict=True), strict=True))


def _checked(what: str, value: object) -> float:
    """Parse a number of a table.

    **Raises:** `UserError` for a number that is not positive and finite.
    """
    try:
        number = read_number(str(value))
    except UserError as error:
        raise UserError(f"{what} = {error}") from None
    if number <= 0:
        raise UserError(f"{what} = {value} must be a positive, finite number")
    return number
