"""Layers shared out among stages by brute force, and `hwopt fleet --layout`."""

import itertools
import json
import math

import numpy as np
import pytest

from hwopt import catalog
from hwopt.analysis.fleet.data_parallel import FleetGroup, fleet
from hwopt.analysis.fleet.pipeline import allocate_layers, pipeline_candidates
from hwopt.cli import main

FLEET = ["fleet", "--workload", "llama3.1-8b", "--groups", "h100-sxm:8,a100-80:8", "--global-batch", "32"]


@pytest.mark.parametrize("seed", range(8))
def test_layers_are_shared_out_as_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    counts, layers = rng.integers(1, 4, 3), 14
    seconds, extra, most = rng.uniform(1, 5, 3), rng.uniform(0, 6, 3), rng.integers(1, 7, 3)

    def slowest(each):
        return max(x + s * math.ceil(n / c) for n, c, s, x in zip(each, counts, seconds, extra, strict=True))

    rooms = [range(c, c * m + 1) for c, m in zip(counts, most, strict=True)]
    every = [each for each in itertools.product(*rooms) if sum(each) == layers]
    found = allocate_layers(layers, list(counts), list(seconds), list(extra), list(most))
    assert (found is None) == (not every)
    if found is not None:
        assert sum(found) == layers and slowest(found) == pytest.approx(min(map(slowest, every)), rel=1e-12)


def test_candidates_use_all_chips_alike():
    run = catalog.training_run("mixtral-8x7b", global_batch=96)
    found = list(pipeline_candidates(run, [catalog.cluster("h100-sxm", 48), catalog.cluster("a100-80", 32)]))
    assert found and {each.order for each in found} == {(0, 1), (1, 0)}
    for each in found:
        chips = [(48, 32)[i] for i in each.order]
        assert [t * p * each.dp for t, p in zip(each.tp, each.pp, strict=True)] == chips
        assert 96 % (each.dp * each.micro_batch) == 0 and sum(each.pp) <= 32
        assert all(8 % e == 0 for e in each.ep)


def said(capsys, *arguments):
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command(capsys, tmp_path):
    page, figure = tmp_path / "fleet.html", tmp_path / "fleet.png"
    code, out, _ = said(capsys, *FLEET, "--layout", "pipeline", "--report", str(page), "--figure", str(figure))
    assert code == 0 and "Stages of the pipeline, first to last" in out and "sends between groups" in out
    assert "With all groups the run takes" in out and "filling and draining the pipeline" in " ".join(out.split())
    assert "no interleaving" in " ".join(out.split()) and "Stages of the pipeline" in page.read_text(encoding="utf-8")
    code, out, _ = said(capsys, *FLEET, "--json")
    best = json.loads(out)
    code, out, _ = said(capsys, *FLEET, "--layout", "pipeline", "--json")
    staged = json.loads(out)
    assert code == 0 and staged["layout"] == "pipeline" and staged["other_layout"] is None
    assert sum(each["layers"] for each in staged["groups"]) == 32 and staged["groups"][0]["sequences"] is None
    by_chip = {each["chip"]: each["layers"] for each in staged["groups"]}
    assert by_chip["h100-sxm"] > by_chip["a100-80"]
    both = {best["layout"]: best["step_time_s"], best["other_layout"]["layout"]: best["other_layout"]["step_time_s"]}
    assert set(both) == {"data", "pipeline"} and best["step_time_s"] == min(both.values())
    assert both["pipeline"] == pytest.approx(staged["step_time_s"], rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["--workload", "resnet-50", "--groups", "h100-sxm:8,a100-80:8"], 2, "no pipeline"),
        (["--workload", "llama3.1-8b", "--groups", "h100-sxm:8"], 2, "name another"),
        (["--workload", "llama3.1-8b", "--groups", "h100-sxm:8,a100-80:8", "--lines", "continental"], 2, "one site"),
        (["--workload", "llama3.1-8b", "--groups", "h100-sxm:8,a100-80:280", "--global-batch", "4"], 2, "no pipeline over"),
        (["--workload", "llama3.1-405b", "--groups", "h100-sxm:8,a100-80:8"], 1, "more memory than a chip has"),
    ],
)  # fmt: skip
def test_what_is_no_pipeline(capsys, arguments, code, named):
    got, out, err = said(capsys, "fleet", "--layout", "pipeline", *arguments)
    assert got == code and named in (err if code == 2 else out)


def test_a_layout_of_python():
    run = catalog.training_run("llama3.1-8b", global_batch=64)
    groups = [FleetGroup(chip, catalog.cluster(chip, 16)) for chip in ("h100-sxm", "a100-80")]
    study = fleet(run, groups, layout="pipeline")
    assert study.whole.layout == "pipeline" and sum(study.whole.shares) == 32 and study.other is None
    assert {each.name for each in study.worths} == {"h100-sxm", "a100-80"}
