"""The tutorial's package adds a question and a chip to an installed hwopt, by the commands of its README."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parents[2] / "notebooks" / "tutorial"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder for PYTHONPATH with the package, built and installed apart: the environment stays as it is."""
    folder = tmp_path_factory.mktemp("site")
    # Without its backend here, pip fetches one, as for the wheel.
    quick = ["--no-build-isolation"] if find_spec("hatchling") else []
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", *quick, "--target", folder, TUTORIAL]
    subprocess.run([str(part) for part in command], check=True, timeout=300, cwd=folder)
    return folder


def hwopt(site: Path, *words: str, code: int = 0) -> str:
    environment = os.environ | {"PYTHONPATH": str(site)}
    command = [sys.executable, "-m", "hwopt", *words]
    done = subprocess.run(command, cwd=site, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def test_the_question_is_proved(site):
    narrow = "tp=8:8,pp=1:4,virtual_stages=1:1,micro_batch=1:1,chips=1024:8192"
    answer = json.loads(hwopt(site, "optimize", "time_is_money", "--chip", "my-chip", "--bounds", narrow, "--json"))
    assert answer["objective"]["name"] == "run_and_wait_usd"
    assert 0.0 <= answer["certificate"]["gap"] < 1e-4
    report = answer["report"]
    by_hand = report["run_cost_usd"] + 5e4 * report["run_time_s"] / 86400.0
    assert answer["objective"]["value"] == pytest.approx(by_hand, rel=1e-6)


def test_the_question_is_swept_by_its_own_metric(site):
    text = hwopt(site, "sweep", "time_is_money", "--samples", "16384")
    assert "run and wait" in text and "feasible" in text


def test_the_chip_is_in_the_catalogue_with_its_own_source(site):
    assert "my-chip" in hwopt(site, "catalog", "chips").split()
    assert "My company, architecture plan" in hwopt(site, "catalog", "chips", "my-chip")
    assert "My company, architecture plan" in hwopt(site, "sources", "time_is_money", "--chip", "my-chip")


def test_the_chip_is_estimated(site):
    words = "estimate --workload llama3-70b --chip my-chip --chips 1024 --plan tp=8,pp=4 --json"
    assert json.loads(hwopt(site, *words.split()))["step_time_s"] > 0.0


def test_fields_are_flags_with_their_meanings(site):
    text = " ".join(hwopt(site, "optimize", "time_is_money", "--help").split())
    assert "--day-usd" in text and "what a day of waiting costs" in text


def test_nothing_of_it_is_left_in_the_checkout(site):
    assert {path.name for path in TUTORIAL.iterdir()} - {"__pycache__"} == {"README.md", "pyproject.toml", "my_studies"}
