"""A small pool of worker processes. The calling process computes the first chunk itself, the workers the others.

Work on many columns of numbers runs in processes, not threads: threads would wait for each other between NumPy's short calls. A
worker keeps only the objects that it received, executes the chunks that it receives, and ends when this process does. Results
are the same with and without workers. If a worker is missing, still starting, or dead, its chunk is computed here.

A worker imports from the absolute folders of this process, never from the current folder (`_import_path`). It sends the digest
of its own source files before its first chunk; a worker with a different digest gets no chunks. Both sides exchange pickles
through pipes between a process and its own child; no pickle is read from disk.

The environment variable `HWOPT_PROCESSES` sets the maximum number of processes, this one included. 1 means no workers. More
than four are used only if it says so, and only on as many processors.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakSet

from hwopt import source_digest

VARIABLE = "HWOPT_PROCESSES"

MOST = 4
"""Default maximum number of processes, on a machine with at least as many processors; measured with two.

Chunks get smaller with more processes, and each process takes about 300 MB.
"""

KEPT = 64
"""Number of objects that a worker caches for later chunks, as many as cached structures in `solver.interior_point.sparsity`."""

PATIENCE_S = 2.0
"""Time that a worker has to exit by itself before it is killed, s."""

_ROOT = os.path.realpath(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""Folder that contains the running package."""

_OWN = source_digest.source_digest().encode()
"""Source digest at import time: this process does not run source files that are installed later."""


def count() -> int:
    """Return the maximum number of concurrent processes, this one included.

    By default it is the number of processors, at most `MOST`. `HWOPT_PROCESSES` overrides it, up to the number of processors,
    or up to two on a single processor.
    """
    processors = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    told = os.environ.get(VARIABLE, "")
    return min(max(1, int(told)), max(2, processors)) if told.isdecimal() else min(processors, MOST)


def chunks_of(size: int, least: int) -> int:
    """Return the number of chunks for work of a given size: at most `count()`, none smaller than `least`."""
    return max(1, min(count(), size // least))


def start_workers(*modules: str) -> None:
    """Start the workers, unless they run, for work to come.

    **Arguments:** `modules`: modules that the workers import while they start.
    """
    _HELPERS.wake(modules)


def map_chunks(function: Callable[..., Any], kept: Any, parts: Sequence[tuple]) -> list[Any]:
    """Return `function(kept, *part)` for each part, computed in parallel.

    **Arguments:**
    - `function`: a module-level function, so that it can be pickled;
    - `kept`: an object that all parts use; workers cache it;
    - `parts`: arguments of each chunk, at most `count()` chunks.

    **Raises:** all exceptions of `function`.
    """
    with _HELPERS.free() as helpers:
        others = iter(helpers)
        handed = [_handed(others, function, kept, part) if place else None for place, part in enumerate(parts)]
        done = [None if to else (function(kept, *part),) for to, part in zip(handed, parts, strict=True)]
        done = [to.answer() if to else mine for to, mine in zip(handed, done, strict=True)]
    return [(each or (function(kept, *part),))[0] for each, part in zip(done, parts, strict=True)]


def _handed(helpers: Iterator[Worker], function: Callable, kept: Any, part: tuple) -> Worker | None:
    """Return the worker that accepted a chunk; None if no worker did."""
    helper = next(helpers, None)
    return helper if helper is not None and helper.ask(function, kept, part) else None


def _import_path() -> list[str]:
    """Return the folders that workers import from: the absolute ones of this process, and that of the running package.

    The current folder and the relative entries of `PYTHONPATH` are excluded, unless they contain the running package.
    """
    relative = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if not os.path.isabs(each)]
    left_out = {os.path.realpath(each) for each in ("", *relative)} - {_ROOT}
    known = [each for each in sys.path if isinstance(each, str) and os.path.isabs(each)]
    return [*(each for each in known if os.path.realpath(each) not in left_out), _ROOT]


class Worker:
    """A worker process and its pipes."""

    def __init__(self, modules: Sequence[str]):
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, *modules],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(_import_path()), VARIABLE: "1"},
        )
        self._kept: OrderedDict[int, Any] = OrderedDict()  # by id(), which is unique while they are referenced here
        self._unsent: WeakSet[Any] = WeakSet()  # objects that cannot be pickled
        self._awake, self.closed, self._at_work = threading.Event(), False, False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self._process.stdout.read(len(_OWN)) == _OWN:  # pyright: ignore[reportOptionalMemberAccess]
                self._awake.set()
            else:  # other sources: it never becomes ready, and is not replaced, since another worker would have the same
                self._process.kill()

    @property
    def ready(self) -> bool:
        """Whether the worker is idle and accepts a chunk."""
        return self._awake.is_set() and not self.closed

    def ask(self, function: Callable, kept: Any, part: tuple) -> bool:
        """Send a chunk to the worker.

        **Returns:** whether it was sent.
        """
        if kept in self._unsent:
            return False
        new = id(kept) not in self._kept
        gone = next(iter(self._kept)) if new and len(self._kept) == KEPT else None
        try:
            message = pickle.dumps((function, id(kept), kept if new else None, gone, part), pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
            self._unsent.add(kept)
            return False
        self._at_work = True
        try:
            self._process.stdin.write(message)  # pyright: ignore[reportOptionalMemberAccess]
            self._process.stdin.flush()  # pyright: ignore[reportOptionalMemberAccess]
        except (OSError, ValueError):
            self.close()
            return False
        if gone is not None:
            del self._kept[gone]
        self._kept[id(kept)] = self._kept.pop(id(kept), kept)  # now the most recently used
        return True

    def answer(self) -> tuple[Any] | None:
        """Return the result of the chunk that was sent, in a tuple; None if the chunk must be computed in this process."""
        try:
            found = pickle.load(self._process.stdout)  # pyright: ignore[reportArgumentType]
        except (OSError, ValueError, EOFError, pickle.UnpicklingError):
            self.close()
            return None
        self._at_work = False
        return found

    def close(self) -> None:
        """End the worker: kill it if it is busy or still starting, else let it exit."""
        self.closed = True
        if self._at_work or not self._awake.is_set():
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError, ValueError):
                pipe.close()  # pyright: ignore[reportOptionalMemberAccess]
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Helpers:
    """The workers of this process. One computation uses them at a time; concurrent computations run without workers."""

    def __init__(self) -> None:
        self._helpers: list[Worker] = []
        self._owner = os.getpid()
        self._taken = threading.Lock()

    def wake(self, modules: Sequence[str]) -> None:
        if not self._taken.acquire(blocking=False):  # the workers are busy
            return
        try:
            if self._owner != os.getpid():  # a fork: the workers belong to the parent process
                self._helpers, self._owner = [], os.getpid()
            self._helpers = [each for each in self._helpers if not each.closed]
            missing = count() - 1 - len(self._helpers) if sys.executable else 0
            with contextlib.suppress(OSError):
                for _ in range(missing):
                    self._helpers.append(Worker(modules))
        finally:
            self._taken.release()

    @contextlib.contextmanager
    def free(self) -> Iterator[list[Worker]]:
        """Yield the idle workers; an empty list if another computation uses them."""
        if not self._taken.acquire(blocking=False):
            yield []
            return
        helpers = [each for each in self._helpers if each.ready] if self._owner == os.getpid() else []
        try:
            yield helpers[: count() - 1]
        except BaseException:  # unread results would be mistaken for those of the next chunk
            for each in helpers:
                each.close()
            raise
        finally:
            self._taken.release()

    def close(self) -> None:
        for each in self._helpers if self._owner == os.getpid() else ():
            each.close()


_HELPERS = _Helpers()
atexit.register(_HELPERS.close)


def _serve(modules: Sequence[str]) -> None:
    """Run the worker's loop: execute chunks from standard input, one after the other, until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is meant for the parent process
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # printed text must not be mistaken for a result
    for each in modules:
        importlib.import_module(each)
    answers.write(_OWN)
    answers.flush()
    kept: dict[int, Any] = {}
    with contextlib.suppress(EOFError, OSError):
        while True:
            function, key, new, gone, part = pickle.load(asked)
            kept.pop(gone, None)
            if new is not None:
                kept[key] = new
            try:
                answer = (function(kept[key], *part),)
            except Exception:  # the parent computes the chunk itself and raises the exception there
                answer = None
            pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()


if __name__ == "__main__":
    _serve(sys.argv[1:])
