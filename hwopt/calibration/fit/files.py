"""Writer of calibration files, in the format that `hwopt.catalog.calibration` reads."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hwopt import escape
from hwopt.catalog import Calibration
from hwopt.errors import UserError


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Provide a temporary file next to `path` and delete it at the end; report write failures in one line."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield beside
    except (OSError, ValueError) as failure:  # ValueError: NUL character in the name
        raise UserError(f"cannot write {path}: {getattr(failure, 'strerror', None) or failure}") from None
    finally:
        with suppress(OSError, ValueError):
            beside.unlink(missing_ok=True)


def check_writable(path: str | Path) -> None:
    """Check before a long fit that a path names a file in an existing, writable folder.

    **Raises:** `UserError` if `write` could not write the file.
    """
    if not isinstance(path, (str, os.PathLike)) or not str(path).strip():
        raise UserError(f"the calibration's file is named by its path, not by {path!r}")
    if os.path.isdir(path):  # unlike Path.is_dir, returns False for names that are too long
        raise UserError(f"cannot write {path}: it is a folder; name a .toml file in it")
    with _beside(Path(path)) as beside:
        beside.touch()


def write(path: str | Path, calibration: Calibration) -> None:
    """Write a calibration as a TOML file, completely or not at all.

    **Raises:** `UserError` if it cannot be written.
    """
    title, note = escape.toml(calibration.title), escape.toml(calibration.note)
    lines = [f"title = {title}", f"note = {note}", f"runs = {calibration.runs}"]
    texts = {"date": calibration.date, "operation": calibration.operation}
    lines += [*(f"{name} = {escape.toml(text)}" for name, text in texts.items() if text), "", "[shifts]"]
    for (name, scope), shift, sd in zip(calibration.scopes.entries, calibration.shifts, calibration.sd, strict=True):
        lines.append(f"{escape.toml(f'{name}@{scope}')} = {{ shift = {shift:.5f}, sd = {sd:.5f} }}")
    if calibration.left_out:
        lines += ["", "[left_out]"]
    for source, row in sorted(calibration.left_out.items()):
        lines.append(f"{escape.toml(source)} = [{', '.join(f'{x:.4f}' for x in row)}]")
    if calibration.intervals:
        lines += ["", "[intervals]", *(f"{term} = {value:.4f}" for term, value in calibration.intervals.items())]
    for machine, terms in sorted(calibration.own.items()):
        lines += ["", f"[own.{escape.toml(machine)}]", *(f"{term} = {value:.4f}" for term, value in terms.items())]
    with _beside(Path(path)) as beside:
        beside.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.replace(beside, path)
