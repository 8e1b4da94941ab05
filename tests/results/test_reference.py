"""What is committed under `results/` comes out again: same words, every number within a per cent."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from results.benchmarks.reference import RESULTS, ROOT, TABLE, make
from results.benchmarks.refit import STEPS
from tests.rotation import picked

NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
ROW_BY_ROW = ("claims", "questions")
"""Results whose rows have tests of their own."""
SEARCHES = ("families",)
"""Results of many certified searches: eighteen in this one, eight CPU minutes."""
LEFT_OUT = (*ROW_BY_ROW, *SEARCHES)
AGAIN = [each for each in TABLE if not each.measured and not each.writes_itself and each.name not in LEFT_OUT]


def test_every_result_has_its_command():
    """In the table that makes them, and in the list that readers see."""
    written = {path.relative_to(RESULTS).as_posix() for path in RESULTS.glob("**/*.*") if "runs" not in path.parts}
    made = {name for name in written if name.endswith((".txt", ".md", ".json"))} - {"README.md"}
    assert {each.file for each in TABLE} == made
    listed = (RESULTS / "README.md").read_text(encoding="utf-8")
    assert all(each.file in listed and f"`{each.command}" in listed for each in TABLE)


def test_a_refit_makes_all_that_hangs_on_constants():
    """Every file of fitted numbers and every result but those that hold seconds, constants before what is worked out by them."""
    programs = [command.split()[0] for command in STEPS.values()]
    assert all((ROOT / program).is_file() for program in programs if program != "-m")
    writers = {
        path.name
        for path in (ROOT / "results" / "benchmarks").glob("*.py")
        if "calibrations" in (text := path.read_text(encoding="utf-8")) and "write_text(" in text
    }
    first = programs[: list(STEPS).index("results")]
    writers |= {"evidence.py"}  # screens show its counts
    assert writers - {"refit.py", "test_reference.py"} == {Path(program).name for program in first}
    named = {*STEPS["results"].split()[1:], *STEPS}
    assert {each.name for each in TABLE if not each.measured} <= named


@pytest.mark.search
@pytest.mark.parametrize("result", picked(AGAIN, 1))
def test_it_comes_out_again(result, tmp_path):
    assert_comes_out_again(make(result, tmp_path).read_text(encoding="utf-8"), RESULTS / result.file)


def assert_comes_out_again(found: str, path: Path) -> None:
    committed = path.read_text(encoding="utf-8")
    assert words(found) == words(committed)
    np.testing.assert_allclose(numbers(found), numbers(committed), rtol=0.01, atol=1e-3)


def words(text: str) -> list[str]:
    return NUMBER.sub("#", text).split()


def numbers(text: str) -> list[float]:
    return [float(found.replace(",", "")) for found in NUMBER.findall(text)]


def test_numbers_are_read():
    assert numbers("1,200 chips, -3.5e-2 of 40") == [1200.0, -0.035, 40.0]
    assert words("1,200 chips cost 3 M$") == ["#", "chips", "cost", "#", "M$"]
    assert Path(RESULTS / "README.md").is_file()
