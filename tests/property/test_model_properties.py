"""What every version of the model keeps, over random inputs from one small chip to a million large ones."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwopt.model import machine
from hwopt.model.chip import thermal
from hwopt.model.estimate import estimate
from hwopt.model.facility import cost, power
from hwopt.model.network import collectives
from hwopt.model.training.schedule import Breakdown
from hwopt.quantity import quantities
from hwopt.solver.jit_options import quick_jit
from hwopt.stack import Capabilities
from hwopt.types import PRECISIONS
from tests.cases import (
    SAME_AT_ANY_SIZE,
    count,
    input_names,
    one_chip_cases,
    random_case,
    random_cases,
    replace,
    sampled,
    take,
    to_vectors,
)
from tests.in_numpy import in_numpy, once

POOL, N = 4_000, 800
"""Cases, and how many of them are looked at: others each turn."""
BLOCK = 1_000
"""Rows that stay in a processor's cache: larger ones take three times as long a row."""


def run_model(cases):
    """The report of stacked cases in float64, as NumPy arrays."""
    starts = range(0, count(cases), BLOCK)
    blocks = [in_numpy(estimate)(*take(cases, slice(i, i + BLOCK))) for i in starts]
    return jax.tree.map(lambda *rows: np.concatenate(rows), *blocks) if len(blocks) > 1 else blocks[0]


@pytest.fixture(scope="module")
def cases():
    return sampled(random_cases(np.random.default_rng(30), POOL), N)


@pytest.fixture(scope="module")
def report(cases):
    return run_model(cases)


def read(tree, path):
    """The leaf that `replace` knows as `chip__clock_ratio`."""
    for name in path.split("__"):
        tree = getattr(tree, name)
    return tree


def with_more(cases, add=0.0, **fields):
    """The report where fields of the cluster are multiplied, or added to."""
    run, cluster, plan = cases
    return run_model((run, replace(cluster, **{f: read(cluster, f) * v + add for f, v in fields.items()}), plan))


def used_chips(plan):
    return plan.tp * plan.pp * plan.dp * plan.cp


# Bounds --------------------------------------------------------------------------------------------------------------


def test_time_is_at_least_model_flops_over_peak(cases, report):
    """The fastest format's peak bounds every mix (attention and head stay 16 bit)."""
    _, cluster, plan = cases
    flops = report.model_flops_per_chip_per_s * cluster.chips * report.step_time_s
    peak = cluster.chip.peak_flops_per_s.max(1) * cluster.chip.clock_ratio
    assert (report.step_time_s * (1 + 1e-9) >= flops / (used_chips(plan) * peak)).all()


def test_time_is_at_least_the_weights_read_from_hbm(cases, report):
    """Each micro-batch reads a mean stage's dense GEMM weights once forward and once backward."""
    run, cluster, plan = cases
    w = run.model
    attention_output = w.heads * w.v_dim * w.hidden * w.layers  # in every layer, never shared or absent
    element = run.gemm_precision @ np.array([4, 4, 2, 1, 1, 0.5])
    micro_batches = run.global_batch_sequences / (plan.dp * plan.micro_batch)
    traffic = 2.0 * micro_batches * attention_output * element / (plan.tp * plan.pp)
    assert (report.step_time_s * (1 + 1e-9) >= traffic / cluster.chip.hbm_bandwidth_bytes_per_s).all()


@pytest.mark.parametrize("kind", ["ring_pass_s", "all_reduce_s"])
def test_collectives_take_at_least_their_bytes_over_the_fastest_link(cases, kind):
    _, cluster, _ = cases
    rng = np.random.default_rng(31)
    size, group, stride = np.exp(rng.uniform(0, 25, N)), np.exp(rng.uniform(0, 8, N)), np.exp(rng.uniform(0, 4, N))
    time = in_numpy(lambda *a: getattr(collectives, kind)(*a, 0.0))(cluster.network, size, group, stride)
    reduction = cluster.network.reduction_factor.min(1) if kind == "all_reduce_s" else 0.5
    bound = 2 * reduction * (group - 1) / group * size / cluster.network.bandwidth_bytes_per_s.max(1)
    assert (time * (1 + 1e-9) >= bound).all()


def test_a_group_of_one_costs_nothing(cases):
    _, cluster, _ = cases
    one = np.ones(N)
    for kind in ("ring_pass_s", "all_reduce_s", "all_to_all_s"):
        time = in_numpy(lambda *a: getattr(collectives, kind)(*a, 1e-5))(cluster.network, 1e9 * one, one, 3 * one)  # noqa: B023
        assert (time == 0).all()


# Monotonicity --------------------------------------------------------------------------------------------------------

FASTER = {
    "chip__peak_flops_per_s": 1.3,
    "chip__matmul_efficiency": 1.02,
    "chip__clock_ratio": 1.1,
    "chip__hbm_bandwidth_bytes_per_s": 1.3,
    "chip__hbm_efficiency": 1.05,
    "chip__sram_bytes": 2.0,
    "network__bandwidth_bytes_per_s": 1.5,
    "network__efficiency": 1.03,
    "network__latency_s": 0.5,
    "network__ramp": 0.5,
    "network__reduction_factor": 0.9,
    "network__sharing": 0.8,
    "network__crossings": 0.5,
    "network__tree_step": 0.5,
    "network__latency_tail_s": 0.5,
    "network__bandwidth_spread": 0.5,
    "pool__bandwidth_bytes_per_s": 1.5,
    "pool__update_bandwidth_bytes_per_s": 1.5,
    "storage__input_bytes_per_s_per_chip": 1.5,
    "sites__bandwidth_bytes_per_s": 1.5,
    "sites__latency_s": 0.5,
    "sites__bytes_per_parameter": 0.5,
    "sites__overlap": 1.2,
    "stack__logarithmic_passes": 1.2,
    "stack__attention_forward_efficiency": 1.1,
    "stack__attention_backward_efficiency": 1.1,
    "stack__gemm_half_size": 0.5,
    "stack__gemm_efficiency_factor": 1.1,
    "stack__expert_gemm_factor": 1.1,
    "stack__routing_passes": 0.5,
    "stack__elementwise_passes": 0.9,
    "stack__cast_passes": 0.5,
    "stack__weight_cast_share": 0.5,
    "stack__kernel_launch_s": 0.5,
    "stack__host_layer_s": 0.5,
    "stack__host_moe_layer_s": 0.5,
    "stack__host_collective_s": 0.5,
    "stack__dispatch_bytes_share": 0.5,
    "stack__level": 0.9,
    "stack__tp_overlap": 1.2,
    "stack__cp_overlap": 1.2,
    "stack__ep_overlap": 1.2,
    "stack__pp_overlap": 1.2,
    "stack__dp_overlap": 1.2,
    "stack__communication_slowdown": 0.5,
    "stack__collective_launch_s": 0.5,
    "stack__gather_efficiency": 1.2,
    "stack__gradient_bytes": 0.5,
    "stack__optimizer_passes": 0.9,
    "stack__step_overhead_s": 0.5,
    "stack__jitter_sigma": 0.5,
    "operation__stall_fraction": 0.5,
    "operation__straggler_sigma": 0.5,
}
"""Cluster fields and factors that may only shorten a step. Not here: the scale-up domain (a larger one trades bandwidth
for the latency of a longer ring) and the threshold voltage (it moves power, and with it the clock, alone). More memory
bandwidth is bought with energy a byte, else its power would take clock away from compute dies that throttle."""

_DOUBLE_HIDING = {
    "chip__peak_flops_per_s", "chip__clock_ratio", "chip__hbm_bandwidth_bytes_per_s", "chip__hbm_efficiency",
    "chip__sram_bytes", "chip__matmul_efficiency", "stack__attention_forward_efficiency",
    "stack__attention_backward_efficiency", "stack__gemm_half_size", "stack__gemm_efficiency_factor",
    "stack__elementwise_passes", "stack__cast_passes", "stack__kernel_launch_s", "stack__expert_gemm_factor",
    "stack__routing_passes", "stack__weight_cast_share", "stack__level",
}  # fmt: skip


@pytest.fixture(scope="module")
def once_hidden(cases):
    """The cases with no more than one communication hidden under the same work."""
    run, cluster, plan = cases
    return run, replace(cluster, stack__ep_overlap=0.0, stack__pp_overlap=0.0), plan


@pytest.fixture(scope="module")
def once_hidden_s(once_hidden):
    return run_model(once_hidden).step_time_s


@pytest.fixture(scope="module")
def every_overlap():
    return sampled(random_cases(np.random.default_rng(36), 20_000), 2 * BLOCK)


@pytest.fixture(scope="module")
def every_overlap_s(every_overlap):
    return run_model(every_overlap).step_time_s


@pytest.mark.parametrize("field", FASTER)
def test_a_better_machine_is_no_slower(once_hidden, once_hidden_s, field):
    assert_no_slower(once_hidden, once_hidden_s, field)


@pytest.mark.parametrize("field", sorted(_DOUBLE_HIDING))
def test_a_better_machine_is_no_slower_with_every_overlap(every_overlap, every_overlap_s, field):
    assert_no_slower(every_overlap, every_overlap_s, field)


def assert_no_slower(cases, step_time_s, field):
    run, cluster, plan = cases
    room, _, name = field.partition("__")
    value = getattr(getattr(cluster, room), name) * FASTER[field]
    is_share = name.endswith("overlap") or name == "logarithmic_passes"
    better = replace(cluster, **{field: np.minimum(value, 1.0) if is_share else value})
    if field == "chip__hbm_bandwidth_bytes_per_s":
        # Full load draws no more: else some chips no longer run, and where heat runs away it settles elsewhere.
        better = replace(better, chip__hbm_energy_j_per_byte=cluster.chip.hbm_energy_j_per_byte / FASTER[field])
    report = run_model((run, better, plan))
    ratio = report.step_time_s / step_time_s
    if field == "chip__clock_ratio":
        # Beyond what a chip keeps it only loses: HBM's part is counted at the clock asked for.
        fits = report.clock_margin >= 0.0
        assert fits.mean() > 0.3 and ratio.max() <= 1.1
        ratio = ratio[fits]
    assert ratio.max() <= 1 + 1e-12, (
        f"{(ratio > 1 + 1e-12).sum()} cases slower, case {ratio.argmax()} by {ratio.max() - 1:.1e}"
    )


@pytest.mark.parametrize("field", ["stack__recompute_stops_early", "stack__dispatch_deduplicated"])
def test_what_is_left_out_takes_no_time(cases, field):
    run, cluster, plan = cases
    without, with_it = (run_model((run, replace(cluster, **{field: x}), plan)).step_time_s for x in (0.0, 1.0))
    assert (with_it <= without * (1 + 1e-12)).all()
    assert (with_it < without).mean() > 0.05


def test_memory_capacity_moves_only_margin_and_money(cases, report):
    run, cluster, plan = cases
    larger = run_model((run, replace(cluster, chip__hbm_capacity_bytes=2 * cluster.chip.hbm_capacity_bytes), plan))
    assert (larger.step_time_s == report.step_time_s).all()
    assert (larger.memory_per_chip_bytes == report.memory_per_chip_bytes).all()
    assert (larger.power_w == report.power_w).all()
    np.testing.assert_allclose(larger.margins.memory - report.margins.memory, np.log(2), rtol=1e-9)
    assert ((larger.capex_usd > report.capex_usd) == (cluster.prices.owned == 1)).all()
    assert (larger.cost_per_token_usd > report.cost_per_token_usd).all()


def test_hotter_coolant_never_cools_a_chip_or_speeds_it_up(cases, report):
    hotter = with_more(cases, cooling__coolant_temperature_k=1.0, add=5.0)
    assert (hotter.junction_temperature_k >= report.junction_temperature_k - 1e-9).all()
    assert (hotter.clock_ratio <= report.clock_ratio * (1 + 1e-12)).all()
    assert (hotter.step_time_s >= report.step_time_s * (1 - 1e-12)).all()
    assert (hotter.mean_time_between_failures_s <= report.mean_time_between_failures_s * (1 + 1e-12)).all()
    assert (hotter.clock_ratio < report.clock_ratio).any()


def test_hotter_coolant_needs_no_more_chillers(cases, report):
    hotter = with_more(cases, cooling__coolant_temperature_k=1.0, add=5.0)
    assert (hotter.pue <= report.pue).all() and (hotter.pue < report.pue).any()


def test_a_larger_die_is_never_hotter_for_the_same_power(cases, report):
    """Nor slower. Where heat had limited the clock, it may run as hot, and faster."""
    larger = with_more(cases, chip__heat_area_m2=1.2)
    assert (larger.clock_ratio >= report.clock_ratio * (1 - 1e-12)).all()
    assert (larger.clock_ratio > report.clock_ratio).any()
    draws_more = larger.chip_power_w > report.chip_power_w * (1 + 1e-9)  # it draws more, so it may be hotter
    assert (larger.junction_temperature_k <= report.junction_temperature_k + 1e-9)[~draws_more].all()
    assert 0.1 < draws_more.mean() < 0.9


LEAKING = 1e-5
"""What a chip that cooling holds back may lose where its cap lets full load run hotter, and it leaks more."""


def test_a_higher_power_cap_is_never_slower(cases, report):
    higher = with_more(cases, chip__power_cap_w=1.05)
    hotter = np.where(higher.junction_temperature_k > report.junction_temperature_k, LEAKING, 1e-12)
    assert (higher.clock_ratio >= report.clock_ratio * (1 - hotter)).all()
    assert (higher.clock_ratio > report.clock_ratio).mean() > 0.1
    assert (higher.step_time_s <= report.step_time_s * (1 + hotter)).all()
    assert (higher.step_time_s > report.step_time_s * (1 + 1e-12)).sum() < 1e-3 * POOL


def test_more_chips_never_live_longer(cases, report):
    more = with_more(cases, chips=1.5)
    assert (more.mean_time_between_failures_s < report.mean_time_between_failures_s).all()


FAILURES = [
    f"reliability__{rate}"
    for rate in ("die_failures_per_m2_s", "stack_failures_per_s", "host_failures_per_s", "link_failures_per_s",
                 "switch_failures_per_s", "rack_failures_per_s", "loop_failures_per_s", "software_failures_per_chip_s")
]  # fmt: skip


def test_more_failures_never_leave_more_time(cases, report):
    more = with_more(cases, **dict.fromkeys(FAILURES, 2.0))
    assert (more.goodput <= report.goodput).all()
    assert (more.margins.failures < report.margins.failures).all()
    lost = more.margins.failures < 0
    assert lost.any()
    np.testing.assert_allclose(more.goodput[lost], 0.05, rtol=1e-12)


def test_a_landlord_only_costs(cases, report):
    """His margin raises what a token costs, by itself, and moves nothing else."""
    run, cluster, plan = cases
    dearer = run_model((run, replace(cluster, prices__margin=cluster.prices.margin + 0.3), plan))
    factor = (1.3 + cluster.prices.margin) / (1.0 + cluster.prices.margin)
    for name in vars(report).keys() - {"unit_of_work"}:  # a word
        by = factor if name in ("cost_per_token_usd", "run_cost_usd", "chip_usd_per_s", "spending") else 1.0
        for after, before in zip(*(jax.tree.leaves(getattr(r, name)) for r in (dearer, report)), strict=True):
            np.testing.assert_allclose(after, by * before, rtol=1e-12, err_msg=name)


def test_idle_time_is_paid_for(cases, report):
    assert (with_more(cases, prices__occupancy=0.5).run_cost_usd > report.run_cost_usd).all()
    assert (with_more(cases, prices__occupancy=0.5).run_carbon_kg > report.run_carbon_kg).all()


def test_more_tokens_and_more_parameters_learn_more(cases, report):
    run, cluster, plan = cases
    longer = run_model((replace(run, tokens=2 * run.tokens), cluster, plan))
    assert (longer.loss <= report.loss).all()  # a thousandth repetition teaches nothing
    assert (longer.loss < report.loss).mean() > 0.9
    assert (report.loss > run.law.irreducible_loss).all()


def test_larger_batches_never_learn_more(cases, report):
    run, cluster, plan = cases
    larger = run_model((replace(run, global_batch_sequences=2 * run.global_batch_sequences), cluster, plan))
    assert (larger.loss >= report.loss * (1 - 1e-12)).all()
    assert (larger.loss > report.loss).any()


# Scale laws ----------------------------------------------------------------------------------------------------------


def test_twice_the_tokens_is_twice_the_run(cases, report):
    run, cluster, plan = cases
    cluster = replace(cluster, storage__data_copies=0.0)
    once, longer = (run_model((replace(run, tokens=number * run.tokens), cluster, plan)) for number in (1, 2))
    for name in ("run_time_s", "run_cost_usd", "run_energy_j", "run_carbon_kg"):
        np.testing.assert_allclose(getattr(longer, name), 2 * getattr(once, name), rtol=1e-14)
    assert (longer.step_time_s == report.step_time_s).all()


def test_twice_the_batch_is_twice_the_micro_batches(cases, report):
    """Kernels and bubbles exactly; only once a step are gradients, optimizer, bubble and overhead."""
    run, cluster, plan = cases
    larger = run_model((replace(run, global_batch_sequences=2 * run.global_batch_sequences), cluster, plan))
    for name in ("compute_s", "memory_bound_s", "host_s", "tp_comm_s", "cp_comm_s", "ep_comm_s"):
        np.testing.assert_allclose(getattr(larger.breakdown, name), 2 * getattr(report.breakdown, name), rtol=1e-12)
    for name in ("optimizer_s", "overhead_s"):
        assert (getattr(larger.breakdown, name) == getattr(report.breakdown, name)).all()
    # A pipeline gathers and scatters what is sharded once a step: of a bubble's micro-batches each waits for a smaller part.
    gathers = (plan.gradients_sharded == 1) & (plan.pp > 1)
    bubble, before = larger.breakdown.pp_bubble_s, report.breakdown.pp_bubble_s
    assert (bubble == before)[~gathers].all() and (bubble <= before).all()


def test_seconds_scale_as_a_unit(cases, report):
    """All rates times 1000, all latencies and joules a byte over 1000: every time over 1000, every ratio the same.

    The half size of a GEMM is stated at a rate that stays, and grows with the cube root of the chip's.
    """
    run, cluster, plan = cases
    k, stack, network = 1000.0, cluster.stack, cluster.network
    fast = replace(
        cluster,
        chip__peak_flops_per_s=k * cluster.chip.peak_flops_per_s,
        chip__hbm_bandwidth_bytes_per_s=k * cluster.chip.hbm_bandwidth_bytes_per_s,
        network__bandwidth_bytes_per_s=k * network.bandwidth_bytes_per_s,
        network__lane_bytes_per_s=k * network.lane_bytes_per_s,
        chip__hbm_energy_j_per_byte=cluster.chip.hbm_energy_j_per_byte / k,
        network__latency_s=network.latency_s / k,
        network__level_latency_s=network.level_latency_s / k,
        network__latency_tail_s=network.latency_tail_s / k,
        pool__bandwidth_bytes_per_s=k * cluster.pool.bandwidth_bytes_per_s,
        pool__update_bandwidth_bytes_per_s=k * cluster.pool.update_bandwidth_bytes_per_s,
        pool__energy_j_per_byte=cluster.pool.energy_j_per_byte / k,
        storage__input_bytes_per_s_per_chip=k * cluster.storage.input_bytes_per_s_per_chip,
        sites__bandwidth_bytes_per_s=k * cluster.sites.bandwidth_bytes_per_s,
        sites__latency_s=cluster.sites.latency_s / k,
        network__energy_j_per_byte=network.energy_j_per_byte / k,
        rack__optics_energy_j_per_byte=cluster.rack.optics_energy_j_per_byte / k,
        rack__floor_area_m2=cluster.rack.floor_area_m2 / k**2,  # light is as fast as ever
        **{
            f"stack__{name}": getattr(stack, name) / k
            for name in (
                "kernel_launch_s",
                "host_layer_s",
                "host_moe_layer_s",
                "host_collective_s",
                "collective_launch_s",
                "step_overhead_s",
                "gemm_start_s",
                "cast_start_s",
            )
        },
        stack__gemm_half_size=stack.gemm_half_size / np.cbrt(k),
    )
    other = run_model((run, fast, plan))
    np.testing.assert_allclose(k * other.step_time_s, report.step_time_s, rtol=1e-12)
    np.testing.assert_allclose(other.mfu, report.mfu, rtol=1e-12)
    np.testing.assert_allclose(k * other.hidden_s, report.hidden_s, rtol=1e-9, atol=1e-12 * report.step_time_s.max())
    np.testing.assert_allclose(k * other.run_time_s, report.run_time_s, rtol=1e-12)
    np.testing.assert_allclose(other.power_w, report.power_w, rtol=1e-12)
    np.testing.assert_allclose(other.goodput, report.goodput, rtol=1e-12)


def test_the_level_of_software_scales_every_part_of_a_step_alike(cases, report):
    """Kernels, communication and optimizer by the same factor; the software's own overhead a step stays."""
    run, cluster, plan = cases
    slower = run_model((run, replace(cluster, stack__level=1.3 * cluster.stack.level), plan)).breakdown
    for name in (
        "compute_s",
        "memory_bound_s",
        "host_s",
        "tp_comm_s",
        "cp_comm_s",
        "ep_comm_s",
        "dp_comm_s",
        "optimizer_s",
    ):
        before, after = getattr(report.breakdown, name), getattr(slower, name)
        rounding = 1e-12 * report.step_time_s.max()  # of differences of sums
        np.testing.assert_allclose(after, 1.3 * before, rtol=1e-9, atol=rounding, err_msg=name)
    np.testing.assert_allclose(slower.overhead_s, report.breakdown.overhead_s, rtol=1e-12)


def test_dollars_scale_as_a_unit(cases, report):
    """All prices times 7, and what is stated for a dollar by 7: capital and cost times 7, nothing else moves."""
    run, cluster, plan = cases
    fields = [f"prices__{name}" for name in vars(cluster.prices) if "_usd" in name]
    fields += ["rack__price_usd", "rack__optics_usd_per_byte_per_s", "facility__electricity_usd_per_j"]
    fields += ["facility__construction_usd_per_w", "cooling__capital_usd_per_w"]
    fields += [
        "storage__usd_per_byte",
        "storage__usd_per_byte_per_s",
        "pool__usd_per_byte",
        "pool__usd_per_byte_per_s",
        "sites__lease_usd_per_byte",
        "sites__fixed_usd",
    ]
    changes = {field: 7.0 * read(cluster, field) for field in fields}
    changes["prices__network_carbon_kg_per_usd"] = cluster.prices.network_carbon_kg_per_usd / 7.0
    dearer = run_model((run, replace(cluster, **changes), plan))
    for name in vars(report).keys() - {"unit_of_work"}:  # a word
        factor = 7.0 if name == "spending" or "_usd" in name else 1.0
        for after, before in zip(*(jax.tree.leaves(getattr(r, name)) for r in (dearer, report)), strict=True):
            np.testing.assert_allclose(after, factor * before, rtol=1e-12, err_msg=name)


def test_a_larger_fleet_of_the_same_racks(cases):
    """Three times the racks: three times floor, power and materials; the power of one rack and the PUE stay."""
    run, cluster, plan = cases
    # What a fleet does not multiply: a site's entry, a redesign's engineering and its least order, spares' deviations.
    cluster = replace(cluster, sites__fixed_usd=0.0, **SAME_AT_ANY_SIZE)
    report = run_model((run, cluster, plan))
    larger = run_model((run, replace(cluster, chips=3.0 * cluster.chips), plan))
    for name in ("racks", "floor_area_m2", "peak_power_w", "capex_usd", "hbm_stacks", "package_area_m2", "wafers"):
        np.testing.assert_allclose(getattr(larger, name), 3.0 * getattr(report, name), rtol=1e-12, err_msg=name)
    for name in ("rack_power_w", "pue", "chip_power_w", "junction_temperature_k", "clock_ratio"):
        assert (getattr(larger, name) == getattr(report, name)).all(), name
    np.testing.assert_allclose(
        3.0 * larger.mean_time_between_failures_s, report.mean_time_between_failures_s, rtol=1e-12
    )


# Sums ----------------------------------------------------------------------------------------------------------------


def test_breakdown_adds_up_to_the_step(report):
    np.testing.assert_allclose(sum(report.breakdown), report.step_time_s, rtol=1e-12)


def test_breakdown_adds_up_where_limits_are_broken(cases):
    """Even less than one micro-batch: a search passes there."""
    run, cluster, plan = cases
    batches = np.random.default_rng(37).uniform(0.1, 2, N)
    report = run_model((replace(run, global_batch_sequences=batches * plan.dp * plan.micro_batch), cluster, plan))
    np.testing.assert_allclose(sum(report.breakdown), report.step_time_s, rtol=1e-12)


def test_memory_adds_up(report):
    np.testing.assert_allclose(sum(report.memory), report.memory_per_chip_bytes, rtol=1e-12)


@pytest.fixture(scope="module")
def parts(cases, report):
    """Parts of a second's cost, of its carbon, and both kinds of power, by the functions that name them."""

    def one(run, cluster, average_w):
        it = machine.machine(cluster, None, run)
        costs = cost.spending(cluster, it.capital, average_w)._asdict()
        carbons = cost.carbon_parts(it.cluster, it.fed_w, it.powered, average_w)
        beside = {"fed_w": it.fed_w, "powered": it.powered, "storage_w": power.storage_w(it.cluster)}
        return dict(costs=costs, carbons=carbons, it_peak_w=it.it_peak_w, point=it.point, **beside)

    return in_numpy(one)(*cases[:2], report.power_w)


def test_cost_parts_add_up(cases, report, parts):
    useful = report.tokens_per_s * report.goodput
    np.testing.assert_allclose(sum(parts["costs"].values()) / useful, report.cost_per_token_usd, rtol=1e-12)
    np.testing.assert_allclose(report.cost_per_token_usd * cases[0].tokens, report.run_cost_usd, rtol=1e-12)
    free = {
        "pool",
        "lines",
        "redesign",
    }  # where hosts hold the memory, everything is in one place, and chips are as sold
    assert all((part > 0).all() for name, part in parts["costs"].items() if name not in free)
    assert all((parts["costs"][name] >= 0).all() and (parts["costs"][name] > 0).any() for name in free)


def test_carbon_parts_add_up(cases, report, parts):
    useful = report.tokens_per_s * report.goodput
    np.testing.assert_allclose(sum(parts["carbons"].values()) / useful, report.carbon_per_token_kg, rtol=1e-12)
    np.testing.assert_allclose(report.carbon_per_token_kg * cases[0].tokens, report.run_carbon_kg, rtol=1e-12)
    assert all((part > 0).all() for part in parts["carbons"].values())


def fits(run, cluster, report):
    """Where arithmetic at the rate of large GEMMs takes no more than the step: attention may run more efficiently.

    And where chips slow down for their own draw, attention does not: it is counted at full load while it runs.
    """
    chip, mix = cluster.chip, run.gemm_precision

    def fastest(each):
        """The lesser of two means by format: of the GEMMs, and of what stays in 16 bit or more."""
        bf16 = PRECISIONS.index("bf16")
        wide = (mix * each)[:, :bf16].sum(-1) + mix[:, bf16:].sum(-1) * each[:, bf16]
        return np.minimum((mix * each).sum(-1), wide)

    peak = chip.peak_flops_per_s
    slower = fastest(1.0 / (peak * chip.matmul_efficiency)) / fastest(1.0 / peak)
    throttled = chip.clock_ratio / report.clock_ratio
    attention = np.maximum(cluster.stack.attention_forward_efficiency, cluster.stack.attention_backward_efficiency)
    slowest = np.where(mix > 0.0, chip.matmul_efficiency, 1.0).min(-1)
    return (report.hfu * slower * throttled <= 1) & ((report.clock_margin >= 0.0) | (attention <= slowest))


def test_power_adds_up(cases, report, parts):
    """From chip to rack to meter."""
    _, cluster, _ = cases
    stand = np.maximum(cluster.rack.sold_chips, cluster.rack.chips)
    np.testing.assert_allclose(report.rack_power_w, stand * parts["it_peak_w"], rtol=1e-12)
    fed_w = (cluster.chips + report.hot_spares) * parts["it_peak_w"] + parts["storage_w"]
    np.testing.assert_allclose(report.peak_power_w, fed_w * report.design_pue, rtol=1e-12)
    np.testing.assert_allclose(report.energy_per_token_j * cases[0].tokens, report.run_energy_j, rtol=1e-12)
    chip, point = cluster.chip, parts["point"]
    memory = chip.hbm_bandwidth_bytes_per_s * chip.hbm_energy_j_per_byte
    whole = chip.standby_power_w + memory + point.core_w + point.leakage_w
    np.testing.assert_allclose(report.chip_power_w, whole, rtol=1e-12)
    within = fits(cases[0], cluster, report)
    assert 0.5 < within.mean() < 1
    assert (report.power_w <= report.peak_power_w)[within].all()
    assert (report.chip_power_w < parts["it_peak_w"]).all()


def test_capital_is_equipment_and_building(cases, report, parts):
    """Without interest and landlord, the payments of a whole life are the price."""
    run, cluster, plan = cases
    plain = replace(
        cluster, prices__capital_rate_per_s=0.0, prices__margin=0.0, prices__occupancy=1.0, prices__owned=1.0
    )
    shelves = in_numpy(machine.stocked)(plain, run)
    built = in_numpy(cost.capital)(shelves, parts["fed_w"], parts["powered"])
    paid = in_numpy(cost.spending)(plain, built, report.power_w)._asdict()
    equipment = sum(np.asarray(paid[name]) for name in built._fields if name not in ("sites", "building"))
    life, building_life = cluster.prices.server_lifetime_s, cluster.facility.construction_lifetime_s
    capital = run_model((run, plain, plan)).capex_usd
    np.testing.assert_allclose(equipment * life + np.asarray(paid["building"]) * building_life, capital, rtol=1e-12)


def test_a_building_that_takes_nothing_draws_what_its_chips_draw(cases):
    """PUE 1 where nothing but chips needs power: the meter shows the chips, and nothing else."""
    run, cluster, plan = cases
    bare = replace(
        cluster,
        facility__other_fraction=0.0,
        facility__supply_efficiency=1.0,
        facility__distribution_efficiency=1.0,
        facility__room_plant_fraction=0.0,
        facility__wet_bulb_k=100.0,
        facility__design_wet_bulb_k=100.0,
        facility__host_power_w=0.0,
        cooling__plant_fraction=0.0,
        cooling__fan_fraction=0.0,
        network__energy_j_per_byte=0.0,
        rack__optics_energy_j_per_byte=0.0,
        pool__power_w_per_byte=0.0,
        pool__energy_j_per_byte=0.0,
        storage__power_w_per_byte=0.0,
        storage__energy_j_per_byte=0.0,
        recovery__hot_spares=0.0,
        rack__sold_chips=0.0,
    )
    answer = run_model((run, bare, plan))
    assert (answer.pue == 1).all() and (answer.design_pue == 1).all()
    np.testing.assert_allclose(answer.peak_power_w, cluster.chips * answer.chip_power_w, rtol=1e-14)
    np.testing.assert_allclose(answer.rack_power_w, cluster.rack.chips * answer.chip_power_w, rtol=1e-14)
    assert (answer.power_w <= answer.peak_power_w * (1.0 + 1e-12))[fits(run, bare, answer)].all()


def test_activity_is_a_share(cases, report):
    """Average power lies between that of an idle and of a fully loaded chip."""
    _, cluster, _ = cases
    idle = power.Activity(0.0, 0.0, 0.0)

    def idle_w(c):
        it_w = power.it_w(c, thermal.operating_point(c.chip, c.cooling), idle)
        return c.chips * power.pue(c.facility, c.cooling) * it_w

    assert (report.power_w > in_numpy(idle_w)(cluster)).all()
    assert (report.power_w <= report.peak_power_w)[fits(cases[0], cluster, report)].all()


def test_no_part_is_negative(report):
    for part in (*report.breakdown, report.hidden_s):
        assert (part >= -1e-12 * report.step_time_s).all()  # differences round
    for part in report.memory:
        assert (part >= 0).all()


def test_feasible_where_every_margin_is(cases, report):
    run, cluster, plan = cases
    worse = replace(plan, pp=plan.pp * np.random.default_rng(32).choice([1.0, 50.0], N))
    for answer in (report, run_model((run, cluster, worse))):
        least = np.min(jax.tree.leaves(answer.margins), axis=0)
        assert 0 < answer.feasible.mean() < 1
        assert ((least >= -1e-6) == (answer.feasible == 1)).all()


def test_one_chip_communicates_nothing():
    run, cluster, plan = one_chip_cases(np.random.default_rng(33), 1_000)
    inside = dict.fromkeys(("weights_offloaded", "optimizer_offloaded", "activations_offloaded"), 0.0)
    answer = run_model((run, cluster, replace(plan, **inside)))
    for name in (
        "tp_comm_s",
        "cp_comm_s",
        "ep_comm_s",
        "pp_comm_s",
        "pp_bubble_s",
        "dp_comm_s",
        "sites_comm_s",
        "jitter_s",
    ):
        assert (getattr(answer.breakdown, name) == 0).all(), name
    assert (answer.hidden_s == 0).all()
    assert (np.abs(answer.breakdown.pp_imbalance_s) <= 1e-14 * answer.step_time_s).all()


# Activations against arXiv 2205.05198 ----------------------------------------------------------------------------------


def activations_bytes(run, cluster, plan):
    return estimate(run, cluster, plan).memory.activations_bytes


@settings(max_examples=60, deadline=None)
@given(
    heads=st.integers(8, 128), head_dim=st.sampled_from([64, 80, 128]), layers=st.integers(4, 128),
    s=st.sampled_from([1024, 2048, 4096]), b=st.integers(1, 8), t=st.sampled_from([1, 2, 4, 8]),
    mode=st.sampled_from(["none", "selective", "full"]), sp=st.booleans(),
)  # fmt: skip
def test_activations_equal_the_published_formula(heads, head_dim, layers, s, b, t, mode, sp):
    """`s b h (10 + 24/t + 5 a s / (h t))` a layer, all over t with sequence parallelism; selective 34; full 2 s b h."""
    run, cluster, plan = random_case(np.random.default_rng(34), "gpt")
    h = heads * head_dim
    shape = dict(layers=layers, hidden=h, ffn=4 * h, heads=heads, kv_heads=heads, qk_dim=head_dim, v_dim=head_dim)
    run = replace(
        run,
        sequence_length=s,
        activation_bytes=2,
        global_batch_sequences=8 * b,
        **{f"model__{k}": v for k, v in shape.items()},
    )
    kept = dict(stack__residual_tensors=4, stack__product_kept=1, stack__cast_inputs_kept=0, sites__count=1)
    cluster = replace(cluster, stack__attention_scores_stored=1, stack__dropout_masks=1, **kept)
    ones = dict.fromkeys(("pp", "dp", "cp", "ep", "expert_tp", "virtual_stages", "fullest_stage", "last_stage"), 1)
    plan = replace(
        plan,
        **ones,
        tp=t,
        micro_batch=b,
        activations_offloaded=0,
        sequence_parallel=sp,
        recompute_full=mode == "full",
        recompute_attention=mode == "selective",
    )
    actual = once(activations_bytes)(run, cluster, plan)
    outer = t if sp else 1
    scores = 5 * heads * s / h / t if mode == "none" else 0
    per_layer = s * b * h * (2 / outer if mode == "full" else 10 / outer + 24 / t + scores)
    np.testing.assert_allclose(actual, layers * per_layer, rtol=1e-12)


# The smooth twin -----------------------------------------------------------------------------------------------------


def test_smooth_twin_bounds_the_exact_model_and_tends_to_it(once_hidden):
    cases = take(once_hidden, slice(0, 400))
    exact = run_model(cases).step_time_s
    gaps = []
    smoothed = in_numpy(lambda run, cluster, plan, tau: estimate(run, cluster, plan, temperature=tau).step_time_s)
    for tau in (0.3, 0.1, 0.03, 0.01, 0.001):
        smooth = smoothed(*cases, np.full(400, tau))
        assert (smooth >= exact * (1 - 1e-12)).all()
        gaps.append((smooth / exact - 1).max())
    assert all(later < earlier for earlier, later in itertools.pairwise(gaps))
    assert gaps[-1] < 1e-2


# Numbers and inputs --------------------------------------------------------------------------------------------------


def test_float32_values_are_finite_and_close(cases, report):
    jax.clear_caches()  # see the next test
    single = jax.tree.map(lambda leaf: leaf.astype(np.float32), cases)
    answer = jax.tree.map(np.asarray, quick_jit(jax.vmap(estimate))(*single))
    for path, leaf in jax.tree_util.tree_leaves_with_path(answer):
        name = jax.tree_util.keystr(path)
        unlimited = np.isposinf(leaf) & (
            name in (".margins.pool", ".margins.saves", ".margins.nic")
        )  # nothing to limit
        assert (np.isfinite(leaf) | unlimited).all(), name
    # A chip that hardly runs has a clock which is a difference of two nearly equal powers.
    hardly = np.abs(report.margins.cooling) < 0.1
    assert hardly.mean() < 0.05
    for name in (
        "step_time_s",
        "memory_per_chip_bytes",
        "power_w",
        "capex_usd",
        "cost_per_token_usd",
        "energy_per_token_j",
        "junction_temperature_k",
        "goodput",
        "run_carbon_kg",
        "loss",
    ):
        single_value, double = getattr(answer, name), getattr(report, name)
        np.testing.assert_allclose(single_value[~hardly], double[~hardly], rtol=2e-5, err_msg=name)
        np.testing.assert_allclose(single_value, double, rtol=1e-3, err_msg=name)


@pytest.mark.search
def test_both_precisions_in_one_process(cases):
    jax.clear_caches()
    small = take(cases, slice(0, 4))
    with jax.enable_x64(True):
        double = np.asarray(quick_jit(jax.vmap(estimate))(*small).step_time_s)
    single = quick_jit(jax.vmap(estimate))(*jax.tree.map(np.float32, small)).step_time_s
    np.testing.assert_allclose(single, double, rtol=2e-5)


def test_every_input_moves_an_output():
    """Over 500 cases, each input 1 % larger (or 0.01 more, from zero) moves some leaf of the report.

    But those that serving alone knows: caches of keys and values, starts of attention, a sequence's host time, layouts; SerDes,
    whose power moves with links that a design moves; by what the bill divides the money and the watts of the fabric; and the
    chips of a system, by which searches and the bill count what is bought.
    """
    some = random_cases(np.random.default_rng(35), 500)
    leaves, structure = jax.tree.flatten(some)
    inputs = [(i, j) for i, leaf in enumerate(leaves) for j in range(leaf[0].size)]
    names = input_names(some)
    assert len(names) == len(inputs) == to_vectors(some).shape[1]
    before = np.stack(jax.tree.leaves(run_model(some)), 1)

    def idle_of(which: list[int], rows: slice) -> list[int]:
        """Of these inputs those that move no leaf in these cases."""
        own, count = [leaf[rows] for leaf in leaves], len(before[rows])
        together, found = BLOCK // count, []
        for part in (which[i : i + together] for i in range(0, len(which), together)):
            moved = [np.tile(leaf, (len(part), *[1] * (leaf.ndim - 1))) for leaf in own]
            for place, (i, j) in enumerate(inputs[k] for k in part):
                column = moved[i].reshape(len(part) * count, -1)[count * place : count * (place + 1), j]
                column[:] = np.where(column == 0, 0.01, 1.01 * column)
            after = np.stack(jax.tree.leaves(run_model(jax.tree.unflatten(structure, moved))), 1)
            with np.errstate(invalid="ignore"):  # of two margins without a limit
                moves = [
                    (np.abs(each - before[rows]) > 1e-9 * np.abs(before[rows])).any()
                    for each in np.split(after, len(part))
                ]
            found += [k for k, it_moves in zip(part, moves, strict=True) if not it_moves]
        return found

    # Most move something in the first cases already.
    idle = {names[k] for k in idle_of(idle_of(list(range(len(inputs))), slice(0, 25)), slice(25, 500))}
    divides = {f"network.switch_{of}_share[{tier}]" for of in ("price", "power") for tier in range(3)}
    inside = {"network.switches_per_port[0]"}
    serves = {
        "cache_rereads",
        "cache_sharded",
        "attention_start_s",
        "prompt_start_s",
        "host_sequence_s",
        "layouts_sharded",
        "pipelined",
        "redundant_experts",
        "two_batches",
        "two_batch_overlap",
        "cache_split",
        "expert_start_s",
        "expert_unpacking",
        "tokens_gathered",
        "gathered_launch_s",
        "passes_graphed",
        "expert_tile_share",
        "direct_reduce_s",
    }
    others = {"chip.scale_up_idle_j_per_byte", "chip.host_slowness", "rack.system_chips"}
    others |= {f"stack.capabilities.{name}" for name in quantities(Capabilities)}  # limits of searches
    assert idle - divides - inside == {f"stack.{name}" for name in serves} | others


def test_bottleneck_names_the_largest_part(report):
    parts = np.stack(report.breakdown)
    assert (parts.max(0) == np.take_along_axis(parts, report.bottleneck.astype(int)[None], 0)[0]).all()
    assert len(Breakdown._fields) == len(parts)
