"""A machine that serves in steady state: as many requests leave as arrive, sequences of all ages share every pass.

One group of chips does both phases: of every pass a part are prompts of the requests that take the place of finished ones
(continuous batching, prompts beside decoding sequences). Or two groups share the work (disaggregation): prompts queue for
one, keys and values move to the other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.cluster import Cluster
from hwopt.model import collectives
from hwopt.model.maximum import Maximum, hard_maximum
from hwopt.model.power import Activity
from hwopt.model.roofline import seconds_per_flop
from hwopt.model.serving import cache
from hwopt.model.serving.batch import Batch
from hwopt.model.serving.footprint import footprint, shares_used
from hwopt.model.serving.forward import PassTime, floor_s, pass_flops, pass_time
from hwopt.model.serving.report import ServingFootprint
from hwopt.plan import Disaggregated, Plan
from hwopt.types import Scalar
from hwopt.workload.service import Service


class SteadyState(NamedTuple):
    """What a machine gives, and what a request costs it."""

    step: PassTime  # of sequences, or of prompts where nothing is generated
    floor_s: Array
    least_interval_s: Array  # between two requests, as fast as the machine can
    interval_s: Array  # the same as they arrive
    time_to_first_token_s: Array
    time_per_output_token_s: Array
    kv_transfer_s: Array
    users: Array
    work: Activity  # chip-seconds a request
    useful_flops: Array  # a request, of accepted tokens
    executed_flops: Array
    prefill_chips: Array
    decode_chips: Array
    instance_chips: Array  # that stop together
    memory: ServingFootprint  # fullest chip
    margins: dict[str, Array]  # of the plan


class _Group(NamedTuple):
    """Plans and batches of two passes, leading axis: the steady one, and the one that makes a first token."""

    plan: Plan
    batch: Batch


def chips_of(plan: Plan | Disaggregated) -> Scalar:
    """Chips that a plan uses."""
    if isinstance(plan, Disaggregated):
        return chips_of(plan.prefill) + chips_of(plan.decode)
    return plan.tp * plan.pp * plan.dp * plan.cp


def _stacked(first: Any, second: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.stack([a, b]), first, second)


def _batch(service: Service, sequences: Scalar, prompts: Scalar) -> Batch:
    return Batch(
        sequences=sequences,
        queries=1.0 + service.drafted_tokens,
        context=service.mean_context,
        prompt_tokens=prompts * service.new_tokens,
        prompts=prompts,
        prompt_context=service.input_tokens * service.cached_fraction,
        prompt_length=service.new_tokens,
    )


def _generated(service: Service, first: Scalar | float) -> Scalar:
    """Tokens of an answer that sequences' passes make: all, or (`first` 1) all but the one that the prompt's pass makes."""
    left = service.output_tokens - first
    return jnp.where(left > 1.0, left, 1.0)


def _groups(service: Service, plan: Plan | Disaggregated) -> _Group:
    """The two passes of a plan.

    Together on the same chips, a sequence is replaced after `(output - 1) / tau` passes (the first token is the prompt's), tau
    tokens a pass, so that each pass of b sequences holds `b tau / (output - 1)` prompts; a new request joins the next pass
    with its whole prompt.
    """
    zero = jnp.zeros_like(service.output_tokens)
    if isinstance(plan, Disaggregated):
        decoding = _batch(service, plan.decode.micro_batch, zero)
        return _Group(
            _stacked(plan.decode, plan.prefill), _stacked(decoding, _batch(service, zero, plan.prefill.micro_batch))
        )
    b, both = plan.micro_batch, service.decodes
    replaced = b * service.tokens_per_pass / _generated(service, both * service.prefills)
    steady = service.prefills * (both * replaced + (1.0 - both) * b)
    first = service.prefills * (both * (1.0 + replaced) + (1.0 - both) * b)
    batches = _stacked(_batch(service, both * b, steady), _batch(service, both * b, first))
    return _Group(_stacked(plan, plan), batches)


def steady_pass(service: Service, plan: Plan | Disaggregated) -> tuple[Plan, Batch]:
    """The pass that a machine repeats, of the chips that generate answers where two groups serve."""
    group = _groups(service, jax.tree.map(jnp.asarray, plan))
    return _pick(group.plan, 0), _pick(group.batch, 0)


def _drafting(service: Service, apart: bool) -> Array:
    """Time of the two passes with their drafts over that of the passes alone: `1 + g f` of sequences, `1 + f` of prompts alone."""
    drafts = jnp.where(service.drafted_tokens > 0.0, service.draft_fraction, 0.0)
    answers, prompts = 1.0 + service.drafted_tokens * drafts, 1.0 + drafts
    alone = service.decodes * answers + (1.0 - service.decodes) * prompts
    return jnp.stack([answers, prompts] if apart else [alone, alone])


def _drafted(time: PassTime, factor: Scalar) -> PassTime:
    return jax.tree.map(lambda part: part * factor, time)


def _replica_chips(plan: Plan) -> Scalar:
    return plan.tp * plan.pp * plan.cp


def _between_passes_s(plan: Plan, time: PassTime) -> Scalar:
    """Time between two passes of any replica: `period / (p d)`."""
    return time.period_s / (plan.pp * plan.dp)


def _work(service: Service, cluster: Cluster, plan: Plan, time: PassTime) -> Activity:
    """Chip-seconds of work of one pass of one micro-batch; arithmetic as if at the rate of large GEMMs."""
    chips = _replica_chips(plan)
    gemm_s = time.chip_flops * seconds_per_flop(cluster.chip, service)[0]
    return Activity(*(chips * part for part in (gemm_s, time.hbm_s, time.busy_s)))


def _transfer(service: Service, cluster: Cluster, plan: Disaggregated) -> tuple[Scalar, Scalar]:
    """Moving a prompt's keys and values: its time, and the least time between two requests that all links together allow.

    Every chip of a replica sends and receives its part, at the bandwidth of the outermost tier that the machine uses.
    """
    network, chips = cluster.network, chips_of(plan)
    one = jnp.ones_like(chips)
    sent, received = cache.request_bytes(service), cache.received_bytes(service, plan.decode, cluster.stack)
    part = hard_maximum(sent / _replica_chips(plan.prefill), received)
    moved_s = collectives.neighbour_send_s(network, part, chips, one)
    share = hard_maximum(sent / chips_of(plan.prefill), received * _replica_chips(plan.decode) / chips_of(plan.decode))
    return moved_s, share * collectives.far_s_per_byte(network, chips, one)


def _pick(tree: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


class _Served(NamedTuple):
    """What one or two groups of chips make of requests."""

    least_interval_s: Array
    time_to_first_token_s: Array
    kv_transfer_s: Array
    work: Activity
    useful_flops: Array
    executed_flops: Array
    prefill_chips: Array
    decode_chips: Array
    cached_tokens: Array  # of a replica, mean over layers, by pass


def _passes(service: Service, plan: Plan, generated: Scalar, decodes: Scalar) -> Scalar:
    """Passes of a micro-batch that a request takes its part in, over the sequences that share them."""
    each = 1.0 / plan.micro_batch
    return decodes * generated / service.tokens_per_pass * each + (1.0 - decodes) * each


def _answering(
    service: Service, cluster: Cluster, plan: Plan, batch: Batch, step: PassTime, generated: Scalar, decodes: Scalar
) -> _Served:
    """The group that generates answers, or does both phases, or only prompts."""
    passes = _passes(service, plan, generated, decodes)
    accepted = pass_flops(service.model, batch._replace(queries=service.tokens_per_pass))
    chips, zero = chips_of(plan), jnp.zeros_like(passes)
    resident = cache.layer_mean(service.model, service.mean_context) * batch.sequences * plan.pp
    return _Served(
        least_interval_s=passes * _between_passes_s(plan, step),
        time_to_first_token_s=zero,
        kv_transfer_s=zero,
        work=jax.tree.map(lambda part: passes * part, _work(service, cluster, plan, step)),
        useful_flops=passes * accepted,
        executed_flops=passes * pass_flops(service.model, batch),
        prefill_chips=(1.0 - decodes) * chips,
        decode_chips=decodes * chips,
        cached_tokens=jnp.stack([resident, resident]),
    )


def _together(
    service: Service, plan: Plan, answers: _Served, step: PassTime, first: PassTime, prompts: Scalar
) -> _Served:
    """Prompts beside answers on the same chips, or either alone. **Arguments:** `prompts` of the pass that makes a first token."""
    waiting = 0.5 * service.decodes * step.period_s / plan.pp
    held = cache.layer_mean(service.model, service.input_tokens) * prompts
    return answers._replace(
        time_to_first_token_s=service.prefills * (waiting + first.latency_s),
        cached_tokens=answers.cached_tokens + held * (service.decodes + (1.0 - service.decodes) * plan.pp),
    )


def _apart(
    service: Service,
    cluster: Cluster,
    plan: Disaggregated,
    answers: _Served,
    first: PassTime,
    batch: Batch,
    maximum: Maximum,
) -> _Served:
    """Prompts on chips of their own, `batch` of them a pass: the slowest of both groups and of the links sets the pace."""
    own = plan.prefill
    passes, load = 1.0 / own.micro_batch, service.load
    transfer_s, links_s = _transfer(service, cluster, plan)
    filled = passes * _between_passes_s(own, first) / load
    queue_s = load / (2.0 * (1.0 - load)) * first.period_s / own.pp
    flops = passes * pass_flops(service.model, batch)
    prompt = cache.layer_mean(service.model, service.input_tokens) * batch.prompts * own.pp
    return answers._replace(
        least_interval_s=maximum(maximum(answers.least_interval_s, filled), links_s),
        time_to_first_token_s=queue_s + first.latency_s + transfer_s,
        kv_transfer_s=transfer_s,
        work=jax.tree.map(lambda a, b: a + passes * b, answers.work, _work(service, cluster, own, first)),
        useful_flops=answers.useful_flops + flops,
        executed_flops=answers.executed_flops + flops,
        prefill_chips=chips_of(own),
        cached_tokens=jnp.stack([answers.cached_tokens[0], prompt]),
    )


def steady_state(service: Service, cluster: Cluster, plan: Plan | Disaggregated, maximum: Maximum) -> SteadyState:
    """Rate, latencies and needs of a machine that runs at its plan's batch.

    Time to first token: on common chips half a pass of waiting and the pass that holds the prompt; on chips of their own the
    queue, the pass, and moving keys and values. A queue of arrivals at random for one replica at load rho waits
    `rho / (2 (1 - rho))` passes (M/D/1; less where replicas share a queue, or where there are more chips for prompts than are
    needed).

    **Source:** continuous batching: Yu et al., Orca, OSDI 2022; disaggregation: Zhong et al., DistServe, OSDI 2024;
    Patel et al., Splitwise, ISCA 2024; queue: Pollaczek and Khinchine.
    """
    group, two = _groups(service, plan), isinstance(plan, Disaggregated)
    times = jax.vmap(lambda p, b: pass_time(service, cluster, p, b, maximum))(group.plan, group.batch)
    times = _drafted(times, _drafting(service, two))
    step, first = _pick(times, 0), _pick(times, 1)
    plans, batches = [_pick(group.plan, i) for i in (0, 1)], [_pick(group.batch, i) for i in (0, 1)]
    decodes = jnp.ones_like(service.output_tokens) if two else service.decodes
    generated = _generated(service, 1.0 if two else decodes * service.prefills)

    served = _answering(service, cluster, plans[0], batches[0], step, generated, decodes)
    if isinstance(plan, Disaggregated):
        served = _apart(service, cluster, plan, served, first, batches[1], maximum)
    else:
        served = _together(service, plans[0], served, step, first, batches[1].prompts)
    asked = service.requests_per_s > 0.0
    arrival_s = 1.0 / jnp.where(asked, service.requests_per_s, 1.0)
    interval = jnp.where(asked, arrival_s, served.least_interval_s)
    demand = jnp.where(asked, jnp.log(interval / served.least_interval_s), 0.0)

    fullest = _stacked(batches[0] if two else batches[1], batches[1])
    held = lambda p, b, tokens: footprint(service, cluster, p, b, tokens)
    memory = jax.vmap(held)(group.plan, fullest, served.cached_tokens)
    shares = jax.vmap(lambda p, m: shares_used(service, cluster, p, m))(group.plan, memory)
    margins = {name: -jnp.log(hard_maximum(share[0], share[1])) for name, share in shares.items()}
    fuller = memory.total_bytes[1] > memory.total_bytes[0]
    spans = [hard_maximum(_replica_chips(p), p.ep * p.expert_tp * p.pp) for p in plans]
    return SteadyState(
        step=step,
        floor_s=floor_s(service, cluster, plans[0], batches[0]),
        least_interval_s=served.least_interval_s,
        interval_s=interval,
        time_to_first_token_s=served.time_to_first_token_s,
        time_per_output_token_s=decodes * step.period_s / service.tokens_per_pass,
        kv_transfer_s=served.kv_transfer_s,
        users=decodes * generated / service.tokens_per_pass * step.period_s * (1.0 / interval),
        work=served.work,
        useful_flops=served.useful_flops,
        executed_flops=served.executed_flops,
        prefill_chips=served.prefill_chips,
        decode_chips=served.decode_chips,
        instance_chips=hard_maximum(*spans),
        memory=jax.tree.map(lambda part: jnp.where(fuller, part[1], part[0]), memory),
        margins=margins | {"demand": demand, "chips": -jnp.abs(jnp.log(cluster.chips / chips_of(plan)))},
    )
