"""Quantities of US export control rules: a chip's processing performance, its performance density, and its I/O rate.

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
    """Return the total processing performance (TPP): `max over formats of 2 MacTOPS x bits`, dense, at the chip's rated clock.

    TPP is a property of the chip, not of a plan: running at a lower clock does not change it. No catalog entry states 64-bit
    formats.
    """
    return jnp.max(chip.peak_flops_per_s * _BITS) / _TOPS * chip.sold_clock_ratio


def performance_density_per_m2(chip: Chip) -> Scalar:
    """Return the performance density: TPP over the area of all logic dies, base dies below stacked dies included, 1/m2.

    All dies count as non-planar, as every process node in the catalog is. **Not log-log convex** where the area is a sum that
    depends on design variables; exact at points.
    """
    return total_processing_performance(chip) / chip.logic_area_m2


def io_rate_bytes_per_s(chip: Chip, network: Network) -> Scalar:
    """Return the aggregate bidirectional I/O rate to other chips, memory excluded, B/s: `2 (scale-up + all other links)`."""
    return 2.0 * (network.bandwidth_bytes_per_s[0] + chip.host_bytes_per_s)
