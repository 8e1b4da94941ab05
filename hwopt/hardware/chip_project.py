"""A parametric chip: its design, technology, process, and production volume."""

import equinox as eqx

from hwopt.hardware.process import Process
from hwopt.hardware.technology import Technology
from hwopt.quantity import computed, quantity, ratio
from hwopt.types import Scalar


class ChipDesign(eqx.Module):
    """Design variables of an accelerator. `hwopt.model.chip.silicon` turns it into a `Chip`.

    All quantities are those of the whole package, shared by `dies` equal compute dies. The supply voltage is the lowest
    that the clock allows, `V = V_t + kappa f`.
    """

    dies: Scalar = ratio("equal compute dies in the package")
    compute_area_m2: Scalar = computed("m2", "matrix and vector units with their registers, local memory and control")
    matrix_per_vector: Scalar = ratio("16-bit matrix FLOP/s over fp32 vector FLOP/s: how far the chip is specialized")
    enabled_fraction: Scalar = ratio("compute units left on; the others are spares that harvesting turns into yield")
    sram_bytes: Scalar = quantity("B", "last-level memory")
    hbm_stacks: Scalar = ratio("memory stacks of the package", key="memory_stacks")
    scale_up_bandwidth_bytes_per_s: Scalar = quantity("B/s", "per direction")
    scale_out_bandwidth_bytes_per_s: Scalar = quantity("B/s", "per direction, through PCIe-class SerDes")
    clock_hz: Scalar = computed("Hz", "at which the supply voltage is the lowest allowed")
    power_cap_w: Scalar = computed("W", "a datasheet's TDP, or what a question allows")


class ChipProject(eqx.Module):
    """Complete input from which `hwopt.model.chip.chip_project` computes a chip and its price."""

    design: ChipDesign
    technology: Technology
    process: Process  # of the compute dies
    base_process: Process  # of the base dies, where compute dies are stacked
    compute_units: Scalar = ratio("of one die, made", of="design")
    volume: Scalar = quantity("chip", "chips over which design and masks are paid", key="chip_volume", part="prices")
    price_over_bill: Scalar = ratio(
        "what a buyer pays over what the chip costs to make; 1 for one's own", part="prices"
    )
