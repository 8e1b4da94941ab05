"""Anchors: scaling of the step time by measured runs, narrower intervals, refused values."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

import hwopt
from hwopt import catalog, registry
from hwopt.calibration.fit.anchor import anchored
from hwopt.calibration.intervals import interval
from hwopt.catalog import Anchor
from hwopt.catalog.calibrations import calibration_table
from hwopt.cli.app import main
from hwopt.design.anchored_question import AnchoredQuestion
from hwopt.errors import UserError
from hwopt.hardware.calibration import OWN
from hwopt.model.estimate import estimate
from hwopt.trace.cache import evaluate_in_numpy

LOG = Path(__file__).parent / "logs" / "torchtitan.log"
PLAN = "tp=1,pp=1,cp=1,vpp=1,mbs=1,zero=1,recompute=none"
RUN = ["--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "64", "--global-batch", "256"]
SERVICE = ["--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "1", "--mode", "decode", "--precision", "bf16"]
WEIGHT = 1.0 / (1.0 + calibration_table("own_runs")["anchored"]["prior_runs"])


def case(operation: str = catalog.BENCHMARK, constants: str = catalog.CALIBRATED):
    run = catalog.training_run("llama3.1-8b", global_batch=256)
    cluster = catalog.cluster("h100-sxm", 64, operation=operation, constants=constants)
    return run, cluster, catalog.plan(run, 64, **catalog.parse_plan(PLAN))


def asked(**more) -> AnchoredQuestion:
    cluster = lambda operation: case(operation)[1]
    usual = AnchoredQuestion("llama3.1-8b", case()[0], True, "h100-sxm", "nemo-2024", 64, PLAN, None, cluster)
    return usual._replace(**more)


def test_the_level_is_the_weighted_ratio_and_the_step_follows_it():
    before = float(evaluate_in_numpy(estimate, *case()).step_time_s)
    constants = anchored(f"step={1.2 * before:.9g}s", catalog.CALIBRATED, asked())
    fitted, base = catalog.calibration(constants), catalog.calibration()
    assert fitted is not None and base is not None
    level = dict(zip(fitted.scopes.entries, fitted.shifts, strict=True))["level", OWN]
    assert level == pytest.approx(WEIGHT * math.log(1.2), rel=1e-4)
    after = float(evaluate_in_numpy(estimate, *case(constants=constants)).step_time_s)
    assert after / before == pytest.approx(1.2**WEIGHT, rel=0.02)  # the fixed overhead of a step stays
    around = [interval(case()[0], "hopper", "nemo-2024", each) for each in (base, fitted)]
    assert around[0] is not None and around[1] is not None and around[1].time < around[0].time
    assert interval(case()[0], "blackwell", "nemo-2025", fitted) == interval(case()[0], "blackwell", "nemo-2025", base)


@pytest.mark.parametrize("name", ["tokens_per_s", "tokens_per_s_per_gpu", "mfu"])
def test_rates_mean_the_same_run_as_its_time(name):
    report = evaluate_in_numpy(estimate, *case())
    field = "tokens_per_s_per_chip" if name.endswith("gpu") else name
    of_time = Anchor.read(anchored(f"step={2 * float(report.step_time_s):.9g}s", catalog.CALIBRATED, asked()))
    of_rate = Anchor.read(anchored(f"{name}={0.5 * float(getattr(report, field)):.9g}", catalog.CALIBRATED, asked()))
    assert of_time is not None and of_rate is not None
    assert of_rate.measured_s == pytest.approx(of_time.measured_s, rel=1e-5)


@pytest.mark.parametrize("times", [0.2, 0.65, 1.0, 1.8, 5.0])
def test_the_interval_contains_the_run_itself(times):
    before = float(evaluate_in_numpy(estimate, *case()).step_time_s)
    constants = str(Anchor(catalog.CALIBRATED, times * before, before, "hopper nemo-2024", catalog.BENCHMARK))
    after = float(evaluate_in_numpy(estimate, *case(constants=constants)).step_time_s)
    around = interval(case()[0], "hopper", "nemo-2024", catalog.calibration(constants))
    assert (
        around is not None and abs(math.log(after / (times * before))) <= around.time + 0.04
    )  # the overhead of a step stays


def test_a_prediction_that_is_measured_changes_nothing():
    before = float(evaluate_in_numpy(estimate, *case()).step_time_s)
    constants = str(Anchor(catalog.CALIBRATED, before, before, "hopper nemo-2024", catalog.BENCHMARK))
    assert float(evaluate_in_numpy(estimate, *case(constants=constants)).step_time_s) == pytest.approx(
        before, rel=1e-12
    )


def test_the_text_of_an_anchor_is_read_back():
    anchor = Anchor("my runs.toml", 0.0281, 7200.0 / 1e5, "cdna rocm-primus-2025", catalog.PRODUCTION)
    again = Anchor.read(str(anchor))
    assert (
        again is not None
        and again[1:3] == pytest.approx(anchor[1:3])
        and again[:1] + again[3:] == anchor[:1] + anchor[3:]
    )
    assert "28.1 ms measured, 72 ms predicted before" in str(anchor) and "far off" in str(anchor)
    assert Anchor.read("calibrated") is None and Anchor.read(Path("mine.toml")) is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("step=0s", "must be a positive"), ("step=-4s", "must be a positive"), ("step=nan", "nan"),
        ("step=none", "must be a positive"), ("step=4GB", "is not a unit"), ("step=", "is not a number"),
        ("step=1e9s", "times the predicted"), ("step=2us", "above the chip"), ("mfu=1.9", "above the chip's peak"),
        ("mfu=42", "above the chip"), ("tokens_per_s=50%", "must be a positive"), ("speed=4", "is not a measured value"),
        ("tpot=30ms", "is not a measured value of training"), ("nothing.csv", "no such file"), ("/dev/zero", "not a regular file"),
        ("", "folder"),
    ],
)  # fmt: skip
def test_absurd_anchors_are_refused_in_a_line(value, words):
    with pytest.raises(UserError) as refused:
        anchored(value, catalog.CALIBRATED, asked())
    assert words in str(refused.value) and len(refused.value.lines) == 1 and "--anchor" in str(refused.value)


def test_a_factor_of_twenty_is_refused():
    before = float(evaluate_in_numpy(estimate, *case()).step_time_s)
    with pytest.raises(UserError, match="20 times the predicted"):
        anchored(f"step={20 * before:g}s", catalog.CALIBRATED, asked())


def test_two_anchors_and_constants_that_take_none():
    one = str(Anchor(catalog.CALIBRATED, 2.0, 1.9, "hopper nemo-2024", catalog.BENCHMARK))
    with pytest.raises(UserError, match="take no anchor"):
        anchored("step=2s", one, asked())
    with pytest.raises(UserError, match="take no anchor"):
        anchored("step=2s", catalog.SPEED_OF_LIGHT, asked())
    with pytest.raises(UserError, match="take no anchor"):
        catalog.calibration(one.replace("calibrated,", "speed-of-light,"))


def test_a_file_is_of_the_machine_in_question_and_states_its_plan(tmp_path):
    constants = anchored(LOG, catalog.CALIBRATED, asked(stack="torchtitan-2024"))
    anchor = Anchor.read(constants)
    assert anchor is not None and anchor.machine == "hopper torchtitan-2024" and anchor.operation == catalog.BENCHMARK
    assert anchor.measured_s == pytest.approx(8192.0 / 7065.0, rel=1e-3)
    with pytest.raises(UserError, match="chip h100-sxm, but the question is about h200"):
        anchored(LOG, catalog.CALIBRATED, asked(chip="h200", stack="torchtitan-2024"))
    path, head = (
        tmp_path / "run.csv",
        "model_name,gpu,num_gpus,seq_len,global_batch_sequences,measured_metric,measured_value",
    )
    path.write_text(f"{head},tp,pp\nllama3-8b,h100-sxm,8,8192,64,iter_time_s,9,,\n")
    with pytest.raises(UserError, match="the plan of the run is unknown without tp, pp, micro_batch"):
        anchored(path, catalog.CALIBRATED, asked())
    path.write_text(
        f"{head},tp,pp,micro_batch\n"
        + "".join(f"llama3-8b,h100-sxm,8,8192,{n},iter_time_s,{x},1,1,1\n" for n, x in ((64, 9), (128, 20), (72, 10)))
    )
    found = Anchor.read(anchored(path, catalog.CALIBRATED, asked()))
    assert found is not None and found.measured_s == pytest.approx(1800.0 ** (1 / 3), rel=1e-4) and found.runs == 3
    prior_runs = calibration_table("own_runs")["anchored"]["prior_runs"]
    assert found.weight == pytest.approx(3.0 / (3.0 + prior_runs)) and "anchored on your 3 runs: " in str(found)
    path.write_text(
        f"{head},tp,pp,micro_batch\n"
        + "".join(f"llama3-8b,h100-sxm,8,8192,64,iter_time_s,{x},1,1,1\n" for x in (9, 10, 11))
    )
    repeated = Anchor.read(anchored(path, catalog.CALIBRATED, asked()))
    assert (
        repeated is not None and repeated.runs == 1 and repeated.measured_s == pytest.approx(990.0 ** (1 / 3), rel=1e-4)
    )
    path.write_text(
        f"{head},tp,pp,micro_batch,operation\n"
        + "".join(f"llama3-8b,h100-sxm,8,8192,64,iter_time_s,9,1,1,1,{each}\n" for each in ("production", "benchmark"))
    )
    with pytest.raises(UserError, match="rows of benchmark and of production"):
        anchored(path, catalog.CALIBRATED, asked())


def test_runs_beyond_those_learned_from_narrow_no_further():
    """Weights and widths are learned from up to three runs of a cluster."""
    of = lambda runs: Anchor(catalog.CALIBRATED, 1.2, 1.0, "hopper nemo-2024", catalog.BENCHMARK, runs)
    assert of(1).weight < of(2).weight < of(3).weight == of(30).weight < 1.0
    around = [interval(case()[0], "hopper", "nemo-2024", of(n).calibration()) for n in (1, 3, 30)]
    assert around[0].time >= around[1].time == around[2].time
    assert of(30).calibration().runs == catalog.calibration().runs + 30


def test_parts_of_a_plan_that_a_search_would_choose():
    assert asked().unknown == "" == asked(plan="tp=8", completed=True).unknown
    assert "add cp, virtual_stages, micro_batch, zero, recompute to plan" in asked(plan="tp=8,pp=2").unknown
    service = asked(run=catalog.service("mixtral-8x7b"), trains=False, plan=None, completed=True)
    assert "add tp, pp, batch, ep to plan" in service.unknown and "number of chips" in asked(chips=None).unknown


def test_estimate_says_what_it_is_anchored_on(capsys):
    flags = ["estimate", *RUN, "--plan", PLAN.replace("none", "full")]
    assert main([*flags, "--operation", "benchmark", "--json"]) == 0
    before = json.loads(capsys.readouterr().out)
    assert main([*flags, "--anchor", f"step={1.1 * before['step_time_s']:.6g}s", "--json"]) == 0
    after = json.loads(capsys.readouterr().out)
    assert after["step_time_s"] / before["step_time_s"] == pytest.approx(1.1**WEIGHT, rel=0.02)
    assert (
        after["constants"].startswith("calibrated, anchored on your run: ") and "predicted before" in after["constants"]
    )
    assert (
        after["high"]["step_time_s"] / after["low"]["step_time_s"]
        < before["high"]["step_time_s"] / before["low"]["step_time_s"]
    )


def test_plan_needs_the_plan_of_the_run_or_its_row(capsys):
    assert main(["plan", *RUN, "--anchor", "step=4s"]) == 2
    assert "add tp, pp, cp, virtual_stages, micro_batch, zero, recompute to plan" in capsys.readouterr().err
    assert main(["plan", *RUN, "--stack", "torchtitan-2024", "--anchor", str(LOG), "--json"]) == 0
    assert "anchored on your run" in json.loads(capsys.readouterr().out)["constants"]


def test_a_question_takes_an_anchor_and_travels_with_it():
    question = hwopt.objective("train_cost", workload="llama3.1-8b", anchor=str(LOG), stack="torchtitan-2024")
    sent = pickle.loads(pickle.dumps(question))
    assert sent.constants == question.constants and "anchored on your run" in sent.constants
    level = float(question.problem().template.cluster.stack.level)
    plain = hwopt.objective("train_cost", workload="llama3.1-8b", stack="torchtitan-2024").problem()
    anchor = Anchor.read(question.constants)
    assert anchor is not None
    expected = (anchor.measured_s / anchor.predicted_s) ** WEIGHT
    assert level / float(plain.template.cluster.stack.level) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["train_and_serve", "portfolio"])
def test_questions_about_several_machines_refuse(name):
    with pytest.raises(UserError, match="anchor"):
        hwopt.objective(name, anchor=str(LOG))


def test_a_question_never_ignores_its_anchor():
    for name in ("train_cost", "serve_cost", "train_and_serve"):
        with pytest.raises(UserError, match="state the question with"):
            registry.load(name)(anchor=str(LOG)).problem()


def test_a_question_needs_chips_and_the_whole_plan():
    with pytest.raises(UserError, match="number of chips"):
        hwopt.objective("train_cost", anchor="step=4s")
    with pytest.raises(UserError, match="add ep to plan"):
        hwopt.objective("train_cost", workload="mixtral-8x7b", anchor="step=4s", chips=64.0, plan=PLAN)


def test_a_service_is_scaled_by_its_own_anchor_alone(capsys):
    flags = ["estimate", *SERVICE, "--plan", "tp=1,batch=16"]
    assert main([*flags, "--json", "--operation", "benchmark"]) == 0
    before = json.loads(capsys.readouterr().out)
    token_s = before["time_per_output_token_full_batch_s"]
    assert main([*flags, "--anchor", f"tpot={1e3 * 1.2 * token_s:.6g}ms", "--json"]) == 0
    after = json.loads(capsys.readouterr().out)
    weight = 1.0 / (1.0 + calibration_table("own_runs")["anchored_service"]["prior_runs"])
    assert after["time_per_output_token_full_batch_s"] / token_s == pytest.approx(1.2**weight, rel=0.02)
    assert main([*flags, "--anchor", "step=20ms"]) == 2
    assert "is not a measured value of a service: known: tpot, ttft" in capsys.readouterr().err
    trained = Anchor(catalog.CALIBRATED, 2.0, 1.5, "hopper nemo-2024", catalog.BENCHMARK)
    engine = catalog.cluster("h100-sxm", 1, stack=catalog.serving_stack("h100-sxm"), constants=str(trained))
    assert engine.stack.pass_level is None and np.isfinite(engine.stack.level)
