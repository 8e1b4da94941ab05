"""`--batch-ramp` as scripts see it."""

import json

import pytest

from tests.command_line import run

RUN = ["estimate", "--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "64", "--tokens", "1e12"]
PLAN = ["--plan", "tp=2,pp=2,dp=16"]


def test_stages_are_printed_and_add_up(capsys):
    code, out, _ = run(capsys, *RUN, *PLAN, "--batch-ramp", "128@0.1T,256@0.3T,512", "--json")
    assert code == 0
    document = json.loads(out)
    stages = document["stages"]
    assert [each["batch_sequences"] for each in stages] == [128, 256, 512]
    assert [each["tokens"] for each in stages] == pytest.approx([0.1e12, 0.2e12, 0.7e12])
    assert sum(each["time_share"] for each in stages) == pytest.approx(1.0)
    assert stages[-1]["step_time_s"] == document["step_time_s"]
    seconds = sum(each["tokens"] / each["batch_sequences"] / 8192 * each["step_time_s"] for each in stages)
    assert document["run_time_s"] * document["goodput"] == pytest.approx(seconds, rel=1e-9)
    code, out, _ = run(capsys, *RUN, *PLAN, "--batch-ramp", "128@0.1T,256@0.3T,512")
    assert code == 0 and "batch ramp" in out and "256 sequences" in out and "200 B tokens" in out


def test_without_a_ramp_there_are_no_stages(capsys):
    code, out, _ = run(capsys, *RUN, *PLAN, "--global-batch", "512", "--json")
    assert code == 0 and "stages" not in json.loads(out)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch-ramp", "128@0.1T,64@0.2T,512"], "batches must grow"),
        (["--batch-ramp", "128@2T,512"], "the run has 1e+12"),
        (["--batch-ramp", "8@0.1T,512", *PLAN], "does not divide the batch ramp's stage of 8 sequences"),
        (["--batch-ramp", "128@0.1T,512", "--global-batch", "1024"], "remove one of them"),
        (["--batch-ramp", "128@0.1T,512", "--mode", "serve"], "applies to training"),
        (["--batch-ramp", ""], "--batch-ramp"),
    ],
)
def test_refusals_are_one_line(capsys, arguments, said):
    code, out, err = run(capsys, *RUN, *arguments)
    assert code == 2 and out == "" and said in err and err.count("\n") == 1
