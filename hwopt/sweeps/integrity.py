"""Damage of a store: files that a disk lost or changed, met when a store is opened again; what is damaged is computed again.

A finished store is looked at by the sizes of its files and by reading its summary. One that is to go on is looked at by the
checksums of its finished blocks.
"""

import json
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hwopt.errors import UserError
from hwopt.sweeps import storage
from hwopt.sweeps.storage import Place
from hwopt.sweeps.store import BLOCKS, CHECKSUM, DONE, Store, damaged, is_rows, writing

_OF_A_SUMMARY = ("finished", "best_are")
"""Attributes of a finished store."""


def open_to_resume(folder: Place | None, configuration: str, versions: str) -> Store | None:
    """The store of a folder as it was left, without what was damaged of it: finished, or to go on.

    **Arguments:** `configuration` and `versions` of the sweep that is asked for.

    **Returns:** None where a store is to be created: there is no folder, or an empty one.

    **Raises:** `UserError` for a file, a folder that cannot be looked into or holds something else, another sweep, one that
    other versions began, or damage that cannot be repaired.
    """
    if folder is None:
        return None
    with writing(folder, lambda: "nothing was changed"):
        if not isinstance(folder, Path):
            storage.forget_half_made(folder, "zarr.json")
        if folder.exists() and not folder.is_dir():
            raise UserError(f"sweep: {folder} is a file; a sweep and a frontier need a folder")
        if not folder.exists() or not any(folder.iterdir()):
            return None
        store = Store.opened(folder)
        differing = store.differing("configuration", configuration)
        if differing:
            raise UserError(
                f"sweep: {folder} holds another sweep (it differs in {', '.join(differing)}): choose another --out"
            )
        first = jax.process_index() == 0  # of several the first repairs before the others look
        wrong = find_damage(store) if store.finished and first else ""
        if store.finished and not wrong:
            return store
        changed = ", ".join(store.differing("versions", versions))
        if changed and wrong:
            raise damaged(folder, f"{wrong}, and it was made by other versions of {changed}")
        if changed:
            raise UserError(
                f"sweep: {folder} was begun by other versions of {changed}: finish it with those, or choose another --out"
            )
        if first:
            store = _reopened(store) if wrong else store
            store.sweep_up()
            _forget_damaged(store)
        return store


def find_damage(store: Store) -> str:
    """What of a finished store is not what was written, in words, by the sizes of its files; empty where nothing is.

    **Raises:** `UserError` where the store's own description is damaged.
    """
    arrays = _arrays(store)
    if not store.has_checksums:
        return "" if all(_is_readable(store, name, array) for name, array in arrays) else "an array cannot be read"
    seals = _read(store.array(f"{BLOCKS}/{CHECKSUM}"), ...)
    if seals is None:
        return "checksums cannot be read"
    if int(seals[store.blocks, 1]) != store.checksum(store.blocks):
        return "the summary is not what was written"
    wrong = [block for block in range(store.blocks) if int(seals[block, 0]) != store.size(block)]
    return f"block {wrong[0]} is not as long as it was written" if wrong else ""


def _reopened(store: Store) -> Store:
    """A finished store as one that is to go on: its summary is made anew."""
    assert store.folder is not None
    path = store.folder / "zarr.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document.pop("consolidated_metadata", None)
    for name in _OF_A_SUMMARY:
        document["attributes"].pop(name, None)
    storage.put(path, json.dumps(document, indent=2).encode())
    return Store.opened(store.folder)


def _forget_damaged(store: Store) -> None:
    """Mark the damaged blocks of a store that is to go on as not done, and remove the files of all that are not.

    **Raises:** `UserError` where the store's own description is damaged.
    """
    _arrays(store)  # refuses descriptions that cannot be read
    done, sums = store.array(f"{BLOCKS}/{DONE}"), store.has_checksums
    for block in range(store.blocks):
        marked = _read(done, block)
        if marked is None or int(marked) != 1 or not _is_whole(store, block):
            own = [store.file(f"{BLOCKS}/{DONE}", (block,))]
            own += [store.file(f"{BLOCKS}/{CHECKSUM}", (block, 0))] if sums else []
            for path in (*own, *store.files(block)):
                path.unlink(missing_ok=True)


def _is_whole(store: Store, block: int) -> bool:
    """Whether a finished block is what was written; of a store without checksums, whether it can be read."""
    if store.has_checksums:
        seal = _read(store.array(f"{BLOCKS}/{CHECKSUM}"), block)
        return seal is not None and tuple(seal) == (store.size(block), store.checksum(block))
    return all(_is_readable(store, name, store.array(name), block) for name in store.of_blocks)


def _is_readable(store: Store, name: str, array: Any, place: Any = ...) -> bool:
    """Whether an array, or a block's part of it, can be read: rows, which are not compressed, by the sizes of their files."""
    if not is_rows(array):
        return _read(array, place) is not None
    size = math.prod(array.chunks) * array.dtype.itemsize
    files = [store.file(name, chunk) for chunk in np.ndindex(*array.cdata_shape)]
    return all(found in (size, None) for found in map(storage.size_of, files))


def _arrays(store: Store) -> list[tuple[str, Any]]:
    """Arrays of the root, by name; those of `blocks` are opened too."""
    try:
        inner: Any = store.group[BLOCKS]
        for name in inner.array_keys():
            store.array(f"{BLOCKS}/{name}")
        return [(name, store.array(name)) for name in store.group.array_keys()]
    except OSError:
        raise
    except Exception as failure:  # zarr has many ways to say that a description cannot be read
        raise damaged(store.folder, f"a description cannot be read, {type(failure).__name__}") from None


def _read(array: Any, place: Any) -> np.ndarray | None:
    """A part of an array; None where it cannot be read."""
    try:
        return np.asarray(array[place])
    except OSError:
        raise
    except Exception:  # a codec's own ways to say that its bytes are none of its
        return None
