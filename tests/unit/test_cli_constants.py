"""`--constants` and `hwopt calibrate` on the command line: modes, intervals, files, refusals."""

from __future__ import annotations

import csv
import json
from importlib.resources import files

import pytest

from hwopt.cli import main

ESTIMATE = [
    "estimate",
    "--workload",
    "llama3.1-8b",
    "--chip",
    "h100-sxm",
    "--chips",
    "8",
    "--plan",
    "tp=2,dp=4",
    "--json",
]


def _json(capsys, arguments):
    assert main(arguments) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def runs(tmp_path):
    with (files("hwopt") / "data" / "runs" / "train.csv").open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        rows = [row for row in reader if "fms-fsdp" in row["source"]]
    path = tmp_path / "runs.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, reader.fieldnames)
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_each_mode_names_itself_and_only_calibrated_has_an_interval(capsys):
    calibrated = _json(capsys, ESTIMATE)
    literature = _json(capsys, [*ESTIMATE, "--constants", "literature"])
    ideal = _json(capsys, [*ESTIMATE, "--constants", "speed-of-light"])
    assert [each["constants"] for each in (calibrated, literature, ideal)] == [
        "calibrated",
        "literature",
        "speed-of-light",
    ]
    assert literature["low"] is literature["high"] is ideal["low"] is ideal["high"] is None
    assert ideal["step_time_s"] < literature["step_time_s"] and ideal["mfu"] > 0.8
    for name, low in calibrated["low"].items():
        assert low < calibrated[name] < calibrated["high"][name]
    assert {"step_time_s", "tokens_per_s", "memory_per_chip_bytes", "cost_per_token_usd"} <= set(calibrated["low"])


def test_intervals_widen_for_experts_and_for_unseen_chips(capsys):
    def width(*arguments):
        answer = _json(capsys, ["estimate", "--chips", "64", "--json", *arguments])
        return answer["high"]["step_time_s"] / answer["low"]["step_time_s"]

    dense = width("--workload", "llama3.1-8b", "--chip", "h100-sxm", "--plan", "tp=2,dp=32")
    experts = width("--workload", "mixtral-8x7b", "--chip", "h200", "--plan", "tp=2,dp=32,ep=8")
    unseen = width("--workload", "llama3.1-8b", "--chip", "gaudi3", "--plan", "tp=2,dp=32")
    assert experts > dense and unseen > dense


@pytest.mark.search
def test_calibrate_writes_a_file_that_other_commands_take(capsys, tmp_path, runs):
    out = tmp_path / "mine.toml"
    result = _json(capsys, ["calibrate", str(runs), "--out", str(out), "--json"])
    assert result["runs"] == 8 and result["after"]["mean_abs_error"] < result["before"]["mean_abs_error"]
    assert main(["calibrate", str(runs), "--only", "stack_gemm_efficiency"]) == 0
    assert "Largest changes of constants" in capsys.readouterr().out
    mine = _json(capsys, [*ESTIMATE, "--stack", "torchtitan-2024", "--constants", str(out)])
    published = _json(capsys, [*ESTIMATE, "--stack", "torchtitan-2024"])
    assert mine["step_time_s"] != published["step_time_s"] and mine["constants"] == str(out)


MACHINE = ["--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips"]


@pytest.mark.parametrize(
    ("command", "asked", "says"),
    [
        (["estimate", *MACHINE, "8", "--plan", "tp=2,dp=4"], [], "benchmark operation, as the runs behind"),
        (["estimate", *MACHINE, "8", "--plan", "tp=2,dp=4"], ["--operation", "production"], "production operation as requested"),
        (["estimate", *MACHINE, "8", "--mode", "serve", "--plan", "tp=2,dp=4"], [], "benchmark operation, as the runs behind"),
        (["plan", *MACHINE, "8"], [], "benchmark operation, as the runs behind"),
        (["scale", *MACHINE, "8,16"], [], "benchmark operation, as the runs behind"),
        (["sources", "train_cost"], [], "benchmark operation, as the runs behind"),
    ],
)  # fmt: skip
def test_screens_say_which_operation_a_file_of_constants_implies(capsys, tmp_path, command, asked, says):
    path = tmp_path / "mine.toml"
    path.write_text('operation = "benchmark"\n[shifts]\n"level@own" = { shift = 0.1, sd = 0.1 }\n')
    main([*command, *asked, "--constants", str(path)])
    said = " ".join(capsys.readouterr().out.split())
    assert said.count(says) == 1 and str(path) in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([*ESTIMATE, "--constants", "litterature"], "literature"),
        ([*ESTIMATE, "--constants", "nowhere.toml"], "cannot read nowhere.toml"),
        (["calibrate", "nowhere.csv"], "no such file"),
        (["validate", "nowhere.csv", "--constants", "calibratd"], "calibrated"),
        (["optimize", "--constants", "x"], "unknown constants 'x'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(capsys, arguments, says):
    assert main(arguments) == 2
    error = capsys.readouterr().err.strip()
    assert says in error and "\n" not in error


def test_an_empty_file_and_rows_without_a_time_are_refused(capsys, tmp_path, runs):
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    assert main(["calibrate", str(empty)]) == 2
    assert "empty" in capsys.readouterr().err
    head, first, *_ = runs.read_text(encoding="utf-8").splitlines()
    cells = dict(zip(next(csv.reader([head])), next(csv.reader([first])), strict=True)) | {
        "gpu": "an abacus",
        "chip": "",
    }
    with runs.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(cells))
        writer.writeheader()
        writer.writerow(cells)
    assert main(["calibrate", str(runs)]) == 2
    error = capsys.readouterr().err.strip()
    assert "no run with a measured time" in error and "\n" not in error
