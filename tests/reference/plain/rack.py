"""Racks, and the distance they put between chips."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np


def replaced(tree, **fields):
    """A copy of an input with other fields."""
    return SimpleNamespace(**{**vars(tree), **fields})


def filled(cluster) -> float:
    """Chips in a rack, used or not."""
    return cluster.rack.sold_chips or cluster.rack.chips


def idle(cluster) -> float:
    """Chips of all racks that no job uses."""
    return cluster.chips / cluster.rack.chips * (filled(cluster) - cluster.rack.chips)


def leaving_bandwidth(cluster) -> float:
    """Scale-up bandwidth of a chip that goes to other racks, on optical links."""
    domain, rack = float(cluster.network.size[0]), cluster.rack.chips
    if domain <= rack:
        return 0.0
    return float(cluster.network.bandwidth_bytes_per_s[0]) * (domain - rack) / domain


def beyond_one_level(cluster) -> float:
    """Share of a domain's traffic that a second level of switches carries."""
    domain = float(cluster.network.size[0])
    return max(domain - float(cluster.network.level_chips), 0.0) / domain


def levels(cluster) -> float:
    """Switches on the way of a mean byte: one, or three."""
    return 1.0 + 2.0 * beyond_one_level(cluster)


def cabled_bandwidth(cluster) -> float:
    """Scale-up bandwidth of all chips of a rack that stays in it; a domain of one chip has no links."""
    domain = float(cluster.network.size[0])
    if domain <= 1.0:
        return 0.0
    inside = float(cluster.network.bandwidth_bytes_per_s[0]) - leaving_bandwidth(cluster)
    return min(domain - 1.0, 1.0) * filled(cluster) * inside


def running(cluster, point: dict[str, float]):
    """The cluster at work, its chip with its full load; every tier's latency has the light's time across the tier's floor."""
    network, latency = cluster.network, []
    clock = cluster.chip.clock_ratio if point["cooling_margin"] > 0.0 else point["clock"]
    for i in range(3):
        chips = cluster.chips if i == 2 else min(float(network.size[i]), cluster.chips)
        metres = math.sqrt(cluster.rack.floor_area_m2 * chips / cluster.rack.chips)
        latency.append(float(network.latency_s[i]) + metres * 4.9e-9)
    latency[0] += beyond_one_level(cluster) * float(network.level_latency_s)
    return replaced(
        cluster,
        chip=replaced(cluster.chip, full_load=point, clock_ratio=clock),
        network=replaced(network, latency_s=np.array(latency)),
    )


def margins(cluster, rack_w: float) -> dict[str, float]:
    rack, cabled = cluster.rack, cabled_bandwidth(cluster)
    kilograms = (
        rack.empty_weight_kg + rack.chip_weight_kg * filled(cluster) + cabled * rack.cable_weight_kg_per_byte_per_s
    )
    copper = cabled * rack.cable_area_m2_per_byte_per_s
    link = cluster.chip.nic_link_bytes_per_s
    return {
        "nic": math.log(link / cluster.network.bandwidth_bytes_per_s[1]) if link > 0 else math.inf,
        "rack_power": math.log(min(cluster.cooling.rack_limit_w, rack.busbar_limit_w) / rack_w),
        "rack_cables": math.log(rack.cable_limit_m2 / (copper + 1e-9)),
        "rack_weight": math.log(rack.weight_limit_kg / kilograms),
    }
