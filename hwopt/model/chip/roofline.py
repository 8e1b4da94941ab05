"""Kernel times on one chip: a roofline with efficiencies that fall smoothly for small shapes."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.hardware.chip import Chip
from hwopt.model.layers.work import Gemms, PerGemm, gemm_bytes_per_element
from hwopt.model.numerics.maximum import Maximum, above_zero, pick
from hwopt.stack import Stack
from hwopt.types import PRECISIONS, Elementwise, Scalar
from hwopt.workload.service import Service
from hwopt.workload.training import TrainingRun

_FP32, _BF16 = PRECISIONS.index("fp32"), PRECISIONS.index("bf16")

HALF_SIZE_RATE = 3.12e14
"""16-bit rate, FLOP/s, for which a stack's `gemm_half_size` is stated: that of an A100."""


class KernelTime(NamedTuple):
    """Time of kernels, split by bottleneck.

    The total is the sum of the first three parts. Power and the sustained clock are computed from the others.
    """

    compute_s: Array  # arithmetic, efficiency included
    memory_s: Array  # HBM time not overlapped by arithmetic
    launch_s: Array  # gaps between kernels
    hbm_s: Array  # HBM busy time, overlapped by arithmetic or not
    arithmetic_s: Array  # `compute_s` at the requested clock
    core_s: Array  # `arithmetic_s` times the energy ratio of the sustained to the requested clock

    @classmethod
    def as_asked(cls, compute_s: Array, memory_s: Array, launch_s: Array, hbm_s: Array) -> KernelTime:
        """Return the time of kernels that run at the requested clock."""
        return cls(compute_s, memory_s, launch_s, hbm_s, compute_s, compute_s)

    @property
    def total_s(self) -> Array:
        return self.compute_s + self.memory_s + self.launch_s

    def scaled(self, factor: Array | float) -> KernelTime:
        """Return the time of `factor` times the work."""
        return KernelTime(*(part * factor for part in self))

    def plus(self, other: KernelTime) -> KernelTime:
        return KernelTime(*(a + b for a, b in zip(self, other, strict=True)))

    def summed(self, weights: Array | np.ndarray) -> KernelTime:
        """Return the weighted sum over the GEMM axis."""
        return KernelTime(*(jnp.sum(part * weights) for part in self))


def hbm_seconds_per_byte(chip: Chip) -> Scalar:
    """Return the reciprocal of the attainable HBM bandwidth, s/B (multiplying by it keeps float32 gradients in range)."""
    return 1.0 / (chip.hbm_bandwidth_bytes_per_s * chip.hbm_efficiency)


def bf16_rate(chip: Chip) -> Scalar:
    """Return the dense 16-bit peak at the present clock, FLOP/s."""
    return chip.peak_flops_per_s[_BF16] * chip.clock_ratio


def fp32_rate(chip: Chip) -> Scalar:
    """Return the dense 32-bit peak at the present clock, FLOP/s."""
    return chip.peak_flops_per_s[_FP32] * chip.clock_ratio


def half_size_growth(chip: Chip, run: TrainingRun | Service) -> Scalar:
    """Return the GEMM half size of this chip over the stack's: `(rate / HALF_SIZE_RATE)^(1/3)` by the 16-bit rate.

    The half size is the matrix dimension at which a GEMM dimension costs twice its ideal time. It grows with the rate because a
    kernel's start and drain take a fixed time. Formats of the matrix units share tiles and pipelines, and their measured GEMMs
    fit the 16-bit rate's half size. On most chips 32-bit arithmetic runs outside these units, many times slower (V100: 8), and
    fills sooner. Runs with a 32-bit share use the mean of the factors of both rates, weighted by share. A mean of half sizes,
    not of rates, is a posynomial, and so is the GEMM time. No mix has been measured.
    """
    share = run.gemm_precision[_FP32]
    narrow, full = ((rate * (1.0 / HALF_SIZE_RATE)) ** (1.0 / 3.0) for rate in (bf16_rate(chip), fp32_rate(chip)))
    return jnp.where(share > 0.0, (1.0 - share) * narrow + share * full, narrow)


def seconds_per_flop(chip: Chip, run: TrainingRun | Service) -> tuple[Scalar, Scalar]:
    """Return the seconds per FLOP of a large GEMM in the run's mix of formats, and of operations in wide formats.

    `sum_p share_p / (peak_p eff_p f/f_0)`: formats run one after the other, so times add. Attention, router and logits run in
    wide formats: 16 bit or more (see `_wide`).
    """
    each = 1.0 / (chip.peak_flops_per_s * chip.matmul_efficiency * chip.clock_ratio)
    return jnp.sum(run.gemm_precision * each), _wide(run, each)


def _wide(run: TrainingRun | Service, each: Array) -> Scalar:
    """Return the mean of a per-format number over operations in wide formats: attention, router and logits.

    They run in 16 bit, or in the run's own format where that is wider.

    **Arguments:** `each`: the number for each format, shape (precision,).
    """
    wider, narrower = run.gemm_precision[:_BF16], run.gemm_precision[_BF16:]
    return jnp.sum(wider * each[:_BF16]) + jnp.sum(narrower) * each[_BF16]


def wide_rate(chip: Chip, run: TrainingRun | Service) -> Scalar:
    """Return the dense peak for operations in wide formats (attention, router, logits) at the present clock, FLOP/s.

    Efficiencies of attention kernels refer to this peak.
    """
    return chip.clock_ratio / _wide(run, 1.0 / chip.peak_flops_per_s)


_UNPACKED_BYTES = 0.9
"""Least difference in bytes between a GEMM operand and its stored weight from which kernels must unpack the weight.

Kernels unpack 4 or 8 bit to 16. Matrix units multiply 4 by 8 bit directly, and mixtures of formats differ by less.
"""

_EQUAL = 1e-6
"""Relative difference up to which two rates count as equal: rounding of float32."""


def fastest_peak(chip: Chip, run: TrainingRun | Service) -> Scalar:
    """Return the dense peak of the run's formats at the requested clock, FLOP/s: the denominator of MFU.

    It is the peak of the mix of GEMM formats, or that of wide formats if that is higher, so that no run exceeds it. The latter
    occurs on chips with slow 8-bit integer units.
    """
    mix = chip.clock_ratio / jnp.sum(run.gemm_precision / chip.peak_flops_per_s)
    wide = wide_rate(chip, run)
    # With a single format both peaks are equal; the gradient is then that of the mix.
    return pick(wide > mix * (1.0 + _EQUAL), wide, mix)


def fastest_seconds_per_flop(chip: Chip, run: TrainingRun | Service) -> Scalar:
    """Return the least seconds per FLOP: large GEMMs in the fastest of the run's formats."""
    low_s, wide_s = seconds_per_flop(chip, run)
    return pick(wide_s * (1.0 + _EQUAL) < low_s, wide_s, low_s)  # equal where no format is narrow


def sram_traffic_factor(chip: Chip, element_bytes: Elementwise) -> Elementwise:
    """Return the HBM bytes per multiply-add when operands are blocked in SRAM of S bytes: `2 e / sqrt(S / (3 e))`.

    Three square blocks of elements of e bytes share S. Thus more SRAM reduces HBM traffic.

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
    inner_read: Array | None = None,
) -> KernelTime:
    """Return the time of each GEMM of the table, forward; in the backward pass each gradient costs the same GEMMs.

    `max(2 m n k / (peak eff) (1 + r g/m)(1 + g/n)(1 + g/k), bytes / HBM) + casts / HBM + launch + start`. g is the half size, r
    the row share, which for experts whose weights are not stored in 8 bit is multiplied by `Stack.expert_tile_share`. Bytes are the
    larger of compulsory traffic and traffic of blocking in SRAM. Casts to a narrow format are separate kernels.

    **Arguments:**
    - `table`: GEMM shapes m, n, k, counts and formats;
    - `weight_element`: bytes of a stored weight of GEMMs in the narrow format, where they differ from the GEMM's format;
    - `inner_read`: elements of a row that are read from memory, where they are not all k.

    **Returns:** s, shape (gemm,); zero for GEMMs that the model lacks.
    """
    present = table.n > 0
    # Guard inputs and outputs: shapes of an absent GEMM never enter a quotient, so its gradients are exact zeros.
    m, n, k, n_launched = (jnp.where(present, x, 1.0) for x in (table.m, table.n, table.k, table.n_launched))
    # Start and drain take a fixed time: the faster the chip, the larger the GEMM that takes as long.
    half = stack.gemm_half_size * half_size_growth(chip, run)
    in_experts, low_bytes = table.in_experts, gemm_bytes_per_element(run)
    grouped, share = stack.expert_gemm_factor, stack.expert_row_share
    if weight_element is not None:  # a pass that serves
        unpacked = table.low_precision * jnp.where(low_bytes - weight_element > _UNPACKED_BYTES, 1.0, 0.0)
        grouped = grouped * (1.0 - unpacked * (1.0 - stack.expert_unpacking))
        eight = table.low_precision * (_eight_or_less(weight_element) - above_zero(2.0 - 2.0 * weight_element))
        share = share * (eight + (1.0 - eight) * stack.expert_tile_share)
    rows = half * ((1.0 - in_experts) * stack.gemm_row_share + in_experts * share)
    shape_loss = (1.0 + rows / m) * (1.0 + half / n_launched) * (1.0 + half / k)
    low_s, wide_s = seconds_per_flop(chip, run)
    per_flop = table.low_precision * low_s + (1.0 - table.low_precision) * wide_s
    grouped = 1.0 + in_experts * (1.0 / grouped - 1.0)
    compute = 2.0 * m * n * k * table.count * per_flop * (1.0 / stack.gemm_efficiency_factor) * grouped * shape_loss

    element = table.low_precision * low_bytes + (1.0 - table.low_precision) * 2.0
    weight = element if weight_element is None else table.low_precision * (weight_element - low_bytes) + element
    read = k if inner_read is None else inner_read
    compulsory = m * read * element + k * n * weight + m * n * 2.0
    blocked = m * n * k * sram_traffic_factor(chip, element)
    casts = table.low_precision * _cast_bytes(m, n, k, low_bytes, stack)
    memory = maximum(compulsory, blocked) * table.count * hbm_seconds_per_byte(chip)
    cast_s = casts * table.count * hbm_seconds_per_byte(chip)  # separate kernels
    slowest = maximum(compute, memory) + cast_s
    narrow = table.low_precision * above_zero(2.0 - 2.0 * low_bytes)  # 1 at 4 bit, 0 from 8 bit on
    launch = (stack.kernel_launch_s + stack.gemm_start_s) * jnp.ones_like(compute) + narrow * stack.cast_start_s
    each = KernelTime.as_asked(compute, slowest - compute, launch, memory + cast_s)
    return KernelTime(*(jnp.where(present, part, 0.0) for part in each))


def _eight_or_less(low_bytes: Scalar) -> Scalar:
    """Return 1 for elements of 8 bits or fewer, 0 for 16 bits, linear in between."""
    return 1.0 - above_zero(low_bytes - 1.0) + above_zero(low_bytes - 2.0)


def _cast_bytes(m: PerGemm, n: PerGemm, k: PerGemm, low_bytes: Scalar, stack: Stack) -> PerGemm:
    """Return the bytes of casting 16-bit inputs to the narrow format, and weights where their cast is not cached.

    None at 16 bit; below, each pass reads 2 bytes and writes `low_bytes` per element.
    """
    return stack.cast_passes * _eight_or_less(low_bytes) * (m + stack.weight_cast_share * n) * k * (2.0 + low_bytes)


def kernel_time(
    flops: Scalar, rate: Scalar, hbm_bytes: Scalar, chip: Chip, kernels: Scalar | float, stack: Stack, maximum: Maximum
) -> KernelTime:
    """Return the time of one group of roofline kernels: `max(flops / rate, bytes / HBM) + kernels x launch`."""
    compute, memory = flops * (1.0 / rate), hbm_bytes * hbm_seconds_per_byte(chip)
    return KernelTime.as_asked(compute, maximum(compute, memory) - compute, kernels * stack.kernel_launch_s, memory)


def stream_time(hbm_bytes: Scalar, chip: Chip, kernels: Scalar | float, stack: Stack) -> KernelTime:
    """Return the time of kernels that only move memory: `bytes / HBM + kernels x launch`."""
    memory = hbm_bytes * hbm_seconds_per_byte(chip)
    return KernelTime.as_asked(jnp.zeros_like(memory), memory, kernels * stack.kernel_launch_s, memory)
