"""Settings that a row's own words declare replace the stack's, and no others."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from hwopt import catalog
from hwopt.evidence.validation.declared import declared, offloaded_activations
from hwopt.evidence.validation.rows import MeasuredRun

BLANK = {
    f.name: "" if f.type == "str" else None for f in fields(MeasuredRun) if f.name not in ("other_metrics", "columns")
}
ROW = MeasuredRun(**{**BLANK, "line": 2})
STACK = catalog.stack("nemo-2025")


def changes(row: MeasuredRun, stack=STACK) -> dict[str, float]:
    """Fields of the stack that the row's words change, and their new values."""
    after = declared(stack, row)
    values = {f.name: (float(getattr(stack, f.name)), float(getattr(after, f.name))) for f in fields(stack)}
    return {name: new for name, (old, new) in values.items() if new != old}


def test_a_row_without_words_changes_nothing():
    assert changes(ROW) == {}
    assert changes(replace(ROW, notes="NeMo container 26.02.01; pretrain", precision="fp8", recompute="full")) == {}


@pytest.mark.parametrize(
    ("notes", "stored"),
    [
        ("Flash Attention", 0),
        ("flash-attention", 0),
        ("FlashAttention 2", 0),
        ("FA3", 0),
        ("cuDNN attention", 0),
        ("without flash attention", 1),
        ("no flash attention", 1),
        ("no Flash", 1),
        ("JAX/Paxml, backend XLA", 1),
    ],
)
def test_attention_kernel(notes, stored):
    before = replace(STACK, attention_scores_stored=np.float64(1 - stored))
    assert changes(replace(ROW, notes=notes), before) == {"attention_scores_stored": stored}


def test_backend_te_keeps_the_stacks_kernel():
    assert changes(replace(ROW, notes="JAX/Paxml, backend TE")) == {}


@pytest.mark.parametrize("notes", ["vanilla TP", "TP overlap off", "without TP overlap", "no tp overlap"])
def test_tensor_parallelism_in_line(notes):
    before = replace(STACK, tp_overlap=np.float64(0.7))
    assert changes(replace(ROW, notes=notes), before) == {"tp_overlap": 0}


@pytest.mark.parametrize("notes", ["overlaps of P2P off", "overlap of p2p off", "no P2P overlap"])
def test_pipeline_in_line(notes):
    before = replace(STACK, pp_overlap=np.float64(0.7))
    assert changes(replace(ROW, notes=notes), before) == {"pp_overlap": 0}


@pytest.mark.parametrize("notes", ["DeepEP", "dispatcher=hybridep", "Hybrid-EP dispatcher"])
def test_dispatchers_that_send_one_copy_a_domain(notes):
    assert changes(replace(ROW, notes=notes)) == {"dispatch_deduplicated": 1}


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        ("a2a_overlap=True", True),
        ("A2A overlap", True),
        ("1F1B all-to-all overlap", True),
        ("a2a_overlap=none", False),
        ("a2a_overlap=False", False),
    ],
)
def test_all_to_all_beside_other_work(notes, said):
    assert changes(replace(ROW, notes=notes)) == ({"ep_overlap": 0.8} if said else {})


@pytest.mark.parametrize("notes", ["cuda_graph=local/full_iteration", "cuda_graph=full_iteration/[]"])
def test_a_graph_of_the_whole_iteration_costs_the_host_next_to_nothing(notes):
    assert changes(replace(ROW, notes=notes)) == {"host_layer_s": 5e-5, "host_moe_layer_s": 5e-5}


@pytest.mark.parametrize("notes", ["cuda_graph=transformer_engine/mlp", "CUDA graph attn/router"])
def test_graphs_of_parts_halve_host_time(notes):
    expected = {"host_layer_s": STACK.host_layer_s / 2, "host_moe_layer_s": STACK.host_moe_layer_s / 2}
    assert changes(replace(ROW, notes=notes)) == pytest.approx(expected)


def test_no_graph_is_no_graph():
    assert changes(replace(ROW, notes="cuda_graph=none/none")) == {}


@pytest.mark.parametrize(
    "words", [{"precision": "fp8 rowwise"}, {"precision": "FP8(blockwise)"}, {"notes": "row-wise scales"}]
)
def test_scales_of_a_row_or_block_cost_more_casts(words):
    assert changes(replace(ROW, **words)) == pytest.approx({"cast_passes": 2.5 * STACK.cast_passes})


@pytest.mark.parametrize(
    ("words", "share"),
    [
        ({"notes": "offload_layers=10", "layers": 40}, 0.25),
        ({"notes": "offload_layers=50", "layers": 40}, 1.0),
        ({"notes": "offload_layers=none", "layers": 40}, 0.0),
        ({"recompute": "minimal, qkv_proj_offloaded"}, 2 / 3),
        ({}, 0.0),
    ],
)
def test_what_waits_in_host_memory(words, share):
    assert offloaded_activations(replace(ROW, **words)) == share


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"recompute": "selective:layernorm+moe"}, {"residual_tensors": 2}),
        ({"recompute": "selective:moe_act"}, {"product_kept": 0}),
        ({"recompute": "activation function"}, {"product_kept": 0}),
        ({"recompute": "activation"}, {}),
        ({"recompute": "selective:moe_act+layernorm"}, {"residual_tensors": 2, "product_kept": 0}),
    ],
)
def test_what_stays_in_memory(words, expected):
    before = replace(STACK, residual_tensors=np.float64(4), product_kept=np.float64(1), logit_bytes=np.float64(14))
    assert changes(replace(ROW, **words), before) == expected


@pytest.mark.parametrize(
    ("source", "locator", "notes", "compiled"),
    [
        ("pytorch/torchtitan", "docs/llama3_h100_202512_torchtitan.md", "compile", True),
        ("pytorch/torchtitan", "docs/llama3_h100_202412_torchtitan.md", "compile", False),
        ("pytorch/torchtitan", "docs/llama3_h100_202512_torchtitan.md", "eager", False),
        ("another", "docs/llama3_h100_202512_torchtitan.md", "compile", False),
    ],
)
def test_a_compiled_loss_keeps_fewer_bytes_a_logit(source, locator, notes, compiled):
    before = replace(STACK, logit_bytes=np.float64(14))
    row = replace(ROW, source=source, source_locator=locator, notes=notes)
    assert changes(row, before) == ({"logit_bytes": 4} if compiled else {})


def test_several_words_of_one_row_all_count():
    notes = "DeepEP, a2a overlap, CUDA graph, no flash attention, TP overlap off"
    before = replace(STACK, attention_scores_stored=np.float64(0), tp_overlap=np.float64(0.5))
    names = {"dispatch_deduplicated", "ep_overlap", "host_layer_s", "host_moe_layer_s", "attention_scores_stored"}
    assert changes(replace(ROW, notes=notes), before).keys() == names | {"tp_overlap"}


def test_gradients_of_fp16_runs_are_reduced_in_16_bit():
    before = replace(STACK, gradient_bytes=np.float64(4.0))
    assert changes(replace(ROW, precision="fp16"), before) == {"gradient_bytes": 2.0}
    assert changes(replace(ROW, precision="bf16"), before) == {}
