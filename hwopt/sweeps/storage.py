"""Where a store lies: a local folder (`Path`) or a folder of an object store (`UPath`), and what a sweep does at either.

An object appears whole or not at all, as a file does that is renamed; nothing can be renamed or locked. So a new store is
written description last, with a mark beside it until then, and two sweeps at one store do not see each other: what they write
is the same.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, Union
from urllib.parse import unquote

from hwopt.errors import UserError, suggest
from hwopt.validation import path_of

if TYPE_CHECKING:  # the package of an extra, which takes 80 ms to import
    from upath import UPath

OPTIONS: dict[str, Any] = {"use_listings_cache": False}
"""Of file systems: others write to the store, so that no listing may be remembered."""

_NOT_OF_STORES = frozenset({"builtins", "hwopt", "objectives", "jax", "jaxlib", "numpy", "xarray", "zarr", "numcodecs"})
"""Packages whose errors are not those of an object store; an `OSError` is one already."""

_PIECE = 1 << 20
"""Bytes that are read at a time."""

Place: TypeAlias = Union[Path, "UPath"]
"""A `UPath` of a local folder is a `Path`, one of an object store is not."""


def is_url(place: Any) -> TypeGuard[str]:
    """Whether text names a scheme, as in `s3://bucket/runs`."""
    return isinstance(place, str) and place.partition("://")[0].isidentifier() and "://" in place


def place_of(what: str, place: Any, room: int = 0) -> Place:
    """Return the place of a store. **Arguments:** as of `path_of`; or a URL (`file://` is a local folder), or a `UPath`.

    **Raises:** `UserError` as `path_of`, for a scheme that nobody knows, a package that is missing, and a URL without a folder.
    """
    upath = sys.modules.get("upath")
    if upath and isinstance(place, upath.UPath) and not isinstance(place, Path):
        return upath.UPath(place, **OPTIONS)
    if not is_url(place):
        return path_of(what, place, room)
    scheme, _, rest = place.partition("://")
    if scheme == "file":
        if not rest.startswith("/"):
            raise UserError(f"{what} {place}: write file:///absolute/path, with three strokes")
        return path_of(what, unquote(rest), room)
    try:
        import fsspec
        from upath import UPath
    except ImportError:
        raise UserError(
            f"{what} {place}: object stores take the package universal-pathlib: pip install 'hwopt[stores]'"
        ) from None
    if scheme not in fsspec.available_protocols():
        raise UserError(f"{what} {place}: unknown scheme '{scheme}': {suggest(scheme, fsspec.available_protocols())}")
    folder = rest.strip("/")
    if not folder or (scheme != "memory" and "/" not in folder):
        raise UserError(f"{what} {place}: name a folder of its own, such as {scheme}://bucket/runs/first")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a scheme without a class of its own works by the general one
            path = UPath(place.rstrip("/"), **OPTIONS)
        _ = path.fs  # imports the package of the scheme
    except ImportError as error:  # of the file system's own package
        raise UserError(
            f"{what} {place}: {str(error).rstrip('.')}; pip install 'hwopt[stores]' has that of s3 and gs"
        ) from None
    except Exception as error:  # of kinds that each file system has of its own
        raise UserError(f"{what} {place}: cannot be used ({_said(error)})") from None
    return path


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


@contextlib.contextmanager
def as_os_errors(place: Place | None) -> Iterator[None]:
    """What packages of object stores raise, in kinds of their own, as the `OSError` of a disk; faults of ours stay faults."""
    try:
        yield
    except Exception as error:
        if place is None or isinstance(place, Path) or type(error).__module__.partition(".")[0] in _NOT_OF_STORES:
            raise
        raise OSError(_said(error)) from error


def put(place: Place, data: Any) -> None:
    """Write a file or object, whole or not at all. **Arguments:** `data`: bytes, or what has their buffer."""
    if not isinstance(place, Path):
        place.fs.pipe_file(place.path, bytes(data))
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    aside = place.with_name(f"{place.name}.{uuid.uuid4().hex}.partial")
    aside.write_bytes(data)
    os.replace(aside, place)


def size_of(place: Place) -> int | None:
    """Bytes of a file or object; None where there is none."""
    try:
        return place.stat().st_size
    except FileNotFoundError:
        return None


def pieces(place: Place) -> Iterator[bytes]:
    """The bytes of a file or object, some at a time."""
    with place.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def check_writable(place: Place) -> None:
    """Write something beside a place that may not exist yet, and remove it.

    **Raises:** `OSError` where that fails.
    """
    if not isinstance(place, Path):
        beside = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
        put(beside, b"")
        beside.unlink()
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=place.parent):
        pass


def aside_of(place: Place) -> Place:
    """What stands beside a place while a store is made there: the new folder itself, or an object that says so."""
    return place.with_name(f".{place.name}.new")


def published(made: Path, place: UPath, last: str) -> None:
    """Copy a folder that was made locally. **Arguments:** `last`: its file by which others know that all is there."""
    mark = aside_of(place)
    put(mark, b"")
    paths = sorted(path for path in made.rglob("*") if path.is_file())
    for path in sorted(paths, key=lambda each: each == made / last):
        put(place / path.relative_to(made).as_posix(), path.read_bytes())
    mark.unlink()


def forget_half_made(place: UPath, last: str) -> None:
    """Remove what a killed process left of a store that it made: what has a mark beside it."""
    mark = aside_of(place)
    if not mark.exists():
        return
    if place.exists() and not (place / last).exists():
        place.fs.rm(place.path, recursive=True)
    mark.unlink(missing_ok=True)


def removed(place: Path) -> None:
    """Remove a local folder, if there is one."""
    shutil.rmtree(place, ignore_errors=True)


def uploaded(folder: Path, place: UPath) -> list[UPath]:
    """Copy the files of a local folder, without those below it. **Returns:** where they are."""
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    for path in paths:
        put(place / path.name, path.read_bytes())
    return [place / path.name for path in paths]
