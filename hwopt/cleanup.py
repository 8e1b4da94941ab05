"""Cleanup callbacks that run on every exit of the process (success, failure, interrupt, termination) except SIGKILL."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

_REMOVALS: list[Callable[[], None]] = []
_ENDING = threading.Event()

_UNDER_WAY_S = 0.05
"""Time for threads that write files to reach their next `pause`, s; writing a file takes milliseconds."""


@contextlib.contextmanager
def removed_on_exit(remove: Callable[[], None]) -> Iterator[None]:
    """Call `remove` when the context is left, or when the process is terminated inside it; errors of `remove` are ignored."""
    _REMOVALS.append(remove)
    try:
        yield
    finally:
        _call(remove)
        if remove in _REMOVALS:
            _REMOVALS.remove(remove)


def pause() -> None:
    """Block forever if the process is ending. Code that writes many files calls this between two files."""
    while _ENDING.is_set():
        time.sleep(1.0)


def remove_all() -> None:
    """Run all registered callbacks, latest first, and stop further writes: for a process that exits immediately.

    The callbacks run twice, after a short wait each, to catch files that other threads were still writing.
    """
    _ENDING.set()
    for _ in range(2 if _REMOVALS else 0):
        time.sleep(_UNDER_WAY_S)
        for remove in reversed(_REMOVALS):
            _call(remove)


def _call(remove: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        remove()
