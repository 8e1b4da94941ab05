"""Waits for a slot, and the time to a first token with them: a mixture of requests that wait and of those that find a slot."""

import math
from typing import NamedTuple

import jax.numpy as jnp

from hwopt.model.maximum import Maximum
from hwopt.model.serving.queueing import Passes, Requests, Spread, decay, normal_below, quantile
from hwopt.types import Scalar

_STEPS = 4
"""Newton's, to a quantile of a mixture."""

_LEAST_SKEW = 1e-3
"""Skewness below which a gamma distribution is taken to be at it: at 0 its form has none."""

_FAR = 9.0
"""Standard deviations beyond which a tail is none, in single precision too."""

_EDGE = 0.87
"""No source: chosen by eye on the cases of `results/reference/percentiles.txt` that say so; those drawn at random had no part."""


def tail(time: Spread, t: Scalar) -> tuple[Scalar, Scalar]:
    """Chance that a gamma distribution's time of three cumulants is longer than t, and its slope, by Wilson and Hilferty."""
    sd = jnp.sqrt(time.variance)
    skew = time.third / (time.variance * sd)
    skew = jnp.where(skew > _LEAST_SKEW, skew, _LEAST_SKEW)
    y = 1.0 + 0.5 * skew * (t - time.mean_s) / sd
    y = jnp.where(y > 1e-3, y, 1e-3)
    root = y ** (1.0 / 3.0)
    z = 6.0 * (root - 1.0) / skew + skew / 6.0
    return _normal_tail(z, 1.0 / (sd * root * root))


def _median_tail(time: Spread, floor_s: Scalar, t: Scalar) -> tuple[Scalar, Scalar]:
    """The same of a lognormal time over a floor."""
    above = time.mean_s - floor_s
    spread = jnp.log(1.0 + time.variance / (above * above))
    width, over = jnp.sqrt(spread), t - floor_s
    over = jnp.where(over > 1e-3 * above, over, 1e-3 * above)
    z = (jnp.log(over / above) + 0.5 * spread) / width
    return _normal_tail(z, 1.0 / (width * over))


def _normal_tail(z: Scalar, slope: Scalar) -> tuple[Scalar, Scalar]:
    z = jnp.where(z > _FAR, _FAR, jnp.where(z < -_FAR, -_FAR, z))
    over = normal_below(-z)
    return over, -over * (1.0 - over) * (1.5976 + 0.21168 * z * z) * slope


class SlotWait(NamedTuple):
    """The wait for a slot of a stream."""

    share: Scalar  # P, of requests that wait
    per_s: Scalar  # u / S, of their exponential wait


def elsewhere_s(at: Passes) -> Scalar:
    """What a wait is longer than in one queue for the slots of k streams: `(k - 1) / 2` answers that end in other streams."""
    return 0.5 * (at.slots / at.slots_each - 1.0) * at.answer_s


def after_wait(requests: Requests, at: Passes) -> Spread:
    """From a slot that is waited for to the first token: a full pass, prompts of all that end beside one's own.

    And half a pass more than in a queue without passes, until slots are given.
    """
    gamma, others = at.prompt_s, at.slots_each / at.answer_passes
    spread = requests.prompts
    return Spread(
        mean_s=1.5 * at.full_s + gamma + elsewhere_s(at),
        variance=gamma * gamma * (spread + others * (1.0 + spread)),
        third=gamma**3 * (2.0 * spread * spread + others * (1.0 + spread) * (1.0 + 2.0 * spread)),
    )


def peakedness(requests: Requests, at: Passes) -> Scalar:
    """Variance of the number of sequences over that with Poisson arrivals, exponential answers and no prompts.

    `z = ((c_a + phi^2 c_p) / (1 - phi) + (1 - phi) c_o) / (1 + c_o)`: a prompt holds up answers under way, so that arrivals move
    the number by `1 / (1 - phi)` each, and prompts of other lengths by `phi / (1 - phi)`.
    """
    share = at.per_s * at.prompt_s
    left = 1.0 - share
    return ((at.arrivals + share * share * requests.prompts) / left + left * requests.answers) / (
        1.0 + requests.answers
    )


def slot_wait(requests: Requests, at: Passes, load: Scalar) -> SlotWait:
    """The wait for a slot: 0 for a share, exponential for the others, of mean `S / u`.

    Sequences in a machine that is not full are a birth and death process, births over deaths `(a + g n) / n`: a negative binomial
    distribution of mean n and variance `w n`, `w = z / (1 - g)`, skewness `(2 w - 1) / sqrt(w n)`, here a gamma one with these;
    beyond N a geometric one. Bursts and prompts widen it by the peakedness z; requests come where passes are long, `g / (1 - g)`
    more, and in bursts find `(c_a - 1) / (2 (1 - phi))` more (GI/M at infinity). The chance to wait is `h / (h + body)`, `h` the
    density at N over u of exponential answers, times `0.87 ((1 + c_a) / 2)^(1/3) / (1 - phi)`: how much more the number is shaken
    below N than above (our own; a diffusion has another power).

    **Source:** Halfin, Whitt, Operations Research 29 (3), 1981; Whitt, Management Science 50 (10), 2004 (peakedness).
    """
    g, n = at.follows, at.sequences
    wide = peakedness(requests, at) / (1.0 - g)
    left = 1.0 - at.per_s * at.prompt_s
    mean = n + g / (1.0 - g) + 0.5 * (at.arrivals - 1.0) / left
    spread = Spread(mean_s=mean, variance=wide * n, third=(2.0 * wide - 1.0) * wide * n)
    edge = jnp.where(at.prompt_s > 0.0, _EDGE, 1.0) / left * (0.5 * (1.0 + at.arrivals)) ** (1.0 / 3.0)
    body, density = 1.0 - tail(spread, at.slots - 0.5)[0], -tail(spread, at.slots)[1]
    cut = decay(load, at.arrivals, at.service)
    h = edge * density / decay(load, at.arrivals, jnp.ones_like(load))
    return SlotWait(share=h / (h + body), per_s=cut / at.answer_s)


def first_token_s(
    own: Spread, after: Spread, wait: SlotWait, level: float, floor_s: Scalar, maximum: Maximum
) -> Scalar:
    """A quantile of the time to the first token, of those who find a slot and of those who wait for one: a mixture.

    `(1 - P) P(own > t) + P P(wait + after > t) = 1 - p`, by Newton's steps on its logarithm, which is convex where one tail takes
    over from the other, from what is no longer than t: the quantile of all as if none waited, or of those who wait alone.

    **Arguments:** `own` of those who find a slot, `after` from a slot that is waited for.
    """
    mean_s = 1.0 / wait.per_s
    waited = Spread(
        mean_s=after.mean_s + mean_s,
        variance=after.variance + mean_s * mean_s,
        third=after.third + 2.0 * mean_s * mean_s * mean_s,
    )
    late = wait.share / (1.0 - level)
    longest = mean_s * jnp.log(jnp.where(late > 1.0, late, 1.0))
    least = t = maximum(quantile(own, level, floor_s), jnp.where(late > 1.0, after.mean_s + longest, 0.0))
    most = least + after.mean_s - mean_s * math.log(1.0 - level)
    for _ in range(_STEPS):
        found = _median_tail(own, floor_s, t) if level == 0.5 else tail(own, t)
        others = tail(waited, t)
        over, slope = ((1.0 - wait.share) * a + wait.share * b for a, b in zip(found, others, strict=True))
        t = t - over / slope * jnp.log(over / (1.0 - level))
        t = jnp.where(t > least, jnp.where(t < most, t, most), least)
    return t
