"""The release script's history, and Calculon beside runs: what counts, and what stands where there is no checkout."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest

from hwopt.calibration.validation.join import Prediction
from hwopt.calibration.validation.score import Scored
from results.benchmarks import accuracy, calculon, release
from tests.evidence_cases import RUN


def _scored(model: str, measured: float, predicted: float, *, spread: float = 0.0) -> Scored:
    row = replace(RUN, source="S", model_name=model, measured_value=measured, measured_metric="iter_time_s")
    return Scored(row, "h100-sxm", "nemo-2025", Prediction(predicted, predicted, 0.5, 1.0, 2.0, spread=spread), ())


def test_calculon_counts_where_it_has_words_and_nothing_is_open(monkeypatch):
    rows = [_scored("M", 1.0, 1.1), _scored("M", 1.0, 1.3), _scored("N", 2.0, 1.0), _scored("O", 1.0, 1.0, spread=0.1)]
    theirs = {1.1: 1.5, 1.3: None, 1.0: 2.2}  # of a step, by ours; one that it cannot express
    monkeypatch.setattr(calculon, "complete", lambda scored: True)
    got = calculon.beside(rows, np.log([row.time_ratio for row in rows]), lambda scored: theirs[scored.predicted])
    assert got.rows == 2 and [cell[1] for cell, _ in got.cells] == ["m", "n"]
    assert got.ours == pytest.approx([0.1, 0.5]) and got.theirs == pytest.approx([0.5, 0.1]) and got.nearer == 1
    assert got.bias == pytest.approx(((1.1 * 0.5) ** 0.5 - 1.0, (1.5 * 1.1) ** 0.5 - 1.0))
    lines = calculon.lines_of(got, "ours", "Calculon")
    assert lines[1].split() == ["ours", "30.0", "30.0", f"{100 * got.bias[0]:+.1f}", "1", "of", "2"]
    assert release.beside_cells(got) == [2, 2, "0.3000", "0.3000", "0.3000", "0.3000", 1]


def test_without_a_checkout_nothing_is_compared(monkeypatch, tmp_path):
    monkeypatch.delenv("CALCULON", raising=False)
    assert calculon.checkout() is None and release.beside_calculon([]) is None
    monkeypatch.setenv("CALCULON", str(tmp_path))  # no folder `systems`: no checkout
    assert calculon.checkout() is None
    assert release.beside_cells(None) == [""] * len(release.BESIDE)


def test_older_lines_of_the_history_stay_and_get_empty_cells(tmp_path):
    history = tmp_path / "releases.csv"
    old = dict.fromkeys([*release.COLUMNS, *release.Judged.__dataclass_fields__], "0.5")
    with history.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, old)
        writer.writeheader()
        writer.writerow(old)
    release.add_to_history(["1"] * len(old) + [2, 3, "0.2", "0.3", "0.1", "0.15", 2], history)
    with history.open(encoding="utf-8") as file:
        before, after = csv.DictReader(file)
    assert {name: before[name] for name in old} == old and {before[name] for name in release.BESIDE} == {""}
    assert (after["calculon_cells"], after["beside_nearer"]) == ("2", "2")
    assert "not run" in accuracy.calculon_line(before)
    assert "median 20.0 %, mean 30.0 %; hwopt there 10.0 %, 15.0 %, nearer in 2" in accuracy.calculon_line(after)
