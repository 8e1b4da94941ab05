"""A cluster: chips, network, memory and storage beside them, racks, cooling and building, sites, the software; several of them."""

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

    @property
    def groups(self) -> "tuple[Cluster, ...]":
        """The cluster of each kind of chip, that of answers first."""
        return (self,)


class ClusterPair(eqx.Module):
    """Two kinds of chips in one hall that serve together: of one are those for prompts, of the other those for answers.

    Each group is a cluster with all around it, and says how many `chips` there are together; how they are split is the plan's.
    The groups share no scale-up domain: keys and values move through the NICs of both.
    """

    prefill: Cluster
    decode: Cluster

    @property
    def chips(self) -> Scalar:
        """Accelerators of both groups."""
        return self.decode.chips

    @property
    def groups(self) -> tuple[Cluster, ...]:
        """The cluster of each kind of chip, that of answers first."""
        return (self.decode, self.prefill)

    def with_groups(self, decode: Cluster, prefill: Cluster) -> "ClusterPair":
        """The same with other clusters, in the order of `groups`."""
        return ClusterPair(prefill=prefill, decode=decode)


class Fleet(eqx.Module):
    """Clusters that train one model together, each with whole replicas and a share of the batch: kinds of chips, or sites.

    With `lines` each is a site of its own, as many as these count; without, all stand in one place.
    """

    groups: tuple[Cluster, ...]
    lines: Sites | None = None

    @property
    def chips(self) -> Scalar:
        """Accelerators of all groups."""
        return sum((each.chips for each in self.groups[1:]), start=self.groups[0].chips)


AnyCluster = Cluster | ClusterPair
"""Chips of one kind, or of two."""
