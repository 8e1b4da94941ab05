"""A table of operators by plain loops over what was declared of it: one stage, every replica in step."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import NamedTuple

from hwopt.workload.operator_kinds import (
    Attention,
    Convolution,
    Elementwise,
    Experts,
    Fft,
    Gemm,
    Lookup,
    Product,
    Recurrence,
    Scan,
)
from tests.reference.plain import kernels
from tests.reference.plain.collectives import all_reduce, all_to_all
from tests.reference.plain.names import BYTES, per_format


class Work(NamedTuple):
    """What one operator does for one row of it."""

    rows: float  # a sample
    gemm: kernels.Gemm | None = None  # of the rows of a micro-batch on a chip
    chain: float = 1.0  # kernels one after the other
    core: float = 0.0  # FLOPs in kernels like attention's
    scores: float = 0.0
    vector: float = 0.0
    streamed: float = 0.0
    kept: float = 0.0
    launches: float = 0.0
    weights: float = 0.0
    looked_up: float = 0.0
    sent: float = 0.0
    reduced: bool = False
    flops: float = 0.0  # of products with weights


def works(op, run, plan, span_share: float) -> list[Work]:
    """What an operator is to a chip."""
    t, length = plan.tp, run.sequence_length
    rows = op.rows or length
    m = plan.micro_batch * rows
    split = getattr(op, "split", "whole")
    of = 1.0 / t if split in ("columns", "inner", "channels") else 1.0
    around = 1.0 / t if plan.sequence_parallel == 1 else 1.0
    match op:
        case Gemm():
            n = op.outputs / t if split == "columns" else op.outputs
            k = op.inputs / t if split == "inner" else op.inputs
            share = 1.0 / t if split == "inner" else around if split == "columns" else 1.0
            return [Work(rows, kernels.Gemm(m, n, k, low=op.wide == 0), kept=op.kept * op.inputs * share, weights=n * k,
                         reduced=split == "inner", flops=2.0 * op.inputs * op.outputs)]  # fmt: skip
        case Convolution():
            outputs, window = op.size**op.dims, op.kernel**op.dims
            stored = op.inputs * op.stride**op.dims
            weights = op.inputs * window * op.outputs / op.groups
            if op.groups == op.inputs > 1:
                fresh = min(op.kernel, op.stride) ** op.dims
                return [Work(outputs, vector=2.0 * window * op.outputs, streamed=op.inputs * fresh + op.outputs, kept=stored,
                             launches=1.0, weights=weights)]  # fmt: skip
            shape = kernels.Gemm(
                plan.micro_batch * outputs, op.outputs / op.groups, op.inputs * window / op.groups, count=op.groups
            )
            return [Work(outputs, shape, kept=stored, weights=weights, flops=2.0 * weights)]
        case Elementwise():
            share = around if split == "residual" else of
            return [Work(rows, streamed=(op.reads + op.writes) * op.channels * share, kept=op.kept * op.channels * share,
                         launches=op.kernels, weights=op.weights * op.channels * of)]  # fmt: skip
        case Attention():
            q, k = op.heads * op.width, (op.kv_heads or op.heads) * op.width
            met = length * (span_share if op.causal else 1.0)
            return [Work(rows, core=2.0 * met * q * of, scores=op.heads * of, streamed=2.0 * (q + k) * of, kept=(q + 2.0 * k) * of,
                         launches=1.0)]  # fmt: skip
        case Scan():
            inputs = op.channels + 2.0 * op.groups * op.state + (op.heads or op.channels)
            if not op.heads:
                return [Work(rows, vector=9.0 * op.channels * op.state * of, streamed=(inputs + op.channels) * of,
                             kept=inputs * of, launches=1.0)]  # fmt: skip
            flops = 2.0 * op.chunk * op.groups * op.state + 2.0 * op.chunk * op.channels + 4.0 * op.channels * op.state
            states = 8.0 * op.channels * op.state / op.chunk
            return [
                Work(
                    rows,
                    core=flops * of,
                    streamed=2.5 * (inputs + op.channels + states) * of,
                    kept=inputs * of,
                    launches=5.0,
                )
            ]
        case Recurrence():
            n, h = op.gates * op.hidden, op.hidden
            return [
                Work(rows, kernels.Gemm(m, n, op.inputs), kept=op.inputs, weights=n * op.inputs, flops=2.0 * n * op.inputs),
                Work(rows, kernels.Gemm(plan.micro_batch, n, h), chain=length, streamed=2.0 * n + 3.0 * h, kept=n + 2.0 * h,
                     launches=1.0, weights=n * h, flops=2.0 * n * h),
            ]  # fmt: skip
        case Lookup():
            if not op.spread:
                return [
                    Work(
                        rows, streamed=2.0 * op.width * op.pooled * of, launches=1.0, weights=op.entries * op.width * of
                    )
                ]
            return [Work(rows, kept=op.width, launches=1.0, looked_up=op.pooled * op.width, sent=op.width)]
        case Experts():
            each = kernels.Gemm(m * op.chosen / op.experts, op.outputs, op.inputs, count=op.experts)
            return [Work(rows, each, kept=op.chosen * op.inputs, weights=op.experts * op.inputs * op.outputs,
                         flops=2.0 * op.chosen * op.inputs * op.outputs)]  # fmt: skip
        case Fft():
            size = op.points * op.channels
            return [Work(op.rows or 1.0, vector=5.0 * size * math.log2(op.points), streamed=8.0 * size, launches=1.0)]
        case Product():
            return [Work(rows, core=op.flops, streamed=op.reads + op.writes, kept=op.reads, launches=1.0)]
    raise TypeError(op)


def stage(operators, hidden, run, cluster, plan) -> dict[str, float]:
    """Seconds of a micro-batch forward and backward without a pipeline or sharded weights, bytes kept, weights, FLOPs a sample."""
    stack, chip = cluster.stack, cluster.chip
    stored = stack.attention_scores_stored
    share = run.causal_fraction + stored * (1.0 - run.causal_fraction)
    byte_s, peak = kernels.chip_rates(run, cluster)[2], kernels.wide_rate(run, chip)
    fp32 = per_format(chip.peak_flops_per_s)["fp32"] * per_format(chip.matmul_efficiency)["fp32"] * chip.clock_ratio
    out: dict[str, float] = defaultdict(float)
    groups = {name: [0.0, 0.0, 0.0] for name in ("gemm", "again", "core", "back", "attends", "passes")}

    def add(name, compute, memory, launch, times):
        for i, part in enumerate((compute, memory, launch)):
            groups[name][i] += part * times

    kernels_forward = reductions = looked = sent = 0.0
    for op in operators:
        for each in works(op, run, plan, share):
            n = op.count * plan.micro_batch * each.rows
            out["weights"] += op.count * each.weights
            out["kept"] += n * each.kept * run.activation_bytes
            rows_of = each.rows * op.count
            out["flops"] += rows_of * ((2.0 + run.trainable_fraction) * each.flops + 3.0 * each.core)
            kernels_forward += op.count * (each.launches + (each.gemm is not None))
            if each.gemm is not None:
                shape = each.gemm
                time = (
                    conv_gemm(run, cluster, shape, op)
                    if isinstance(op, Convolution)
                    else kernels.gemm(run, cluster, shape)
                )
                add("gemm", *time[:3], op.count * each.chain)
                if shape.low:
                    add("again", *time[:3], op.count * each.chain)
            reductions += op.count * each.reduced
            looked += n * run.routing_imbalance * each.looked_up * 4.0
            sent += n * run.routing_imbalance * each.sent * run.activation_bytes
            traffic = n * each.streamed * run.activation_bytes
            if each.core:
                scores = stored * n * each.scores * run.sequence_length * byte_s
                for name, times, efficiency, moved, written, starts in (
                    ("core", 1.0, stack.attention_forward_efficiency, 1.0, 13.0, 1.0),
                    ("back", 2.5 - 0.5 * stored, stack.attention_backward_efficiency, 3.0, 19.0, 2.0),
                ):
                    compute = n * each.core * times / (peak * efficiency)
                    memory = max(traffic * moved * byte_s - compute, 0.0) + scores * written
                    launch = starts * each.launches * op.count * stack.kernel_launch_s
                    add(name, compute, memory, launch, 1.0)
                    if name == "core" and isinstance(op, Attention):
                        add("attends", compute, memory, launch, 1.0)
                if isinstance(op, Attention):
                    each_score = stored * run.sequence_length * (2.0 + 3.0 * stack.dropout_masks) + (1.0 - stored) * 4.0
                    out["core_kept"] += n * each.scores * each_score
            else:
                compute = n * each.vector / fp32
                memory = max(traffic * stack.elementwise_passes * byte_s - compute, 0.0)
                add("passes", compute, memory, each.launches * op.count * each.chain * stack.kernel_launch_s, 1.0)
    host = stack.host_layer_s * kernels_forward / (7.0 + stack.elementwise_kernels)
    host += 2.0 * reductions * stack.host_collective_s * (plan.tp > 1)
    block = plan.micro_batch * run.sequence_length * hidden * run.activation_bytes
    reduce_s = reductions * all_reduce(cluster, block, plan.tp, 1.0) if plan.tp > 1 else 0.0
    exchange_s = all_to_all(cluster, sent, plan.ep, plan.expert_tp) if plan.ep > 1 else 0.0

    def direction(gemm, core, others, tables_s, exchange, times=1.0):
        gemms, scans, passing = ([part * scale for part in groups[name]] for name, scale in (gemm, core, others))
        passing[1] += tables_s
        work = sum(gemms)
        tp = max(work + stack.communication_slowdown * reduce_s, (1.0 - stack.tp_overlap) * work + reduce_s) - work
        inner = work + sum(scans) + sum(passing) + tp
        ep = max(inner + stack.communication_slowdown * exchange, (1.0 - stack.ep_overlap) * inner + exchange) - inner
        device = inner + ep
        waits = max(host - device, 0.0)
        for name, value in (
            ("compute_s", gemms[0] + scans[0] + passing[0]),
            ("memory_bound_s", gemms[1] + scans[1] + passing[1]),
            ("host_s", gemms[2] + scans[2] + passing[2] + waits),
            ("tp_comm_s", tp),
            ("ep_comm_s", ep),
        ):
            out[name] += times * value

    trained = run.trainable_fraction
    direction(("gemm", 1.0), ("core", 1.0), ("passes", 1.0), (looked + 2.0 * sent) * byte_s, exchange_s)
    updates = (4.0 * trained * looked + 2.0 * sent) * byte_s
    direction(("gemm", 1.0 + trained), ("back", 1.0), ("passes", 2.0), updates, exchange_s)
    direction(("again", 1.0), ("core", 1.0), ("passes", 1.0), 0.0, 0.0, plan.recompute_full)
    for name, part in zip(("compute_s", "memory_bound_s", "host_s"), groups["attends"], strict=True):
        out[name] += (1.0 - plan.recompute_full) * plan.recompute_attention * part
    whole = out["kept"] + (1.0 - plan.recompute_attention) * out["core_kept"]
    inputs = plan.micro_batch * run.sequence_length * run.model.kept_inputs * run.activation_bytes
    out["activations"] = plan.recompute_full * inputs + (1.0 - plan.recompute_full) * whole
    return out


def conv_gemm(run, cluster, shape: kernels.Gemm, op: Convolution) -> tuple[float, float, float]:
    """A convolution as a product whose rows share most of their inputs: its compulsory traffic counts each input once."""
    compute, _, start, _ = kernels.gemm(run, cluster, shape)
    element = sum(share * BYTES[name] for name, share in per_format(run.gemm_precision).items())
    read = op.inputs / op.groups * min(op.kernel, op.stride) ** op.dims
    compulsory = element * (shape.rows * read + shape.inner * shape.columns) + 2.0 * shape.rows * shape.columns
    blocked = (
        2.0 * shape.rows * shape.columns * shape.inner * element / math.sqrt(cluster.chip.sram_bytes / (3.0 * element))
    )
    traffic_s = max(compulsory, blocked) * shape.count * kernels.chip_rates(run, cluster)[2]
    return compute, max(traffic_s - compute, 0.0), start
