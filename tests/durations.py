"""Measures the CPU seconds of each module's tests, child processes included.

A run prints their sum. `python -m pytest --write-durations`, also with `-m search` or `-m slow`, writes the table. Groups that
take long start first by it: two workers then end together. `python -m tests.durations` prints it by directory.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.groups import group_of
from tests.tiers import TIERS, tier_of

TABLE = Path(__file__).with_name("durations.txt")
Key = tuple[str, str]
"""A tier, and a module."""

_reported = [0.0]
_of_workers: list[float] = []


def cpu_s() -> float:
    """CPU seconds of this process and of children that ended."""
    return sum(os.times()[:4])


def add_to(report: pytest.TestReport) -> None:
    """State in a report what was spent since the last one."""
    now = cpu_s()
    report.cpu_s = now - _reported[0] if _reported[0] else 0.0  # type: ignore[attr-defined]
    _reported[0] = now


def started() -> None:
    _reported[0] = cpu_s()


def worker_ended(output: dict) -> None:
    _of_workers.append(output.get("cpu_s", 0.0))


def spent(reports: list[pytest.TestReport]) -> str:
    """The run's CPU seconds in words."""
    tests = sum(getattr(each, "cpu_s", 0.0) for each in reports)
    total = sum(_of_workers) + sum(os.times()[:2]) if _of_workers else cpu_s()
    return f"{total:.0f} CPU seconds: {tests:.0f} of tests, {total - tests:.0f} of imports, collection and reports"


def key_of(nodeid: str, marks) -> Key:
    return tier_of(marks), nodeid.partition("::")[0]


def read() -> dict[Key, float]:
    rows = (line.split() for line in TABLE.read_text(encoding="utf-8").splitlines())
    return {(tier, module): float(seconds) for seconds, tier, module in rows}


def write(reports: list[pytest.TestReport]) -> None:
    """Write seconds of the tests that ran, and keep those of tiers that did not."""
    seconds: Counter[Key] = Counter()
    for report in reports:
        seconds[key_of(report.nodeid, report.keywords)] += getattr(report, "cpu_s", 0.0)
    ran = {tier for tier, _ in seconds}
    known = {key: value for key, value in read().items() if key[0] not in ran}
    rows = sorted((known | seconds).items(), key=lambda row: (row[0][0], -round(row[1], 1), row[0][1]))
    TABLE.write_text("".join(f"{value:6.1f} {tier:7} {module}\n" for (tier, module), value in rows), encoding="utf-8")


def by_directory(known: dict[Key, float]) -> str:
    """A table: directories down, tiers across."""
    tiers = ("default", *reversed(TIERS))
    sums: Counter[tuple[str, str]] = Counter()
    for (tier, module), seconds in known.items():
        for place in (module.rpartition("/")[0], "total"):
            sums[place, tier] += seconds
    places = [*sorted({place for place, _ in sums} - {"total"}), "total"]
    lines = [f"{'CPU seconds':28}" + "".join(f"{tier:>9}" for tier in tiers)]
    lines += [f"{place:28}" + "".join(f"{sums[place, tier]:9.0f}" for tier in tiers) for place in places]
    return "\n".join(lines)


def longest_first(items: list[pytest.Item]) -> None:
    """Sorts tests by what the modules of their group take; modules that are not known go first."""
    known = read()
    of = {item: group_of(item.nodeid) for item in items}
    seconds: Counter[str] = Counter()
    for group, key in {(of[item], key_of(item.nodeid, item.keywords)) for item in items}:
        seconds[group] += known.get(key, math.inf)
    items.sort(key=lambda item: -seconds[of[item]])


if __name__ == "__main__":
    print(by_directory(read()))
