"""What can be measured of a run or a service, with the unit that it is printed in."""

from __future__ import annotations

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


ATTENTION = {"full": 1.0, "causal": 0.5, "none": 0.0}
"""Share of the score matrix that a source counts."""
