"""Damage detection for sweep stores: files lost or changed on disk are found on opening, and their blocks are recomputed.

A finished store is checked by its file sizes and by reading its summary. An unfinished store is checked by the checksums of its
finished blocks.
"""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hwopt.errors import UserError
from hwopt.sweeps import storage
from hwopt.sweeps.storage import Place
from hwopt.sweeps.store import BLOCKS, CHECKSUM, DONE, Store, damaged, writing

_OF_A_SUMMARY = ("finished", "best_are")
"""Attributes that only a finished store has."""


def open_to_resume(folder: Place | None, configuration: str, versions: str) -> Store | None:
    """Open the store in a folder to return its results or to resume it, with damaged blocks removed.

    **Arguments:** `configuration` and `versions`: JSON documents of the requested sweep.

    **Returns:** the store; None if one has to be created, because the folder does not exist or is empty.

    **Raises:** `UserError` for a file, an unreadable folder, or a folder with anything but this sweep. Also for a sweep begun
    by other software versions, and for damage that cannot be repaired.
    """
    if folder is None:
        return None
    with writing(folder, lambda: "nothing was changed"):
        if not isinstance(folder, Path):
            storage.forget_half_made(folder, "zarr.json")
        if folder.exists() and not folder.is_dir():
            raise UserError(f"sweep: {folder} is a file; --out of a sweep or frontier must be a folder")
        if not folder.exists() or not any(folder.iterdir()):
            return None
        store = Store.opened(folder)
        differing = store.differing("configuration", configuration)
        if differing:
            raise UserError(
                f"sweep: {folder} holds another sweep (it differs in {', '.join(differing)}): choose another --out"
            )
        first = jax.process_index() == 0  # only the first process repairs
        wrong = find_damage(store) if store.finished and first else ""
        if store.finished and not wrong:
            return store
        changed = ", ".join(store.differing("versions", versions))
        if changed and wrong:
            raise damaged(folder, f"{wrong}, and it was made by other versions of {changed}")
        if changed:
            raise UserError(
                f"sweep: {folder} was started by other versions of {changed}: finish it with those, or choose another --out"
            )
        if first:
            store = _reopened(store) if wrong else store
            store.sweep_up()
            _forget_damaged(store)
        return store


def find_damage(store: Store) -> str:
    """Describe in words how a finished store differs from the data written, judging by file sizes; empty if it is intact.

    The summary is compared by its checksum.

    **Raises:** `UserError` if the store's own metadata are damaged.
    """
    _check_arrays(store)
    seals = _read(store.array(f"{BLOCKS}/{CHECKSUM}"), ...)
    if seals is None:
        return "checksums cannot be read"
    if int(seals[store.blocks, 1]) != store.checksum(store.blocks):
        return "the summary is not what was written"
    wrong = [block for block in range(store.blocks) if int(seals[block, 0]) != store.size(block)]
    return f"block {wrong[0]} is not as long as it was written" if wrong else ""


def _reopened(store: Store) -> Store:
    """Turn a finished store back into an unfinished one, so that its summary is regenerated."""
    assert store.folder is not None
    path = store.folder / "zarr.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document.pop("consolidated_metadata", None)
    for name in _OF_A_SUMMARY:
        document["attributes"].pop(name, None)
    storage.put(path, json.dumps(document, indent=2).encode())
    return Store.opened(store.folder)


def _forget_damaged(store: Store) -> None:
    """Mark the damaged blocks of an unfinished store as not done, and delete the files of all blocks that are not done.

    **Raises:** `UserError` if the store's own metadata are damaged.
    """
    _check_arrays(store)
    done = store.array(f"{BLOCKS}/{DONE}")
    for block in range(store.blocks):
        marked = _read(done, block)
        if marked is None or int(marked) != 1 or not _is_whole(store, block):
            own = store.file(f"{BLOCKS}/{DONE}", (block,)), store.file(f"{BLOCKS}/{CHECKSUM}", (block, 0))
            for path in (*own, *store.files(block)):
                path.unlink(missing_ok=True)


def _is_whole(store: Store, block: int) -> bool:
    """Return whether a finished block matches its size and checksum."""
    seal = _read(store.array(f"{BLOCKS}/{CHECKSUM}"), block)
    return seal is not None and tuple(seal) == (store.size(block), store.checksum(block))


def _check_arrays(store: Store) -> None:
    """Open every array of a store.

    **Raises:** `UserError` if the metadata of an array cannot be read.
    """
    try:
        inner: Any = store.group[BLOCKS]
        for name in inner.array_keys():
            store.array(f"{BLOCKS}/{name}")
        for name in store.group.array_keys():
            store.array(name)
    except OSError:
        raise
    except Exception as failure:  # zarr raises many exception types for unreadable metadata
        raise damaged(store.folder, f"a description cannot be read, {type(failure).__name__}") from None


def _read(array: Any, place: Any) -> np.ndarray | None:
    """Read a part of an array; None if it cannot be decoded."""
    try:
        return np.asarray(array[place])
    except OSError:
        raise
    except Exception:  # codecs raise exceptions of their own for bytes that they cannot decode
        return None
