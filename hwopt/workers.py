"""Parts of one piece of work at the same time: the first in this process, the others in helpers, which are processes beside it.

Work on many columns of numbers goes on in one thread: several would wait for each other between NumPy's short calls. A helper holds
nothing but what it was sent, does what it is told, and ends when this process does. Results are the same with helpers and without;
where one is missing, not awake yet, or gone, its part is done here.

A helper imports from the absolute folders of this process, never from the current folder (`_import_path`). It sends the digest of
its own source files before its first part; a helper with another digest gets no parts. Both sides exchange pickles through pipes
between a process and its own child; no pickle is read from disk.

`HWOPT_PROCESSES` in the environment says how many processes work at most, this one included: 1 for no helpers, more than four where
there are as many processors.
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
"""Processes unless told otherwise, on a machine of so many processors or more: parts get small, and each takes some 300 MB.
Measured with two."""

KEPT = 64
"""Objects that a helper keeps for parts that follow, as many as structures are remembered (`solver.interior_point.sparsity`)."""

PATIENCE_S = 2.0
"""For a helper to end by itself."""

_ROOT = os.path.realpath(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder that contains the running package."""

_OWN = source_digest.source_digest().encode()
"""Digest at import time: this process does not run source files that are installed later."""


def count() -> int:
    """Processes that work at the same time, this one included: as many as processors at most, or two if they are asked for."""
    processors = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    told = os.environ.get(VARIABLE, "")
    return min(max(1, int(told)), max(2, processors)) if told.isdecimal() else min(processors, MOST)


def chunks_of(size: int, least: int) -> int:
    """Parts of work of some size, none smaller than the least that is worth a process."""
    return max(1, min(count(), size // least))


def start_workers(*modules: str) -> None:
    """Start helpers, if there are none, for work that is to come. **Arguments:** modules that they import meanwhile."""
    _HELPERS.wake(modules)


def map_chunks(function: Callable[..., Any], kept: Any, parts: Sequence[tuple]) -> list[Any]:
    """`function(kept, *part)` of each part.

    **Arguments:** `function` of a module; `kept`: what all parts take, which helpers keep; `parts`: `count()` of them, or fewer.

    **Raises:** what the function raises.
    """
    with _HELPERS.free() as helpers:
        others = iter(helpers)
        handed = [_handed(others, function, kept, part) if place else None for place, part in enumerate(parts)]
        done = [None if to else (function(kept, *part),) for to, part in zip(handed, parts, strict=True)]
        done = [to.answer() if to else mine for to, mine in zip(handed, done, strict=True)]
    return [(each or (function(kept, *part),))[0] for each, part in zip(done, parts, strict=True)]


def _handed(helpers: Iterator[Worker], function: Callable, kept: Any, part: tuple) -> Worker | None:
    """The helper that does a part; None where none does."""
    helper = next(helpers, None)
    return helper if helper is not None and helper.ask(function, kept, part) else None


def _import_path() -> list[str]:
    """Return the folders that helpers import from: the absolute ones of this process, and the running package's.

    The current folder and the relative entries of `PYTHONPATH` are excluded, unless they contain the running package.
    """
    relative = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if not os.path.isabs(each)]
    left_out = {os.path.realpath(each) for each in ("", *relative)} - {_ROOT}
    known = [each for each in sys.path if isinstance(each, str) and os.path.isabs(each)]
    return [*(each for each in known if os.path.realpath(each) not in left_out), _ROOT]


class Worker:
    """A process that does parts."""

    def __init__(self, modules: Sequence[str]):
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, *modules],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(_import_path()), VARIABLE: "1"},
        )
        self._kept: OrderedDict[int, Any] = OrderedDict()  # by identity, which is theirs while they are here
        self._unsent: WeakSet[Any] = WeakSet()  # what cannot be written down
        self._awake, self.closed, self._at_work = threading.Event(), False, False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self._process.stdout.read(len(_OWN)) == _OWN:  # pyright: ignore[reportOptionalMemberAccess]
                self._awake.set()
            else:  # other sources: it never wakes, and is not replaced, since another helper would be the same
                self._process.kill()

    @property
    def ready(self) -> bool:
        """Whether it waits for work."""
        return self._awake.is_set() and not self.closed

    def ask(self, function: Callable, kept: Any, part: tuple) -> bool:
        """Hand it a part. **Returns:** whether it has it."""
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
        self._kept[id(kept)] = self._kept.pop(id(kept), kept)  # the last that was asked for
        return True

    def answer(self) -> tuple[Any] | None:
        """What came of the part that it was handed; None where that must be done here."""
        try:
            found = pickle.load(self._process.stdout)  # pyright: ignore[reportArgumentType]
        except (OSError, ValueError, EOFError, pickle.UnpicklingError):
            self.close()
            return None
        self._at_work = False
        return found

    def close(self) -> None:
        """It ends, at once where it does not wait for work."""
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
    """Those of this process. One piece of work has them at a time; others go on without."""

    def __init__(self) -> None:
        self._helpers: list[Worker] = []
        self._owner = os.getpid()
        self._taken = threading.Lock()

    def wake(self, modules: Sequence[str]) -> None:
        if not self._taken.acquire(blocking=False):  # they are awake and at work
            return
        try:
            if self._owner != os.getpid():  # a copy of the process whose helpers they are
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
        """Helpers that wait for work; none where something else has them."""
        if not self._taken.acquire(blocking=False):
            yield []
            return
        helpers = [each for each in self._helpers if each.ready] if self._owner == os.getpid() else []
        try:
            yield helpers[: count() - 1]
        except BaseException:  # answers that nobody read would be taken for those of the next question
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
    """What a helper does: parts from standard input, one after the other, until that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for who started it
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what others print must not be taken for an answer
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
            except Exception:  # it fails there too, and is said there
                answer = None
            pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()


if __name__ == "__main__":
    _serve(sys.argv[1:])
