"""Where a page goes: looked at before the long computing starts, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from hwopt.errors import UserError


def writable(flag: str, text: str) -> Path:
    """The file that a flag names, once a file can be written there; links are followed. Nothing that is there is touched.

    **Raises:** `UserError` where it cannot.
    """
    path = Path(os.path.realpath(os.path.expanduser(text)))
    if not text.strip() or path.is_dir():
        raise UserError(f"{flag} '{text}': is a folder; name a file, such as report.html")
    if path.exists() and not path.is_file():
        raise UserError(f"{flag} {text}: is no ordinary file")
    if not path.parent.is_dir():
        raise UserError(f"{flag} {text}: there is no folder {path.parent}; make it first")
    if path.exists() and not os.access(path, os.W_OK):
        raise UserError(f"{flag} {text}: the file is there and must not be written over")
    beside = _beside(path)
    try:
        beside.touch()
        beside.unlink()
    except OSError as failure:
        raise UserError(f"{flag} {text}: cannot be written ({failure.strerror or failure})") from None
    return path


def write(path: Path, text: str) -> None:
    """One file, whole or not at all.

    **Raises:** `UserError` where it cannot be written.
    """
    beside = _beside(path)
    try:
        beside.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
        os.replace(beside, path)
    except OSError as failure:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise UserError(f"{path}: cannot be written ({failure.strerror or failure})") from None


def _beside(path: Path) -> Path:
    """A file of this process's own in the same folder, so that the last step is a rename."""
    return path.with_name(f".{path.name[:100]}.{os.getpid()}")
