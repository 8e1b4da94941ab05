"""The wheel is whole: what it lacks, an editable install would hide."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PAGES = CHECKOUT / "notebooks" / "guide" / "pages"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out, CHECKOUT, cwd=out)
    (built,) = out.glob("hwopt-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The Python of an environment that has our wheel, and the running one's packages behind it."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    layout = sysconfig.get_paths("venv", {"base": str(folder), "platbase": str(folder)})
    python = Path(layout["scripts"]) / ("python.exe" if os.name == "nt" else "python")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel, cwd=folder)
    # A plain path line in a .pth file is appended: our wheel comes first, and the .pth file of an editable install in
    # the other environment is not read, so that the checkout stays out of sight.
    borrowed = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (Path(layout["purelib"]) / "borrowed.pth").write_text("\n".join(borrowed) + "\n")
    return python


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("elsewhere")


def run(*command, cwd) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_wheel_holds_every_file_of_both_packages(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        path.relative_to(CHECKOUT).as_posix()
        for package in ("hwopt", "objectives")
        for path in (CHECKOUT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    } | {f"hwopt/data/guide/{path.relative_to(PAGES).as_posix()}" for path in PAGES.rglob("*.md")}
    assert wanted <= held
    stray = {name for name in held - wanted if ".dist-info/" not in name}
    assert not stray


def test_packages_come_from_the_wheel(installed, elsewhere):
    code = "import hwopt, objectives; print(hwopt.__file__, *objectives.__path__)"
    for path in run(installed, "-c", code, cwd=elsewhere).split():
        assert not Path(path).is_relative_to(CHECKOUT / "hwopt")
        assert not Path(path).is_relative_to(CHECKOUT / "objectives")


def test_command_line_reads_its_data_from_another_folder(installed, elsewhere):
    text = run(installed.with_name("hwopt"), "catalog", "chips", "h100-sxm", cwd=elsewhere)
    assert "h100-sxm" in text.lower()


def test_pages_of_the_guide_are_read_from_the_wheel(installed, elsewhere):
    text = run(installed.with_name("hwopt"), "docs", "collectives", cwd=elsewhere)
    assert text.startswith("# Collectives and topologies\n") and "<!--" not in text


def test_estimate_prints_one_json_object(installed, elsewhere):
    command = "estimate --workload llama3.1-8b --chip h100-sxm --chips 8 --plan tp=2,pp=1,dp=4 --json"
    answer = json.loads(run(installed.with_name("hwopt"), *command.split(), cwd=elsewhere))
    assert answer["step_time_s"] > 0


def test_objectives_are_found_by_entry_point(installed, elsewhere):
    code = "from hwopt import registry; print(registry.names(), registry.load('train_cost').__name__)"
    assert "TrainCost" in run(installed, "-c", code, cwd=elsewhere)
