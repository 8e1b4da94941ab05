"""Parts of the network: lanes of the domain's links, ports of NICs, and the switches behind those."""

from hwopt.hardware.cluster import Cluster
from hwopt.types import Scalar


def lanes_per_chip(cluster: Cluster) -> Scalar:
    """Lanes of the domain's links that a chip has: its bandwidth in the domain over that of a lane."""
    return cluster.network.bandwidth_bytes_per_s[0] / cluster.network.lane_bytes_per_s[0]


def ports_per_chip(cluster: Cluster) -> Scalar:
    """Ports of NICs that a chip has: its bandwidth out of the domain over that of a port."""
    return cluster.network.bandwidth_bytes_per_s[1] / cluster.network.lane_bytes_per_s[1]


def switches_per_chip(cluster: Cluster) -> Scalar:
    """Switches of all levels over chips: `sum_i B_i / B_port s_i` over the tiers outside the domain.

    In proportion, so that it has gradients: a switch used in part counts in part, less than one on the whole machine.
    """
    network = cluster.network
    ports = network.bandwidth_bytes_per_s / network.lane_bytes_per_s[1]
    return ports[1] * network.switches_per_port[1] + ports[2] * network.switches_per_port[2]
