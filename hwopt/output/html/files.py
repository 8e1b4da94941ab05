"""Output file of a page: checked before a long computation starts, and written completely or not at all."""

import contextlib
import glob
import os
import time
from collections.abc import Iterator
from pathlib import Path

from hwopt.cleanup import removed_on_exit
from hwopt.errors import UserError
from hwopt.validation import path_of

_LONG_S = 3600.0


def writable(flag: str, text: str, example: str = "report.html") -> Path:
    """Return the path that a flag names, after checking that it is writable. Links are followed; existing files are kept.

    **Arguments:** `example`: a file name for error messages.

    **Raises:** `UserError` where it cannot be written.
    """
    path = Path(os.path.realpath(path_of(flag, text)))
    if path.is_dir():
        raise UserError(f"{flag} '{text}': is a folder; name a file, such as {example}")
    if path.exists() and not path.is_file():
        raise UserError(f"{flag} {text}: is no ordinary file")
    if not path.parent.is_dir():
        raise UserError(f"{flag} {text}: there is no folder {path.parent}; make it first")
    if path.exists() and not os.access(path, os.W_OK):
        raise UserError(f"{flag} {text}: the file is there and must not be written over")
    _sweep_up(path)
    with _beside(path, f"{flag} {text}") as beside:
        beside.touch()
    return path


def write(path: Path, text: str) -> None:
    """Write one file completely or not at all.

    **Raises:** `UserError` where it cannot be written.
    """
    with _beside(path, str(path)) as beside:
        beside.write_text(text, encoding="utf-8", newline="\n")
        os.replace(beside, path)


@contextlib.contextmanager
def _beside(path: Path, what: str) -> Iterator[Path]:
    """Yield a temporary file of this process in the same folder, so that a rename completes the write; remove it on exit."""
    beside = path.with_name(f".{path.name[:50]}.{os.getpid()}.partial")
    try:
        with removed_on_exit(beside.unlink):
            yield beside
    except OSError as failure:
        raise UserError(f"{what}: cannot be written ({failure.strerror or failure})") from None


def _sweep_up(path: Path) -> None:
    """Remove temporary files that killed processes left; after an hour, longer than any page takes, none is in use."""
    for left in path.parent.glob(f".{glob.escape(path.name[:50])}.*.partial"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _LONG_S:
                left.unlink()
