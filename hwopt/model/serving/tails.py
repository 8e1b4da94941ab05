"""Means and percentiles of latency (TTFT, TPOT) in the busiest hour, for a serving machine in steady state."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from hwopt.model.numerics.maximum import Maximum, hard_maximum
from hwopt.model.serving import queueing, slots, token_times
from hwopt.model.serving.steady_state import SteadyState
from hwopt.trace.monotone_primitives import EITHER, FALLS, FIXED, RISES, LowerEnvelope, MonotonePrimitive
from hwopt.types import Scalar
from hwopt.workload.service import Service

FIRST, TOKEN = "time_to_first_token_{}_s", "time_per_output_token_{}_s"
"""Names of the percentiles in a report; the placeholder is the level, such as p95."""

FIRST_MEAN, TOKEN_MEAN = (name.replace("_{}", "") for name in (FIRST, TOKEN))

PERCENTILES = tuple(name.format(level) for name in (FIRST, TOKEN) for level in queueing.LEVELS)

BUSIEST = "busiest_load"


class _StreamGroup(NamedTuple):
    """Streams of sequences like `queueing.Stream`, with the total request rate of all streams in place of their load."""

    full_s: Scalar
    empty_s: Scalar
    prompt_s: Scalar
    rate: Scalar  # requests a second, over all streams
    slots: Scalar
    passes: Scalar
    streams: Scalar

    @property
    def load(self) -> Scalar:
        return self.rate * self.passes * self.full_s / (self.slots * self.streams)

    def passing(self, requests: queueing.Requests) -> queueing.Passes:
        """Return the passes of a stream at the load of the group."""
        load, (full_s, empty_s, prompt_s, _, *counts) = self.load, self
        return queueing.passes(requests, queueing.Stream(load, full_s, empty_s, prompt_s, *counts))


class _Prompts(NamedTuple):
    """Chips that only do prefill."""

    rate: Scalar  # requests a second, over all replicas
    apart_s: Scalar  # time between two passes of a replica, per prompt
    each_s: Scalar  # latency of a pass, per prompt
    prompts: Scalar  # prompts in a full pass
    replicas: Scalar

    @property
    def load(self) -> Scalar:
        return self.rate * self.apart_s / self.replicas

    def alone(self, requests: queueing.Requests) -> tuple[queueing.Spread, Scalar]:
        """Return the cumulants of a prompt's time in queue and pass, and a time that almost no prompt is below.

        The pass time is assumed to be proportional to the number of its prompts, which is the load times a full batch. A prompt
        is delayed by those behind it in the same pass, half of the others on average.
        """
        queue = queueing.prompt_queue(requests, self.load, self.apart_s, self.replicas)
        each_s, varied = self.each_s, requests.prompts
        behind_s = self.load * (self.prompts - 1.0) * each_s
        spread = queueing.Spread(
            mean_s=queue.mean_s + each_s + 0.5 * behind_s,
            variance=queue.variance + varied * each_s * (each_s + 0.5 * behind_s) + behind_s * behind_s / 12.0,
            third=queue.third + 2.0 * varied * varied * each_s * each_s * each_s,
        )
        return spread, each_s / (1.0 + 4.0 * varied)


def _first_beside(level: float | str, maximum: Maximum, *numbers: Scalar) -> Scalar:
    """Return a TTFT percentile for colocated prefill and decode.

    **Arguments:** `numbers`: fields of a `_StreamGroup`, then of `queueing.Requests`.
    """
    group, requests = _StreamGroup(*numbers[:7]), queueing.Requests(*numbers[7:])
    at = group.passing(requests)
    own = queueing.own_pass(requests, at, at.decoding_s + at.prompt_s)
    wait, after = slots.slot_wait(requests, at, group.load), slots.after_wait(requests, at)
    return slots.first_token_s(own, after, wait, level, maximum)


def _first_apart(level: float | str, maximum: Maximum, *numbers: Scalar) -> Scalar:
    """Return a TTFT percentile for disaggregated prefill and decode, without the transfer of keys and values.

    **Arguments:** `numbers`: fields of a `_StreamGroup`, of `Requests`, and of `_Prompts` except its rate, which is the
    group's.
    """
    group, requests = _StreamGroup(*numbers[:7]), queueing.Requests(*numbers[7:11])
    prompts = _Prompts(group.rate, *numbers[11:])
    coming = requests._replace(arrivals=queueing.departures(requests, prompts.load, prompts.replicas))
    at = group.passing(coming)
    wait = slots.slot_wait(coming, at, group.load)
    alone, _ = prompts.alone(requests)
    return slots.first_token_s(alone, alone, wait, level, maximum)


def _next(level: float | str, maximum: Maximum, *numbers: Scalar) -> Scalar:
    """Return a percentile of the time between passes of a sequence.

    **Arguments:** `numbers`: fields of a `_StreamGroup`, then of `queueing.Requests`.
    """
    requests = queueing.Requests(*numbers[7:])
    return token_times.token_s(requests, _StreamGroup(*numbers[:7]).passing(requests), level)


MOST_LOAD = 1.0 - 1e-6
"""Load from which on queues grow without bound.

It is just below 1, because the load of a machine at full capacity is 1 only up to rounding in float32.
"""

_ENDLESS_S = 1e9
"""Finite percentile of an overloaded machine in an optimality proof; longer than any limit."""

_OF_GROUP = (RISES, EITHER, EITHER, RISES, FALLS, FIXED, EITHER)
_OF_REQUESTS = (FIXED, FIXED, FIXED, FIXED)
_OF_PROMPTS = (EITHER, RISES, EITHER, EITHER)
_WAYS = {
    _first_beside: (*_OF_GROUP, *_OF_REQUESTS),
    _first_apart: (*_OF_GROUP, *_OF_REQUESTS, *_OF_PROMPTS),
    _next: (*_OF_GROUP, *_OF_REQUESTS),
}
"""Monotonicity of each percentile in each argument with the others fixed; sampled by `tests/unit/model/test_queueing.py`."""


def _slower(*numbers: Scalar) -> tuple[Scalar, ...]:
    """Return the arguments of a percentile with overloaded groups reduced to a load of one half.

    Results for overloaded groups are discarded; the reduction only prevents NaN in values and gradients.
    """
    group = _StreamGroup(*numbers[:7])
    loads = [group.load] if len(numbers) == 11 else [group.load, _Prompts(group.rate, *numbers[11:]).load]
    for load in loads:
        group = group._replace(rate=jnp.where(load < MOST_LOAD, group.rate, 0.5 * group.rate / load))
    return (*group, *numbers[7:])


def _alone(level: float | str, prompts: _Prompts, requests: queueing.Requests) -> Scalar:
    """Return a TTFT percentile of a machine that only does prefill."""
    rate = jnp.where(prompts.load < MOST_LOAD, prompts.rate, 0.5 * prompts.rate / prompts.load)
    alone, floor = prompts._replace(rate=rate).alone(requests)
    return queueing.quantile(alone, level, floor)


def _ended(function: Callable[..., Scalar], level: float | str) -> Callable[..., Scalar]:
    """Return a percentile function for optimality proofs, which is finite everywhere.

    It returns `_ENDLESS_S` where the machine is overloaded. The same holds at corners of a search node where prompts alone
    would take all time, which is not possible for a real design.
    """

    def run(*numbers: Scalar) -> Scalar:
        group = _StreamGroup(*numbers[:7])
        ends = (group.load < MOST_LOAD) & (group.rate * group.prompt_s < group.streams)
        if len(numbers) > 11:
            ends = ends & (_Prompts(group.rate, *numbers[11:]).load < MOST_LOAD)
        value = function(level, hard_maximum, *_slower(*numbers))
        return jnp.where(ends & (value < _ENDLESS_S), value, _ENDLESS_S)

    return run


def _slot_at_once(level: float) -> Callable[..., Scalar]:
    """Return a TTFT percentile function for disaggregated serving in which no request waits for a slot.

    It is a lower bound of `_first_apart` and the start of its quantile search. The function has these arguments: load of the
    prefill chips; seconds of a pass per prompt, request rate, prompts in a pass, replicas (see `_Prompts`); variability of
    arrivals and of prompts, routing switch (see `Requests`).
    """

    def run(*numbers: Scalar) -> Scalar:
        load, each_s, rate, prompts, replicas, arrivals, varied, least_loaded = numbers
        busy = jnp.where(load < MOST_LOAD, load, 0.5)
        queue = _Prompts(rate, busy * replicas / rate, each_s, prompts, replicas)
        alone, _ = queue.alone(queueing.Requests(arrivals, varied, varied, least_loaded))
        return jnp.where(load < MOST_LOAD, queueing.gamma_quantile(alone, level), _ENDLESS_S)

    return run


_PRODUCTS = ({3: 1.0, 11: 1.0, 14: -1.0}, {12: 1.0}, {3: 1.0}, {13: 1.0}, {14: 1.0}, {7: 1.0}, {8: 1.0}, {10: 1.0})
"""Arguments of `_slot_at_once` as monomials in those of `_first_apart`: exponents by argument number.

The first is the load `rate apart_s / replicas`.
"""

_OF_PRODUCTS = (RISES, RISES, EITHER, RISES, EITHER, FIXED, FIXED, FIXED)

_FLOORS = {
    level: LowerEnvelope(MonotonePrimitive(f"slot_at_once_{name}", _slot_at_once(level), _OF_PRODUCTS), _PRODUCTS)
    for name, level in queueing.LEVELS.items()
    if level > 0.5  # medians, which no objective limits, fall as rare long prompts become longer
}

_PROVED: dict[tuple[Any, Any], MonotonePrimitive] = {
    (function, level): MonotonePrimitive(
        f"{function.__name__[1:]}_{name}",
        _ended(function, level),
        ways,
        _FLOORS.get(level) if function is _first_apart else None,
    )
    for function, ways in _WAYS.items()
    for name, level in queueing.LEVELS.items()
}
"""Percentiles as opaque monotone operations, which a proof bounds by their values at interval ends.

Written out as sums of monomials they would be too long for node relaxations.
"""


def tails(service: Service, plan: Any, state: SteadyState, maximum: Maximum, proved: bool) -> dict[str, Scalar]:
    """Return means and percentiles of latency by name, and the load of the busiest hour: the mean load times `peak_over_mean`.

    With one group of chips, each stage's micro-batch of a replica is a stream (`queueing`). With two groups, prompts queue for
    the prefill replicas, and the first token is returned once the decode group has a slot for its sequence. Percentiles are
    infinite where the busiest hour has more requests than the machine can answer.

    Means are those of the same hour and the same queues. Where requests exceed what the machine can answer, every slot is taken:
    the mean TPOT is that of a full batch, and the mean TTFT is infinite. If no request rate is stated, requests come as slots
    become free, and the mean TTFT is that of a full batch, too.

    **Arguments:** `proved`: whether the percentiles are traced for an optimality proof; they are opaque operations then.
    """
    requests = queueing.Requests(service.arrival_scv, service.input_scv, service.output_scv, service.least_loaded)
    two = plan.disaggregated
    own, other = (plan.decode, plan.prefill) if two else (plan, plan)
    rate = service.peak_over_mean / state.interval_s
    group = _StreamGroup(
        full_s=state.step.period_s,
        empty_s=state.empty.period_s,
        prompt_s=jnp.zeros_like(rate) if two else state.first.latency_s - state.step.latency_s,
        rate=rate,
        slots=own.micro_batch,
        passes=state.answer_passes + (1.0 - state.decodes),
        streams=own.dp * own.pp,
    )
    each = 1.0 / other.micro_batch
    prompts = _Prompts(
        rate=rate,
        apart_s=each * state.first.period_s / other.pp,
        each_s=each * state.first.latency_s,
        prompts=other.micro_batch,
        replicas=other.dp,
    )
    ends = (group.load < MOST_LOAD) & (prompts.load < MOST_LOAD) if two else group.load < MOST_LOAD
    none = jnp.inf  # inserted last, because a number computed from it would have no derivative

    def percentile(function: Callable[..., Scalar], level: float | str, *numbers: Scalar) -> Scalar:
        if proved:
            return _PROVED[function, level](*numbers)
        return function(level, maximum, *_slower(*numbers))

    found = {}
    for name, level in {**queueing.LEVELS, **({} if proved else {queueing.MEAN: queueing.MEAN})}.items():
        if two:
            first = percentile(_first_apart, level, *group, *requests, *prompts[1:]) + state.kv_transfer_s
            first = first if proved else jnp.where(ends, first, none)
        else:
            first = percentile(_first_beside, level, *group, *requests)
            first = first if proved else jnp.where(ends, first, none)
            alone = jnp.where(prompts.load < MOST_LOAD, _alone(level, prompts, requests), none)
            first = jnp.where(state.decodes > 0.0, first, alone)
        token = percentile(_next, level, *group, *requests) / service.tokens_per_pass
        found[FIRST.format(name)] = first
        found[TOKEN.format(name)] = token if proved else jnp.where(ends, token, none)
    # A proof bounds no means: they do not always rise with the load.
    first, token = (found.pop(name.format(queueing.MEAN), jnp.full_like(rate, jnp.nan)) for name in (FIRST, TOKEN))
    late = jnp.where(service.requests_per_s > 0.0, none, state.time_to_first_token_s)
    means = {
        FIRST_MEAN: jnp.where(first < none, first, late),
        TOKEN_MEAN: jnp.where(token < none, token, state.time_per_output_token_s),
    }
    return found | means | {BUSIEST: rate * state.least_interval_s}
