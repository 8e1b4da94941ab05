"""One accelerator, as its datasheet and its measured ceilings describe it, or as a `ChipDesign` yields it."""

from __future__ import annotations

import equinox as eqx

from hwopt.types import PerPrecision, Scalar


class Chip(eqx.Module):
    """An accelerator. Arrays named "precision" follow `hwopt.types.PRECISIONS`.

    `clock_ratio` is the clock asked for, over the nominal one at which peaks and powers are stated: peaks grow with f,
    dynamic compute power with V(f)^2 f. The clock that power and heat sustain may be lower (`hwopt.model.thermal`).
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
    power_cap_w: Scalar  # the clock falls where full load would draw more; a datasheet's TDP
    standby_power_w: Scalar  # drawn without work at any temperature: clocks, refresh, idle I/O
    leakage_power_w: Scalar  # of the silicon at nominal voltage and `LEAKAGE_REFERENCE_K`
    leakage_per_k: Scalar  # relative growth of leakage with junction temperature, 1/K
    core_power_w: Scalar  # dynamic power of the compute dies at nominal clock and full load
    hbm_energy_j_per_byte: Scalar
    silicon_area_m2: Scalar  # of the dies under the lid: what heat leaves through
    hbm_stacks: Scalar
    wafers: Scalar  # wafers that one good chip takes
    package_area_m2: Scalar  # of the interposer
    embodied_carbon_kg: Scalar  # of making dies, memory and package


LEAKAGE_REFERENCE_K = 348.15
"""Junction temperature (75 degC) at which leakage is stated and a TDP is drawn: the upper end of what is called a good
steady state (Bekman, Machine Learning Engineering: 70 to 75 degC; throttling starts at 84 to 90)."""
