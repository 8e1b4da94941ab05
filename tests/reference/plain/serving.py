"""A service on a cluster in plain Python floats: every leaf of the model's serving report by name."""

from __future__ import annotations

import math

from tests.reference.plain import rack
from tests.reference.plain.estimate import peak_seconds_per_flop
from tests.reference.plain.export import tpp
from tests.reference.plain.failures import interruptions, switches
from tests.reference.plain.money import carbon, money, serves, spending
from tests.reference.plain.names import BREAKDOWN
from tests.reference.plain.pace import asked_core_w
from tests.reference.plain.power import at_the_inlet, beside, usage_effectiveness
from tests.reference.plain.serving_state import chips_of, colocated, disaggregated, kept_free
from tests.reference.plain.tails import percentiles
from tests.reference.plain.thermal import operating_point
from tests.reference.plain.weights import expert_replicas, held_experts, parameters


def plan_margins(service, cluster, plan, used: float, with_slots: bool) -> dict[str, float]:
    """`with_slots`: whether experts have slots in any group of chips, which must be as many as there are experts."""
    w = service.model
    return {
        "memory": math.log(cluster.chip.hbm_capacity_bytes) - math.log(used),
        "stages": math.log((w.layers + 2.0) / plan.pp),
        "tensor_parallel": math.log(w.heads) - math.log(plan.tp),
        "experts": math.log(max(held_experts(w, plan), 1.0) / max(plan.ep, w.experts if with_slots else 1.0)),
        "replicas": math.log(expert_replicas(plan)),
    }


def margins(service, cluster, state: dict, rack_w: float, cooling: float) -> dict[str, float]:
    each = [
        plan_margins(service, cluster, plan, sum(parts.values()), any(other.layout for other in state["plans"]))
        for plan, parts in zip(state["plans"], state["needs"], strict=True)
    ]
    return {
        **{name: min(limits[name] for limits in each) for name in each[0]},
        "demand": math.log(state["interval"]) - math.log(kept_free(service, state["between"]))
        if service.requests_per_s > 0
        else math.inf,
        "chips": -abs(math.log(cluster.chips / sum(chips_of(plan) for plan in state["plans"]))),
        "cooling": cooling,
        **rack.margins(cluster, rack_w),
    }


def watts(cluster, running, point, state: dict) -> dict[str, float]:
    """Of a chip at full load at the rack's inlet, and of the cluster at the meter, on average."""
    shares = {name: seconds / state["interval"] / cluster.chips for name, seconds in state["work"].items()}
    pue = usage_effectiveness(cluster)
    core = shares["arithmetic"] * asked_core_w(running.chip) / point["core"]
    average = at_the_inlet(cluster, point, core, shares["hbm"], shares["busy"])
    others = beside(cluster, point)
    return {
        **others,
        "full": at_the_inlet(cluster, point, 1.0, 1.0, 1.0),
        "average": pue * (cluster.chips * average + others["standing"]),
        "pue": pue,
        "design_pue": usage_effectiveness(cluster, design_day=True),
        "chip": point["standby"] + point["leakage"] + point["core"] + point["memory"],
    }


def missing(service, plan) -> list[str]:
    """Metrics that a machine of one phase, or of one group of chips, does not have."""
    names = [] if hasattr(plan, "decode") else ["kv_transfer_s"]
    of_both = ["request_time_s", "request_time_full_batch_s"]
    of_prompts = ["time_to_first_token_s", "time_to_first_token_full_batch_s", "cost_per_input_token_usd", *of_both]
    names += [] if service.prefills else of_prompts
    of_answers = ["time_per_output_token_s", "users", "users_per_w", "cost_per_output_token_usd", *of_both]
    of_answers += ["time_per_output_token_full_batch_s"]
    return names if service.decodes else [*names, *of_answers]


def estimate(service, cluster, plan) -> dict[str, float]:
    """Every leaf of the report by name."""
    chip, chips = cluster.chip, cluster.chips
    cluster = serves(cluster, service)
    point = operating_point(chip, cluster.cooling)
    running = rack.running(cluster, point)
    state = (disaggregated if hasattr(plan, "decode") else colocated)(service, running, plan)
    draw = watts(cluster, running, point, state)
    pue, rack_w = draw["pue"], draw["full"] * rack.filled(cluster)
    capex, usd = money(cluster, draw["fed"], draw["spares"], draw["average"])
    kilograms = carbon(cluster, draw["fed"], draw["spares"], draw["average"])
    stops = interruptions(cluster, state["instance"], point["kelvin"])
    rate = sum(stops.values())
    back = cluster.recovery.swap_s if cluster.recovery.hot_spares else cluster.reliability.restart_s
    goodput = 1.0 / (1.0 + rate * back)
    asked = service.output_tokens
    if service.decodes == 0 and not hasattr(plan, "decode"):
        asked = service.input_tokens * (1.0 - service.cached_fraction)
    tokens = asked / state["interval"]
    request_usd, new = usd * state["interval"] / goodput, service.input_tokens * (1.0 - service.cached_fraction)
    per_chip = state["useful"] / chips / state["interval"]
    peak_s = peak_seconds_per_flop(service, chip)
    parts, limits = state["step"]["parts"], margins(service, cluster, state, rack_w, point["cooling_margin"])
    used = sum(state["memory"].values())
    report = {
        "step_time_s": state["step"]["period"],
        "tokens_per_s": tokens,
        "tokens_per_s_per_chip": tokens / chips,
        "requests_per_s": 1.0 / state["interval"],
        "capacity_requests_per_s": 1.0 / state["between"],
        "floor_time_s": state["floor"],
        "kv_transfer_s": state["transfer"],
        "prefill_chips": state["prefill_chips"],
        "decode_chips": state["decode_chips"],
        "mfu": per_chip * peak_s,
        "hfu": state["executed"] / chips / state["interval"] * peak_s,
        "model_flops_per_chip_per_s": per_chip,
        "memory_per_chip_bytes": used,
        "memory_capacity_bytes": chip.hbm_capacity_bytes,
        "clock_ratio": running.chip.clock_ratio / state["step"]["slowdown"],
        "clock_margin": point["clock_margin"],
        "junction_temperature_k": point["kelvin"],
        "heat_flux_w_per_m2": draw["chip"] / chip.heat_area_m2,
        "chip_power_w": draw["chip"],
        "rack_power_w": rack_w,
        "racks": chips / cluster.rack.chips,
        "servers": chips / cluster.rack.server_chips,
        "lanes": chips * float(cluster.network.bandwidth_bytes_per_s[0]) / float(cluster.network.lane_bytes_per_s[0]),
        "nics": chips * float(cluster.network.bandwidth_bytes_per_s[1]) / float(cluster.network.lane_bytes_per_s[1]),
        "switches": switches(cluster, chips),
        "floor_area_m2": chips / cluster.rack.chips * cluster.rack.floor_area_m2,
        "pue": pue,
        "design_pue": draw["design_pue"],
        "power_w": draw["average"],
        "hot_spares": draw["spares"],
        "peak_power_w": draw["design_pue"] * draw["fed"],
        "site_power_w": draw["design_pue"] * draw["fed"] / cluster.sites.count,
        "goodput": goodput,
        "mean_time_between_failures_s": 1.0 / rate,
        "energy_per_token_j": draw["average"] / (tokens * goodput),
        "carbon_per_token_kg": kilograms / (tokens * goodput),
        "capex_usd": capex,
        "chip_usd_per_s": usd / chips,
        "cost_per_token_usd": usd / (tokens * goodput),
        "cost_per_input_token_usd": request_usd * state["of_prompts"] / new,
        "cost_per_output_token_usd": request_usd * (1.0 - state["of_prompts"]) / service.output_tokens,
        "silicon_area_m2": chip.silicon_area_m2,
        "total_processing_performance": tpp(chip),
        "performance_density_per_m2": tpp(chip) / chip.logic_area_m2,
        "io_rate_bytes_per_s": 2.0 * float(cluster.network.bandwidth_bytes_per_s[0]) + 2.0 * chip.host_bytes_per_s,
        "hbm_stacks": chips * chip.hbm_stacks,
        "package_area_m2": chips * chip.package_area_m2,
        "wafers": chips * chip.wafers,
        "parameters": parameters(service.model, per_token=False),
        "active_parameters": parameters(service.model, per_token=True),
        "hidden_s": state["step"]["hidden"],
        "bottleneck": float(max(range(len(BREAKDOWN)), key=lambda i: parts[BREAKDOWN[i]])),
        "feasible": float(all(value >= -1e-6 for value in limits.values())),
    }
    report |= percentiles(service, plan, state)
    report["users_per_w"] = report["users"] / draw["average"]
    report |= dict.fromkeys(missing(service, plan), math.nan)
    spent = spending(cluster, draw["fed"], draw["spares"], draw["average"])
    groups = {
        "breakdown": parts,
        "memory": state["memory"],
        "margins": limits,
        "spending": spent,
        "interruptions": stops,
    }
    for group, values in groups.items():
        report |= {f"{group}.{name}": value for name, value in values.items()}
    return {name: float(value) for name, value in report.items()}
