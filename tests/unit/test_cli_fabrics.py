"""Fabrics, pools, sites and storage on the command line: each moves the answer, and wrong words are one line."""

from __future__ import annotations

import json

import pytest

from hwopt.cli.app import main

_PLAN = "tp=8,pp=4,vpp=4"
_ASKED = f"estimate --workload gpt3-175b --chip h100-sxm --chips 1536 --global-batch 1536 --plan {_PLAN} --json"
ESTIMATE = _ASKED.split()


def answer(capsys, *words: str) -> dict:
    assert main([*ESTIMATE, *words]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "words",
    [
        ["--fabric", "dragonfly-400"],
        ["--pool", "cxl-ddr5"],
        ["--sites", "3"],
        ["--sites", "2", "--lines", "metro"],
        ["--storage", "object-store"],
        ["--latency-tail-s", "1e-4"],
        ["--bandwidth-spread", "0.3"],
    ],
)
def test_every_flag_moves_the_answer(words, capsys):
    plain, changed = answer(capsys), answer(capsys, *words)
    assert changed["cost_per_token_usd"] != plain["cost_per_token_usd"]


def test_a_torus_takes_more_nics_than_a_chip_has_lanes_for(capsys):
    """Six links of 50 GB/s behind PCIe 5 x16."""
    assert main([*ESTIMATE, "--fabric", "torus-3d-400"]) == 1
    assert json.loads(capsys.readouterr().out)["violations"].keys() == {"nic"}


def test_a_plan_says_what_it_offloads(capsys):
    arguments = [word.replace("vpp=4", "vpp=4,optimizer_offloaded=1,local_steps=10") for word in ESTIMATE]
    arguments += ["--sites", "3"]
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["plan"]["optimizer_offloaded"] == 1 and document["pool_per_chip_bytes"] > 0
    assert main([word for word in arguments if word != "--json"]) == 0
    screen = capsys.readouterr().out
    assert "optimizer_offloaded=1" in screen and "local_steps=10" in screen and "memory pool" in screen


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fabric", "fat-tree"], "ndr-fat-tree"),
        (["--pool", "ddr"], "pool"),
        (["--sites", "2", "--lines", "metr"], "metro"),
        (["--lines", "metro"], "sites"),
        (["--sites", "96", "--plan", "tp=8,pp=4"], "replicas"),
        (["--sites", "1e9"], "sites"),
        (["--plan", "tp=8,pp=4,local_steps=10"], "local_steps"),
        (["--fabric", "ndr-fat-tree", "--bandwidth-spread", "2"], "bandwidth_spread"),
        (["--storage", "flash"], "shared-flash"),
        (["--sites", "0"], "--sites"),
        (["--sites", "2.5"], "--sites"),
        (["--bandwidth-spread", "-1"], "--bandwidth-spread"),
        (["--latency-tail-s", "soon"], "--latency-tail-s"),
        (["--plan", "tp=8,pp=4,weights_offloaded=2"], "weights_offloaded"),
        (["--plan", "tp=8,pp=4,local_steps=0"], "local_steps"),
    ],
)
def test_wrong_words_are_one_line_that_names_them(words, said, capsys):
    asked = [word for word in ESTIMATE if "--plan" not in words or word not in ("--plan", _PLAN)]
    assert main([*asked, *words]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error and "\n" not in error


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--offload", "everything"], "offload"), (["--sites", "1.5"], "sites"), (["--fabric", "x"], "fabric")],
)
def test_questions_refuse_wrong_words_too(words, said, capsys):
    assert main(["sources", "train_cost", *words]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error and "\n" not in error


def test_a_search_for_plans_holds_what_it_is_told(capsys):
    words = "plan --workload gpt3-175b --chip h100-sxm --stack nemo-2025 --chips 48 --global-batch 48 --sites 3 --top 1 --json"
    asked = words.split()
    assert main([*asked, "--hold", "optimizer_offloaded=1,local_steps=500"]) in (0, 1)
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert plan["optimizer_offloaded"] == 1 and plan["local_steps"] == 500 and plan["dp"] % 3 == 0
    for wrong in ("optimizer_offloaded=2", "local_steps=0", "local_steps=1.5"):
        assert main([*asked, "--hold", wrong]) == 2
        assert wrong.split("=")[0] in capsys.readouterr().err


def test_domains_side_by_side_and_nothing_to_draw(capsys, tmp_path):
    figure = tmp_path / "fabrics.png"
    asked = [
        "fabrics",
        "--workload",
        "llama3.1-8b",
        "--chip",
        "h100-sxm",
        "--global-batch",
        "64",
        "--figure",
        str(figure),
    ]
    assert main([*asked, "--chips", "16", "--domains", "4,8", "--plan", "tp=4"]) == 0
    out = capsys.readouterr().out
    assert "domains of 4" in out and "domains of 8" in out and figure.exists()
    figure.unlink()
    large = [each if each != "llama3.1-8b" else "llama3.1-405b" for each in asked]
    assert main([*large, "--chips", "8", "--fabrics", "ndr-rail"]) == 1
    captured = capsys.readouterr()
    assert not figure.exists() and "more" in captured.out and captured.err == ""
