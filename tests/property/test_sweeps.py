"""Sweeps of whole questions: every number finite over the whole box, and nothing below what is proved."""

import json

import numpy as np
import pytest

import hwopt
from tests.tiers import turn

SAMPLES, MANY = 100_000, 400_000
QUESTIONS = {
    "default": ("train_cost", {}),
    "loss": ("loss_under_budget", {}),
    "experts": (
        "train_energy",
        {"workload": "deepseek-v3", "chip": "gb300-nvl72", "cooling": "air", "precision": "fp8"},
    ),
}


@pytest.mark.parametrize(
    "name", [n if n == "default" else pytest.param(n, marks=pytest.mark.search) for n in QUESTIONS]
)
def test_every_number_is_finite_over_the_whole_box(name):
    objective, fields = QUESTIONS[name]
    samples = SAMPLES if name == "default" else MANY
    swept = hwopt.sweep(hwopt.objective(objective, **fields), samples, sampling="plain", rows=False, seed=turn())
    assert int(swept["evaluated"]) == samples and int(swept["nonfinite_count"]) == 0, f"seed {turn()}"
    assert 0 < int(swept["possible_count"]) < samples, f"seed {turn()}"


@pytest.mark.search
def test_a_million_points_of_the_default_question():
    alike = {"cp": (1.0, 1.0), "zero": (1.0, 1.0), "pp": (4.0, 16.0)}  # else most of it is the search for where to look
    swept = hwopt.sweep(hwopt.objective("train_cost"), 1_000_000, rows=False, seed=turn(), bounds=alike)
    assert swept.attrs["sampling"] == "importance"
    assert int(swept["evaluated"]) == 1_000_000 and int(swept["nonfinite_count"]) == 0, f"seed {turn()}"


@pytest.mark.search
def test_around_the_certified_optimum_the_best_is_near_and_nothing_below_the_bound():
    swept = hwopt.sweep(hwopt.objective("train_cost"), 1 << 19, within=1.05)
    optimum = json.loads(swept.attrs["optima"])["all"]
    assert swept.attrs["best_are"] == "feasible" and int(swept["feasible_count"]) > 100
    cost = swept["run_cost_usd"].values[swept["feasible"].values == 1].astype(float)
    # Budgets hold to 1e-6, float32 numbers to 1e-5.
    assert cost.min() >= optimum["lower_bound"] * (1 - 2e-5)
    assert float(swept["best_run_cost_usd"][0]) >= optimum["lower_bound"] * (1 - 2e-6)
    assert float(swept["best_run_cost_usd"][0]) <= optimum["objective"] * 1.005
    assert np.isfinite(cost).all()
