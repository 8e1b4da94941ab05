"""A chip that does not exist yet: areas, memory, links, clock."""

from __future__ import annotations

import equinox as eqx

from hwopt.types import Scalar


class ChipDesign(eqx.Module):
    """What an architect decides about an accelerator. `hwopt.model.silicon` turns it into a `Chip`.

    All quantities are those of the whole package; `dies` equal compute dies share them. The supply voltage is the lowest
    that the clock allows, `V = V_t + kappa f`.
    """

    dies: Scalar  # equal compute dies in the package
    compute_area_m2: Scalar  # matrix and vector units with their registers, local memory and control
    matrix_per_vector: Scalar  # 16-bit matrix FLOP/s over fp32 vector FLOP/s: how far the chip is specialised
    enabled_fraction: Scalar  # compute units left on; the others are spares that harvesting turns into yield
    sram_bytes: Scalar  # last-level memory
    hbm_stacks: Scalar
    scale_up_bandwidth_bytes_per_s: Scalar  # per direction
    scale_out_bandwidth_bytes_per_s: Scalar  # per direction, through PCIe-class SerDes
    clock_hz: Scalar
    power_cap_w: Scalar
