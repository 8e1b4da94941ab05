"""Communication over up to three tiers of links."""

from __future__ import annotations

import math
from typing import NamedTuple


class Tier(NamedTuple):
    """What a group finds on one tier."""

    members: float
    below: float  # chips of the group below
    latency: float
    rate: float
    ramp: float
    reduction: float

    def step(self, size: float) -> float:
        transfer = size / self.rate
        return self.latency + 2.0 * self.ramp * math.sqrt(self.latency * transfer) + transfer


def tiers(network, group: float, stride: float) -> list[Tier]:
    found, below = [], 1.0
    for i in range(3):
        filled = group
        if i < 2 and network.size[i] / stride < group:
            filled = max(network.size[i] / stride, 1.0)
        rate = network.bandwidth_bytes_per_s[i] * network.efficiency[i]
        found.append(
            Tier(filled / below, below, network.latency_s[i], rate, network.ramp[i], network.reduction_factor[i])
        )
        below = filled
    return found


def launch(stack, group: float) -> float:
    return stack.collective_launch_s * min(group - 1.0, 1.0) if group > 1 else 0.0


def own_part(network, size: float, group: float) -> float:
    rate = network.bandwidth_bytes_per_s[0] * network.efficiency[0]
    return 0.5 * min(group - 1.0, 1.0) * size / group / rate


def ring(cluster, size: float, group: float, stride: float, reduced: bool) -> float:
    waits, paces = 0.0, []
    for tier in tiers(cluster.network, group, stride):
        traffic = tier.reduction if reduced else 1.0
        sent = traffic * size / (tier.below * tier.members)
        waits += (tier.members - 1.0) * (tier.step(sent) - sent / tier.rate)
        # of the message, what is still missing when all tiers inside this one are done
        outwards = 1.0 / tier.below - 1.0 / group
        paces.append(traffic * outwards * size / tier.rate)
    return waits + max(paces)


def ring_pass(cluster, size: float, group: float, stride: float) -> float:
    total = launch(cluster.stack, group) + own_part(cluster.network, size, group)
    return total + ring(cluster, size, group, stride, reduced=False)


def all_reduce(cluster, size: float, group: float, stride: float) -> float:
    return launch(cluster.stack, group) + 2.0 * ring(cluster, size, group, stride, reduced=True)


def all_to_all(cluster, size: float, group: float, stride: float, outer_share: float = 1.0) -> float:
    """`outer_share` of the bytes are sent where a message leaves the innermost tier."""
    total = launch(cluster.stack, group) + own_part(cluster.network, size, group)
    for i, tier in enumerate(tiers(cluster.network, group, stride)):
        peers, message = tier.members - 1.0, tier.below / group * size
        if i > 0:
            message *= outer_share
        total += (0.5 * min(peers, 1.0) + 0.5 * peers) * tier.latency + peers * (tier.step(message) - tier.latency)
    return total


def send(cluster, size: float, group: float, stride: float) -> float:
    """The outermost tier in use decides; a tier used by less than one more member counts in part."""
    total, left = 0.0, 1.0
    for tier in reversed(tiers(cluster.network, group, stride)):
        used = min(tier.members - 1.0, 1.0)
        total += left * used * tier.step(size)
        left *= 1.0 - used
    return total
