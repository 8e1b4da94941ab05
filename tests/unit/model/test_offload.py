"""Memory beyond HBM: what leaves the chip, what its link and its update cost, and what neither can hide."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.model.estimate import estimate
from tests import cases

SHARES = ("weights_offloaded", "optimizer_offloaded", "activations_offloaded")


def answer(workload: str = "gpt3-175b", chip: str = "h100-sxm", chips: int = 1536, around: dict | None = None, **plan):
    run = catalog.training_run(workload, global_batch=1536)
    cluster = catalog.cluster(chip, chips, **(around or {}))
    with jax.enable_x64(True):
        report = estimate(run, cluster, catalog.plan(run, chips, **plan))
    return run, cluster, jax.tree.map(float, report)


PLAN = dict(tp=8, pp=4, virtual_stages=4)


def test_what_leaves_the_chip_is_in_the_pool():
    _, _, here = answer(**PLAN)
    for name in SHARES:
        _run, _, away = answer(**PLAN, **{name: 1.0})
        part = {"weights_offloaded": ("weights_bytes", "gradients_bytes"), "optimizer_offloaded": ("optimizer_bytes",),
                "activations_offloaded": ("activations_bytes",)}[name]  # fmt: skip
        assert all(getattr(away.memory, each) == 0.0 for each in part), name
        assert away.pool_per_chip_bytes == pytest.approx(sum(getattr(here.memory, each) for each in part), rel=1e-9)
        assert away.memory_per_chip_bytes < here.memory_per_chip_bytes
        assert away.step_time_s >= here.step_time_s and away.hidden_s > here.hidden_s
    _, _, half = answer(**PLAN, activations_offloaded=0.5)
    assert half.memory.activations_bytes == pytest.approx(0.5 * here.memory.activations_bytes, rel=1e-9)


def test_weights_are_streamed_twice_a_micro_batch_and_gradients_once():
    """A slow link: the step is the link's, `2 m W / B`, and its parts say so."""
    run, cluster, report = answer(tp=8, pp=4, weights_offloaded=1.0, around={"pool": "host-pcie4"})
    slow = cases.replace(cluster, pool__bandwidth_bytes_per_s=1e6, stack__dp_overlap=1.0)
    with jax.enable_x64(True):
        bound = estimate(run, slow, catalog.plan(run, 1536, tp=8, pp=4, weights_offloaded=1.0))
    _, _, here = answer(tp=8, pp=4)
    micro_batches = float(run.global_batch_sequences) / 48
    link_s = 2.0 * micro_batches * here.memory.weights_bytes / 1e6
    assert float(bound.breakdown.offload_s) == pytest.approx(link_s, rel=0.01)
    assert report.breakdown.offload_s < 0.01 * link_s


def test_optimizers_update_where_their_states_are():
    _, _, here = answer(tp=8, pp=4, zero=0)
    run, cluster, away = answer(tp=8, pp=4, zero=0, optimizer_offloaded=1.0)
    assert away.breakdown.optimizer_s == 0.0 < here.breakdown.optimizer_s
    states = here.memory.optimizer_bytes
    passes = states / 12.0 * (float(cluster.stack.gradient_bytes) + 2 * 12.0 + 2.0)
    update_s = passes / float(cluster.pool.update_bandwidth_bytes_per_s)
    assert away.breakdown.offload_s >= update_s * (1 - 1e-9)
    assert float(run.master_bytes + run.moment_bytes) == 12.0


def test_a_pool_that_is_too_small_does_not_fit():
    _, _, report = answer(**PLAN, zero=0, optimizer_offloaded=1.0, around={"pool": "none"})
    assert report.margins.pool < 0 and not report.feasible
    _, _, report = answer(**PLAN)
    assert report.margins.pool >= 0


def test_a_store_that_holds_the_weights_lets_one_wafer_train_what_it_cannot_hold():
    """SRAM of 44 GB, weights of 350 GB: streamed, one replica a wafer."""
    around = {"cooling": "direct-liquid"}
    plan = dict(zero=3, recompute="full", weights_offloaded=1.0, optimizer_offloaded=1.0)
    _, _, resident = answer(chip="wse-3", chips=96, around=around, recompute="full")
    _, _, streamed = answer(chip="wse-3", chips=96, around=around, **plan)
    assert resident.margins.memory < 0 < streamed.margins.memory
    assert streamed.pool_per_chip_bytes * 96 > streamed.parameters * (2 + 4 + 8 - 1)  # weights, master, moments


def test_pools_cost_money_and_power_and_hosts_have_theirs_paid():
    _, _, host = answer(**PLAN)
    _, cluster, own = answer(**PLAN, around={"pool": "cxl-ddr5"})
    _, _, none = answer(**PLAN, around={"pool": "none"})
    assert own.capex_usd > host.capex_usd == none.capex_usd
    dram = 1536 * (1 + float(cluster.prices.spares_fraction)) * 512e9 * float(cluster.pool.usd_per_byte)
    assert own.capex_usd - host.capex_usd > dram
    assert own.peak_power_w - host.peak_power_w > 1536 * 512e9 * float(cluster.pool.power_w_per_byte)


# Training data.


def test_data_bind_where_their_pipeline_is_slower_than_the_step():
    """Pixels instead of token numbers: the step is that of the input pipeline."""
    run = catalog.training_run("gpt3-175b", global_batch=1536, input_bytes_per_token=768.0)
    cluster = catalog.cluster("h100-sxm", 1536, storage="object-store")
    plan = catalog.plan(run, 1536, **PLAN)
    with jax.enable_x64(True):
        fine = estimate(run, cluster, plan)
        slow = estimate(run, cases.replace(cluster, storage__input_bytes_per_s_per_chip=1e5), plan)
    assert float(fine.breakdown.input_s) == 0.0
    needed = 1536 * float(run.sequence_length) * 768.0 / (1536 * 1e5)
    beside = ("jitter_s", "production_s", "overhead_s")
    without = float(slow.step_time_s) - sum(float(getattr(slow.breakdown, name)) for name in beside)
    assert without == pytest.approx(needed, rel=1e-9)
    assert slow.bottleneck_name() == "input"
    assert np.isclose(float(slow.hidden_s), float(fine.hidden_s))
