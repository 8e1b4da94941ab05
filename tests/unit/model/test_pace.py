"""Kernels under a power cap: at the clock that draws what is allowed on average, never slower than at full load."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt import catalog
from hwopt.model.chip.roofline import KernelTime
from hwopt.model.chip.sustained_clock import AS_ASKED, clock_under_load, pace
from hwopt.model.chip.thermal import core_power_w, fixed_power_w, operating_point, voltage_ratio
from hwopt.model.estimate import estimate
from tests.in_numpy import in_numpy, once, one_row
from tests.slopes import memory_elasticity

CASES = [
    (chip, cap, cooling)
    for chip in ("h100-sxm", "gb300", "mi355x", "tpu-v5p")
    for cap in (0.5, 0.7, 0.9)
    for cooling in ("air", "direct-liquid")
]


def capped(chip, cap, cooling, chips=64):
    cluster = catalog.cluster(chip, chips, cooling=cooling)
    return eqx.tree_at(lambda c: c.chip.power_cap_w, cluster, replace_fn=lambda watts: watts * cap)


def kernels_of(rng, count):
    """Arithmetic, what HBM adds, launches and HBM's own time, from compute bound to all but memory bound."""
    arithmetic, added = 10.0 ** rng.uniform(-5, -1, count), 10.0 ** rng.uniform(-7, -1, count)
    return KernelTime.as_asked(arithmetic, added, np.full(count, 1e-6), added + arithmetic * rng.uniform(0, 1, count))


def running(cluster):
    """A chip at work, and the point of full load."""
    point = operating_point(cluster.chip, cluster.cooling)
    return clock_under_load(cluster.chip, point), point


def fixed_w(cluster):
    """What full load draws beside the cores, the cores at the clock asked for, and full load's own volts."""
    chip, (_, point) = cluster.chip, running(cluster)
    own = core_power_w(chip, chip.clock_ratio), voltage_ratio(chip, point.clock_ratio)
    return fixed_power_w(chip), *own


def volts_at(cluster, clock):
    return voltage_ratio(cluster.chip, clock), voltage_ratio(cluster.chip, cluster.chip.clock_ratio)


@pytest.mark.parametrize(("chip", "cap", "cooling"), CASES)
def test_kernels_draw_what_is_allowed_and_no_more(chip, cap, cooling):
    """Slowed ones draw it to 1e-9 on average, others less; none is slower than full load makes it."""
    cluster = capped(chip, cap, cooling)
    active, point = once(running)(cluster)
    assert float(point.clock_margin) < 0.0
    kernels = kernels_of(np.random.default_rng(1), 2_000)
    keeps = in_numpy(pace)(one_row(active), kernels)
    asked = float(cluster.chip.clock_ratio)
    clock = asked / np.asarray(keeps.slowdown)
    own, of_asked = in_numpy(volts_at)(one_row(cluster), clock)
    volts = own / of_asked
    np.testing.assert_allclose(keeps.energy, volts**2, rtol=1e-12)
    fixed, core, full = once(fixed_w)(cluster)
    standby = float(cluster.chip.standby_power_w)
    joules = core * volts**2 * kernels.compute_s + (fixed - standby) * kernels.hbm_s
    leaked = point.leakage_w * own / full
    drawn = standby + leaked + joules / (kernels.memory_s + kernels.compute_s * asked / clock)
    slowed = clock < asked
    assert slowed.sum() > 100
    np.testing.assert_allclose(drawn[slowed], float(point.power_w), rtol=1e-9)
    assert (drawn[~slowed] <= float(point.power_w) * (1 + 1e-12)).all()
    assert (clock >= float(point.clock_ratio) * (1 - 1e-9)).all()


def test_full_load_keeps_the_clock_of_full_load():
    with jax.enable_x64(True):
        cluster = capped("h100-sxm", 0.6, "air")
        point = operating_point(cluster.chip, cluster.cooling)
        second = jnp.asarray(1.0)
        # HBM busy as long as arithmetic takes at the clock of full load.
        busy = KernelTime.as_asked(second, 0.0 * second, 0.0 * second, second / point.clock_ratio)
        keeps = pace(clock_under_load(cluster.chip, point), busy)
        assert float(1.0 / keeps.slowdown) == pytest.approx(float(point.clock_ratio), rel=1e-12)


def test_a_chip_whose_full_load_fits_keeps_its_clock():
    """And one that is held to a clock, as designs are, has no pace to find."""
    with jax.enable_x64(True):
        cluster = catalog.cluster("h100-sxm", 64)
        kernels = kernels_of(np.random.default_rng(2), 100)
        active, _ = once(running)(cluster)
        keeps = in_numpy(pace)(one_row(active), kernels)
        assert (np.asarray(keeps.slowdown) == 1.0).all() and (np.asarray(keeps.energy) == 1.0).all()
        assert pace(cluster.chip, kernels) is AS_ASKED


@pytest.mark.parametrize("work", ["train", "serve"])
def test_faster_memory_never_slows_a_throttled_chip(work):
    """Elasticity of the time of a step or pass to HBM bandwidth, where full load does not fit."""
    clusters = [capped(*case, 8) for case in CASES]
    if work == "train":
        run = catalog.training_run("llama3.1-8b", global_batch=64)
        slopes = memory_elasticity([(run, cluster, catalog.plan(run, 8, dp=8)) for cluster in clusters])
    else:
        service = catalog.service("llama3.1-8b", input_tokens=1024, output_tokens=256)
        plan = catalog.serving_plan(service, 8, tp=8, batch=64)
        slopes = memory_elasticity([(service, cluster, plan) for cluster in clusters])
    wrong = {case: slope for case, slope in zip(CASES, slopes, strict=True) if not -1.0 <= slope <= 1e-12}
    assert not wrong


@pytest.mark.parametrize("cap", [0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
def test_a_capped_chip_draws_no_more_than_its_cap(cap):
    """Averaged over a step, and a lower cap is never faster."""
    with jax.enable_x64(True):
        run, reports = catalog.training_run("llama3.1-8b", global_batch=64), []
        for each in (cap, cap + 0.1):
            cluster = capped("h100-sxm", each, "air", 8)
            reports.append(once(estimate)(run, cluster, catalog.plan(run, 8, dp=8)))
        low, high = reports
        assert float(low.step_time_s) >= float(high.step_time_s)
        assert float(low.power_w) <= float(low.pue) * float(low.peak_power_w) / float(low.design_pue)
        assert 0.0 < float(low.clock_ratio) <= float(high.clock_ratio) <= 1.0


def test_second_derivatives_are_those_of_the_clock_that_is_kept():
    """Halley's step carries two orders; a step of Newton's would carry one."""
    cluster = catalog.cluster("gb300", 64.0, cooling="air")
    with jax.enable_x64(True):
        chip, _ = once(running)(cluster)

        def slowdown(seconds):
            busy, waits = seconds
            none = jnp.zeros_like(busy)
            return pace(chip, KernelTime(busy, waits, none, busy + waits, busy, busy)).slowdown

        at = jnp.array([1.0, 0.01])
        assert float(slowdown(at)) > 1.1
        step, slope = 1e-5, once(jax.grad(slowdown))
        differences = [(slope(at.at[i].add(step)) - slope(at.at[i].add(-step))) / (2 * step) for i in range(2)]
        np.testing.assert_allclose(once(jax.hessian(slowdown))(at), np.array(differences), rtol=1e-6, atol=1e-8)
