"""Reads a CSV of measured runs: typed rows, blanks as None, every fault named by file, row and column."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, field, fields
from pathlib import Path

from hwopt.errors import UserError, suggest


@dataclass(frozen=True)
class MeasuredRun:
    """One row. None: the source does not say. Columns beyond these are ignored."""

    line: int  # line of the file on which the row ends, the header being line 1
    id: str
    source: str
    source_locator: str
    notes: str
    model_name: str
    gpu: str
    precision: str
    zero_stage: str
    recompute: str
    seq_parallel: str
    measured_metric: str
    unit: str
    phase: str
    quality: str
    config_complete: str
    stack: str
    framework: str
    schedule: str
    measured_value: float | None
    params_B: float | None
    layers: int | None
    hidden: int | None
    ffn: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    seq_len: int | None
    vocab: int | None
    moe_experts: int | None
    moe_topk: int | None
    num_gpus: int | None
    gpus_per_node: int | None
    tp: int | None
    pp: int | None
    vpp: int | None
    cp: int | None
    ep: int | None
    expert_tp: int | None
    dp: int | None
    micro_batch: float | None
    global_batch_sequences: float | None
    mfu_peak_tflops: float | None
    year: int | None
    other_metrics: dict[str, str] = field(default_factory=dict)
    columns: frozenset[str] = frozenset()  # those the file has


ESSENTIAL = ("model_name", "gpu", "num_gpus", "seq_len", "global_batch_sequences", "measured_metric", "measured_value")
"""Columns without which no row could be scored; a user's own file may have these alone."""

_TYPES = {f.name: f.type for f in fields(MeasuredRun)}
_TEXT = tuple(name for name, kind in _TYPES.items() if kind == "str")
_WHOLE = tuple(name for name, kind in _TYPES.items() if kind == "int | None")
_REAL = tuple(name for name, kind in _TYPES.items() if kind == "float | None")
_OTHER_NAMES = {"quantity": "measured_metric", "value": "measured_value"}
"""Columns of the tables of measured memory, by the names they have here."""

SMALLEST, LARGEST = 1e-15, 1e15
"""Range of a number in a cell: nothing measured, in the units of the columns, lies outside."""

_MAY_BE_ZERO = frozenset({"moe_experts", "moe_topk"})
_KNOWN = frozenset((*_TEXT, *_WHOLE, *_REAL, "other_metrics"))


def read(path: str | Path) -> list[MeasuredRun]:
    """All rows of a CSV file of measured runs.

    **Arguments:** `path` of a UTF-8 CSV whose first line names the columns; `ESSENTIAL` must be among them.

    **Returns:** rows in the file's order; a row without an id is called `row-<line>`.

    **Raises:** `UserError` for a file that cannot be read as such, with file, row, column and what was likely meant.
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
            f"{path}: the file is empty; its first line should name columns such as {', '.join(ESSENTIAL[:3])}"
        )
    header = _header(path, table[0][1])
    if len(table) == 1:
        raise UserError(f"{path}: no rows below the header; was the file cut off?")
    return [_row(path, line, header, cells) for line, cells in table[1:]]


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


def _header(path: Path, cells: list[str]) -> list[str]:
    by_fold = {name.lower(): name for name in _KNOWN}
    names = [by_fold.get(cell.strip().lower(), cell.strip()) for cell in cells]
    names = [_OTHER_NAMES.get(name, name) if _OTHER_NAMES.get(name) not in names else name for name in names]
    missing = [name for name in ESSENTIAL if name not in names]
    if missing:
        hints = [f"'{name}' ({_intent(name, names, cells)})" for name in missing]
        raise UserError(f"{path}: row 1 (header): missing column {', '.join(hints[:3])}{' ...' if hints[3:] else ''}")
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise UserError(f"{path}: row 1 (header): column '{twice[0]}' stands twice; rename or drop one")
    return names


def _intent(name: str, names: list[str], cells: list[str]) -> str:
    for delimiter, spoken in ((";", "semicolons"), ("\t", "tabs")):
        if len(cells) <= 2 and any(delimiter in cell for cell in cells):
            return f"fields are separated by {spoken}; save with commas"
    return suggest(name, [n for n in names if n not in _KNOWN])


def _row(path: Path, line: int, header: list[str], cells: list[str]) -> MeasuredRun:
    if len(cells) > len(header):
        extra = len(cells) - len(header)
        raise UserError(
            f"{path}: row at line {line}: {extra} more cells than columns ('{header[-1]}' is the last column); "
            "quote a cell that contains a comma"
        )
    cell = dict(zip(header, (c.strip() for c in cells), strict=False))
    values: dict = {name: cell.get(name, "") for name in _TEXT}
    for name in (*_WHOLE, *_REAL):
        values[name] = _number(path, line, name, cell.get(name, ""), whole=name in _WHOLE)
    values["id"] = values["id"] or f"row-{line}"
    pairs = (pair.split("=", 1) for pair in cell.get("other_metrics", "").split(";") if "=" in pair)
    values["other_metrics"] = {key.strip(): value.strip() for key, value in pairs}
    return MeasuredRun(line=line, columns=frozenset(header), **values)


def _number(path: Path, line: int, column: str, text: str, *, whole: bool) -> float | int | None:
    """A positive number, or None for a blank."""
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
    if value < 0 or (value == 0 and column not in _MAY_BE_ZERO):
        raise fault("must be above zero; leave it empty if it is not known")
    if value and not SMALLEST <= value <= LARGEST:
        raise fault("is beyond anything measured; is the unit right?")
    if not whole:
        return value
    if value != int(value):
        raise fault("must be a whole number")
    return int(value)
