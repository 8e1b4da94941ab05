"""Percentiles of the times that users see in the busiest hour, of a machine in steady state."""

from typing import Any

import jax.numpy as jnp

from hwopt.model.maximum import Maximum
from hwopt.model.serving import queueing
from hwopt.model.serving.steady_state import SteadyState
from hwopt.types import Scalar
from hwopt.workload.service import Service

FIRST, TOKEN = "time_to_first_token_{}_s", "time_per_output_token_{}_s"
"""Names of the percentiles in a report, by their level."""

BUSIEST = "busiest_load"


def tails(service: Service, plan: Any, state: SteadyState, maximum: Maximum, bounded: bool) -> dict[str, Scalar]:
    """Percentiles by name, and the load that they are at: the mean load times `peak_over_mean`.

    Of one group of chips each stage's micro-batch of a replica is a stream (`queueing`). Of two, prompts queue for the first group,
    each replica a server, and a first token is out once the second has a slot for its sequence.

    **Arguments:** `bounded`: whether a machine that is asked for more than it can answer has no percentiles (infinite); else they
    are what the formulas make of it, which means nothing.
    """
    requests = queueing.Requests(
        service.arrival_scv, service.input_scv, service.output_scv, service.least_loaded
    )
    two = plan.disaggregated
    own, other = (plan.decode, plan.prefill) if two else (plan, plan)
    rate = service.peak_over_mean / state.interval_s
    load, prompt_load = rate * state.answers_interval_s, rate * state.prompts_interval_s
    busiest = rate * state.least_interval_s
    if bounded:
        ends = (load < 1.0) & (prompt_load < 1.0)
        load, prompt_load = (jnp.where(ends, each, 0.5) for each in (load, prompt_load))
    stream = queueing.Stream(
        load=load,
        full_s=state.step.period_s,
        empty_s=state.empty.period_s,
        prompt_s=jnp.zeros_like(load) if two else state.first.latency_s - state.step.latency_s,
        slots=own.micro_batch,
        passes=state.answer_passes,
        streams=own.dp * own.pp,
    )
    at = queueing.passes(requests, stream)
    queue = queueing.prompt_queue(requests, prompt_load, state.first.period_s / other.pp, other.micro_batch, other.dp)
    alone_s, varied = state.first.latency_s, requests.prompts / other.micro_batch
    alone = queueing.Spread(
        mean_s=queue.mean_s + alone_s,
        variance=queue.variance + varied * alone_s * alone_s,
        third=queue.third + 2.0 * varied * varied * alone_s**3,
    )
    alone_floor = alone_s / (1.0 + 4.0 * varied)
    beside = queueing.own_pass(requests, at, at.decoding_s + at.prompt_s)
    beside_floor = at.decoding_s + at.prompt_s / (1.0 + 4.0 * requests.prompts)

    found = {}
    for name, level in queueing.LEVELS.items():
        wait = queueing.slot_wait_s(requests, at, load, level)
        if two:
            first = queueing.first_token_s(alone, wait, level, alone_floor, maximum) + state.kv_transfer_s
        else:
            together = queueing.first_token_s(beside, wait, level, beside_floor, maximum)
            first = jnp.where(state.decodes > 0.0, together, queueing.quantile(alone, level, alone_floor))
        token = queueing.token_s(requests, at, level) / service.tokens_per_pass
        found |= {FIRST.format(name): first, TOKEN.format(name): token}
    if bounded:
        found = {name: jnp.where(ends, value, jnp.inf) for name, value in found.items()}
    return found | {BUSIEST: busiest}
