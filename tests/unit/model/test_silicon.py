"""Chip design: closed forms, monotone, log-log convex where it says so, differentiable, mappable."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt.catalog.load import data_root
from hwopt.catalog.names import names
from hwopt.catalog.silicon import chip_design, technology
from hwopt.errors import UserError
from hwopt.hardware.chip_project import ChipDesign
from hwopt.model.chip.silicon import areas, chip, flop_energy_j, margins, transistors_per_flop
from hwopt.model.chip.thermal import rated_power_w
from hwopt.solver.jit_options import quick_jit
from hwopt.types import PRECISIONS
from tests.in_numpy import in_numpy, once

FIELDS = [field.name for field in dataclasses.fields(ChipDesign)]
BF16 = PRECISIONS.index("bf16")
TEMPLATES = ("h100-sxm", "b200", "mi300x", "tpu-v4")
PROCESSES = names("technologies")


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def approx(value, rel=1e-12):
    return pytest.approx(float(value), rel=rel)  # pytest cannot compare with jax's scalars


def pair(name="h100-sxm", **other):
    return jax.tree.map(jnp.asarray, chip_design(name, **other))


def built(design, held):
    return chip(design, held, wafers=jnp.asarray(0.02), embodied_carbon_kg=jnp.asarray(100.0))


def outputs(design, held):
    """Everything a design yields, positive, in one vector."""
    made, silicon = built(design, held), areas(design, held)
    return jnp.stack([
        made.peak_flops_per_s[BF16], made.peak_flops_per_s[0], made.hbm_bandwidth_bytes_per_s, made.core_power_w,
        made.leakage_power_w, made.standby_power_w, rated_power_w(made), silicon.total, silicon.one_die,
        silicon.interposer, silicon.shoreline_needed, silicon.shoreline_available, made.clock_ratio,
    ])  # fmt: skip


def scaled(design, field, factor):
    return eqx.tree_at(lambda d: getattr(d, field), design, getattr(design, field) * factor)


@pytest.mark.parametrize("name", TEMPLATES)
def test_areas_add_up(name):
    design, held = pair(name)
    silicon = areas(design, held)
    parts = silicon.compute + silicon.fabric + silicon.sram + silicon.hbm_phy + silicon.scale_up_phy
    assert parts + silicon.scale_out_phy + silicon.fixed + silicon.die_to_die == approx(silicon.total, rel=1e-12)
    if held.stacked:
        assert silicon.one_die * design.dies == approx(silicon.compute, rel=1e-12)
        assert silicon.base_dies + silicon.compute == approx(silicon.total, rel=1e-12)
        assert silicon.footprint == approx(silicon.base_dies, rel=1e-12)
    else:
        assert silicon.one_die * design.dies == approx(silicon.footprint, rel=1e-12)
        assert silicon.base_dies == 0


def test_one_die_has_no_bridge_and_two_lose_a_seam():
    design, held = pair()
    one, two = areas(design, held), areas(scaled(design, "dies", 2.0), held)
    assert one.die_to_die == 0
    assert two.total == approx(one.total * (1 + held.die_to_die_share / 2), rel=1e-12)
    assert one.shoreline_available == approx(held.usable_edge * 4 * one.total**0.5, rel=1e-12)
    assert two.shoreline_available == approx(held.usable_edge * 6 * two.one_die**0.5, rel=1e-12)
    assert margins(design, held).reticle == approx(np.log(858e-6 / one.one_die), rel=1e-9)


def test_peak_and_energy_by_hand():
    design, held = pair()
    registers = held.register_bytes / design.matrix_per_vector
    transistors = held.matrix_transistors + held.register_transistors_per_byte * registers
    transistors = transistors + held.local_transistors_per_byte * held.local_bytes
    assert transistors_per_flop(design, held) == approx(transistors, rel=1e-12)
    rate = design.compute_area_m2 * design.enabled_fraction * held.logic_density_per_m2 / transistors
    made = built(design, held)
    assert made.peak_flops_per_s[BF16] == approx(rate * held.nominal_clock_hz, rel=1e-12)
    energy = flop_energy_j(design, held)
    assert made.core_power_w == approx(made.peak_flops_per_s[BF16] * held.matmul_efficiency[BF16] * energy, rel=1e-12)
    assert made.wafers == 0.02 and made.embodied_carbon_kg == 100.0


def test_formats_follow_the_16_bit_peak():
    made = built(*pair())
    peaks = dict(zip(PRECISIONS, made.peak_flops_per_s / made.peak_flops_per_s[BF16], strict=True))
    assert peaks["fp8"] == approx(1979 / 989) and peaks["tf32"] == approx(0.5)
    assert peaks["fp32"] == approx(67 / 989)
    design, held = pair()
    made = built(scaled(design, "matrix_per_vector", 2.0), held)
    assert made.peak_flops_per_s[0] / made.peak_flops_per_s[BF16] == approx(67 / 989 / 2)


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.3])
def test_power_follows_the_voltage_that_a_clock_needs(factor):
    design, held = pair()
    made = built(scaled(design, "clock_hz", factor), held)
    assert made.clock_ratio == approx(factor)
    assert made.peak_flops_per_s[BF16] == approx(built(design, held).peak_flops_per_s[BF16], rel=1e-12)
    volts = 0.4 + 0.6 * factor
    still = (
        made.standby_power_w
        + made.leakage_power_w * volts
        + made.hbm_bandwidth_bytes_per_s * made.hbm_energy_j_per_byte
    )
    dynamic = made.core_power_w * volts**2 * factor
    assert rated_power_w(made) == approx(still + dynamic, rel=1e-12)


def test_more_costs_more():
    design, held = pair()
    before = areas(design, held)
    for field, part in (
        ("compute_area_m2", "compute"), ("sram_bytes", "sram"), ("hbm_stacks", "hbm_phy"),
        ("scale_up_bandwidth_bytes_per_s", "scale_up_phy"), ("scale_out_bandwidth_bytes_per_s", "scale_out_phy"),
    ):  # fmt: skip
        after = areas(scaled(design, field, 2.0), held)
        assert getattr(after, part) == approx(2 * getattr(before, part), rel=1e-12)
        assert after.total > before.total and after.footprint > before.footprint
    more = built(scaled(design, "compute_area_m2", 2.0), held)
    assert more.peak_flops_per_s[BF16] == approx(2 * built(design, held).peak_flops_per_s[BF16], rel=1e-12)
    special = built(scaled(design, "matrix_per_vector", 2.0), held)
    assert special.peak_flops_per_s[BF16] > built(design, held).peak_flops_per_s[BF16]


def test_every_variable_moves_an_output():
    design, held = pair("b200")
    before = outputs(design, held)
    for field in FIELDS:
        after = scaled(design, field, 1.1)
        assert (
            not np.array_equal(outputs(after, held), before) or built(after, held).power_cap_w != design.power_cap_w
        ), field


@pytest.mark.parametrize(
    "name", [n if n == "h100-sxm" else pytest.param(n, marks=pytest.mark.search) for n in TEMPLATES]
)
def test_log_log_convex_as_stated(name):
    design, held = pair(name)
    free = [field for field in FIELDS if field not in ("dies", "power_cap_w")]

    def logs(x):
        moved = design
        for place, field in enumerate(free):
            moved = scaled(moved, field, jnp.exp(x[place]))
        silicon, made = areas(moved, held), built(moved, held)
        fixed = eqx.tree_at(lambda d: d.matrix_per_vector, moved, design.matrix_per_vector)
        return jnp.log(jnp.stack([
            silicon.total, silicon.one_die, silicon.footprint, silicon.interposer, silicon.shoreline_needed,
            1.0 / made.peak_flops_per_s[BF16], made.leakage_power_w, made.standby_power_w, made.hbm_bandwidth_bytes_per_s,
            rated_power_w(built(fixed, held)),
        ]))  # fmt: skip

    hessians = in_numpy(jax.hessian(logs))
    samples = np.random.default_rng(0).uniform(-1.5, 1.5, (64, len(free)))
    assert np.linalg.eigvalsh(hessians(samples)).min() > -1e-10


def test_the_shoreline_is_not_convex():
    """As its docstring says: what is marked is marked for a reason."""
    design, held = pair()

    def ratio(x):
        moved = scaled(scaled(design, "sram_bytes", jnp.exp(x[0])), "hbm_stacks", jnp.exp(x[1]))
        return -margins(moved, held).shoreline

    assert np.linalg.eigvalsh(once(jax.hessian(ratio))(np.zeros(2))).min() < -1e-4


@pytest.mark.parametrize("name", TEMPLATES)
def test_gradients_equal_central_differences(name):
    design, held = pair(name)
    logs, step = lambda d: jnp.log(outputs(d, held)), 1e-5
    jacobian = once(jax.jacobian(logs))(design)
    moved = [scaled(design, field, 1 + sign * step) for field in FIELDS for sign in (1, -1)]
    both = in_numpy(logs)(jax.tree.map(lambda *rows: np.stack(rows), *moved))
    for field, up, down in zip(FIELDS, both[::2], both[1::2], strict=True):
        exact = getattr(jacobian, field) * getattr(design, field)
        np.testing.assert_allclose((up - down) / (2 * step), exact, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("process", PROCESSES)
def test_float32_keeps_values_and_gradients(process):
    double_pair = pair(technology=process)
    single_pair = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), double_pair)
    slope = quick_jit(jax.jacobian(lambda d, t: jnp.log(outputs(d, t))))
    for made in (outputs, slope):
        for wide, narrow in zip(jax.tree.leaves(made(*double_pair)), jax.tree.leaves(made(*single_pair)), strict=True):
            assert np.isfinite(narrow).all() and narrow.dtype == jnp.float32
            np.testing.assert_allclose(narrow, wide, rtol=2e-4, atol=1e-6 * float(np.abs(wide).max()))


def test_mapped_equals_single():
    pairs = [pair(name) for name in TEMPLATES]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *pairs)
    mapped = quick_jit(jax.vmap(outputs))(*stacked)
    for row, held in zip(mapped, pairs, strict=True):
        np.testing.assert_allclose(row, outputs(*held), rtol=1e-12)


def test_newer_nodes_do_more_with_the_same_silicon():
    made = [built(*pair(technology=node)) for node in ("16nm", "7nm", "5nm", "3nm", "2nm")]
    peaks = [float(each.peak_flops_per_s[BF16]) for each in made]
    energies = [float(each.core_power_w / each.peak_flops_per_s[BF16]) for each in made]
    assert peaks == sorted(peaks) and energies == sorted(energies, reverse=True)


def test_technologies_stand_alone():
    for name in PROCESSES:
        held = technology(name)
        assert held.logic_density_per_m2 > 1e13 and held.matmul_efficiency.shape == (len(PRECISIONS),)
    assert technology("3nm", memory="hbm4").hbm_bandwidth_bytes_per_s > technology("3nm").hbm_bandwidth_bytes_per_s


def test_nonsense_is_refused_in_one_line(tmp_path):
    for call, complaint in (
        (lambda: chip_design("h10"), "unknown name 'h10'"),
        (lambda: chip_design("groq-lpu"), "cannot be modeled: no HBM"),
        (lambda: chip_design("h100-sxm", technology="4nm"), "unknown name '4nm'"),
        (lambda: technology("5nm", memory="ddr5"), "unknown name 'ddr5'"),
    ):
        with pytest.raises(UserError, match=complaint) as refused:
            call()
        assert "\n" not in str(refused.value)
    text = (data_root() / "designs" / "h100-sxm.toml").read_text(encoding="utf-8")
    small = tmp_path / "small.toml"
    small.write_text(text.replace("value = 814", "value = 100"))
    with pytest.raises(UserError, match="fill all of its 100 mm2"):
        chip_design(small)
