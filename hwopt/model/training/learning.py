"""Learning, not only steps: tokens and batch to a loss, the best model for a budget, batch schedules, repeated data.

`tokens` are what is processed, `useful_tokens` what vanishing batches would need for the same loss. McCandlish's trade
`(S / S_min - 1) (E / E_min - 1) = 1` between steps S and tokens E holds by construction, with `E_min = D`,
`S_min = D / B_crit`.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from hwopt.types import Scalar
from hwopt.workload.learning import LossLaw

LARGEST_FLOOR = 0.999
"""Share of a wanted loss that the model's own limit may take; `tokens_to_loss` is held there, `loss_margin` negative."""

LEAST_USEFUL = 0.05
"""Share of tokens that must be useful; `effective_tokens` is held there, `batch_margin` negative."""

_NEWTON_STEPS = 6  # from above on a convex function whose slope is mostly 1 - a to 1: exact in float64 after 5
_LEAST_SLOPE = 0.1  # keeps a Newton step bounded where the law has no root; never reached where it has one

FLOPS_PER_PARAMETER_TOKEN = 6.0
"""Forward and backward, without attention scores."""


class Batches(NamedTuple):
    """What a batch schedule costs."""

    tokens: Array
    steps: Array


def dense_equivalent_parameters(law: LossLaw, active: Scalar, total: Scalar) -> Scalar:
    """Parameters of the dense model that learns as well: `active^(1-m) total^m`; a monomial, both for a dense model.

    The law is fitted to dense models. m = 1/2, the geometric mean, is a rule of thumb; m = 0 counts what a token meets.
    """
    return active ** (1.0 - law.moe_exponent) * total**law.moe_exponent


def loss(law: LossLaw, parameters: Scalar, useful_tokens: Scalar) -> Scalar:
    """Loss of a model after fresh tokens in small batches: `E + A N^-alpha + B D^-beta`. A posynomial.

    **Arguments:** `parameters` with embeddings; of a MoE model, its `dense_equivalent_parameters`.

    **Returns:** nats a token, of the law's own data and tokenizer.
    """
    return loss_floor(law, parameters) + law.token_coefficient * useful_tokens ** (-law.token_exponent)


def loss_apart(law: LossLaw, parameters: Scalar, useful_tokens: Scalar, replicas: Scalar) -> Scalar:
    """Loss where replicas train apart and exchange seldom: `L M^r`.

    **Arguments:** `replicas` M that learn apart, 1 where every step is synchronous.

    **Source:** Charles et al., arXiv 2503.09799: L = 19.2 N^-0.0985 M^0.0116 over 35 M to 2.4 B parameters (recalled).
    Nothing is published at frontier scale, where the paper finds the loss to shrink.
    """
    return loss(law, parameters, useful_tokens) * replicas**law.replica_exponent


def loss_floor(law: LossLaw, parameters: Scalar) -> Scalar:
    """Loss of a model after unlimited tokens: `E + A N^-alpha`."""
    return law.irreducible_loss + law.parameter_coefficient * parameters ** (-law.parameter_exponent)


def critical_batch_tokens(law: LossLaw, parameters: Scalar, useful_tokens: Scalar) -> Scalar:
    """Batch at which a run takes twice the tokens and twice the steps of its limits: `B_ref (D / D_ref)^a L(N, D)^-b`.

    1/B_crit is log-log convex. Where a law puts it elsewhere, convert: Zhang's batch B* costs 20 % more steps than
    linear scaling from B_0, so that `B_crit = 5 B* - 6 B_0`.

    **Returns:** tokens a step.

    **Source:** McCandlish et al., arXiv 1812.06162; Kaplan et al., arXiv 2001.08361; Zhang et al., arXiv 2410.21676.
    """
    grown = (useful_tokens / law.critical_reference_tokens) ** law.critical_token_exponent
    return law.critical_batch_tokens * grown * loss(law, parameters, useful_tokens) ** (-law.critical_loss_exponent)


def minimum_steps(law: LossLaw, parameters: Scalar, useful_tokens: Scalar) -> Scalar:
    """Steps of a run with unlimited batches: `S_min = D / B_crit`."""
    return useful_tokens / critical_batch_tokens(law, parameters, useful_tokens)


def _critical_slope(law: LossLaw, parameters: Scalar, useful_tokens: Scalar) -> Scalar:
    """`d ln B_crit / d ln D = a + b beta B D^-beta / L`."""
    of_tokens = law.token_coefficient * useful_tokens ** (-law.token_exponent)
    share = of_tokens / loss(law, parameters, useful_tokens)
    return law.critical_token_exponent + law.critical_loss_exponent * law.token_exponent * share


def local_critical_batch_tokens(law: LossLaw, parameters: Scalar, useful_tokens: Scalar) -> Scalar:
    """Critical batch at a moment of the run, `dD / dS_min = B_crit / (1 - d ln B_crit / d ln D)`.

    Larger than that of a run ending there, which averages over its beginnings, where the critical batch is small.

    **Returns:** tokens a step; defined while the slope is below 1 (with Kaplan's law from about 1e8 tokens on).
    """
    slope = _critical_slope(law, parameters, useful_tokens)
    return critical_batch_tokens(law, parameters, useful_tokens) / (1.0 - slope)


def tokens_with_batch(law: LossLaw, parameters: Scalar, useful_tokens: Scalar, batch_tokens: Scalar) -> Scalar:
    """Tokens to process with one batch size throughout: `D (1 + B / B_crit(D))`. Log-log convex; twice D at B_crit.

    **Source:** McCandlish et al., arXiv 1812.06162, equation 2.11.
    """
    return useful_tokens * (1.0 + batch_tokens / critical_batch_tokens(law, parameters, useful_tokens))


def effective_tokens(law: LossLaw, parameters: Scalar, tokens: Scalar, batch_tokens: Scalar) -> Scalar:
    """Useful tokens D of a run that processes T in batches B: the root of `D (1 + B / B_crit(D)) = T`.

    B_crit is that of the loss reached, so the root is implicit: six Newton steps in log D, which converge to rounding.
    Its reciprocal is log-log convex. **Domain:** `batch_margin` positive, that is batches below some twenty critical
    ones; beyond, `LEAST_USEFUL T`.
    """
    least = math.log(LEAST_USEFUL)

    def closer(_: Array, ratio: Array) -> Array:
        useful = tokens * jnp.exp(ratio)
        overhead = batch_tokens / critical_batch_tokens(law, parameters, useful)
        slope = 1.0 - overhead / (1.0 + overhead) * _critical_slope(law, parameters, useful)
        slope = jnp.where(slope > _LEAST_SLOPE, slope, _LEAST_SLOPE)
        ratio = ratio - (ratio + jnp.log1p(overhead)) / slope
        return jnp.where(ratio > least, ratio, least)

    # The logarithm of useful over processed tokens. A loop of fixed length differentiates both ways.
    start = jnp.zeros_like(tokens * batch_tokens * parameters)
    return tokens * jnp.exp(jax.lax.fori_loop(0, _NEWTON_STEPS, closer, start))


def useful_margin(
    law: LossLaw, parameters: Scalar, useful_tokens: Scalar, tokens: Scalar, batch_tokens: Scalar
) -> Scalar:
    """`log(T / (D (1 + B / B_crit(D))))`: 0 or more where a run that processes T in batches B has D useful tokens.

    The largest such D is `effective_tokens`, on its domain; the loss falls with D, so a least loss lies there. Concave
    in logarithms. Beyond the domain such a D is below `LEAST_USEFUL T`, where `effective_tokens` is held.
    """
    return jnp.log(tokens / tokens_with_batch(law, parameters, useful_tokens, batch_tokens))


def batch_margin(law: LossLaw, parameters: Scalar, tokens: Scalar, batch_tokens: Scalar) -> Scalar:
    """`log(T / (u T (1 + B / B_crit(u T))))`, u = `LEAST_USEFUL`: negative where the batch is too large to learn from."""
    return useful_margin(law, parameters, LEAST_USEFUL * tokens, tokens, batch_tokens)


def loss_of_run(law: LossLaw, parameters: Scalar, tokens: Scalar, batch_tokens: Scalar) -> Scalar:
    """Loss after a run: `L(N, effective_tokens)`. Log-log convex in parameters, tokens and batch, on the same domain."""
    return loss(law, parameters, effective_tokens(law, parameters, tokens, batch_tokens))


def tokens_to_loss(law: LossLaw, parameters: Scalar, wanted: Scalar, batch_tokens: Scalar) -> Scalar:
    """Tokens to process until a loss: `D (1 + B / B_crit)` with `D = (B / (L - E - A N^-alpha))^(1/beta)`.

    Log-log convex, from 1/(1-x) with x = floor / L. **Domain:** a wanted loss above the model's own limit; from
    `LARGEST_FLOOR` on the value is held, finite and meaningless, and `loss_margin` says so.
    """
    share = loss_floor(law, parameters) / wanted
    gap = wanted * (1.0 - jnp.where(share < LARGEST_FLOOR, share, LARGEST_FLOOR))
    useful = (law.token_coefficient / gap) ** (1.0 / law.token_exponent)
    return tokens_with_batch(law, parameters, useful, batch_tokens)


def loss_margin(law: LossLaw, parameters: Scalar, wanted: Scalar) -> Scalar:
    """`log(LARGEST_FLOOR L / (E + A N^-alpha))`: negative where no number of tokens reaches the loss."""
    return jnp.log(LARGEST_FLOOR * wanted / loss_floor(law, parameters))


def compute_optimal(law: LossLaw, flops: Scalar) -> tuple[Scalar, Scalar]:
    """Parameters and tokens of the least loss for a budget `C = 6 N D`.

    `N = G (C/6)^(beta/(alpha+beta))`, `G = (alpha A / (beta B))^(1/(alpha+beta))`, `D = C / (6 N)`. Small batches.

    **Source:** Hoffmann et al., arXiv 2203.15556, equation 4.
    """
    total = law.parameter_exponent + law.token_exponent
    balance = law.parameter_exponent * law.parameter_coefficient / (law.token_exponent * law.token_coefficient)
    work = flops / FLOPS_PER_PARAMETER_TOKEN
    parameters = balance ** (1.0 / total) * work ** (law.token_exponent / total)
    return parameters, work / parameters


def ramped(law: LossLaw, parameters: Scalar, useful_tokens: Scalar, shares: Array, batches_tokens: Array) -> Batches:
    """A run whose batch grows in stages: `T = sum x_i + B_i s_i`, `S = sum x_i / B_i + s_i`.

    x_i are the useful tokens of stage i, s_i what they add to `S_min`. One stage is `tokens_with_batch`. Holds a
    difference: log-log convex in tokens and batches for fixed shares and b = 0, not in general.

    **Arguments:** `shares` of the useful tokens by stage, each above 0, adding up to 1; `batches_tokens` of each.
    """
    reached = useful_tokens * jnp.cumsum(shares)
    fewest = minimum_steps(law, parameters, reached)
    fewest = fewest - jnp.concatenate([jnp.zeros_like(fewest[:1]), fewest[:-1]])
    stage = useful_tokens * shares
    return Batches(jnp.sum(stage + batches_tokens * fewest), jnp.sum(stage / batches_tokens + fewest))


def equivalent_batch(law: LossLaw, shares: Array, batches_tokens: Array) -> Scalar:
    """The one batch that wastes as many tokens as a ramp: `sum_i B_i (c_i^(1-a) - c_(i-1)^(1-a))`, c_i = shares up to stage i.

    A run wastes `B dS_min` tokens where its batch is B, and `S_min` grows as `D^(1-a)`: late stages weigh less than their
    tokens, early ones more, where the critical batch is small. With it `tokens_with_batch` is `ramped` exactly where b = 0;
    with b > 0 the loss's part in the growth of the critical batch is left out, which counts a growing batch as too large.

    **Arguments:** `shares` of the useful tokens by stage, adding up to 1. Where those of all tokens processed stand for them,
    the loss of a run is off by 1e-5 nat at last batches of 0.14 critical ones, 2e-4 at 0.7, 2e-3 at 5, of what a ramp gains
    there: 5e-4, 2e-3 and 9e-3 or more (15 T tokens, early batches of a tenth to a half).
    """
    reached = jnp.cumsum(shares) ** (1.0 - law.critical_token_exponent)
    return jnp.sum(batches_tokens * jnp.diff(reached, prepend=0.0))


def tracking_schedule(law: LossLaw, parameters: Scalar, useful_tokens: Scalar, ratio: Scalar) -> Batches:
    """A run whose batch is always `k` local critical batches: `T = (1 + k) D`, `S = (1 + 1/k) S_min`.

    The same trade as one batch size of k B_crit throughout: following the critical batch in proportion gains nothing.
    """
    fewest = minimum_steps(law, parameters, useful_tokens)
    return Batches((1.0 + ratio) * useful_tokens, (1.0 + 1.0 / ratio) * fewest)


def best_schedule(law: LossLaw, parameters: Scalar, useful_tokens: Scalar, ratio: Scalar) -> Batches:
    """A run whose batch grows as the square root of the local critical batch, which wastes least.

    `T = (1 + g k) D`, `S = (1 + g/k) S_min`, `g = sqrt(1 - a) / (1 - a/2)`: 5 % less waste of either at a = 0.47.
    Exact for b = 0; with b > 0 the loss's part in the growth is left out, so the gain is understated.

    **Source:** McCandlish et al., arXiv 1812.06162, appendix D: the batch that trades a token for time at a fixed rate
    is `sqrt(r B_crit)`; the integrals for a power law are our own.
    """
    a = law.critical_token_exponent
    gain = jnp.sqrt(1.0 - a) / (1.0 - 0.5 * a)
    fewest = minimum_steps(law, parameters, useful_tokens)
    return Batches((1.0 + gain * ratio) * useful_tokens, (1.0 + gain / ratio) * fewest)


def best_schedule_batch_tokens(
    law: LossLaw, parameters: Scalar, useful_tokens: Scalar, progress: Scalar, ratio: Scalar
) -> Scalar:
    """Batch of `best_schedule` at a share of its useful tokens: `k B_crit(D) progress^(a/2) / sqrt(1 - a)`."""
    a = law.critical_token_exponent
    return ratio * critical_batch_tokens(law, parameters, useful_tokens) * progress ** (0.5 * a) / jnp.sqrt(1.0 - a)


def repeated_tokens(law: LossLaw, unique_tokens: Scalar, epochs: Scalar) -> Scalar:
    """Fresh tokens that several passes over the same ones are worth: `U + U R* (1 - exp(-(epochs - 1) / R*))`.

    A part of one pass is worth itself; value and slope join at one. Saturates, so it is log-log concave and its
    reciprocal convex: the loss stays convex in U and in tokens processed. The law's like term for too many parameters
    is left out.

    **Source:** Muennighoff et al., arXiv 2305.16264, equation 5.
    """
    again = jnp.where(epochs > 1.0, epochs - 1.0, 0.0)
    saturated = 1.0 - law.repetition_epochs * jnp.expm1(-again / law.repetition_epochs)
    return unique_tokens * jnp.where(epochs > 1.0, saturated, epochs)
