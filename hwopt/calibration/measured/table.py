"""Reader of a CSV table or a log of measured runs as cells by column; errors name the place in the file."""

import csv
import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hwopt import escape
from hwopt.calibration.measured.columns import PROSE, MeasuredRow, MeasuredRun, MeasuredService, columns_of, essential
from hwopt.calibration.measured.logs import LogTable, log_table
from hwopt.errors import UserError, suggest
from hwopt.validation import file_bytes


@dataclass(frozen=True)
class CellTable:
    """Cells of a file, without the header."""

    path: Path
    kind: type[MeasuredRow]  # type of the rows
    header: list[str]  # column names as declared
    spelled: list[str]  # column names as spelled in the file
    lines: list[tuple[int, list[str]]]  # last line of a row in the file, its cells

    def cells(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield the line and the cells by column of each row.

        **Raises:** `UserError` for a row with more cells than columns.
        """
        for line, cells in self.lines:
            if (extra := len(cells) - len(self.header)) > 0:
                raise UserError(
                    f"{self.path}: row at line {line}: {extra} more cells than columns ('{self.spelled[-1]}' is the last "
                    "column); quote a cell that contains a comma"
                )
            yield line, dict(zip(self.header, cells, strict=False))

    def fault(self, line: int, column: str, cell: str, intent: str) -> UserError:
        """Return the error for an invalid cell."""
        name = self.spelled[self.header.index(column)] if column in self.header else column
        return UserError(f"{self.path}: row at line {line}, column '{name}': '{cell}' {intent}")


def load(
    path: str | Path, facts: Mapping[str, str] | None = None, defaults: Mapping[str, str] | None = None
) -> CellTable:
    """Load a CSV file or a log of measured training runs or services; the header or the format of the log decides which.

    **Arguments:**

    - `path` of a UTF-8 file: CSV whose first line names the columns, including all essential ones, or a log
      (`hwopt.calibration.measured.logs`).
    - `facts`: column -> cell, for columns that the file lacks or leaves blank.
    - `defaults`: the same, for columns that the file may state.

    **Raises:** `UserError` for a path that is not a file, or a file that is neither, is empty, has no rows or lacks columns, and
    for facts about unknown columns or about columns that are filled.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise UserError(f"a file of measured runs is named by its path, not by {path!r}")
    path, facts = Path(path), {name: str(cell) for name, cell in (facts or {}).items()}
    text = _text(path)
    try:
        log = None if _is_csv(text) else log_table(text)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    given = {**(defaults or {}), **facts}
    table = _csv_table(path, text, given) if log is None else _of_log(path, log, given)
    return _with_facts(_with_facts(table, facts), defaults or {}, may_be_stated=True)


def _is_csv(text: str) -> bool:
    """Return whether the first line names columns of measured runs."""
    names = {cell.strip().strip('"').lower() for cell in text.lstrip().split("\n", 1)[0].split(",")}
    return len(names & {"measured_metric", "metric", "quantity", "measured_value", "value", "gpu", "num_gpus"}) > 1


def _of_log(path: Path, log: LogTable, facts: Mapping[str, str]) -> CellTable:
    """Return the rows of a log as a table.

    **Raises:** `UserError` for essential columns that neither the log nor `facts` state.
    """
    of, each = log
    rows = [cells for _, cells in each]
    header = list(dict.fromkeys(name for cells in rows for name in cells))
    missing = [name for name in essential(of.kind) if not (facts.get(name) or all(map(lambda c: name in c, rows)))]
    if missing:
        raise UserError(
            f"{path}: a log of {of.name} without {', '.join(missing)}: --facts {','.join(f'{x}=...' for x in missing)}"
        )
    lines = [(line, [escape.sentence(cells.get(name, "")) for name in header]) for line, cells in each]
    return CellTable(path, of.kind, header, header, lines)


def _with_facts(table: CellTable, facts: Mapping[str, str], may_be_stated: bool = False) -> CellTable:
    """Return a table with blank cells and missing columns filled.

    **Raises:** `UserError` for facts about unknown columns or about columns that are filled.
    """
    known = columns_of(table.kind)
    for name in facts:
        if name not in known:
            raise UserError(f"--facts {name}: is not a column of measured runs: {suggest(name, known)}")
    new = [name for name in facts if name not in table.header]
    header, width = [*table.header, *new], len(table.header)
    lines = [(line, [*cells, *[""] * (width - len(cells)), *[""] * len(new)]) for line, cells in table.lines]
    for name, cell in facts.items():
        at = header.index(name)
        blank = [cells for _, cells in lines if len(cells) == len(header) and not cells[at]]
        if not blank and not may_be_stated:
            raise UserError(f"--facts {name}={cell}: {table.path} states {name} ({lines[0][1][at]}); remove it")
        for cells in blank:
            cells[at] = cell
    return CellTable(table.path, table.kind, header, [*table.spelled, *new], lines) if facts else table


def _csv_table(path: Path, text: str, facts: Mapping[str, str]) -> CellTable:
    """Return the table of a CSV file; essential columns may be among `facts`."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    once: dict[str, str] = {}  # interned: a long table repeats few texts
    try:
        lines = [
            (
                reader.line_num,
                [once.setdefault(cell, cell) for cell in (escape.sentence(each.strip()) for each in cells)],
            )
            for cells in reader
            if any(map(str.strip, cells))
        ]
    except csv.Error as error:
        hint = "is a quotation mark left open?"
        raise UserError(f"{path}: row at line {reader.line_num}: not CSV ({error}); {hint}") from None
    if not lines:
        wanted = ", ".join(essential(MeasuredRun)[:3])
        raise UserError(f"{path}: the file is empty; its first line should name columns such as {wanted}")
    (_, spelled), *lines = lines
    kind = kind_of(spelled)
    header = _header(path, spelled, kind, facts)
    if not lines:
        raise UserError(f"{path}: no rows below the header; was the file cut off?")
    return CellTable(path, kind, header, spelled, lines)


def kind_of(header: list[str]) -> type[MeasuredRow]:
    """Return the row type of a table: services if it has request tokens and no global batch, otherwise training runs."""
    names = {cell.strip().lower() for cell in header}
    serving = not names.isdisjoint({"input_tokens", "output_tokens"}) and "global_batch_sequences" not in names
    return MeasuredService if serving else MeasuredRun


def _text(path: Path) -> str:
    try:
        raw = file_bytes(path)
    except FileNotFoundError:
        near = [p.name for p in path.parent.glob("*.csv")] if path.parent.is_dir() else []
        raise UserError(f"{path}: no such file; {suggest(path.name, near)}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; name a .csv file in it") from None
    except (OSError, ValueError) as error:  # ValueError: NUL character in the name
        raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(f"{path}: is UTF-16; save it as UTF-8 CSV")
    if (at := raw.find(b"\0")) >= 0:
        line = raw.count(b"\n", 0, at) + 1
        raise UserError(f"{path}: line {line} has a NUL byte; is it a CSV file or a log?")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = raw.count(b"\n", 0, error.start) + 1, raw[error.start]
        where = f"row at line {line}, column {_column_at(raw, error.start)}"
        raise UserError(f"{path}: {where}: byte {byte:#x} is not UTF-8; save the file as UTF-8 CSV") from None


def _column_at(raw: bytes, position: int) -> str:
    """Return the name of the column that contains a byte, as far as a broken line reveals it."""
    first, *_ = raw.split(b"\n", 1)
    before = raw[raw.rfind(b"\n", 0, position) + 1 : position].decode("utf-8", "replace")
    try:
        index = len(next(csv.reader([before]), [""]) or [""]) - 1
        name = first.decode("ascii").strip().split(",")[index]
    except (csv.Error, UnicodeDecodeError, IndexError):
        return str(before.count(",") + 1)
    return f"'{name}'"


def _header(path: Path, spelled: list[str], kind: type[MeasuredRow], facts: Mapping[str, str]) -> list[str]:
    """Return the column names as declared.

    **Raises:** `UserError` for a missing or repeated column.
    """
    declared = columns_of(kind)
    by_fold = {name.lower(): name for name in (*declared, *PROSE[kind])}
    names = [by_fold.get(cell.lower(), cell) for cell in spelled]
    others = {other: name for name, column in declared.items() for other in column.also if name not in names}
    names = [others.get(name.lower(), name) for name in names]
    free, hints = [name for name in names if name not in by_fold.values()], []
    for name in essential(kind):
        if name not in names and name not in facts:
            spellings = (name, *declared[name].also)
            quoted = " or ".join(f"'{each}'" for each in spellings)
            hints.append(f"{quoted} ({_intent(spellings, free, spelled)})")
    if hints:
        raise UserError(f"{path}: row 1 (header): missing column {', '.join(hints[:3])}{' ...' if hints[3:] else ''}")
    if twice := sorted({name for name in names if name and names.count(name) > 1}):
        raise UserError(f"{path}: row 1 (header): column '{twice[0]}' stands twice; rename or drop one")
    return names


def _intent(wanted: tuple[str, ...], free: list[str], cells: list[str]) -> str:
    for delimiter, spoken in ((";", "semicolons"), ("\t", "tabs")):
        if len(cells) <= 2 and any(delimiter in cell for cell in cells):
            return f"fields are separated by {spoken}; save with commas"
    hints = (suggest(name, free) for name in wanted)
    others = f"unused columns of the file: {', '.join(free[:8])}" if free else "the file has no unused column"
    return next((hint for hint in hints if hint.startswith("did you mean")), others)
