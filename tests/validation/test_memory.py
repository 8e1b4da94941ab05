"""Peak memory against measured runs, and whether plans fit: those that ran, and those that did not."""

from __future__ import annotations

import csv
from importlib.resources import files

import numpy as np
import pytest

from hwopt.evidence.validation import validate

RUNS = files("hwopt") / "data" / "runs"


def table(name):
    with (RUNS / name).open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def memory():
    return validate(RUNS / "memory.csv")


@pytest.fixture(scope="module")
def fits():
    """Row id -> whether the model says that it fits, of a table."""
    return lambda name: {
        row["id"]: row["fits"] for row in validate(RUNS / name)["rows"] if row["status"] == "scored"
    }  # fmt: skip


def test_peak_memory(memory):
    assert memory["summary"]["skipped"] == 0
    assert memory["summary"]["cells"] == 8
    assert memory["summary"]["median_abs_error"] <= 0.03
    assert memory["summary"]["mean_abs_error"] <= 0.05
    assert np.median([abs(row["error"]) for row in memory["rows"]]) <= 0.02


def test_peak_memory_of_each_source(memory):
    for source, of in memory["summary"]["by_source"].items():
        assert of["median_abs_error"] <= 0.05, source


def test_what_the_allocator_has_handed_out(memory):
    """Megatron-LM without what the allocator adds: nothing but weights, states and activations."""
    rows = [row for row in memory["rows"] if row["metric"] == "max_memory_allocated"]
    assert len(rows) == 43
    assert max(abs(row["error"]) for row in rows) <= 0.04
    assert np.median([abs(row["error"]) for row in rows]) <= 0.01


def test_runs_that_were_run_fit(fits):
    answers = fits("train.csv")
    assert np.mean(list(answers.values())) >= 0.97


def test_plans_that_ran_out_of_memory_do_not_fit(fits):
    rows, answers = table("out_of_memory.csv"), fits("out_of_memory.csv")
    assert set(rows) == set(answers)
    assert all(row["reason"] and row["source"] for row in rows.values())
    assert np.mean(list(answers.values())) <= 0.02
    printed = [answers[name] for name, row in rows.items() if row["reason"].startswith("printed")]
    assert len(printed) == 3
    assert sum(printed) <= 1  # Llama 3 8B at 1,024 K tokens without context parallelism: 92 % of a B200
