"""The verdict: first on the screen and on the page, a key of the JSON, with ranges where they are known."""

import dataclasses
import json
import math

import pytest

import hwopt
from hwopt.calibration.intervals import Interval
from hwopt.cli import main
from hwopt.output.answers.optimum import solution_answer
from hwopt.output.text.verdict import ranged
from tests.toy import ToyCost

TENTH = Interval(time=math.log(1.1))


def test_ranges_are_in_the_unit_of_the_number():
    assert ranged("50 days", TENTH) == "50 days (45.5-55)"
    assert ranged("50.1 days", TENTH, "50.0999 days") == "50.1 days (45.5-55.1)"
    assert ranged("0.96 $ per million output tokens", TENTH) == "0.96 $ (0.873-1.06) per million output tokens"
    assert ranged("990,941 $", TENTH) == "990,941 $ (900,855-1,090,035)"
    assert ranged("50 days", None) == "50 days"


def test_an_optimum_says_what_to_buy_and_what_it_does():
    solution = hwopt.optimize(ToyCost(), explain=False)
    answer = solution_answer(solution, TENTH)
    report, chips = solution.report, float(solution.built.cluster.chips)
    racks = math.ceil(float(report.racks) - 1e-9)
    assert answer.verdict.startswith(f"Buy {chips:,.0f} ") and f" ({racks:,} rack" in answer.verdict
    assert "The run takes" in answer.verdict and "of the cluster's life." in answer.verdict
    assert " ".join(answer.screen().split()).startswith(answer.verdict)
    assert answer.document()["verdict"] == answer.verdict and answer.details == solution.headline
    unknown = solution_answer(solution)
    assert "(" not in unknown.verdict.split("The run takes")[1]
    none = solution_answer(dataclasses.replace(solution, outcome=hwopt.solver.solution.Outcome.infeasible))
    assert none.verdict.startswith("Infeasible: ") and none.details == ""


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--plan", "tp=2"], "8 h100-sxm train llama3.1-8b in "),
        (["--mode", "serve", "--plan", "tp=2,batch=8"], "8 h100-sxm serve llama3.1-8b: "),
        (["--mode", "serve", "--decode-chip", "h200", "--prefill-chips", "4", "--prefill-plan", "tp=2,batch=1", "--plan", "tp=2"],
         "4 h100-sxm for prefill and 4 h200 for decode serve llama3.1-8b: "),
        (["--plan", "tp=1,mbs=64"], "This plan does not fit. "),
    ],
)  # fmt: skip
def test_an_estimate_says_what_a_machine_does(flags, said, capsys):
    asked = ["estimate", "--model", "llama3.1-8b", "--chip", "h100-sxm", "--gpus", "8", *flags]
    code = main(asked)
    screen = " ".join(capsys.readouterr().out.split())
    assert main([*asked, "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"].startswith(said) and screen.startswith(document["verdict"])
    if document["low"] and "train" in said:
        days = [document[side]["run_time_s"] / 86_400.0 for side in ("low", "high")]
        assert f"({days[0]:.3g}-{days[1]:.3g})" in document["verdict"] or "years" in document["verdict"]
