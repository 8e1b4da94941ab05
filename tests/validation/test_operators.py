"""Measured runs of tables of operators: every row is scored, and half of the cells lie within 20 %."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from hwopt import catalog
from hwopt.calibration.intervals import interval
from hwopt.calibration.validation.validate import validate
from results.benchmarks.operators import compared, rows, widths

TABLE = Path(str(files("hwopt") / "data" / "runs" / "operators.csv"))


@pytest.mark.search
def test_half_of_the_cells_lie_within_a_fifth():
    summary = validate(TABLE)["summary"]
    assert (summary["rows"], summary["scored"], summary["skipped"]) == (75, 75, 0)
    assert summary["median_abs_error"] < 0.2 < summary["baseline_abs_error"]
    assert 0.7 <= summary["interval_coverage"] <= 1.0  # widths of each source left out


@pytest.mark.search
def test_widths_are_those_of_the_rows():
    """What stands in the data file is what rows say today."""
    found = [compared(row) for row in rows()]
    stated = tomllib.loads((files("hwopt") / "data" / "calibrations" / "operators.toml").read_text(encoding="utf-8"))
    for source, half in {"": stated["half_widths"], **stated["left_out"]}.items():
        assert half == pytest.approx(widths(found, source), abs=2e-4)


def test_tables_have_intervals():
    """Measured models a narrower one than others, each source left out its own."""
    calibration = catalog.calibration("calibrated")
    of = lambda name, without="": interval(catalog.training_run(name), "hopper", "mlperf-graphs", calibration, without)
    measured, other = of("resnet-50"), of("mamba-2.8b")
    assert measured is not None and other is not None and 0.1 < measured.time < other.time < 1.0
    assert measured.memory is None and of("resnet-50", "nobody") == measured
    left = {of("resnet-50", source) for source in {row["source"] for row in rows()}}
    assert len(left) > 1 and None not in left
