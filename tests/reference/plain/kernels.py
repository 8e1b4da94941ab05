"""Seconds of kernels on one chip: (compute, memory beyond it, launch, HBM busy)."""

from __future__ import annotations

import math
from typing import NamedTuple

from tests.reference.plain.flops import computed_causal, expert_tokens, keys_met, sequence_shards, tokens_of
from tests.reference.plain.names import BYTES, FORMATS, per_format
from tests.reference.plain.weights import held_experts


def chip_rates(run, cluster) -> tuple[float, float, float]:
    """Seconds a FLOP in the run's formats and where it stays wide, and seconds a byte of HBM."""
    chip = cluster.chip
    peak, efficiency, share = (
        per_format(v) for v in (chip.peak_flops_per_s, chip.matmul_efficiency, run.gemm_precision)
    )
    mixed = wide = 0.0
    for name in FORMATS:
        mixed += share[name] / (peak[name] * efficiency[name] * chip.clock_ratio)
        held = widened(name)
        wide += share[name] / (peak[held] * efficiency[held] * chip.clock_ratio)
    return mixed, wide, 1.0 / (chip.hbm_bandwidth_bytes_per_s * chip.hbm_efficiency)


def widened(name: str) -> str:
    """The format of what stays wide in a run of a format: its own where that has more than 16 bit."""
    return name if BYTES[name] > 2.0 else "bf16"


def wide_rate(run, chip) -> float:
    """Peak of what stays wide, without efficiency."""
    peak, share = per_format(chip.peak_flops_per_s), per_format(run.gemm_precision)
    return float(chip.clock_ratio) / sum(share[name] / peak[widened(name)] for name in FORMATS)


def sixteen_bit_rate(chip) -> float:
    """Peak, without efficiency."""
    return float(chip.peak_flops_per_s[FORMATS.index("bf16")]) * float(chip.clock_ratio)


class Gemm(NamedTuple):
    """Equal products of (rows, inner) and (inner, columns) matrices."""

    rows: float
    columns: float
    inner: float
    launched: float | None = None  # columns of the kernel that it is a part of, where that has more
    count: float = 1.0
    low: bool = True  # in the run's format, else wide
    of_experts: bool = False
    last: bool = False  # the layer's output comes out of it
    weight: float | None = None  # bytes of a stored weight, where it is another than the format's


def layer_gemms(run, plan, moe: bool):
    w, t, tokens = run.model, plan.tp, tokens_of(run, plan)
    query = w.heads * w.qk_dim / t
    query_inner = w.query_rank if w.query_rank > 0 else w.hidden
    latent = w.query_rank + w.kv_rank + w.rope_dim
    if latent > 0:
        yield Gemm(tokens, latent, w.hidden)
    if w.kv_rank > 0:
        expanded = w.heads * (w.qk_dim - w.rope_dim + w.v_dim) / t
        yield Gemm(tokens, query, query_inner)
        yield Gemm(tokens, expanded, w.kv_rank)
    else:
        key_value = max(w.kv_heads / t, 1.0) * (w.qk_dim + w.v_dim)
        yield Gemm(tokens, query, query_inner, launched=query + key_value)
        yield Gemm(tokens, key_value, w.hidden, launched=query + key_value)
    yield Gemm(tokens, w.hidden, w.heads * w.v_dim / t)
    gates = w.mlp_matrices - 1.0
    if not moe:
        yield Gemm(tokens, gates * w.ffn / t, w.hidden)
        yield Gemm(tokens, w.hidden, w.ffn / t, last=True)
        return
    yield Gemm(tokens / t, w.experts, w.hidden, low=False)
    local = held_experts(w, plan) / plan.ep
    rows, inner = expert_tokens(run, plan) / local, w.expert_ffn / plan.expert_tp
    yield Gemm(rows, gates * inner, w.hidden, count=local, of_experts=True)
    yield Gemm(rows, w.hidden, inner, count=local, of_experts=True, last=True)
    if w.shared_experts > 0:
        shared = w.shared_experts * w.expert_ffn / t
        yield Gemm(tokens, gates * shared, w.hidden)
        yield Gemm(tokens, w.hidden, shared, last=True)


def gemm(run, cluster, shape: Gemm) -> tuple[float, float, float, float]:
    stack, (mixed, wide, byte_s) = cluster.stack, chip_rates(run, cluster)
    rows, columns, inner, count = shape.rows, shape.columns, shape.inner, shape.count
    element, flop_s = 2.0, wide
    if shape.low:
        element = sum(share * BYTES[name] for name, share in per_format(run.gemm_precision).items())
        flop_s = mixed
    # Stated for an A100, which does 312 TFLOP/s in 16 bit; grows with the cube root of the rate, 32 bit with its own.
    part, clock = float(run.gemm_precision[FORMATS.index("fp32")]), float(cluster.chip.clock_ratio)
    growth = math.cbrt(sixteen_bit_rate(cluster.chip) / 312e12)
    if part:
        full = float(cluster.chip.peak_flops_per_s[FORMATS.index("fp32")]) * clock
        growth = part * math.cbrt(full / 312e12) + (1.0 - part) * growth
    half = stack.gemm_half_size * growth
    of_rows = half * (stack.expert_row_share if shape.of_experts else stack.gemm_row_share)
    if shape.of_experts and shape.weight is not None:
        # How much of a weight is of 8 bits: all at one byte, none at half a byte or two.
        bytes_ = shape.weight
        eight = (2.0 * bytes_ - 1.0 if bytes_ < 1.0 else max(2.0 - bytes_, 0.0)) if shape.low else 0.0
        of_rows *= eight + (1.0 - eight) * stack.expert_tile_share
    loss = (rows + of_rows) / rows
    for side in (shape.launched or columns, inner):
        loss *= (side + half) / side
    compute = 2.0 * rows * columns * inner * count * flop_s * loss / stack.gemm_efficiency_factor
    if shape.of_experts:
        compute /= stack.expert_gemm_factor
    weight = element if shape.weight is None else shape.weight
    if shape.of_experts and shape.low and element - weight > 0.9:  # 4 or 8 bit are made 16 on the way
        compute /= stack.expert_unpacking
    compulsory = inner * (element * rows + weight * columns) + 2.0 * rows * columns
    blocked = 2.0 * rows * columns * inner * element / math.sqrt(cluster.chip.sram_bytes / (3.0 * element))
    traffic_s = max(compulsory, blocked) * count * byte_s
    memory = max(traffic_s - compute, 0.0)
    if shape.low and element < 2.0:  # casts to the low format are kernels of their own
        elements = rows * inner + stack.weight_cast_share * inner * columns
        cast_s = stack.cast_passes * min(2.0 - element, 1.0) * elements * (2.0 + element) * count * byte_s
        memory += cast_s
        traffic_s += cast_s
    start = stack.kernel_launch_s + stack.gemm_start_s
    if shape.low and element < 1.0:  # all of it at 4 bit
        start += 2.0 * (1.0 - element) * stack.cast_start_s
    return compute, memory, start, traffic_s


def attention_core(run, cluster, plan) -> tuple[tuple, tuple]:
    """One layer's attention core, forward and backward."""
    w, stack, chip = run.model, cluster.stack, cluster.chip
    *_, byte_s = chip_rates(run, cluster)
    tokens, heads = tokens_of(run, plan), w.heads / plan.tp
    width = w.qk_dim + w.v_dim
    work = 2.0 * tokens * keys_met(run, computed_causal(run, stack)) * heads * width
    keys = heads if w.kv_rank > 0 else max(w.kv_heads / plan.tp, 1.0)
    streams = 2.0 * tokens * (heads + keys) * width
    peak = wide_rate(run, chip)
    if w.misaligned_heads == 1 and stack.attention_scores_stored == 1:
        peak /= 5.0
    directions = []
    for again, efficiency, stream_passes, score_bytes, kernels in (
        (1.0, stack.attention_forward_efficiency, 1.0, 13.0, 1.0),
        (None, stack.attention_backward_efficiency, 3.0, 19.0, 2.0),
    ):
        if again is None:
            again = 2.0 if stack.attention_scores_stored == 1 else 2.5
        compute = work * again / (peak * efficiency)
        if stack.attention_scores_stored == 1:
            memory = score_bytes * tokens * run.sequence_length * heads * byte_s
            traffic_s = memory + streams * stream_passes * byte_s
        else:
            traffic_s = streams * stream_passes * byte_s
            memory = max(traffic_s - compute, 0.0)
        directions.append((compute, memory, kernels * stack.kernel_launch_s, traffic_s))
    return directions[0], directions[1]


def passes(run, cluster, plan, moe: bool) -> tuple[float, float, float, float]:
    """Norms, residuals, rotary embedding, activation, permutation of one layer, forward."""
    w, a, tokens = run.model, run.activation_bytes, tokens_of(run, plan)
    size = 10.0 * a * w.hidden * tokens / sequence_shards(plan) + 2.0 * a * tokens * w.heads * w.qk_dim / plan.tp
    if moe:
        copies = expert_tokens(run, plan)
        size += a * w.mlp_matrices * copies * w.expert_ffn / plan.expert_tp
        size += a * w.mlp_matrices * tokens * w.shared_experts * w.expert_ffn / plan.tp
    else:
        size += a * w.mlp_matrices * tokens * w.ffn / plan.tp
    size *= cluster.stack.elementwise_passes
    if moe:  # each copy of a token is read and written on its way to the expert and on the way back
        size += cluster.stack.routing_passes * 4.0 * a * w.hidden * expert_tokens(run, plan)
    traffic_s = size * chip_rates(run, cluster)[2]
    return 0.0, traffic_s, cluster.stack.elementwise_kernels * cluster.stack.kernel_launch_s, traffic_s
