"""Claims of structure about memory, kernels, precision and input."""

from __future__ import annotations

import jax
import numpy as np

from hwopt import catalog
from hwopt.model.chip.roofline import kernel_time
from hwopt.model.numerics.maximum import hard_maximum
from results.claims.claim import HOLDS_WITHIN, ROUGHLY_WITHIN, Finding, at_least, claim, either
from results.claims.machines import estimate, shares, si
from results.claims.structure_machines import CHIPS, HBM, best_of, changed, gpt3, h100, worth

DDR5_BYTES_PER_S = 307.2e9  # eight channels of DDR5-4800, what a server socket has
PATCH_BYTES = 768.0  # a token of 16 x 16 pixels of three bytes


def _balance_tokens() -> float:
    """Tokens a pass at which an H100 reads 16-bit weights as fast as it multiplies by them, 2 FLOP a weight."""
    rate = si("chips", "h100-sxm", "peak.bf16") * si("chips", "h100-sxm", "matmul_efficiency.bf16")
    stream = si("chips", "h100-sxm", "memory_bandwidth") * si("chips", "h100-sxm", "memory_efficiency")
    return rate / stream


@claim("B4", "000:15", "memory limits how much data is processed at once")
def data_at_once() -> Finding:
    found, run = best_of(), gpt3()
    plan, replica = found.plan, 1536 / float(found.plan.dp)
    size = float(plan.micro_batch)
    more = estimate(run, h100(), changed(plan, lambda p: p.micro_batch, 2.0))
    now, then = (float(each.memory_per_chip_bytes) / 1e9 for each in (found.report, more))
    each = (then - now) / size
    room = (float(found.report.memory_capacity_bytes) / 1e9 - now) / each
    most = int(size + room)
    faster = float(found.report.step_time_s / more.step_time_s) - 1.0
    return Finding(
        f"{each:.1f} GB a sequence; {most} of a replica's {replica:.0f} sequences fit at once",
        either(most < replica),
        f"GPT-3's best plan on {CHIPS:,} H100 holds {now:.0f} GB a chip with micro-batches of {size:.0f}, "
        f"{then:.0f} GB with {2 * size:.0f}; micro-batches get round it: room for twice as much at once would "
        f"change the step by {100 * faster:+.1f} %",
    )


@claim("B11", "001:38", "reading the weights often saturates memory bandwidth")
def weights_saturate() -> Finding:
    plan, run = best_of().plan, gpt3()
    tokens, balance = float(plan.micro_batch) * float(run.sequence_length), _balance_tokens()
    return Finding(
        f"{tokens:,.0f} tokens a pass, {balance:.0f} where reading and multiplying take the same",
        either(tokens < balance),
        f"an H100 reads a weight in the time it multiplies it by {balance:.0f} tokens; a micro-batch of GPT-3 has "
        f"{tokens / balance:.0f} times as many, so weights take {100 * balance / tokens:.0f} % of the bandwidth in "
        f"training; decoding for fewer than {balance:.0f} users does saturate it",
    )


@claim("B18", "001:90", "attention, convolutional and recurrent nets differ in what they ask of a machine")
def kinds_of_nets() -> Finding:
    cluster = h100()
    rate = si("chips", "h100-sxm", "peak.bf16") * si("chips", "h100-sxm", "matmul_efficiency.bf16")

    def attainable(rows: float, columns: float, inner: float, reads: float) -> float:
        moved = 2.0 * (rows * reads + inner * columns + rows * columns)
        with jax.enable_x64(True):
            time = kernel_time(
                np.float64(2.0 * rows * columns * inner),
                rate,
                np.float64(moved),
                cluster.chip,
                0.0,
                cluster.stack,
                hard_maximum,
            )
            return 100.0 * float(time.compute_s / time.total_s)

    pixels = 256.0 * 56.0 * 56.0  # 256 images in the first stage of ResNet-50
    dense = attainable(4096.0, 12288.0, 12288.0, 12288.0)
    convolution, pointwise = attainable(pixels, 64.0, 576.0, 64.0), attainable(pixels, 256.0, 64.0, 64.0)
    recurrent = attainable(64.0, 4096.0, 2048.0, 2048.0)  # one step of an LSTM of 1,024, 64 sequences

    def waits(workload: str) -> float:
        run = catalog.training_run(workload, global_batch=256)
        alone = catalog.cluster("h100-sxm", 1, stack=catalog.default_stack("h100-sxm", workload))
        return 100.0 * shares(estimate(run, alone, catalog.plan(run, 1, micro_batch=256)))["memory_bound"]

    whole = [waits(name) for name in ("resnet-50", "gnmt-4")]
    return Finding(
        f"{dense:.0f} % of attainable arithmetic in a transformer's layer, {pointwise:.0f} % in a 1x1 convolution, "
        f"{recurrent:.0f} % in a recurrent step",
        either(dense > ROUGHLY_WITHIN * max(pointwise, recurrent)),
        f"rooflines on an H100: GPT-3's products {dense:.0f} %, ResNet-50's 3x3 convolutions of 64 channels "
        f"{convolution:.0f} % and 1x1 {pointwise:.0f} %, a recurrent step, which cannot batch over time, "
        f"{recurrent:.0f} %; of a whole step {whole[0]:.0f} % wait for memory in ResNet-50 and {whole[1]:.0f} % in GNMT, a "
        f"recurrent translator, {100 * shares(best_of().report)['memory_bound']:.0f} % in GPT-3",
    )


@claim("B19", "001:92", "mixtures of experts break what holds for dense models")
def experts() -> Finding:
    run = catalog.training_run("deepseek-v3", precision="fp8")
    # The best of all plans of this machine, whose search takes a minute.
    plan = catalog.plan(run, 2048, tp=2, pp=16, ep=8, expert_tp=1)
    report = estimate(run, catalog.cluster("h800", 2048), plan)
    total, active = float(report.parameters), float(report.active_parameters)
    ratio, exchange = total / active, shares(report)["ep_comm"]
    return Finding(
        f"{ratio:.1f} times the weights that multiply a token are held; {100 * exchange:.0f} % of a step is "
        "exchange of tokens",
        either(ratio > ROUGHLY_WITHIN and exchange > 0.05),
        f"DeepSeek-V3 holds {total / 1e9:.0f} B parameters and computes with {active / 1e9:.0f} B; on 2,048 H800 "
        "with common software its best plan keeps each expert's traffic inside a server and still gives "
        f"{100 * exchange:.0f} % of a step to all-to-alls and {100 * shares(report)['memory_bound']:.0f} % to "
        "memory; a dense model has a ratio of 1 and none of this exchange",
    )


@claim("B20", "002:6", "FLOPs are part of the story; training is often memory-bound")
def memory_bound() -> Finding:
    report, small = best_of().report, catalog.training_run("gpt2-small", global_batch=512)
    unfused = catalog.cluster("a100-80", 8, stack="megatron-2021")
    worst = shares(estimate(small, unfused, catalog.plan(small, 8, micro_batch=8)))["memory_bound"]
    share, elastic = shares(report)["memory_bound"], -worth(HBM, gpt3(), h100(), best_of().plan)
    parts = (float(report.mfu) < 1.0 / HOLDS_WITHIN, share > 0.5)
    return Finding(
        f"{100 * share:.1f} % of GPT-3's step waits for memory; 1 % more bandwidth is worth {elastic:.3f} %",
        at_least(sum(parts), len(parts)),
        f"the first half is right: {100 * float(report.mfu):.0f} % of the peak is used; the second is not: at the "
        f"best plan on {CHIPS:,} H100 {100 * shares(report)['compute']:.0f} % of a step is arithmetic; even a GPT-2 "
        f"of 124 M on A100 without fused attention waits {100 * worst:.0f} % for memory",
    )


@claim("B21", "002:7", "HBM near the die reduces starvation")
def near_memory() -> Finding:
    run, cluster, plan = gpt3(), h100(), best_of().plan
    slow = DDR5_BYTES_PER_S / float(cluster.chip.hbm_bandwidth_bytes_per_s)
    found = estimate(run, changed(cluster, HBM, slow), plan)
    ratio = float(found.step_time_s / best_of().report.step_time_s)
    waits = shares(best_of().report)["memory_bound"], shares(found)["memory_bound"]
    return Finding(
        f"{ratio:.2f} times the step with DDR5 in place of HBM",
        at_least(ratio, HOLDS_WITHIN),
        f"eight channels of DDR5 bring {DDR5_BYTES_PER_S / 1e9:.0f} GB/s where five stacks of HBM3 bring "
        f"{float(cluster.chip.hbm_bandwidth_bytes_per_s) / 1e9:,.0f}: GPT-3 then waits {100 * waits[1]:.0f} % of a "
        f"step for memory instead of {100 * waits[0]:.0f} %; decoding, which reads all weights a token, takes up to "
        f"{1 / slow:.0f} times as long",
    )


@claim("B27", "002:21", "data loading and storage can stall GPUs")
def input_stalls() -> Finding:
    def stalled(workload: str, bytes_a_token: float, storage: str) -> float:
        run = catalog.training_run(workload, global_batch=512, input_bytes_per_token=bytes_a_token)
        report = estimate(run, h100(8, storage=storage), catalog.plan(run, 8, micro_batch=8))
        return shares(report)["input"]

    pixels = stalled("gpt2-small", PATCH_BYTES, "object-store")
    flash = stalled("gpt2-small", PATCH_BYTES, "shared-flash")
    text = stalled("gpt2-small", 4.0, "object-store")
    rate = si("storages", "object-store", "input_bandwidth")
    large = float(best_of().report.tokens_per_s_per_chip) * 4.0
    return Finding(
        f"{100 * pixels:.0f} % of a step for a small model of pixels from object storage, {100 * flash:.0f} % from flash, "
        f"{100 * text:.0f} % for one of text",
        either(pixels > 0.05),
        f"a transformer of 124 M parameters fed with patches of {PATCH_BYTES:.0f} B from object storage at "
        f"{rate / 1e6:.0f} MB/s a chip stalls {100 * pixels:.0f} % of a step: it can, on that condition; text never does: "
        f"GPT-3 reads {large / 1e3:.1f} kB/s a chip",
    )


@claim("B28", "002:23", "fusion, compilers, 16-bit formats and scheduling raise useful work")
def useful_work() -> Finding:
    run, plan, here = gpt3(), best_of().plan, float(best_of().report.step_time_s)
    old = estimate(run, h100(stack="megatron-2021"), plan)
    unfused = float(old.step_time_s) / here
    over = float(old.memory_per_chip_bytes / old.memory_capacity_bytes)
    wide = float(estimate(gpt3(precision="tf32"), h100(), plan).step_time_s) / here
    plain = catalog.plan(run, CHIPS, tp=plan.tp, pp=plan.pp, micro_batch=plan.micro_batch, zero=2)
    unscheduled = float(estimate(run, h100(), plain).step_time_s) / here
    return Finding(
        f"{unfused:.2f} times by software of 2024 against 2021, {wide:.2f} times by 16 bit, {unscheduled:.2f} times "
        "by interleaving",
        either(min(unfused, wide, unscheduled) > HOLDS_WITHIN),
        f"GPT-3 on {CHIPS:,} H100, one thing worse at a time: attention unfused and software of 2021 take "
        f"{unfused:.2f} times the step (and {over:.1f} times the memory there is), TF32 {wide:.2f} times, a "
        f"pipeline without chunks {unscheduled:.2f} times",
    )
