"""Scaling laws: loss from parameters, tokens and batch size; compute-optimal models, batch schedules, repeated data.

`tokens` are the processed tokens. `useful_tokens` are the tokens that would reach the same loss in the limit of small batches.
McCandlish's trade-off `(S / S_min - 1) (E / E_min - 1) = 1` between steps S and tokens E holds by construction, with
`E_min = D` useful tokens and `S_min = D / B_crit`.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from hwopt.types import Scalar
from hwopt.workload.learning import LossLaw

LARGEST_FLOOR = 0.999
"""Largest ratio of the model's loss floor to the target loss.

Above it, `loss_margin` is negative and `tokens_to_loss` is evaluated at this ratio.
"""

LEAST_USEFUL = 0.05
"""Smallest share of useful tokens.

Below it, `batch_margin` is negative and `effective_tokens` is clipped to this share.
"""

_NEWTON_STEPS = 6  # from above on a convex function whose slope is mostly 1 - a to 1: exact in float64 after 5
_LEAST_SLOPE = 0.1  # keeps a Newton step bounded where the law has no root; never reached where it has one

FLOPS_PER_PARAMETER_TOKEN = 6.0
"""Training FLOPs per parameter and token, forward and backward, without attention scores."""


class Batches(NamedTuple):
    """Tokens and steps that a batch schedule needs."""

    tokens: Array
    steps: Array


def dense_equivalent_parameters(law: LossLaw, active: Scalar, total: Scalar) -> Scalar:
    """Return the parameters of a dense model that reaches the same loss as an MoE model: `active^(1-m) total^m`, a monomial.

    The loss law is fitted to dense models, for which active and total parameters are equal. The exponent m is a constant of the
    law: 1/2 (the geometric mean) is a rule of thumb, 0 counts only active parameters.
    """
    return active ** (1.0 - law.moe_exponent) * total**law.moe_exponent


def loss(law: LossLaw, parameters: Scalar, useful_tokens: Scalar) -> Scalar:
    """Return the loss of a model trained on fresh tokens in small batches: `E + A N^-alpha + B D^-beta`, a posynomial.

    N are the parameters, D the useful tokens; E (irreducible loss), A, B, alpha and beta are constants of the law.

    **Arguments:** `parameters`: N, with embeddings; for an MoE model its `dense_equivalent_parameters`.

    **Returns:** nats a token, on the data and with the tokenizer of the law.
    """
    return loss_floor(law, parameters) + law.token_coefficient * useful_tokens ** (-law.token_exponent)


def loss_apart(law: LossLaw, parameters: Scalar, useful_tokens: Scalar, replicas: Scalar) -> Scalar:
    """Return the loss where replicas train independently and exchange weights rarely (DiLoCo): `L M^r`.

    L is the loss of synchronous training, r the law's exponent of replicas.

    **Arguments:** `replicas`: number M of independent replicas; 1 where every step is synchronous.

    **Source:** Charles et al., arXiv 2503.09799: L = 19.2 N^-0.0985 M^0.0116 over 35 M to 2.4 B parameters (recalled).
    Nothing is published at frontier scale. The paper finds that the extra loss shrinks with model size.
    """
    return loss(law, parameters, useful_tokens) * replicas**law.replica_exponent


def loss_floor(law: LossLaw, parameters: Scalar) -> Scalar:
    """Return the loss of a model in the limit of unlimited tokens: `E + A N^-alpha`, see `loss`."""
    return law.irreducible_loss + law.parameter_coefficient * parameters ** (-law.parameter_exponent)


def critical_batch_tokens(law: LossLaw, parameters: Scalar, useful_tokens: Scalar) -> Scalar:
    """Return the critical batch size: `B_crit = B_ref (D / D_ref)^a L(N, D)^-b`.

    At this batch size a run needs twice its minimum number of tokens and twice its minimum number of steps. D are the useful
    tokens, L(N, D) is the loss; B_ref, D_ref, a and b are constants of the law. 1/B_crit is log-log convex. Other definitions
    must be converted: Zhang's batch B* costs 20 % more steps than linear scaling from B_0, so that `B_crit = 5 B* - 6 B_0`.

    **Returns:** tokens a step.

    **Source:** McCandlish et al., arXiv 1812.06162; Kaplan et al., arXiv 2001.08361; Zhang et al., arXiv 2410.21676.
    """
    grown = (useful_tokens / law.critical_reference_tokens) ** law.critical_token_exponent
    return law.critical_batch_tokens * grown * loss(law, parameters, useful_tokens) ** (-law.critical_loss_exponent)


def minimum_steps(law: LossLaw, parameters: Scalar, useful_tokens: Scalar) -> Scalar:
    """Return the steps of a run in the limit of large batches: `S_min = D / B_crit`."""
    return useful_tokens / critical_batch_tokens(law, parameters, useful_tokens)


def _critical_slope(law: LossLaw, parameters: Scalar, useful_tokens: Scalar) -> Scalar:
    """Return the logarithmic slope of the critical batch: `d ln B_crit / d ln D = a + b beta B D^-beta / L`.

    Symbols are those of `loss` and `critical_batch_tokens`.
    """
    of_tokens = law.token_coefficient * useful_tokens ** (-law.token_exponent)
    share = of_tokens / loss(law, parameters, useful_tokens)
    return law.critical_token_exponent + law.critical_loss_exponent * law.token_exponent * share


def local_critical_batch_tokens(law: LossLaw, parameters: Scalar, useful_tokens: Scalar) -> Scalar:
    """Return the critical batch at one moment of a run: `dD / dS_min = B_crit / (1 - d ln B_crit / d ln D)`.

    It is larger than the critical batch of a run that ends at this moment. The latter averages over the whole run, and the
    critical batch is small at its beginning.

    **Returns:** tokens a step; defined while the slope is below 1 (with Kaplan's law from about 1e8 tokens on).
    """
    slope = _critical_slope(law, parameters, useful_tokens)
    return critical_batch_tokens(law, parameters, useful_tokens) / (1.0 - slope)


def tokens_with_batch(law: LossLaw, parameters: Scalar, useful_tokens: Scalar, batch_tokens: Scalar) -> Scalar:
    """Return the tokens to process with a constant batch size B: `D (1 + B / B_crit(D))`. Log-log convex; twice D at B_crit.

    **Source:** McCandlish et al., arXiv 1812.06162, equation 2.11.
    """
    return useful_tokens * (1.0 + batch_tokens / critical_batch_tokens(law, parameters, useful_tokens))


def effective_tokens(law: LossLaw, parameters: Scalar, tokens: Scalar, batch_tokens: Scalar) -> Scalar:
    """Return the useful tokens D of a run that processes T tokens in batches B: the root of `D (1 + B / B_crit(D)) = T`.

    B_crit depends on the loss reached, so the equation is implicit. Six Newton steps in log D converge to rounding error. The
    reciprocal of the result is log-log convex.

    **Domain:** `batch_margin` positive, which means batches below about twenty critical ones; beyond it, `LEAST_USEFUL T`.
    """
    least = math.log(LEAST_USEFUL)

    def closer(_: Array, ratio: Array) -> Array:
        useful = tokens * jnp.exp(ratio)
        overhead = batch_tokens / critical_batch_tokens(law, parameters, useful)
        slope = 1.0 - overhead / (1.0 + overhead) * _critical_slope(law, parameters, useful)
        slope = jnp.where(slope > _LEAST_SLOPE, slope, _LEAST_SLOPE)
        ratio = ratio - (ratio + jnp.log1p(overhead)) / slope
        return jnp.where(ratio > least, ratio, least)

    # The logarithm of useful over processed tokens. A loop of fixed length supports forward and reverse differentiation.
    start = jnp.zeros_like(tokens * batch_tokens * parameters)
    return tokens * jnp.exp(jax.lax.fori_loop(0, _NEWTON_STEPS, closer, start))


def useful_margin(
    law: LossLaw, parameters: Scalar, useful_tokens: Scalar, tokens: Scalar, batch_tokens: Scalar
) -> Scalar:
    """Return `log(T / (D (1 + B / B_crit(D))))`: 0 or more where T processed tokens in batches B give D useful tokens.

    The largest such D is `effective_tokens`, on its domain. The loss falls with D, so minimizing the loss makes this margin
    active. It is concave in logarithms. Outside the domain such a D is below `LEAST_USEFUL T`, to which `effective_tokens` is
    clipped.
    """
    return jnp.log(tokens / tokens_with_batch(law, parameters, useful_tokens, batch_tokens))


def batch_margin(law: LossLaw, parameters: Scalar, tokens: Scalar, batch_tokens: Scalar) -> Scalar:
    """Return `log(T / (u T (1 + B / B_crit(u T))))` with u = `LEAST_USEFUL`.

    It is negative where the batch is so large that less than the share u of the tokens is useful.
    """
    return useful_margin(law, parameters, LEAST_USEFUL * tokens, tokens, batch_tokens)


def loss_of_run(law: LossLaw, parameters: Scalar, tokens: Scalar, batch_tokens: Scalar) -> Scalar:
    """Return the loss at the end of a run: `L(N, effective_tokens)`.

    It is log-log convex in parameters, tokens and batch on the domain of `effective_tokens`.
    """
    return loss(law, parameters, effective_tokens(law, parameters, tokens, batch_tokens))


def tokens_to_loss(law: LossLaw, parameters: Scalar, wanted: Scalar, batch_tokens: Scalar) -> Scalar:
    """Return the tokens to process until a target loss L: `D (1 + B / B_crit)` with `D = (B / (L - E - A N^-alpha))^(1/beta)`.

    The B in D is the law's token coefficient, the other one the batch. The result is log-log convex, by 1/(1-x) with
    x = floor / L.

    **Domain:** a target loss above the model's loss floor. Where floor / L exceeds `LARGEST_FLOOR` the value is clipped, finite
    and meaningless, and `loss_margin` is negative.
    """
    share = loss_floor(law, parameters) / wanted
    gap = wanted * (1.0 - jnp.where(share < LARGEST_FLOOR, share, LARGEST_FLOOR))
    useful = (law.token_coefficient / gap) ** (1.0 / law.token_exponent)
    return tokens_with_batch(law, parameters, useful, batch_tokens)


def loss_margin(law: LossLaw, parameters: Scalar, wanted: Scalar) -> Scalar:
    """Return `log(LARGEST_FLOOR L / (E + A N^-alpha))`: negative where no number of tokens reaches the target loss L."""
    return jnp.log(LARGEST_FLOOR * wanted / loss_floor(law, parameters))


def compute_optimal(law: LossLaw, flops: Scalar) -> tuple[Scalar, Scalar]:
    """Return the compute-optimal parameters N and tokens D for a budget `C = 6 N D`, assuming small batches.

    `N = G (C/6)^(beta/(alpha+beta))`, `G = (alpha A / (beta B))^(1/(alpha+beta))`, `D = C / (6 N)`; constants as in `loss`.

    **Source:** Hoffmann et al., arXiv 2203.15556, equation 4.
    """
    total = law.parameter_exponent + law.token_exponent
    balance = law.parameter_exponent * law.parameter_coefficient / (law.token_exponent * law.token_coefficient)
    work = flops / FLOPS_PER_PARAMETER_TOKEN
    parameters = balance ** (1.0 / total) * work ** (law.token_exponent / total)
    return parameters, work / parameters


def ramped(law: LossLaw, parameters: Scalar, useful_tokens: Scalar, shares: Array, batches_tokens: Array) -> Batches:
    """Return tokens and steps of a run whose batch grows in stages: `T = sum x_i + B_i s_i`, `S = sum x_i / B_i + s_i`.

    x_i are the useful tokens of stage i, s_i is their contribution to the minimum steps `S_min`. With one stage T equals
    `tokens_with_batch`. Since s_i is a difference, the result is not log-log convex in general. It is log-log convex in tokens
    and batches for fixed shares if the critical batch does not depend on the loss (b = 0 in `critical_batch_tokens`).

    **Arguments:**

    - `shares`: share of the useful tokens by stage, each above 0; they add up to 1.
    - `batches_tokens`: batch B_i of each stage, in tokens.
    """
    reached = useful_tokens * jnp.cumsum(shares)
    fewest = minimum_steps(law, parameters, reached)
    fewest = fewest - jnp.concatenate([jnp.zeros_like(fewest[:1]), fewest[:-1]])
    stage = useful_tokens * shares
    return Batches(jnp.sum(stage + batches_tokens * fewest), jnp.sum(stage / batches_tokens + fewest))


def equivalent_batch(law: LossLaw, shares: Array, batches_tokens: Array) -> Scalar:
    """Return the constant batch that wastes as many tokens as a ramp: `sum_i B_i (c_i^(1-a) - c_(i-1)^(1-a))`.

    c_i is the sum of shares up to stage i; a and b are the exponents of `critical_batch_tokens`. A run wastes `B dS_min` tokens
    where its batch is B, and the minimum steps `S_min` grow as `D^(1-a)`. Late stages weigh less than their tokens, early ones
    more, because the critical batch is small there. For b = 0, `tokens_with_batch` at this batch equals `ramped` exactly. For b
    > 0 the effect of the loss on the critical batch is left out, which overstates the equivalent of a growing batch.

    **Arguments:**

    - `shares`: share of the useful tokens by stage; they add up to 1. With shares of processed tokens instead, the loss is off
      by 1e-5 nat if the last batch is 0.14 critical batches, 2e-4 at 0.7, 2e-3 at 5. For comparison, the ramp itself improves
      the loss by 5e-4, 2e-3 and 9e-3 or more there (15 T tokens, early batches of a tenth to a half).
    - `batches_tokens`: batch B_i of each stage, in tokens.
    """
    reached = jnp.cumsum(shares) ** (1.0 - law.critical_token_exponent)
    return jnp.sum(batches_tokens * jnp.diff(reached, prepend=0.0))


def repeated_tokens(law: LossLaw, unique_tokens: Scalar, epochs: Scalar) -> Scalar:
    """Return the fresh tokens equivalent to several epochs over U unique tokens: `U + U R* (1 - exp(-(epochs - 1) / R*))`.

    R* is the number of repetitions after which repeated data has given 1 - 1/e of its total benefit. Up to one epoch, each
    token counts fully; value and slope are continuous at one epoch. The function saturates, so it is log-log concave and its
    reciprocal convex. The loss therefore stays convex in U and in processed tokens. The source's analogous term for excess
    parameters is left out.

    **Source:** Muennighoff et al., arXiv 2305.16264, equation 5.
    """
    again = jnp.where(epochs > 1.0, epochs - 1.0, 0.0)
    saturated = 1.0 - law.repetition_epochs * jnp.expm1(-again / law.repetition_epochs)
    return unique_tokens * jnp.where(epochs > 1.0, saturated, epochs)
