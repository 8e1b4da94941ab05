"""What each module's tests take, for long modules to start first: two workers then end together.

`python -m pytest --write-durations`, also with `-m search` or `-m slow`, writes the table again.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from tests.tiers import tier_of

TABLE = Path(__file__).with_name("durations.txt")
Key = tuple[str, str]
"""A tier, and a module."""


def key_of(nodeid: str, marks) -> Key:
    return tier_of(marks), nodeid.partition("::")[0]


def read() -> dict[Key, float]:
    rows = (line.split() for line in TABLE.read_text(encoding="utf-8").splitlines())
    return {(kind, module): float(seconds) for seconds, kind, module in rows}


def write(reports: list[pytest.TestReport]) -> None:
    """Seconds of the tests that ran; of a kind that did not, what was known."""
    seconds: Counter[Key] = Counter()
    for report in reports:
        seconds[key_of(report.nodeid, report.keywords)] += report.duration
    ran = {kind for kind, _ in seconds}
    known = {key: value for key, value in read().items() if key[0] not in ran}
    rows = sorted((known | seconds).items(), key=lambda row: (row[0][0], -round(row[1], 1), row[0][1]))
    TABLE.write_text("".join(f"{value:6.1f} {kind:7} {module}\n" for (kind, module), value in rows), encoding="utf-8")


def longest_first(items: list[pytest.Item]) -> None:
    """Sorts tests by what the modules of their group take; modules that are not known go first."""
    known = read()
    of = {item: item.get_closest_marker("xdist_group").args[0] for item in items}
    seconds: Counter[str] = Counter()
    for group, key in {(of[item], key_of(item.nodeid, item.keywords)) for item in items}:
        seconds[group] += known.get(key, math.inf)
    items.sort(key=lambda item: -seconds[of[item]])
