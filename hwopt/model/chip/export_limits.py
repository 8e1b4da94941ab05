"""What export rules ask of a chip: how much it computes, on how much silicon, and what it exchanges with others.

**Source:** technical notes to ECCN 3A090, 88 FR 73458 (25 October 2023), and its paragraph a in 87 FR 62186 (13 October 2022).
"""

import jax.numpy as jnp
import numpy as np

from hwopt.hardware.chip import Chip
from hwopt.hardware.network import Network
from hwopt.types import PRECISION_BITS, Scalar
from hwopt.units import to_si

_BITS = np.array(PRECISION_BITS, np.float32)
_TOPS = to_si(1.0, "TFLOP/s")


def total_processing_performance(chip: Chip) -> Scalar:
    """TPP: `max over formats of 2 MacTOPS x bits`, dense, at the clock that the chip is made to reach.

    One number a chip, not what a plan makes of it: a lower clock asked for leaves it. 64-bit formats are in no catalogue entry.
    """
    return jnp.max(chip.peak_flops_per_s * _BITS) / _TOPS * chip.sold_clock_ratio


def performance_density_per_m2(chip: Chip) -> Scalar:
    """TPP over the area of all logic dies, those below stacked ones too; all are taken for non-planar, as every node here is.

    **Not log-log convex** where the area is a sum that is chosen: exact at points.
    """
    return total_processing_performance(chip) / chip.logic_area_m2


def io_rate_bytes_per_s(chip: Chip, network: Network) -> Scalar:
    """Aggregate bidirectional rate to and from other chips but memory: `2 (links of the domain + all other links)`."""
    return 2.0 * (network.bandwidth_bytes_per_s[0] + chip.host_bytes_per_s)
