"""A chip in the making: its design, what it is built with, who makes it and how many."""

from __future__ import annotations

import equinox as eqx

from hwopt.hardware.chip_design import ChipDesign
from hwopt.hardware.process import Process
from hwopt.hardware.technology import Technology
from hwopt.types import Scalar


class ChipProject(eqx.Module):
    """Everything from which `hwopt.model.chip_project` builds a chip and its price."""

    design: ChipDesign
    technology: Technology
    process: Process  # of the compute dies
    base_process: Process  # of the dies below them, where they are stacked
    compute_units: Scalar  # of one die, made
    volume: Scalar  # chips over which design and masks are paid
    price_over_bill: Scalar  # what a buyer pays over what the chip costs to make; 1 for one's own
