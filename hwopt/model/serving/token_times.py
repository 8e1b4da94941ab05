"""Percentiles of the time between tokens: how full passes are, and prompts that hit short answers."""

import jax.numpy as jnp

from hwopt.model.numerics.maximum import above_zero
from hwopt.model.serving.queueing import NORMAL, Passes, Requests, companions_per_s
from hwopt.model.serving.slots import peakedness, slot_wait
from hwopt.types import Scalar

_LEAST_SPREAD = 0.05
"""Squared coefficient of variation of answers below which short ones are as rare as at it."""

_LEAST_PROMPTS = 0.02
"""And of prompts below which they are taken to differ as much."""

_TINY = 1e-18
"""Keeps roots off 0, where they have no slope."""


def _short(requests: Requests) -> tuple[Scalar, Scalar]:
    """Answers shorter than a share x of their mean are `s x^a` of all: a, and s by Stirling's Gamma(a + 1)."""
    a = 1.0 / jnp.where(requests.answers > _LEAST_SPREAD, requests.answers, _LEAST_SPREAD)
    return a, jnp.exp(a) / (jnp.sqrt(2.0 * jnp.pi * a) * (1.0 + 1.0 / (12.0 * a)))


def _mean_of_powers(q: Scalar, spread: Scalar) -> Scalar:
    """`E[x^q]^(1/q)` of a gamma time of mean 1: `prod (1 + k c)^(1/q)` for k below q, by Euler and Maclaurin's first two terms.

    To 5 % at q of 2 and 3 and c to 2; 1 where q is at most 1.
    """
    c = jnp.where(spread > _LEAST_PROMPTS, spread, _LEAST_PROMPTS)
    most = 1.0 + jnp.where(q > 1.0, q - 1.0, 0.0) * c
    log = jnp.log(most)
    return jnp.exp(((most * log - most + 1.0) / c + 0.5 * log) / q)


def _hit(requests: Requests, at: Passes, level: float) -> Scalar:
    """What prompts that hit short answers add to a quantile of the time between their tokens.

    Answers shorter than o tokens are `(a o / l)^a / Gamma(a + 1)` of all, `a = 1 / c_o`, those of them that a prompt hits
    `(a o / l)^a / Gamma(a + 1) (phi + m o a / (a + 1))`, phi at once and m a pass, less those that round to no pass: as many as are
    over the quantile for `o = 1 / x`. A prompt costs them `gamma x`, more where others come with it. Where prompts differ, long
    ones count by the mean of the power that the chance has, a at once and a + 1 later. At once come those of all of the pass of
    one's own prompt. Later ones bring others while they hold up the answer, `1 / (1 - phi)` in all, of which the root counts (our
    own: a short answer ends before all have come).
    """
    a, short = _short(requests)
    spread, passes_ = 1.0 / a, at.answer_passes
    rate = companions_per_s(at)
    own_s = at.prompt_s * (1.0 + rate * at.mean_s) + at.decoding_s
    soon, each = rate * own_s, rate * at.mean_s
    none = short * (0.5 / passes_) ** a * (soon + 0.5 * each * a / (a + 1.0))  # half a pass is none
    short = short / (1.0 - level + none)
    at_once = (short * soon + _TINY) ** spread / passes_
    later = (short * each * a / (a + 1.0) + _TINY) ** (spread / (1.0 + spread)) * passes_ ** (-1.0 / (1.0 + spread))
    at_once = at_once * _mean_of_powers(a, requests.prompts)
    later = later * _mean_of_powers(a + 1.0, requests.prompts) / jnp.sqrt(1.0 - at.per_s * at.prompt_s)
    x = 0.5 * at_once + jnp.sqrt(0.25 * at_once * at_once + later * later)
    bursts = above_zero(at.stream_arrivals - 1.0)
    seen = 2.0 * at.per_s * at.mean_s / ((at.stream_arrivals + 1.0) * x)
    even = 1.0 + bursts * (1.0 + jnp.expm1(-seen) / seen)
    power = jnp.where(a < 2.0, a, 2.0)
    more = (even + requests.prompts) / (1.0 + requests.prompts)
    return x * at.prompt_s * more ** (0.5 * power)


def _begun(requests: Requests, at: Passes, level: float) -> Scalar:
    """Passes, over its own, that a short answer waits for the one under way to end: as of `_hit`, a uniform share of one.

    Those that wait for a slot have it when one ends.
    """
    a, short = _short(requests)
    short = short * (1.0 - slot_wait(requests, at, at.load).share)
    none = short * (0.5 / at.answer_passes) ** a
    return (short / ((a + 1.0) * (1.0 - level + none))) ** (1.0 / a) / at.answer_passes


def token_s(requests: Requests, at: Passes, level: float) -> Scalar:
    """A quantile of the time between tokens of a request, the mean over its answer: `(last - first) / (tokens - 1)`.

    The mean of passes that answers see: sequences that come with one, `g (1 + 2 / (3 - g) (c_a - 1) / (1 - phi)^2) / n` more, and
    no pass beyond a full one. Around it, in quadrature: how many sequences there are, averaged over an answer, which leaves
    `3 / (4 - g)` of the variance (both: correlation that falls as exp(-(1 - g) t) over an answer's time); and prompts that hit
    short answers. Where prompts have chips of their own, sequences come amid a pass.

    **Source:** the definition, MLPerf Inference and vLLM's benchmarks; the form is our own.
    """
    g, n, left = at.follows, at.sequences, 1.0 - at.per_s * at.prompt_s
    bursts = (at.arrivals - 1.0) / (left * left)
    mean = at.mean_s * (1.0 + g * (1.0 + 2.0 / (3.0 - g) * bursts) / n)
    mean = jnp.where(at.full_s < mean, at.full_s, mean)
    amid = jnp.where(at.prompt_s > 0.0, 0.0, at.mean_s)
    mean = mean + 0.5 * amid / at.answer_passes
    if level == 0.5:
        return mean
    wide = mean * (NORMAL[level] * g) * jnp.sqrt(peakedness(requests, at) * 3.0 / ((4.0 - g) * n * (1.0 - g)))
    room = above_zero(at.full_s - mean)
    wide = jnp.where(room < wide, room, wide)
    hit = _hit(requests, at, level) + amid * _begun(requests, at, level)
    return mean + jnp.sqrt(wide * wide + hit * hit + _TINY * mean * mean)
