"""What interruptions and checkpoints leave of a job's time."""

from __future__ import annotations

import math


def failures(run, cluster, kelvin: float, weights: float) -> dict[str, float]:
    fleet, chips = cluster.reliability, cluster.chips
    by_heat = math.exp(fleet.failure_growth_per_k * (kelvin - fleet.reference_junction_k))
    each = fleet.failures_per_chip_s * (1.0 + fleet.hardware_share * (by_heat - 1.0))
    between = 1.0 / (each * chips)
    saved = weights * run.weight_bytes + weights * run.trainable_fraction * (run.master_bytes + run.moment_bytes)
    save = fleet.snapshot_overhead_s + saved / chips / fleet.snapshot_bandwidth_bytes_per_s
    storage = saved / chips / cluster.storage.checkpoint_bytes_per_s_per_chip
    interval = max(math.sqrt(2.0 * save * between), storage)
    again = interval / 2.0 + storage + fleet.restart_s + storage  # redone, not yet stored, and the way back
    lost = save / interval + again / between
    return {
        "between": between,
        "interval": interval,
        "goodput": 1.0 - min(lost, 0.95),
        "margin": math.log(0.95 / lost),
    }
