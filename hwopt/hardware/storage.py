"""Storage: where checkpoints go and training data come from."""

from __future__ import annotations

import equinox as eqx

from hwopt.types import Scalar


class Storage(eqx.Module):
    """Rates of storage and of the input pipeline, per chip."""

    checkpoint_bytes_per_s_per_chip: Scalar  # written or read back
    input_bytes_per_s_per_chip: Scalar  # training data read, decoded and handed to a chip
