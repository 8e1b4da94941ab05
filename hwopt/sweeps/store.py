"""Sweep store: Zarr arrays readable by xarray, written block by block, resumable after any interruption.

The root group contains the user's data: rows, if stored, and finally the summary. The group `blocks` contains for each block
its counts, best variants and front, and the size and checksum of its files. One additional entry has the checksum of the
summary. The array `done` marks complete blocks and is written last.

An incomplete block is recomputed and overwritten. A store therefore ends bit-identical regardless of interruptions.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zarr
from zarr.codecs import BloscCodec
from zarr.storage import FsspecStore, MemoryStore

from hwopt.cleanup import pause, removed_on_exit
from hwopt.errors import UserError
from hwopt.sweeps import storage
from hwopt.sweeps.storage import Place

BLOCKS, DONE, CHECKSUM = "blocks", "done", "checksum"

ROWS = "variant"
"""Dimension name of data stored for every variant."""

_SMALL = BloscCodec(cname="zstd", clevel=3, shuffle="shuffle")
"""Compression of everything except rows; rows are incompressible and would take a third of the run time."""


_ROOT = "zarr.json"
"""File with the metadata of a store or of one of its arrays."""

NOTHING = "nothing is written yet"

Summary = dict[str, tuple[str, Any, dict[str, Any]]]
"""Name -> dimensions separated by blanks, numbers, attributes."""


@contextlib.contextmanager
def writing(folder: Place | None, kept: Callable[[], str]) -> Iterator[None]:
    """Convert a write failure of a disk or object store to a one-line `UserError` that also states the saved progress."""
    try:
        with storage.as_os_errors(folder):
            yield
    except OSError as error:
        raise UserError(
            f"sweep: {folder} cannot be written ({error.strerror or error}); {kept()}; run the same command again to resume"
        ) from error


def check_room(folder: Place | None) -> None:
    """Reject a folder that cannot be created, before anything is computed for it.

    **Raises:** `UserError` if nothing can be written next to it.
    """
    if folder is None:
        return
    with writing(folder, lambda: NOTHING):
        storage.check_writable(folder)


def damaged(folder: Place | None, what: str) -> UserError:
    """Return the error for a store that cannot be repaired."""
    return UserError(
        f"sweep: {folder} is damaged ({what}): remove that folder and run the same command again, or choose another --out"
    )


class StoreColumn(NamedTuple):
    """Declaration of an array of a store.

    Unwritten elements are NaN for floats, -1 for integer codes of rows, and 0 for other integers.
    """

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: Any
    attributes: Mapping[str, Any] = {}


@dataclass
class Store:
    """An open Zarr store of a sweep's results.

    **Arguments:** `group`: its root group; `folder`: its place on disk or in an object store; None: in memory.
    """

    group: zarr.Group
    folder: Place | None
    _open: dict[str, Any] = field(default_factory=dict)  # arrays by path; opening one rereads its metadata
    _sent: dict[str, memoryview] = field(default_factory=dict)  # row files of the block, for checksums

    @staticmethod
    def created(
        folder: Place | None,
        attributes: Mapping[str, Any],
        rows: Mapping[str, StoreColumn],
        partial: Mapping[str, np.ndarray],
        blocks: int,
    ) -> Store:
        """Create an empty store. On disk it appears atomically; in an object store its metadata are written last.

        **Arguments:**

        - `folder`: must be empty or not exist; None: in memory.
        - `rows`: row arrays of the root group.
        - `partial`: example of the arrays that each block writes.
        """
        if folder is not None and not isinstance(folder, Path):
            with writing(folder, lambda: NOTHING), tempfile.TemporaryDirectory() as here:
                made = Path(here) / "made"
                Store.created(made, attributes, rows, partial, blocks)
                storage.published(made, folder, _ROOT)
            return Store.opened(folder)
        aside = None if folder is None else storage.aside_of(folder)
        assert aside is None or isinstance(aside, Path)

        def remove() -> None:  # also removes the remains of a killed process
            if aside is not None:
                storage.removed(aside)

        with writing(folder, lambda: NOTHING), removed_on_exit(remove):
            remove()
            if aside is not None:
                aside.parent.mkdir(parents=True, exist_ok=True)
            target: Any = MemoryStore() if aside is None else str(aside)
            group = zarr.open_group(target, mode="w", zarr_format=3, attributes=dict(attributes))
            inner = {DONE: StoreColumn(("block",), (blocks,), (1,), np.int8)}
            inner[CHECKSUM] = StoreColumn(("block", "size_and_crc32"), (blocks + 1, 2), (1, 2), np.uint64)
            for name, x in partial.items():
                dims = ("block", *(f"{name}_{axis}" for axis in range(x.ndim)))
                inner[name] = StoreColumn(dims, (blocks, *x.shape), (1, *x.shape), x.dtype)
            for place, columns in ((group, rows), (group.create_group(BLOCKS), inner)):
                for name, column in columns.items():
                    _array(place, name, column)
            if folder is None or aside is None:
                return Store(group, None)
            with contextlib.suppress(OSError):
                folder.rmdir()  # an empty folder would prevent the rename
            os.replace(aside, folder)
        return Store.opened(folder)

    @staticmethod
    def opened(folder: Place) -> Store:
        """Open an existing store.

        **Raises:** `UserError` if the folder contains something else.
        """
        try:
            target = (
                str(folder)
                if isinstance(folder, Path)
                else FsspecStore.from_url(str(folder), storage_options=dict(folder.storage_options))
            )
            group = zarr.open_group(target, mode="r+", zarr_format=3)
            _ = group[BLOCKS][DONE], group[BLOCKS][CHECKSUM]  # pyright: ignore
        except PermissionError as error:
            raise UserError(f"sweep: {folder} cannot be written to ({error.strerror})") from None
        except Exception as error:  # zarr raises many exception types for folders that are not stores
            kind = type(error).__name__
            if (folder / BLOCKS / DONE).is_dir():
                raise damaged(folder, f"its description cannot be read, {kind}") from None
            raise UserError(
                f"sweep: {folder} holds something else than a sweep ({kind}): choose another --out"
            ) from None
        return Store(group, folder)

    def attribute(self, name: str) -> dict[str, Any]:
        """Return an attribute that is a JSON object.

        **Raises:** `UserError` if it cannot be read.
        """
        with contextlib.suppress(ValueError):
            value = json.loads(str(self.group.attrs.get(name, "{}")))
            if isinstance(value, dict):
                return value
        raise damaged(self.folder, f"its {name} cannot be read")

    def differing(self, name: str, document: str) -> list[str]:
        """Return the names of entries in which an attribute differs from the requested `document`, a JSON object each."""
        stored, other = self.attribute(name), json.loads(document)
        return sorted(each for each in stored.keys() | other.keys() if stored.get(each) != other.get(each))

    def array(self, path: str) -> Any:
        """Return an array of the root group or of `blocks/`."""
        if path not in self._open:
            self._open[path] = self.group[path]
        return self._open[path]

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self.array(f"{BLOCKS}/{DONE}").shape[0]

    def done(self) -> np.ndarray:
        """Return which blocks are complete (block,)."""
        try:
            return np.asarray(self.array(f"{BLOCKS}/{DONE}")[:]) == 1
        except (ValueError, RuntimeError):  # raised by a codec
            raise damaged(self.folder, "which of its blocks are done cannot be read") from None

    def write(
        self, block: int, region: Sequence[Any], rows: Mapping[str, np.ndarray], partial: Mapping[str, np.ndarray]
    ) -> None:
        """Write a block: rows at `region` (first and last axes), then its reduced data, then the mark that it is done."""
        for name, values in rows.items():
            pause()
            if self.folder is None:
                self.array(name)[(*region[:-1], ..., region[-1])] = values
            else:
                self._write_rows(name, block, values)
        for name, values in partial.items():
            pause()
            self.array(f"{BLOCKS}/{name}")[block] = values
        self.seal(block)
        self.array(f"{BLOCKS}/{DONE}")[block] = 1

    def _write_rows(self, name: str, block: int, values: np.ndarray) -> None:
        """Write the file of a block's rows in the format of Zarr: uncompressed numbers, padded to a whole chunk.

        Zarr itself would copy the rows three times.
        """
        array, path = self.array(name), self.of_block(name, block)
        if values.shape[-1] < array.chunks[-1]:
            whole = np.full((*values.shape[:-1], array.chunks[-1]), array.fill_value, values.dtype)
            whole[..., : values.shape[-1]] = values
            values = whole
        data = np.ascontiguousarray(values, array.dtype.newbyteorder("<")).data.cast("B")
        storage.put(path, data)
        self._sent[str(path)] = data

    def files(self, block: int) -> list[Place]:
        """Return the files that hold a block's part of each array, without the file that marks the block as done.

        Files of blocks that are not written yet are listed although they do not exist. The number after the last block stands for
        the summary: all arrays of the root group except rows.
        """
        assert self.folder is not None
        if block == self.blocks:
            own = {BLOCKS, *self.of_blocks}
            inside = (each for each in self.folder.iterdir() if each.name not in own and each.is_dir())
            paths = (path for each in inside for path in each.rglob("*"))
            return sorted(
                (path for path in paths if path.is_file() and path.name != _ROOT), key=lambda path: tuple(path.parts)
            )
        return [self.of_block(path, block) for path in self.of_blocks]

    def of_block(self, path: str, block: int) -> Place:
        """Return the file with a block's part of an array."""
        array = self.array(path)
        case, number = divmod(block, max(1, array.cdata_shape[-1]))  # of rows; an empty array has no file
        places = {"case": case, ROWS: number, "block": block}
        return self.file(path, [places.get(name, 0) for name in array.metadata.dimension_names])

    @cached_property
    def of_blocks(self) -> list[str]:
        """Paths of the arrays to which every finished block contributes, sorted."""
        rows = [name for name in self.group.array_keys() if is_rows(self.array(name))]
        blocks: Any = self.group[BLOCKS]
        return sorted(rows) + [f"{BLOCKS}/{name}" for name in sorted(set(blocks.array_keys()) - {DONE, CHECKSUM})]

    def size(self, block: int) -> int:
        """Return the bytes of a block's files, plus one for each existing file."""
        sizes = [storage.size_of(path) for path in self.files(block)]
        return sum(size + 1 for size in sizes if size is not None)

    def checksum(self, block: int) -> int:
        """Return the CRC-32 of a block's files, in order."""
        code = 0
        for path in self.files(block):
            try:
                for piece in [self._sent[str(path)]] if str(path) in self._sent else storage.pieces(path):
                    code = zlib.crc32(piece, code)
            except FileNotFoundError:
                code = zlib.crc32(b"no file", code)
        return code

    def seal(self, block: int) -> None:
        """Write the size and checksum of a block's files, by which damage is detected later."""
        if self.folder is not None:
            self.array(f"{BLOCKS}/{CHECKSUM}")[block] = self.size(block), self.checksum(block)
        self._sent.clear()

    def file(self, path: str, chunk: Sequence[int]) -> Place:
        """Return the file of a chunk of an array."""
        assert self.folder is not None
        return self.folder / path / self.array(path).metadata.encode_chunk_key(tuple(chunk))

    def partials(self) -> dict[str, np.ndarray]:
        """Return the reduced data of all blocks, (block, ...) each."""
        blocks: Any = self.group[BLOCKS]
        return {name: np.asarray(array[:]) for name, array in blocks.arrays() if name not in (DONE, CHECKSUM)}

    def finish(self, summary: Summary, attributes: Mapping[str, Any]) -> None:
        """Write the summary; existing arrays are replaced."""
        for name, (dims, numbers, attrs) in summary.items():
            if name in self.group:
                del self.group[name]
            values = np.asarray(numbers)
            column = StoreColumn(tuple(dims.split()), values.shape, values.shape, values.dtype, attrs)
            _array(self.group, name, column)[...] = values
        self._open.clear()
        self.seal(self.blocks)
        self.group.attrs.update(dict(attributes))

        # Consolidated metadata: xarray looks for this file first. It is not in Zarr's format 3 yet, hence the warning.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.group = zarr.consolidate_metadata(self.group.store, zarr_format=3)
        self._open.clear()

    @property
    def finished(self) -> bool:
        """Whether the summary is complete, including its last file."""
        return bool(self.group.attrs.get("finished")) and self.group.metadata.consolidated_metadata is not None

    def sweep_up(self) -> None:
        """Delete temporary files of interrupted writers; object stores have none, because objects appear atomically."""
        if isinstance(self.folder, Path):
            for path in self.folder.rglob("*.partial"):
                path.unlink(missing_ok=True)


def is_rows(array: Any) -> bool:
    """Return whether an array has data of every variant."""
    return ROWS in (array.metadata.dimension_names or ())


def _array(group: zarr.Group, name: str, column: StoreColumn) -> Any:
    pause()
    dims, shape, chunks, dtype, attributes = column
    return group.create_array(
        name,
        shape=shape,
        chunks=tuple(max(1, size) for size in chunks),
        dtype=np.dtype(dtype),
        fill_value=np.nan if np.dtype(dtype).kind == "f" else -1 if ROWS in dims else 0,
        dimension_names=list(dims),
        attributes=dict(attributes),
        compressors=None if ROWS in dims else _SMALL,
        config={"write_empty_chunks": True},  # the same files regardless of content, and no test for emptiness
    )
