"""The shipped calibration on published runs that it has not seen: errors, intervals, and that it is what the fit gives."""

from __future__ import annotations

import csv
from importlib.resources import files

import numpy as np
import pytest

from hwopt import catalog
from hwopt.catalog import software_family
from hwopt.evidence.validation import validate

RUNS = files("hwopt") / "data" / "runs"


@pytest.fixture(scope="module")
def held_out():
    return validate(RUNS / "train.csv")


@pytest.fixture(scope="module")
def table():
    with (RUNS / "train.csv").open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def _cells(result, table, keep=lambda row: True):
    """Mean absolute error and mean log ratio of each cell of complete rows of good quality."""
    cells = {}
    for row in result["rows"]:
        source = table[row["id"]]
        good = source["config_complete"] == "y" and source["quality"] in ("A", "A-", "B+")
        if row["status"] == "scored" and row["counts"] and good and keep(source):
            cells.setdefault(tuple(row["cell"]), []).append(row["error"])
    absolute = [np.mean(np.abs(errors)) for errors in cells.values()]
    return np.array(absolute), np.array([np.mean(errors) for errors in cells.values()])


def test_every_fitted_source_is_held_out(held_out):
    calibration = catalog.calibration()
    fitted = {row["cell"][0] for row in held_out["rows"] if row.get("held_out")}
    assert fitted and fitted <= set(calibration.left_out)
    assert all(row["held_out"] for row in held_out["rows"] if row["status"] == "scored")
    assert "held out" in held_out["summary"]["constants"]


def test_errors_on_sources_not_seen(held_out, table):
    absolute, signed = _cells(held_out, table)
    assert len(absolute) > 100
    assert np.median(absolute) <= 0.08 and np.mean(absolute) <= 0.105 and abs(np.mean(signed)) <= 0.03


def test_errors_on_experts_not_seen(held_out, table):
    absolute, _ = _cells(held_out, table, lambda row: row["moe_experts"] not in ("", "0"))
    assert len(absolute) > 10
    assert np.median(absolute) <= 0.15 and np.mean(absolute) <= 0.17  # 0.145 and 0.139


def test_better_than_literature_and_than_one_utilisation(held_out):
    literature = validate(RUNS / "train.csv", constants="literature")["summary"]
    summary = held_out["summary"]
    assert summary["median_abs_error"] < literature["median_abs_error"] < summary["baseline_abs_error"]
    assert summary["mean_abs_error"] < literature["mean_abs_error"] < summary["baseline_mean_abs_error"]


def test_a_node_of_bad_plans_that_was_not_fitted():
    """vTrain's 1,440 runs of small models on 2 to 8 A100, constants fitted without vTrain."""
    rows = validate(RUNS / "train_single_node.csv")["rows"]
    assert len(rows) == 1440 and all(row["held_out"] for row in rows)
    assert np.median([abs(row["error"]) for row in rows]) <= 0.12


def test_four_in_five_lie_inside(held_out):
    rows = [row for row in held_out["rows"] if row["status"] == "scored" and row["counts"]]
    inside = np.array([row["low"] <= row["measured"] <= row["high"] for row in rows])
    assert 0.75 <= inside.mean() <= 0.85
    assert held_out["summary"]["interval_coverage"] == pytest.approx(inside.mean())
    families = np.array([software_family(row["stack"]) for row in rows])
    for family in set(families):
        assert inside[families == family].mean() >= 0.70, family


def test_intervals_widen_for_what_is_unlike(held_out, table):
    width = {row["id"]: np.log(row["high"] / row["low"]) for row in held_out["rows"] if row["status"] == "scored"}
    same = lambda keep: np.median([w for name, w in width.items() if keep(table[name])])
    nvidia = lambda row: "dgxc" in row["id"]
    plain = same(lambda row: nvidia(row) and row["moe_experts"] in ("", "0"))
    assert same(lambda row: nvidia(row) and row["moe_experts"] not in ("", "0")) > 1.3 * plain
    assert same(lambda row: "nemo_docs" in row["id"] and int(row["seq_len"]) >= 32768) > 1.5 * plain
    assert same(lambda row: "fp4" in row["precision"]) > 1.1 * plain


@pytest.mark.long
@pytest.mark.slow
def test_the_shipped_file_is_what_the_fit_gives(tmp_path):
    from hwopt.evidence.calibration.published import gather, save
    from tests.benchmark.accuracy import accuracy_table, explanations

    evidence = gather()
    save(evidence, tmp_path / "again.toml")
    shipped, again = catalog.calibration(), catalog.calibration(tmp_path / "again.toml")
    assert shipped.scopes == again.scopes
    np.testing.assert_allclose(again.shifts, shipped.shifts, atol=0.02)
    for source, shifts in shipped.left_out.items():
        np.testing.assert_allclose(again.left_out[source], shifts, atol=0.05)
    text = accuracy_table(evidence)
    assert "not explained" not in text and len(explanations()) >= 5
