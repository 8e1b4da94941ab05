"""What a process must not leave behind, however it ends: done, failed, interrupted or terminated. Only a kill leaves it."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

_REMOVALS: list[Callable[[], None]] = []
_ENDING = threading.Event()

_UNDER_WAY_S = 0.05
"""Time that what writes is given to come to its next `pause`: files take milliseconds."""


@contextlib.contextmanager
def removed_on_exit(remove: Callable[[], None]) -> Iterator[None]:
    """Call `remove` when this is left, or when the process is told to end meanwhile; what fails in it is of no interest."""
    _REMOVALS.append(remove)
    try:
        yield
    finally:
        _call(remove)
        if remove in _REMOVALS:
            _REMOVALS.remove(remove)


def pause() -> None:
    """Go no further where the process is ending: to be called between two files by who writes many."""
    while _ENDING.is_set():
        time.sleep(1.0)


def remove_all() -> None:
    """Remove what is there now, the latest first, and let nobody write more: for a process that ends on the spot."""
    _ENDING.set()
    for _ in range(2 if _REMOVALS else 0):
        time.sleep(_UNDER_WAY_S)
        for remove in reversed(_REMOVALS):
            _call(remove)


def _call(remove: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        remove()
