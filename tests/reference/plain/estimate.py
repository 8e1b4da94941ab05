"""A second, independent model in plain Python floats: loops over operations, ifs instead of masks.

It knows nothing of `hwopt.model`; it reads the same input classes and repeats the published formulas, so that a wrong
index, mask or attribution in the arrays of the real model shows as a difference.
"""

from __future__ import annotations

import math

from tests.reference.plain import pool, rack, ramp
from tests.reference.plain.export import tpp
from tests.reference.plain.failures import failures, switches
from tests.reference.plain.flops import flops, micro_batches
from tests.reference.plain.kernels import chip_rates, wide_rate
from tests.reference.plain.learning import fresh, loss
from tests.reference.plain.memory import memory
from tests.reference.plain.money import carbon, money, spending, trains
from tests.reference.plain.names import BREAKDOWN, per_format
from tests.reference.plain.pace import asked_core_w
from tests.reference.plain.power import power
from tests.reference.plain.sites import apart, one_site
from tests.reference.plain.thermal import operating_point
from tests.reference.plain.weights import expert_replicas, parameters


def plan_margins(run, sites, plan) -> dict[str, float]:
    w = run.model
    return {
        "stages": math.log((w.layers + 2.0) / plan.pp / plan.virtual_stages),
        "tensor_parallel": math.log(w.heads / plan.tp),
        "experts": math.log((w.experts if w.experts > 0 else 1.0) / plan.ep),
        "replicas": math.log(expert_replicas(plan) / sites.count),
        "sites": math.log(plan.dp / sites.count),
        "batch": math.log(micro_batches(run, plan) * min(part for _, part in ramp.stages(run))),
        "context": math.log(run.sequence_length / plan.cp),
    }


def memory_margins(cluster, used: float, pooled: float) -> dict[str, float]:
    return {
        "memory": math.log(cluster.chip.hbm_capacity_bytes) - math.log(used),
        "pool": -math.log(pooled / max(pool.for_plans(cluster.pool), 1.0)) if pooled > 0 else math.inf,
    }


def cluster_margins(cluster, plan, rack_w: float, cooling: float, lost: float) -> dict[str, float]:
    return {
        "chips": -abs(math.log(cluster.chips / (plan.tp * plan.pp * plan.dp * plan.cp))),
        "cooling": cooling,
        "failures": lost,
        **rack.margins(cluster, rack_w),
    }


def peak_seconds_per_flop(run, chip) -> float:
    """Of the fastest of the run's formats, at the clock asked for."""
    peak = per_format(chip.peak_flops_per_s)
    mixed = sum(share / (peak[name] * chip.clock_ratio) for name, share in per_format(run.gemm_precision).items())
    return min(mixed, 1.0 / wide_rate(run, chip))


def estimate(run, cluster, plan) -> dict[str, float]:
    """Every leaf of the model's report by name: `step_time_s`, `breakdown.compute_s`, `memory.weights_bytes`..."""
    chip, chips, batch = cluster.chip, cluster.chips, run.global_batch_sequences * run.sequence_length
    cluster = trains(cluster, run)
    point = operating_point(chip, cluster.cooling)
    site_run, site, site_plan = one_site(run, cluster, plan)
    running = rack.running(site, point)
    each, mean = ramp.steps(site_run, running, site_plan)
    time = each[-1]
    parts = memory(site_run, site_plan, cluster.stack)
    used_bytes, pooled = sum(parts.values()), pool.held(site_run, site_plan, cluster.stack)
    total, active = parameters(run.model, per_token=False), parameters(run.model, per_token=True)
    needed, repeated = flops(run, plan, cluster.stack)
    arithmetic_s = (needed + repeated) / chips * min(chip_rates(run, running)[:2])
    watts = power(cluster, point, mean, arithmetic_s * asked_core_w(running.chip) / point["core"])
    capex, usd = money(cluster, watts["fed"], watts["spares"], watts["average"])
    kilograms = carbon(cluster, watts["fed"], watts["spares"], watts["average"])
    job = failures(run, cluster, point["kelvin"], total)
    rate = batch / mean["step"]
    useful = rate * job["goodput"]
    per_chip = needed / chips / mean["step"]
    run_time = run.tokens / useful
    limits = plan_margins(run, cluster.sites, plan) | memory_margins(cluster, used_bytes, pooled)
    limits |= cluster_margins(cluster, plan, watts["rack"], point["cooling_margin"], job["margin"]) | {
        "saves": job["saves"],
    }
    of_run = loss(run.law, active, total, fresh(run.law, run.tokens, run.unique_tokens), batch * ramp.learnt_part(run))
    largest = max(range(len(BREAKDOWN)), key=lambda i: time["parts"][BREAKDOWN[i]])
    report = {
        "step_time_s": time["step"],
        "tokens_per_s": rate,
        "tokens_per_s_per_chip": rate / chips,
        "mfu": per_chip * peak_seconds_per_flop(run, chip),
        "hfu": (needed + repeated) / chips / mean["step"] * peak_seconds_per_flop(run, chip),
        "model_flops_per_chip_per_s": per_chip,
        "memory_per_chip_bytes": used_bytes,
        "memory_capacity_bytes": chip.hbm_capacity_bytes,
        "pool_per_chip_bytes": pooled,
        "clock_ratio": running.chip.clock_ratio / mean["slowdown"],
        "clock_margin": point["clock_margin"],
        "junction_temperature_k": point["kelvin"],
        "heat_flux_w_per_m2": watts["chip"] / chip.heat_area_m2,
        "chip_power_w": watts["chip"],
        "rack_power_w": watts["rack"],
        "racks": chips / cluster.rack.chips,
        "servers": chips / cluster.rack.server_chips,
        "lanes": chips * float(cluster.network.bandwidth_bytes_per_s[0]) / float(cluster.network.lane_bytes_per_s[0]),
        "nics": chips * float(cluster.network.bandwidth_bytes_per_s[1]) / float(cluster.network.lane_bytes_per_s[1]),
        "switches": switches(cluster, chips),
        "floor_area_m2": chips / cluster.rack.chips * cluster.rack.floor_area_m2,
        "pue": watts["pue"],
        "design_pue": watts["design_pue"],
        "power_w": watts["average"],
        "hot_spares": watts["spares"],
        "peak_power_w": watts["peak"],
        "site_power_w": watts["peak"] / cluster.sites.count,
        "goodput": job["goodput"],
        "mean_time_between_failures_s": job["between"],
        "checkpoint_interval_s": job["interval"],
        "energy_per_token_j": watts["average"] / useful,
        "carbon_per_token_kg": kilograms / useful,
        "capex_usd": capex,
        "chip_usd_per_s": usd / chips,
        "cost_per_token_usd": usd / useful,
        "run_time_s": run_time,
        "run_cost_usd": usd * run_time,
        "run_energy_j": watts["average"] * run_time,
        "run_carbon_kg": kilograms * run_time,
        "loss": apart(run.law, cluster.sites, plan) * of_run,
        "tokens_per_unit": 1.0,  # of text
        "silicon_area_m2": chip.silicon_area_m2,
        "total_processing_performance": tpp(chip),
        "performance_density_per_m2": tpp(chip) / chip.logic_area_m2,
        "io_rate_bytes_per_s": 2.0 * float(cluster.network.bandwidth_bytes_per_s[0]) + 2.0 * chip.host_bytes_per_s,
        "hbm_stacks": chips * chip.hbm_stacks,
        "package_area_m2": chips * chip.package_area_m2,
        "wafers": chips * chip.wafers,
        "parameters": total,
        "active_parameters": active,
        "hidden_s": time["hidden"],
        "bottleneck": float(largest),
        "feasible": float(all(value >= -1e-6 for value in limits.values())),
    }
    spent = spending(cluster, watts["fed"], watts["spares"], watts["average"])
    groups = {"breakdown": time["parts"], "memory": parts, "margins": limits, "spending": spent}
    for group, values in (groups | {"interruptions": job["stops"]}).items():
        report |= {f"{group}.{name}": value for name, value in values.items()}
    return {name: float(value) for name, value in report.items()} | ramp.rows(run, each, mean, report["mfu"])
