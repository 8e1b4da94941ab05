"""Which sources of measured runs the work may look at, and which are touched by a release alone.

Three in ten sources, by a hash of their name, are locked: neither constants nor structure nor widths of intervals are chosen
with them in view. `tests/benchmark/release.py` scores them, once a release, by constants fitted to the others, and adds a
line to `results/reference/releases.csv`.
"""

import hashlib

LOCKED_TENTHS = 3


def locked(source: str) -> bool:
    """Whether runs of a source are kept for releases: `sha256(name) mod 10 < 3`. **Arguments:** the name as its rows state it."""
    return int(hashlib.sha256(source.encode()).hexdigest(), 16) % 10 < LOCKED_TENTHS
