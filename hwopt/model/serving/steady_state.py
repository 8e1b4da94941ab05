"""A machine that serves in steady state: as many requests leave as arrive, sequences of all ages share every pass.

Colocated, one group of chips does both phases: of every pass a part are prompts of the requests that take the place of finished
ones (continuous batching, prompts beside decoding sequences). Disaggregated, prompts queue for one group, and keys and values
move to the other.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.cluster import Cluster
from hwopt.model.chip.roofline import fastest_seconds_per_flop
from hwopt.model.facility.power import Activity
from hwopt.model.layers.parameters import splits
from hwopt.model.network import collectives
from hwopt.model.numerics.maximum import Maximum, hard_maximum
from hwopt.model.serving import cache
from hwopt.model.serving.batch import Batch
from hwopt.model.serving.footprint import ServingFootprint, draft_share, footprint
from hwopt.model.serving.forward import PassTime, floor_s, pass_flops, pass_time
from hwopt.plan import Disaggregated, Plan, laid_out_as, undivided
from hwopt.types import Scalar
from hwopt.workload.service import Service


class SteadyState(NamedTuple):
    """What a machine gives, and what a request costs it."""

    step: PassTime  # of sequences, or of prompts where nothing is generated
    first: PassTime  # that makes a first token
    empty: PassTime  # of one sequence alone, or of prompts where nothing is generated
    floor_s: Array
    least_interval_s: Array  # between two requests, as fast as the machine can
    interval_s: Array  # the same as they arrive, mean over the day
    answers_interval_s: Array  # as fast as the chips that generate answers can, of one group all
    prompts_interval_s: Array  # as fast as chips for prompts can
    answer_passes: Array  # of one sequence
    time_to_first_token_s: Array
    time_per_output_token_s: Array
    kv_transfer_s: Array  # not a number for one group of chips
    users: Array
    decodes: Array  # 1: answers are generated
    work: tuple[Activity, ...]  # of each kind of chip, chip-seconds a request
    useful_flops: Array  # a request, of accepted tokens
    executed_flops: Array
    answers_share: Array  # of the machine's time, that answers take; prompts take the rest; of one kind of chip
    prefill_chips: Array
    decode_chips: Array
    instance_chips: tuple[Array, ...]  # of each kind, that stop together
    memory: ServingFootprint  # fullest chip
    capacity_bytes: Array  # of that chip
    group_memory_bytes: tuple[Array, ...]  # of the fullest chip of each group
    margins: dict[str, Array]  # of the plan


def _stacked(*trees: Any) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _pick(tree: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


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


def _generated(service: Service, disaggregated: bool) -> Scalar:
    """Tokens of an answer that sequences' passes make: all but the one that a prompt's pass makes, at least one."""
    left = service.output_tokens - (1.0 if disaggregated else service.decodes * service.prefills)
    return jnp.where(left > 1.0, left, 1.0)


def _replaced(service: Service, sequences: Scalar) -> Scalar:
    """Sequences of a colocated group that a pass replaces by new requests, mean."""
    return service.prefills * service.decodes * sequences * service.tokens_per_pass / _generated(service, False)


def _mean_pass(usual: PassTime, with_prompts: PassTime, replaced: Scalar) -> PassTime:
    """The mean of passes with and without prompts: `(usual + r mixed) / (1 + r)`.

    A pass with prompts holds those of a request and of r others, so that one pass in `(1 + r) / r` has any. What a request does
    is the same as if each pass held r prompts, but short passes read weights for sequences alone, and long ones fill the chip.

    **Source:** the scheduler of TensorRT-LLM and vLLM: a prompt that fits the budget of tokens enters one pass whole.
    """
    each = 1.0 / (1.0 + replaced)
    return jax.tree.map(lambda a, b: each * (a + replaced * b), usual, with_prompts)


def _passes(service: Service, plan: Any) -> tuple[tuple[Plan, ...], tuple[Batch, ...]]:
    """Plans and batches of the usual pass, of the one that makes a first token, and of one sequence alone.

    Colocated, a sequence is replaced after `(output - 1) / tau` passes (the first token is the prompt's), tau tokens a pass, so
    that passes of b sequences hold `r = b tau / (output - 1)` prompts in the mean. A new request joins the next pass with its
    whole prompt, beside r others: passes without prompts are the usual ones (`_mean_pass`).
    """
    zero, one = jnp.zeros_like(service.output_tokens), jnp.ones_like(service.output_tokens)
    if plan.disaggregated:
        decode, prefill = (
            laid_out_as(one, other, service.model.experts)
            for one, other in ((plan.decode, plan.prefill), (plan.prefill, plan.decode))
        )
        decoding, prompts = _batch(service, decode.micro_batch, zero), _batch(service, zero, prefill.micro_batch)
        return (decode, prefill, undivided(decode, one)), (decoding, prompts, _batch(service, one, zero))
    b, both = plan.micro_batch, service.decodes
    steady = service.prefills * (1.0 - both) * b
    first = service.prefills * (both * (1.0 + _replaced(service, b)) + (1.0 - both) * b)
    alone = _batch(service, both, (1.0 - both) * steady)
    usual, with_first = _batch(service, both * b, steady), _batch(service, both * b, first)
    return (plan, plan, undivided(plan, both)), (usual, with_first, alone)


def steady_pass(service: Service, plan: Plan | Disaggregated) -> tuple[Plan, Batch]:
    """The pass that a machine repeats, of the chips that generate answers where two groups serve."""
    plans, batches = _passes(service, jax.tree.map(jnp.asarray, plan))
    return plans[0], batches[0]


def fullest_passes(service: Service, plan: Plan | Disaggregated) -> tuple[Batch, ...]:
    """What a replica passes at most at once: sequences with the prompts beside them; of two groups of chips first that of answers,
    then that of prompts.
    """
    _, (usual, first, _) = _passes(service, jax.tree.map(jnp.asarray, plan))
    return (usual, first) if plan.disaggregated else (first,)


def _drafting(service: Service, disaggregated: bool) -> Array:
    """Time of the passes with their drafts over that of the passes alone: `1 + g f` of sequences, `1 + f` of prompts alone."""
    drafts = draft_share(service)
    answers, prompts = 1.0 + service.drafted_tokens * drafts, 1.0 + drafts
    alone = service.decodes * answers + (1.0 - service.decodes) * prompts
    return jnp.stack([answers, prompts, answers] if disaggregated else [alone, alone, alone])


def _replica_chips(plan: Plan) -> Scalar:
    return plan.tp * plan.pp * plan.cp


class _Share(NamedTuple):
    """What a group of chips does for a request; sums over groups but for the interval."""

    interval_s: Array  # between two requests, as fast as it can
    work: Activity  # chip-seconds; arithmetic as if at the fastest rate of large GEMMs
    useful_flops: Array
    executed_flops: Array


def _share(
    service: Service, cluster: Cluster, plan: Plan, time: PassTime, passes: Scalar, useful: Scalar, executed: Scalar
) -> _Share:
    """**Arguments:** `passes` of a micro-batch that a request takes part in, over the sequences or prompts that share them;
    FLOPs of one pass.
    """
    gemm_s = time.chip_flops * fastest_seconds_per_flop(cluster.chip, service)
    chips = _replica_chips(plan)
    return _Share(
        interval_s=passes * time.period_s / (plan.pp * plan.dp),
        work=Activity(*(passes * (chips * part) for part in (gemm_s, time.hbm_s, time.busy_s))),
        useful_flops=passes * useful,
        executed_flops=passes * executed,
    )


def _transfer(service: Service, clusters: Sequence[Cluster], plan: Disaggregated) -> tuple[Scalar, Scalar]:
    """Moving a prompt's keys and values: its time, and the least time between two requests that all links together allow.

    Every chip of a replica sends and receives its part, at the bandwidth of the outermost tier that the machine uses. Of two kinds
    of chips each side takes its part through its own NIC, the slower sets the pace.
    """
    one = jnp.ones_like(plan.chips)
    sent, received = cache.request_bytes(service), cache.received_bytes(service, plan.decode, clusters[0].stack)
    parts = received, sent / _replica_chips(plan.prefill)
    shares = received * _replica_chips(plan.decode) / plan.decode.chips, sent / plan.prefill.chips
    if len(clusters) == 1:
        parts, shares = (hard_maximum(parts[1], parts[0]),), (hard_maximum(shares[1], shares[0]),)
    reaches = [_reach(each, plan.chips) if len(clusters) > 1 else plan.chips for each in clusters]
    sides = [(each.network, *of) for each, *of in zip(clusters, parts, shares, reaches, strict=True)]
    moved = [collectives.neighbour_send_s(network, part, reach, one) for network, part, _, reach in sides]
    links = [share * collectives.far_s_per_byte(network, reach, one) for network, _, share, reach in sides]
    return reduce(hard_maximum, moved), reduce(hard_maximum, links)


def _reach(cluster: Cluster, chips: Scalar) -> Scalar:
    """Chips of a group whose members lie in several domains, however few they are: two kinds of chips share none."""
    return hard_maximum(chips, 2.0 * cluster.network.size[0])


class _ChipGroup(NamedTuple):
    """A group of chips with the largest batch that it passes and the tokens in a replica's cache, mean over layers."""

    plan: Plan
    batch: Batch
    cached_tokens: Array


class _Memory(NamedTuple):
    """Memory of the fullest chip, and of the fullest of each group."""

    fullest: ServingFootprint
    capacity_bytes: Array  # of that chip
    group_bytes: tuple[Array, ...]


def _memory(
    service: Service, clusters: Sequence[Cluster], groups: list[_ChipGroup]
) -> tuple[_Memory, dict[str, Array]]:
    """What memory holds, and the margins of the plan, the least of all groups."""
    if len(clusters) == 1:
        each = jax.vmap(lambda group: footprint(service, clusters[0], *group))(_stacked(*groups))
        capacities = [clusters[0].chip.hbm_capacity_bytes for _ in groups]
    else:
        of = lambda cluster, group: footprint(service, cluster, *group)
        each = jax.vmap(of)(_stacked(*clusters), _stacked(*groups))
        capacities = [cluster.chip.hbm_capacity_bytes for cluster in clusters]
    memories = [_pick(each, i) for i in range(len(groups))]
    used = [
        {name: taken / most for name, (most, taken) in splits(service.model, group.plan).items()}
        | {"memory": memory.total_bytes / capacity}
        for group, memory, capacity in zip(groups, memories, capacities, strict=True)
    ]
    margins = {name: -jnp.log(reduce(hard_maximum, [share[name] for share in used])) for name in used[0]}
    fullest, capacity = memories[0], capacities[0]
    for other, room in zip(memories[1:], capacities[1:], strict=True):
        if len(clusters) == 1:
            fuller = other.total_bytes > fullest.total_bytes
        else:
            fuller = other.total_bytes * capacity > fullest.total_bytes * room
            capacity = jnp.where(fuller, room, capacity)
        fullest = jax.tree.map(lambda a, b, fuller=fuller: jnp.where(fuller, b, a), fullest, other)
    return _Memory(fullest, capacity, tuple(each.total_bytes for each in memories)), margins


def _times(
    service: Service, clusters: Sequence[Cluster], plans: tuple[Plan, ...], batches: tuple[Batch, ...], maximum: Maximum
) -> PassTime:
    """Times of the three passes of `_passes`, the second on the chips for prompts."""
    if len(clusters) == 1:
        alike = jax.vmap(lambda p, b: pass_time(service, clusters[0], p, b, maximum))
        return alike(_stacked(*plans), _stacked(*batches))
    own, other = clusters
    passing = jax.vmap(lambda c, p, b: pass_time(service, c, p, b, maximum))
    return passing(_stacked(own, other, own), _stacked(*plans), _stacked(*batches))


def steady_state(service: Service, clusters: Sequence[Cluster], plan: Any, maximum: Maximum) -> SteadyState:
    """Rate, latencies and needs of a machine that runs at its plan's batch.

    Time to first token: colocated half a pass of waiting and the pass that holds the prompt; disaggregated the queue, the
    pass, and moving keys and values. A queue of arrivals at random for one replica at load rho waits `rho / (2 (1 - rho))`
    passes (M/D/1; less where replicas share a queue, or where there are more chips for prompts than are needed). That is what
    chips for prompts are planned by, of full batches at `load`: percentiles (`tails`) are of the batches and loads that there are,
    so that p99 may be below it.

    **Arguments:** `clusters`: one, or that of the chips for answers and that of those for prompts.

    **Source:** continuous batching: Yu et al., Orca, OSDI 2022; disaggregation: Zhong et al., DistServe, OSDI 2024;
    Patel et al., Splitwise, ISCA 2024; queue: Pollaczek and Khinchine.
    """
    two, shape = plan.disaggregated, service.model
    plans, batches = _passes(service, plan)
    (own, other, _), (batch, first_batch, _) = plans, batches
    here, there = clusters[0], clusters[-1]
    drafting = _drafting(service, two)
    times = jax.tree.map(lambda part: part * drafting, _times(service, clusters, plans, batches, maximum))
    step, first, empty = (_pick(times, i) for i in range(3))
    mean, answers_share = batch, own.chips / plan.chips
    if not two:
        replaced, usual_s = _replaced(service, own.micro_batch), step.period_s
        step = _mean_pass(step, first, replaced)
        answers_share = service.decodes * usual_s / step.period_s
        new = replaced * service.new_tokens
        mean = batch._replace(prompts=batch.prompts + replaced, prompt_tokens=batch.prompt_tokens + new)
    decodes = jnp.ones_like(service.output_tokens) if two else service.decodes
    answer_passes = decodes * _generated(service, two) / service.tokens_per_pass

    passes = (answer_passes + (1.0 - decodes)) * (1.0 / own.micro_batch)
    accepted = pass_flops(shape, mean._replace(queries=service.tokens_per_pass))
    share = _share(service, here, own, step, passes, accepted, pass_flops(shape, mean))
    works: tuple[Activity, ...] = (share.work,)
    least_s = answers_s = share.interval_s
    prompts_s = (1.0 - decodes) * least_s
    resident = cache.layer_mean(shape, service.mean_context) * batch.sequences * own.pp
    prompts = cache.layer_mean(shape, service.input_tokens) * first_batch.prompts
    if two:
        load = service.load
        prompt_flops = pass_flops(shape, first_batch)
        prefill = _share(service, there, other, first, 1.0 / other.micro_batch, prompt_flops, prompt_flops)
        kv_transfer_s, links_s = _transfer(service, clusters, plan)
        prompts_s = prefill.interval_s
        least_s = maximum(maximum(least_s, prompts_s / load), links_s)
        apart = (share.work, prefill.work)
        share = jax.tree.map(jnp.add, share, prefill)
        works = (share.work,) if len(clusters) == 1 else apart
        waiting_s = load / (2.0 * (1.0 - load)) * first.period_s / other.pp
        first_token_s = waiting_s + first.latency_s + kv_transfer_s
        prefill_chips, decode_chips = other.chips, own.chips
        groups = [_ChipGroup(own, batch, resident), _ChipGroup(other, first_batch, prompts * other.pp)]
    else:
        kv_transfer_s = jnp.full_like(least_s, jnp.nan)
        waiting_s = 0.5 * decodes * step.period_s / own.pp
        first_token_s = service.prefills * (waiting_s + first.latency_s)
        prefill_chips, decode_chips = (1.0 - decodes) * own.chips, decodes * own.chips
        groups = [_ChipGroup(own, first_batch, resident + prompts * (decodes + (1.0 - decodes) * own.pp))]

    asked = service.requests_per_s > 0.0
    busy_s = least_s * (1.0 / service.most_load)  # between two requests, with the headroom that is asked for
    interval = jnp.where(asked, 1.0 / jnp.where(asked, service.requests_per_s, 1.0), busy_s)
    demand = jnp.where(asked, jnp.log(interval / busy_s), jnp.inf)
    memory, margins = _memory(service, clusters, groups)
    spans = [hard_maximum(_replica_chips(g.plan), g.plan.ep * g.plan.expert_tp * g.plan.pp) for g in groups]
    return SteadyState(
        step=step,
        first=first,
        empty=empty,
        floor_s=floor_s(service, here, own, batch),
        least_interval_s=least_s,
        interval_s=interval,
        answers_interval_s=answers_s,
        prompts_interval_s=prompts_s,
        answer_passes=answer_passes,
        time_to_first_token_s=first_token_s,
        time_per_output_token_s=decodes * step.period_s / service.tokens_per_pass,
        kv_transfer_s=kv_transfer_s,
        decodes=decodes,
        users=answer_passes * step.period_s * (1.0 / interval),
        work=works,
        useful_flops=share.useful_flops,
        executed_flops=share.executed_flops,
        answers_share=answers_share,
        prefill_chips=prefill_chips,
        decode_chips=decode_chips,
        instance_chips=(reduce(hard_maximum, spans),) if len(clusters) == 1 else tuple(spans),
        memory=memory.fullest,
        capacity_bytes=memory.capacity_bytes,
        group_memory_bytes=memory.group_bytes,
        margins=margins | {"demand": demand, "chips": -jnp.abs(jnp.log(here.chips / plan.chips))},
    )
