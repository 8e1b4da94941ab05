"""Percentiles of the times that users see in the busiest hour, of a machine in steady state."""

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
"""Names of the percentiles in a report, by their level."""

PERCENTILES = tuple(name.format(level) for name in (FIRST, TOKEN) for level in queueing.LEVELS)

BUSIEST = "busiest_load"


class _StreamGroup(NamedTuple):
    """Streams of sequences, as of `queueing.Stream`, with what comes to all of them in place of their load."""

    full_s: Scalar
    empty_s: Scalar
    prompt_s: Scalar
    rate: Scalar  # requests a second
    slots: Scalar
    passes: Scalar
    streams: Scalar

    @property
    def load(self) -> Scalar:
        return self.rate * self.passes * self.full_s / (self.slots * self.streams)

    def passing(self, requests: queueing.Requests) -> queueing.Passes:
        """Passes at their load."""
        load, (full_s, empty_s, prompt_s, _, *counts) = self.load, self
        return queueing.passes(requests, queueing.Stream(load, full_s, empty_s, prompt_s, *counts))


class _Prompts(NamedTuple):
    """Chips for prompts alone."""

    rate: Scalar  # requests a second
    apart_s: Scalar  # between two passes of a replica, over the prompts of one
    each_s: Scalar  # that a pass takes, over its prompts
    prompts: Scalar  # in a pass
    replicas: Scalar

    @property
    def load(self) -> Scalar:
        return self.rate * self.apart_s / self.replicas

    def alone(self, requests: queueing.Requests) -> tuple[queueing.Spread, Scalar]:
        """Queue and pass of a prompt, and what hardly any takes less than.

        A pass is taken to last in proportion to its prompts, and to hold as many as the load fills it with: those behind one in its
        pass, half of them on average, hold it up.
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


def _first_beside(level: float, maximum: Maximum, *numbers: Scalar) -> Scalar:
    """First token where prompts run beside answers: of a `_StreamGroup` and `queueing.Requests`."""
    group, requests = _StreamGroup(*numbers[:7]), queueing.Requests(*numbers[7:])
    at = group.passing(requests)
    own = queueing.own_pass(requests, at, at.decoding_s + at.prompt_s)
    wait, after = slots.slot_wait(requests, at, group.load), slots.after_wait(requests, at)
    return slots.first_token_s(own, after, wait, level, maximum)


def _first_apart(level: float, maximum: Maximum, *numbers: Scalar) -> Scalar:
    """First token where prompts have chips of their own, but for moving keys and values: of a `_StreamGroup`, `Requests`, and
    `_Prompts` but for their rate, which is the group's.
    """
    group, requests = _StreamGroup(*numbers[:7]), queueing.Requests(*numbers[7:11])
    prompts = _Prompts(group.rate, *numbers[11:])
    coming = requests._replace(arrivals=queueing.departures(requests, prompts.load, prompts.replicas))
    at = group.passing(coming)
    wait = slots.slot_wait(coming, at, group.load)
    alone, _ = prompts.alone(requests)
    return slots.first_token_s(alone, alone, wait, level, maximum)


def _next(level: float, maximum: Maximum, *numbers: Scalar) -> Scalar:
    """Time between passes of a sequence: of a `_StreamGroup` and `queueing.Requests`."""
    requests = queueing.Requests(*numbers[7:])
    return token_times.token_s(requests, _StreamGroup(*numbers[:7]).passing(requests), level)


MOST_LOAD = 1.0 - 1e-6
"""Load from which no queue ends: a machine that answers all it can is at 1 to rounding, of float32 too."""

_ENDLESS_S = 1e9
"""A percentile where more comes than is answered, in a proof: longer than any limit."""

_OF_GROUP = (RISES, EITHER, EITHER, RISES, FALLS, FIXED, EITHER)
_OF_REQUESTS = (FIXED, FIXED, FIXED, FIXED)
_OF_PROMPTS = (EITHER, RISES, EITHER, EITHER)
_WAYS = {
    _first_beside: (*_OF_GROUP, *_OF_REQUESTS),
    _first_apart: (*_OF_GROUP, *_OF_REQUESTS, *_OF_PROMPTS),
    _next: (*_OF_GROUP, *_OF_REQUESTS),
}
"""What percentiles do as each number grows, the others held: `tests/unit/model/test_queueing.py` samples it."""


def _slower(*numbers: Scalar) -> tuple[Scalar, ...]:
    """The same at half their load where more comes than is answered: numbers that are not used, and not NaN."""
    group = _StreamGroup(*numbers[:7])
    loads = [group.load] if len(numbers) == 11 else [group.load, _Prompts(group.rate, *numbers[11:]).load]
    for load in loads:
        group = group._replace(rate=jnp.where(load < MOST_LOAD, group.rate, 0.5 * group.rate / load))
    return (*group, *numbers[7:])


def _alone(level: float, prompts: _Prompts, requests: queueing.Requests) -> Scalar:
    """First token of a machine that only processes prompts."""
    rate = jnp.where(prompts.load < MOST_LOAD, prompts.rate, 0.5 * prompts.rate / prompts.load)
    alone, floor = prompts._replace(rate=rate).alone(requests)
    return queueing.quantile(alone, level, floor)


def _ended(function: Callable[..., Scalar], level: float) -> Callable[..., Scalar]:
    """A percentile in a proof: `_ENDLESS_S` where more comes than is answered, and at corners of a box where prompts alone would
    take all time, which no design does.
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
    """First token where prompts have chips of their own and none waits for a slot: nowhere above `_first_apart`, whose quantile is
    sought from there. Of the load of chips for prompts, `_Prompts` but for what follows from it, and their `Requests`.
    """

    def run(*numbers: Scalar) -> Scalar:
        load, each_s, rate, prompts, replicas, arrivals, varied, least_loaded = numbers
        busy = jnp.where(load < MOST_LOAD, load, 0.5)
        queue = _Prompts(rate, busy * replicas / rate, each_s, prompts, replicas)
        alone, _ = queue.alone(queueing.Requests(arrivals, varied, varied, least_loaded))
        return jnp.where(load < MOST_LOAD, queueing.gamma_quantile(alone, level), _ENDLESS_S)

    return run


_PRODUCTS = ({3: 1.0, 11: 1.0, 14: -1.0}, {12: 1.0}, {3: 1.0}, {13: 1.0}, {14: 1.0}, {7: 1.0}, {8: 1.0}, {10: 1.0})
"""What that is of, of the numbers of `_first_apart`: the load is `rate apart_s / replicas`."""

_OF_PRODUCTS = (RISES, RISES, EITHER, RISES, EITHER, FIXED, FIXED, FIXED)

_FLOORS = {
    level: LowerEnvelope(MonotonePrimitive(f"slot_at_once_{name}", _slot_at_once(level), _OF_PRODUCTS), _PRODUCTS)
    for name, level in queueing.LEVELS.items()
    if level > 0.5  # medians, which no question limits, fall as rare long prompts become longer
}

_PROVED = {
    (function, level): MonotonePrimitive(
        f"{function.__name__[1:]}_{name}",
        _ended(function, level),
        ways,
        _FLOORS.get(level) if function is _first_apart else None,
    )
    for function, ways in _WAYS.items()
    for name, level in queueing.LEVELS.items()
}
"""Percentiles as operations that a proof bounds by their ends: written out they are too long to be read as sums of monomials."""


def tails(service: Service, plan: Any, state: SteadyState, maximum: Maximum, proved: bool) -> dict[str, Scalar]:
    """Percentiles by name, and the load that they are at: the mean load times `peak_over_mean`.

    Of one group of chips each stage's micro-batch of a replica is a stream (`queueing`). Of two, prompts queue for the first group,
    each replica a server, and a first token is out once the second has a slot for its sequence. Infinite where more comes in the
    busiest hour than is answered.

    **Arguments:** `proved`: whether a proof is to read them.
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
    none = jnp.inf  # put in last: a number that follows from it would have no slope

    def percentile(function: Callable[..., Scalar], level: float, *numbers: Scalar) -> Scalar:
        if proved:
            return _PROVED[function, level](*numbers)
        return function(level, maximum, *_slower(*numbers))

    found = {}
    for name, level in queueing.LEVELS.items():
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
    return found | {BUSIEST: rate * state.least_interval_s}
