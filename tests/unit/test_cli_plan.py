"""`hwopt plan` as scripts see it."""

import json
import math
import shlex

import pytest

from tests.command_line import run
from tests.plans import plans_once  # noqa: F401

pytestmark = pytest.mark.usefixtures("plans_once")

CLUSTER = ["--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "64", "--global-batch", "128"]
PLAN = ["plan", *CLUSTER]


def run_json(capsys, *arguments):
    code, out, err = run(capsys, *arguments, "--json")
    return code, json.loads(out), err


def test_json_has_the_contract(capsys):
    code, document, err = run_json(capsys, *PLAN, "--top", "3")
    assert code == 0 and err == ""
    assert set(document["certificate"]) == {"lower_bound", "gap", "scope"}
    assert document["certificate"]["gap"] == 0.0
    assert document["certificate"]["lower_bound"] == document["objective"]["value"] == document["step_time_s"]
    assert document["objective"] | {"value": 0} == {"name": "step_time_s", "value": 0, "unit": "s"}
    assert 0 < document["fitting"] <= document["examined"] and document["fitting_chips"] is None
    assert f"{document['examined']:,} plans" in document["certificate"]["scope"]
    assert math.prod(document["plan"][name] for name in ("tp", "pp", "dp", "cp")) == 64
    assert len(document["alternatives"]) == 3
    for each in document["alternatives"]:
        assert each["objective"] >= document["step_time_s"] and each["excess"] >= 0.0
        assert each["bottleneck"] == next(iter(each["binding"]))
        assert math.prod(each["plan"][name] for name in ("tp", "pp", "dp", "cp")) == 64


def test_estimate_without_a_plan_is_the_same_search(capsys):
    _, document, _ = run_json(capsys, *PLAN)
    code, estimated, _ = run_json(capsys, "estimate", *CLUSTER)
    assert code == 0
    bill = estimated.pop("bill")  # a plan's own adds nothing to it
    assert sum(row["count"] * row["unit_price"] for row in bill) == pytest.approx(estimated["capex_usd"], rel=1e-9)
    assert sum(row["count"] * row["power_w"] for row in bill) == pytest.approx(estimated["peak_power_w"], rel=1e-9)
    assert all(row["source"] for row in bill)
    assert estimated.pop("schema") != document["schema"] and estimated.pop("command") != document["command"]
    assert estimated.items() <= document.items()


def test_another_objective(capsys):
    _, fastest, _ = run_json(capsys, *PLAN)
    code, document, _ = run_json(capsys, *PLAN, "--objective", "run_energy_j")
    assert code == 0
    assert document["objective"]["name"] == "run_energy_j" and document["objective"]["unit"] == "J"
    assert document["run_energy_j"] == document["objective"]["value"] <= fastest["run_energy_j"]
    _, out, _ = run(capsys, *PLAN, "--objective", "run_energy_j")
    assert "a step" in out and "Next best plans by run_energy_j" in out


def test_screen_says_the_same(capsys):
    _, document, _ = run_json(capsys, *PLAN)
    code, out, err = run(capsys, *PLAN, "--top", "2")
    assert code == 0 and err == ""
    assert "llama3.1-8b on 64 x h100-sxm" in out
    assert f"MFU {100 * document['mfu']:.1f} %" in out
    assert f"tp={document['plan']['tp']}, pp={document['plan']['pp']}, dp={document['plan']['dp']}" in out
    assert out.count("\n    tp=") == 2 and "largest parts of a step" in out and "gap 0" in out
    assert f"{document['fitting']:,} of {document['examined']:,} fit" in out


def test_export(capsys):
    inexpressible = "--hold", "activations_offloaded=0,weights_offloaded=0"
    _, document, _ = run_json(capsys, *PLAN, *inexpressible)
    code, out, err = run(capsys, *PLAN, *inexpressible, "--export", "megatron")
    assert code == 0 and err == ""
    lines = out.splitlines()
    assert "MEGATRON_ARGS=(" in lines and lines[-1].startswith("torchrun --nnodes 8 --nproc-per-node 8")
    assert f"  --tensor-model-parallel-size {document['plan']['tp']}" in lines
    code, exported, _ = run_json(capsys, *PLAN, *inexpressible, "--export", "megatron")
    assert code == 0 and exported["framework"] == "megatron-lm" and exported["world_size"] == 64
    assert exported["arguments"]["--micro-batch-size"] == document["plan"]["micro_batch"]
    assert exported["passed"] == "" and exported["predicted"]["step_time_s"] == document["step_time_s"]


def test_a_plan_that_cannot_be_expressed_is_replaced_by_the_best_that_can(capsys):
    estimate = ["estimate", *PLAN[1:], "--plan", "tp=2,dp=32,zero=1,activations_offloaded=1", "--export", "megatron"]
    code, exported, _ = run_json(capsys, *estimate)
    assert code == 0 and "stored activations in the memory pool" in exported["passed"]
    assert exported["passed"].startswith("not the plan tp=2, pp=1, dp=32")
    assert "can express with the same degrees" in exported["passed"]
    assert (
        exported["arguments"]["--tensor-model-parallel-size"] == 2
        and exported["arguments"]["--context-parallel-size"] == 1
    )
    code, out, _ = run(capsys, *estimate)
    assert code == 0 and exported["passed"] in out
    [again] = [line.removeprefix("# reproduce: ") for line in out.splitlines() if line.startswith("# reproduce: ")]
    code, answer, _ = run_json(capsys, *shlex.split(again)[1:])
    assert code == 0 and answer["step_time_s"] == exported["predicted"]["step_time_s"]
    held = [*PLAN, "--hold", "activations_offloaded=1", "--export", "torchtitan"]
    code, out, err = run(capsys, *held)
    assert code == 2 and err.count("\n") == 1 and "torchtitan cannot express stored activations" in err


def test_nothing_fits(capsys):
    arguments = ["plan", "--workload", "llama3.1-70b", "--chip", "h100-sxm", "--chips", "4", "--global-batch", "64"]
    arguments += ["--pool", "none"]
    code, document, _ = run_json(capsys, *arguments, "--export", "megatron")
    assert code == 1
    assert document["feasible"] is False and document["fitting"] == 0 and document["alternatives"] == []
    assert document["certificate"]["lower_bound"] is None and document["objective"]["value"] is None
    over = document["memory_per_chip_bytes"] / document["memory_capacity_bytes"] - 1
    assert math.isclose(document["violations"]["memory"], over, rel_tol=1e-9)
    code, out, _ = run(capsys, *arguments)
    assert code == 1
    out = " ".join(out.split())
    assert "more memory than a chip has" in out and f"--chips {document['fitting_chips']}" in out
    arguments[arguments.index("4")] = str(document["fitting_chips"])
    code, _, _ = run(capsys, *arguments)
    assert code == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([*PLAN, "--export", "megatorn"], "'megatron'"),
        ([*PLAN, "--objective", "step_time"], "'step_time_s'"),
        ([*PLAN, "--top", "0"], "--top"),
        ([*PLAN, "--top", "1.5"], "integer"),
        ([*PLAN, "--top", "100000"], "at most"),
        ([*PLAN, "--plan", "tp=7"], "possible: tp="),
        ([*PLAN, "--precison", "bf16"], "--precision"),
        (["plan", "--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "37"], "no plan divides 37 chips"),
        (["plan", "--chip", "h100-sxm", "--chips", "8"], "--workload"),
        (["plna"], "'plan'"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(capsys, arguments, named):
    code, out, err = run(capsys, *arguments)
    assert code == 2 and out == ""
    assert err.startswith("hwopt: ") and err.count("\n") == 1 and named in err


SMALL = ("plan", "--workload", "llama3.1-8b", "--chips", "4", "--global-batch", "32", "--hold", "weights_offloaded=0")


def test_the_best_of_choices_is_the_best_of_each_alone(capsys):
    alone = {chip: run_json(capsys, *SMALL, "--chip", chip)[1]["objective"]["value"] for chip in ("h100-sxm", "b200")}
    code, document, _ = run_json(capsys, *SMALL, "--choices", "chip=h100-sxm|b200")
    best = min(alone, key=lambda chip: alone[chip])
    assert code == 0 and document["chip"] == best and document["objective"]["value"] == alone[best]
    rows = {each["choice"]["chip"]: each for each in document["choices"]}
    assert {name: each["objective"] for name, each in rows.items()} == alone
    assert [each["outcome"] for each in document["choices"]] == ["best", "beaten"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--choices", "chip=h100-sxm|nonsense"), "chip=nonsense: unknown name"),
        (
            ("--choices", "chip=h100-sxm|a100-80", "--precision", "fp8"),
            "chip=a100-80: chip 'a100-80' does not compute in fp8",
        ),
        (("--choices", "chips=4|8", "--chip", "h100-sxm"), "'chips' is not a setting of a cluster"),
        (("--choices", "chip=b200|h200", "--chip", "h100-sxm"), "--chip is given too"),
        (("--choices", "cooling=air|direct-liquid"), "--chip or --choices chip=... is required"),
        ((), "--chip is needed"),
    ],
)
def test_choices_that_cannot_be_are_refused_before_any_search(capsys, monkeypatch, more, said):
    from hwopt.planning import plan_search

    monkeypatch.setattr(plan_search, "best_plan", lambda *a, **k: pytest.fail("searched"))
    code, out, err = run(capsys, *SMALL, *more)
    assert code == 2 and out == "" and err.count("\n") == 1 and said in err
