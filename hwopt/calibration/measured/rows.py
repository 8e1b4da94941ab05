"""Reader of measured runs as typed rows: blank cells become None, and errors name file, row and column."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from hwopt.calibration.measured.collected_text import complete
from hwopt.calibration.measured.columns import MeasuredRow, columns_of
from hwopt.calibration.measured.table import load


@dataclass(frozen=True)
class Measurements:
    """All rows of a file, in its order."""

    path: Path
    kind: type[MeasuredRow]
    rows: list[MeasuredRow]
    inferred: tuple[str, ...]  # columns missing in the file and filled from its text


def read(
    path: str | Path, *, facts: Mapping[str, str] | None = None, defaults: Mapping[str, str] | None = None,
    progress: bool = False,
) -> Measurements:  # fmt: skip
    """Read a CSV file or a log of measured training runs or services.

    Columns missing in the table are inferred from its text here, once. A row with the same cells as an earlier one is marked
    with that row's line.

    **Arguments:** `path`, `facts`, `defaults`: as in `hwopt.calibration.measured.table.load`; `progress`: show a progress bar on
    standard error.

    **Returns:** rows in the file's order; a row without an id gets the name `row-<line>`.

    **Raises:** `UserError` for an invalid file, with file, row, column and the likely cause.
    """
    table = load(path, facts, defaults)
    declared, present = columns_of(table.kind), frozenset(table.header)
    filled: set[str] = set()
    first: dict[tuple[str, ...], int] = {}
    named: dict[str, int] = {}
    rows = []
    with tqdm(total=len(table.lines), desc="reading", unit="row", disable=not progress, leave=False) as bar:
        for line, cells in table.cells():
            repeats = first.setdefault(tuple(cells.values()), line)
            name = cells.get("id", "")
            if name and (other := named.setdefault(name, line)) != line and repeats == line:
                raise table.fault(line, "id", name, f"is the row at line {other} already; give each its own")
            filled |= complete(cells, table.kind, present)
            values = {}
            for name, column in declared.items():
                if cell := cells.get(name):
                    try:
                        values[name] = column.read(cell)
                    except ValueError as error:
                        raise table.fault(line, name, cell, str(error)) from None
            values.setdefault("id", f"row-{line}")
            rows.append(table.kind(line=line, columns=present, repeats=repeats if repeats != line else 0, **values))
            bar.update()
    return Measurements(table.path, table.kind, rows, tuple(name for name in declared if name in filled))
