"""Which sources of measured runs the work may look at, and which are touched by a release alone.

Three in ten studies, by a hash of their name, are locked: neither constants nor structure nor widths of intervals are chosen
with them in view. `python -m results.benchmarks.release` scores them, once a release, by constants fitted to the others, and adds
a line to `results/reference/releases.csv`.

The rule is about runs that train. Measured services come from few sources, and all of them were in view before it was made: what is
said of their errors is said of runs that the work has seen.
"""

import hashlib
import re

LOCKED_TENTHS = 3

_ROUND = re.compile(r"\s+v\d+(\.\d+)*$")


def study_of(source: str) -> str:
    """What rounds of one source have in common: `MLPerf Training v4.1` is of `MLPerf Training`. Fits leave it out whole."""
    return _ROUND.sub("", source.strip())


def in_test_set(source: str) -> bool:
    """Whether runs of a source are kept for releases: `sha256(study) mod 10 < 3`. **Arguments:** its name, as rows state it."""
    return int(hashlib.sha256(study_of(source).encode()).hexdigest(), 16) % 10 < LOCKED_TENTHS
