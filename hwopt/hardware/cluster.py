"""A cluster: chips, the network between them, the building around them, the software on them."""

from __future__ import annotations

import equinox as eqx

from hwopt.hardware.chip import Chip
from hwopt.hardware.facility import Facility
from hwopt.hardware.network import Network
from hwopt.hardware.prices import Prices
from hwopt.stack import Stack
from hwopt.types import Scalar


class Cluster(eqx.Module):
    """Everything that exists before a workload arrives. All leaves are floating arrays, so it maps and differentiates."""

    chip: Chip
    chips: Scalar  # accelerators in the job
    network: Network
    facility: Facility
    prices: Prices
    stack: Stack
