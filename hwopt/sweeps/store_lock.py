"""Processes at one store: strangers are kept out by a lock, those of one sweep take turns under JAX's distributed runtime."""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import jax

from hwopt.cleanup import pause, removed_on_exit
from hwopt.errors import UserError
from hwopt.sweeps.storage import Place

T = TypeVar("T")

BESIDE = "..lock"
"""What a lock's name has beyond its folder's: the longest of the names beside a store."""


def join(coordinator: str | None = None, count: int | None = None, index: int | None = None) -> None:
    """Become one of several processes.

    **Arguments:** none on Slurm, Kubernetes, Open MPI and TPU pods, which JAX detects; else the coordinator's `host:port`, how
    many processes there are, and the number of this one.

    **Raises:** `UserError` where nothing is detected or the coordinator does not answer.
    """
    try:
        jax.distributed.initialize(coordinator, count, index)
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"distributed: {' '.join(str(error).split())[:300]}; on a machine that JAX does not detect name --coordinator "
            "host:port, --processes and --process"
        ) from None


def wait(where: str) -> None:
    """Wait until every process is here, however long the others take; a process that dies ends the wait of all.

    At the coordinator's barrier: JAX's public one is a collective, which between CPUs needs connections of its own that time out
    on busy machines.
    """
    if jax.process_count() > 1:
        from jax._src import distributed

        client = distributed.global_state.client
        assert client is not None
        client.wait_at_barrier(f"hwopt {next(_BARRIERS)} {where}", _LONGEST_WAIT_MS)


_LONGEST_WAIT_MS = 30 * 86_400_000
"""A month, longer than any sweep: a barrier wants a number."""
_BARRIERS = itertools.count()
"""Numbers of barriers, the same in every process: a barrier is passed once."""


def first_process_first(prepare: Callable[[], T]) -> T:
    """What the first process prepares before the others do."""
    if jax.process_index() > 0:
        wait("prepared")
    try:
        return prepare()
    finally:  # also where it fails, so that the others meet the same failure and do not wait for ever
        if jax.process_index() == 0:
            wait("prepared")


@contextlib.contextmanager
def exclusive(folder: Place) -> Iterator[None]:
    """Holds a folder for one sweep; the lock of a killed process is free. Object stores have no locks.

    **Raises:** `UserError` where another process writes there.
    """
    if not isinstance(folder, Path):
        yield
        return
    path = folder.with_name(f".{folder.name}.lock")
    handles: list[int] = []
    try:
        with removed_on_exit(lambda: _remove(path, handles)):  # told before there is a file to leave behind
            _lock(path, folder, handles)
            yield
    finally:
        for handle in handles:
            os.close(handle)


def _lock(path: Path, folder: Path, handles: list[int]) -> None:
    """Add the handle of a lock; none where machine or file system have no locks."""
    while True:
        pause()
        try:
            import fcntl

            path.parent.mkdir(parents=True, exist_ok=True)
            handles.append(os.open(path, os.O_RDWR | os.O_CREAT, 0o644))
        except (ImportError, OSError):
            return
        try:
            fcntl.flock(handles[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, handles[-1]):
                return
        except BlockingIOError:
            os.close(handles.pop())
            raise UserError(
                f"sweep: another process is writing to {folder}; wait for it, or choose another --out"
            ) from None
        except OSError:
            os.close(handles.pop())
            return
        os.close(handles.pop())  # its holder removed the file meanwhile


def _remove(path: Path, handles: list[int]) -> None:
    """Remove a lock that is this sweep's or, where the sweep is stopped on its way to it, nobody's.

    **Raises:** `OSError` where it is another's, or there is none.
    """
    try:
        import fcntl
    except ImportError:  # no locks there: nothing was made
        return
    held = list(handles)
    handle = held[-1] if held else os.open(path, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(path, handle):
            path.unlink()
    finally:
        if not held:
            os.close(handle)


def _is_at(path: Path, handle: int) -> bool:
    """Whether an open file is the one of that name."""
    return os.path.exists(path) and os.stat(path).st_ino == os.fstat(handle).st_ino
