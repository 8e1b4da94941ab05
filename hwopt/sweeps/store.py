"""A sweep on disk: Zarr arrays that xarray opens, written block by block, resumable after any interruption.

The root holds what users read: rows, where they are kept, and at the end the summary. The group `blocks` holds each block's
counts, best variants and front, size and checksum of its files (behind the last block: of the summary's), and in `done`
whether it is complete, which is written last. A block that is not done is computed again and written over, so that a store
ends the same bit for bit whatever happened to it.
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
"""The dimension of what is kept of every variant."""

_SMALL = BloscCodec(cname="zstd", clevel=3, shuffle="shuffle")
"""Compression of everything but rows: those are noise to a compressor, which would take a third of the time."""


_ROOT = "zarr.json"
"""The description of a store, or of an array of it."""

NOTHING = "nothing is written yet"

Summary = dict[str, tuple[str, Any, dict[str, Any]]]
"""Name -> dimensions with blanks between, numbers, attributes."""


@contextlib.contextmanager
def writing(folder: Place | None, kept: Callable[[], str]) -> Iterator[None]:
    """Failures of a disk or an object store as one line that says what is left."""
    try:
        with storage.as_os_errors(folder):
            yield
    except OSError as error:
        raise UserError(
            f"sweep: {folder} cannot be written ({error.strerror or error}); {kept()}; run the same command again to go on"
        ) from error


def check_room(folder: Place | None) -> None:
    """Refuse a folder that cannot be made, before anything is computed for it.

    **Raises:** `UserError` where nothing can be written beside it.
    """
    if folder is None:
        return
    with writing(folder, lambda: NOTHING):
        storage.check_writable(folder)


def damaged(folder: Place | None, what: str) -> UserError:
    """The error of a store that cannot be repaired."""
    return UserError(
        f"sweep: {folder} is damaged ({what}): remove that folder and run the same command again, or choose another --out"
    )


class StoreColumn(NamedTuple):
    """An array of a store; what is not written is NaN, or -1 of rows that are codes and 0 of other integers."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: Any
    attributes: Mapping[str, Any] = {}


@dataclass
class Store:
    """An open store. `group` is its root."""

    group: zarr.Group
    folder: Place | None
    _open: dict[str, Any] = field(default_factory=dict)  # arrays by path: opening one reads its description again
    _sent: dict[str, memoryview] = field(default_factory=dict)  # bytes of the rows under way by file: not read back

    @staticmethod
    def created(
        folder: Place | None,
        attributes: Mapping[str, Any],
        rows: Mapping[str, StoreColumn],
        partial: Mapping[str, np.ndarray],
        blocks: int,
    ) -> Store:
        """A new, empty store; on disk it appears at once or not at all, in an object store its description comes last.

        **Arguments:** `folder` (None: in memory), which must not exist or be empty; `rows`: arrays of the root; `partial`:
        an example of what each block leaves.
        """
        if folder is not None and not isinstance(folder, Path):
            with writing(folder, lambda: NOTHING), tempfile.TemporaryDirectory() as here:
                made = Path(here) / "made"
                Store.created(made, attributes, rows, partial, blocks)
                storage.published(made, folder, _ROOT)
            return Store.opened(folder)
        aside = None if folder is None else storage.aside_of(folder)
        assert aside is None or isinstance(aside, Path)

        def remove() -> None:  # also what a killed process left
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
                folder.rmdir()  # an empty one may stand in the way
            os.replace(aside, folder)
        return Store.opened(folder)

    @staticmethod
    def opened(folder: Place) -> Store:
        """A store that is there.

        **Raises:** `UserError` where the folder holds something else.
        """
        try:
            target = (
                str(folder)
                if isinstance(folder, Path)
                else FsspecStore.from_url(str(folder), storage_options=dict(folder.storage_options))
            )
            group = zarr.open_group(target, mode="r+", zarr_format=3)
            _ = group[BLOCKS][DONE]  # pyright: ignore
        except PermissionError as error:
            raise UserError(f"sweep: {folder} cannot be written to ({error.strerror})") from None
        except Exception as error:  # zarr has many ways to say that this is no store of ours
            kind = type(error).__name__
            if (folder / BLOCKS / DONE).is_dir():
                raise damaged(folder, f"its description cannot be read, {kind}") from None
            raise UserError(
                f"sweep: {folder} holds something else than a sweep ({kind}): choose another --out"
            ) from None
        return Store(group, folder)

    def attribute(self, name: str) -> dict[str, Any]:
        """An attribute that is a JSON object.

        **Raises:** `UserError` where it cannot be read.
        """
        with contextlib.suppress(ValueError):
            value = json.loads(str(self.group.attrs.get(name, "{}")))
            if isinstance(value, dict):
                return value
        raise damaged(self.folder, f"its {name} cannot be read")

    def differing(self, name: str, document: str) -> list[str]:
        """Names of entries in which an attribute differs from what is asked, a JSON object each."""
        stored, other = self.attribute(name), json.loads(document)
        return sorted(each for each in stored.keys() | other.keys() if stored.get(each) != other.get(each))

    def array(self, path: str) -> Any:
        """An array of the root, or one of `blocks/`."""
        if path not in self._open:
            self._open[path] = self.group[path]
        return self._open[path]

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return self.array(f"{BLOCKS}/{DONE}").shape[0]

    def done(self) -> np.ndarray:
        """Which blocks are complete (block,)."""
        try:
            return np.asarray(self.array(f"{BLOCKS}/{DONE}")[:]) == 1
        except (ValueError, RuntimeError):  # of a codec
            raise damaged(self.folder, "which of its blocks are done cannot be read") from None

    def write(
        self, block: int, region: Sequence[Any], rows: Mapping[str, np.ndarray], partial: Mapping[str, np.ndarray]
    ) -> None:
        """A block: rows at `region` (first and last axes), then what it leaves, then that it is done."""
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
        """The file of a block's rows, as Zarr writes it: numbers as they are, filled up to a whole chunk.

        Zarr itself copies them three times on the way.
        """
        array, path = self.array(name), self.of_block(name, block)
        if values.shape[-1] < array.chunks[-1]:
            whole = np.full((*values.shape[:-1], array.chunks[-1]), array.fill_value, values.dtype)
            whole[..., : values.shape[-1]] = values
            values = whole
        data = np.ascontiguousarray(values, array.dtype.newbyteorder("<")).data.cast("B")
        storage.put(path, data)
        self._sent[str(path)] = data

    @cached_property
    def has_checksums(self) -> bool:
        """Whether blocks and summary have checksums; those of older stores have none."""
        return f"{BLOCKS}/{CHECKSUM}" in self.group

    def files(self, block: int) -> list[Place]:
        """The files of a block on disk, but for those that say that it is done; what is all filling has none.

        Behind the last block stands the summary: all arrays of the root but rows.
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
        """The file of a block's part of an array."""
        array = self.array(path)
        case, number = divmod(block, max(1, array.cdata_shape[-1]))  # of rows; an array without elements has no file
        places = {"case": case, ROWS: number, "block": block}
        return self.file(path, [places.get(name, 0) for name in array.metadata.dimension_names])

    @cached_property
    def of_blocks(self) -> list[str]:
        """Arrays of which every finished block has a part, sorted."""
        rows = [name for name in self.group.array_keys() if is_rows(self.array(name))]
        blocks: Any = self.group[BLOCKS]
        return sorted(rows) + [f"{BLOCKS}/{name}" for name in sorted(set(blocks.array_keys()) - {DONE, CHECKSUM})]

    def size(self, block: int) -> int:
        """Bytes of a block's files, and one for each file."""
        sizes = [storage.size_of(path) for path in self.files(block)]
        return sum(size + 1 for size in sizes if size is not None)

    def checksum(self, block: int) -> int:
        """CRC-32 of a block's files, in their order."""
        code = 0
        for path in self.files(block):
            try:
                for piece in [self._sent[str(path)]] if str(path) in self._sent else storage.pieces(path):
                    code = zlib.crc32(piece, code)
            except FileNotFoundError:
                code = zlib.crc32(b"no file", code)
        return code

    def seal(self, block: int) -> None:
        """Write what a block's files are to be told from others by."""
        if self.folder is not None and self.has_checksums:
            self.array(f"{BLOCKS}/{CHECKSUM}")[block] = self.size(block), self.checksum(block)
        self._sent.clear()

    def file(self, path: str, chunk: Sequence[int]) -> Place:
        """The file of a chunk of an array."""
        assert self.folder is not None
        return self.folder / path / self.array(path).metadata.encode_chunk_key(tuple(chunk))

    def partials(self) -> dict[str, np.ndarray]:
        """What all blocks left, (block, ...) each."""
        blocks: Any = self.group[BLOCKS]
        return {name: np.asarray(array[:]) for name, array in blocks.arrays() if name not in (DONE, CHECKSUM)}

    def finish(self, summary: Summary, attributes: Mapping[str, Any]) -> None:
        """Write the summary; arrays that are there already are replaced."""
        for name, (dims, numbers, attrs) in summary.items():
            if name in self.group:
                del self.group[name]
            values = np.asarray(numbers)
            column = StoreColumn(tuple(dims.split()), values.shape, values.shape, values.dtype, attrs)
            _array(self.group, name, column)[...] = values
        self._open.clear()
        self.seal(self.blocks)
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
        """Remove what interrupted writers left: files that never got their name; objects have it at once."""
        if isinstance(self.folder, Path):
            for path in self.folder.rglob("*.partial"):
                path.unlink(missing_ok=True)


def is_rows(array: Any) -> bool:
    """Whether an array is of what is kept of every variant."""
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
        config={"write_empty_chunks": True},  # the same files whatever is in them, and no search for emptiness
    )
