"""Queueing model of a service: percentiles of latency where requests arrive at random and differ in length.

Requests arrive as a renewal process with squared coefficient of variation c_a. Above 1 it is hyperexponential with balanced
means (bursts and long gaps), at 1 Poisson, below 1 steadier. Prompts and answers have means and squared coefficients of
variation; their tails are those of gamma distributions. A stream is one stage's micro-batch of a replica: it repeats passes
over at most b sequences, its slots. Requests go to streams at random, each with its own queue, or to the least loaded stream.
Least-loaded routing is approximated by one queue for the slots of all streams.

TTFT is delayed by the current pass and by the pass of the request's own prompt, which other prompts that arrive meanwhile
lengthen. This is a queue with gated service and, because every pass decodes, vacations. Before that, a request may wait for one
of the b slots.

All formulas are closed forms of powers, exponentials and a few maxima, except four Newton steps (`slots`). Their error against
an event simulation is in `results/reference/percentiles.txt`.
"""

from typing import NamedTuple

import jax.numpy as jnp

from hwopt.model.numerics.maximum import above_zero, hard_maximum
from hwopt.types import Scalar

LEVELS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
"""Supported percentiles by name."""

MEAN = "mean"
"""Level that stands for the mean in place of a percentile."""

_TINY = 1e-18
"""Smallest base of a power."""

NORMAL = {0.5: 0.0, 0.95: 1.6448536269514722, 0.99: 2.3263478740408408}
"""Quantiles of the standard normal distribution."""


class Requests(NamedTuple):
    """Variability of requests: squared coefficients of variation, 0 where all are equal."""

    arrivals: Scalar  # c_a, of interarrival times; Poisson: 1
    prompts: Scalar  # c_p, of new prompt tokens
    answers: Scalar  # c_o, of output tokens
    least_loaded: Scalar  # 1: a request goes to the stream with the fewest sequences, 0: to a random one


class Stream(NamedTuple):
    """Load and pass times of one stream, which repeats passes over its sequences."""

    load: Scalar  # rho, request rate over the stream's capacity
    full_s: Scalar  # T, time of a pass of b sequences, with the prompts of requests that replace finished ones
    empty_s: Scalar  # alpha, time of a pass of almost no sequences
    prompt_s: Scalar  # gamma, time that one prompt adds to a pass; 0 if prefill is on other chips
    slots: Scalar  # b, maximum number of sequences
    passes: Scalar  # l, passes of an answer
    streams: Scalar  # k, number of streams


class Spread(NamedTuple):
    """First three cumulants of a random time."""

    mean_s: Scalar
    variance: Scalar
    third: Scalar  # third central moment


def thinned(requests: Requests, streams: Scalar) -> Scalar:
    """Return the squared coefficient of variation of arrivals at one of k streams that get them at random: `1 + (c_a - 1) / k`.

    c_a is that of all arrivals.

    **Source:** Whitt, The Queueing Network Analyzer, Bell System Technical Journal 62 (9), 1983, section 4.4: exact for
    renewals.
    """
    return 1.0 + (requests.arrivals - 1.0) / streams


def decay(load: Scalar, arrivals: Scalar, service: Scalar) -> Scalar:
    """Return the decay rate u of a queue's waiting time W, in units of the mean service time S: `P(W > t) ~ exp(-u t / S)`.

    `u = (1 - 2 rho + sqrt(1 - 4 rho (1 - rho) (c_a - 1) / (c_a + 1))) / 2 x (c_a + 1) / (c_a + c_s)`

    The first factor is the root of the quadratic for a GI/M queue with balanced hyperexponential arrivals. The second is
    Kingman's ratio for services that are not exponential. The code uses a form without cancellation. For steadier arrivals (c_a
    < 1, gamma distributed) it adds a Newton step on `1 - u = (1 + c_a u / rho)^(-1 / c_a)`. The result is exact for GI/M with
    c_a >= 1, is 1 - rho for M/M, and tends to `2 (1 - rho) / (c_a + c_s)` at load 1.

    **Arguments:**

    - `load`: rho.
    - `arrivals`, `service`: squared coefficients of variation c_a and c_s of interarrival and service times.

    **Source:** Kleinrock, Queueing Systems 1, section 6.4 (GI/M/m); Kingman, Proc. Camb. Phil. Soc. 57, 1961; Allen,
    Probability, Statistics and Queueing Theory, section 5.3 (Cunneen).
    """
    root = jnp.sqrt(1.0 - 4.0 * load * (1.0 - load) * (arrivals - 1.0) / (arrivals + 1.0))
    exponential = 4.0 * load * (1.0 - load) / ((root + 2.0 * load - 1.0) * (arrivals + 1.0))
    steady = jnp.where(arrivals < 1.0, jnp.where(arrivals > 0.02, arrivals, 0.02), 1.0)
    between = 1.0 + steady * exponential / load
    none = between ** (-1.0 / steady)
    step = (1.0 - exponential - none) / (none / (load * between) - 1.0)
    exponential = exponential - jnp.where(arrivals < 1.0, step, 0.0)
    return exponential * (arrivals + 1.0) / (arrivals + service)


def remaining(cut: Scalar) -> Scalar:
    """Return `1 - u` for a decay rate u, at least 1e-18.

    u of an almost idle queue is 1 up to rounding, and powers of 0 have no derivative.
    """
    return hard_maximum(1.0 - cut, _TINY + 0.0 * cut)


def normal_below(x: Scalar) -> Scalar:
    """Return the standard normal distribution function by a logistic: `1 / (1 + exp(-1.5976 x - 0.07056 x^3))`, to 2e-4.

    **Source:** Page, Applied Statistics 26 (1), 1977.
    """
    return 1.0 / (1.0 + jnp.exp(-1.5976 * x - 0.07056 * x * x * x))


def quantile(time: Spread, level: float | str, floor_s: Scalar) -> Scalar:
    """Return a quantile of a random time from its cumulants: that of a gamma distribution, a lognormal median, or the mean.

    With rare long times a gamma distribution gives a poor median. The median is therefore that of a shifted lognormal
    distribution, `floor + m^2 / sqrt(m^2 + variance)`, where m is the mean minus the floor.

    **Arguments:** `floor_s`: time that almost no sample is below.

    **Source:** Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions 1, ch. 14.
    """
    if isinstance(level, str):
        return time.mean_s
    if level == 0.5:
        above = time.mean_s - floor_s
        return floor_s + above * above / jnp.sqrt(above * above + time.variance)
    return gamma_quantile(time, level)


def gamma_quantile(time: Spread, level: float) -> Scalar:
    """Return a quantile of the gamma distribution with given cumulants, by the Wilson-Hilferty approximation.

    `mean + sd 2 / s ((1 + s e)^3 - 1)`, `e = z / 6 - s / 36`, with skewness s and normal quantile z.

    **Source:** Wilson, Hilferty, PNAS 17, 1931; Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions 1, ch. 17.
    """
    z, sd = NORMAL[level], jnp.sqrt(time.variance)
    skew = time.third / (time.variance * sd)
    e = z / 6.0 - skew / 36.0
    return time.mean_s + 2.0 * sd * e * (3.0 + 3.0 * skew * e + skew * skew * e * e)


class Passes(NamedTuple):
    """Passes of a stream at its load, derived from `Stream` and `Requests`."""

    load: Scalar  # rho
    mean_s: Scalar  # C, mean time of a pass
    full_s: Scalar  # T, time of a pass with all slots taken
    prompt_s: Scalar  # gamma, time that one prompt adds
    decoding_s: Scalar  # D, the part of C without prompts
    per_s: Scalar  # lambda, request rate of a stream
    follows: Scalar  # g, share of a pass that grows with the requests
    sequences: Scalar  # n, mean number of sequences in all streams that share their slots
    slots: Scalar  # N, slots of all streams that share them
    slots_each: Scalar  # b, slots of one stream
    answer_passes: Scalar  # l, passes of an answer
    answer_s: Scalar  # l T / N, time between the ends of two answers while all slots are taken
    arrivals: Scalar  # c_a of arrivals at these slots
    stream_arrivals: Scalar  # c_a of arrivals at one stream
    service: Scalar  # c_s, squared coefficient of variation of the service time while all slots are taken


def passes(requests: Requests, stream: Stream) -> Passes:
    """Return the passes of a stream at its load, with mean pass time `C = 1 / ((1 - rho) / alpha + rho / T)`.

    rho is the load, alpha the time of an almost empty pass, T that of a full one. A pass grows with its sequences, and by
    Little's law these are the requests that arrive during a sequence's stay.

    While all slots are taken, each finished answer lets in a new prompt, and the prompt's time does not depend on the answer's
    length. So the squared coefficient of variation of the service is `c_s = (1 - f)^2 c_o + f^2 c_p`, where f is the share of
    prompts in a full pass. With least-loaded routing, c_a at one of k streams lies between random routing (`thinned`) and round
    robin (c_a / k). The mean of both is our own choice.
    """
    together = jnp.where(requests.least_loaded > 0.0, stream.streams, 1.0)
    slots = together * stream.slots
    mean_s = 1.0 / ((1.0 - stream.load) / stream.empty_s + stream.load / stream.full_s)
    per_s = stream.load * stream.slots / (stream.passes * stream.full_s)
    of_full = stream.slots / stream.passes * stream.prompt_s / stream.full_s
    rest = 1.0 - of_full
    at_random, in_turn = thinned(requests, stream.streams), requests.arrivals / stream.streams
    return Passes(
        load=stream.load,
        mean_s=mean_s,
        full_s=stream.full_s,
        prompt_s=stream.prompt_s,
        decoding_s=mean_s * (1.0 - per_s * stream.prompt_s),
        per_s=per_s,
        follows=stream.load * (1.0 - stream.empty_s / stream.full_s),
        sequences=stream.load * slots * mean_s / stream.full_s,
        slots=slots,
        slots_each=stream.slots,
        answer_passes=stream.passes,
        answer_s=stream.passes * stream.full_s / slots,
        arrivals=thinned(requests, stream.streams / together),
        stream_arrivals=jnp.where(requests.least_loaded > 0.0, 0.5 * (at_random + in_turn), at_random),
        service=rest * rest * requests.answers + of_full * of_full * requests.prompts,
    )


def companions_per_s(at: Passes) -> Scalar:
    """Return the arrival rate of prompts, per second, in the pass after another prompt's arrival.

    It is above the average rate for bursts, and below it for steady arrivals.

    The expected number of requests within t of one exceeds `lambda t` by `(c - 1) / 2 (1 - exp(-2 lambda t / (c + 1)))`. This
    is exact for balanced hyperexponential renewals. For steady arrivals (c < 1) the correlation decays as `exp(-2 lambda t)`.

    The excess is multiplied by `(1 - phi)^2 / ((1 - phi)^2 + 4 added^2)`. Here phi is the share of time that prompts take, and
    `added` the share that the excess adds within a pass. A burst ends before its queue is as long as that of a machine which is
    permanently this busy. This factor is our own; it leaves at least three quarters of the time that prompts leave.

    **Source:** Cox, Renewal Theory, section 4.3.
    """
    c, pass_s = at.stream_arrivals, at.mean_s
    forgotten = jnp.where(c > 1.0, 2.0 / (c + 1.0), 2.0)
    more = 0.5 * (c - 1.0) * (1.0 - jnp.exp(-forgotten * at.per_s * pass_s)) / pass_s
    added, left = at.prompt_s * more, 1.0 - at.prompt_s * at.per_s
    return at.per_s + more * left * left / (left * left + 4.0 * added * added)


def own_pass(requests: Requests, at: Passes, own_s: Scalar) -> Spread:
    """Return the time from arrival at a free slot to the first token: the rest of the current pass, and the own prompt's pass.

    Successive passes follow `T' = D + sum of prompts that arrived in T`. Their mean C, variance V and third moment are those of
    a gated queue. The pass in which a request arrives is longer, with mean `E T^2 / E T`. A uniform share of it is left. Other
    prompts arrive during all of it and lengthen the next pass. With Poisson arrivals the first two cumulants are exact; the
    third assumes that the longer pass is gamma distributed.

    **Arguments:** `own_s`: time of a pass with the mean number of sequences and one prompt.

    **Source:** Takagi, Queueing Analysis 1, section 2.2 (gated vacations); cumulants of compound sums.
    """
    rate, gamma, spread = companions_per_s(at), at.prompt_s, requests.prompts
    second, third = gamma * gamma * (1.0 + spread), gamma**3 * (1.0 + spread) * (1.0 + 2.0 * spread)
    f = rate * gamma
    mean = at.decoding_s / (1.0 - f)
    variance = second * rate * mean / (1.0 - f * f)
    cumulant = (3.0 * gamma * second * rate * rate * variance + third * rate * mean) / (1.0 - f * f * f)
    met = mean + variance / mean
    met_variance = cumulant / mean + variance - variance * variance / (mean * mean)
    met_third = 2.0 * met_variance * met_variance / met
    share = 0.5 + f
    return Spread(
        mean_s=own_s + share * met,
        variance=(met_variance + met * met) / 12.0 + second * rate * met + share * share * met_variance
        + gamma * gamma * spread,
        third=third * rate * met + 2.0 * gamma**3 * spread * spread + share**3 * met_third
        + 3.0 * share * (second * rate * met_variance + (2.0 * met * met_variance + met_third) / 12.0),
    )  # fmt: skip


def departures(requests: Requests, load: Scalar, replicas: Scalar) -> Scalar:
    """Return the squared coefficient of variation of arrivals at the decode queue from k prefill replicas: `(c_a + c_d) / 2`.

    `c_d = 1 + (1 - rho^2) (c_a - 1) + rho^2 (c_p - 1) / sqrt(k)` describes the times between departures. Over longer times the
    bursts are those of the arrivals (c_a). The mean of both is our own choice. rho is the load, c_p that of prompt lengths.

    **Source:** Whitt, The Queueing Network Analyzer, Bell System Technical Journal 62 (9), 1983, equation 39.
    """
    square = load * load
    more = (1.0 - square) * (requests.arrivals - 1.0) + square * (requests.prompts - 1.0) / jnp.sqrt(replicas)
    return 0.5 * (1.0 + more + requests.arrivals)


def prompt_queue(requests: Requests, load: Scalar, each_s: Scalar, replicas: Scalar) -> Spread:
    """Return the waiting time for prefill chips: a geometric sum of residual service times.

    The probability of waiting and the number of requests ahead follow from the decay rate u of a GI/M queue (`decay`). Residual
    times have a squared coefficient of variation that gives Kingman's mean, `((c_a - 1) + 2 c_p) / (c_a + 1)`, from those of
    interarrival times and prompts. This is exact for M/G/1. A group of k replicas with one queue counts as a single server that
    is k times as fast. Fewer requests wait, however: the probability is `(1 - u)^(sqrt(2 (k + 1)) - 1)` instead of `1 - u`.

    **Arguments:**

    - `load`: load rho of the prefill chips.
    - `each_s`: seconds per prompt on one replica.
    - `replicas`: number k of prefill replicas.

    **Source:** Kleinrock, Queueing Systems 1, section 5.7 (M/G/1); Sakasegawa, Ann. Inst. Statist. Math. 29, 1977 (k servers).
    """
    together = jnp.where(requests.least_loaded > 0.0, replicas, 1.0)
    arrivals, unit = thinned(requests, replicas / together), each_s / together
    cut = decay(load, arrivals, jnp.ones_like(load))
    spread = (arrivals - 1.0 + 2.0 * requests.prompts) / (arrivals + 1.0)
    spread = hard_maximum(spread, -0.3 + 0.0 * spread)
    bursts = above_zero(arrivals - 1.0)
    crowd = (1.0 - load) * bursts * (1.0 / (arrivals + 4.0 * requests.prompts) - 1.0 / (arrivals + 4.0))
    unit = unit * jnp.exp(-crowd)
    stays = remaining(cut)
    ahead = stays / cut
    first, cube = 0.5 * (1.0 + spread) * unit, unit * (1.0 + spread) * (1.0 + 2.0 * spread)
    second, third = unit * cube / 3.0, unit * unit * cube * (1.0 + 3.0 * spread) / 4.0
    one, two = ahead * first, ahead * second + ahead * ahead * first * first
    three = ahead * third + 3.0 * ahead * ahead * first * second + 2.0 * one * one * one
    fewer = stays ** (jnp.sqrt(2.0 * (together + 1.0)) - 2.0)
    mean, square = fewer * one, fewer * (two + one * one)
    cubed = fewer * (three + 3.0 * two * one + one * one * one)
    return Spread(mean, square - mean * mean, cubed - 3.0 * mean * square + 2.0 * mean * mean * mean)
