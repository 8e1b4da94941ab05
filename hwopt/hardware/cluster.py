"""A cluster: chips, network, memory and storage beside them, racks, cooling and building, sites, the software."""

import equinox as eqx

from hwopt.hardware.chip import Chip
from hwopt.hardware.facility import Cooling, Facility, Rack
from hwopt.hardware.network import Network
from hwopt.hardware.peripherals import MemoryPool, Operation, Recovery, Reliability, Sites, Storage
from hwopt.hardware.prices import Prices
from hwopt.quantity import quantity
from hwopt.stack import Stack
from hwopt.types import Scalar


class Cluster(eqx.Module):
    """Everything that exists before a workload arrives. All leaves are floating arrays, so it maps and differentiates."""

    chip: Chip
    network: Network
    pool: MemoryPool
    storage: Storage
    sites: Sites
    cooling: Cooling
    rack: Rack
    facility: Facility
    reliability: Reliability
    recovery: Recovery
    operation: Operation
    prices: Prices
    stack: Stack
    chips: Scalar = quantity("chip", "accelerators in the job")
