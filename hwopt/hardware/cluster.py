"""A cluster: chips, network, memory and storage beside them, racks, cooling and building, sites, the software."""

from __future__ import annotations

import equinox as eqx

from hwopt.hardware.chip import Chip
from hwopt.hardware.cooling import Cooling
from hwopt.hardware.facility import Facility
from hwopt.hardware.memory_pool import MemoryPool
from hwopt.hardware.network import Network
from hwopt.hardware.prices import Prices
from hwopt.hardware.rack import Rack
from hwopt.hardware.reliability import Reliability
from hwopt.hardware.sites import Sites
from hwopt.hardware.storage import Storage
from hwopt.stack import Stack
from hwopt.types import Scalar


class Cluster(eqx.Module):
    """Everything that exists before a workload arrives. All leaves are floating arrays, so it maps and differentiates."""

    chip: Chip
    chips: Scalar  # accelerators in the job
    network: Network
    pool: MemoryPool
    storage: Storage
    sites: Sites
    cooling: Cooling
    rack: Rack
    facility: Facility
    reliability: Reliability
    prices: Prices
    stack: Stack
