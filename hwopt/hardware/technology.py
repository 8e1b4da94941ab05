"""What an architect can build with: a process node, a memory generation, a way to lay out a datapath."""

from __future__ import annotations

import equinox as eqx

from hwopt.types import PerPrecision, Scalar


class Technology(eqx.Module):
    """Constants that turn a `ChipDesign` into areas, rates and powers. `hwopt.catalog.silicon` reads them.

    "Per FLOP/clk" means: over the dense 16-bit matrix FLOPs that all compute units, spares included, do in one cycle.
    """

    # The datapath, and how a generation of architecture feeds it
    logic_density_per_m2: Scalar  # transistors, as accelerators achieve it over a whole die
    matrix_transistors: Scalar  # per FLOP/clk: multipliers, operand delivery, control that scales with them
    register_transistors_per_byte: Scalar  # of register file, with its ports, lanes and schedulers
    local_transistors_per_byte: Scalar  # of memory beside the units: L1, shared, vector memory, with its ports
    register_bytes: Scalar  # per vector FLOP/clk
    local_bytes: Scalar  # per matrix FLOP/clk
    fabric_area_per_compute: Scalar  # crossbars, clock spines and gaps; below stacked dies, what carries them
    nominal_clock_hz: Scalar  # that the pipelines reach at nominal voltage
    threshold_voltage_fraction: Scalar  # V_t / V at the nominal clock
    format_ratio: PerPrecision  # peak over the bf16 peak; its fp32 entry over the vector units' peak
    matmul_efficiency: PerPrecision  # sustained share of the peak: what TDP is sized for
    # Memory
    sram_m2_per_byte: Scalar  # last level, whole macros
    hbm_bandwidth_bytes_per_s: Scalar  # per stack
    hbm_capacity_bytes: Scalar  # per stack
    hbm_efficiency: Scalar
    hbm_energy_j_per_byte: Scalar
    hbm_phy_m2: Scalar  # per stack; analog, so the node does not shrink it
    hbm_controller_transistors: Scalar  # per stack
    hbm_edge_m: Scalar  # die edge that a stack occupies
    hbm_stack_m2: Scalar  # on the interposer
    hbm_standby_w: Scalar  # per stack: refresh, idle PHY
    # Links, fixed blocks, several dies
    scale_up_m2_per_byte_per_s: Scalar
    scale_up_edge_m_per_byte_per_s: Scalar
    scale_up_idle_j_per_byte: Scalar  # SerDes draw while idle, over bandwidth
    scale_out_m2_per_byte_per_s: Scalar
    scale_out_edge_m_per_byte_per_s: Scalar
    fixed_m2: Scalar  # of the package: front end, host interface, media, fuses, test
    die_to_die_share: Scalar  # of silicon, times 1 - 1/dies
    stacked: Scalar  # 1: compute dies stand on base dies that hold all the rest; 0: all in the compute dies
    reticle_m2: Scalar
    interposer_margin: Scalar  # interposer over the silicon and stacks it carries
    usable_edge: Scalar  # share of a die's edge that corners and alignment leave
    # Power
    matrix_energy_j_per_flop: Scalar  # at nominal clock, as the three below; of 16-bit FLOPs
    register_energy_j_per_flop_byte: Scalar  # times register bytes per FLOP/clk
    local_energy_j_per_flop_byte: Scalar  # times local bytes per FLOP/clk
    leakage_w_per_m2: Scalar  # at `hwopt.hardware.chip.LEAKAGE_REFERENCE_K`
    base_leakage_w_per_m2: Scalar  # of base dies, in their older node
    leakage_per_k: Scalar
    standby_w_per_m2: Scalar  # clocks and always-on blocks
