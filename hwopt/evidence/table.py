"""A CSV table of measured runs as typed rows: blanks as None, every fault named by file, row and column."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from hwopt.errors import UserError, suggest

SMALLEST, LARGEST = 1e-15, 1e15
"""Range of a number in a cell: nothing measured, in the units of the columns, lies outside."""


@dataclass(frozen=True)
class Table:
    """A file's cells, the header apart."""

    path: Path
    header: list[str]
    lines: list[tuple[int, list[str]]]  # line of the file on which a row ends, its cells

    def has(self, column: str) -> bool:
        """Whether the header names a column, in capitals or not."""
        return column in (cell.strip().lower() for cell in self.header)


@dataclass(frozen=True)
class Layout:
    """The columns of a kind of table, by the annotations of its dataclass of rows.

    Fields are read as their type says: `str`, `int | None`, `float | None`; others are for the reader of that kind.
    """

    row: type
    essential: tuple[str, ...]  # columns without which no row could be scored
    other_names: Mapping[str, str] = field(default_factory=dict)
    may_be_zero: frozenset[str] = frozenset()
    not_columns: frozenset[str] = frozenset({"line", "columns"})
    read_apart: frozenset[str] = frozenset()  # columns whose cells the reader of that kind turns into values itself

    def _typed(self, kind: str) -> tuple[str, ...]:
        apart = self.not_columns | self.read_apart
        return tuple(f.name for f in fields(self.row) if f.type == kind and f.name not in apart)

    @property
    def text(self) -> tuple[str, ...]:
        return self._typed("str")

    @property
    def whole(self) -> tuple[str, ...]:
        return self._typed("int | None")

    @property
    def real(self) -> tuple[str, ...]:
        return self._typed("float | None")

    @property
    def known(self) -> frozenset[str]:
        return frozenset(f.name for f in fields(self.row)) - self.not_columns


def load(path: str | Path, wanted: tuple[str, ...]) -> Table:
    """The cells of a CSV file.

    **Arguments:** `path` of a UTF-8 CSV whose first line names the columns; some columns `wanted`, for the message.

    **Raises:** `UserError` for a file that is none, is empty or holds a header alone.
    """
    path = Path(path)
    reader = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    table: list[tuple[int, list[str]]] = []
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                table.append((reader.line_num, cells))
    except csv.Error as error:
        raise UserError(
            f"{path}: row at line {reader.line_num}: not CSV ({error}); is a quotation mark left open?"
        ) from None
    if not table:
        raise UserError(
            f"{path}: the file is empty; its first line should name columns such as {', '.join(wanted[:3])}"
        )
    return Table(path, table[0][1], table[1:])


def typed(table: Table, layout: Layout) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """The rows of a table: text of every cell by column, and values of the layout's fields.

    **Raises:** `UserError` with file, row, column and what was likely meant.
    """
    header = _header(table.path, table.header, layout)
    if not table.lines:
        raise UserError(f"{table.path}: no rows below the header; was the file cut off?")
    columns = frozenset(header)
    rows = []
    for line, cells in table.lines:
        cell = _cells(table.path, line, header, cells)
        values: dict[str, Any] = {name: cell.get(name, "") for name in layout.text}
        for name in (*layout.whole, *layout.real):
            whole = name in layout.whole
            values[name] = number(
                table.path, line, name, cell.get(name, ""), whole=whole, zero=name in layout.may_be_zero
            )
        values["id"] = values["id"] or f"row-{line}"
        rows.append((cell, values | {"line": line, "columns": columns}))
    return rows


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        near = [p.name for p in path.parent.glob("*.csv")] if path.parent.is_dir() else []
        raise UserError(f"{path}: no such file; {suggest(path.name, near)}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; name a .csv file in it") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(f"{path}: is UTF-16; save it as UTF-8 CSV")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = _column_at(raw, error.start)
        where = f"row at line {line}, column {column}"
        raise UserError(
            f"{path}: {where}: byte {raw[error.start]:#x} is not UTF-8; save the file as UTF-8 CSV"
        ) from None
    if "\x00" in text:
        raise UserError(
            f"{path}: line {text[: text.index(chr(0))].count(chr(10)) + 1} has a NUL byte; is it a CSV file?"
        )
    return text


def _column_at(raw: bytes, position: int) -> str:
    """Name of the column a byte stands in, as far as a broken line tells."""
    first, *_ = raw.split(b"\n", 1)
    names = first.decode("utf-8", "replace").strip().split(",")
    before = raw[raw.rfind(b"\n", 0, position) + 1 : position].decode("utf-8", "replace")
    index = len(next(csv.reader([before]), [""]) or [""]) - 1
    return f"'{names[index]}'" if index < len(names) else str(index + 1)


def _header(path: Path, cells: list[str], layout: Layout) -> list[str]:
    known, others = layout.known, layout.other_names
    by_fold = {name.lower(): name for name in known}
    names = [by_fold.get(cell.strip().lower(), cell.strip()) for cell in cells]
    names = [others.get(name, name) if others.get(name) not in names else name for name in names]
    missing = [name for name in layout.essential if name not in names]
    if missing:
        free = [name for name in names if name not in known]
        hints = [f"'{name}' ({_intent(name, free, cells)})" for name in missing]
        raise UserError(f"{path}: row 1 (header): missing column {', '.join(hints[:3])}{' ...' if hints[3:] else ''}")
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise UserError(f"{path}: row 1 (header): column '{twice[0]}' stands twice; rename or drop one")
    return names


def _intent(name: str, free: list[str], cells: list[str]) -> str:
    for delimiter, spoken in ((";", "semicolons"), ("\t", "tabs")):
        if len(cells) <= 2 and any(delimiter in cell for cell in cells):
            return f"fields are separated by {spoken}; save with commas"
    return suggest(name, free)


def _cells(path: Path, line: int, header: list[str], cells: list[str]) -> dict[str, str]:
    if len(cells) > len(header):
        extra = len(cells) - len(header)
        raise UserError(
            f"{path}: row at line {line}: {extra} more cells than columns ('{header[-1]}' is the last column); "
            "quote a cell that contains a comma"
        )
    return dict(zip(header, (c.strip() for c in cells), strict=False))


def number(path: Path, line: int, column: str, text: str, *, whole: bool, zero: bool = False) -> float | int | None:
    """A positive number, or None for a blank.

    **Raises:** `UserError` that names file, row and column.
    """
    if not text:
        return None

    def fault(intent: str) -> UserError:
        return UserError(f"{path}: row at line {line}, column '{column}': '{text}' {intent}")

    try:
        value = float(text)
    except ValueError:
        plain = text.replace(",", "").replace("_", "")
        hint = f"write {plain}" if plain.replace(".", "", 1).isdigit() else "leave it empty if the source does not say"
        raise fault(f"is not a number; {hint}") from None
    if not math.isfinite(value):
        raise fault("is not finite; leave it empty if it is not known")
    if value < 0 or (value == 0 and not zero):
        raise fault("must be above zero; leave it empty if it is not known")
    if value and not SMALLEST <= value <= LARGEST:
        raise fault("is beyond anything measured; is the unit right?")
    if not whole:
        return value
    if value != int(value):
        raise fault("must be a whole number")
    return int(value)
