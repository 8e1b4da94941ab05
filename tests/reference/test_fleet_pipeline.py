"""Stages of one pipeline on several kinds of chips: one kind's run where they are alike, bounds, conservation, a simulation."""

from __future__ import annotations

import functools
from dataclasses import replace

import equinox as eqx
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.catalog.load import leaf
from hwopt.errors import UserError
from hwopt.hardware.cluster import Fleet
from hwopt.model.estimate import estimate
from hwopt.model.fleet.pipeline import group_flops
from hwopt.model.layers import work
from hwopt.plan import FleetPipeline, stage_layers
from tests.cases import NO_SHELVES
from tests.cases import replace as changed
from tests.in_numpy import once

RUN = catalog.training_run("llama3-70b", global_batch=256)
WHOLE = catalog.plan(RUN, 256, tp=8, pp=8, micro_batch=1, recompute="selective")
H100, A100 = catalog.cluster("h100-sxm", 128), catalog.cluster("a100-80", 128)


def staged(first: int, layers: int = 80) -> FleetPipeline:
    """Four stages on each of two groups."""
    counts = first, layers - first
    ratios = [dict(zip(("fullest_stage", "last_stage"), map(leaf, stage_layers(n, 4, 1)), strict=True)) for n in counts]
    return FleetPipeline(tuple(replace(WHOLE, pp=leaf(4), **each) for each in ratios), tuple(map(leaf, counts)))


@functools.cache
def answer(first: int, second: str = "a100-80"):
    return once(estimate)(RUN, Fleet((H100, A100 if second == "a100-80" else H100)), staged(first))


def test_two_groups_of_one_kind_are_one_cluster():
    """To rounding: time, power, money, failures, and the memory of the first stage, which keeps most."""
    half, whole = (changed(catalog.cluster("h100-sxm", chips), **NO_SHELVES) for chips in (128, 256))
    two, one = once(estimate)(RUN, Fleet((half, half)), staged(40)), once(estimate)(RUN, whole, WHOLE)
    names = [name for name in vars(two) if hasattr(one, name) and name not in ("groups", "margins")]
    assert {"step_time_s", "run_cost_usd", "power_w", "goodput", "loss", "mfu", "energy_per_token_j"} <= set(names)
    for name in names:
        np.testing.assert_allclose(getattr(two, name), getattr(one, name), rtol=1e-12, err_msg=name)
    assert float(two.groups[0].memory_per_chip_bytes) == pytest.approx(float(one.memory_per_chip_bytes), rel=1e-12)
    assert two.groups[1].memory_per_chip_bytes < two.groups[0].memory_per_chip_bytes


def test_work_is_conserved():
    """FLOPs of groups are those of the step; they show in each group's utilisation."""
    model = RUN.model
    for counts in ((80.0,), (52.0, 28.0), (1.0, 70.0, 9.0)):
        flops = [group_flops(RUN, np.float64(n), float(i == len(counts) - 1)) for i, n in enumerate(counts)]
        assert float(sum(flops)) == pytest.approx(float(work.model_flops(RUN.model, RUN)), rel=1e-12)
    report = answer(56)
    done = sum(float(each.mfu) * 128 * peak for each, peak in zip(report.groups, (989.4e12, 312e12), strict=True))
    assert done * float(report.step_time_s) == pytest.approx(float(work.model_flops(RUN.model, RUN)), rel=1e-3)
    assert float(model.layers) == sum(float(each.layers) for each in report.groups)


def test_the_slowest_stage_paces_all():
    """A step is least where layers are in proportion to speed, and never less than the bound of fractions."""
    steps = {first: answer(first) for first in (40, 52, 56, 60, 72)}
    seconds = {first: float(each.step_time_s) for first, each in steps.items()}
    assert min(seconds, key=lambda first: seconds[first]) in (56, 60)
    for each in steps.values():
        assert float(each.ideal_step_time_s) <= float(each.step_time_s) * (1.0 + 1e-12)
        assert min(map(float, each.waits)) == pytest.approx(0.0, abs=1e-12)
    early, late = answer(40), answer(72)
    assert early.waits[0] > 0.1 and late.waits[1] > 0.1  # few layers: they wait
    assert early.groups[0].step_time_s < early.groups[1].step_time_s


@pytest.mark.parametrize("part", ["peak_flops_per_s", "hbm_bandwidth_bytes_per_s"])
def test_a_slower_kind_never_speeds_up(part):
    before = float(answer(56).step_time_s)
    for group in (0, 1):
        slower = eqx.tree_at(
            lambda f, g=group: getattr(f.groups[g].chip, part), Fleet((H100, A100)), replace_fn=lambda x: 0.8 * x
        )
        assert float(once(estimate)(RUN, slower, staged(56)).step_time_s) >= before


def test_links_between_groups_cost_what_they_add():
    """A tenth of the scale-out bandwidth: more of the step is the links', and free links leave the rest."""
    share = np.where(np.arange(len(A100.network.bandwidth_bytes_per_s)) > 0, 0.1, 1.0)
    slow = eqx.tree_at(lambda c: c.network.bandwidth_bytes_per_s, A100, replace_fn=lambda each: each * share)
    report = once(estimate)(RUN, Fleet((H100, slow)), staged(56))
    assert float(report.exchange_s) > 1.5 * float(answer(56).exchange_s) > 0.0
    assert float(report.step_time_s) > float(answer(56).step_time_s)


def simulated(forward: np.ndarray, backward: np.ndarray, micro_batches: int) -> float:
    """Time of 1F1B, event by event: each stage in its order, each pass after those that it needs."""
    count = len(forward)
    orders = []
    for stage in range(count):
        warm = min(count - stage - 1, micro_batches)
        rest = [each for i in range(micro_batches - warm) for each in (("f", warm + i), ("b", i))]
        orders.append(
            [*(("f", i) for i in range(warm)), *rest, *(("b", i) for i in range(micro_batches - warm, micro_batches))]
        )
    ended: dict[tuple, float] = {}
    free, at = [0.0] * count, [0] * count
    while any(at[stage] < len(orders[stage]) for stage in range(count)):
        for stage in range(count):
            while at[stage] < len(orders[stage]):
                kind, batch = orders[stage][at[stage]]
                before = (stage - 1, "f", batch) if kind == "f" else (stage + 1, "b", batch)
                starts = 0.0 if before[0] in (-1, count) else ended.get(before)
                if starts is None:
                    break
                took = (forward if kind == "f" else backward)[stage]
                free[stage] = max(free[stage], starts) + took
                ended[stage, kind, batch] = free[stage]
                at[stage] += 1
    return max(free)


@pytest.mark.parametrize("seed", range(6))
def test_the_form_bounds_a_simulation(seed):
    """`m W + (1 - 1/p) sum F`: never less than the schedule event by event; 0.4 % above (median of 300), 9.5 % at most."""
    rng = np.random.default_rng(seed)
    stages, batches = int(rng.integers(2, 9)), int(rng.integers(8, 65))
    forward = np.repeat(rng.uniform(1.0, 2.0, 2), [stages // 2, stages - stages // 2])
    backward = 2.0 * forward
    each = forward + backward
    formula = batches * each.max() + (1.0 - 1.0 / stages) * each.sum()
    exact = simulated(forward, backward, batches)
    assert exact <= formula + 1e-9 and formula <= 1.1 * exact
    even = np.full(stages, 3.0)
    assert simulated(even / 3.0, even / 1.5, batches) == pytest.approx(3.0 * (batches + stages - 1.0), rel=1e-12)


def test_refusals():
    plan = staged(56)
    short = FleetPipeline(plan.groups, (leaf(56), leaf(20)))
    assert once(estimate)(RUN, Fleet((H100, A100)), short).violations() == {"whole_model": pytest.approx(80 / 76 - 1)}
    double = FleetPipeline((plan.groups[0], replace(plan.groups[1], micro_batch=leaf(2))), plan.layers)
    assert "replicas_alike" in once(estimate)(RUN, Fleet((H100, A100)), double).violations()
    for fleet, run, named in (
        (Fleet((H100,)), RUN, "as many"),
        (Fleet((H100, A100), catalog.sites(2, "continental")), RUN, "one site"),
        (Fleet((H100, A100)), catalog.training_run("resnet-50"), "transformer"),
    ):
        with pytest.raises(UserError, match=named):
            hwopt.estimate(run, fleet, plan)
