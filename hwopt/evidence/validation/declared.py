"""What a row's own words say about its software beyond the stack's name: settings that replace the stack's."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from hwopt.evidence.validation.rows import MeasuredRun
from hwopt.stack import Stack

_ALL_TO_ALL_OVERLAP = 0.8
"""Share of other work that can cover an all-to-all where a row says that it is overlapped (estimate, 0.5 to 0.95)."""

_GRAPHED_LAYER_S = 5e-5
"""Host time of a layer inside a CUDA graph of the whole iteration (estimate, 10 to 100 us)."""

_PARTLY_GRAPHED = 0.5
"""Host time of a layer whose attention, router or MLP is a CUDA graph over one launched kernel by kernel (estimate)."""

_ROWWISE_CASTS = 2.5
"""Passes of casts with one scale a row or block over those with one scale a tensor: both orientations are quantised apart
(estimate, 1.5 to 4; torchtitan's own tables print 1.4 to 1.5 times the step)."""

_WORDS = (
    # pattern -> fields replaced
    (r"(without|no) flash", {"attention_scores_stored": 1.0}),
    (r"(?<!without )(?<!no )flash[ -]?attention|\bfa[23]\b|cudnn attention", {"attention_scores_stored": 0.0}),
    # Megatron and DeepSpeed reduce gradients in the weights' format; only bf16 makes them add up in 32 bit.
    (r"\| fp16$", {"gradient_bytes": 2.0}),
    (r"backend xla", {"attention_scores_stored": 1.0}),  # of JAX on GPU: no fused attention kernel, unlike backend TE
    (r"vanilla tp|tp overlap off|without tp overlap|no tp overlap", {"tp_overlap": 0.0}),
    (r"overlaps? of p2p off|no p2p overlap", {"pp_overlap": 0.0}),
    (r"deepep|hybrid-?ep", {"dispatch_deduplicated": 1.0}),
    (r"(?<!no )(?<!without )(a2a|all-to-all)[ _]overlap(?!=(none|false))", {"ep_overlap": _ALL_TO_ALL_OVERLAP}),
    (r"cuda_graph=(?!none)(\w+/)?full_iteration", {"host_layer_s": _GRAPHED_LAYER_S, "host_moe_layer_s": _GRAPHED_LAYER_S}),
)  # fmt: skip

_SCALES = (
    # pattern -> field and factor
    (r"rowwise|row-wise|blockwise|block-wise", "cast_passes", _ROWWISE_CASTS),
    (r"cuda_graph=transformer_engine/|(?<!no )(?<!without )cuda graph", "host_moe_layer_s", _PARTLY_GRAPHED),
    (r"cuda_graph=transformer_engine/|(?<!no )(?<!without )cuda graph", "host_layer_s", _PARTLY_GRAPHED),
)


def _memory(row: MeasuredRun) -> dict[str, float]:
    """Fields that a row's words on memory replace: tensors rebuilt, a compiled loss."""
    said, recompute = row.notes.lower(), row.recompute.lower()
    fields: dict[str, float] = {}
    if "norm" in recompute:
        fields["residual_tensors"] = 2.0
    if re.search(r"_act\b|activation func", recompute):
        fields["product_kept"] = 0.0
    printed = re.search(r"_(20\d\d)[01]\d_", row.source_locator)
    if "compile" in said and "torchtitan" in row.source.lower() and printed and int(printed[1]) >= 2025:
        # A compiled loss leaves the 16-bit output and its gradient of 14 bytes; that it is since 2025 is inferred.
        fields["logit_bytes"] = 4.0
    return fields


def offloaded_activations(row: MeasuredRun) -> float:
    """Share of the kept activations that a row says wait in host memory."""
    if match := re.search(r"offload_layers=(\d{1,4})\b", row.notes.lower()):
        return min(float(match[1]) / (row.layers or 1), 1.0)
    # Only a layer's input stays: a third of what 0.85 of its products recomputed would keep.
    return 2.0 / 3.0 if "qkv_proj_offloaded" in row.recompute.lower() else 0.0


def declared(stack: Stack, row: MeasuredRun) -> Stack:
    """The stack with the settings that the row's notes and format state.

    Attention kernel, overlap of tensor-parallel, pipeline and expert communication, CUDA graphs, scaling of 8-bit formats,
    what stays in memory.
    """
    said = f"{row.notes} | {row.precision}".lower()
    fields = _memory(row)
    for words, replaced in _WORDS:
        if re.search(words, said):
            fields |= replaced
    stack = replace(stack, **{name: np.float64(value) for name, value in fields.items()})
    for words, name, factor in _SCALES:
        if re.search(words, said):
            stack = replace(stack, **{name: np.float64(factor * getattr(stack, name))})
    return stack
