"""Memory beyond HBM: what leaves the chip, what its link and its update cost, and what neither can hide."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.errors import UserError
from hwopt.model.estimate import estimate
from hwopt.model.layers.parameters import chip_weights
from hwopt.model.training.schedule import gradient_sync_s
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


# Hardware that the chips of a host share.


def slowed(chips: int, **changes) -> tuple:
    """A run with offloaded activations and full overlap, on a pool with changed numbers."""
    run = catalog.training_run("llama3.1-8b", global_batch=512)
    cluster = cases.replace(catalog.cluster("h100-sxm", chips), stack__dp_overlap=1.0, **changes)
    plan = catalog.plan(run, chips, tp=1, zero=1, activations_offloaded=1.0)
    with jax.enable_x64(True):
        return run, cluster, plan, estimate(run, cluster, plan)


def test_both_directions_read_and_write_the_memory_of_the_host():
    """Activations go out and come back: `2 m A / D` of the memory, `m A / B` of the link."""
    _, _, _, by_memory = slowed(8, pool__update_bandwidth_bytes_per_s=1e8, pool__bandwidth_bytes_per_s=1e15)
    _, _, _, by_link = slowed(8, pool__update_bandwidth_bytes_per_s=1e15, pool__bandwidth_bytes_per_s=1e8)
    waited = [float(each.breakdown.offload_s + each.hidden_s) for each in (by_memory, by_link)]
    hidden = float(by_link.hidden_s - by_memory.hidden_s)
    assert waited[0] == pytest.approx(2.0 * waited[1], rel=1e-3) and abs(hidden) < 1e-3 * waited[1]
    moved = 64 * float(by_link.pool_per_chip_bytes)  # micro-batches of one sequence, all activations of one
    assert waited[1] == pytest.approx(moved / 1e8, rel=1e-3)


def test_a_nic_behind_the_link_takes_turns_with_the_pool():
    """The link is as long busy as both together; inside one domain no NIC is used."""
    slow = {"pool__bandwidth_bytes_per_s": 1e9, "pool__update_bandwidth_bytes_per_s": 1e15}
    for chips in (8, 64):
        run, cluster, plan, shared = slowed(chips, pool__shares_link=1.0, **slow)
        *_, own = slowed(chips, pool__shares_link=0.0, **slow)
        with jax.enable_x64(True):
            sync_s = gradient_sync_s(run, cluster, plan, chip_weights(run.model, plan))
            beyond = float(cluster.stack.level * sync_s) if chips > 8 else 0.0
        # A cluster at work has a little more latency between its racks.
        close = pytest.approx(beyond, rel=1e-3, abs=1e-9)
        assert float(shared.breakdown.offload_s) - float(own.breakdown.offload_s) == close
        assert float(own.hidden_s) - float(shared.hidden_s) == close


def test_a_plan_without_offloading_does_not_ask_who_shares_the_link():
    _, cluster, here = answer(**PLAN)
    run = catalog.training_run("gpt3-175b", global_batch=1536)
    with jax.enable_x64(True):
        own = estimate(run, cases.replace(cluster, pool__shares_link=0.0), catalog.plan(run, 1536, **PLAN))
    assert float(own.step_time_s) == here.step_time_s


def test_offloading_where_it_pays_no_longer():
    """8B on a server of 8 H100: 138 GB a chip would need 627 of the 480 GB/s that the host's DRAM sustains."""
    offloads = answer("llama3.1-8b", chips=8, tp=1, micro_batch=4, activations_offloaded=1.0)[2]
    plain = answer("llama3.1-8b", chips=8, tp=1, zero=2)[2]
    assert offloads.breakdown.offload_s > 0.3 * plain.step_time_s and plain.breakdown.offload_s == 0.0
    assert offloads.step_time_s > 1.3 * plain.step_time_s


def test_a_part_of_the_hosts_memory_is_not_for_plans():
    _run, cluster, report = answer(**PLAN, activations_offloaded=1.0)
    pool = cluster.pool
    usable = float(pool.capacity_bytes) * (1.0 - float(pool.reserved))
    assert report.margins.pool == pytest.approx(np.log(usable / report.pool_per_chip_bytes), rel=1e-9)
    assert usable == pytest.approx(0.8 * 256e9) and float(pool.usable_bytes) == pytest.approx(usable)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.66, 1.0])
def test_shares_of_the_state_are_offloaded(share: float):
    text = catalog.parse_plan(f"tp=8,pp=4,activations_offloaded={share}")
    _, _, part = answer(**text)
    _, _, all_ = answer(tp=8, pp=4, activations_offloaded=1.0)
    assert part.pool_per_chip_bytes == pytest.approx(share * all_.pool_per_chip_bytes, rel=1e-9)


@pytest.mark.parametrize("share", [-0.1, 1.01, "half"])
def test_a_share_is_between_nothing_and_all(share: object):
    run = catalog.training_run("gpt3-175b", global_batch=1536)
    with pytest.raises(UserError, match="activations_offloaded"):
        catalog.plan(run, 1536, activations_offloaded=share, **PLAN)


def test_nics_are_at_most_as_fast_as_the_link_to_them():
    """24 NICs of 50 GB/s a server of 8 behind x16 links of 64 GB/s."""
    _, _, sold = answer(**PLAN)
    _, _, wide = answer(**PLAN, around={"nics_per_server": 24})
    assert sold.margins.nic == pytest.approx(np.log(64 / 50), rel=1e-9) and sold.feasible
    assert wide.margins.nic == pytest.approx(np.log(64 / 150), rel=1e-9) and not wide.feasible
    _, _, unknown = answer(chip="tpu-v5p", **PLAN)
    assert unknown.margins.nic == np.inf


@pytest.mark.parametrize("chip", catalog.names("chips"))
def test_chips_are_sold_with_nics_that_their_links_carry(chip: str):
    if not catalog.record("chips", chip).text.get("unsupported"):
        entry, link = catalog.record("chips", chip), float(catalog.chip(chip).nic_link_bytes_per_s)
        assert link == 0.0 or entry.si("scale_out_bandwidth") <= link


@pytest.mark.parametrize("pool", ["host-pcie4", "host-pcie5", "grace-lpddr"])
def test_snapshots_fit_the_link_and_the_memory_of_the_host(pool: str):
    """The job waits for a snapshot, so that nothing else uses the link then."""
    here, rate = catalog.memory_pool(pool), float(catalog.reliability().snapshot_bandwidth_bytes_per_s)
    assert rate <= min(float(here.bandwidth_bytes_per_s), float(here.update_bandwidth_bytes_per_s))
