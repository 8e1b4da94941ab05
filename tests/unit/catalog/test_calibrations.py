"""Modes of constants and files of calibrations: what is read, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.errors import UserError

GOOD = """
title = "mine"
note = ""
runs = 5
[shifts]
"gemm_efficiency@all" = { shift = -0.3, sd = 0.1 }
"gemm_efficiency@family:hopper" = { shift = 0.1, sd = 0.1 }
"host@stack:nemo-2024" = { shift = 0.5, sd = 0.2 }
[left_out]
"a paper" = [0.0, 0.2, 0.0]
[intervals]
base = -2.0
"""


def _file(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def test_the_three_modes_differ_and_calibrated_is_the_default():
    literature = catalog.cluster("h100-sxm", 64, constants="literature")
    calibrated, default = catalog.cluster("h100-sxm", 64, constants="calibrated"), catalog.cluster("h100-sxm", 64)
    ideal = catalog.cluster("h100-sxm", 64, constants="speed-of-light")
    assert np.array_equal(calibrated.chip.matmul_efficiency, default.chip.matmul_efficiency)
    assert not np.array_equal(literature.chip.matmul_efficiency, calibrated.chip.matmul_efficiency)
    assert np.all(ideal.chip.matmul_efficiency == 1.0) and ideal.chip.hbm_efficiency == 1.0
    assert np.all(ideal.network.efficiency == 1.0) and ideal.stack.host_layer_s == 0.0 and ideal.stack.tp_overlap == 1.0
    for held in (literature, calibrated, ideal):
        assert all(
            np.asarray(leaf).dtype == np.float64 for leaf in (held.chip.matmul_efficiency, held.stack.tp_overlap)
        )


def test_a_file_moves_what_it_names_and_nothing_else(tmp_path):
    path = _file(tmp_path, GOOD)
    held = catalog.calibration(path)
    assert held.title == "mine" and held.runs == 5
    totals = held.totals("hopper", "nemo-2024")
    assert totals["gemm_efficiency"] == pytest.approx(-0.2) and totals["host"] == 0.5 and totals["tp_overlap"] == 0.0
    assert held.totals("hopper", "nemo-2024", without="a paper")["gemm_efficiency"] == pytest.approx(0.2)
    assert held.totals("ampere", "nemo-2024", without="another")["gemm_efficiency"] == pytest.approx(-0.3)
    literature = catalog.cluster("h100-sxm", 64, stack="nemo-2024", constants="literature")
    mine = catalog.cluster("h100-sxm", 64, stack="nemo-2024", constants=path)
    assert float(mine.stack.host_layer_s) == pytest.approx(float(literature.stack.host_layer_s) * np.exp(0.5))
    assert mine.stack.tp_overlap == literature.stack.tp_overlap
    assert np.array_equal(mine.network.efficiency, literature.network.efficiency)


def test_a_machine_is_run_as_the_runs_behind_its_constants(tmp_path):
    """A benchmark has no stragglers. A stated operation takes precedence; a file without one means production."""
    path, straggles = tmp_path / "mine.toml", lambda **how: float(
        catalog.cluster("h100-sxm", 64, **how).operation.straggler_sigma) > 0.0  # fmt: skip
    cases = (("", True, "does not state"), ("benchmark", False, "as the runs"), ("production", True, "as the runs"))
    for stated, slow, words in cases:
        path.write_text(f'operation = "{stated}"\n{GOOD}' if stated else GOOD)
        assert straggles(constants=path) == slow and straggles(constants=str(path), operation="production")
        assert not straggles(constants=path, operation="benchmark")
        question = hwopt.objective("train_cost", constants=str(path)).problem()
        assert (float(question.template.cluster.operation.straggler_sigma) > 0.0) == slow
        assert words in question.question and question.provenance.records["operation"].slug == (stated or "production")
        assert words in catalog.operation_words(path, None)
    asked = hwopt.objective("serve_cost", constants=str(path), operation="benchmark").problem()
    assert "although the runs behind" in asked.question and asked.provenance.records["operation"].slug == "benchmark"
    assert straggles() and not straggles(constants="speed-of-light")
    assert "operation" not in hwopt.objective("train_cost").problem().question


def test_knows_what_was_fitted(tmp_path):
    held = catalog.calibration(_file(tmp_path, GOOD))
    assert held.knows("family", "hopper") and not held.knows("family", "tpu")
    assert held.knows("stack", "nemo-2024") and not held.knows("stack", "nemo-2024", without="a paper")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'shifts' is missing"),
        ('[shifts]\n"gemm_eficiency@all" = { shift = 0, sd = 1 }', "did you mean 'gemm_efficiency'"),
        ('[shifts]\n"gemm_efficiency" = { shift = 0, sd = 1 }', "unknown constant"),
        ('[shifts]\n"hbm_efficiency@stack:x" = { shift = 0, sd = 1 }', "no scope"),
        ('[shifts]\n"gemm_efficiency@all" = { shift = nan, sd = 1 }', "finite"),
        ('[shifts]\n"gemm_efficiency@all" = { shift = 1e9, sd = 1 }', "finite"),
        ('[shifts]\n"gemm_efficiency@all" = 3', "finite"),
        ('[shifts]\n"gemm_efficiency@all" = { shift = 0, sd = 1 }\n[left_out]\na = [1, 2]', "left_out"),
        ('[shifts]\n"gemm_efficiency@all" = { shift = 0, sd = 1 }\n[intervals]\nbase = "x"', "intervals"),
        ('operation = "weekly"\n[shifts]', "must be 'benchmark' or 'production'"),
        ("[shiffts]", "did you mean 'shifts'"),
        ("[shifts", "not TOML"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path, text, says):
    with pytest.raises(UserError) as failure:
        catalog.calibration(_file(tmp_path, text))
    message = str(failure.value)
    assert says in message and "\n" not in message and "mine.toml" in message


def test_unknown_modes_are_refused_with_the_likely_one():
    with pytest.raises(UserError, match="calibrated"):
        catalog.cluster("h100-sxm", 64, constants="calibratd")
    with pytest.raises(UserError, match="cannot read"):
        catalog.cluster("h100-sxm", 64, constants="nowhere.toml")


def test_the_shipped_calibration_is_whole():
    held = catalog.calibration()
    assert held.runs > 500 and len(held.left_out) > 15
    assert all(len(row) == len(held.shifts) for row in held.left_out.values())
    assert np.all(held.sd > 0.0) and np.all(np.abs(held.shifts) < 3.0)
    assert np.all(held.sd <= held.scopes.prior_sd * 1.0001)  # data never make a constant less certain
    assert held.knows("family", "hopper") and not held.knows("family", "rubin")
