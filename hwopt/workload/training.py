"""A training run: what is asked of the cluster."""

from __future__ import annotations

import equinox as eqx

from hwopt.types import PerPrecision, Scalar
from hwopt.workload.learning import LossLaw
from hwopt.workload.transformer import Transformer


class TrainingRun(eqx.Module):
    """A model to train, the batch, the tokens and the number formats."""

    model: Transformer
    law: LossLaw
    sequence_length: Scalar
    global_batch_sequences: Scalar
    tokens: Scalar  # of the whole run
    unique_tokens: Scalar  # there are; a longer run sees them again, and learns less each time
    gemm_precision: PerPrecision  # share of the layers' GEMM FLOPs in each format, adds up to 1
    weight_bytes: Scalar  # stored compute copy of a weight
    master_bytes: Scalar  # master copy of a weight, 0 where the compute copy is the master
    moment_bytes: Scalar  # both optimizer moments of a weight
    activation_bytes: Scalar  # stored activation element
    causal_fraction: Scalar  # share of the score matrix computed (0.5: causal kernel, 1: full)
    trainable_fraction: Scalar  # share of weights with gradients (1: all, small: LoRA)
    input_bytes_per_token: Scalar  # read from storage: 4 as token numbers, hundreds as pixels
    routing_imbalance: Scalar  # tokens of the busiest expert rank over the mean, >= 1
