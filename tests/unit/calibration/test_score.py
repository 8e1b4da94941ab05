"""Cells, latest releases and the baseline, on literal rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hwopt.calibration.validation.join import Prediction
from hwopt.calibration.validation.score import GROUPS, Scored, by_group, cell_errors, summary
from hwopt.calibration.validation.screen import screen
from hwopt.calibration.validation.skip import SkipReason
from tests.evidence_cases import RUN


def _scored(measured, predicted, *, mfu=0.5, accelerator="h100-sxm", **columns):
    row = replace(RUN, **({"source": "S", "model_name": "M", "measured_value": measured} | columns))
    return Scored(row, accelerator, "nemo-2025", Prediction(predicted, 1.0, mfu, 1.0, 2.0), ())


def test_rows_of_a_cell_count_once():
    rows = [_scored(1.0, 1.1, tp=1), _scored(1.0, 1.3, tp=2), _scored(1.0, 0.5, model_name="N")]
    got = summary(rows, [], 3)
    assert got["cells"] == 2
    assert got["mean_abs_error"] == pytest.approx((0.2 + 0.5) / 2)
    assert got["median_abs_error"] == pytest.approx(0.35)
    assert got["max_abs_error"] == pytest.approx(0.5)
    assert got["mean_error"] == pytest.approx((0.2 - 0.5) / 2)


def test_spelling_does_not_split_a_cell():
    got = summary([_scored(1.0, 1.1, model_name="LLAMA3_8B"), _scored(1.0, 1.1, model_name="llama3-8b", tp=2)], [], 2)
    assert got["cells"] == 1


def test_only_the_latest_release_of_a_configuration_counts():
    old = _scored(2.0, 1.0, release=(24, 9))
    new = _scored(1.0, 1.0, release=(24, 11, 1))
    other = _scored(1.0, 1.0, release=(24, 9), tp=2)
    got = summary([old, new, other], [], 3)
    assert got["max_abs_error"] == pytest.approx(0.0)
    assert got["superseded"] == 1
    assert old.left_out == "older release 24.9"
    assert got["release_spread"] == {"configurations": 1, "median": pytest.approx(1.0), "p90": pytest.approx(1.0)}


def test_a_run_printed_as_time_and_as_mfu_counts_once():
    rows = [_scored(1.0, 1.0), _scored(50.0, 100.0, measured_metric="mfu")]
    assert summary(rows, [], 2)["max_abs_error"] == pytest.approx(0.0)
    assert rows[1].left_out


def test_times_and_rates_lean_the_same_way():
    rows = [_scored(1.0, 2.0), _scored(2.0, 1.0, measured_metric="tokens_per_s_per_gpu", model_name="N")]
    got = summary(rows, [], 2)
    assert got["time_bias"] == pytest.approx(1.0)
    assert got["mean_error"] == pytest.approx((1.0 - 0.5) / 2)


def test_baseline_is_one_utilisation_of_each_accelerator():
    # Measured utilisations: 0.5 x 1.1 = 0.55 and 0.5 x 0.9 = 0.45 on one chip, 0.2 on the other.
    rows = [_scored(1.0, 1.1), _scored(1.0, 0.9, model_name="N"), _scored(1.0, 1.0, mfu=0.2, accelerator="tpu-v4")]
    got = summary(rows, [], 3)
    fitted = (0.55 * 0.45) ** 0.5
    assert got["baseline_utilisation"] == {"h100-sxm": pytest.approx(fitted), "tpu-v4": pytest.approx(0.2)}
    errors = sorted([abs(0.55 / fitted - 1), abs(0.45 / fitted - 1), 0.0])
    assert got["baseline_abs_error"] == pytest.approx(errors[1])


def test_every_skipped_row_is_counted_by_reason():
    got = summary([], [SkipReason.HYBRID, SkipReason.HYBRID, SkipReason.HEADLINE], 3)
    assert (got["rows"], got["scored"], got["skipped"]) == (3, 0, 3)
    assert got["skipped_by_reason"] == {str(SkipReason.HEADLINE): 1, str(SkipReason.HYBRID): 2}
    assert got["median_abs_error"] is None


def test_sources_are_scored_apart():
    got = summary([_scored(1.0, 1.1), _scored(1.0, 2.0, source="T")], [], 2)
    assert got["by_source"]["S"]["median_abs_error"] == pytest.approx(0.1)
    assert got["by_source"]["T"]["max_abs_error"] == pytest.approx(1.0)


def test_software_and_chips_are_scored_apart():
    rows = [_scored(1.0, 1.1), _scored(1.0, 1.3), _scored(1.0, 2.0, accelerator="b200"), _scored(1.0, 9.0)]
    rows[3].left_out = "older release"
    rows[0].interval, rows[1].interval = (0.9, 1.2), (1.2, 1.4)
    got = by_group(rows, GROUPS["chip"])
    assert got.keys() == {"h100-sxm", "b200"}
    of, inside = got["h100-sxm"]
    assert (of.cells, of.rows, inside) == (1, 2, 0.5) and of.median_abs_error == pytest.approx(0.2)
    assert got["b200"][0].mean_abs_error == pytest.approx(1.0) and got["b200"][1] is None
    assert by_group(rows, GROUPS["phase"]) == {}  # a training run has none


def test_benchmarks_and_production_are_scored_apart():
    rows = [_scored(1.0, 1.1), _scored(1.0, 1.3, operation="production"), _scored(1.0, 1.2, operation="benchmark")]
    got = summary(rows, [], 3)
    of = got["by_group"]["operation"]
    assert of["production"]["cells"] == 1 and of["production"]["mean_abs_error"] == pytest.approx(0.3)
    assert of["benchmark"]["rows"] == 2 and of["benchmark"]["time_bias"] == pytest.approx((1.1 * 1.2) ** 0.5 - 1.0)
    text = screen({"summary": got | {"constants": "C", "columns": "", "inferred": []}, "rows": []})
    assert "  production" in text and "  benchmark" in text and "cells: 1" in text
    alone = summary(rows[:1], [], 1)
    assert "benchmark" not in screen({"summary": alone | {"constants": "C", "columns": "", "inferred": []}, "rows": []})


def test_a_regression_does_not_count_and_columns_tell_configurations_apart():
    slow, fast = _scored(3.0, 1.0, release=(25, 9), regression=True), _scored(1.0, 1.0, release=(25, 7))
    other = _scored(1.0, 1.0, release=(25, 4), number_format="fp8")
    got = summary([slow, fast, other], [], 3)
    assert slow.left_out and got["superseded"] == 2  # the newest release is the regression: the older one is superseded
    assert not other.left_out


def test_rows_without_an_error_and_cells_without_rows_do_not_count():
    errors = np.array([0.1, np.nan, -0.3])
    of = cell_errors([[0, 1], [2], [1], []], errors, np.log1p(errors))
    assert (of.cells, of.rows) == (2, 2)
    assert (of.median_abs_error, of.mean_abs_error, of.max_abs_error, of.mean_error) == pytest.approx(
        (0.2, 0.2, 0.3, -0.1)
    )
    assert cell_errors([], errors, errors).mean_abs_error is None
