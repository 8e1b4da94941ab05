"""Waiting time for a slot, and TTFT as a mixture of requests that wait for a slot and requests that find one free."""

import math
from typing import NamedTuple

import jax.numpy as jnp

from hwopt.model.numerics.maximum import Maximum
from hwopt.model.serving.queueing import Passes, Requests, Spread, decay, gamma_quantile, normal_below, remaining
from hwopt.types import Scalar

_STEPS = 4
"""Number of Newton steps for a quantile of a mixture."""

_LEAST_SKEW = 1e-3
"""Smallest skewness of a gamma distribution; smaller ones are raised to it, because the approximation divides by skewness."""

_FAR = 9.0
"""Number of standard deviations at which normal tails are clipped, so that they are representable in float32."""

_EDGE, _SHAKEN, _HELD, _LOADED = 0.914, 1.11, -0.46, -0.33
"""Fitted constants of `slot_wait`: factor, and exponents of peakedness, of the time left by prompts, and of load."""


def tail(time: Spread, t: Scalar) -> tuple[Scalar, Scalar]:
    """Return the probability that a gamma-distributed time exceeds t, and its derivative, by Wilson and Hilferty."""
    sd = jnp.sqrt(time.variance)
    skew = time.third / (time.variance * sd)
    skew = jnp.where(skew > _LEAST_SKEW, skew, _LEAST_SKEW)
    y = 1.0 + 0.5 * skew * (t - time.mean_s) / sd
    y = jnp.where(y > 1e-3, y, 1e-3)
    root = y ** (1.0 / 3.0)
    z = 6.0 * (root - 1.0) / skew + skew / 6.0
    return _normal_tail(z, 1.0 / (sd * root * root))


def _normal_tail(z: Scalar, slope: Scalar) -> tuple[Scalar, Scalar]:
    z = jnp.where(z > _FAR, _FAR, jnp.where(z < -_FAR, -_FAR, z))
    over = normal_below(-z)
    return over, -over * (1.0 - over) * (1.5976 + 0.21168 * z * z) * slope


class SlotWait(NamedTuple):
    """Waiting time for a slot: 0 with probability 1 - P, else exponential."""

    share: Scalar  # P, share of requests that wait
    per_s: Scalar  # rate of their exponential wait


def after_wait(requests: Requests, at: Passes) -> Spread:
    """Return the time from the end of the wait for a slot to the first token.

    Its mean is half a full pass and the own prompt. Prompts that replace other answers finished in the same pass add to the
    variance. In a queue without passes an answer may end at any time. With passes it ends half a pass later on average, and the
    prompt that takes its slot runs in that same pass.
    """
    gamma, others = at.prompt_s, at.slots_each / at.answer_passes
    spread = requests.prompts
    return Spread(
        mean_s=0.5 * at.full_s + gamma,
        variance=gamma * gamma * (spread + others * (1.0 + spread)),
        third=gamma**3 * (2.0 * spread * spread + others * (1.0 + spread) * (1.0 + 2.0 * spread)),
    )


def peakedness(requests: Requests, at: Passes) -> Scalar:
    """Return the peakedness z: the variance of the number of sequences relative to a reference case.

    The reference has Poisson arrivals, exponential answers and no prompts.

    `z = ((c_a + phi^2 c_p) / (1 - phi) + (1 - phi) c_o) / (1 + c_o)`

    c_a, c_p and c_o are squared coefficients of variation of interarrival times, prompts and answers. phi is the share of time
    that prompts take. Prompts delay running answers. So an arrival changes the number by `1 / (1 - phi)`, and the variation of
    prompt lengths changes it by `phi / (1 - phi)`.
    """
    share = at.per_s * at.prompt_s
    left = 1.0 - share
    return ((at.arrivals + share * share * requests.prompts) / left + left * requests.answers) / (
        1.0 + requests.answers
    )


def slot_wait(requests: Requests, at: Passes, load: Scalar) -> SlotWait:
    """Return the waiting time for a slot: 0 for a share of requests, exponential for the others.

    Below N slots the number i of sequences is a birth-death process with ratio of births to deaths `(a + g i) / i`. Here a is a
    constant, and g is the share of a pass that grows with requests. The number has a negative binomial distribution of mean n,
    variance `w n` with `w = z / (1 - g)`, and skewness `(2 w - 1) / sqrt(w n)`. It is approximated by a gamma distribution with
    these moments; above N it is geometric. Bursts and prompts widen it by the peakedness z. Requests tend to arrive in long
    passes, where they see `g / (1 - g)` more sequences. In bursts they see `(c_a - 1) / (2 (1 - phi))` more, with phi the share
    of time of prompts.

    The probability of waiting is `h / (h + body)`. `body` is the probability below N. h is the density at N, divided by the
    decay rate u of a queue with exponential answers (`queueing.decay`), times a factor e. In a diffusion `e = 2 z / (1 + c_a)`:
    the variance below N relative to that above.

    - With colocated prompts `e = 0.914 z^1.11 (1 - phi)^-0.46 rho^-0.33 / ((1 + c_a) / 2)`. The constants are within a standard
      error (0.05, 0.04, 0.14, 0.17) of a fit by `results.benchmarks.waits` to every second simulated service. The odds of
      waiting have an error of 0.10 on these and of 0.08 on the held-out services (root mean square of the logarithm).
    - Without prompts `z^(4/3)` replaces z (our own choice).

    With k streams a request waits in one of them. The number of requests ahead is geometric with `1 - u`. Every k-th of these
    is in the same stream and takes `k S`, for a time S between two freed slots. So the wait is exponential with mean
    `k S / (1 - (1 - u)^k)`. One queue for all slots has k = 1.

    **Source:** Halfin, Whitt, Operations Research 29 (3), 1981; Whitt, Management Science 50 (10), 2004 (peakedness,
    diffusion).
    """
    g, n = at.follows, at.sequences
    shaken = peakedness(requests, at)
    wide = shaken / (1.0 - g)
    left = 1.0 - at.per_s * at.prompt_s
    mean = n + g / (1.0 - g) + 0.5 * (at.arrivals - 1.0) / left
    spread = Spread(mean_s=mean, variance=wide * n, third=(2.0 * wide - 1.0) * wide * n)
    beside = _EDGE * shaken**_SHAKEN * left**_HELD * load**_LOADED
    edge = jnp.where(at.prompt_s > 0.0, beside, shaken ** (4.0 / 3.0)) / (0.5 * (1.0 + at.arrivals))
    body, density = 1.0 - tail(spread, at.slots - 0.5)[0], -tail(spread, at.slots)[1]
    cut, streams = decay(load, at.arrivals, at.service), at.slots / at.slots_each
    cut = (1.0 - remaining(cut) ** streams) / streams
    h = edge * density / decay(load, at.arrivals, jnp.ones_like(load))
    return SlotWait(share=h / (h + body), per_s=cut / at.answer_s)


def first_token_s(own: Spread, after: Spread, wait: SlotWait, level: float | str, maximum: Maximum) -> Scalar:
    """Return a quantile or the mean of TTFT over the mixture of requests that find a free slot and requests that wait for one.

    It solves `(1 - w) P(own > t) + w P(wait + after > t) = 1 - p` for t, where w is the share of requests that wait. Newton
    steps are done on the logarithm, which is convex where one tail takes over from the other. The start is a lower bound of t:
    the larger of the quantile as if no request waited, and that of waiting requests alone.

    **Arguments:**

    - `own`: TTFT of requests that find a free slot.
    - `after`: time from getting a slot to the first token, for requests that waited.
    - `wait`: waiting time for a slot.
    - `level`: probability p, or `MEAN`.
    """
    mean_s = 1.0 / wait.per_s
    waited = Spread(
        mean_s=after.mean_s + mean_s,
        variance=after.variance + mean_s * mean_s,
        third=after.third + 2.0 * mean_s * mean_s * mean_s,
    )
    if isinstance(level, str):
        return (1.0 - wait.share) * own.mean_s + wait.share * waited.mean_s
    late = wait.share / (1.0 - level)
    longest = mean_s * jnp.log(jnp.where(late > 1.0, late, 1.0))
    least = t = maximum(gamma_quantile(own, level), jnp.where(late > 1.0, after.mean_s + longest, 0.0))
    most = least + after.mean_s - mean_s * math.log(1.0 - level)
    for _ in range(_STEPS):
        found, others = tail(own, t), tail(waited, t)
        over, slope = ((1.0 - wait.share) * a + wait.share * b for a, b in zip(found, others, strict=True))
        t = t - over / slope * jnp.log(over / (1.0 - level))
        t = jnp.where(t > least, jnp.where(t < most, t, most), least)
    return t
