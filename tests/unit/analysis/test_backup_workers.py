"""Steps that leave out the slowest replicas: order statistics by simulation, limits, what pays, `--backup-replicas`."""

import json

import equinox as eqx
import numpy as np
import pytest

from hwopt import catalog
from hwopt.analysis.backup_workers import backup, expected_order_sigmas, independent_replicas
from hwopt.cli import main
from hwopt.errors import UserError
from hwopt.model.estimate import estimate
from hwopt.model.numerics.maximum import expected_maximum_sigmas
from tests.in_numpy import once

RUN = catalog.training_run("llama3.1-8b", global_batch=1024)
CLUSTER = catalog.cluster("h100-sxm", 2048)
PLAN = catalog.plan(RUN, 2048, tp=2)
REPORT = once(estimate)(RUN, CLUSTER, PLAN)


@pytest.mark.parametrize(("replicas", "chips", "left_out"), [(16, 4, 0), (16, 4, 1), (64, 8, 3), (200, 1, 20)])
def test_order_statistics_are_those_of_a_simulation(replicas, chips, left_out):
    rng = np.random.default_rng(replicas + left_out)
    slowest = np.sort(rng.standard_normal((4000, replicas, chips)).max(axis=2), axis=1)[:, replicas - left_out - 1]
    error = slowest.std() / np.sqrt(len(slowest))
    assert abs(expected_order_sigmas(replicas * chips, replicas, left_out) - slowest.mean()) < 4.0 * error


def test_waiting_for_all_is_the_largest_of_all_chips():
    for chips in (8, 1200, 16384):
        exact = expected_order_sigmas(chips, chips // 8 or 1, 0)
        assert exact == pytest.approx(float(expected_maximum_sigmas(np.float64(chips))), rel=0.02)
        assert exact == pytest.approx(expected_order_sigmas(chips, 1, 0), rel=1e-9)
    assert expected_order_sigmas(3, 3, 1) == pytest.approx(0.0, abs=1e-6)  # the median


def wide(sigma: float):
    cluster = eqx.tree_at(lambda c: c.stack.jitter_sigma, CLUSTER, np.float64(sigma - 0.0215))
    return cluster, once(estimate)(RUN, cluster, PLAN)


def test_it_pays_from_the_spread_that_is_said():
    study = backup(RUN, CLUSTER, PLAN, REPORT, None)
    assert study.sigma == pytest.approx(0.005 + 0.0215) and study.all.step_time_s == pytest.approx(
        float(REPORT.step_time_s), rel=1e-12
    )
    for share, pays in ((0.98, False), (1.02, True)):
        cluster, report = wide(share * study.least_sigma)
        assert (backup(RUN, cluster, PLAN, report, 1).asked.faster > 0.0) == pays
    cluster, report = wide(4.0 * study.least_sigma)
    best = backup(RUN, cluster, PLAN, report, None).best
    near = [backup(RUN, cluster, PLAN, report, best.left_out + more).asked.faster for more in (-1, 1)]
    assert best.left_out > 1 and best.faster >= max(near) and best.faster > 0.0


def test_a_simulated_run():
    """Steps of replicas that differ, the slowest left out: useful samples a second as said."""
    cluster, report = wide(0.1)
    study = backup(RUN, cluster, PLAN, report, 40)
    parts, rng = report.breakdown, np.random.default_rng(3)
    work = float(report.step_time_s - parts.jitter_s - parts.production_s - parts.overhead_s)
    delays = np.sort(rng.standard_normal((400, 1024, 2)).max(axis=2), axis=1)
    fixed = 1.0 + float(CLUSTER.operation.stall_fraction)
    rate = lambda b: (1024 - b) / (work * (fixed + 0.1 * delays[:, 1023 - b]) + float(parts.overhead_s)).mean()
    assert study.asked.faster == pytest.approx(rate(40) / rate(0) - 1.0, abs=0.004)
    assert study.asked.run_time_s == pytest.approx(float(report.run_time_s) / (1.0 + study.asked.faster), rel=1e-12)


def test_replicas_of_experts_wait_for_each_other():
    run = catalog.training_run("mixtral-8x7b", global_batch=512)
    assert independent_replicas(catalog.plan(run, 256, tp=2, ep=8)) == 32  # of 128: expert tensor parallelism 1
    with pytest.raises(UserError, match="zero=3"):
        backup(RUN, CLUSTER, catalog.plan(RUN, 2048, tp=2, zero=3), REPORT, 1)
    with pytest.raises(UserError, match=r"name 0 to 1,023"):
        backup(RUN, CLUSTER, PLAN, REPORT, 1024)
    ramped = catalog.training_run("llama3.1-405b", batch_ramp="1024@0.25T,2048")
    with pytest.raises(UserError, match="ramp"):
        backup(ramped, CLUSTER, PLAN, REPORT, 1)
    with pytest.raises(UserError, match="one site"):
        backup(RUN, catalog.cluster("h100-sxm", 2048, sites=2), PLAN, REPORT, 1)


def test_the_flag(capsys):
    asked = ["estimate", "--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "2048", "--global-batch", "1024"]
    asked += ["--plan", "tp=2", "--operation", "production"]
    assert main([*asked, "--backup-replicas", "8"]) == 0
    out = capsys.readouterr().out
    assert "steps without the slowest replicas" in out and "without the slowest 8" in out and "all replicas" in out
    assert main([*asked, "--backup-replicas", "best", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["backup"]
    assert document["best"] == document["asked"] and document["all"]["left_out"] == 0 and document["sigma"] > 0.02
    for wrong, named in (("some", "not a number"), ("-1", "--backup-replicas"), ("1024", "name 0 to")):
        assert main([*asked, "--backup-replicas", wrong]) == 2
        assert named in capsys.readouterr().err
