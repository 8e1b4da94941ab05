"""Storage locations: a local folder (`Path`) or a folder of an object store (`UPath`), with the operations that sweeps need.

An object appears completely or not at all, like a file that is renamed into place. Objects cannot be renamed or locked.
Therefore the metadata of a new store are written last, and a marker object next to the store exists until then. Two sweeps of
one store in an object store do not detect each other, but write the same data.
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
"""Options of object-store file systems: listings are not cached, because other processes write to the store."""

_NOT_OF_STORES = frozenset({"builtins", "hwopt", "objectives", "jax", "jaxlib", "numpy", "xarray", "zarr", "numcodecs"})
"""Packages whose exceptions are internal errors, not errors of an object store; an `OSError` needs no conversion."""

_PIECE = 1 << 20
"""Bytes read at a time."""

Place: TypeAlias = Union[Path, "UPath"]
"""Location of a store. A `UPath` of a local folder is a `Path`, a `UPath` of an object store is not."""


def is_url(place: Any) -> TypeGuard[str]:
    """Return whether a value is text with a URL scheme, such as `s3://bucket/runs`."""
    return isinstance(place, str) and place.partition("://")[0].isidentifier() and "://" in place


def place_of(what: str, place: Any, room: int = 0) -> Place:
    """Return the location of a store. **Arguments:** as in `path_of`; or a URL (`file://` is a local folder), or a `UPath`.

    **Raises:** `UserError` as in `path_of`, and for an unknown scheme, a missing package, or a URL without a folder.
    """
    upath = sys.modules.get("upath")
    if upath and isinstance(place, upath.UPath) and not isinstance(place, Path):
        return upath.UPath(place, **OPTIONS)
    if not is_url(place):
        return path_of(what, place, room)
    scheme, _, rest = place.partition("://")
    if scheme == "file":
        if not rest.startswith("/"):
            raise UserError(f"{what} {place}: write file:///absolute/path, with three slashes")
        return path_of(what, unquote(rest), room)
    try:
        import fsspec
        from upath import UPath
    except ImportError:
        raise UserError(
            f"{what} {place}: object stores require universal-pathlib: pip install 'hwopt[stores]'"
        ) from None
    if scheme not in fsspec.available_protocols():
        raise UserError(f"{what} {place}: unknown scheme '{scheme}': {suggest(scheme, fsspec.available_protocols())}")
    folder = rest.strip("/")
    if not folder or (scheme != "memory" and "/" not in folder):
        raise UserError(f"{what} {place}: name a folder of its own, such as {scheme}://bucket/runs/first")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # generic UPath classes work too
            path = UPath(place.rstrip("/"), **OPTIONS)
        _ = path.fs  # imports the package of the scheme
    except ImportError as error:  # the package of this file system is missing
        raise UserError(
            f"{what} {place}: {str(error).rstrip('.')}; pip install 'hwopt[stores]' installs the packages for s3 and gs"
        ) from None
    except Exception as error:  # each file system has its own exception types
        raise UserError(f"{what} {place}: cannot be used ({_said(error)})") from None
    return path


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


@contextlib.contextmanager
def as_os_errors(place: Place | None) -> Iterator[None]:
    """Convert exceptions of object-store packages to `OSError`; internal errors pass through unchanged."""
    try:
        yield
    except Exception as error:
        if place is None or isinstance(place, Path) or type(error).__module__.partition(".")[0] in _NOT_OF_STORES:
            raise
        raise OSError(_said(error)) from error


def put(place: Place, data: Any) -> None:
    """Write a file or object, completely or not at all. **Arguments:** `data`: bytes, or an object with a bytes buffer."""
    if not isinstance(place, Path):
        place.fs.pipe_file(place.path, bytes(data))
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    aside = place.with_name(f"{place.name}.{uuid.uuid4().hex}.partial")
    aside.write_bytes(data)
    os.replace(aside, place)


def size_of(place: Place) -> int | None:
    """Return the bytes of a file or object; None if it does not exist."""
    try:
        return place.stat().st_size
    except FileNotFoundError:
        return None


def pieces(place: Place) -> Iterator[bytes]:
    """Yield the bytes of a file or object in chunks."""
    with place.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def check_writable(place: Place) -> None:
    """Check write access by creating and deleting a file next to a location, which need not exist yet.

    **Raises:** `OSError` if that fails.
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
    """Return the temporary path next to a store under construction: of its folder before the rename, or of a marker object."""
    return place.with_name(f".{place.name}.new")


def published(made: Path, place: UPath, last: str) -> None:
    """Copy a locally created folder to an object store. **Arguments:** `last`: file that is copied last, to signal
    completeness.
    """
    mark = aside_of(place)
    put(mark, b"")
    paths = sorted(path for path in made.rglob("*") if path.is_file())
    for path in sorted(paths, key=lambda each: each == made / last):
        put(place / path.relative_to(made).as_posix(), path.read_bytes())
    mark.unlink()


def forget_half_made(place: UPath, last: str) -> None:
    """Delete an incomplete store left by a killed process, recognized by its marker object."""
    mark = aside_of(place)
    if not mark.exists():
        return
    if place.exists() and not (place / last).exists():
        place.fs.rm(place.path, recursive=True)
    mark.unlink(missing_ok=True)


def removed(place: Path) -> None:
    """Delete a local folder, if it exists."""
    shutil.rmtree(place, ignore_errors=True)


def uploaded(folder: Path, place: UPath) -> list[UPath]:
    """Copy the files of a local folder, without subfolders, to an object store. **Returns:** their new locations."""
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    for path in paths:
        put(place / path.name, path.read_bytes())
    return [place / path.name for path in paths]
