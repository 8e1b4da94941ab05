"""A batch size that grows during a run, in stages."""

import math
from fractions import Fraction

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from hwopt.quantity import switch

LARGEST_BATCH = 10**6
"""Maximum number of sequences of a batch, up to which float32 and float64 both distinguish the quotients of two batches."""


class BatchRamp(eqx.Module):
    """A batch-size ramp: the stages of a run before its last one. The last stage has the run's own batch, and the
    remaining tokens.

    Batches are relative to the last one, and tokens are shares of the run's, so that batch and tokens may be variables.
    """

    batch_fractions: Float[Array, " stage"] = switch("batch of a stage over that of the last, below 1")
    token_shares: Float[Array, " stage"] = switch("tokens of a stage over those of the run; together below 1")


def batch_quotients(ramp: BatchRamp | None) -> list[Fraction]:
    """Return the earlier batches over the last one, as fractions of integers; an empty list without a ramp."""
    if ramp is None:
        return []
    return [Fraction(float(x)).limit_denominator(LARGEST_BATCH) for x in np.ravel(ramp.batch_fractions)]


def whole_micro_batches(ramp: BatchRamp | None) -> int:
    """Return the number of which a replica's micro-batches of the last stage must be a multiple.

    Then all stages have whole micro-batches. `m b_i / b` is whole for all i if m is a multiple of each denominator, in
    lowest terms.
    """
    return math.lcm(*(each.denominator for each in batch_quotients(ramp)))
