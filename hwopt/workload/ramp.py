"""A batch that grows while a run lasts, in stages."""

import math
from fractions import Fraction

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from hwopt.quantity import switch

LARGEST_BATCH = 10**6
"""Sequences of a batch: up to it, quotients of two batches are told from each other in float32 and float64 alike."""


class BatchRamp(eqx.Module):
    """The stages of a run before its last one, by which they are told: the last has the run's own batch, and the tokens left.

    Batches are stated over the last one, tokens as shares of the run's, so that batch and tokens may be variables.
    """

    batch_fractions: Float[Array, " stage"] = switch("batch of a stage over that of the last, below 1")
    token_shares: Float[Array, " stage"] = switch("tokens of a stage over those of the run; together below 1")


def batch_quotients(ramp: BatchRamp | None) -> list[Fraction]:
    """Batches before the last over it, as fractions of integers; none without a ramp."""
    if ramp is None:
        return []
    return [Fraction(float(x)).limit_denominator(LARGEST_BATCH) for x in np.ravel(ramp.batch_fractions)]


def whole_micro_batches(ramp: BatchRamp | None) -> int:
    """What a replica's micro-batches of the last stage are a multiple of, so that those of all stages are whole.

    `m b_i / b` is whole for all i: m is a multiple of each denominator, in lowest terms.
    """
    return math.lcm(*(each.denominator for each in batch_quotients(ramp)))
