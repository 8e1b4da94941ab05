"""What each module's tests take, for long modules to start first: two workers then end together.

`python -m pytest --write-durations`, also with `-m "slow and not long"`, writes the table again.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

TABLE = Path(__file__).with_name("durations.txt")
Key = tuple[str, str]
"""Whether its tests are slow, and the module."""


def key_of(nodeid: str, marks) -> Key:
    return "slow" if "slow" in marks else "quick", nodeid.partition("::")[0]


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
    TABLE.write_text("".join(f"{value:6.1f} {kind:5} {module}\n" for (kind, module), value in rows), encoding="utf-8")


def longest_first(items: list[pytest.Item]) -> None:
    """Sorts tests by what their module takes; modules that are not known go first."""
    known = read()
    of = {item: key_of(item.nodeid, item.keywords) for item in items}
    seconds: Counter[str] = Counter()
    for key in set(of.values()):
        seconds[key[1]] += known.get(key, math.inf)
    items.sort(key=lambda item: -seconds[of[item][1]])
