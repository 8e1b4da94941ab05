"""What a calibration moves never leaves physics, and nothing moves by itself."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwopt import catalog
from hwopt.hardware.calibration import CONSTANTS, Scopes, family_of, moved

CLUSTER = catalog.cluster("h100-sxm", 64, constants=catalog.LITERATURE)
SHIFTS = st.fixed_dictionaries({constant.name: st.floats(-8.0, 8.0) for constant in CONSTANTS})
FRACTIONS = (
    "attention_forward_efficiency", "attention_backward_efficiency", "expert_gemm_factor", "tp_overlap", "cp_overlap",
    "ep_overlap", "pp_overlap", "dp_overlap", "gather_efficiency",
)  # fmt: skip


def _leaves(cluster):
    parts = (cluster.chip, cluster.network, cluster.stack)
    return {
        f.name: np.asarray(getattr(part, f.name))
        for part in parts
        for f in dataclasses.fields(part)
        if f.name != "capabilities"  # limits of searches, no numbers of the model
        and getattr(part, f.name) is not None
    }


@settings(deadline=None, max_examples=60)
@given(SHIFTS)
def test_no_shift_leaves_physics(shifts):
    shifted = moved(CLUSTER, shifts, np)
    for value in (shifted.chip.matmul_efficiency, shifted.chip.hbm_efficiency, shifted.network.efficiency):
        assert np.all((value > 0.0) & (value <= 1.0))
    for name in FRACTIONS:
        assert 0.0 <= float(getattr(shifted.stack, name)) <= 1.0
    for name in ("elementwise_passes", "routing_passes", "optimizer_passes"):
        assert float(getattr(shifted.stack, name)) >= 1.0
    assert all(np.all(value >= 0.0) for value in _leaves(shifted).values())


def test_no_shift_moves_nothing():
    same = moved(CLUSTER, {constant.name: 0.0 for constant in CONSTANTS}, np)
    for name, value in _leaves(CLUSTER).items():
        np.testing.assert_allclose(_leaves(same)[name], value, rtol=1e-12)


def test_numpy_and_a_trace_agree():
    shifts = {constant.name: 0.1 * (i - 5) for i, constant in enumerate(CONSTANTS)}
    with jax.enable_x64(True):
        traced = jax.jit(moved)(CLUSTER, {name: np.float64(value) for name, value in shifts.items()})
    plain = moved(CLUSTER, shifts, np)
    for name, value in _leaves(plain).items():
        np.testing.assert_allclose(_leaves(traced)[name], value, rtol=1e-12)


def test_what_is_off_or_ideal_stays():
    ideal = catalog.cluster("h100-sxm", 64, stack="ideal", constants=catalog.LITERATURE)
    shifted = moved(ideal, {"tp_overlap": -2.0, "elementwise": 3.0, "attention_forward": -1.0}, np)
    assert shifted.stack.tp_overlap == 1.0 and shifted.stack.elementwise_passes == 1.0
    assert shifted.stack.attention_forward_efficiency == 1.0
    eager = catalog.cluster("h100-sxm", 64, stack="torch-fsdp-2023", constants=catalog.LITERATURE)
    assert moved(eager, {"tp_overlap": 2.0}, np).stack.tp_overlap == 0.0


@pytest.mark.parametrize("constant", CONSTANTS, ids=lambda c: c.name)
def test_every_constant_moves_something_and_says_what(constant):
    # A stack in which nothing is off, so that every constant has something to move.
    stack = dataclasses.replace(
        CLUSTER.stack, ep_overlap=np.float64(0.5), gather_efficiency=np.float64(0.7), tp_overlap=np.float64(0.5)
    )
    cluster = dataclasses.replace(CLUSTER, stack=stack)
    before, after = _leaves(cluster), _leaves(moved(cluster, {constant.name: 0.3}, np))
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == set(constant.fields)
    assert constant.meaning and constant.prior and all(sd > 0.0 for sd in constant.prior.values())


def test_scopes_add_up():
    scopes = Scopes.of(["ampere", "hopper"], ["nemo-2024"])
    shifts = np.arange(1.0, len(scopes.entries) + 1.0)
    names = [constant.name for constant in CONSTANTS]
    total = dict(zip(names, scopes.membership("hopper", ["nemo-2024"]) @ shifts, strict=True))
    own = {("gemm_efficiency", "all"), ("gemm_efficiency", "family:hopper")}
    expected = sum(shift for entry, shift in zip(scopes.entries, shifts, strict=True) if entry in own)
    assert float(total["gemm_efficiency"]) == pytest.approx(expected)
    stranger = scopes.membership("tpu", ["jax-maxtext-tpu"]) @ shifts
    shared = shifts[scopes.entries.index(("gemm_efficiency", "all"))]
    assert stranger[names.index("gemm_efficiency")] == shared
    assert family_of("cdna3") == family_of("cdna2") == "cdna" and family_of("tpu") == "tpu"


def test_a_release_keeps_the_shifts_of_those_before_it():
    """And adds its own: 0.1 of the older, 0.02 of the newer."""
    scopes = Scopes.of([], ["nemo-2025", "megatron-bridge-2026"])
    shifts = np.array(
        [{"stack:nemo-2025": 0.1, "stack:megatron-bridge-2026": 0.02}.get(of, 0.0) for _, of in scopes.entries]
    )
    fitted = catalog.Calibration("two releases", scopes, shifts)
    assert catalog.line_of("megatron-bridge-2026")[:3] == ("megatron-bridge-2026", "nemo-2025", "nemo-2024")
    assert catalog.line_of("prime-rl-2026") == ("prime-rl-2026",)  # on torchtitan's constants, not in its line
    assert catalog.line_of("my own") == ("my own",)
    assert fitted.totals("hopper", "nemo-2025")["elementwise"] == pytest.approx(0.1)
    assert fitted.totals("hopper", "megatron-bridge-2026")["elementwise"] == pytest.approx(0.12)
