"""GEMMs by hand: what small shapes, grouped experts and casts of weights cost."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.model.chip.roofline import HALF_SIZE_RATE, fastest_seconds_per_flop, gemm_time, half_size_growth
from hwopt.model.layers.work import GEMMS, Gemms, places
from hwopt.model.numerics.maximum import hard_maximum
from hwopt.types import PRECISIONS
from tests.cases import replace

CHIP, STACK = catalog.chip("a100-80"), catalog.stack("megatron-2023")
LARGE = 1e9


def run_in(precision: str):
    return catalog.training_run("llama3.1-8b", global_batch=128, precision=precision)


def gemm(name: str = "mlp_up", m: float = LARGE, chip=CHIP, precision: str = "bf16", **stack):
    """(compute, memory, HBM) seconds of one product of m rows and many columns and inner elements."""
    one = np.array([float(each == name) for each in GEMMS])
    in_experts = places(run_in(precision).model).experts
    table = Gemms(m * one, LARGE * one, LARGE * one, LARGE * one, one, one, in_experts)
    with jax.enable_x64(True):
        time = gemm_time(table, run_in(precision), chip, replace(STACK, **stack), hard_maximum)
        at = GEMMS.index(name)
        return tuple(float(part[at]) for part in (time.compute_s, time.memory_s, time.hbm_s))


def test_the_half_size_is_that_of_an_a100():
    assert CHIP.peak_flops_per_s[2] == HALF_SIZE_RATE
    ideal = gemm(gemm_half_size=0.0)[0] / LARGE
    assert gemm(m=100.0, gemm_half_size=100.0)[0] == pytest.approx(2.0 * 100.0 * ideal, rel=1e-6)


@pytest.mark.parametrize("faster", [0.125, 8.0])
def test_a_faster_chip_needs_larger_products(faster):
    """By the cube root of its 16-bit rate: eight times the rate, twice the half size."""
    other = replace(CHIP, peak_flops_per_s=faster * CHIP.peak_flops_per_s)
    ideal = gemm(chip=other, gemm_half_size=0.0)[0] / LARGE
    half = 100.0 * faster ** (1.0 / 3.0)
    assert gemm(m=half, chip=other, gemm_half_size=100.0)[0] == pytest.approx(2.0 * half * ideal, rel=1e-6)
    slower_clock = replace(other, clock_ratio=1.0 / faster)
    assert gemm(m=100.0, chip=slower_clock, gemm_half_size=100.0) == gemm(m=100.0, gemm_half_size=100.0)


def test_32_bit_fills_a_chip_by_its_own_rate():
    """V100: an eighth of the 16-bit rate, half the half size; formats of matrix units keep that of 16 bit."""
    chip = catalog.chip("v100")
    rates = chip.peak_flops_per_s
    for precision, rate in (("fp32", rates[PRECISIONS.index("fp32")]), ("fp16", rates[PRECISIONS.index("bf16")])):
        half = 100.0 * (float(rate) / HALF_SIZE_RATE) ** (1.0 / 3.0)
        ideal = gemm(chip=chip, precision=precision, gemm_half_size=0.0)[0] / LARGE
        slow = gemm(m=half, chip=chip, precision=precision, gemm_half_size=100.0)[0]
        assert slow == pytest.approx(2.0 * half * ideal, rel=1e-6), precision
    assert gemm(m=100.0, precision="tf32", gemm_half_size=100.0)[0] == pytest.approx(
        gemm(m=100.0, gemm_half_size=100.0)[0] * gemm(precision="tf32")[0] / gemm()[0], rel=1e-6
    )


def test_runs_partly_in_32_bit_have_half_sizes_between():
    chip = catalog.chip("v100")
    mixes = np.zeros((3, len(PRECISIONS)))
    mixes[:, PRECISIONS.index("fp32")] = 0.0, 0.5, 1.0
    mixes[:, PRECISIONS.index("bf16")] = 1.0, 0.5, 0.0
    narrow, mixed, full = (float(half_size_growth(chip, replace(run_in("bf16"), gemm_precision=mix))) for mix in mixes)
    assert full < mixed < narrow
    assert mixed == pytest.approx((narrow + full) / 2.0, rel=1e-6)


@pytest.mark.parametrize("name", GEMMS)
def test_grouped_products_are_those_of_experts(name):
    plain, grouped = (gemm(name, expert_gemm_factor=x)[0] for x in (1.0, 0.5))
    assert grouped == pytest.approx(plain * (2.0 if name in ("expert_up", "expert_down") else 1.0), rel=1e-12)


def test_casts_cover_inputs_and_a_share_of_the_weights():
    """Read in 16 bit, written in 8: three bytes an element of the input, and of the weights that are cast anew."""
    chip = catalog.chip("h100-sxm")
    rate = float(chip.hbm_bandwidth_bytes_per_s * chip.hbm_efficiency)
    m, passes = 1e6, 2.0

    def casts(share):
        with_casts, none = (
            gemm(m=m, chip=chip, precision="fp8", cast_passes=x, weight_cast_share=share)[2] for x in (passes, 0.0)
        )
        return with_casts - none

    assert casts(0.0) == pytest.approx(passes * 3.0 * m * LARGE / rate, rel=1e-6)
    assert casts(0.25) == pytest.approx(passes * 3.0 * (m + 0.25 * LARGE) * LARGE / rate, rel=1e-6)
    assert gemm(m=m, chip=chip, cast_passes=2.0, weight_cast_share=1.0) == gemm(m=m, chip=chip, cast_passes=0.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_formats_are_one(dtype):
    """Without narrow formats all of a mix stays wide: the slope by a format is its seconds a FLOP, not what rounding picks."""
    with jax.enable_x64(dtype is np.float64):
        chip, run = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), (CHIP, run_in("bf16")))
        own_s = 1.0 / (chip.peak_flops_per_s * chip.matmul_efficiency * chip.clock_ratio)
        slope = jax.jit(jax.grad(lambda run: fastest_seconds_per_flop(chip, run)))
        rng, at = np.random.default_rng(6), PRECISIONS.index("bf16")
        for _ in range(50):
            mix = np.zeros(len(PRECISIONS), dtype)
            mix[: at + 1] = rng.dirichlet(np.ones(at + 1))
            found = slope(eqx.tree_at(lambda run: run.gemm_precision, run, mix)).gemm_precision
            np.testing.assert_allclose(found, own_s, rtol=1e-5)
