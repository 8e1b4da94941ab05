"""Known qualitative results of fabrics, with numbers."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.model.estimate import estimate
from hwopt.planning.plan_search import best_plan

EXPOSED = ("tp_comm_s", "cp_comm_s", "ep_comm_s", "pp_comm_s", "dp_comm_s", "sites_comm_s")


def opt_175b():
    """OPT-175B as published (arXiv 2205.01068): 992 A100, FSDP and tensor parallel 8, 2 M tokens a step, recomputation."""
    run = catalog.training_run("opt-175b", global_batch=992, sequence_length=2048, precision="fp16")
    cluster = catalog.cluster("a100-80", 992, reliability="opt-2021")
    plan = catalog.plan(run, 992, tp=8, zero=3, micro_batch=8, recompute="full")
    with jax.enable_x64(True):
        return estimate(run, cluster, plan)


def test_opt_175b_did_not_communicate_for_two_fifths_of_its_time():
    """147 TFLOP/s a chip were published. 40 % of exposed communication would leave 245 TFLOP/s to everything else, 79 % of
    the peak: large products reach 82 %, but attention, norms and the optimizer take their share beside them.
    """
    report = opt_175b()
    step, peak = float(report.step_time_s), 312e12
    exposed = sum(float(getattr(report.breakdown, name)) for name in EXPOSED) / step
    assert 0.02 < exposed < 0.25
    assert float(report.hfu) * peak > 0.8 * 147e12 and float(report.mfu) * peak < 1.25 * 147e12
    kernels = float(report.breakdown.compute_s + report.breakdown.memory_bound_s + report.breakdown.optimizer_s) / step
    assert float(report.hfu) * peak / kernels < 147e12 / (1.0 - 0.4)  # what kernels alone achieve


def test_a_torus_beats_a_fat_tree_of_equal_cost():
    """TPU v4: what its links cost buys switched links of a twentieth of the bandwidth; the step is longer."""
    run = catalog.training_run("gpt3-175b", global_batch=1536, sequence_length=2048, tokens=300e9)
    torus = catalog.cluster("tpu-v4", 1536)
    usd = float(torus.network.bandwidth_bytes_per_s[0] * torus.prices.network_usd_per_byte_per_s[0])
    tree = catalog.cluster("tpu-v4", 1536, fabric="ndr-fat-tree")
    rate = usd / float(tree.prices.network_usd_per_byte_per_s[1:].sum())
    network = tree.network
    sizes = np.array([4.0, network.size[1]])  # a tray of four keeps its links
    bandwidth = np.array([network.bandwidth_bytes_per_s[0], rate, rate])
    where = lambda c: (c.network.size, c.network.bandwidth_bytes_per_s, c.network.sharing, c.network.crossings)
    none = np.zeros(2)
    tree = eqx.tree_at(where, tree, (sizes, bandwidth, none, none))
    of_torus, of_tree = (best_plan(run, cluster, "step_time_s", 0).best.objective for cluster in (torus, tree))
    assert rate < 0.05 * float(torus.network.bandwidth_bytes_per_s[0])
    assert of_tree > 1.05 * of_torus


@pytest.mark.search
def test_the_best_domain_lies_inside_its_box():
    """Cables, racks and optics against latency and tensor parallelism: neither four chips nor eight racks of them."""
    import hwopt

    solution = hwopt.optimize(hwopt.objective("train_cost", free="domain"))
    domain = solution.design["scale_up_domain"]
    assert 1.5 * domain.lower < domain.value < domain.upper / 1.5


def test_racks_of_copper_hold_what_nvl72_holds():
    """5,184 cables in a rack of 72 fit; twice the bandwidth on the same cables would not."""
    run = catalog.training_run("llama3.1-405b")
    plan = catalog.plan(run, 1152, tp=8, pp=9)
    with jax.enable_x64(True):
        cluster = catalog.cluster("gb200", 1152)
        wide = eqx.tree_at(
            lambda c: c.network.bandwidth_bytes_per_s, cluster, 2.0 * cluster.network.bandwidth_bytes_per_s
        )
        here, wider = (estimate(run, each, plan).margins.rack_cables for each in (cluster, wide))
        rubin = estimate(run, catalog.cluster("rubin", 1152), plan).margins.rack_cables
    assert float(cluster.rack.chips) == 72.0
    assert 0.0 <= float(here) < 0.3 and float(wider) < 0.0
    assert float(rubin) >= 0.0  # at 400 Gb/s a lane the same cables carry twice as much


@pytest.mark.parametrize(("chips", "wins"), [(1536, "uneven"), (24576, "even")])
def test_predictable_links_beat_twice_as_fast_uneven_ones_at_scale(chips, wins):
    """The same run on 200 Gb/s without spread, and on 400 Gb/s of which a fifth to two fifths vary with congestion."""
    run = catalog.training_run("gpt3-175b", global_batch=12288, sequence_length=2048, tokens=300e9)
    plan = catalog.plan(run, chips, tp=8, pp=4, virtual_stages=24, micro_batch=1)
    each = {"even": dict(scale_out_bytes_per_s=25e9), "uneven": dict(bandwidth_spread=0.35, latency_tail_s=3e-5)}
    with jax.enable_x64(True):
        time = {
            name: float(
                estimate(run, catalog.cluster("h100-sxm", chips, operation="benchmark", **words), plan).step_time_s
            )
            for name, words in each.items()
        }
    assert min(time, key=lambda name: time[name]) == wins
