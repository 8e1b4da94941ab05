"""Time of kernels on one chip: roofline with efficiencies that fall smoothly with small shapes."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.hardware.chip import Chip
from hwopt.model.layers.work import IN_EXPERTS, Gemms, PerGemm, gemm_bytes_per_element
from hwopt.model.numerics.maximum import Maximum, above_zero, pick
from hwopt.stack import Stack
from hwopt.types import PRECISIONS, Elementwise, Scalar
from hwopt.workload.service import Service
from hwopt.workload.training import TrainingRun

_FP32, _BF16 = PRECISIONS.index("fp32"), PRECISIONS.index("bf16")

HALF_SIZE_RATE = 3.12e14
"""16-bit rate, FLOP/s, at which a stack's `gemm_half_size` is stated: an A100's."""


class KernelTime(NamedTuple):
    """Time of kernels, split by what bounds them; the first three parts add up to the whole, power follows from the others."""

    compute_s: Array  # at the arithmetic peak, efficiency included
    memory_s: Array  # what HBM traffic adds beyond that
    launch_s: Array  # gaps between kernels
    hbm_s: Array  # in which HBM is busy, under compute or not
    arithmetic_s: Array  # what `compute_s` is at the clock asked for
    core_s: Array  # the same, by the energy that it takes at the clock that is kept

    @classmethod
    def as_asked(cls, compute_s: Array, memory_s: Array, launch_s: Array, hbm_s: Array) -> KernelTime:
        """Of kernels at the clock asked for."""
        return cls(compute_s, memory_s, launch_s, hbm_s, compute_s, compute_s)

    @property
    def total_s(self) -> Array:
        return self.compute_s + self.memory_s + self.launch_s

    def scaled(self, factor: Array | float) -> KernelTime:
        """The same work `factor` times."""
        return KernelTime(*(part * factor for part in self))

    def plus(self, other: KernelTime) -> KernelTime:
        return KernelTime(*(a + b for a, b in zip(self, other, strict=True)))

    def summed(self, weights: Array | np.ndarray) -> KernelTime:
        """Weighted sum over the gemm axis."""
        return KernelTime(*(jnp.sum(part * weights) for part in self))


def hbm_seconds_per_byte(chip: Chip) -> Scalar:
    """Reciprocal of the attainable HBM bandwidth, s/B (a product with it keeps float32 gradients in range)."""
    return 1.0 / (chip.hbm_bandwidth_bytes_per_s * chip.hbm_efficiency)


def bf16_rate(chip: Chip) -> Scalar:
    """Dense 16-bit peak at the present clock, FLOP/s."""
    return chip.peak_flops_per_s[_BF16] * chip.clock_ratio


def fp32_rate(chip: Chip) -> Scalar:
    """Dense 32-bit peak at the present clock, FLOP/s."""
    return chip.peak_flops_per_s[_FP32] * chip.clock_ratio


def half_size_growth(chip: Chip, run: TrainingRun | Service) -> Scalar:
    """Half size of a product over the stack's: `(rate / HALF_SIZE_RATE)^(1/3)` by the 16-bit rate; of runs in 32 bit the mean of
    that and the same by the 32-bit rate, by share.

    What a kernel takes to start and drain is a time. Formats of matrix units share tiles and pipelines, and their measured products
    the 16-bit rate's half size; 32 bit runs outside of these units on most chips, many times slower (V100: 8), and fills sooner.
    A mean of half sizes, not of rates: so it is a posynomial, and the time of a product is one. No mix has been measured.
    """
    share = run.gemm_precision[_FP32]
    narrow, full = ((rate * (1.0 / HALF_SIZE_RATE)) ** (1.0 / 3.0) for rate in (bf16_rate(chip), fp32_rate(chip)))
    return jnp.where(share > 0.0, (1.0 - share) * narrow + share * full, narrow)


def seconds_per_flop(chip: Chip, run: TrainingRun | Service) -> tuple[Scalar, Scalar]:
    """Seconds a FLOP of a large GEMM takes in the run's mix of formats, and where it stays wide.

    `sum_p share_p / (peak_p eff_p f/f_0)`: formats run one after the other, so times add.
    """
    each = 1.0 / (chip.peak_flops_per_s * chip.matmul_efficiency * chip.clock_ratio)
    return jnp.sum(run.gemm_precision * each), _wide(run, each)


def _wide(run: TrainingRun | Service, each: Array) -> Scalar:
    """Mean of a number by format over what stays wide: attention, router and logits run in 16 bit, or in the run's own
    format where that is wider.
    """
    wider, narrower = run.gemm_precision[:_BF16], run.gemm_precision[_BF16:]
    return jnp.sum(wider * each[:_BF16]) + jnp.sum(narrower) * each[_BF16]


def wide_rate(chip: Chip, run: TrainingRun | Service) -> Scalar:
    """Dense peak of what stays wide, at the present clock, FLOP/s; efficiencies of attention kernels refer to it."""
    return chip.clock_ratio / _wide(run, 1.0 / chip.peak_flops_per_s)


_UNPACKED_BYTES = 0.9
"""By which stored weights are narrower than what multiplies them where kernels unpack them: 4 or 8 bit before 16. Units multiply
4 by 8 bit, and mixtures of formats are apart by less."""

_EQUAL = 1e-6
"""Relative difference of two rates up to which they are one: rounding of float32."""


def fastest_peak(chip: Chip, run: TrainingRun | Service) -> Scalar:
    """Dense peak of the run's formats at the clock asked for, FLOP/s: what an MFU divides by.

    The mix of the GEMMs' formats, or what stays wide where that is faster (chips whose 8-bit integers are an afterthought), so
    that no run is above it.
    """
    mix = chip.clock_ratio / jnp.sum(run.gemm_precision / chip.peak_flops_per_s)
    wide = wide_rate(chip, run)
    # Equal where one format does all: then its gradient is the mix's.
    return pick(wide > mix * (1.0 + _EQUAL), wide, mix)


def fastest_seconds_per_flop(chip: Chip, run: TrainingRun | Service) -> Scalar:
    """Seconds that a FLOP takes at least, in large GEMMs of the fastest of the run's formats."""
    low_s, wide_s = seconds_per_flop(chip, run)
    return pick(wide_s * (1.0 + _EQUAL) < low_s, wide_s, low_s)  # where no format is narrow the two are equal


def sram_traffic_factor(chip: Chip, element_bytes: Elementwise) -> Elementwise:
    """HBM bytes a multiply-add costs when operands are blocked in SRAM of S bytes: `2 e / sqrt(S / (3 e))`.

    Three square blocks share S. This is what SRAM area buys.

    **Source:** Hong and Kung 1981; Kwasniewski et al. 2019 give the constant of the bound as 2 m n k / sqrt(S).
    """
    return 2.0 * element_bytes * jnp.sqrt(3.0 * element_bytes / chip.sram_bytes)


def gemm_time(
    table: Gemms,
    run: TrainingRun | Service,
    chip: Chip,
    stack: Stack,
    maximum: Maximum,
    weight_element: Scalar | None = None,
    *,
    in_experts: np.ndarray = IN_EXPERTS,
    inner_read: Array | None = None,
) -> KernelTime:
    """Time of each GEMM of the table, forward; backward each gradient costs the same products.

    `max(2 m n k / (peak eff) (1 + r g/m)(1 + g/n)(1 + g/k), bytes / HBM) + casts / HBM + launch + start`, bytes the larger of
    the compulsory ones and those of blocking in SRAM; casts to a low format are kernels of their own.

    **Arguments:** `weight_element`: bytes of a stored weight of products in the low format, where it is another than theirs;
    `in_experts`: 1 for products that run grouped by expert; `inner_read`: elements of a row that are read from memory, where they
    are not all k.

    **Returns:** s, shape (gemm,); zero for GEMMs the model lacks.
    """
    present = table.n > 0
    # Guarded on both sides: shapes of an absent GEMM never enter a quotient, so its gradients are exact zeros.
    m, n, k, n_launched = (jnp.where(present, x, 1.0) for x in (table.m, table.n, table.k, table.n_launched))
    # What a kernel takes to start and to drain is a time: the faster the chip, the larger the product it equals.
    half = stack.gemm_half_size * half_size_growth(chip, run)
    rows = half * ((1.0 - in_experts) * stack.gemm_row_share + in_experts * stack.expert_row_share)
    shape_loss = (1.0 + rows / m) * (1.0 + half / n_launched) * (1.0 + half / k)
    low_s, wide_s = seconds_per_flop(chip, run)
    per_flop = table.low_precision * low_s + (1.0 - table.low_precision) * wide_s
    low_bytes = gemm_bytes_per_element(run)
    grouped = stack.expert_gemm_factor
    if weight_element is not None:
        unpacked = table.low_precision * jnp.where(low_bytes - weight_element > _UNPACKED_BYTES, 1.0, 0.0)
        grouped = grouped * (1.0 - unpacked * (1.0 - stack.expert_unpacking))
    grouped = 1.0 + in_experts * (1.0 / grouped - 1.0)
    compute = 2.0 * m * n * k * table.count * per_flop * (1.0 / stack.gemm_efficiency_factor) * grouped * shape_loss

    element = table.low_precision * low_bytes + (1.0 - table.low_precision) * 2.0
    weight = element if weight_element is None else table.low_precision * (weight_element - low_bytes) + element
    read = k if inner_read is None else inner_read
    compulsory = m * read * element + k * n * weight + m * n * 2.0
    blocked = m * n * k * sram_traffic_factor(chip, element)
    casts = table.low_precision * _cast_bytes(m, n, k, low_bytes, stack)
    memory = maximum(compulsory, blocked) * table.count * hbm_seconds_per_byte(chip)
    cast_s = casts * table.count * hbm_seconds_per_byte(chip)  # kernels of their own
    slowest = maximum(compute, memory) + cast_s
    narrow = table.low_precision * above_zero(2.0 - 2.0 * low_bytes)  # 1 at 4 bit, 0 from 8 on
    launch = (stack.kernel_launch_s + stack.gemm_start_s) * jnp.ones_like(compute) + narrow * stack.cast_start_s
    each = KernelTime.as_asked(compute, slowest - compute, launch, memory + cast_s)
    return KernelTime(*(jnp.where(present, part, 0.0) for part in each))


def _cast_bytes(m: PerGemm, n: PerGemm, k: PerGemm, low_bytes: Scalar, stack: Stack) -> PerGemm:
    """Bytes of turning 16-bit inputs, and where they are not kept weights, into the low format.

    None at 16 bit, read 2 and write `low` a pass below.
    """
    share = 1.0 - above_zero(low_bytes - 1.0) + above_zero(low_bytes - 2.0)
    return stack.cast_passes * share * (m + stack.weight_cast_share * n) * k * (2.0 + low_bytes)


def kernel_time(
    flops: Scalar, rate: Scalar, hbm_bytes: Scalar, chip: Chip, kernels: Scalar | float, stack: Stack, maximum: Maximum
) -> KernelTime:
    """One roofline kernel group: `max(flops / rate, bytes / HBM) + kernels x launch`."""
    compute, memory = flops * (1.0 / rate), hbm_bytes * hbm_seconds_per_byte(chip)
    return KernelTime.as_asked(compute, maximum(compute, memory) - compute, kernels * stack.kernel_launch_s, memory)


def stream_time(hbm_bytes: Scalar, chip: Chip, kernels: Scalar | float, stack: Stack) -> KernelTime:
    """Kernels that only move memory: `bytes / HBM + kernels x launch`."""
    memory = hbm_bytes * hbm_seconds_per_byte(chip)
    return KernelTime.as_asked(jnp.zeros_like(memory), memory, kernels * stack.kernel_launch_s, memory)
