"""What a printed FLOP/s or MFU counts, per source, so that it can be compared with a predicted time."""

# Rows that come this far have their blanks filled or were skipped; the checker cannot see that.
# pyright: reportOptionalOperand=false, reportOperatorIssue=false, reportArgumentType=false, reportReturnType=false

from __future__ import annotations

import re
from dataclasses import dataclass

from hwopt.evidence.validation.reasons import Reason, Skip
from hwopt.evidence.validation.rows import MeasuredRun
from hwopt.evidence.validation.stacks import year


@dataclass(frozen=True)
class Convention:
    """How a source counts FLOPs."""

    attention: float  # share of the score matrix counted: 1 full, 0.5 causal, 0 none (6 N D)
    recomputation: bool  # hardware FLOPs: the repeated forward counts


FULL = Convention(1.0, False)
CAUSAL = Convention(0.5, False)
HARDWARE = Convention(1.0, True)
NO_ATTENTION = Convention(0.0, False)

_BY_SOURCE = (
    # found by recomputing the printed values, or stated by the source
    (r"narayanan|megatron-lm readme|vtrain|sc21", HARDWARE),
    (r"internevo|internlm", HARDWARE),
    (r"korthikanti|megatron-core r0\.|nemo 24|nemo long-sequence|llm-foundry|tinyllama|megatron-lm|dash et al", FULL),
    (r"megatron-bridge|modelzoo|grok|llama4|megatron-core moe", CAUSAL),
    (r"palm table 3", FULL),
)

_BY_WORDS = (
    (r"hardware (tera)?flop|incl\.? recompute|includes the recompute|\bhfu\b|recompute(d)? counted", HARDWARE),
    (r"non-causal|full (\(non-causal\) )?attention", FULL),
    (r"causal", CAUSAL),
    (r"\b6 ?n ?d\b|\b6 ?n\b|\b6p\b|without attention|excluding attention", NO_ATTENTION),
)


def convention(run: MeasuredRun) -> tuple[Convention, bool]:
    """(how the row's FLOPs are counted, whether that is assumed).

    Order: the notes' own words; the table of sources; MaxText changed from full to causal in July 2025; NVIDIA's stacks
    count full attention until 2024 and causal attention since; full attention otherwise.
    """
    notes, source = run.notes.lower(), run.source.lower()
    for words, counted in _BY_WORDS:
        if re.search(words, notes):
            return counted, False
    for words, counted in _BY_SOURCE:
        if re.search(words, source):
            return counted, False
    return (CAUSAL if (year(run) or 2024) >= 2025 else FULL), True


METRICS = {
    "iter_time_s": "s",
    "step_time_s": "s",
    "tokens_per_s_per_gpu": "token/s",
    "tokens_per_s": "token/s",
    "samples_per_s": "sequence/s",
    "tflops_per_gpu": "TFLOP/s",
    "mfu": "fraction",
    "hfu": "fraction",
    "peak_memory_per_gpu": "GiB",
    "max_memory_reserved": "GiB",
    "max_memory_allocated": "GiB",
}
"""Metrics that can be scored, with the unit they are printed in."""

_TIME_LIKE = (
    "iter_time_s", "step_time_s", "tokens_per_s_per_gpu", "tokens_per_s", "samples_per_s",
    "total_latency_ms", "ttft_ms", "tpot_ms",
)  # fmt: skip


def is_memory(metric: str) -> bool:
    """Whether a metric is a chip's peak memory."""
    return "memory" in metric


def is_direct(metric: str) -> bool:
    """Whether a metric is a time or a rate of tokens, which no convention touches."""
    return metric in _TIME_LIKE


@dataclass(frozen=True)
class StepFlops:
    """FLOPs of one step over all chips, by kind; closed form, from the model."""

    products: float  # weights' products, forward and backward, the head included
    attention_full: float  # attention core over the full score matrix, forward and backward
    repeated: float  # forward repeated by recomputation, over the full score matrix

    def counted(self, how: Convention) -> float:
        """FLOPs under a convention."""
        return self.products + how.attention * self.attention_full + how.recomputation * self.repeated


def predicted_value(
    run: MeasuredRun, step_s: float, flops: StepFlops, peak_flops_per_s: float, assumed: list[str]
) -> float:
    """The predicted step time as the quantity that the row measures.

    **Arguments:** `step_s` predicted; `flops` of the step; `peak_flops_per_s` of the chip in 16 bit, used for MFU rows
    without the peak that the source divides by.

    **Raises:** `Skip` for a metric that is not in `METRICS`.
    """
    metric, tokens = run.measured_metric, run.global_batch_sequences * run.seq_len
    match metric:
        case "iter_time_s" | "step_time_s":
            return step_s
        case "tokens_per_s_per_gpu":
            return tokens / step_s / run.num_gpus
        case "tokens_per_s":
            return tokens / step_s
        case "samples_per_s":
            return run.global_batch_sequences / step_s
    if metric not in METRICS:
        raise Skip(Reason.UNSUPPORTED_METRIC, metric)
    how, guessed = convention(run)
    if guessed:
        assumed.append("flop_convention")
    if metric == "hfu":
        how = Convention(how.attention, True)
    rate = flops.counted(how) / step_s / run.num_gpus
    if metric == "tflops_per_gpu":
        return rate / 1e12
    peak = run.mfu_peak_tflops * 1e12 if run.mfu_peak_tflops else peak_flops_per_s
    fraction = rate / peak
    return 100.0 * fraction if run.measured_value > 1.5 else fraction
