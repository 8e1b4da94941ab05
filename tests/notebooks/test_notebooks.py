"""Notebooks run from top to bottom, and what readers see is the code that is reviewed."""

import json
from pathlib import Path

import matplotlib
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.py"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_executed_twin_has_the_same_code_and_its_outputs(path):
    text = path.read_text(encoding="utf-8")
    cells = json.loads(path.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) == text.count("\n# %%\n") and all(each in text for each in code)
    assert all(cell["outputs"] for cell in cells if cell["cell_type"] == "code" and "print(" in "".join(cell["source"]))
    assert not any(output["output_type"] == "error" for cell in cells for output in cell.get("outputs", []))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, capsys):
    matplotlib.use("Agg", force=True)
    exec(compile(path.read_text(encoding="utf-8"), path.name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out
