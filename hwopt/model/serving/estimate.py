"""A service on a machine under a plan: its steady state, and what that takes in power, money and carbon."""

from typing import Any

import jax.numpy as jnp

from hwopt.hardware.cluster import Cluster
from hwopt.model import cost, machine, power, reliability
from hwopt.model.machine import Lifted, LiftedMargins
from hwopt.model.maximum import Maximum, above_zero
from hwopt.model.pace import asked_core_share
from hwopt.model.report import ServingMargins, ServingReport, outputs
from hwopt.model.serving.steady_state import steady_state
from hwopt.model.serving.tails import BUSIEST, tails
from hwopt.plan import Disaggregated, Plan
from hwopt.types import Scalar
from hwopt.workload.service import Service
from hwopt.workload.transformer import active_parameters, total_parameters


def serving_report(
    service: Service, cluster: Cluster, plan: Plan | Disaggregated, maximum: Maximum, given: Lifted | None
) -> tuple[ServingReport, LiftedMargins]:
    """A service. **Arguments:** what the model would find as roots, where it is `given`: of these the junction temperature.

    Failures take `lambda n R` of the time between them from a replica of n chips; no work is lost but the requests'.

    A request's cost C is divided among its phases by the machine's time that each takes: `p_in = C (1 - a) / n` a new input token,
    `p_out = C a / o` an output token, a the share of answers. Prompts take what they add to the passes that they join, `a = usual
    pass / mean pass`; of two groups of chips each takes its own, idle or not, `a = chips of answers / chips`. They add up:
    `n p_in + o p_out = C`.
    """
    it = machine.machine(cluster, given)
    point = it.point
    active = machine.running(cluster, point, settles=given is None)
    state = steady_state(service, active, plan, maximum)
    work = state.work._replace(core=state.work.core * asked_core_share(active.chip, point))
    between = state.interval_s
    each = 1.0 / between
    tokens = state.decodes * service.output_tokens + (1.0 - state.decodes) * service.new_tokens

    # By the request, not by the second: what is done does not depend on how often.
    idle_w = it.pue * (cluster.chips * power.idle_it_w(cluster, point) + it.standing_w)
    request_j = idle_w * between + it.pue * power.active_it_w(cluster, point, work)
    stops = reliability.interruptions(cluster, state.instance_chips, point.junction_k)
    stops_per_s = sum(stops[1:], start=stops[0])
    lost = stops_per_s * reliability.recovery_s(cluster)
    per_token = (1.0 + lost) / tokens
    power_w = request_j * each
    spending = cost.spending(cluster, it.capital, power_w)
    request_usd = spending.standing * between + request_j * cost.electricity_usd_per_j(cluster)
    request_kg = sum(cost.embodied_parts(cluster, it.fed_w, it.hot_spares).values()) * between
    request_kg = request_kg + request_j * cluster.facility.carbon_kg_per_j
    paid_usd = request_usd * (1.0 + lost)
    prices = {
        "cost_per_input_token_usd": paid_usd * above_zero(1.0 - state.answers_share) / service.new_tokens,
        "cost_per_output_token_usd": paid_usd * state.answers_share / service.output_tokens,
    }
    latencies = {
        "time_to_first_token_s": state.time_to_first_token_s,
        "time_per_output_token_s": state.time_per_output_token_s,
        "request_time_s": state.time_to_first_token_s + (service.output_tokens - 1.0) * state.time_per_output_token_s,
        "users": state.users,
        "users_per_w": state.users / power_w,
    }
    seen = tails(service, plan, state, maximum, proved=given is not None)
    busiest = seen.pop(BUSIEST)
    common = machine.outputs(
        it,
        service,
        clock_ratio=active.chip.clock_ratio * state.step.arithmetic_s / state.step.breakdown.compute_s,
        parameters=total_parameters(service.model),
        active_parameters=active_parameters(service.model),
        tokens_per_s=tokens * each,
        useful_flops_per_s=state.useful_flops * (1.0 / cluster.chips) * each,
        executed_over_useful=state.executed_flops / state.useful_flops,
        memory=state.memory,
        breakdown=state.step.breakdown,
        margins=ServingMargins(**machine.margins(it), **state.margins),
    )
    report = ServingReport(
        **common,
        **_of_phases(service, latencies | prices | seen),
        busiest_load=busiest,
        step_time_s=state.step.period_s,
        hidden_s=state.step.hidden_s,
        requests_per_s=each,
        capacity_requests_per_s=1.0 / state.least_interval_s,
        floor_time_s=state.floor_s,
        kv_transfer_s=state.kv_transfer_s,
        prefill_chips=state.prefill_chips,
        decode_chips=state.decode_chips,
        power_w=power_w,
        spending=spending,
        interruptions=stops,
        goodput=1.0 / (1.0 + lost),
        mean_time_between_failures_s=1.0 / stops_per_s,
        energy_per_token_j=request_j * per_token,
        carbon_per_token_kg=request_kg * per_token,
        chip_usd_per_s=sum(spending) / cluster.chips,
        cost_per_token_usd=request_usd * per_token,
    )
    always = jnp.ones_like(it.heat_margin)
    return report, LiftedMargins(it.heat_margin, always, always)


def _of_phases(service: Service, values: dict[str, Scalar]) -> dict[str, Any]:
    """Metrics, not a number where the machine does not do the phases that they are of."""
    known = outputs(ServingReport)
    masked = {}
    for name, value in values.items():
        does = jnp.ones_like(service.decodes)
        for phase in known[name].phases:
            does = does * getattr(service, phase)
        masked[name] = jnp.where(does > 0.0, value, jnp.nan)
    return masked
