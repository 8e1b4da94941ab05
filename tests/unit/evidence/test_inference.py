"""What is inferred from words: software stack, year, FLOP convention, release."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from hwopt.evidence.validation import stacks
from hwopt.evidence.validation.conventions import CAUSAL, FULL, HARDWARE, StepFlops, convention, predicted_value
from hwopt.evidence.validation.models import is_lora, trainable_fraction
from hwopt.evidence.validation.rows import MeasuredRun
from hwopt.evidence.validation.score import release

BLANK = {
    f.name: "" if f.type == "str" else None for f in fields(MeasuredRun) if f.name not in ("other_metrics", "columns")
}
RUN = MeasuredRun(
    **{**BLANK, "line": 2, "num_gpus": 8, "seq_len": 1000, "global_batch_sequences": 16.0, "measured_value": 2.0}
)


@pytest.mark.parametrize(
    ("source", "notes", "architecture", "stack"),
    [
        ("VIA-Research/vTrain ground-truth (MICRO 2024)", "Megatron-LM GPT", "ampere", "megatron-2021"),
        ("Korthikanti et al. 2022", "", "ampere", "megatron-2021"),
        ("Zero Bubble Pipeline Parallelism (Qi et al. ICLR 2024)", "", "ampere", "zero-bubble"),
        ("NVIDIA/dgxc-benchmarking", "NeMo/Megatron", "blackwell", "nemo-2025"),
        ("NVIDIA NeMo 24.07 performance summary", "", "hopper", "nemo-2024"),
        ("NVIDIA-NeMo/Megatron-Bridge performance summary", "NeMo container 25.09", "hopper", "nemo-2025"),
        ("SimuMax", "", "hopper", "megatron-2025"),
        ("mosaicml/llm-foundry", "", "hopper", "composer-2023"),
        ("pytorch/torchtitan", "FSDP (eager)", "hopper", "torchtitan-eager"),
        ("pytorch/torchtitan", "FSDP", "hopper", "torchtitan-eager"),
        ("pytorch/torchtitan", "FSDP without compile", "hopper", "torchtitan-eager"),
        ("pytorch/torchtitan", "FSDP+compile", "hopper", "torchtitan-2024"),
        ("pytorch/torchtitan", "FSDP, float8", "hopper", "torchtitan-2024"),
        ("AI-Hypercomputer/maxtext performance tables", "", "tpu", "jax-maxtext-tpu"),
        ("NVIDIA/JAX-Toolbox MaxText README", "", "hopper", "jax-gpu"),
        ("NVIDIA/dgxc-benchmarking", "MaxText (JAX); not NeMo", "hopper", "jax-gpu"),
        ("my own", "", "tpu", "jax-maxtext-tpu"),
        ("my own", "", "cdna3", "rocm-primus-2025"),
        ("my own", "Megatron-LM 2023-05", "ampere", "megatron-2023"),
        ("my own", "PyTorch FSDP", "hopper", "torchtitan-2024"),
        ("aws-neuron-sdk trn1", "", "trainium", "neuron"),
    ],
)
def test_stack_from_words(source, notes, architecture, stack):
    assert stacks.stack(replace(RUN, source=source, notes=notes), architecture)[0] == stack


def test_a_framework_column_wins_over_the_source():
    run = replace(RUN, source="NVIDIA NeMo 24.07", framework="torchtitan")
    assert stacks.stack(run, "hopper") == ("torchtitan-eager", False)


def test_an_eight_bit_format_says_that_torchtitan_compiles():
    run = replace(RUN, source="pytorch/torchtitan", notes="FSDP", precision="fp8")
    assert stacks.stack(run, "hopper")[0] == "torchtitan-2024"


def test_a_guess_from_the_chip_is_marked():
    assert stacks.stack(RUN, "hopper") == ("nemo-2024", True)


@pytest.mark.parametrize(
    ("locator", "notes", "version"),
    [
        ("grok1/README.md@35 line 66 (release 24.11.1)", "title 24.09", (24, 11, 1)),
        ("docs/performance-summary.md line 5 (section 25.09)", "", (25, 9)),
        ("", "NeMo container 26.02.01; pretrain", (26, 2, 1)),
        ("pax/README.md (2024-08, 24.04 container)", "", (24, 4)),
        ("performance_summary.md@4c line 14 (2024-08-14)", "", (2024, 8, 14)),
        ("README.md", "", None),
    ],
)
def test_release(locator, notes, version):
    assert release(replace(RUN, source_locator=locator, notes=notes)) == version


@pytest.mark.parametrize(
    ("source", "notes", "how"),
    [
        ("Narayanan et al. SC21 Table 2", "HARDWARE TFLOP/s (recompute counted)", HARDWARE),
        ("AI-Hypercomputer/maxtext", "TFLOP count = framework formula with full (non-causal) attention", FULL),
        ("NVIDIA-NeMo/Megatron-Bridge", "the framework's own (causal-aware) count", CAUSAL),
        ("Megatron-MoE-ModelZoo (NVIDIA)", "", CAUSAL),
        ("NVIDIA NeMo long-sequence performance", "", FULL),
    ],
)
def test_flop_convention(source, notes, how):
    assert convention(replace(RUN, source=source, notes=notes)) == (how, False)


FLOPS = StepFlops(products=600e12, attention_full=60e12, repeated=220e12)


@pytest.mark.parametrize(
    ("metric", "measured", "notes", "predicted"),
    [
        ("iter_time_s", 2.0, "", 2.0),
        ("tokens_per_s_per_gpu", 900.0, "", 16 * 1000 / 2.0 / 8),
        ("tokens_per_s", 9e3, "", 16 * 1000 / 2.0),
        ("tflops_per_gpu", 40.0, "full attention", 660 / 16),
        ("tflops_per_gpu", 40.0, "causal", 630 / 16),
        ("tflops_per_gpu", 40.0, "hardware FLOPs", 880 / 16),
        ("mfu", 40.0, "full attention", 100 * 660 / 16 / 100),
        ("mfu", 0.4, "full attention", 660 / 16 / 100),
        ("hfu", 0.4, "full attention", 880 / 16 / 100),
    ],
)
def test_a_time_becomes_the_measured_quantity(metric, measured, notes, predicted):
    run = replace(RUN, measured_metric=metric, measured_value=measured, notes=notes)
    assert predicted_value(run, 2.0, FLOPS, 100e12, []) == pytest.approx(predicted)


def test_an_mfu_is_divided_by_the_peak_that_the_source_states():
    run = replace(RUN, measured_metric="mfu", measured_value=0.4, notes="full attention", mfu_peak_tflops=50.0)
    assert predicted_value(run, 2.0, FLOPS, 100e12, []) == pytest.approx(660 / 16 / 50)


@pytest.mark.parametrize(
    ("name", "lora"), [("LLAMA3_70B (lora)", True), ("llama3-8b LoRA", True), ("llama3-8b SFT", False)]
)
def test_adapters_alone_train(name, lora):
    run = replace(RUN, model_name=name)
    assert is_lora(run) is lora
    assert (trainable_fraction(run) < 0.01) is lora
