"""Clusters: chips, network, memory pool, storage, racks, cooling, building, sites and software; pairs and fleets of
clusters.
"""

import equinox as eqx

from hwopt.hardware.chip import Chip
from hwopt.hardware.facility import Cooling, Facility, Rack
from hwopt.hardware.network import Network
from hwopt.hardware.peripherals import MemoryPool, Operation, Recovery, Reliability, Sites, Storage
from hwopt.hardware.prices import Prices
from hwopt.quantity import quantity, with_numbers
from hwopt.stack import Stack
from hwopt.types import Scalar


class Cluster(eqx.Module):
    """A machine without its workload. All leaves are floating-point arrays, so it can be mapped over and differentiated."""

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
    chips: Scalar = quantity("chip", "accelerators in the job", least=1.0)

    @property
    def groups(self) -> "tuple[Cluster, ...]":
        """Return the cluster of each type of chip; here only one."""
        return (self,)

    def replace(self, **changes: float | str) -> "Cluster":
        """Return the cluster with other numbers: `cluster.replace(hbm_bandwidth="8 TB/s", chips=4096)`.

        Names are those of `hwopt.quantity.with_numbers`. Numbers that would follow in a real machine, such as prices, stay.
        """
        return with_numbers("replace", self, changes)

    @property
    def unstored(self) -> "Cluster":
        """Return the cluster without storage capacity, for a group of chips whose data another group stores."""
        return eqx.tree_at(
            lambda each: (each.storage.capacity_bytes, each.storage.data_copies), self, replace_fn=lambda x: 0.0 * x
        )


class ClusterPair(eqx.Module):
    """Two types of chips in one hall for disaggregated serving: one for prefill, the other for decode, which stores the data.

    Each group is a complete cluster whose `chips` is the total of both groups; the plan splits it. The groups share no
    scale-up domain: keys and values move through the NICs of both.
    """

    prefill: Cluster
    decode: Cluster

    @property
    def chips(self) -> Scalar:
        """Return the number of accelerators of both groups."""
        return self.decode.chips

    @property
    def groups(self) -> tuple[Cluster, ...]:
        """Return the cluster of each type of chip, the decode group first."""
        return (self.decode, self.prefill)

    def with_groups(self, decode: Cluster, prefill: Cluster) -> "ClusterPair":
        """Return a copy with other clusters, in the order of `groups`."""
        return ClusterPair(prefill=prefill, decode=decode)


class Fleet(eqx.Module):
    """Clusters that train one model together: different types of chips, or sites. Each has whole replicas and a share of
    the batch.

    With `lines`, each cluster is a separate site, and `lines.count` is their number. Without, all are in one place.
    """

    groups: tuple[Cluster, ...]
    lines: Sites | None = None

    @property
    def chips(self) -> Scalar:
        """Return the number of accelerators of all groups."""
        return sum((each.chips for each in self.groups[1:]), start=self.groups[0].chips)


AnyCluster = Cluster | ClusterPair
"""Chips of one type, or of two."""
