"""Communication over up to three tiers of links."""

from __future__ import annotations


def tiers(network, group: float, stride: float):
    """(members, chips of the group below, latency, rate, reduction) of each tier that a group uses."""
    below = 1.0
    for i in range(3):
        filled = group
        if i < 2 and network.size[i] / stride < group:
            filled = max(network.size[i] / stride, 1.0)
        rate = network.bandwidth_bytes_per_s[i] * network.efficiency[i]
        yield filled / below, below, network.latency_s[i], rate, network.reduction_factor[i]
        below = filled


def launch(stack, group: float) -> float:
    return stack.collective_launch_s * min(group - 1.0, 1.0) if group > 1 else 0.0


def ring_pass(cluster, size: float, group: float, stride: float) -> float:
    total = launch(cluster.stack, group)
    for members, below, latency, rate, _ in tiers(cluster.network, group, stride):
        total += (members - 1.0) * latency + (1.0 - 1.0 / members) * size / below / rate
    return total


def all_reduce(cluster, size: float, group: float, stride: float) -> float:
    total = launch(cluster.stack, group)
    for members, below, latency, rate, reduction in tiers(cluster.network, group, stride):
        total += 2.0 * ((members - 1.0) * latency + reduction * (1.0 - 1.0 / members) * size / below / rate)
    return total


def all_to_all(cluster, size: float, group: float, stride: float) -> float:
    total = launch(cluster.stack, group)
    for members, below, latency, rate, _ in tiers(cluster.network, group, stride):
        total += (members - 1.0) * latency + (below * members - below) / group * size / rate
    return total


def send(cluster, size: float, group: float, stride: float) -> float:
    """The outermost tier in use decides; a tier used by less than one more member counts in part."""
    total, left = 0.0, 1.0
    for members, _, latency, rate, _ in reversed(list(tiers(cluster.network, group, stride))):
        used = min(members - 1.0, 1.0)
        total += left * used * (latency + size / rate)
        left *= 1.0 - used
    return total
