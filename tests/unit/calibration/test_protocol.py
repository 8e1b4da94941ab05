"""Which studies are locked follows from their names alone, and no fit reads them."""

from __future__ import annotations

import csv
import hashlib

import pytest

from hwopt import catalog
from hwopt.calibration.holdout import LOCKED_TENTHS, in_test_set, study_of
from results.benchmarks.published_fit import RUNS, TABLES


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("MLPerf Training v4.1", "MLPerf Training"),
        ("MLPerf Training v3.0 ", "MLPerf Training"),
        ("DeepSeek-V3 technical report", "DeepSeek-V3 technical report"),
        ("Megatron-Core r0.8.0 README (2024-07)", "Megatron-Core r0.8.0 README (2024-07)"),
        ("", ""),
    ],
)
def test_rounds_of_a_study_are_one(source, name):
    assert study_of(source) == name


def test_the_lock_is_a_hash_of_the_name():
    digit = lambda name: int(hashlib.sha256(name.encode()).hexdigest(), 16) % 10
    names = [f"source {i}" for i in range(2000)]
    assert all(in_test_set(name) == (digit(name) < LOCKED_TENTHS) for name in names)
    assert 0.27 < sum(map(in_test_set, names)) / len(names) < 0.33
    assert in_test_set("MLPerf Training v4.1") == in_test_set("MLPerf Training v5.0")


def _sources():
    for name in TABLES:
        with (RUNS / name).open(encoding="utf-8", newline="") as file:
            yield from {row["source"] for row in csv.DictReader(file)}


def test_a_third_of_the_sources_is_locked():
    sources = set(_sources())
    assert len(sources) > 60 and 0.2 < sum(map(in_test_set, sources)) / len(sources) < 0.4


def test_shipped_constants_know_no_locked_study():
    calibration = catalog.calibration()
    assert calibration.left_out and not any(map(in_test_set, calibration.left_out))
    assert not any(scope.startswith("source") for _, scope in calibration.scopes.entries)
