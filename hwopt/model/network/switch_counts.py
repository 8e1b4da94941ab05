"""Counts of network parts per chip: lanes of scale-up links, NIC ports, and the switches behind the ports."""

from hwopt.hardware.cluster import Cluster
from hwopt.types import Scalar


def lanes_per_chip(cluster: Cluster) -> Scalar:
    """Return the scale-up lanes per chip: the chip's bandwidth in the domain over the bandwidth of a lane."""
    return cluster.network.bandwidth_bytes_per_s[0] / cluster.network.lane_bytes_per_s[0]


def ports_per_chip(cluster: Cluster) -> Scalar:
    """Return the NIC ports per chip: the chip's bandwidth out of the domain over the bandwidth of a port."""
    return cluster.network.bandwidth_bytes_per_s[1] / cluster.network.lane_bytes_per_s[1]


def switches_per_chip(cluster: Cluster) -> Scalar:
    """Return the switches of all levels per chip, `sum_i B_i / B_port s_i` over the tiers outside the domain.

    The count is proportional to bandwidth and thus differentiable. A partly used switch counts as a fraction, which
    underestimates the whole cluster by less than one switch.
    """
    network = cluster.network
    ports = network.bandwidth_bytes_per_s / network.lane_bytes_per_s[1]
    return ports[1] * network.switches_per_port[1] + ports[2] * network.switches_per_port[2]
