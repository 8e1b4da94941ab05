"""Several kinds of chips that train together, in plain Python floats."""

from __future__ import annotations

import math

from tests.reference.plain import rack
from tests.reference.plain.collectives import send
from tests.reference.plain.estimate import estimate as alone
from tests.reference.plain.estimate import peak_seconds_per_flop
from tests.reference.plain.failures import _best, interruptions
from tests.reference.plain.money import carbon, money, trains
from tests.reference.plain.power import at_the_inlet, beside, usage_effectiveness
from tests.reference.plain.thermal import operating_point
from tests.reference.plain.weights import parameters


def lost(run, clusters, between: float, weights: float) -> dict[str, float]:
    """Saves of all chips at once, each group at its own rate; the slowest way back."""
    saved = weights * (run.weight_bytes + run.trainable_fraction * (run.master_bytes + run.moment_bytes))
    snapshot = sum(each.chips * each.reliability.snapshot_bandwidth_bytes_per_s for each in clusters)
    stored = sum(
        each.chips * (each.recovery.peer_bytes_per_s_per_chip or each.storage.checkpoint_bytes_per_s_per_chip)
        for each in clusters
    )
    save = max(each.reliability.snapshot_overhead_s for each in clusters) + saved / snapshot
    drain = saved / stored
    away = max(each.recovery.swap_s if each.recovery.hot_spares else each.reliability.restart_s for each in clusters)
    interval = run.checkpoint_interval_s or max(_best(save / between) * between, drain)
    in_vain = (interval + save) / between
    stretched = math.log(math.expm1(in_vain)) if in_vain < 500.0 else in_vain
    longer = (away + 2.0 * drain) / between + stretched - math.log(interval / between)
    return {"interval": interval, "goodput": max(math.exp(-longer), 0.05)}


def estimate(run, fleet, plan) -> dict[str, float]:
    """Leaves of the report by name."""
    clusters = fleet.groups
    shares = [rack.replaced(run, global_batch_sequences=each) for each in plan.sequences]
    each = [alone(of, cluster, own) for of, cluster, own in zip(shares, clusters, plan.groups, strict=True)]
    points = [operating_point(cluster.chip, cluster.cooling) for cluster in clusters]
    weights, count = parameters(run.model, per_token=False), len(clusters)
    sends = []
    for cluster, point, own in zip(clusters, points, plan.groups, strict=True):
        chips = own.tp * own.pp * own.dp * own.cp
        part = weights * run.trainable_fraction * cluster.stack.gradient_bytes / count / chips
        sends.append(send(rack.running(cluster, point), part, max(chips, 2.0 * float(cluster.network.size[0])), 1.0))
    exchange = 2.0 * (count - 1) * max(sends)
    step = max(report["step_time_s"] for report in each) + exchange
    watts, usd, capex, kilograms, rate = 0.0, 0.0, 0.0, 0.0, 0.0
    for hall, point, report in zip(clusters, points, each, strict=True):
        cluster = trains(hall, run)
        others = beside(cluster, point)
        idle = cluster.chips * at_the_inlet(cluster, point, 0.0, 0.0, 0.0) + others["standing"]
        idle *= usage_effectiveness(cluster)
        drawn = idle + (report["power_w"] - idle) * report["step_time_s"] / step
        owned, second = money(cluster, others["fed"], others["spares"], drawn)
        watts, usd, capex = watts + drawn, usd + second, capex + owned
        kilograms += carbon(cluster, others["fed"], others["spares"], drawn)
        rate += sum(interruptions(cluster, cluster.chips, point["kelvin"]).values())
    failing = lost(run, clusters, 1.0 / rate, weights)
    tokens = run.global_batch_sequences * run.sequence_length / step
    useful = tokens * failing["goodput"]
    done = zip(each, clusters, strict=True)
    flops = sum(
        report["model_flops_per_chip_per_s"] * report["step_time_s"] * cluster.chips for report, cluster in done
    )
    peak = sum(cluster.chips / peak_seconds_per_flop(run, cluster.chip) for cluster in clusters)
    speed = sum(share / report["step_time_s"] for share, report in zip(plan.sequences, each, strict=True))
    return {
        "step_time_s": step,
        "exchange_s": exchange,
        "ideal_step_time_s": run.global_batch_sequences / speed + exchange,
        "tokens_per_s": tokens,
        "mfu": flops / step / peak,
        "power_w": watts,
        "capex_usd": capex,
        "peak_power_w": sum(report["peak_power_w"] for report in each),
        "goodput": failing["goodput"],
        "mean_time_between_failures_s": 1.0 / rate,
        "checkpoint_interval_s": failing["interval"],
        "energy_per_token_j": watts / useful,
        "cost_per_token_usd": usd / useful,
        "carbon_per_token_kg": kilograms / useful,
        "run_time_s": run.tokens / useful,
        "run_cost_usd": usd * run.tokens / useful,
    }
