"""One accelerator, as its datasheet and its measured ceilings describe it."""

from __future__ import annotations

import equinox as eqx

from hwopt.types import PerPrecision, Scalar


class Chip(eqx.Module):
    """An accelerator. Arrays named "precision" follow `hwopt.types.PRECISIONS`.

    `clock_ratio` is the clock over the nominal one at which peaks and TDP are stated: peaks grow with f, dynamic
    compute power with V(f)^2 f.
    """

    peak_flops_per_s: (
        PerPrecision  # dense, at nominal clock; formats without own units hold the peak of the format they run in
    )
    matmul_efficiency: PerPrecision  # best measured large GEMM over peak
    clock_ratio: Scalar
    threshold_voltage_fraction: Scalar  # V_t / V at nominal clock, in V = V_t + kappa f
    sram_bytes: Scalar  # last-level on-chip memory that a GEMM can block in
    hbm_bandwidth_bytes_per_s: Scalar
    hbm_capacity_bytes: Scalar
    hbm_efficiency: Scalar  # best measured stream over peak
    idle_power_w: Scalar  # drawn without work: leakage, clocks, refresh
    core_power_w: Scalar  # dynamic power of the compute die at nominal clock and full load; idle + core + HBM = TDP
    hbm_energy_j_per_byte: Scalar
