"""`--date` as scripts see it: default software, the date in answers, refusals, and commands that reproduce an answer."""

import shlex

import pytest

from tests.command_line import run, run_json

CLUSTER = ["--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "8"]
PLAN = ["--plan", "tp=2,dp=4"]


def test_the_date_decides_the_software(capsys):
    today, stated, past = (
        run_json(capsys, "estimate", *CLUSTER, *PLAN, *more)
        for more in ([], ["--date", "2026-11"], ["--date", "2023-12"])
    )
    assert (today["date"], stated["date"], past["date"]) == ("2026-11", "2026-11", "2023-12")
    assert {**today, "command": ""} == {**stated, "command": ""}
    same = run_json(capsys, "estimate", *CLUSTER, *PLAN, "--stack", "megatron-2023")
    assert past["step_time_s"] == same["step_time_s"] > today["step_time_s"]
    assert (past["low"], past["high"]) == (
        same["low"],
        same["high"],
    )  # the interval is that of the software of the month
    assert "date 2023-12 (megatron-2023)" in run(capsys, "estimate", *CLUSTER, *PLAN, "--date", "2023-12")[1]
    assert "date" not in run(capsys, "estimate", *CLUSTER, *PLAN)[1].split("\n")[2]


def test_the_command_of_an_answer_gives_the_same_answer(capsys):
    first = run_json(capsys, "plan", *CLUSTER, "--date", "2023-12", "--top", "1")
    assert "--date 2023-12" in first["command"]
    again = run_json(capsys, *[word for word in shlex.split(first["command"])[1:] if word != "--json"])
    assert again == first


def test_launch_files_name_the_software_and_the_date(capsys):
    code, out, _ = run(capsys, "plan", *CLUSTER, "--date", "2023-12", "--export", "megatron")
    assert code == 0 and "for the stack megatron-2023" in out
    command = next(line for line in out.split("\n") if "hwopt estimate" in line)
    assert "--date 2023-12" in command


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--date", "2024-13"], "date = '2024-13' is not a month: write year and month, such as 2026-11"),
        (["--date", "2021-06"], "date = 2021-06: chip 'h100-sxm' is of 2022"),
        (["--date", "2023-12", "--stack", "nemo-2024"], "stack 'nemo-2024' is of 2024-02"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [["estimate", *CLUSTER], ["plan", *CLUSTER], ["scale", *CLUSTER[:-1], "8,16"], ["optimize", *CLUSTER[:4]]],
)
def test_impossible_dates_are_refused_before_any_work(capsys, command, arguments, complaint):
    code, out, err = run(capsys, *command, *arguments)
    assert code == 2 and out == "" and complaint in err and err.count("\n") == 1


def test_months_are_choices_too(capsys):
    found = run_json(capsys, "plan", *CLUSTER, "--choices", "date=2023-12|2026-11", "--top", "1")
    times = {each["choice"]["date"]: each["objective"] for each in found["choices"]}
    assert times["2026-11"] < times["2023-12"] and "date" not in found
