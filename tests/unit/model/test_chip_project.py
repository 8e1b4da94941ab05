"""A parametric chip becomes a chip like any other, with a price and links."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.model.chip import chip_project, manufacture
from hwopt.model.chip.thermal import core_power_w, rated_power_w
from tests.in_numpy import in_numpy, once

DESIGNS = [name for name in catalog.names("designs") if "unsupported" not in catalog.record("designs", name).text]


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def changed(project, **fields):
    """The project with other values in its design."""
    where = lambda p: tuple(getattr(p.design, name) for name in fields)
    return eqx.tree_at(where, project, tuple(np.float64(value) for value in fields.values()))


@pytest.mark.parametrize("name", DESIGNS)
def test_every_design_becomes_a_chip_with_a_price(name):
    project = catalog.chip_project(name)
    chip, bill = chip_project.chip(project), chip_project.bill(project)
    for leaf in jax.tree.leaves((chip, bill)):
        assert np.isfinite(leaf).all() and (np.asarray(leaf) >= 0).all()
    assert 0 < float(chip.wafers) < 0.2 and 5 < float(chip.embodied_carbon_kg) < 1000
    assert 50 < float(bill.total) < 2e4
    assert jax.tree.structure(chip) == jax.tree.structure(catalog.chip("h100-sxm"))


def test_nothing_downstream_knows_the_difference():
    """A cluster of designed H100 trains as fast as one of the catalogue's, within what the back-test allows."""
    run = catalog.training_run("llama3-70b", global_batch=1024)
    plan = catalog.plan(run, 2048, tp=4, pp=8, virtual_stages=5)
    sold = catalog.cluster("h100-sxm", 2048)
    project = catalog.chip_project("h100-sxm")
    project = eqx.tree_at(lambda p: p.design.scale_out_bandwidth_bytes_per_s, project, np.float64(50e9))
    designed = jax.tree.map(np.asarray, chip_project.installed(sold, project))
    assert jax.tree.structure(designed) == jax.tree.structure(sold)
    a, b = hwopt.estimate(run, sold, plan), hwopt.estimate(run, designed, plan)
    assert float(b.step_time_s) == pytest.approx(float(a.step_time_s), rel=0.1)
    assert float(b.chip_power_w) == pytest.approx(float(a.chip_power_w), rel=0.15)


def test_a_price_is_the_bill_times_what_buyers_pay():
    project = catalog.chip_project("h100-sxm", prices="at-cost")
    cluster = chip_project.installed(catalog.cluster("h100-sxm", 64, prices="at-cost"), project)
    assert float(cluster.prices.chip_base_usd) == pytest.approx(float(chip_project.bill(project).total))
    assert float(cluster.prices.hbm_usd_per_byte) == 0.0
    bought = catalog.chip_project("h100-sxm")
    ratio = chip_project.installed(catalog.cluster("h100-sxm", 64), bought).prices.chip_base_usd
    assert float(ratio) == pytest.approx(8.3 * float(chip_project.bill(bought).total))


def test_areas_buy_what_they_should():
    base = catalog.chip_project("h100-sxm")
    chip = chip_project.chip(base)
    more = chip_project.chip(changed(base, compute_area_m2=2.0 * float(base.design.compute_area_m2)))
    assert float(more.peak_flops_per_s[2]) == pytest.approx(2.0 * float(chip.peak_flops_per_s[2]))
    stacks = chip_project.chip(changed(base, hbm_stacks=10.0))
    assert float(stacks.hbm_bandwidth_bytes_per_s) == pytest.approx(2.0 * float(chip.hbm_bandwidth_bytes_per_s))
    fewer = chip_project.chip(changed(base, enabled_fraction=0.8))
    assert float(fewer.wafers) < float(chip.wafers)  # spares turn into yield
    assert float(fewer.peak_flops_per_s[2]) < float(chip.peak_flops_per_s[2])
    slow = changed(base, clock_hz=0.5 * float(base.design.clock_hz))
    assert float(core_power_w(chip_project.chip(slow), 0.5)) < 0.3 * float(chip.core_power_w)  # V falls with f
    assert float(chip_project.chip(slow).clock_ratio) == pytest.approx(0.5)


def test_sram_buys_less_hbm_traffic():
    run = catalog.training_run("llama3-8b", global_batch=64)
    plan = catalog.plan(run, 8, tp=8)
    base = catalog.chip_project("h100-sxm")
    sold = catalog.cluster("h100-sxm", 8)

    def memory_bound(megabytes: float) -> float:
        cluster = chip_project.installed(sold, changed(base, sram_bytes=megabytes * 1e6, hbm_stacks=1.0))
        return float(hwopt.estimate(run, cluster, plan).breakdown.memory_bound_s)

    times = [memory_bound(megabytes) for megabytes in (0.05, 0.2, 1.0, 50.0)]
    assert times[0] > times[1] > times[2] >= times[3]


def test_reticle_and_shoreline_bind():
    base = catalog.chip_project("h100-sxm")
    assert all(float(value) >= 0 for value in chip_project.margins(base).values())
    huge = changed(base, compute_area_m2=2.5e-3)
    assert float(chip_project.margins(huge)["reticle"]) < 0
    assert float(chip_project.margins(changed(huge, dies=4.0))["reticle"]) > 0
    assert float(chip_project.margins(changed(base, hbm_stacks=16.0))["shoreline"]) < 0


@pytest.mark.parametrize("name", ["h100-sxm", "mi300x"])
def test_gradients_equal_central_differences(name):
    """Price, wafers, carbon and full-load power by every design field, with and without base dies."""
    project = catalog.chip_project(name)
    fields = ("compute_area_m2", "sram_bytes", "hbm_stacks", "dies", "enabled_fraction", "clock_hz",
              "scale_up_bandwidth_bytes_per_s")  # fmt: skip
    start = np.array([float(getattr(project.design, field)) for field in fields])

    def outputs(log_values):
        built = changed_traced(project, fields, jnp.exp(log_values))
        chip = chip_project.chip(built)
        return jnp.log(jnp.stack([chip_project.bill(built).total, chip.wafers, chip.embodied_carbon_kg,
                                  rated_power_w(chip)]))  # fmt: skip

    y, step = np.log(start), 1e-5
    exact, value = once(jax.jacobian(outputs))(y), in_numpy(outputs)
    for i in range(len(fields)):
        nudge = step * np.eye(len(fields))[i]
        above, below = value(np.stack([y + nudge, y - nudge]))
        difference = (above - below) / (2 * step)
        np.testing.assert_allclose(exact[:, i], difference, rtol=1e-6, atol=1e-8, err_msg=fields[i])


def changed_traced(project, fields, values):
    where = lambda p: tuple(getattr(p.design, name) for name in fields)
    return eqx.tree_at(where, project, tuple(values))


def test_catalogue_chips_state_what_manufacture_says():
    """Wafers and carbon of datasheet chips are those of the manufacturing model on their own dies."""
    from hwopt.hardware.process import Dies, Package

    held, process = catalog.record("chips", "h100-sxm"), catalog.chip_project("h100-sxm").process
    area, stacks = held.si("die_area"), held.si("memory_stacks")
    dies = Dies(*map(np.float64, (1.0, 0.5 * area, 0.5 * area, 100.0, 0.92)))
    package = Package(*map(np.float64, (stacks, held.si("memory_capacity"), held.si("package_area"))))
    assert float(manufacture.wafers_per_chip(dies, package, process)) == pytest.approx(held.si("wafers"), rel=0.01)
    carbon = float(manufacture.embodied_carbon_kg(dies, package, process).total)
    assert carbon == pytest.approx(held.si("embodied_carbon"), rel=0.01)
