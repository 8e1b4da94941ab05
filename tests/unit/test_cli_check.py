"""`hwopt check` and `hwopt validate --template` as they are called: exit codes, JSON, a page, a first line that reads back."""

import json
from importlib.resources import files

import pytest

from hwopt.cli import main


def test_check_answers_by_its_exit_code_json_and_page(capsys, tmp_path):
    """A site of 150 MW holds 100,000 H100, one of 115 MW does not."""
    page, short = tmp_path / "check.html", tmp_path / "short.toml"
    assert main(["check", "xai-colossus", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["holds"]
    text = (files("hwopt") / "data" / "blueprints" / "xai-colossus.toml").read_text(encoding="utf-8")
    short.write_text(text.replace("power = { value = 150", "power = { value = 115"), encoding="utf-8")
    assert main(["check", str(short), "--json", "--report", str(page)]) == 1
    document = json.loads(capsys.readouterr().out)
    (power,) = [line for line in document["lines"] if line["verdict"] == "fails"]
    assert power["name"] == "power" and power["low"] > power["stated"] == 115e6 and not document["holds"]
    fewer = next(each for each in power["repairs"] if each["number"] == "chips")
    assert 80000 < fewer["to"] < 100000 and "fewer" in fewer["words"]
    assert "115 MW" in page.read_text() and "servethehome" in page.read_text()


def test_check_refuses_in_one_line_a_complaint(capsys, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('chps = 8\ntime = "30 MW"\n')
    assert main(["check", str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "did you mean 'chips'" in lines[0] and "is not a unit" in lines[1]
    assert main(["check", str(tmp_path / "none.toml")]) == 2
    assert main(["check"]) == 2


def test_a_template_of_measured_runs_is_read_once_a_row_stands_in_it(capsys, tmp_path):
    assert main(["validate", "--template"]) == 0
    header, path = capsys.readouterr().out, tmp_path / "runs.csv"
    path.write_text(header)
    assert main(["validate", str(path)]) == 2 and "no rows" in capsys.readouterr().err
    assert main(["validate", "--columns"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in header.strip().split(","))


@pytest.mark.parametrize("command", ["validate", "calibrate"])
def test_a_file_that_is_missing_is_asked_for(command, capsys):
    assert main([command]) == 2
    assert "needs a file of measured runs" in capsys.readouterr().err
