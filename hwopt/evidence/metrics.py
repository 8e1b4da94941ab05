"""What was measured, and what a printed FLOP/s or MFU counts, so that it can be compared with a predicted time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Metric(NamedTuple):
    """A measured quantity."""

    unit: str  # as printed
    direct: bool = False  # a time or a rate of tokens: beside it, what else a source prints of the run does not count
    rate: bool = False  # falls as the step takes longer
    flops: bool = False  # depends on which FLOPs are counted
    memory: bool = False


TRAINING = {
    "iter_time_s": Metric("s", direct=True),
    "step_time_s": Metric("s", direct=True),
    "tokens_per_s_per_gpu": Metric("token/s", direct=True, rate=True),
    "tokens_per_s": Metric("token/s", direct=True, rate=True),
    "samples_per_s": Metric("sequence/s", direct=True, rate=True),
    "tflops_per_gpu": Metric("TFLOP/s", rate=True, flops=True),
    "mfu": Metric("fraction", rate=True, flops=True),
    "hfu": Metric("fraction", rate=True, flops=True),
    "peak_memory_per_gpu": Metric("GiB", memory=True),
    "max_memory_reserved": Metric("GiB", memory=True),
    "max_memory_allocated": Metric("GiB", memory=True),
}
"""Metrics of training runs that can be scored."""

SERVING = {
    "total_latency_ms": Metric("ms", direct=True),
    "ttft_ms": Metric("ms", direct=True),
    "tpot_ms": Metric("ms", direct=True),
    "output_tokens_per_s": Metric("token/s", rate=True),
    "output_tokens_per_s_per_gpu": Metric("token/s", rate=True),
}
"""Metrics of services that can be scored."""

METRICS = TRAINING | SERVING


@dataclass(frozen=True)
class Convention:
    """How a source counts FLOPs."""

    attention: float  # share of the score matrix counted: 1 full, 0.5 causal, 0 none (6 N D)
    recomputation: bool  # hardware FLOPs: the repeated forward counts


ATTENTION = {"full": 1.0, "causal": 0.5, "none": 0.0}
"""Share of the score matrix that a source counts."""


@dataclass(frozen=True)
class StepFlops:
    """FLOPs of one step over all chips, by kind; closed form, from the model."""

    products: float  # weights' products, forward and backward, the head included
    attention_full: float  # attention core over the full score matrix, forward and backward
    repeated: float  # forward repeated by recomputation, over the full score matrix

    def counted(self, how: Convention) -> float:
        """FLOPs under a convention."""
        return self.products + how.attention * self.attention_full + how.recomputation * self.repeated
