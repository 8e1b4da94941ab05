"""What interruptions and checkpoints leave of a job's time."""

from __future__ import annotations

import math


def interruptions(cluster, chips: float, kelvin: float) -> dict[str, float]:
    """A second, by what fails."""
    fleet, chip, network = cluster.reliability, cluster.chip, cluster.network
    hotter = math.exp(fleet.failure_growth_per_k * (kelvin - fleet.reference_junction_k))
    ports = float(network.bandwidth_bytes_per_s[1]) / float(network.lane_bytes_per_s[1])
    standing = 1.0 / cluster.rack.chips
    each = {
        "dies": hotter * fleet.die_failures_per_m2_s * chip.heat_area_m2,
        "stacks": hotter * fleet.stack_failures_per_s * chip.hbm_stacks,
        "hosts": fleet.host_failures_per_s / cluster.rack.server_chips,
        "links": fleet.link_failures_per_s * ports,
        "switches": fleet.switch_failures_per_s * switches(cluster, 1.0),
        "racks": fleet.rack_failures_per_s * standing,
        "cooling": fleet.loop_failures_per_s * standing / cluster.cooling.loop_racks,
        "software": fleet.software_failures_per_chip_s,
    }
    return {cause: chips * rate for cause, rate in each.items()}


def switches(cluster, chips: float) -> float:
    """Of the fabric: what the ports of both tiers take."""
    links = cluster.network
    port = float(links.lane_bytes_per_s[1])
    return sum(chips * float(links.bandwidth_bytes_per_s[i]) / port * float(links.switches_per_port[i]) for i in (1, 2))


def standing_by(cluster, stops: dict[str, float]) -> float:
    """Chips that stand started for those that are being repaired."""
    back, rack = cluster.recovery, cluster.rack
    if not back.hot_spares:
        return 0.0
    servers = back.repair_s * sum(stops[cause] for cause in ("dies", "stacks", "hosts", "links"))
    servers += back.spare_deviations * math.sqrt(servers)
    loop = rack.chips * cluster.cooling.loop_racks
    taken_along = stops["racks"] * rack.chips + stops["cooling"] * loop
    if stops["switches"]:
        taken_along += cluster.chips * cluster.reliability.switch_failures_per_s
    return servers * rack.server_chips + back.repair_s * taken_along


def failures(run, cluster, kelvin: float, weights: float) -> dict[str, float]:
    fleet, chips = cluster.reliability, cluster.chips
    stops = interruptions(cluster, chips, kelvin)
    between = 1.0 / sum(stops.values())
    saved = weights * run.weight_bytes + weights * run.trainable_fraction * (run.master_bytes + run.moment_bytes)
    save = fleet.snapshot_overhead_s + saved / chips / fleet.snapshot_bandwidth_bytes_per_s
    back = cluster.recovery
    storage = saved / chips / (back.peer_bytes_per_s_per_chip or cluster.storage.checkpoint_bytes_per_s_per_chip)
    interval = run.checkpoint_interval_s or max(_best(save / between) * between, storage)
    away = (back.swap_s if back.hot_spares else fleet.restart_s) + storage + storage  # not yet stored, and the way back
    in_vain = (interval + save) / between
    stretched = math.log(math.expm1(in_vain)) if in_vain < 500.0 else in_vain
    longer = away / between + stretched - math.log(interval / between)  # logarithm of run time over useful time
    return {
        "stops": stops,
        "between": between,
        "interval": interval,
        "goodput": max(math.exp(-longer), 0.05),
        "margin": math.log(20.0) - longer,
        "saves": math.log(interval / storage) if run.checkpoint_interval_s else math.inf,
    }


def _best(save: float) -> float:
    """Work between saves over the time between failures, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if middle < -math.expm1(-(middle + save)) else (low, middle)
    return middle
