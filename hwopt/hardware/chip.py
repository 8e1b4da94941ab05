"""One accelerator, from its datasheet and measured efficiencies, or from a `ChipDesign`."""

import equinox as eqx

from hwopt.quantity import computed, quantity, ratio
from hwopt.types import PerPrecision, Scalar


class Chip(eqx.Module):
    """An accelerator. Arrays over formats (`PerPrecision`) follow the order of `hwopt.types.PRECISIONS`.

    `clock_ratio` is the requested clock over the nominal clock, at which peaks and powers are stated. Peaks scale with
    f, dynamic compute power with V(f)^2 f. Power and heat may limit the sustained clock to less
    (`hwopt.model.chip.thermal`).
    """

    peak_flops_per_s: PerPrecision = quantity(
        "FLOP/s", "dense, at nominal clock; formats without own units hold the peak of the format they run in"
    )
    matmul_efficiency: PerPrecision = ratio("best measured large GEMM over peak")
    clock_ratio: Scalar = computed("", "clock asked for over the nominal one")
    sold_clock_ratio: Scalar = computed("", "clock that the chip is made to reach over the nominal one")
    threshold_voltage_fraction: Scalar = ratio("V_t / V at nominal clock, in V = V_t + kappa f")
    sram_bytes: Scalar = quantity("B", "last-level on-chip memory that a GEMM can block in")
    hbm_bandwidth_bytes_per_s: Scalar = quantity("B/s", "of all stacks", key="memory_bandwidth")
    hbm_capacity_bytes: Scalar = quantity("B", "of all stacks", key="memory_capacity")
    hbm_efficiency: Scalar = ratio("best measured stream over peak", key="memory_efficiency")
    power_cap_w: Scalar = computed("W", "above it the clock falls: a datasheet's TDP, or what a question allows")
    standby_power_w: Scalar = computed("W", "drawn without work at any temperature: clocks, refresh, idle I/O")
    scale_up_idle_j_per_byte: Scalar = computed("J/B", "of standby, what a B/s of scale-up links draws in SerDes")
    leakage_power_w: Scalar = quantity(
        "W", "of the silicon at nominal voltage and `LEAKAGE_REFERENCE_K`", follows="leakage_fraction"
    )
    leakage_per_k: Scalar = quantity(
        "1/K", "relative growth of leakage with junction temperature", key="leakage_growth"
    )
    core_power_w: Scalar = computed("W", "dynamic power of the compute dies at nominal clock and full load")
    hbm_energy_j_per_byte: Scalar = quantity("J/B", "of a byte read or written", key="memory_energy")
    host_bytes_per_s: Scalar = quantity(
        "B/s",
        "per direction, of all links but those of its domain: to host, CPU or NIC",
        key="host_bandwidth",
        default=0.0,
    )
    nic_link_bytes_per_s: Scalar = quantity(
        "B/s", "per direction, of the link to its NICs, which they cannot exceed; 0: no limit; default the host link",
        key="nic_link", default=0.0,
    )  # fmt: skip
    host_slowness: Scalar = ratio(
        "time of one thread's work for a pass on its host, over that on a server with x86 processors", default=1.0
    )
    silicon_area_m2: Scalar = quantity("m2", "of the compute dies", key="die_area")
    logic_area_m2: Scalar = computed("m2", "of all dies but memory: compute dies and those below them")
    heat_area_m2: Scalar = quantity(
        "m2", "that heat leaves through: the dies under the lid, or base dies that carry stacked ones", default=0.0
    )
    hbm_stacks: Scalar = ratio("memory stacks of the package", key="memory_stacks", default=0.0)
    wafers: Scalar = ratio("wafers that one good chip takes", default=0.0)
    package_area_m2: Scalar = quantity("m2", "of the interposer", default=0.0)
    embodied_carbon_kg: Scalar = quantity("kg", "of making dies, memory and package", default=0.0)


LEAKAGE_REFERENCE_K = 348.15
"""Junction temperature (75 degC) at which leakage is stated: the upper end of a good steady state.

**Source:** Bekman, Machine Learning Engineering (70 to 75 degC; throttling starts at 84 to 90)."""
