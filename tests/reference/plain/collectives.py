"""Communication over up to three tiers of links."""

from __future__ import annotations

import math
from typing import NamedTuple

from tests.reference.plain.extremes import largest_of


class Tier(NamedTuple):
    """What a group finds on one tier."""

    members: float
    capacity: float  # members there can be; 0 where there is no limit
    below: float  # chips of the group below
    latency: float
    tail: float
    rate: float  # with all links, none of them slow
    spread: float
    sharing: float
    links: float
    dimensions: float
    crossings: float
    tree_step: float
    ramp: float
    reduction: float

    def wait(self) -> float:
        """Latency of a step, of the slowest of all members."""
        return self.latency + self.tail * (2.0 - 1.0 / self.members)

    def byte_s(self, talking: float | None = None) -> float:
        """Seconds a byte, where so many members use their links."""
        talking = self.members if talking is None else talking
        left_out = 0.0
        if self.capacity > 0:
            left_out = min(talking - 1.0, 1.0) * max(
                min((self.capacity / talking) ** self.sharing, self.links) - 1.0, 0.0
            )
        return (1.0 + left_out) * (1.0 + self.spread * largest_of(self.members)) / self.rate

    def ramp_s(self, transfer: float) -> float:
        return 2.0 * self.ramp * math.sqrt(self.wait() * transfer)

    def step(self, transfer: float) -> float:
        return self.wait() + self.ramp_s(transfer) + transfer

    def levels(self) -> float:
        """Of a binary tree over the members; less than two of them are as far as a ring's."""
        return math.log2(self.members) if self.members >= 2.0 else self.members - 1.0

    def steps(self, logarithmic: float) -> float:
        """Steps of a pass, where a share `logarithmic` may be fewer than those around its rings."""
        around = self.dimensions * (self.members ** (1.0 / self.dimensions) - 1.0)
        if self.dimensions > 1:  # pairs along some dimensions, nobody along the others
            around = max(around, min(self.levels(), self.dimensions))
        fastest = min(around, self.tree_step * self.levels())
        return around + logarithmic * (fastest - around)

    def crossed(self) -> float:
        """Links that a byte of an all-to-all keeps busy."""
        return max(1.0, self.crossings * self.members ** (1.0 / self.dimensions))


def tiers(network, group: float, stride: float) -> list[Tier]:
    found, below = [], 1.0
    for i in range(3):
        filled, capacity = group, 0.0
        if i < 2:
            capacity = network.size[i] / (network.size[i - 1] if i > 0 else 1.0)
            if network.size[i] / stride < group:
                filled = max(network.size[i] / stride, 1.0)
        rate = network.bandwidth_bytes_per_s[i] * network.efficiency[i]
        found.append(
            Tier(
                members=filled / below,
                capacity=capacity,
                below=below,
                latency=network.latency_s[i],
                tail=network.latency_tail_s[i],
                rate=rate,
                spread=network.bandwidth_spread[i],
                sharing=network.sharing[i] if i < 2 else 0.0,
                links=network.links[i] if i < 2 else 1.0,
                dimensions=network.dimensions[i],
                crossings=network.crossings[i] if i < 2 else 0.0,
                tree_step=network.tree_step[i],
                ramp=network.ramp[i],
                reduction=network.reduction_factor[i],
            )
        )
        below = filled
    return found


def beyond(network, group: float, stride: float) -> float:
    """Whether a group needs a second scale-up domain; between one and two, a part."""
    _, pods, outermost = tiers(network, group, stride)
    return min(pods.members * outermost.members - 1.0, 1.0)


def launch(stack, group: float) -> float:
    return stack.collective_launch_s * min(group - 1.0, 1.0) if group > 1 else 0.0


def own_part(network, size: float, group: float) -> float:
    rate = network.bandwidth_bytes_per_s[0] * network.efficiency[0]
    return 0.5 * min(group - 1.0, 1.0) * size / group / rate


def around_s(network, size: float, group: float, stride: float) -> float:
    """Waits of one ring through all chips: it enters every group of a tier, and passes an n-th of the message at a time."""
    waits, groups = 0.0, 1.0
    for tier in reversed(tiers(network, group, stride)):
        chunk_s = tier.reduction * size / group * tier.byte_s()
        waits += groups * tier.steps(0.0) * (tier.wait() + tier.ramp_s(chunk_s))
        groups *= tier.members
    return waits


def ring(cluster, size: float, group: float, stride: float, reduced: bool) -> float:
    waits, paces = 0.0, []
    for tier in tiers(cluster.network, group, stride):
        traffic = tier.reduction if reduced else 1.0
        logarithmic = 1.0 if reduced else cluster.stack.logarithmic_passes
        sent_s = traffic * size / (tier.below * tier.members) * tier.byte_s()
        waits += tier.steps(logarithmic) * (tier.wait() + tier.ramp_s(sent_s))
        # of the message, what is still missing when all tiers inside this one are done
        outwards = 1.0 / tier.below - 1.0 / group
        paces.append(traffic * outwards * size * tier.byte_s())
    if reduced and cluster.network.flat_rings:
        each = tiers(cluster.network, group, stride)
        beyond = min(max(each[1].members * each[2].members - 2.0, 0.0), 1.0)
        waits += beyond * cluster.network.flat_rings * (around_s(cluster.network, size, group, stride) - waits)
    return waits + max(paces)


def ring_pass(cluster, size: float, group: float, stride: float) -> float:
    total = launch(cluster.stack, group) + own_part(cluster.network, size, group)
    return total + ring(cluster, size, group, stride, reduced=False)


def all_reduce(cluster, size: float, group: float, stride: float) -> float:
    return launch(cluster.stack, group) + 2.0 * ring(cluster, size, group, stride, reduced=True)


def all_to_all(cluster, size: float, group: float, stride: float, outer_share: float = 1.0) -> float:
    """`outer_share` of the bytes are sent where a message leaves the innermost tier; tiers send at once."""
    busy = []
    total = launch(cluster.stack, group) + own_part(cluster.network, size, group)
    for i, tier in enumerate(tiers(cluster.network, group, stride)):
        peers, message = tier.members - 1.0, tier.below / group * size
        if i > 0:
            message *= outer_share
        transfer = message * tier.byte_s() * tier.crossed()
        total += (0.5 * min(peers, 1.0) + 0.5 * peers) * tier.wait() + peers * tier.ramp_s(transfer)
        busy.append(peers * transfer)
    return total + max(busy)


def outermost(cluster, group: float, stride: float):
    """The outermost tier in use, with its share; one used by less than one more member counts in part."""
    left = 1.0
    for tier in reversed(tiers(cluster.network, group, stride)):
        used = min(tier.members - 1.0, 1.0)
        yield left * used, tier
        left *= 1.0 - used


def send(cluster, size: float, group: float, stride: float) -> float:
    """From one to another, as far apart as two of the group are."""
    return sum(share * tier.step(size * tier.byte_s(talking=2.0)) for share, tier in outermost(cluster, group, stride))


def stream(cluster, size: float, group: float, stride: float) -> float:
    """The same in a stream of such, where nothing waits for a first byte."""
    return sum(share * size * tier.byte_s(talking=2.0) for share, tier in outermost(cluster, group, stride))
