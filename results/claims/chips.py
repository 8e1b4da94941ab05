"""Claims about single chips and single links: memory, arithmetic, bandwidth, power."""

from __future__ import annotations

import functools

import jax
import numpy as np

from hwopt import catalog
from hwopt.model.chip.roofline import gemm_time
from hwopt.model.layers import work
from hwopt.model.network.collectives import all_reduce_s
from hwopt.model.numerics.maximum import hard_maximum
from results.claims.claim import Finding, Verdict, at_least, by_factor, claim, either
from results.claims.machines import best, estimate, si
from tests.cases import replace


@claim("A1", "000:25", "one H100 has 80 GB")
def h100_memory() -> Finding:
    capacity = si("chips", "h100-sxm", "memory_capacity")
    return Finding(
        f"{capacity / 1e9:.1f} GB",
        by_factor(capacity, 80e9),
        f"five stacks of 16 GiB, of which software sees {capacity / 2**20:,.0f} MiB",
    )


@functools.cache
def _tokens_per_s(chip: str, precision: str = "bf16") -> float:
    """Training speed a chip of GPT-3 175B on 512 chips, each kind by its own best plan."""
    run = catalog.training_run("gpt3-175b", precision=precision, global_batch=1024)
    return float(best(run, catalog.cluster(chip, 512)).report.tokens_per_s_per_chip)


@claim("A3", "001:14", "an H100 trains roughly 6 times as fast as an A100")
def h100_over_a100() -> Finding:
    old = _tokens_per_s("a100-80")
    like, narrow = _tokens_per_s("h100-sxm") / old, _tokens_per_s("h100-sxm", "fp8") / old
    bf16, fp8 = (
        si("chips", "h100-sxm", f"peak.{name}") / si("chips", "a100-80", "peak.bf16") for name in ("bf16", "fp8")
    )
    return Finding(
        f"{like:.2f} times in bf16, {narrow:.2f} times in fp8 against bf16",
        by_factor(like, 6.0),
        f"GPT-3 175B on 512 chips by the best plan of each; peaks are {bf16:.1f} times in bf16 and {fp8:.1f} times in "
        f"fp8, HBM {si('chips', 'h100-sxm', 'memory_bandwidth') / si('chips', 'a100-80', 'memory_bandwidth'):.1f} times: "
        "6 is a ratio of peaks in different formats",
    )


@claim("A4", "001:14", "TPU v5 shows a similar leap")
def tpu_v5_over_v4() -> Finding:
    old = _tokens_per_s("tpu-v4")
    large, small = _tokens_per_s("tpu-v5p") / old, _tokens_per_s("tpu-v5e") / old
    nvidia = _tokens_per_s("h100-sxm") / _tokens_per_s("a100-80")
    return Finding(
        f"v5p {large:.2f}, v5e {small:.2f} times v4; H100 {nvidia:.2f} times A100",
        by_factor(large, 6.0),
        f"GPT-3 175B on 512 chips in bf16, best plans; similar to the 6 times that the article gives H100 over A100: "
        f"{large:.2f} is {6.0 / large:.1f} times less, and {nvidia / large:.2f} times less than H100's own {nvidia:.2f}; v5e "
        "is a smaller, cheaper chip than v4",
    )


def _ridge(chip: str, precision: str = "bf16") -> float:
    """FLOP a byte of memory at which a chip's arithmetic is as slow as its memory."""
    return si("chips", chip, f"peak.{precision}") / si("chips", chip, "memory_bandwidth")


@claim("A15", "001:38", "accelerators do thousands of operations per byte of memory traffic")
def operations_per_byte() -> Finding:
    named = [chip for chip in catalog.names("chips") if si("chips", chip, "memory_bandwidth") < 1e14]  # HBM, not SRAM
    ridges = {chip: _ridge(chip) for chip in named if "unsupported" not in catalog.record("chips", chip).text}
    highest = max(ridges, key=lambda chip: ridges[chip])
    typical = float(np.median(list(ridges.values())))
    return Finding(
        f"{typical:.0f} FLOP/B the median, {ridges[highest]:.0f} the most",
        at_least(typical, 1000.0),
        f"dense bf16 peak over memory bandwidth: A100 {_ridge('a100-80'):.0f}, H100 {_ridge('h100-sxm'):.0f}, B200 "
        f"{_ridge('b200'):.0f}, {highest} the most: hundreds; above 1,000 only in 4 bit, GB300 {_ridge('gb300', 'fp4'):,.0f}",
    )


@claim("A16", "001:40", "H100: 3.35 TB/s")
def h100_bandwidth() -> Finding:
    rate, share = si("chips", "h100-sxm", "memory_bandwidth"), si("chips", "h100-sxm", "memory_efficiency")
    return Finding(
        f"{rate / 1e12:.2f} TB/s",
        by_factor(rate, 3.35e12),
        f"datasheet of the SXM5; a stream reaches {rate * share / 1e12:.2f} TB/s, and the PCIe card has "
        f"{si('chips', 'h100-pcie', 'memory_bandwidth') / 1e12:.1f} TB/s",
    )


@claim("A17", "001:40", "H100: 1,979 TFLOP/s in mixed precision")
def h100_peak() -> Finding:
    dense, fp8 = si("chips", "h100-sxm", "peak.bf16"), si("chips", "h100-sxm", "peak.fp8")
    return Finding(
        f"{dense / 1e12:.0f} TFLOP/s dense in 16 bit",
        by_factor(dense, 1979e12),
        f"{fp8 / 1e12:,.0f} is the dense fp8 peak, or bf16 with half of the weights zero ({2 * dense / 1e12:,.0f}); "
        f"mixed-precision training does dense bf16, of which large GEMMs reach "
        f"{dense * si('chips', 'h100-sxm', 'matmul_efficiency.bf16') / 1e12:.0f}",
    )


def _attention_intensity(workload: str, chip: str, stack: str | None) -> float:
    """FLOP a byte of HBM of the attention core forward, one sequence on 8 chips."""
    run, cluster = catalog.training_run(workload), catalog.cluster(chip, 8, stack=stack)
    plan = catalog.plan(run, 8, tp=8, micro_batch=1)
    with jax.enable_x64(True):
        flow, fraction = work.flow(run, plan), work.executed_causal_fraction(run, cluster.stack)
        stored = cluster.stack.attention_scores_stored
        scores = stored * work.attention_score_elements(run, plan, flow.work.heads)
        moved = work.attention_stream_bytes(flow, plan) + scores * work.SCORE_BYTES_FORWARD
        flops = flow.tokens * work.core_flops(run, flow.work.cores[0], fraction) / plan.tp
        return float(flops / moved)


@claim("A18", "001:40", "attention is bound by memory long before compute")
def attention_intensity() -> Finding:
    fused, stored = (_attention_intensity("llama3.1-405b", "h100-sxm", stack) for stack in (None, "megatron-2021"))
    shape = catalog.transformer("llama3.1-405b")
    decode = float(shape.heads / shape.kv_heads)  # 2 FLOP a key element of 2 B and query head that reads it
    ridge = _ridge("h100-sxm")
    return Finding(
        f"{fused:,.0f} FLOP/B fused, {stored:.0f} FLOP/B with stored scores, {decode:.0f} FLOP/B generating; H100 "
        f"{ridge:.0f} FLOP/B",
        either(fused < ridge),
        f"Llama-3.1-405B, 8,192 tokens: a fused kernel keeps scores on the chip and is {fused / ridge:.0f} times above the "
        f"ridge; right for the unfused kernels of 2021 ({ridge / stored:.0f} times below) and for generating tokens "
        f"({ridge / decode:.0f} times below)",
    )


@claim("A33", "002:17", "accelerators draw hundreds of watts")
def accelerator_power() -> Finding:
    parts = [chip for chip in catalog.names("chips") if not chip.startswith("wse")]  # a wafer is not a chip
    watts = sorted(si("chips", chip, "tdp") for chip in parts)
    typical = float(np.median(watts))
    return Finding(
        f"{typical:.0f} W the median, {watts[0]:.0f} to {watts[-1]:,.0f} W",
        either(100.0 <= typical < 1000.0),
        f"TDP of {len(watts)} chips of the catalogue: H100 {si('chips', 'h100-sxm', 'tdp'):.0f} W; "
        f"{sum(each >= 1000.0 for each in watts)} of the newest draw 1 kW and more",
    )


@claim("A36", "003:6", "an H100 has more than 16,000 CUDA cores, each one floating-point operation a clock")
def cuda_cores() -> Finding:
    lanes = 128  # fp32 lanes of an SM (NVIDIA H100 whitepaper)
    multiprocessors = round(si("designs", "h100-sxm", "compute_units") * si("designs", "h100-sxm", "enabled_fraction"))
    cores = multiprocessors * lanes
    peak, clock = si("chips", "h100-sxm", "peak.bf16"), si("chips", "h100-sxm", "nominal_clock")
    vector, matrix = si("chips", "h100-sxm", "peak.fp32"), peak / clock / cores
    return Finding(
        f"{cores:,} cores, 2 FLOP each a clock",
        either(cores > 16_000),
        f"{multiprocessors} multiprocessors x {lanes}; the one operation is a multiply-add, 2 FLOP; the cores make "
        f"{vector / 1e12:.0f} TFLOP/s, {vector / peak:.0%} of the {peak / 1e12:.0f} of the matrix units, "
        f"which do {matrix:.0f} FLOP a core and clock",
    )


@claim("A37", "003:7", "more than 90 % of training time is spent in GEMM and convolution")
def gemm_time_share() -> Finding:
    run, cluster = catalog.training_run("llama3-8b", global_batch=64), catalog.cluster("h100-sxm", 8)
    plan = catalog.plan(run, 8, zero=3, micro_batch=1)
    report = estimate(run, cluster, plan)
    with jax.enable_x64(True):
        table = work.gemms(work.flow(run, plan), plan)
        forward = np.asarray(gemm_time(table, run, cluster.chip, cluster.stack, hard_maximum).total_s)
        each = np.asarray(table.flops)
        core = float(work.tokens_per_chip(run, plan) * work.layer_core_flops(run, run.causal_fraction) / plan.tp)
        at = work.places(run.model)
    counts = (at.mixer + at.dense) * float(run.model.layers) + at.head
    passes = 3.0 * float(
        run.global_batch_sequences / plan.dp
    )  # forward, and two products backward, of each micro-batch
    gemm = passes * float(np.sum(counts * forward)) / float(report.step_time_s)
    products = float(np.sum(counts * each))
    attention = core * float(run.model.layers)
    rest = float(report.breakdown.compute_s / report.step_time_s) - gemm
    images, alone = (
        catalog.training_run("resnet-50", global_batch=256),
        catalog.cluster("h100-sxm", 1, stack="mlperf-graphs"),
    )
    nets = [
        float(estimate(images, each, catalog.plan(images, 1, micro_batch=256)).step_time_s)
        for each in (replace(alone, stack__elementwise_passes=1e-9), alone)
    ]  # without norms, activations and sums, and with them
    return Finding(
        f"{gemm:.0%} of the time in GEMMs, {gemm + rest:.0%} with attention",
        at_least(gemm, 0.9),
        f"Llama-3-8B on eight H100; GEMMs are {products / (products + attention):.0%} of the FLOP but the attention core "
        f"runs slower, and {1.0 - gemm - rest:.0%} of the time goes to norms, exchange and the host; ResNet-50 on one H100 "
        f"spends {1.0 - nets[0] / nets[1]:.0%} on norms, activations and sums, which wait for memory",
    )


@claim("A38", "003:9", "one GPU trains ResNet-50 about 20 times as fast as a 32-core Xeon")
def resnet_on_xeon() -> Finding:
    # 32 cores x 2 units x 16 lanes x 2 FLOP at 2.6 GHz; 8 channels of DDR4-3200 (Intel Xeon Platinum 8358)
    xeon_flops, xeon_bytes = 32 * 2 * 16 * 2 * 2.6e9, 8 * 25.6e9

    def images_per_s(chip: str, precision: str, **changes: float) -> float:
        run = catalog.training_run("resnet-50", global_batch=128, precision=precision)
        cluster = replace(catalog.cluster(chip, 1, stack="mlperf-graphs"), **changes)
        return float(estimate(run, cluster, catalog.plan(run, 1, micro_batch=128)).tokens_per_s)

    formats = np.ones_like(catalog.chip("a100-80").peak_flops_per_s)
    xeon = images_per_s(
        "a100-80", "fp32", chip__peak_flops_per_s=xeon_flops * formats, chip__hbm_bandwidth_bytes_per_s=xeon_bytes
    )
    volta, ampere, hopper = (
        images_per_s(chip, precision)
        for chip, precision in (("v100", "fp16"), ("a100-80", "bf16"), ("h100-sxm", "bf16"))
    )
    return Finding(
        f"{volta / xeon:.0f} times on a V100, {ampere / xeon:.0f} on an A100, {hopper / xeon:.0f} on an H100",
        _worse(by_factor(volta / xeon, 20.0), by_factor(ampere / xeon, 20.0)),
        f"{volta:,.0f}, {ampere:,.0f} and {hopper:,.0f} images a second by software of MLPerf; no CPU is in the catalogue: "
        f"{xeon:.0f} a second are those of a chip of {xeon_flops / 1e12:.1f} TFLOP/s in fp32 and {xeon_bytes / 1e9:.0f} GB/s "
        "that reaches the shares of its peaks which an A100 reaches (assumption; less would make the ratios larger)",
    )


def _worse(first: Verdict, second: Verdict) -> Verdict:
    order: tuple[Verdict, ...] = ("holds", "roughly", "fails")
    return max(first, second, key=order.index)


def _pcie(link: str, bandwidth: float, latency: float) -> Finding:
    rate, wait = si("links", link, "bandwidth"), si("links", link, "latency")
    return Finding(
        f"{rate / 1e9:.1f} GB/s a direction, {wait * 1e6:.1f} us",
        _worse(by_factor(rate, bandwidth), by_factor(wait, latency)),
        f"{rate / bandwidth:.1f} times the rate claimed, which is a generation older (or half the lanes), and "
        f"{latency / wait:.0f} times less latency with NCCL's software in it, about 1 us without",
    )


@claim("A39", "003:17", "PCIe 4.0 x16: 16 GB/s a direction, about 200 us")
def pcie_4() -> Finding:
    return _pcie("pcie-4", 16e9, 200e-6)


@claim("A40", "003:18", "PCIe 5.0 x16: 32 GB/s a direction, about 150 us")
def pcie_5() -> Finding:
    return _pcie("pcie-5", 32e9, 150e-6)


@claim("A41", "003:19", "NVLink 3: 600 GB/s a direction, dual-rail, about 10 us")
def nvlink_3() -> Finding:
    rate, wait = si("links", "nvlink-3", "bandwidth"), si("links", "nvlink-3", "latency")
    node = catalog.cluster("a100-80", 8)
    with jax.enable_x64(True):
        small = float(all_reduce_s(node.network, 1024.0, 8.0, 1.0, node.stack.collective_launch_s))
    return Finding(
        f"{rate / 1e9:.0f} GB/s a direction, {wait * 1e6:.2f} us a step",
        by_factor(rate, 600e9),
        f"12 links x 25 GB/s; {2 * rate / 1e9:.0f} GB/s is both directions together; nothing of it is a rail; 10 us is a "
        f"whole collective, not a hop: {small * 1e6:.0f} us for an all-reduce of 1 KiB on 8 chips with its launch",
    )


@claim("A42", "003:20", "InfiniBand HDR: 200 Gb/s, 25 GB/s, about 1 us")
def infiniband_hdr() -> Finding:
    rate, software = si("links", "infiniband-hdr", "bandwidth"), si("links", "infiniband-hdr", "latency")
    # Two adapters of 0.6 us less what they overlap with the wire: 1 us is what MPI measures end to end (vendor pages).
    wire = 1e-6
    return Finding(
        f"{rate / 1e9:.0f} GB/s, {wire * 1e6:.0f} us on the wire",
        by_factor(rate, 25e9),
        f"{rate * 8 / 1e9:.0f} Gb/s over 8; the latency is the wire's, a step of a collective takes "
        f"{software * 1e6:.0f} us of software and wire; {200e-6 / wire:.0f} times less than the table gives PCIe, "
        "behind which the adapter sits",
    )
