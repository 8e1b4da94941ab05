"""Stage of long work, for the line that a terminal shows while a command runs."""

from collections.abc import Collection, Iterator
from typing import TypeVar

Item = TypeVar("Item")

stage = ""
"""Present stage, such as `size 2 of 12`; empty where none is known."""


def counted(items: Collection[Item], what: str) -> Iterator[Item]:
    """Yield items, and record which one is being worked on. **Arguments:** `what`: the name of an item."""
    global stage
    for at, each in enumerate(items, 1):
        stage = f"{what} {at} of {len(items)}"
        yield each
    stage = ""
