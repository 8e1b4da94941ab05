"""Memory beyond HBM: host DRAM, CXL, or a disaggregated store, as each chip's share of it."""

from __future__ import annotations

import equinox as eqx

from hwopt.types import Scalar


class MemoryPool(eqx.Module):
    """A second tier of memory. What a plan offloads waits here and is fetched ahead of its use."""

    capacity_bytes: Scalar  # per chip
    bandwidth_bytes_per_s: Scalar  # of a chip's way to it, per direction, as measured
    update_bandwidth_bytes_per_s: Scalar  # of the memory itself per chip, where optimizers update what they hold
    power_w_per_byte: Scalar  # drawn by what it holds
    energy_j_per_byte: Scalar  # of moving a byte to the chip; the link draws it at full rate all the time
    usd_per_byte: Scalar  # 0 where the host's price holds it
    usd_per_byte_per_s: Scalar
    carbon_kg_per_byte: Scalar  # of making it; 0 where the host's holds it
