"""Report of a service on a cluster under a plan: its steady state, power, cost and carbon."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from hwopt.hardware.cluster import AnyCluster, Cluster
from hwopt.model import machine
from hwopt.model.chip.sustained_clock import asked_core_share
from hwopt.model.facility import cost, power, reliability
from hwopt.model.facility.cost import Spending
from hwopt.model.machine import Lifted, LiftedMargins, Machine, added
from hwopt.model.numerics.maximum import Maximum, above_zero, hard_maximum
from hwopt.model.report import GroupReport, ServingMargins, ServingReport, outputs
from hwopt.model.serving.steady_state import SteadyState, steady_state
from hwopt.model.serving.tails import BUSIEST, FIRST_MEAN, TOKEN_MEAN, tails
from hwopt.plan import Disaggregated, Plan
from hwopt.types import Scalar
from hwopt.workload.service import Service
from hwopt.workload.transformer import active_parameters, total_parameters


def serving_report(
    service: Service, cluster: AnyCluster, plan: Plan | Disaggregated, maximum: Maximum, given: Lifted | None
) -> tuple[ServingReport, LiftedMargins]:
    """Return the report of a service, and margins of the lifted variables.

    Failures take `lambda n R` of the time of a replica of n chips, with failure rate lambda and recovery time R. They lose no
    work except requests in flight.

    A request's cost C is split between prefill and decode by machine time. Prices are `p_in = C (1 - a) / n` per new input
    token and `p_out = C a / o` per output token, for n new input and o output tokens. So `n p_in + o p_out = C`. The decode
    share a is:

    - colocated: `usual pass / mean pass`, so prompts pay for the time that they add to the passes that they join;
    - two groups of the same chip: `decode chips / chips`, so each group pays for its chips, idle or not;
    - two groups of different chips: `standing cost of the decode group / total standing cost`.

    Groups of different chips are machines of their own, each with as many chips as its plan uses. Power, cost and carbon add
    up. Failures are those of the group that loses more time to them.

    **Arguments:**

    - `service`, `cluster`, `plan`: the workload, the machine and the parallelization.
    - `maximum`: exact or smooth maximum.
    - `given`: values of the lifted variables, of which a service has only junction temperatures; None to compute them.
    """
    clusters = cluster.groups
    states = [None for _ in clusters] if given is None else given.groups
    its = [machine.machine(each, state, service) for each, state in zip(_sized(clusters, plan), states, strict=True)]
    points = [it.point for it in its]
    active = [machine.running(*each, settles=given is None) for each in zip(clusters, points, strict=True)]
    state = steady_state(service, active, plan, maximum)
    works = [
        work._replace(core=work.core * asked_core_share(at.chip, point))
        for work, at, point in zip(state.work, active, points, strict=True)
    ]
    between = state.interval_s
    each = 1.0 / between
    tokens = state.decodes * service.output_tokens + (1.0 - state.decodes) * service.new_tokens

    stops, lost = _stops(its, state)
    stops_per_s = added(stops)
    paid = _paid(its, works, between)
    chips, power_w, spending = added([it.cluster.chips for it in its]), added(paid.powers_w), paid.spending
    per_token = (1.0 + lost) / tokens
    paid_usd = paid.request_usd * (1.0 + lost)
    answers_share = state.answers_share if len(its) == 1 else paid.spendings[0].standing / spending.standing
    prices = {
        "cost_per_input_token_usd": paid_usd * above_zero(1.0 - answers_share) / service.new_tokens,
        "cost_per_output_token_usd": paid_usd * answers_share / service.output_tokens,
    }
    seen = tails(service, plan, state, maximum, proved=given is not None)
    busiest, later = seen.pop(BUSIEST), service.output_tokens - 1.0
    token_s, full_batch = seen[TOKEN_MEAN], (state.time_to_first_token_s, state.time_per_output_token_s)
    users = state.answer_passes * service.tokens_per_pass * token_s * service.peak_over_mean * each
    latencies = {
        "request_time_s": seen[FIRST_MEAN] + later * token_s,
        "time_to_first_token_full_batch_s": full_batch[0],
        "time_per_output_token_full_batch_s": full_batch[1],
        "request_time_full_batch_s": full_batch[0] + later * full_batch[1],
        "users": users,
        "users_per_w": users / power_w,
    }
    common = machine.outputs(
        its,
        service,
        clock_ratio=active[0].chip.clock_ratio * state.step.arithmetic_s / state.step.breakdown.compute_s,
        parameters=total_parameters(service.model),
        active_parameters=active_parameters(service.model),
        tokens_per_s=tokens * each,
        useful_flops_per_s=state.useful_flops * (1.0 / chips) * each,
        executed_over_useful=state.executed_flops / state.useful_flops,
        memory=state.memory,
        memory_capacity_bytes=state.capacity_bytes,
        breakdown=state.step.breakdown,
        margins=ServingMargins(**machine.margins(its), **state.margins),
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
        energy_per_token_j=added(paid.joules) * per_token,
        carbon_per_token_kg=paid.request_kg * per_token,
        chip_usd_per_s=sum(spending) / chips,
        cost_per_token_usd=paid.request_usd * per_token,
        groups=_groups(its, state, paid),
    )
    always = jnp.ones_like(its[0].heat_margin)
    return report, LiftedMargins(machine.least([it.heat_margin for it in its]), always, always)


def _sized(clusters: tuple[Cluster, ...], plan: Any) -> list[Cluster]:
    """Return the clusters, one for each chip type, resized to the chips that their plans use; a single cluster unchanged.

    The storage of the first group serves both.
    """
    if len(clusters) == 1:
        return list(clusters)
    pairs = zip((clusters[0], clusters[1].unstored), plan.groups.values(), strict=True)
    return [eqx.tree_at(lambda c: c.chips, c, p.chips) for c, p in pairs]


class _Paid(NamedTuple):
    """Energy, power, cost and carbon of serving. Lists have an entry for each chip type."""

    joules: list[Scalar]  # energy at the meter per request
    powers_w: list[Scalar]  # mean power
    spendings: list[Spending]  # cost per second
    spending: Spending  # total over chip types
    request_usd: Scalar
    request_kg: Scalar


def _paid(its: Sequence[Machine], works: Sequence[power.Activity], between: Scalar) -> _Paid:
    """Return energy, power and cost per request.

    They are computed per request, not per second, because the work of a request does not depend on the request rate.

    **Arguments:**

    - `its`: a machine for each chip type.
    - `works`: activity of each chip type per request.
    - `between`: seconds between two requests.
    """
    idle_w = [it.pue * it.standing_w for it in its]
    active_j = [it.pue * power.active_it_w(it.cluster, it.point, work) for it, work in zip(its, works, strict=True)]
    joules = [idle * between + active for idle, active in zip(idle_w, active_j, strict=True)]
    each = 1.0 / between
    powers_w = [request_j * each for request_j in joules]
    spendings = [cost.spending(it.cluster, it.capital, w) for it, w in zip(its, powers_w, strict=True)]
    spending = spendings[0] if len(its) == 1 else Spending(*map(added, zip(*spendings, strict=True)))
    electricity = [j * cost.electricity_usd_per_j(it.cluster) for j, it in zip(joules, its, strict=True)]
    grid_kg = [j * it.cluster.facility.carbon_kg_per_j for j, it in zip(joules, its, strict=True)]
    embodied = [added([*cost.embodied_parts(it.cluster, it.fed_w, it.powered).values()]) for it in its]
    return _Paid(
        joules,
        powers_w,
        spendings,
        spending,
        request_usd=spending.standing * between + added(electricity),
        request_kg=added(embodied) * between + added(grid_kg),
    )


def _stops(its: Sequence[Machine], state: SteadyState) -> tuple[reliability.Interruptions, Scalar]:
    """Return the interruption rates of a replica, in 1/s, and its recovery time over its time between interruptions.

    With two groups of chips, both are of the group that loses more time.
    """
    most: tuple[reliability.Interruptions, Scalar] | None = None
    for it, chips in zip(its, state.instance_chips, strict=True):
        stops = reliability.interruptions(it.cluster, chips, it.point.junction_k)
        lost = added(stops) * reliability.recovery_s(it.cluster)
        if most is None:
            most = stops, lost
        else:
            first, less = most
            more = lost > less
            most = jax.tree.map(lambda a, b, more=more: jnp.where(more, b, a), first, stops), hard_maximum(less, lost)
    assert most is not None
    return most


def _groups(its: Sequence[Machine], state: SteadyState, paid: _Paid) -> dict[str, GroupReport] | None:
    """Return a report for each of two groups of different chips; None for a single chip type."""
    if len(its) == 1:
        return None
    fastest = state.answers_interval_s, state.prompts_interval_s
    rows = zip(
        ("decode", "prefill"), its, state.group_memory_bytes, fastest, paid.powers_w, paid.spendings, strict=True
    )
    return {
        name: GroupReport(
            group_chips=it.cluster.chips,
            group_servers=it.cluster.chips / it.cluster.rack.server_chips,
            in_use=fastest_s / state.interval_s,
            fullest_bytes=memory,
            capacity_bytes=it.cluster.chip.hbm_capacity_bytes,
            full_load_w=it.point.power_w,
            mean_power_w=power_w,
            peak_power_w=it.design_pue * it.fed_w,
            capex_usd=cost.capex_usd(it.cluster, it.capital),
            usd_per_s=added(spending),
        )
        for name, it, memory, fastest_s, power_w, spending in rows
    }


def _of_phases(service: Service, values: dict[str, Scalar]) -> dict[str, Any]:
    """Return metrics by name, with NaN where the machine does not do the phases (prefill, decode) that a metric needs."""
    known = outputs(ServingReport)
    masked = {}
    for name, value in values.items():
        does = jnp.ones_like(service.decodes)
        for phase in known[name].phases:
            does = does * getattr(service, phase)
        masked[name] = jnp.where(does > 0.0, value, jnp.nan)
    return masked
