"""Building blocks of chip designs: a process node, a memory generation, and a datapath layout."""

import equinox as eqx

from hwopt.quantity import quantity, ratio, switch
from hwopt.types import PerPrecision, Scalar


class Technology(eqx.Module):
    """Constants that turn a `ChipDesign` into areas, rates and powers. `hwopt.catalog.silicon` reads them.

    "Per FLOP/clk" means: per dense 16-bit matrix FLOP that all compute units, including spares, do in one cycle.
    """

    # Datapath, with the memory that feeds it in an architecture generation
    logic_density_per_m2: Scalar = quantity("1/m2", "transistors, as accelerators achieve it over a whole die")
    matrix_transistors: Scalar = ratio(
        "per FLOP/clk: multipliers, operand delivery, control that scales with them", of="datapath"
    )
    register_transistors_per_byte: Scalar = ratio(
        "of register file, with its ports, lanes and schedulers", key="register_transistors", of="datapath"
    )
    local_transistors_per_byte: Scalar = ratio(
        "of memory beside the units: L1, shared, vector memory, with its ports", key="local_transistors", of="datapath"
    )
    register_bytes: Scalar = quantity("B", "per vector FLOP/clk", key="registers", of="design")
    local_bytes: Scalar = quantity("B", "per matrix FLOP/clk", key="local_memory", of="design")
    fabric_area_per_compute: Scalar = ratio(
        "crossbars, clock spines and gaps; below stacked dies, what carries them", key="fabric", of="design"
    )
    nominal_clock_hz: Scalar = quantity(
        "Hz", "that the pipelines reach at nominal voltage", key="clock", of="design", part="node"
    )
    threshold_voltage_fraction: Scalar = ratio("V_t / V at the nominal clock", of="design")
    format_ratio: PerPrecision = ratio(
        "peak over the bf16 peak; its fp32 entry over the vector units' peak", follows="format_ratio", of="design"
    )
    matmul_efficiency: PerPrecision = ratio(
        "sustained share of the peak: what TDP is sized for", follows="matmul_efficiency", of="design"
    )
    # Memory
    sram_m2_per_byte: Scalar = quantity("m2/B", "last level, whole macros", key="sram_area")
    hbm_bandwidth_bytes_per_s: Scalar = quantity("B/s", "per stack", key="bandwidth", of="memory")
    hbm_capacity_bytes: Scalar = quantity("B", "per stack", key="capacity", of="memory")
    hbm_efficiency: Scalar = ratio("best measured stream over peak", key="efficiency", of="memory")
    hbm_energy_j_per_byte: Scalar = quantity("J/B", "of a byte read or written", key="energy", of="memory")
    hbm_phy_m2: Scalar = quantity(
        "m2", "per stack; analog, so the node does not shrink it", key="phy_area", of="memory"
    )
    hbm_controller_transistors: Scalar = ratio("per stack", key="controller_transistors", of="memory")
    hbm_edge_m: Scalar = quantity("m", "die edge that a stack occupies", key="edge", of="memory")
    hbm_stack_m2: Scalar = quantity("m2", "on the interposer", key="stack_area", of="memory")
    hbm_standby_w: Scalar = quantity("W", "per stack: refresh, idle PHY", key="standby", of="memory")
    # Links, fixed blocks, several dies
    scale_up_m2_per_byte_per_s: Scalar = quantity(
        "m2/(B/s)", "SerDes and controllers, per direction", key="scale_up_area", part="links"
    )
    scale_up_edge_m_per_byte_per_s: Scalar = quantity("m/(B/s)", "die edge that SerDes occupy", part="links")
    scale_up_idle_j_per_byte: Scalar = quantity("J/B", "SerDes draw while idle, over bandwidth", part="links")
    scale_out_m2_per_byte_per_s: Scalar = quantity(
        "m2/(B/s)", "PCIe-class SerDes and controllers, per direction", key="scale_out_area", part="links"
    )
    scale_out_edge_m_per_byte_per_s: Scalar = quantity("m/(B/s)", "die edge that they occupy", part="links")
    fixed_m2: Scalar = quantity("m2", "of the package: front end, host interface, media, fuses, test", key="fixed_area")
    die_to_die_share: Scalar = ratio("of silicon, times 1 - 1/dies", part="packaging")
    stacked: Scalar = switch(
        "1: compute dies stand on base dies that hold all the rest; 0: all in the compute dies", of="design"
    )
    reticle_m2: Scalar = quantity("m2", "largest die that a scanner exposes")
    interposer_margin: Scalar = ratio("interposer over the silicon and stacks it carries", part="packaging")
    package_limit_m2: Scalar = quantity(
        "m2", "largest interposer, or bridged package, that is made in its years", part="packaging"
    )
    usable_edge: Scalar = ratio("share of a die's edge that corners and alignment leave")
    # Power
    matrix_energy_j_per_flop: Scalar = quantity(
        "J/FLOP",
        "at nominal clock, as the three below; of 16-bit FLOPs",
        key="matrix_energy",
        of="datapath",
        part="node",
    )
    register_energy_j_per_flop_byte: Scalar = quantity(
        "J/FLOP", "times register bytes per FLOP/clk", key="register_energy", of="datapath", part="node"
    )
    local_energy_j_per_flop_byte: Scalar = quantity(
        "J/FLOP", "times local bytes per FLOP/clk", key="local_energy", of="datapath", part="node"
    )
    leakage_w_per_m2: Scalar = quantity("W/m2", "at `hwopt.hardware.chip.LEAKAGE_REFERENCE_K`")
    base_leakage_w_per_m2: Scalar = quantity("W/m2", "of base dies, in their older node")
    leakage_per_k: Scalar = quantity(
        "1/K", "relative growth of leakage with junction temperature", key="leakage_growth"
    )
    standby_w_per_m2: Scalar = quantity("W/m2", "clocks and always-on blocks")
