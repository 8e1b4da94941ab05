"""Percentiles of TPOT: effect of the number of sequences in a pass, and of prompts that interrupt short answers."""

import jax.numpy as jnp

from hwopt.model.numerics.maximum import above_zero, hard_maximum
from hwopt.model.serving.queueing import NORMAL, Passes, Requests, companions_per_s
from hwopt.model.serving.slots import peakedness, slot_wait
from hwopt.types import Scalar

_LEAST_SPREAD = 0.05
"""Smallest squared coefficient of variation of answers; smaller values are raised to it."""

_LEAST_PROMPTS = 0.02
"""Smallest squared coefficient of variation of prompts; smaller values are raised to it."""

_TINY = 1e-18
"""Smallest argument of a root, because roots have no derivative at 0."""


def _short(requests: Requests) -> tuple[Scalar, Scalar]:
    """Return exponent a and factor s of the share of short answers: `s x^a` of all answers are shorter than x times the mean.

    `a = 1 / c_o` for squared coefficient of variation c_o of answers, and `s = a^a / Gamma(a + 1)`, with the Gamma function by
    Stirling's formula.
    """
    a = 1.0 / jnp.where(requests.answers > _LEAST_SPREAD, requests.answers, _LEAST_SPREAD)
    return a, jnp.exp(a) / (jnp.sqrt(2.0 * jnp.pi * a) * (1.0 + 1.0 / (12.0 * a)))


def _mean_of_powers(q: Scalar, spread: Scalar) -> Scalar:
    """Return the power mean `E[x^q]^(1/q)` of a gamma-distributed x with mean 1 and squared coefficient of variation c.

    It is `prod (1 + k c)^(1/q)` for k below q, computed by the first two terms of the Euler-Maclaurin formula. The error is at
    most 5 % at q of 2 and 3 and c up to 2. The result is 1 where q is at most 1.
    """
    c = jnp.where(spread > _LEAST_PROMPTS, spread, _LEAST_PROMPTS)
    most = 1.0 + jnp.where(q > 1.0, q - 1.0, 0.0) * c
    log = jnp.log(most)
    return jnp.exp(((most * log - most + 1.0) / c + 0.5 * log) / q)


def _hit(requests: Requests, at: Passes, level: float) -> Scalar:
    """Return the delay that prompts which interrupt short answers add to a TPOT quantile.

    A share `(a o / l)^a / Gamma(a + 1)` of answers is shorter than o passes, where l is the mean and `1 / a` the squared
    coefficient of variation of answers. A share `(a o / l)^a / Gamma(a + 1) (s + m o a / (a + 1))` is short and interrupted by
    a prompt: s prompts arrive at once and m in each later pass. Answers that round to no pass are excluded. For the quantile of
    level p, this share equals 1 - p at `o = 1 / x`. A prompt of duration gamma then adds `gamma x` to the mean time between
    tokens, more where other prompts arrive together with it.

    - Where prompts differ in length, long ones count by a power mean: of power a for prompts at once, a + 1 for later ones.
    - Prompts at once are those that arrive during the whole pass of the request's own prompt.
    - Later prompts let in others while they delay the answer, `1 / (1 - phi)` in total with phi the share of time of prompts.
      Only the square root of this factor counts (our own choice: a short answer ends before all of them arrive).
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
    """Return the wait of a short answer for the current pass to end, relative to the answer's passes, at a quantile.

    The wait is a uniform share of a pass, and the quantile is computed as in `_hit`. Requests that wait for a slot are
    excluded, because they get it when a pass ends.
    """
    a, short = _short(requests)
    short = short * (1.0 - slot_wait(requests, at, at.load).share)
    none = short * (0.5 / at.answer_passes) ** a
    return (short / ((a + 1.0) * (1.0 - level + none))) ** (1.0 / a) / at.answer_passes


def token_s(requests: Requests, at: Passes, level: float | str) -> Scalar:
    """Return a quantile or the mean of a request's time between passes: `(last - first) / (tokens - 1)` over its answer.

    - Mean and median are those of passes which answers see. They are longer by
      `g (1 + 2 / (3 - g) (c_a - 1) / (1 - phi)^2) / n` because of sequences that arrive together, but never longer than a full
      pass or shorter than an empty one. There are n sequences, g is the share of a pass that
      grows with them, phi is the share of time of prompts, and c_a describes the arrivals.
    - The spread has two parts, added in quadrature. The number of sequences, averaged over an answer, keeps `3 / (4 - g)` of
      its variance; its correlation decays as exp(-(1 - g) t) over the time of an answer. Prompts that interrupt short answers
      (`_hit`) are the other part.
    - With disaggregated prefill, sequences start in the middle of a pass and wait for its end (`_begun`).

    **Source:** the definition, MLPerf Inference and vLLM's benchmarks; the form is our own.
    """
    g, n, left = at.follows, at.sequences, 1.0 - at.per_s * at.prompt_s
    bursts = (at.arrivals - 1.0) / (left * left)
    mean = at.mean_s * (1.0 + g * (1.0 + 2.0 / (3.0 - g) * bursts) / n)
    mean = jnp.where(at.full_s < mean, at.full_s, mean)
    mean = hard_maximum(mean, at.mean_s * (1.0 - g))  # the latter is an empty pass
    amid = jnp.where(at.prompt_s > 0.0, 0.0, at.mean_s)
    mean = mean + 0.5 * amid / at.answer_passes
    if isinstance(level, str) or level == 0.5:
        return mean
    wide = mean * (NORMAL[level] * g) * jnp.sqrt(peakedness(requests, at) * 3.0 / ((4.0 - g) * n * (1.0 - g)))
    room = above_zero(at.full_s - mean)
    wide = jnp.where(room < wide, room, wide)
    hit = _hit(requests, at, level) + amid * _begun(requests, at, level)
    return mean + jnp.sqrt(wide * wide + hit * hit + _TINY * mean * mean)
