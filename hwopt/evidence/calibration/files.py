"""Writes a calibration as the data file that `hwopt.catalog.calibration` reads."""

from __future__ import annotations

import json
import os
from pathlib import Path

from hwopt.catalog import Calibration
from hwopt.errors import UserError


def _beside(path: Path) -> Path:
    """Where a file is written before it takes its place."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def check_writable(path: str | Path) -> None:
    """Looks at a path before a fit of minutes: that it names a file in a folder which exists and takes new files.

    **Raises:** `UserError` where `write` could not write it.
    """
    if not isinstance(path, (str, os.PathLike)) or not str(path).strip():
        raise UserError(f"the calibration's file is named by its path, not by {path!r}")
    path = Path(path)
    try:
        if path.is_dir():
            raise UserError(f"cannot write {path}: it is a folder; name a .toml file in it")
        _beside(path).touch()
        _beside(path).unlink()
    except UserError:
        raise
    except (OSError, ValueError) as failure:  # ValueError: a NUL in the name
        raise UserError(f"cannot write {path}: {getattr(failure, 'strerror', None) or failure}") from None


def write(path: str | Path, calibration: Calibration) -> None:
    """One TOML file, whole or not at all.

    **Raises:** `UserError` where it cannot be written.
    """
    title, note = json.dumps(calibration.title), json.dumps(calibration.note)
    lines = [f"title = {title}", f"note = {note}", f"runs = {calibration.runs}", "", "[shifts]"]
    lines += [
        f'"{name}@{scope}" = {{ shift = {shift:.5f}, sd = {deviation:.5f} }}'
        for (name, scope), shift, deviation in zip(
            calibration.scopes.entries, calibration.shifts, calibration.sd, strict=True
        )
    ]
    if calibration.left_out:
        rows = (
            (json.dumps(source), ", ".join(f"{x:.4f}" for x in row))
            for source, row in sorted(calibration.left_out.items())
        )
        lines += ["", "[left_out]", *(f"{source} = [{row}]" for source, row in rows)]
    if calibration.intervals:
        lines += ["", "[intervals]", *(f"{term} = {value:.4f}" for term, value in calibration.intervals.items())]
    path = Path(path)
    beside = _beside(path)
    try:
        beside.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.replace(beside, path)
    except OSError as failure:
        beside.unlink(missing_ok=True)
        raise UserError(f"cannot write {path}: {failure.strerror or failure}") from None
