"""Tails of a service: percentiles of the times users see, where requests arrive at random and differ in length.

Requests arrive as a renewal process with squared coefficient of variation c_a: above 1 hyperexponential with balanced means (many
come soon after one another, some after a long time), 1 Poisson, below 1 steadier. Prompts and answers have means and squared
coefficients of variation; what they do at their ends is that of gamma distributions. A stream is what repeats passes over at most b
sequences: one stage's micro-batch of a replica. Requests go to streams at random, each its own queue, or to the one with the
fewest, as good as one queue for the slots of all.

What delays a first token: the pass under way and the pass of one's own prompt, longer by other prompts that came meanwhile (a queue
with gated service and, as every pass decodes, vacations), or, before that, a wait for one of the b slots.

All is in closed form, of powers, exponentials and a few maxima, but for four of Newton's steps (`slots`). How far it is from an
event simulation: `results/reference/percentiles.txt`.
"""

from typing import NamedTuple

import jax.numpy as jnp

from hwopt.model.numerics.maximum import above_zero, hard_maximum
from hwopt.types import Scalar

LEVELS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
"""Percentiles that are known, by name."""

NORMAL = {0.5: 0.0, 0.95: 1.6448536269514722, 0.99: 2.3263478740408408}
"""Quantiles of the standard normal distribution."""


class Requests(NamedTuple):
    """How requests differ: squared coefficients of variation, 0 where all are alike."""

    arrivals: Scalar  # c_a, of the times between them; Poisson: 1
    prompts: Scalar  # c_p, of their new tokens
    answers: Scalar  # c_o, of their tokens
    least_loaded: Scalar  # 1: each goes to the stream with the fewest, 0: at random


class Stream(NamedTuple):
    """Passes of sequences, as one stream repeats them, and how much of what it can do is asked for."""

    load: Scalar  # rho, requests over those that it can answer
    full_s: Scalar  # T, of a pass of b sequences with the prompts of those that take the place of finished ones
    empty_s: Scalar  # alpha, of a pass of hardly any
    prompt_s: Scalar  # gamma, that one prompt adds to a pass; 0 where prompts have chips of their own
    slots: Scalar  # b
    passes: Scalar  # l, of an answer
    streams: Scalar  # k


class Spread(NamedTuple):
    """A random time by its cumulants."""

    mean_s: Scalar
    variance: Scalar
    third: Scalar  # central moment


def thinned(requests: Requests, streams: Scalar) -> Scalar:
    """c_a of what one of k streams sees of arrivals that are spread at random: `1 + (c_a - 1) / k`.

    **Source:** Whitt, The Queueing Network Analyzer, Bell System Technical Journal 62 (9), 1983, section 4.4: exact for renewals.
    """
    return 1.0 + (requests.arrivals - 1.0) / streams


def decay(load: Scalar, arrivals: Scalar, service: Scalar) -> Scalar:
    """By how much, of the mean service time, a queue's waits are cut: `P(W > t) ~ exp(-u t / S)`; 1 - rho for M/M.

    `u = (1 - 2 rho + sqrt(1 - 4 rho (1 - rho) (c_a - 1) / (c_a + 1))) / 2 x (c_a + 1) / (c_a + c_s)`: the root of GI/M for
    balanced hyperexponential arrivals, of a quadratic, times Kingman's ratio where services are not exponential. Written as a
    fraction whose parts do not cancel; for steadier arrivals, a gamma distribution, with a step of Newton's on
    `1 - u = (1 + c_a u / rho)^(-1 / c_a)` from there. Exact for GI/M with bursts; tends to `2 (1 - rho) / (c_a + c_s)` at load 1.

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


def normal_below(x: Scalar) -> Scalar:
    """The standard normal distribution by a logistic: `1 / (1 + exp(-1.5976 x - 0.07056 x^3))`, to 2e-4.

    **Source:** Page, Applied Statistics 26 (1), 1977.
    """
    return 1.0 / (1.0 + jnp.exp(-1.5976 * x - 0.07056 * x * x * x))


def quantile(time: Spread, level: float, floor_s: Scalar) -> Scalar:
    """A quantile of a random time of three cumulants: a gamma distribution's; a lognormal one's median.

    The median of times with rare long ones is no gamma's: `floor + m^2 / sqrt(m^2 + variance)`, m the mean over the `floor_s` that
    hardly any is below.

    **Source:** Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions 1, ch. 14.
    """
    if level == 0.5:
        above = time.mean_s - floor_s
        return floor_s + above * above / jnp.sqrt(above * above + time.variance)
    return gamma_quantile(time, level)


def gamma_quantile(time: Spread, level: float) -> Scalar:
    """Of a gamma distribution of three cumulants: `mean + sd 2 / s ((1 + s e)^3 - 1)`, `e = z / 6 - s / 36`, s the skewness.

    **Source:** Wilson, Hilferty, PNAS 17, 1931; Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions 1, ch. 17.
    """
    z, sd = NORMAL[level], jnp.sqrt(time.variance)
    skew = time.third / (time.variance * sd)
    e = z / 6.0 - skew / 36.0
    return time.mean_s + 2.0 * sd * e * (3.0 + 3.0 * skew * e + skew * skew * e * e)


class Passes(NamedTuple):
    """Passes of a stream at its load."""

    load: Scalar  # rho
    mean_s: Scalar  # C
    full_s: Scalar
    prompt_s: Scalar
    decoding_s: Scalar  # D, of C without prompts
    per_s: Scalar  # lambda, requests of a stream
    follows: Scalar  # g, share of a pass that grows with the requests
    sequences: Scalar  # n, of all streams that share their slots
    slots: Scalar  # N, likewise
    slots_each: Scalar  # b, of one stream
    answer_passes: Scalar  # l
    answer_s: Scalar  # l T / N, between two answers that end where all slots are taken
    arrivals: Scalar  # c_a of what comes to these slots
    stream_arrivals: Scalar  # and to one stream
    service: Scalar  # c_s, of answers that end where all slots are taken


def passes(requests: Requests, stream: Stream) -> Passes:
    """A pass grows with its sequences, and these are as many as come while one stays: `C = 1 / ((1 - rho) / alpha + rho / T)`.

    Where all slots are taken an answer that ends costs a prompt, a time that its length has no part in: `c_s = (1 - f)^2 c_o +
    f^2 c_p`, f the share of prompts in a full pass. What one stream sees of arrivals that go to the one with the fewest lies
    between what comes at random, and in turn (c_a / k); half of each is our own.
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
    """Prompts that come with one, a second: more than come on average where they come in bursts, less where they come steadily.

    Requests to expect within t of one are more than `lambda t` by `(c - 1) / 2 (1 - exp(-2 lambda t / (c + 1)))`, exact for
    balanced hyperexponential renewals (Cox, Renewal Theory, section 4.3); steady ones, c below 1, forget one another by
    `exp(-2 lambda t)`. Of what that adds within a pass, as a share of time,
    counts `(1 - phi)^2 / ((1 - phi)^2 + 4 added^2)`: a burst ends before its queue is that of a machine as busy for ever (our
    own; leaves at least three quarters of the time that prompts leave).
    """
    c, pass_s = at.stream_arrivals, at.mean_s
    forgotten = jnp.where(c > 1.0, 2.0 / (c + 1.0), 2.0)
    more = 0.5 * (c - 1.0) * (1.0 - jnp.exp(-forgotten * at.per_s * pass_s)) / pass_s
    added, left = at.prompt_s * more, 1.0 - at.prompt_s * at.per_s
    return at.per_s + more * left * left / (left * left + 4.0 * added * added)


def own_pass(requests: Requests, at: Passes, own_s: Scalar) -> Spread:
    """From a free slot to the first token: what is left of the pass under way, and the pass of one's own prompt.

    Passes follow `T' = D + sum of prompts that came in T`: of them the mean C, variance V and third moment are those of a gated
    queue; one that a request comes in is longer, `E T^2 / E T`. Of it a uniform share is left, in all of it others' prompts come.
    With Poisson arrivals the first two are exact, the third takes the lengthened pass for a gamma one.

    **Arguments:** `own_s`, of a pass at the mean number of sequences with one prompt.

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
    """c_a that the next queue sees of prompts that leave k replicas, `(c_a + c_d) / 2`.

    `c_d = 1 + (1 - rho^2) (c_a - 1) + rho^2 (c_p - 1) / sqrt(k)` is that between two departures; over longer times bursts are those
    of the arrivals. Half of each is our own.

    **Source:** Whitt, The Queueing Network Analyzer, Bell System Technical Journal 62 (9), 1983, equation 39.
    """
    square = load * load
    more = (1.0 - square) * (requests.arrivals - 1.0) + square * (requests.prompts - 1.0) / jnp.sqrt(replicas)
    return 0.5 * (1.0 + more + requests.arrivals)


def prompt_queue(requests: Requests, load: Scalar, each_s: Scalar, replicas: Scalar) -> Spread:
    """Wait for chips that only process prompts, `each_s` a prompt and replica: a geometric sum of what is left of prompts' times.

    P(W > 0) and how many are ahead by `decay` of GI/M, what is left by a spread that gives Kingman's mean, `((c_a - 1) + 2 c_p) /
    (c_a + 1)`: exact for M/G/1. Of k replicas with one queue as of one k times as fast, of which more requests need not wait:
    `(1 - u)^(sqrt(2 (k + 1)) - 1)` in place of `1 - u` do.

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
    ahead = (1.0 - cut) / cut
    first, cube = 0.5 * (1.0 + spread) * unit, unit * (1.0 + spread) * (1.0 + 2.0 * spread)
    second, third = unit * cube / 3.0, unit * unit * cube * (1.0 + 3.0 * spread) / 4.0
    one, two = ahead * first, ahead * second + ahead * ahead * first * first
    three = ahead * third + 3.0 * ahead * ahead * first * second + 2.0 * one * one * one
    fewer = (1.0 - cut) ** (jnp.sqrt(2.0 * (together + 1.0)) - 2.0)
    mean, square = fewer * one, fewer * (two + one * one)
    cubed = fewer * (three + 3.0 * two * one + one * one * one)
    return Spread(mean, square - mean * mean, cubed - 3.0 * mean * square + 2.0 * mean * mean * mean)
