"""Notebooks run from top to bottom, and what readers see is the code and the text that are reviewed."""

import base64
import json
import re
import struct
from pathlib import Path

import matplotlib.pyplot
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
LARGEST = 300_000
"""Bytes of an executed notebook."""

_DRAWS = re.compile(r"plt\.show\(\)|^Image\(", re.MULTILINE)
every = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def percent_cells(path):
    """Kind and text of each cell of a percent script, as Jupytext reads it."""
    cells = []
    for part in re.split(r"^# %%", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        kind, _, text = part.partition("\n")
        if kind.strip() == "[markdown]":
            lines = text.rstrip("\n").split("\n")
            assert all(line.startswith("#") for line in lines), f"markdown without '#' in {path.name}"
            cells.append(("markdown", "\n".join(line[2:] for line in lines)))
        else:
            assert not kind.strip(), f"unknown cell '{kind}' in {path.name}"
            cells.append(("code", text.strip("\n")))
    return cells


def executed_cells(path):
    return json.loads(path.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]


def images(cell):
    return [output["data"]["image/png"] for output in cell["outputs"] if "image/png" in output.get("data", {})]


@every
def test_the_executed_twin_has_the_same_code_and_text(path):
    twin = [(cell["cell_type"], "".join(cell["source"])) for cell in executed_cells(path)]
    assert twin == percent_cells(path)


@every
def test_the_executed_twin_has_its_outputs(path):
    cells = [cell for cell in executed_cells(path) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell["outputs"] for cell in cells if "print(" in "".join(cell["source"]))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not any(output["output_type"] == "error" or output.get("name") == "stderr" for output in outputs)


@every
def test_every_figure_is_there(path):
    drawing = [cell for cell in executed_cells(path) if _DRAWS.search("".join(cell["source"]))]
    assert drawing
    for cell in drawing:
        assert cell["cell_type"] == "code" and images(cell)
        for image in images(cell):
            width, height = struct.unpack(">II", base64.b64decode(image)[16:24])
            assert 400 <= width <= 1600 and 200 <= height <= 1200


@every
def test_it_is_small(path):
    assert path.with_suffix(".ipynb").stat().st_size <= LARGEST


@every
def test_it_asks_and_says_what_it_leaves_out(path):
    texts = [text for kind, text in percent_cells(path) if kind == "markdown"]
    assert texts[0].startswith("# ") and "?" in texts[0]
    assert "## What this does not show\n" in texts[-1]


@every
def test_it_names_no_place_of_one_machine(path):
    places = rf"{re.escape(str(ROOT))}/|/home/|/root/|/tmp/"
    assert not re.search(places, path.with_suffix(".ipynb").read_text(encoding="utf-8"))


@pytest.mark.slow
@every
def test_it_runs(path, capsys, monkeypatch):
    pytest.importorskip("IPython")  # shows the figures that hwopt draws
    monkeypatch.setenv("HWOPT_FAST", "1")
    matplotlib.use("Agg", force=True)
    exec(compile(path.read_text(encoding="utf-8"), path.name, "exec"), {"__name__": "__main__"})
    matplotlib.pyplot.close("all")
    assert capsys.readouterr().out
