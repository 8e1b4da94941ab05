"""Several sites: one of them as a cluster of its own, and the exchange between them."""

from __future__ import annotations

from types import MappingProxyType

import jax
import pytest

from hwopt import catalog
from hwopt.model.estimate import estimate
from tests import cases

TOTAL = 1536


def answer(sites: float = 1, lines: str = "continental", chips: int = TOTAL, without=MappingProxyType({}), **plan):
    run = catalog.training_run("gpt3-175b", global_batch=chips)
    cluster = cases.replace(
        catalog.cluster("h100-sxm", chips, sites=sites, lines=lines if sites > 1 else None), **without
    )
    with jax.enable_x64(True):
        return (
            run,
            cluster,
            estimate(run, cluster, catalog.plan(run, chips, sites=sites, tp=8, pp=4, virtual_stages=4, **plan)),
        )


def test_a_site_steps_like_a_cluster_of_its_size():
    """But for the exchange: a third of the chips, replicas and batch; the run's storage is one, so that both are without it."""
    _, _, alone = answer(chips=TOTAL // 3, without=cases.NO_SHELVES)
    _, cluster, three = answer(sites=3, local_steps=500, without=cases.NO_SHELVES)
    with jax.enable_x64(True):
        run = catalog.training_run("gpt3-175b", global_batch=TOTAL)
        apart = estimate(run, cases.replace(cluster, sites__bandwidth_bytes_per_s=1e30, sites__latency_s=0.0),
                         catalog.plan(run, TOTAL, sites=3, tp=8, pp=4, virtual_stages=4, local_steps=500))  # fmt: skip
    assert float(apart.step_time_s) == pytest.approx(
        float(alone.step_time_s), rel=1e-4
    )  # a trace of common jitter and of tails
    assert float(three.memory_per_chip_bytes) == pytest.approx(float(alone.memory_per_chip_bytes), rel=1e-12)
    assert float(three.peak_power_w) == pytest.approx(3.0 * float(alone.peak_power_w), rel=1e-12)
    assert float(three.site_power_w) == pytest.approx(float(alone.site_power_w), rel=1e-12)


def test_the_exchange_is_the_models_bytes_over_the_line():
    """`2 (S - 1)/S P e / B + 2 alpha`, every H steps; nothing hides it unless it is streamed."""
    _run, cluster, now = answer(sites=3)
    _, _, seldom = answer(sites=3, local_steps=100)
    sites, parameters = cluster.sites, float(now.parameters)
    line_s = 2.0 * 2 / 3 * parameters * 4.0 / (4e12 / 8 * float(sites.efficiency)) + 2.0 * float(sites.latency_s)
    assert float(now.breakdown.sites_comm_s) == pytest.approx(line_s, rel=1e-9)
    assert float(seldom.breakdown.sites_comm_s) == pytest.approx(line_s / 100, rel=1e-6)
    _, _, streamed = answer(sites=3, lines="continental-streamed", local_steps=100)
    assert float(streamed.breakdown.sites_comm_s) == 0.0
    assert float(streamed.hidden_s) > float(seldom.hidden_s)


def test_learning_apart_costs_loss_and_synchronous_steps_none():
    """`M^0.0116`: two sites 0.8 %, eight 2.4 %."""
    _, _, one = answer()
    _, _, synchronous = answer(sites=3)
    assert float(synchronous.loss) == pytest.approx(float(one.loss), rel=1e-12)
    for sites in (2, 3):
        _, _, apart = answer(sites=sites, local_steps=500)
        assert float(apart.loss) / float(one.loss) == pytest.approx(sites ** (0.0116 * (1 - 1 / 500)), rel=1e-9)


def test_further_sites_and_lines_cost_money():
    _, _, one = answer()
    _, cluster, three = answer(sites=3)
    assert float(three.capex_usd - one.capex_usd) == pytest.approx(2 * float(cluster.sites.fixed_usd), rel=1e-6)
    assert float(three.run_cost_usd / three.run_time_s) > float(one.run_cost_usd / one.run_time_s)


def test_a_site_without_a_replica_is_none():
    run = catalog.training_run("gpt3-175b", global_batch=TOTAL)
    cluster = catalog.cluster("h100-sxm", TOTAL, sites=3)
    with jax.enable_x64(True):
        report = estimate(run, cluster, catalog.plan(run, TOTAL, tp=8, pp=96, dp=2))
    assert float(report.margins.sites) < 0 and not bool(report.feasible)
