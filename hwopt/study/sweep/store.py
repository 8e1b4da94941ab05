"""A sweep on disk: Zarr arrays that xarray opens, written block by block, resumable after any interruption.

The root holds what users read: rows, where they are kept, and at the end the summary. The group `blocks` holds each block's
counts, best variants and front, and in `done` whether it is complete, which is written last. A block that is not done is
computed again and written over, so that a store ends the same bit for bit whatever happened to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec
from zarr.storage import MemoryStore

from hwopt.errors import UserError

BLOCKS, DONE = "blocks", "done"

_SMALL = BloscCodec(cname="zstd", clevel=3, shuffle="shuffle")
"""Compression of everything but rows: those are noise to a compressor, which would take a third of the time."""


@dataclass(frozen=True)
class Column:
    """An array of the root."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: Any
    fill: float
    attributes: Mapping[str, Any]


@dataclass
class Store:
    """An open store. `group` is its root."""

    group: zarr.Group
    folder: Path | None
    _open: dict[str, Any] = field(default_factory=dict)  # arrays by path: opening one reads its description again

    @staticmethod
    def created(
        folder: Path | None,
        attributes: Mapping[str, Any],
        rows: Mapping[str, Column],
        partial: Mapping[str, np.ndarray],
        blocks: int,
    ) -> Store:
        """A new, empty store; on disk it appears at once or not at all.

        **Arguments:** `folder` (None: in memory), which must not exist or be empty; `rows`: arrays of the root; `partial`:
        an example of what each block leaves.
        """
        target: Any = MemoryStore()
        aside = None
        if folder is not None:
            aside = folder.with_name(f".{folder.name}.new")
            target = str(aside)
        with writing(folder, lambda: "nothing is written yet"):
            if aside is not None:
                shutil.rmtree(aside, ignore_errors=True)  # of a killed process
                aside.parent.mkdir(parents=True, exist_ok=True)
            group = zarr.open_group(target, mode="w", zarr_format=3, attributes=dict(attributes))
            for name, column in rows.items():
                _array(group, name, column)
            inner = group.create_group(BLOCKS)
            for name, example in partial.items():
                filling = np.nan if np.issubdtype(example.dtype, np.floating) else 0
                _array(
                    inner,
                    name,
                    Column(
                        ("block", *(f"{name}_{axis}" for axis in range(example.ndim))),
                        (blocks, *example.shape),
                        (1, *example.shape),
                        example.dtype,
                        filling,
                        {},
                    ),
                )
            _array(inner, DONE, Column(("block",), (blocks,), (1,), np.dtype(np.int8), 0, {}))
            if folder is not None and aside is not None:
                with contextlib.suppress(OSError):
                    folder.rmdir()  # an empty one may stand in the way
                os.replace(aside, folder)
        return Store(group, None) if folder is None else Store.opened(folder)

    @staticmethod
    def opened(folder: Path) -> Store:
        """A store that is there.

        **Raises:** `UserError` where the folder holds something else.
        """
        try:
            group = zarr.open_group(str(folder), mode="r+", zarr_format=3)
            done = group[BLOCKS][DONE]  # pyright: ignore
        except PermissionError as error:
            raise UserError(f"sweep: {folder} cannot be written to ({error.strerror})") from None
        except Exception as error:  # zarr has many ways to say that this is no store of ours
            raise UserError(
                f"sweep: {folder} holds something else than a sweep ({type(error).__name__}): choose another --out"
            ) from None
        assert done is not None
        return Store(group, folder)

    @property
    def attributes(self) -> dict[str, Any]:
        return dict(self.group.attrs)

    def array(self, path: str) -> Any:
        """An array of the root, or one of `blocks/`."""
        if path not in self._open:
            self._open[path] = self.group[path]
        return self._open[path]

    def done(self) -> np.ndarray:
        """Which blocks are complete (block,)."""
        return np.asarray(self.array(f"{BLOCKS}/{DONE}")[:]) == 1

    def write(
        self, block: int, region: Sequence[Any], rows: Mapping[str, np.ndarray], partial: Mapping[str, np.ndarray]
    ) -> None:
        """A block: rows at `region` (first and last axes), then what it leaves, then that it is done."""
        for name, values in rows.items():
            array = self.array(name)
            *case, variants = region
            array[(*case, *(slice(None),) * (array.ndim - len(region)), variants)] = values
        for name, values in partial.items():
            self.array(f"{BLOCKS}/{name}")[block] = values
        self.array(f"{BLOCKS}/{DONE}")[block] = 1

    def partials(self) -> dict[str, np.ndarray]:
        """What all blocks left, (block, ...) each."""
        blocks: Any = self.group[BLOCKS]
        return {name: np.asarray(array[:]) for name, array in blocks.arrays() if name != DONE}

    def finish(self, summary: Mapping[str, tuple[Column, np.ndarray]], attributes: Mapping[str, Any]) -> None:
        """Write the summary; arrays that are there already are replaced."""
        for name, (column, values) in summary.items():
            if name in self.group:
                del self.group[name]
            _array(self.group, name, column)[...] = values
        self.group.attrs.update(dict(attributes))

        # One file with all descriptions, which xarray looks for first; Zarr's format 3 does not know it yet, and warns.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.group = zarr.consolidate_metadata(self.group.store, zarr_format=3)
        self._open.clear()

    @property
    def finished(self) -> bool:
        """Whether the summary is there, its last file too."""
        return bool(self.group.attrs.get("finished")) and self.group.metadata.consolidated_metadata is not None

    def sweep_up(self) -> None:
        """Remove what interrupted writers left: files that never got their name."""
        if self.folder is not None:
            for path in self.folder.rglob("*.partial"):
                path.unlink(missing_ok=True)


def _array(group: zarr.Group, name: str, column: Column) -> Any:
    return group.create_array(
        name,
        shape=column.shape,
        chunks=tuple(max(1, c) for c in column.chunks),
        dtype=column.dtype,
        fill_value=column.fill,
        dimension_names=list(column.dims),
        attributes=dict(column.attributes),
        compressors=None if "variant" in column.dims else _SMALL,
        config={"write_empty_chunks": True},  # the same files whatever is in them, and no search for emptiness
    )


@contextlib.contextmanager
def writing(folder: Path | None, kept: Callable[[], str]) -> Iterator[None]:
    """Failures of a disk as one line that says what is left."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"sweep: {folder} cannot be written ({error.strerror or error}); {kept()}; run the same command again to go on"
        ) from error


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Holds a folder for one sweep; the lock of a killed process is free.

    **Raises:** `UserError` where another process writes there.
    """
    path = folder.with_name(f".{folder.name}.lock")
    handle = _locked(path, folder)
    try:
        yield
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(handle)


def _locked(path: Path, folder: Path) -> int | None:
    """A lock's handle; None where machine or file system have no locks."""
    while True:
        try:
            import fcntl

            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except (ImportError, OSError):
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(path) and os.stat(path).st_ino == os.fstat(handle).st_ino:
                return handle
        except BlockingIOError:
            os.close(handle)
            raise UserError(
                f"sweep: another process is writing to {folder}; wait for it, or choose another --out"
            ) from None
        except OSError:
            os.close(handle)
            return None
        os.close(handle)  # its holder removed the file meanwhile


def same_sweep(stored: str, asked: str) -> list[str]:
    """Names of entries in which two configurations differ."""
    a, b = json.loads(stored), json.loads(asked)
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))
