"""Process coordination: a lock excludes other sweeps from a store; processes of one sweep synchronize by JAX's barriers."""

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
"""Characters that the name of a lock file adds to its folder's name: the longest of the names next to a store."""


def join(coordinator: str | None = None, count: int | None = None, index: int | None = None) -> None:
    """Join a group of processes that share one sweep.

    **Arguments:** none on Slurm, Kubernetes, Open MPI and TPU pods, which JAX detects. Otherwise:

    - `coordinator`: its `host:port`.
    - `count`: number of processes.
    - `index`: number of this process.

    **Raises:** `UserError` if nothing is detected or the coordinator does not answer.
    """
    try:
        jax.distributed.initialize(coordinator, count, index)
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"distributed: {' '.join(str(error).split())[:300]}; where JAX does not detect the processes, pass --coordinator "
            "host:port, --processes and --process"
        ) from None


def wait(where: str) -> None:
    """Wait until every process has arrived, however long the others take; if a process dies, the wait ends for all.

    The coordinator's barrier is used. JAX's public barrier is a collective operation, whose separate connections between CPUs
    time out on busy machines.
    """
    if jax.process_count() > 1:
        from jax._src import distributed

        client = distributed.global_state.client
        assert client is not None
        client.wait_at_barrier(f"hwopt {next(_BARRIERS)} {where}", _LONGEST_WAIT_MS)


_LONGEST_WAIT_MS = 30 * 86_400_000
"""Time limit of a barrier, which needs one: a month, longer than any sweep."""
_BARRIERS = itertools.count()
"""Numbers of barriers, the same in every process: each barrier can be passed only once."""


def first_process_first(prepare: Callable[[], T]) -> T:
    """Run `prepare` in the first process before the others run it, and return its result."""
    if jax.process_index() > 0:
        wait("prepared")
    try:
        return prepare()
    finally:  # also after a failure, so that the others meet the same failure instead of waiting forever
        if jax.process_index() == 0:
            wait("prepared")


@contextlib.contextmanager
def exclusive(folder: Place) -> Iterator[None]:
    """Lock a folder for one sweep. The lock of a killed process is released by the system. Object stores have no locks.

    **Raises:** `UserError` if another process writes there.
    """
    if not isinstance(folder, Path):
        yield
        return
    path = folder.with_name(f".{folder.name}.lock")
    handles: list[int] = []
    try:
        with removed_on_exit(lambda: _remove(path, handles)):  # registered before the file exists
            _lock(path, folder, handles)
            yield
    finally:
        for handle in handles:
            os.close(handle)


def _lock(path: Path, folder: Path, handles: list[int]) -> None:
    """Lock a folder and append the handle to `handles`; append none if the system or file system has no locks.

    **Raises:** `UserError` if another process has the lock.
    """
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
        os.close(handles.pop())  # the previous owner deleted the file meanwhile


def _remove(path: Path, handles: list[int]) -> None:
    """Delete the lock file of this sweep, or an unowned one if the sweep stopped while locking.

    **Raises:** `OSError` if another process owns the lock, or there is none.
    """
    try:
        import fcntl
    except ImportError:  # no locks on this system: no file was created
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
    """Return whether an open file is the one at `path`."""
    return os.path.exists(path) and os.stat(path).st_ino == os.fstat(handle).st_ino
