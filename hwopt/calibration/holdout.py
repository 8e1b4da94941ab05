"""Split of measured runs into a development set and a sealed test set.

Three in ten studies, by a hash of their name, form the test set. They are not used to choose constants, model structure or
interval widths. `python -m results.benchmarks.release` scores them once per release, with constants fitted to the other
studies, and adds a line to `results/reference/releases.csv`.

The rule applies to training runs. Serving measurements come from few sources, all of them known before the rule existed. Errors
reported for serving are therefore those of the development set.
"""

import hashlib
import re

LOCKED_TENTHS = 3

_ROUND = re.compile(r"\s+v\d+(\.\d+)*$")


def study_of(source: str) -> str:
    """Return the study of a source, without its round: `MLPerf Training v4.1` -> `MLPerf Training`.

    Fits hold out whole studies.
    """
    return _ROUND.sub("", source.strip())


def in_test_set(source: str) -> bool:
    """Return whether a source is in the test set: `sha256(study) mod 10 < 3`. **Arguments:** `source`: its name, as stated in
    rows.
    """
    return int(hashlib.sha256(study_of(source).encode()).hexdigest(), 16) % 10 < LOCKED_TENTHS
