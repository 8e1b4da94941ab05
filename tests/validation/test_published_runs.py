"""The model against published runs, scored per cell; the table ships with the package."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest

from hwopt import catalog
from hwopt.calibration.validation.validate import score
from tests.measured import RUNS, validated

TABLE = RUNS / "train.csv"
PUBLISHED_KORTHIKANTI = "Korthikanti"


@pytest.fixture(scope="module")
def result():
    return validated("train.csv")


@pytest.fixture(scope="module")
def table():
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def test_every_row_is_accounted_for(result, table):
    assert result["summary"]["rows"] == len(table) == len(result["rows"])
    assert result["summary"]["scored"] + result["summary"]["skipped"] == len(table)
    assert sum(result["summary"]["skipped_by_reason"].values()) == result["summary"]["skipped"]


def test_complete_rows_of_good_quality_are_scored(result, table):
    good = [
        row for row in result["rows"]
        if table[row["id"]]["config_complete"] == "y" and table[row["id"]]["quality"] in ("A", "A-", "B+")
    ]  # fmt: skip
    assert sum(row["status"] == "scored" for row in good) >= 0.95 * len(good)


def test_error_over_cells_with_constants_from_literature(result):
    assert result["summary"]["median_abs_error"] <= 0.25


def test_error_over_cells_beats_one_fitted_utilisation_per_accelerator(result):
    summary = result["summary"]
    assert summary["median_abs_error"] < summary["baseline_abs_error"]


def test_the_eight_times_of_the_recomputation_paper(result, table, tmp_path):
    """arXiv 2205.05198, table 5: 22 B to 1 T parameters, with and without full recomputation. Fitted with a level of their
    own they are 3 % off on average (`accuracy.txt`), by the constants of all sources 10 %, by those that have not seen them 13 %.
    """
    of_the_paper = [row for row in table.values() if PUBLISHED_KORTHIKANTI in row["source"]]
    with (tmp_path / "rows.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(of_the_paper[0]))
        writer.writeheader()
        writer.writerows(of_the_paper)
    fitted = score(tmp_path / "rows.csv", replace(catalog.calibration(), left_out={}), cases=False).scored
    its = [
        row for row in fitted if PUBLISHED_KORTHIKANTI in row.row.source and row.row.measured_metric == "iter_time_s"
    ]
    assert len(its) == 8 and sum(abs(row.error) for row in its) / 8 <= 0.105
    rows = [
        row for row in result["rows"]
        if PUBLISHED_KORTHIKANTI in table[row["id"]]["source"] and row["metric"] == "iter_time_s"
    ]  # fmt: skip
    assert len(rows) == 8
    assert sum(abs(row["error"]) for row in rows) / 8 <= 0.14


def test_releases_of_one_configuration_show_the_floor(result):
    spread = result["summary"]["release_spread"]
    assert spread["configurations"] > 50
    assert 0.0 < spread["median"] < spread["p90"]
