"""A service on a machine under a plan: its steady state, and what that takes in power, money and carbon."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hwopt.hardware.chip import Chip
from hwopt.hardware.cluster import Cluster
from hwopt.model import carbon, cost, power, rack, reliability
from hwopt.model.maximum import Maximum
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.model.serving.report import ServingMargins, ServingReport
from hwopt.model.serving.steady_state import steady_state
from hwopt.model.thermal import OperatingPoint
from hwopt.plan import Disaggregated, Plan
from hwopt.types import Scalar
from hwopt.workload.service import Service
from hwopt.workload.transformer import active_parameters, total_parameters


def lost_fraction(cluster: Cluster, instance_chips: Scalar, junction_k: Scalar) -> Scalar:
    """Time that failures take from a replica over the time between them: `lambda n R`; no work is lost but the requests'."""
    rate = reliability.failure_rate_per_s(cluster.reliability, instance_chips, junction_k)
    return rate * cluster.reliability.restart_s


def serving_report(
    service: Service,
    cluster: Cluster,
    asked_chip: Chip,
    plan: Plan | Disaggregated,
    point: OperatingPoint,
    maximum: Maximum,
) -> ServingReport:
    """Everything but the roots.

    **Arguments:** `cluster` at its sustained clock with the distances of its racks; `asked_chip`: the chip at
    the clock it asks for; `point` of operation.
    """
    state = steady_state(service, cluster, plan, maximum)
    between = state.interval_s
    each = 1.0 / between
    tokens = service.decodes * service.output_tokens + (1.0 - service.decodes) * service.new_tokens
    if isinstance(plan, Disaggregated):
        tokens = service.output_tokens
    a_second = tokens * each

    peak = 1.0 / jnp.sum(service.gemm_precision / cluster.chip.peak_flops_per_s) * asked_chip.clock_ratio
    per_chip = state.useful_flops * (1.0 / cluster.chips) * each
    it_peak_w = power.it_w(cluster, point, power.FULL_LOAD)
    pue = power.pue(cluster.facility, cluster.cooling)
    # By the request, not by the second: what is done does not depend on how often.
    idle_w = cluster.chips * pue * power.idle_it_w(cluster, point)
    request_j = idle_w * between + pue * power.active_it_w(cluster, point, state.work)
    lost = lost_fraction(cluster, state.instance_chips, point.junction_k)
    per_token = (1.0 + lost) / tokens
    built = cost.capital(cluster, it_peak_w)
    request_usd = sum(cost.standing_parts(cluster, built).values()) * between
    request_usd = request_usd + request_j * cost.electricity_usd_per_j(cluster)
    request_kg = sum(carbon.embodied_parts(cluster, it_peak_w).values()) * between
    request_kg = request_kg + request_j * cluster.facility.carbon_kg_per_j
    power_w = request_j * each
    margins = ServingMargins(
        **state.margins,
        cooling=point.cooling_margin,
        rack_power=jnp.log(rack.rack_limit_w(cluster) / (cluster.rack.chips * it_peak_w)),
        rack_cables=rack.cables_margin(cluster),
        rack_weight=jnp.log(cluster.rack.weight_limit_kg / rack.rack_weight_kg(cluster)),
    )
    fits = jnp.stack([value >= -FEASIBILITY_TOLERANCE for value in jax.tree.leaves(margins)])
    parts = jnp.stack(list(state.step.breakdown))
    answer_s = (service.output_tokens - 1.0) * state.time_per_output_token_s
    return ServingReport(
        step_time_s=state.step.period_s,
        tokens_per_s=a_second,
        tokens_per_s_per_chip=a_second / cluster.chips,
        requests_per_s=each,
        capacity_requests_per_s=1.0 / state.least_interval_s,
        time_to_first_token_s=state.time_to_first_token_s,
        time_per_output_token_s=state.time_per_output_token_s,
        request_time_s=state.time_to_first_token_s + answer_s,
        users=state.users,
        users_per_w=state.users / power_w,
        floor_time_s=state.floor_s,
        kv_transfer_s=state.kv_transfer_s,
        prefill_chips=state.prefill_chips,
        decode_chips=state.decode_chips,
        mfu=per_chip / peak,
        hfu=per_chip / peak * (state.executed_flops / state.useful_flops),
        model_flops_per_chip_per_s=per_chip,
        memory_per_chip_bytes=state.memory.total_bytes,
        memory_capacity_bytes=cluster.chip.hbm_capacity_bytes,
        clock_ratio=point.clock_ratio,
        clock_margin=point.clock_margin,
        junction_temperature_k=point.junction_k,
        heat_flux_w_per_m2=point.power_w / cluster.chip.silicon_area_m2,
        chip_power_w=point.power_w,
        rack_power_w=cluster.rack.chips * it_peak_w,
        racks=rack.racks(cluster),
        floor_area_m2=rack.floor_area_m2(cluster),
        pue=pue,
        power_w=power_w,
        peak_power_w=cluster.chips * pue * it_peak_w,
        site_power_w=cluster.chips / cluster.sites.count * pue * it_peak_w,
        goodput=1.0 / (1.0 + lost),
        mean_time_between_failures_s=reliability.job_mtbf_s(
            cluster.reliability, state.instance_chips, point.junction_k
        ),
        energy_per_token_j=request_j * per_token,
        carbon_per_token_kg=request_kg * per_token,
        capex_usd=cost.capex_usd(cluster, built),
        cost_per_token_usd=request_usd * per_token,
        silicon_area_m2=cluster.chip.silicon_area_m2,
        hbm_stacks=cluster.chips * cluster.chip.hbm_stacks,
        package_area_m2=cluster.chips * cluster.chip.package_area_m2,
        wafers=cluster.chips * cluster.chip.wafers,
        parameters=total_parameters(service.model),
        active_parameters=active_parameters(service.model),
        breakdown=state.step.breakdown,
        hidden_s=state.step.hidden_s,
        memory=state.memory,
        margins=margins,
        bottleneck=jnp.argmax(parts, axis=0).astype(parts.dtype),
        feasible=jnp.all(fits).astype(parts.dtype),
    )
