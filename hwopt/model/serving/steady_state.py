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
from hwopt.model.maximum import Maximum, above_zero, hard_maximum
from hwopt.model.parameters import expert_replicas, held_parameters, shard_ranks, table_parameters
from hwopt.model.power import Activity
from hwopt.model.roofline import seconds_per_flop
from hwopt.model.serving import cache
from hwopt.model.serving.forward import Batch, PassTime, floor_s, pass_flops, pass_time
from hwopt.model.serving.report import ServingFootprint, ServingMargins
from hwopt.plan import Disaggregated, Plan
from hwopt.types import Scalar
from hwopt.workload.service import Service

LOGIT_BYTES = 4.0
"""A logit in memory: 32 bit."""

CHUNK_TOKENS = 512.0
"""Tokens of prompts whose activations are held at a time (assumption, 128 to 8,192: engines cut prompts where memory is
short)."""

TABLE_BYTES = 2.0
"""An element of embedding and head, which stay 16 bit in narrow formats."""


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


def _per_second(plan: Plan, time: PassTime) -> Scalar:
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


def _footprint(service: Service, cluster: Cluster, plan: Plan, batch: Batch, resident: Scalar) -> ServingFootprint:
    """Memory of the fullest chip. **Arguments:** `resident` tokens in the cache of a replica, mean over layers."""
    w, stack = service.model, cluster.stack
    held = held_parameters(w, plan)
    wider = above_zero(TABLE_BYTES - service.weight_bytes)
    ranks, expert_ranks = (1.0 + plan.weights_sharded * (each - 1.0) for each in shard_ranks(plan))
    weights = service.weight_bytes * (held.stage / ranks + held.stage_experts / expert_ranks)
    weights = weights + wider * table_parameters(w, plan) / ranks
    dense = jnp.where(w.dense_layers > 0, held.dense_layer, 0.0)
    layer = hard_maximum(dense, jnp.where(w.moe_layers > 0, held.moe_layer + held.experts_layer, 0.0))
    whole = plan.weights_sharded * stack.layers_whole * layer * service.weight_bytes  # gathered: at work, and the next
    drafts = jnp.where(service.drafted_tokens > 0.0, service.draft_fraction, 0.0)
    kept = resident * cache.held_token_bytes(service, plan, stack) * (w.layers / plan.pp) * plan.fullest_stage
    ffn = hard_maximum(w.ffn, w.expert_ffn * w.experts_per_token)
    row = service.activation_bytes * (4.0 * w.hidden + w.mlp_matrices * ffn / plan.tp)
    chunk = batch.prompt_tokens - above_zero(batch.prompt_tokens - CHUNK_TOKENS)
    rows = batch.sequences * batch.queries + chunk
    working = whole + rows * row + LOGIT_BYTES * batch.sampled * w.vocab / plan.tp
    return ServingFootprint(
        weights_bytes=weights * (1.0 + drafts),
        cache_bytes=kept,
        working_bytes=working,
        reserve_bytes=stack.memory_reserve_bytes + stack.fragmentation * (kept + working),
    )


def _shares(service: Service, cluster: Cluster, plan: Plan, memory: ServingFootprint) -> dict[str, Array]:
    """What a plan uses of what there is, by margin."""
    w = service.model
    experts = jnp.where(w.experts > 0, w.experts, 1.0)
    return {
        "memory": memory.total_bytes / cluster.chip.hbm_capacity_bytes,
        "stages": plan.pp / (w.layers + 2.0),
        "tensor_parallel": plan.tp / w.heads,
        "experts": plan.ep / experts,
        "replicas": 1.0 / expert_replicas(plan),
    }


def _pick(tree: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def steady_state(service: Service, cluster: Cluster, plan: Plan | Disaggregated, maximum: Maximum) -> SteadyState:
    """Rate, latencies and needs of a machine that runs at its plan's batch.

    Time to first token: on common chips half a pass of waiting and the pass that holds the prompt; on chips of their own the
    queue, the pass, and moving keys and values. Where chips for prompts are more than are needed, the queue is shorter than it is
    counted. A queue of arrivals at random for one replica at load rho waits
    `rho / (2 (1 - rho))` passes (M/D/1; replicas that share a queue wait less).

    **Source:** continuous batching: Yu et al., Orca, OSDI 2022; disaggregation: Zhong et al., DistServe, OSDI 2024;
    Patel et al., Splitwise, ISCA 2024; queue: Pollaczek and Khinchine.
    """
    group = _groups(service, plan)
    times = jax.vmap(lambda p, b: pass_time(service, cluster, p, b, maximum))(group.plan, group.batch)
    times = _drafted(times, _drafting(service, isinstance(plan, Disaggregated)))
    floors = jax.vmap(lambda p, b: floor_s(service, cluster, p, b))(group.plan, group.batch)
    step, first = _pick(times, 0), _pick(times, 1)
    steady_plan, first_plan = _pick(group.plan, 0), _pick(group.plan, 1)
    batch, first_batch = _pick(group.batch, 0), _pick(group.batch, 1)

    tau, output = service.tokens_per_pass, service.output_tokens
    apart = isinstance(plan, Disaggregated)
    decodes = jnp.ones_like(output) if apart else service.decodes
    generated = _generated(service, 1.0 if apart else decodes * service.prefills)
    own = steady_plan.micro_batch
    passes = decodes * generated / (own * tau) + (1.0 - decodes) / own  # of a micro-batch, a request
    between = passes * _per_second(steady_plan, step)
    work = jax.tree.map(lambda part: passes * part, _work(service, cluster, steady_plan, step))
    accepted = pass_flops(service.model, batch._replace(queries=tau))
    useful, executed = passes * accepted, passes * pass_flops(service.model, batch)
    zero = jnp.zeros_like(between)
    resident = cache.layer_mean(service.model, service.mean_context) * batch.sequences * steady_plan.pp
    prompt = cache.layer_mean(service.model, service.input_tokens)
    if isinstance(plan, Disaggregated):
        prompts = 1.0 / first_plan.micro_batch  # passes a request
        transfer_s, links_s = _transfer(service, cluster, plan)
        filled = prompts * _per_second(first_plan, first) / service.load
        between = maximum(maximum(between, filled), links_s)
        queue_s = service.load / (2.0 * (1.0 - service.load)) * first.period_s / first_plan.pp
        first_token_s = queue_s + first.latency_s + transfer_s
        own_work = _work(service, cluster, first_plan, first)
        work = jax.tree.map(lambda a, b: a + prompts * b, work, own_work)
        of_prompts = prompts * pass_flops(service.model, first_batch)
        useful, executed = useful + of_prompts, executed + of_prompts
        prefill_chips, decode_chips = chips_of(plan.prefill), chips_of(plan.decode)
        held = jnp.stack([resident, prompt * first_batch.prompts * first_plan.pp])
    else:
        transfer_s = zero
        waiting = 0.5 * service.decodes * step.period_s / steady_plan.pp
        first_token_s = service.prefills * (waiting + first.latency_s)
        chips = chips_of(plan)
        prefill_chips, decode_chips = (1.0 - service.decodes) * chips, service.decodes * chips
        both = resident + prompt * first_batch.prompts * (decodes + (1.0 - decodes) * steady_plan.pp)
        held = jnp.stack([both, both])

    asked = service.requests_per_s > 0.0
    interval = jnp.where(asked, 1.0 / jnp.where(asked, service.requests_per_s, 1.0), between)

    memory = jax.vmap(lambda p, b, tokens: _footprint(service, cluster, p, b, tokens))(
        group.plan, _stacked(batch if apart else first_batch, first_batch), held
    )
    shares = jax.vmap(lambda p, m: _shares(service, cluster, p, m))(group.plan, memory)
    margins = {name: -jnp.log(hard_maximum(share[0], share[1])) for name, share in shares.items()}
    fuller = memory.total_bytes[1] > memory.total_bytes[0]
    spans = [hard_maximum(_replica_chips(p), p.ep * p.expert_tp * p.pp) for p in (steady_plan, first_plan)]
    return SteadyState(
        step=step,
        floor_s=floors[0],
        least_interval_s=between,
        interval_s=interval,
        time_to_first_token_s=first_token_s,
        time_per_output_token_s=decodes * step.period_s / tau,
        kv_transfer_s=transfer_s,
        users=decodes * generated / tau * step.period_s * (1.0 / interval),
        work=work,
        useful_flops=useful,
        executed_flops=executed,
        prefill_chips=prefill_chips,
        decode_chips=decode_chips,
        instance_chips=hard_maximum(*spans),
        memory=jax.tree.map(lambda part: jnp.where(fuller, part[1], part[0]), memory),
        margins=margins
        | {"demand": jnp.where(asked, jnp.log(interval / between), 0.0)}
        | {"chips": -jnp.abs(jnp.log(cluster.chips / chips_of(plan)))},
    )


__all__ = ["ServingMargins", "SteadyState", "chips_of", "steady_state"]
