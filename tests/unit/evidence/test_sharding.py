"""Words of a row to flags of a plan."""

from __future__ import annotations

import pytest

from hwopt.evidence.validation import sharding as words


@pytest.mark.parametrize(
    ("text", "flags", "groups"),
    [
        ("distributed-optimizer(zero1)", (1, 0, 0), 1),
        ("OverlappedDistributedOptimizer", (1, 0, 0), 1),
        ("zero1 over all DP ranks", (1, 0, 0), 1),
        ("zero1 inside groups of 8 GPUs (hybrid)", (1, 0, 0), 8),
        ("zero2/fsdp-grad-op", (1, 1, 0), 1),
        ("zero3/fsdp-full", (1, 1, 1), 1),
        ("fsdp2", (1, 1, 1), 1),
        ("fsdp 16 inside slice x dp 4 over DCN", (1, 1, 1), 4),
        ("hsdp (shard in node, replicate across)", (1, 1, 1), 8),
        ("ddp/zero1", (1, 0, 0), 1),
        ("ddp", (0, 0, 0), 1),
        ("none(dp=1)", (0, 0, 0), 1),
        ("", (1, 1, 1), 1),
    ],
)
def test_zero_stage(text, flags, groups):
    got = words.sharding(text, ranks=64, tp=1, gpus_per_node=8, default_stage=3)
    assert (got.optimizer, got.gradients, got.weights) == flags
    assert got.groups == groups


@pytest.mark.parametrize(
    ("text", "flash", "shares"),
    [
        ("", True, None),
        ("none", True, (0, 0)),
        ("full", True, (1, 0)),
        ("full-on-5-layers", True, (5 * 2 / 32, 0)),
        ("selective(attention core)", False, (0, 1)),
        ("selective", True, (0, 0)),
        ("selective", False, (0, 1)),
        ("selective(every other layer)", True, (0.5, 0)),
        ("selective(op)", True, (0.4, 0)),
        ("selective(minimal: save matmul outputs)", True, (0, 1)),
        ("selective:moe_act+layernorm", True, (0, 0)),
        ("selective:layernorm+moe", True, (0.6, 0)),
    ],
)
def test_recompute(text, flash, shares):
    assert words.recompute(text, layers=32, pp=2, flash=flash) == shares


@pytest.mark.parametrize(
    ("notes", "left"),
    [("schedule 1F1B; derived", 1.0), ("schedule ZB-1p", 1 / 3), ("zbv", 0.0), ("schedule zbb", 1 / 3), ("H100", None)],
)
def test_schedule(notes, left):
    assert words.bubble_fraction(notes) == left


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("bf16", "bf16"),
        ("fp16", "bf16"),
        ("fp8(per-tensor current scaling)", "fp8"),
        ("mxfp8", "fp8"),
        ("nvfp4", "fp4"),
        ("int8", "int8"),
        ("bf16+fp32 optimizer", "bf16"),
    ],
)
def test_number_format(text, name):
    assert words.number_format(text, "") == (name, False)


def test_blank_format_is_assumed():
    assert words.number_format("", "") == ("bf16", True)


@pytest.mark.parametrize(
    ("notes", "gbit"),
    [
        ("4x100 Gb/s RoCE per 8-GPU node; LLaMA", 50.0),
        ("4x200 Gb/s RDMA per node", 100.0),
        ("8x400G IB", 400.0),
        ("GCP A3 (H100, 8x200G TCPX); batch", 200.0),
        ("config, 800 Gb/s inter-node per node, 8 GPU/node", 100.0),
        ("inter-node 1600 Gb/s RoCE per node", 200.0),
        ("500 W, 2.4 TB/s, 400 Gb/s per GPU RoCE; FSDP", 400.0),
        ("CX-7 400 Gb/s per GPU", 400.0),
        ("Selene, 8 HDR IB per node; interleaved", 200.0),
        ("16 A100-40G, 2M-token batch", None),
        ("", None),
    ],
)
def test_scale_out_bandwidth_is_a_property_of_the_node(notes, gbit):
    assert words.links_gbit_per_s(notes, 8) == gbit
