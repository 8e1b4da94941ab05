"""Parsing of the `[[operators]]` rows of data files: each row is checked key by key and becomes an operator."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from hwopt.errors import UserError, collected, suggest
from hwopt.workload.operator_kinds import KINDS, MAY_BE_ZERO, SPLITS, TEXTS, Operator, required

_ABOUT = ("op", "kind", "source", "note")
"""Keys of a row that describe it: its operator type, provenance, source and note."""

_MOST, _MOST_ROWS = 1e15, 2000


def read_operators(
    rows: object, sources: Mapping[str, str], kinds: Sequence[str], where: str, own: bool
) -> tuple[Operator, ...]:
    """Return the operators of a file's list.

    **Arguments:**

    - `rows`: the value of the key `operators`.
    - `sources`, `kinds`: known citations and provenance tags.
    - `where`: the file's name, for messages.
    - `own`: whether it is a user's own file, whose rows need neither source nor provenance.

    **Raises:** `UserError` with all errors, a line each, with the row's number.
    """
    if not isinstance(rows, list) or not rows:
        raise UserError(
            f"{where}: 'operators' must be a list of rows, such as {{ op = \"gemm\", inputs = 1024, outputs = 4096 }}"
        )
    if len(rows) > _MOST_ROWS:
        raise UserError(
            f"{where}: {len(rows):,} operators exceed {_MOST_ROWS:,}: write equal ones once, with their 'count'"
        )
    wrong: list[str] = []
    operators: list[Operator] = []
    for number, row in enumerate(rows, 1):
        with collected(wrong):
            operators.append(_operator(row, sources, kinds, f"{where}: operator {number}", own))
    if wrong:
        raise UserError(*wrong)
    return tuple(operators)


def _operator(row: object, sources: Mapping[str, str], kinds: Sequence[str], at: str, own: bool) -> Operator:
    if not isinstance(row, Mapping) or not isinstance(row.get("op"), str):
        raise UserError(f"{at} must be a table with an 'op': {', '.join(KINDS)}")
    name = row["op"]
    if name not in KINDS:
        raise UserError(f"{at} has the unknown op '{name}': {suggest(name, KINDS)}")
    at, kind = f"{at} ({name})", KINDS[name]
    known = {each.name for each in fields(kind)}
    for key in row:
        if key not in known and key not in _ABOUT:
            raise UserError(f"{at}: unknown key '{key}': {suggest(key, sorted(known))}")
    missing = [f"'{key}'" for key in required(kind) if key not in row]
    if missing:
        raise UserError(f"{at}: {', '.join(missing)} {'are' if missing[1:] else 'is'} missing")
    _check_source(row, sources, kinds, at, own)
    return kind(**{key: _value(key, value, at) for key, value in row.items() if key in known})


def _check_source(row: Mapping[str, Any], sources: Mapping[str, str], kinds: Sequence[str], at: str, own: bool) -> None:
    for key, allowed in (("kind", kinds), ("source", sources)):
        if key not in row:
            if not own:
                raise UserError(f"{at} lacks '{key}'")
        elif row[key] not in allowed:
            raise UserError(f"{at} has the unknown {key} {row[key]!r}: {suggest(str(row[key]), allowed)}")


def _value(key: str, value: Any, at: str) -> Any:
    if key in TEXTS:
        if value not in SPLITS:
            raise UserError(f"{at}: '{key}' = {value!r}: {suggest(str(value), SPLITS)}")
        return str(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UserError(f"{at}: '{key}' must be a finite number, not {value!r}")
    if value < 0.0 or (value == 0.0 and key not in MAY_BE_ZERO):
        raise UserError(f"{at}: '{key}' = {value:g} must be above zero")
    if value > _MOST:
        raise UserError(f"{at}: '{key}' = {value:g} exceeds what any model has; is the unit right?")
    return float(value)
