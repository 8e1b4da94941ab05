"""The command line as scripts see it: JSON contracts, exit codes, one line for bad input."""

import argparse
import io
import json
import math
import subprocess
import sys
import time

import pytest

from hwopt.cli import main
from hwopt.cli.output import heartbeat
from hwopt.progress import counted
from tests.command_line import run
from tests.plans import plans_once  # noqa: F401

pytestmark = pytest.mark.usefixtures("plans_once")

ESTIMATE = ["estimate", "--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "64", "--global-batch", "128"]


def run_json(capsys, *arguments):
    code, out, err = run(capsys, *arguments, "--json")
    return code, json.loads(out), err


def assert_one_line(err):
    assert err.startswith("hwopt: ")
    assert err.count("\n") == 1, err
    assert "Traceback" not in err


def test_estimate_json_has_the_contract(capsys):
    code, document, err = run_json(capsys, *ESTIMATE, "--plan", "tp=2,pp=1,dp=32")
    assert code == 0 and err == ""
    wanted = [
        "step_time_s",
        "tokens_per_s",
        "mfu",
        "hfu",
        "model_flops_per_chip_per_s",
        "memory_per_chip_bytes",
        "memory_capacity_bytes",
        "feasible",
        "violations",
        "power_w",
        "energy_per_token_j",
        "capex_usd",
        "cost_per_token_usd",
        "breakdown",
        "bottleneck",
        "low",
        "high",
    ]
    assert set(wanted) <= set(document)
    parts = [
        "compute_s",
        "memory_bound_s",
        "tp_comm_s",
        "pp_bubble_s",
        "pp_comm_s",
        "dp_comm_s",
        "ep_comm_s",
        "cp_comm_s",
        "jitter_s",
    ]
    assert set(parts) <= set(document["breakdown"])
    assert math.isclose(sum(document["breakdown"].values()), document["step_time_s"], rel_tol=1e-12)
    assert document["feasible"] is True and document["violations"] == {}
    assert 0.1 < document["mfu"] <= document["hfu"] < 1
    assert document["breakdown"][document["bottleneck"] + "_s"] == max(document["breakdown"].values())


def test_a_plan_that_does_not_fit_gets_no_numbers(capsys):
    arguments = [
        "estimate",
        "--workload",
        "llama3.1-405b",
        "--chip",
        "h100-sxm",
        "--chips",
        "64",
        "--plan",
        "tp=8,pp=1,dp=8",
    ]
    code, document, _ = run_json(capsys, *arguments)
    assert code == 1
    assert document["feasible"] is False
    assert document["step_time_s"] is None and document["mfu"] is None and document["cost_per_token_usd"] is None
    over = document["memory_per_chip_bytes"] / document["memory_capacity_bytes"] - 1
    assert math.isclose(document["violations"]["memory"], over, rel_tol=1e-9)
    code, out, _ = run(capsys, *arguments)
    assert code == 1 and "does not fit" in out and "more memory" in out


def test_estimate_without_a_plan_finds_one_at_least_as_fast(capsys):
    _, given, _ = run_json(capsys, *ESTIMATE, "--plan", "tp=2,pp=1,dp=32")
    code, found, _ = run_json(capsys, *ESTIMATE)
    assert code == 0
    assert found["step_time_s"] <= given["step_time_s"]


def test_estimate_screen_says_the_same(capsys):
    _, document, _ = run_json(capsys, *ESTIMATE, "--plan", "tp=2,pp=1,dp=32")
    code, out, _ = run(capsys, *ESTIMATE, "--plan", "tp=2,pp=1,dp=32")
    assert code == 0
    assert f"MFU {100 * document['mfu']:.1f} %" in out
    assert "tp=2, pp=1, dp=32" in out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["estimat"], "'estimate'"),
        ([*ESTIMATE, "--plan", "tp=3,pp=1"], "tp"),
        ([*ESTIMATE, "--plan", "tp=5"], "heads"),
        ([*ESTIMATE, "--plan", "tp=2,pp=2,dp=32"], "64 chips"),
        ([*ESTIMATE, "--plan", "tp=2,qq=4"], "qq"),
        ([*ESTIMATE, "--plan", "tp"], "name=value"),
        ([*ESTIMATE, "--plan", "tp=2,tp=2"], "twice"),
        ([*ESTIMATE, "--plan", "tp=-1"], "tp=-1"),
        ([*ESTIMATE, "--plan", "tp=nan"], "tp"),
        ([*ESTIMATE, "--plan", "tp=1.5"], "an integer"),
        ([*ESTIMATE, "--plan", "tp=1,ep=4"], "dense"),
        ([*ESTIMATE, "--plan", "tp=1,recompute=ful"], "full"),
        ([*ESTIMATE, "--plan", "tp=1,zero=7"], "zero"),
        ([*ESTIMATE, "--plan", "pp=64,vpp=2,dp=1"], "layers"),
        ([*ESTIMATE, "--plan", "mbs=3"], "batch"),
        ([*ESTIMATE, "--seq-len", "-5"], "--seq-len"),
        ([*ESTIMATE, "--tokens", "nan"], "--tokens"),
        ([*ESTIMATE, "--precision", "fp7"], "fp7"),
        ([*ESTIMATE, "--stack", "nemo-2042"], "nemo-2024"),
        ([*ESTIMATE, "--site", "mars"], "mars"),
        ([*ESTIMATE, "--mode", "decode"], "decode"),
        ([*ESTIMATE, "--colour", "red"], "--colour"),
        (["estimate", "--workload", "llama3.1-8b", "--chip", "h100-sxn", "--chips", "8"], "h100-sxm"),
        (["estimate", "--workload", "lama3.1-8b", "--chip", "h100-sxm", "--chips", "8"], "llama3.1-8b"),
        (["estimate", "--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "0"], "--chips"),
        (["estimate", "--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "inf"], "--chips"),
        (["estimate", "--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "7.5"], "--chips"),
        (["estimate", "--workload", "no/such/config.json", "--chip", "h100-sxm", "--chips", "8"], "config.json"),
        (["estimate", "--chip", "h100-sxm", "--chips", "8"], "--workload"),
        (["optimize", "train_cots"], "train_cost"),
        (["optimize", "train_cost", "--power-budgt-w", "1e6"], "--power-budget-w"),
        (["optimize", "--power-budget-w", "-3"], "--power-budget-w"),
        (["optimize", "--power-budget-w", "lots"], "--power-budget-w"),
        (["optimize", "--power-budget-w"], "--power-budget-w"),
        (["optimize", "--time-budget-s", "nan"], "--time-budget-s"),
        (["optimize", "--chip", "h1000"], "h100"),
        (["catalog", "chip"], "chips"),
        (["catalog", "chips", "a1000"], "a100"),
        (["validate", "no_such_file.csv"], "no_such_file.csv"),
        (["validate"], "file"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(capsys, arguments, named):
    code, out, err = run(capsys, *arguments)
    assert code == 2, (out, err)
    assert out == ""
    assert_one_line(err)
    assert named in err


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"model_type": "llama"}', '{"hidden_size": "many"}', "\x00\x01"]
)
def test_malformed_config_is_one_line(capsys, tmp_path, content):
    path = tmp_path / "config.json"
    path.write_text(content)
    code, _, err = run(capsys, "estimate", "--workload", str(path), "--chip", "h100-sxm", "--chips", "8")
    assert code == 2
    assert_one_line(err)
    assert "config.json" in err


def test_hugging_face_config_equals_the_catalogue(capsys, tmp_path):
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    sizes = ["--seq-len", "8192", "--tokens", "1e12", "--plan", "tp=2"]
    _, named, _ = run_json(capsys, *ESTIMATE, *sizes)
    own = [str(path) if word == "llama3.1-8b" else word for word in ESTIMATE]
    _, read, _ = run_json(capsys, *own, *sizes)
    assert read["parameters"] == named["parameters"]
    assert math.isclose(read["step_time_s"], named["step_time_s"], rel_tol=1e-12)


def test_catalog_shows_sources(capsys):
    code, out, _ = run(capsys, "catalog", "chips", "h100-sxm")
    assert code == 0
    assert "TB/s" in out and "datasheet" in out and "NVIDIA" in out
    code, document, _ = run_json(capsys, "catalog", "chips", "h100-sxm")
    for quantity in document["quantities"].values():
        assert quantity["unit"] and quantity["kind"] and quantity["source"]
    code, document, _ = run_json(capsys, "catalog")
    assert {"chips", "links", "workloads", "stacks", "cooling", "sites"} <= set(document["kinds"])


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("optimize", "estimate", "validate", "catalog"))


def test_broken_pipe_is_quiet():
    script = f"{sys.executable} -m hwopt.cli catalog chips | head -1"
    done = subprocess.run(script, shell=True, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr


class _Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("json_asked", [False, True])
def test_a_terminal_shows_the_stage_of_long_work_and_nothing_with_json(json_asked, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := _Terminal())
    options = argparse.Namespace(json=json_asked, command="scale", began=time.monotonic() - 5.0)
    with heartbeat(options):
        for _ in counted(["a", "b"], "size"):
            time.sleep(0.75)
    shown = terminal.getvalue()
    assert shown == "" if json_asked else "scale: size 2 of 2, 6 s\x1b[K" in shown and shown.endswith("\r\x1b[K")


def test_work_of_less_than_three_seconds_shows_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := _Terminal())
    with heartbeat(argparse.Namespace(json=False, command="scale", began=time.monotonic())):
        time.sleep(0.01)
    assert terminal.getvalue() == "\r\x1b[K"
