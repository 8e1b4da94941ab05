"""Chips of several kinds that train together: shares by brute force, what groups add, the command and its refusals."""

import itertools
import json
import math

import numpy as np
import pytest

from hwopt import catalog
from hwopt.analysis.fleet.data_parallel import FleetGroup, balanced_shares, fleet, rounded_shares
from hwopt.errors import UserError
from tests.command_line import run

FLEET = ["fleet", "--workload", "llama3.1-8b", "--groups", "h100-sxm:8,a100-80:8", "--global-batch", "64"]


@pytest.mark.parametrize("seed", range(4))
def test_shares_are_the_best_of_all(seed):
    """Three groups, a batch of 14, a third of the shares of each not possible."""
    rng, batch = np.random.default_rng(seed), 14
    times = [np.where(rng.uniform(size=batch + 1) < 0.33, np.inf, rng.uniform(1, 9, batch + 1)) for _ in range(3)]
    for each in times:
        each[0] = np.inf
    every = (shares for shares in itertools.product(range(1, batch), repeat=3) if sum(shares) == batch)
    longest = {shares: max(each[share] for each, share in zip(times, shares, strict=True)) for shares in every}
    found = balanced_shares(times)
    assert found is not None and longest[tuple(found)] == min(longest.values())
    assert balanced_shares([times[0], np.full(batch + 1, np.inf)]) is None


@pytest.mark.parametrize("batch", [96, 1000, 1023])
def test_rounded_shares_add_up(batch):
    shares = rounded_shares([0.7 * batch, 0.2 * batch, 0.1 * batch], batch)
    assert sum(shares) == batch and abs(shares[0] - 0.7 * batch) < 0.1 * batch


def test_the_command(capsys, tmp_path):
    code, out, err = run(capsys, *FLEET, "--json")
    document = json.loads(out)
    first, second = document["groups"]
    assert code == 0 and err == "" and document["chips"] == 16
    assert first["sequences"] + second["sequences"] == 64 and first["sequences"] > second["sequences"]
    assert min(first["waits"], second["waits"]) == pytest.approx(0.0, abs=1e-9)
    slowest = max(each["step_time_s"] for each in document["groups"])
    assert document["step_time_s"] == pytest.approx(slowest + document["exchange_s"], rel=1e-12)
    assert document["low"]["step_time_s"] < document["step_time_s"] < document["high"]["step_time_s"]
    for each, without in zip(document["worth"], ("a100-80", "h100-sxm"), strict=True):
        assert each["chip"] != without and each["without"]["chips"] == 8
        faster = document["tokens_per_s"] * document["goodput"]
        faster /= each["without"]["tokens_per_s"] * each["without"]["goodput"]
        assert each["faster"] == pytest.approx(faster - 1.0, rel=1e-9)
        saved = each["without"]["run_time_s"] - document["run_time_s"]
        standing = sum(group["standing_usd_per_s"] for group in document["groups"])
        if each["more_j"] > 0.0:  # at this price what stands costs as much longer as the electricity costs more
            assert each["most_usd_per_j"] * each["more_j"] == pytest.approx(saved * standing, rel=1e-9)
        dearer = document["run_cost_usd"] - each["without"]["run_cost_usd"]
        assert each["rented_usd_per_s"] * saved == pytest.approx(dearer, rel=1e-6, abs=1e-6)
    plan = "tp=1,dp=8,micro_batch=1"
    file = tmp_path / "mine.toml"
    file.write_text(
        'workload = "llama3.1-8b"\nglobal_batch = 48\n'
        f'[[groups]]\nchip = "h100-sxm"\nchips = 8\nplan = "{plan},recompute=full"\n'
        f'[[groups]]\nchip = "a100-80"\nchips = 8\nplan = "{plan},recompute=full,zero=3"\nstack = "megatron-2023"\n'
    )
    page, figure = tmp_path / "fleet.html", tmp_path / "fleet.png"
    both = ("--report", str(page), "--figure", str(figure))
    code, out, _ = run(capsys, "fleet", str(file), "--global-batch", "64", *both)
    text = page.read_text(encoding="utf-8")
    for words in ("8 h100-sxm", "8 a100-80", "worth running", "Sources behind these numbers", "zero=3"):
        assert words in text, words
    assert figure.stat().st_size > 10_000
    assert (
        code == 0
        and "64 sequences of 8,192 tokens a step" in out
        and out.count("recompute=full") == 2
        and "zero=3" in out
    )
    assert "Marginal value of each group" in out and "$/kWh" in out and "not ruled out" in " ".join(out.split())


def test_a_fleet_that_does_not_fit(capsys):
    code, out, _ = run(capsys, "fleet", "--workload", "llama3.1-405b", "--groups", "h100-sxm:4,a100-80:4")
    assert code == 1 and "h100-sxm needs" in out and "more memory than a chip has" in out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--groups", "h100-sxm"], "write CHIP:NUMBER"),
        (["--groups", "h100-sxm:8,h100-sxm:8"], "duplicate chip"),
        (["--groups", "h100-sxm:8.5"], "integer"),
        (["--groups", "h100-sxn:8,a100-80:8"], "h100-sxm"),
        ([], "--groups or a .toml file"),
        (["no.toml"], "cannot read no.toml"),
        (["no.toml", "--groups", "h100-sxm:8"], "keep one"),
        (["--groups", "h100-sxm:8,v100:8", "--precision", "fp8"], "does not compute in fp8"),
        (["--groups", "h100-sxm:8,a100-80:8", "--local-steps", "9"], "name their lines"),
        (["--groups", "h100-sxm:8,a100-80:8", "--lines", "continent"], "continental"),
    ],
)
def test_refusals(capsys, arguments, named):
    code, out, err = run(capsys, "fleet", "--workload", "llama3.1-8b", *arguments)
    assert code == 2 and out == "" and err.count("\n") == 1 and named in err, err


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "no [[groups]]"),
        ('[[groups]]\nchip = "h100-sxm"\n', "'chips' is needed"),
        ('[[groups]]\nchip = "h100-sxm"\nchip_s = 8\n', "'chips'"),
        ('globalbatch = 8\n[[groups]]\nchip = "h100-sxm"\nchips = 8\n', "global_batch"),
        ('[[groups]]\nchip = "h100-sxm"\nchips = 8\nplan = "tp=3"\n', "tp=3"),
    ],
)
def test_refusals_of_files(capsys, tmp_path, text, named):
    file = tmp_path / "fleet.toml"
    file.write_text(text)
    code, out, err = run(capsys, "fleet", str(file), "--workload", "llama3.1-8b")
    assert code == 2 and out == "" and err.count("\n") == 1 and named in err, err


def test_refusals_in_python():
    training, cluster = catalog.training_run("llama3.1-8b", global_batch=64), catalog.cluster("h100-sxm", 8)
    for groups, named in (
        ([], "name 1 to"),
        ([FleetGroup("a", cluster)] * 2, "once"),
        ([FleetGroup("a", catalog.cluster("h100-sxm", 8, sites=2))], "one site"),
    ):
        with pytest.raises(UserError, match=named):
            fleet(training, groups)
    in_fp8 = catalog.training_run("llama3.1-8b", global_batch=64, precision="fp8")
    with pytest.raises(UserError, match="old: the software does not document fp8 products"):
        fleet(in_fp8, [FleetGroup("new", cluster), FleetGroup("old", catalog.cluster("trainium2", 16))])
    one = fleet(training, [FleetGroup("a", cluster)])
    assert one.worths == () and one.whole.feasible and math.isclose(float(one.whole.report.exchange_s), 0.0)
