"""What a forge runs every night is what CONTRIBUTING says, on the versions that the package declares."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_the_nightly_jobs_are_those_of_the_documents():
    nightly = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text(encoding="utf-8"))
    steps = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in nightly["jobs"].items()}
    (search,) = re.findall(
        r"`(python -m pytest -m search[^`]*)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    )
    assert steps["search"][-1] == search and steps["versions"][-1] == "python -m pytest"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    matrix = nightly["jobs"]["versions"]["strategy"]["matrix"]["include"]
    oldest = min(matrix, key=lambda each: tuple(map(int, each["python"].split("."))))
    assert project["requires-python"] == f">={oldest['python']}"
    bounds = [each for each in project["dependencies"] if re.match(r"jax(lib)?>", each)]
    assert [each.replace(">=", "==") + ".0" for each in bounds] == oldest["jax"].split()
    declared = {each.rpartition(" ")[2] for each in project["classifiers"] if re.search(r":: 3\.\d+$", each)}
    assert declared <= {each["python"] for each in matrix}


def test_a_version_is_one_everywhere():
    """And the changelog has a heading for it."""
    import hwopt

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"]
    assert "version" in project["dynamic"] and hwopt.__version__ == cited
    assert f"## [{hwopt.__version__}] - 2" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
