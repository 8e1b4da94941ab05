"""An inference service: the requests that a machine has to answer."""

import equinox as eqx
import jax.numpy as jnp

from hwopt.quantity import quantity, ratio, switch
from hwopt.types import PerPrecision, Scalar
from hwopt.workload.transformer import Transformer

_NEAR_CERTAIN = 1e-4
"""Probability of rejection below which the number of accepted tokens is computed by a series."""


class Service(eqx.Module):
    """A model to serve, the mean request, and the number formats.

    A machine may do both phases, or prefill (`prefills` 1) or decode (`decodes` 1) alone.
    """

    model: Transformer
    input_tokens: Scalar = quantity("token", "of a prompt, mean")
    cached_fraction: Scalar = ratio("share of the prompt whose keys and values are kept from earlier requests")
    output_tokens: Scalar = quantity("token", "of an answer, mean")
    prefills: Scalar = switch("1: prompts are processed here, 0: elsewhere")
    decodes: Scalar = switch("1: answers are generated here, 0: elsewhere")
    requests_per_s: Scalar = quantity("1/s", "that arrive; 0: as many as the machine answers")
    load: Scalar = ratio("utilization of the chips for prefill alone, below 1")
    drafted_tokens: Scalar = switch("guessed by a draft model and checked in one pass, 0: none")
    acceptance: Scalar = ratio("chance that a guessed token is accepted")
    draft_fraction: Scalar = ratio("time of a draft model's pass over the model's")
    gemm_precision: PerPrecision = switch("share of the layers' GEMM FLOPs in each format, adds up to 1")
    weight_bytes: Scalar = quantity("B", "stored weight of a layer")
    kv_bytes: Scalar = quantity("B", "stored element of keys and values")
    activation_bytes: Scalar = quantity("B", "element between kernels and chips")
    routing_imbalance: Scalar = ratio("tokens of the busiest expert rank over the mean, >= 1")
    arrival_scv: Scalar = ratio("squared coefficient of variation of the times between requests, 1: Poisson")
    input_scv: Scalar = ratio("the same of the tokens of prompts")
    output_scv: Scalar = ratio("the same of the tokens of answers")
    least_loaded: Scalar = switch("1: requests go to the replica with the fewest, 0: to any at random")
    peak_over_mean: Scalar = ratio("requests of the busiest hour over the mean of the day, >= 1")
    capacity_in_use: Scalar = ratio(
        "most that the mean load may be of what the machine can answer; the rest is headroom"
    )

    @property
    def new_tokens(self) -> Scalar:
        """Return the tokens of a prompt that are not cached."""
        return self.input_tokens * (1.0 - self.cached_fraction)

    @property
    def most_load(self) -> Scalar:
        """Return the highest allowed mean load, as a share of what the machine can answer.

        It is `min(1 / peak, c)`. The peak is the load of the busiest hour over the daily mean. The share c leaves the required
        headroom.
        """
        peak = 1.0 / self.peak_over_mean
        return jnp.where(peak < self.capacity_in_use, peak, self.capacity_in_use)

    @property
    def mean_context(self) -> Scalar:
        """Return the tokens before the generated one, averaged over an answer: `input + output / 2`."""
        return self.input_tokens + 0.5 * self.output_tokens

    @property
    def tokens_per_pass(self) -> Scalar:
        """Return the tokens that a sequence gains per pass: the drafts accepted before the first rejection, plus one from
        the pass itself.

        `(1 - a^(g + 1)) / (1 - a)`, the sum of a geometric series; near a = 1 by its Taylor series in 1 - a.

        **Source:** Leviathan, Kalman, Matias, arXiv 2211.17192, equation 1.
        """
        n, missed = self.drafted_tokens + 1.0, 1.0 - self.acceptance
        near, all_missed = missed < _NEAR_CERTAIN, missed >= 1.0
        some = jnp.where(near | all_missed, 0.5, missed)
        geometric = -jnp.expm1(n * jnp.log1p(-some)) / some
        series = n - 0.5 * n * (n - 1.0) * missed * (1.0 - (n - 2.0) / 3.0 * missed)
        first = 1.0 + self.acceptance  # first order in the acceptance, at an acceptance of 0
        return jnp.where(
            self.drafted_tokens > 0.0, jnp.where(near, series, jnp.where(all_missed, first, geometric)), 1.0
        )
