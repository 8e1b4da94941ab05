"""A training run: the work that a cluster has to do."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp

from hwopt.quantity import computed, quantity, switch
from hwopt.types import PerPrecision, Scalar
from hwopt.workload.learning import LossLaw
from hwopt.workload.memory_formats import MemoryFormats
from hwopt.workload.ramp import BatchRamp
from hwopt.workload.transformer import TOKEN


class ExpertRouting(eqx.Module):
    """Uneven routing of tokens to the ranks of an expert-parallel group."""

    imbalance: Scalar = computed(
        "", "tokens of the busiest expert rank over the mean, with experts on two ranks or more"
    )


class TrainingRun(eqx.Module):
    """A model to train, with batch, tokens and number formats."""

    model: Any  # a `Transformer` or `Operators`; functions that differ dispatch on the type
    law: LossLaw
    sequence_length: Scalar = quantity("token", "of a sample")
    global_batch_sequences: Scalar = quantity("sequence", "of a step, of the last stage where the batch grows")
    tokens: Scalar = quantity("token", "of the whole run", key="training_tokens")
    unique_tokens: Scalar = computed("token", "there are; a longer run sees them again, and learns less each time")
    gemm_precision: PerPrecision = switch("share of the layers' GEMM FLOPs in each format, adds up to 1", key="")
    weight_bytes: Scalar = quantity("B", "stored compute copy of a weight", key="weight_bytes", default=2.0)
    master_bytes: Scalar = quantity(
        "B", "master copy of a weight, 0 where the compute copy is the master", key="master_bytes", default=4.0
    )
    moment_bytes: Scalar = quantity("B", "both optimizer moments of a weight", key="moment_bytes", default=8.0)
    activation_bytes: Scalar = quantity("B", "stored activation element", key="activation_bytes", default=2.0)
    causal_fraction: Scalar = computed("", "share of the score matrix computed (0.5: causal kernel, 1: full)")
    trainable_fraction: Scalar = computed("", "share of weights with gradients (1: all, small: LoRA)")
    input_bytes_per_token: Scalar = quantity(
        "B", "read from storage: 4 as token numbers, hundreds as pixels", key="input_bytes"
    )
    checkpoint_interval_s: Scalar = switch("seconds of work between saves; 0: as many as lose least", key="")
    routing_imbalance: Scalar = computed("", "tokens of the busiest expert rank over the mean, >= 1")
    ramp: BatchRamp | None = None  # stages before the last
    routing: ExpertRouting | None = None  # None: even
    formats: MemoryFormats | None = None  # only where a run states them

    def stated(self, name: str) -> Scalar | None:
        """Return a number of `MemoryFormats` by name; None where the run does not state it."""
        return None if self.formats is None else getattr(self.formats, name)

    @property
    def gathered_weight_bytes(self) -> Scalar:
        """Return the bytes of a weight that is gathered from its shards: as stored, but with FSDP2 no wider than activations."""
        if self.stated("layers_gathered") is None:
            return self.weight_bytes
        frozen = self.stated("frozen_bytes")
        stored = self.weight_bytes if frozen is None else frozen
        return jnp.where(stored < self.activation_bytes, stored, self.activation_bytes)

    @property
    def tokens_per_unit(self) -> Scalar:
        """Return the tokens per unit of work: 1, or the length of a sample where work is counted in samples (images,
        clicks).
        """
        whole = self.model.unit_of_work != TOKEN
        return self.sequence_length if whole else jnp.ones_like(self.sequence_length)

    @property
    def step_words(self) -> str:
        """Return the size of a step in words, such as "2,048 sequences of 8,192 tokens" or "1,024 images"."""
        batch = f"{float(self.global_batch_sequences):,.12g}"
        if self.model.unit_of_work != TOKEN:
            return f"{batch} {self.model.unit_of_work}s"
        return f"{batch} sequences of {float(self.sequence_length):,.12g} tokens"
