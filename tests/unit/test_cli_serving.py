"""`hwopt estimate` and `hwopt plan` of a service as scripts see them."""

import json
import math

import jax
import pytest

import hwopt
from hwopt import catalog
from hwopt.model.estimate import estimate
from hwopt.model.report import ServingReport, outputs
from hwopt.plan import Disaggregated
from hwopt.trace.cache import evaluate_in_numpy
from hwopt.units import pretty
from tests.command_line import run
from tests.plans import plans_once  # noqa: F401
from tests.rotation import one_in

pytestmark = pytest.mark.usefixtures("plans_once")

MACHINE = ["--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "8", "--precision", "fp8"]
ESTIMATE = ["estimate", *MACHINE]
SERVE = [*ESTIMATE, "--mode", "serve"]
PLAN = ["plan", *MACHINE, "--mode", "serve"]

METRICS = list(outputs(ServingReport))

CONTRACT = (
    "step_time_s", "tokens_per_s", "mfu", "hfu", "model_flops_per_chip_per_s", "memory_per_chip_bytes",
    "memory_capacity_bytes", "feasible", "violations", "power_w", "energy_per_token_j", "capex_usd", "cost_per_token_usd",
    "breakdown", "bottleneck", "low", "high", "plan",
)  # fmt: skip


def run_json(capsys, *arguments):
    code, out, err = run(capsys, *arguments, "--json")
    return code, json.loads(out), err


def test_estimate_json_has_the_contract_and_every_metric(capsys):
    code, document, err = run_json(capsys, *SERVE, "--plan", "tp=2,batch=64", "--input-tokens", "1000")
    assert code == 0 and err == ""
    assert set(CONTRACT) | set(METRICS) <= set(document)
    assert document["plan"] == {"tp": 2, "pp": 1, "dp": 4, "ep": 1, "expert_tp": 2, "batch": 64}
    assert document["feasible"] is True and document["violations"] == {}
    for name in ("tokens_per_s", "time_to_first_token_full_batch_s", "time_per_output_token_s", "cost_per_token_usd"):
        assert document["low"][name] < document[name] < document["high"][name]
    assert (document["mode"], document["input_tokens"], document["output_tokens"]) == ("serve", 1000, 512)
    assert math.isclose(sum(document["breakdown"].values()), document["step_time_s"], rel_tol=1e-12)
    assert math.isclose(sum(document["memory"].values()), document["memory_per_chip_bytes"], rel_tol=1e-12)
    assert document["users"] == 64 * 4 and document["kv_transfer_s"] is None and document["decode_chips"] == 8
    # The same as in Python, on the same machine.
    asked = catalog.service("llama3.1-8b", precision="fp8", input_tokens=1000)
    machine = catalog.cluster("h100-sxm", 8, stack=catalog.serving_stack("h100-sxm"))
    with jax.enable_x64(True):
        report = hwopt.estimate(asked, machine, catalog.serving_plan(asked, 8, tp=2, batch=64))
    for name in ("tokens_per_s", "time_to_first_token_s", "cost_per_token_usd"):
        assert math.isclose(document[name], float(getattr(report, name)), rel_tol=1e-12)


@pytest.mark.parametrize(
    ("mode", "missing"),
    [
        (
            "prefill",
            {
                "time_per_output_token_s",
                "time_per_output_token_full_batch_s",
                "request_time_s",
                "request_time_full_batch_s",
                "users",
                "users_per_w",
                "kv_transfer_s",
                "cost_per_output_token_usd",
            },
        ),
        (
            "decode",
            {
                "time_to_first_token_s",
                "time_to_first_token_full_batch_s",
                "request_time_s",
                "request_time_full_batch_s",
                "kv_transfer_s",
                "cost_per_input_token_usd",
            },
        ),
    ],
)
def test_what_a_mode_does_not_have_is_null(capsys, mode, missing):
    arguments = [*ESTIMATE, "--mode", mode, "--plan", "batch=2"]
    code, document, _ = run_json(capsys, *arguments)
    assert code == 0
    percentiles = {name for name in METRICS if "_p" in name and name.endswith(("50_s", "95_s", "99_s"))}
    assert len(percentiles) == 6  # none, of a machine that answers all it can
    assert {name for name in METRICS if document[name] is None} == missing | percentiles
    assert not missing & set(document["low"]) and "tokens_per_s" in document["high"]
    _, out, _ = run(capsys, *arguments)
    assert ("TTFT" in out) == (mode == "prefill") and ("TPOT" in out) == (mode == "decode")


def test_percentiles_of_the_busiest_hour(capsys):
    """Printed where it leaves the machine some room, and longer with bursts."""
    shown = {}
    for scv in ("1", "4"):
        arguments = [
            *ESTIMATE,
            "--mode",
            "serve",
            "--plan",
            "batch=32",
            "--arrival-scv",
            scv,
            "--capacity-in-use",
            "0.5",
        ]
        arguments += ["--peak-over-mean", "1.6", "--routing", "least-loaded"]
        code, document, _ = run_json(capsys, *arguments)
        assert code == 0
        assert math.isclose(document["busiest_load"], 0.8, rel_tol=1e-9)
        for name in ("time_to_first_token", "time_per_output_token"):
            assert document[f"{name}_s"] < document[f"{name}_p99_s"]
            assert 0.0 < document[f"{name}_p50_s"] < document[f"{name}_p95_s"] < document[f"{name}_p99_s"]
        shown[scv] = document["time_to_first_token_p99_s"]
        _, out, _ = run(capsys, *arguments)
        assert "80 % of capacity in the busiest hour, 1.6 times the mean hour" in " ".join(out.split())
        assert out.count("mean ") >= 4 and out.count("p99") == 2
    assert shown["4"] > shown["1"]
    _, out, _ = run(capsys, *ESTIMATE, "--mode", "serve", "--plan", "batch=32")
    assert "busiest hour" not in out and "p99" not in out and "every batch is full" in " ".join(out.split())


def test_flags_reach_the_service(capsys):
    flags = ["--output-tokens", "100", "--weights", "fp4", "--kv", "bf16", "--cached-fraction", "0.5", "--load", "0.6"]
    flags += ["--drafted-tokens", "3", "--acceptance", "0.75", "--draft-fraction", "0.1"]
    code, document, _ = run_json(capsys, *SERVE, "--plan", "batch=4", *flags)
    assert code == 0
    wanted = {"output_tokens": 100, "cached_fraction": 0.5, "load": 0.6, "drafted_tokens": 3, "acceptance": 0.75}
    assert wanted.items() <= document.items() and document["draft_fraction"] == 0.1
    _, plain, _ = run_json(capsys, *SERVE, "--plan", "batch=4", "--output-tokens", "100")
    assert document["memory"]["weights_bytes"] < 0.7 * plain["memory"]["weights_bytes"]
    assert math.isclose(document["memory"]["cache_bytes"], 2 * plain["memory"]["cache_bytes"], rel_tol=0.05)
    assert document["hfu"] > document["mfu"] and math.isclose(plain["hfu"], plain["mfu"])


def test_two_groups_of_chips(capsys):
    arguments = [*SERVE, "--plan", "tp=1,batch=32", "--prefill-plan", "tp=2", "--prefill-chips", "4"]
    code, document, _ = run_json(capsys, *arguments)
    assert code == 0
    assert document["plan"]["prefill"] == {"tp": 2, "pp": 1, "dp": 2, "ep": 1, "expert_tp": 2, "batch": 1, "chips": 4}
    assert document["plan"]["decode"] == {"tp": 1, "pp": 1, "dp": 4, "ep": 1, "expert_tp": 1, "batch": 32, "chips": 4}
    assert (document["prefill_chips"], document["decode_chips"]) == (4, 4) and document["kv_transfer_s"] > 0
    assert document["low"] is None and document["high"] is None  # no such machine was measured
    asked = catalog.service("llama3.1-8b", precision="fp8")
    machine = catalog.cluster("h100-sxm", 8, stack=catalog.serving_stack("h100-sxm"))
    first, second = catalog.serving_plan(asked, 4, tp=2), catalog.serving_plan(asked, 4, batch=32)
    report = evaluate_in_numpy(estimate, asked, machine, Disaggregated(prefill=first, decode=second))
    assert math.isclose(document["requests_per_s"], float(report.requests_per_s), rel_tol=1e-12)
    _, out, _ = run(capsys, *arguments)
    assert "prefill tp=2, pp=1, dp=2, batch=1 on 4 chips" in out and "KV-cache transfer" in out


def test_a_plan_that_does_not_fit_gets_no_numbers(capsys):
    big = ["estimate", "--workload", "llama3.1-405b", "--chip", "h100-sxm", "--chips", "8", "--mode", "decode"]
    code, document, _ = run_json(capsys, *big, "--plan", "tp=8")
    assert code == 1 and document["feasible"] is False
    assert document["tokens_per_s"] is None and document["time_per_output_token_s"] is None
    over = document["memory_per_chip_bytes"] / document["memory_capacity_bytes"] - 1
    assert math.isclose(document["violations"]["memory"], over, rel_tol=1e-9)
    code, out, _ = run(capsys, *big, "--plan", "tp=8")
    assert code == 1 and "does not fit" in out and "KV cache" in out


def test_screen_says_the_same(capsys):
    _, document, _ = run_json(capsys, *SERVE, "--plan", "tp=2,batch=64")
    code, out, err = run(capsys, *SERVE, "--plan", "tp=2,batch=64")
    assert code == 0 and err == ""
    assert f"{1e6 * document['cost_per_token_usd']:.4g} $ per million output tokens, input included" in out
    for tokens in ("input", "output"):
        assert f"{document[f'usd_per_million_{tokens}_tokens']:.4g} $ per million {tokens} tokens" in out
    assert "tp=2, pp=1, dp=4, batch=64" in out and "256 requests at a time" in out
    assert f"memory-bandwidth floor {pretty(document['floor_time_s'], 's')}" in out
    assert all(
        word in out
        for word in ("weights", "KV cache", "temporary buffers", "framework reserve", "per MW", "bottleneck:")
    )


def test_plan_json(capsys):
    code, document, err = run_json(capsys, *PLAN, "--top", "2")
    assert code == 0 and err == ""
    assert document["objective"]["name"] == "cost_per_token_usd"
    assert document["objective"]["value"] == document["cost_per_token_usd"] == document["certificate"]["lower_bound"]
    assert document["certificate"]["gap"] == 0.0 and document["limits"] == [] and document["fitting_chips"] is None
    assert len(document["alternatives"]) == 2
    degrees = [
        {k: v for k, v in each["plan"].items() if k != "batch"} for each in (document, *document["alternatives"])
    ]
    assert len({tuple(each.values()) for each in degrees}) == 3
    for each in document["alternatives"]:
        assert (
            each["excess"] >= 0
            and each["time_to_first_token_s"] > 0
            and each["bottleneck"] == next(iter(each["binding"]))
        )
    code, estimated, _ = run_json(capsys, *SERVE)
    assert (
        estimated.pop("bill")
        and estimated.pop("schema")
        and estimated.pop("command")
        and code == 0
        and estimated.items() <= document.items()
    )


def test_limits(capsys):
    _, cheapest, _ = run_json(capsys, *PLAN)
    limit = 0.3 * cheapest["time_per_output_token_s"]
    code, document, _ = run_json(capsys, *PLAN, "--tpot-limit-s", str(limit))
    assert code == 0 and document["time_per_output_token_s"] <= limit
    assert document["cost_per_token_usd"] > cheapest["cost_per_token_usd"] and document["fitting"] < cheapest["fitting"]
    assert document["limits"][0]["over"] is None
    hard = [*PLAN, "--tpot-limit-s", "1e-4", "--ttft-limit-s", "60"]
    code, document, _ = run_json(capsys, *hard)
    assert code == 1 and document["feasible"] is False and document["objective"]["value"] is None
    over = document["time_per_output_token_s"] / 1e-4 - 1
    assert list(document["violations"]) == ["time_per_output_token_full_batch_s"]
    assert math.isclose(document["violations"]["time_per_output_token_full_batch_s"], over, rel_tol=1e-9)
    assert [each["over"] is None for each in sorted(document["limits"], key=lambda each: each["name"])] == [False, True]
    code, out, _ = run(capsys, *hard)
    out = " ".join(out.split())
    assert (
        code == 1 and "satisfies the limits. The one below comes closest" in out and "times the limit of 100 us" in out
    )


@pytest.mark.search
def test_plan_is_exported(capsys):
    _, document, _ = run_json(capsys, *PLAN)
    code, exported, _ = run_json(capsys, *PLAN, "--export", "vllm")
    [group], plan = exported["groups"], document["plan"]
    assert code == 0 and exported["framework"] == "vllm" and exported["workload"] == "llama3.1-8b"
    assert group["arguments"]["--tensor-parallel-size"] == plan["tp"] and group["instances"] == plan["dp"]
    assert group["arguments"]["--max-num-seqs"] == plan["batch"] * plan["pp"]
    code, out, err = run(capsys, *PLAN, "--export", "vllm")
    assert code == 0 and err == "" and f"--tensor-parallel-size {plan['tp']}\n" in out


@one_in(2, 0)
def test_every_split_is_ranked(capsys):
    arguments = [*(each if each != "8" else "4" for each in PLAN), "--tpot-limit-s", "0.02", "--splits"]
    code, document, _ = run_json(capsys, *arguments)
    rows = document["splits"]
    assert code == 0 and rows[0]["plan"] == document["plan"]
    assert rows[0]["objective"] == document["objective"]["value"]
    assert [row["excess"] for row in rows] == sorted(row["excess"] for row in rows)
    assert {row["way"] for row in rows} == {"colocated", "disaggregated"}
    assert {row["prefill_chips"] for row in rows} == {0, 1, 2, 3}
    for row in rows:
        assert row["feasible"] and row["missed"] == {} and row["time_per_output_token_s"] <= 0.02
        prices = 2048 * row["usd_per_million_input_tokens"] + 512 * row["usd_per_million_output_tokens"]
        assert math.isclose(prices, 512e6 * row["cost_per_token_usd"], rel_tol=1e-9)
    code, out, _ = run(capsys, *arguments)
    assert code == 0 and document["answer"] in " ".join(out.split()) and "4 colocated" in out and "1 + 3" in out
    code, document, _ = run_json(capsys, *arguments[:-3], "--tpot-limit-s", "1e-6", "--splits")
    assert code == 1 and "no plan satisfies the limits" in document["answer"]
    assert not any(row["feasible"] for row in document["splits"])


def test_plan_of_two_groups(capsys):
    code, document, _ = run_json(capsys, *PLAN, "--disaggregate", "--tpot-limit-s", "0.02", "--ttft-limit-s", "1")
    assert code == 0
    groups = document["plan"]
    assert groups["prefill"]["chips"] + groups["decode"]["chips"] == 8
    assert document["time_per_output_token_s"] <= 0.02 and document["time_to_first_token_s"] <= 1
    assert "every split of 8 chips" in document["certificate"]["scope"]
    words = {
        name: ",".join(f"{key}={value}" for key, value in each.items() if key != "chips")
        for name, each in groups.items()
    }
    apart = ["--prefill-plan", words["prefill"], "--prefill-chips", str(groups["prefill"]["chips"])]
    code, again, _ = run_json(capsys, *SERVE, "--plan", words["decode"], *apart)
    assert code == 0 and math.isclose(again["cost_per_token_usd"], document["cost_per_token_usd"], rel_tol=1e-9)
    code, out, _ = run(capsys, *PLAN, "--disaggregate", "--tpot-limit-s", "0.02", "--ttft-limit-s", "1")
    assert code == 0 and "of the pairs evaluated fit, satisfy the limits" in out


def test_two_kinds_of_chips(capsys):
    code, document, _ = run_json(capsys, *SERVE, "--decode-chip", "h200")
    groups, plan = document["groups"], document["plan"]
    assert code == 0 and document["chip"] == "h100-sxm" and document["decode_chip"] == "h200"
    assert {name: each["group_chips"] for name, each in groups.items()} == {n: plan[n]["chips"] for n in plan}
    assert groups["prefill"]["capacity_bytes"] < groups["decode"]["capacity_bytes"]
    for name, total in (("mean_power_w", "power_w"), ("peak_power_w", "peak_power_w"), ("capex_usd", "capex_usd")):
        assert math.isclose(sum(each[name] for each in groups.values()), document[total], rel_tol=1e-9)
    assert math.isclose(
        sum(row["count"] * row["unit_price"] for row in document["bill"]), document["capex_usd"], rel_tol=1e-9
    )
    assert {row["part"].split(": ")[0] for row in document["bill"]} == {"prefill", "decode"}
    assert document["low"]["step_time_s"] < document["step_time_s"] < document["high"]["step_time_s"]
    words = {
        name: ",".join(f"{key}={value}" for key, value in each.items() if key != "chips") for name, each in plan.items()
    }
    apart = ["--prefill-plan", words["prefill"], "--prefill-chips", str(plan["prefill"]["chips"])]
    code, again, _ = run_json(capsys, *SERVE, "--decode-chip", "h200", "--plan", words["decode"], *apart)
    assert code == 0 and math.isclose(again["cost_per_token_usd"], document["cost_per_token_usd"], rel_tol=1e-14)
    code, out, _ = run(capsys, *SERVE, "--decode-chip", "tpu-v6e", "--precision", "bf16")
    assert code == 2  # MACHINE says fp8
    code, out, _ = run(capsys, *SERVE, "--decode-chip", "tpu-v7")
    assert (
        code == 0
        and "h100-sxm for prefill and tpu-v7 for decode" in out
        and "is an assumption (--stack)" in " ".join(out.split())
    )


@one_in(2, 1)
def test_pairs_of_chips_are_ranked(capsys):
    few = [each if each != "8" else "2" for each in PLAN]
    chips = ["--choices", "chip=h100-sxm|h20,decode_chip=h20", "--splits"]
    arguments = [each for pair in zip(few[1::2], few[2::2], strict=True) for each in pair if pair[0] != "--chip"]
    code, document, _ = run_json(capsys, "plan", *arguments, *chips)
    rows = document["splits"]
    assert code == 0 and [row["excess"] for row in rows] == sorted(row["excess"] for row in rows)
    ways = {(row["way"], row["chip"], row["decode_chip"]) for row in rows}
    together = {("colocated", name, name) for name in ("h100-sxm", "h20")}
    assert ways == together | {("disaggregated", name, "h20") for name in ("h100-sxm", "h20")}
    same = [row for row in rows if row["way"] == "disaggregated" and row["chip"] == "h20"]
    _, alone, _ = run_json(capsys, "plan", *arguments, "--chip", "h20", "--decode-chip", "h20")
    assert same[0]["objective"] == alone["objective"]["value"]
    _, exported, _ = run_json(
        capsys, "plan", *arguments, "--chip", "h100-sxm", "--decode-chip", "h20", "--export", "dynamo-vllm"
    )
    assert [group["role"] for group in exported["groups"]] == ["prefill", "decode"]
    code, out, _ = run(capsys, "plan", *arguments, *chips)
    assert code == 0 and "the best split of each pair of chips" in out and "2 h20 colocated" in out


def test_nothing_fits(capsys):
    arguments = ["plan", "--workload", "llama3.1-70b", "--chip", "h100-sxm", "--chips", "1", "--mode", "decode"]
    code, document, _ = run_json(capsys, *arguments)
    assert code == 1 and document["fitting"] == 0 and document["alternatives"] == []
    assert list(document["violations"]) == ["memory"]
    code, out, _ = run(capsys, *arguments)
    assert code == 1 and f"--chips {document['fitting_chips']}" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([*ESTIMATE, "--mode", "serv"], "'serve'"),
        ([*SERVE, "--global-batch", "64"], "--global-batch applies to training, not to mode serve"),
        ([*SERVE, "--seq-len", "64"], "--seq-len"),
        ([*SERVE, "--tokens", "64"], "--tokens"),
        ([*SERVE, "--sites", "2"], "--sites"),
        ([*ESTIMATE, "--input-tokens", "64"], "--input-tokens applies to a service, not to mode train"),
        ([*ESTIMATE, "--kv", "fp8"], "--kv"),
        ([*ESTIMATE, "--prefill-chips", "4"], "--prefill-chips"),
        (["plan", *MACHINE, "--ttft-limit-s", "1"], "--ttft-limit-s"),
        (["plan", *MACHINE, "--disaggregate"], "--disaggregate"),
        ([*PLAN, "--export", "megatron"], "--export megatron: its launch settings are for training"),
        (["plan", *MACHINE, "--export", "vllm"], "for this workload: megatron"),
        ([*PLAN, "--export", "vlm"], "'vllm'"),
        (["optimize", "serve_cost", "--export", "vllm", "--precision", "tf32"], "does not support GEMMs in tf32"),
        (
            [*(each if each != "h100-sxm" else "mi300x" for each in PLAN), "--export", "tensorrt-llm"],
            "does not run on mi300x",
        ),
        ([*PLAN, "--splits", "--disaggregate"], "leave out --disaggregate"),
        ([*PLAN, "--splits", "--choices", "site=us-average|singapore"], "chip and decode_chip alone"),
        ([*PLAN, "--splits", "--decode-chip", "h200", "--choices", "decode_chip=h20|h200"], "says it already"),
        ([*PLAN, "--decode-chip", "h2000"], "h200"),
        ([*PLAN, "--decode-chip", "v100"], "does not compute in fp8"),
        ([*SERVE, "--decode-chip", "h200", "--plan", "tp=2"], "--prefill-plan"),
        (["plan", *MACHINE, "--mode", "decode", "--decode-chip", "h200"], "--decode-chip applies to disaggregated"),
        (["optimize", "serve_cost", "--decode-chip", "h200"], "split = disaggregated"),
        (["optimize", "serve_cost", "--mode", "prefill"], "a flag of estimate and plan"),
        (["plan", *MACHINE, "--mode", "decode", "--splits"], "--splits applies"),
        (["optimize", "serve_cost", "--export", "megatron"], "launch settings are for training"),
        (["optimize", "train_cost", "--export", "sglang"], "for this workload: megatron"),
        (["optimize", "serve_cost", "--export", "vllm", "--alternatives"], "leave out --alternatives"),
        (["optimize", "serve_cost", "--export", "vllm", "--regime", "relaxed"], "--regime relaxed"),
        (["optimize", "serve_cost", "--export", "vllm", "--design", "h100-sxm"], "custom chip"),
        ([*PLAN, "--plan", "local_steps=2"], "local_steps"),
        ([*PLAN, "--objective", "run_cost_usd"], "not available for this workload"),
        ([*PLAN, "--objective", "cost_per_tokn_usd"], "cost_per_token_usd"),
        ([*PLAN, "--tpot-limit-s", "-1"], "--tpot-limit-s"),
        (["plan", *MACHINE, "--mode", "prefill", "--tpot-limit-s", "1"], "mode prefill"),
        (["plan", *MACHINE, "--mode", "decode", "--disaggregate"], "mode decode"),
        (["plan", *MACHINE, "--objective", "time_to_first_token_s"], "not available for this workload"),
        ([*SERVE, "--plan", "tp=3"], "heads"),
        ([*SERVE, "--plan", "tp=2,vpp=2"], "vpp"),
        ([*SERVE, "--plan", "tp=2,pp=2,dp=8"], "8 chips"),
        ([*SERVE, "--plan", "batch=1.5"], "an integer"),
        ([*SERVE, "--plan", "ep=2"], "dense"),
        ([*SERVE, "--prefill-plan", "tp=2"], "three flags"),
        ([*SERVE, "--plan", "tp=2", "--prefill-plan", "tp=2", "--prefill-chips", "8"], "less than --chips 8"),
        ([*ESTIMATE, "--mode", "decode", "--plan", "tp=2", "--prefill-plan", "tp=2", "--prefill-chips", "4"], "decode"),
        ([*SERVE, "--cached-fraction", "1"], "cached_fraction"),
        ([*SERVE, "--load", "1"], "load"),
        ([*SERVE, "--arrival-scv", "400"], "arrival_scv"),
        ([*SERVE, "--peak-over-mean", "0.5"], "peak_over_mean"),
        ([*SERVE, "--capacity-in-use", "0"], "capacity_in_use"),
        ([*SERVE, "--routing", "rand"], "random"),
        ([*SERVE, "--acceptance", "1.5"], "acceptance"),
        ([*SERVE, "--drafted-tokens", "1.5"], "drafted_tokens"),
        ([*SERVE, "--input-tokens", "many"], "--input-tokens"),
        ([*SERVE, "--weights", "fp7"], "fp7"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(capsys, arguments, named):
    code, out, err = run(capsys, *arguments)
    assert code == 2, (out, err)
    assert out == "" and err.startswith("hwopt: ") and err.count("\n") == 1, err
    assert named in err
