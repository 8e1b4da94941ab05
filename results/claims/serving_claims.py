"""Claims about serving: latency, memory bandwidth, capacity, machines of SRAM."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hwopt import catalog
from results.claims.claim import HOLDS_WITHIN, Finding, at_least, by_factor, claim, either, half_right
from results.claims.machines import estimate, exposed, si
from tests.cases import replace

MS = 1e3


@functools.cache
def _cluster(chip: str, chips: int, domain: int | None):
    return catalog.cluster(chip, chips, domain=domain, stack=catalog.serving_stack(chip))


def answers(model: str, chip: str, chips: int, precision: str = "fp8", domain: int | None = None,
            asked: Mapping[str, Any] | None = None, **plan: Any):  # fmt: skip
    """Generation alone (prompts come from elsewhere) of 2,048 tokens in and 512 out, under a plan."""
    service = catalog.service(model, mode="decode", precision=precision, **dict(asked or {}))
    return estimate(service, _cluster(chip, chips, domain), catalog.serving_plan(service, chips, **plan))


def pace_ms(report) -> float:
    """Time between two tokens of an answer."""
    return float(report.time_per_output_token_s) * MS


def floor_ms(report) -> float:
    """Least time of a pass: what it reads over the bandwidth of the chips that share it."""
    return float(report.floor_time_s) * MS


def gain(report_of, cluster, field: str, metric: str = "tokens_per_s") -> float:
    """Elasticity of a metric to an input of the cluster, by one per cent of it."""
    part, _, name = field.partition("__")
    more = replace(cluster, **{field: 1.01 * np.asarray(getattr(getattr(cluster, part), name))})
    ratio = float(getattr(report_of(more), metric)) / float(getattr(report_of(cluster), metric))
    return math.log(ratio) / math.log(1.01)


@claim("A67", "004:2", "a larger scale-up domain reads all its HBM in parallel, and latency falls")
def domain_and_latency() -> Finding:
    def fastest(domain: int):
        degrees = (8, 16, 32, 64)
        found = [(answers("llama3.1-405b", "gb200", 64, domain=domain, tp=tp), tp) for tp in degrees]
        return min(found, key=lambda each: pace_ms(each[0]))

    (small, _), (large, tp) = fastest(8), fastest(64)
    floors = [floor_ms(answers("llama3.1-405b", "gb200", 64, domain=64, tp=each)) for each in (8, 64)]
    return Finding(
        f"{pace_ms(small):.1f} ms a token on 8, {pace_ms(large):.1f} ms on 64",
        either(pace_ms(large) < pace_ms(small)),
        f"Llama 3.1 405B in 8 bit on GB200, one user: it falls by {1.0 - pace_ms(large) / pace_ms(small):.0%}, far from the "
        f"{floors[0] / floors[1]:.1f}-fold of the reading alone ({floors[0]:.1f} to {floors[1]:.2f} ms), because an "
        f"all-reduce a layer grows with the chips: {tp} of the 64 are best, and {exposed(large):.0%} of their time is "
        "communication",
    )


@claim("A68", "004:3", "a step takes the slower of memory fetch and matmul")
def roofline_of_a_pass() -> Finding:
    def over(model: str, chips: int, batch: int) -> float:
        report = answers(model, "h100-sxm", chips, tp=chips, batch=batch)
        arithmetic = 2.0 * float(report.active_parameters) * batch / (chips * si("chips", "h100-sxm", "peak.fp8"))
        return float(report.step_time_s) / max(float(report.floor_time_s), arithmetic)

    full, alone, many = over("llama3.1-8b", 1, 256), over("llama3.1-8b", 1, 1), over("llama3.1-70b", 8, 1)
    return Finding(
        f"x {full:.2f} of it at batch 256, x {alone:.1f} at batch 1",
        by_factor(full, 1.0),
        "true of each large kernel and a floor of any pass, but launches, the host, attention's small kernels and unreached "
        f"peaks come on top: an 8 B model on one H100 takes {full:.2f} times the slower of the two at batch 256, {alone:.1f} "
        f"at batch 1, a 70 B on eight {many:.1f} because of its collectives",
    )


@claim("A69", "004:4", "workloads are limited by bandwidth, not capacity")
def bandwidth_or_capacity() -> Finding:
    def most(cluster, tokens: int) -> tuple[float, int]:
        service = catalog.service("llama3.1-70b", mode="decode", precision="fp8", input_tokens=tokens)
        found = []
        for batch in (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024):
            report = estimate(service, cluster, catalog.serving_plan(service, 8, tp=8, batch=batch))
            if float(report.feasible) and pace_ms(report) < 50.0:
                found.append((float(report.tokens_per_s), batch))
        return max(found)

    cluster, fields = _cluster("h100-sxm", 8, None), ("chip__hbm_bandwidth_bytes_per_s", "chip__hbm_capacity_bytes")
    doubled = [replace(cluster, **{field: 2.0 * getattr(cluster.chip, field[6:])}) for field in fields]
    (usual, _), (wide, _), (roomy, _) = (most(each, 2048) for each in (cluster, *doubled))
    (long, batch), (long_wide, _), (long_roomy, long_batch) = (most(each, 32768) for each in (cluster, *doubled))
    return Finding(
        f"doubled bandwidth +{wide / usual - 1.0:.0%}, capacity +{roomy / usual - 1.0:.0%}",
        either(wide > roomy and long_wide > long_roomy),
        "most tokens a second below 50 ms each of a 70 B model on eight H100, prompts of 2,048; at 32,768 the cache fills "
        f"the memory at batch {batch} and capacity counts as well (batch {long_batch}, +{long_roomy / long - 1.0:.0%}), "
        f"still less than bandwidth (+{long_wide / long - 1.0:.0%})",
    )


@claim("A70", "004:4", "DRAM is more than ten times slower than HBM")
def dram_or_hbm() -> Finding:
    stack = si("memories", "hbm3", "bandwidth")
    channel = 38.4e9  # DDR5-4800, 8 B wide, as the host pool's sixteen channels of 614 GB/s
    chip, host = si("chips", "h100-sxm", "memory_bandwidth"), si("pools", "host-pcie5", "update_bandwidth")
    return Finding(
        f"x {stack / channel:.0f} a stack, x {chip / host:.0f} a chip",
        at_least(stack / channel, 10.0),
        f"an HBM3 stack of {stack / 1e9:.0f} GB/s against a DDR5 channel of {channel / 1e9:.1f}; an H100's {chip / 1e12:.2f} "
        f"TB/s against its share of host memory, {host / 1e9:.0f} GB/s; in bandwidth, that is: the cell is the same and the "
        "latency of an access alike",
    )


@claim("A71", "004:4", "DRAM has more bits on a wafer than HBM")
def bits_on_a_wafer() -> Finding:
    bits, area = 8.0 * si("memories", "hbm3", "capacity"), si("memories", "hbm3", "stack_area")
    layers = 8  # of 16 Gb
    density = bits / layers / area / 1e9 * 1e-6
    ddr5 = 0.241  # Gb/mm2, Micron's 16 Gb die of its D1z process (TechInsights, "Micron DDR5 DIMM Technology")
    ratio = si("prices", "default", "hbm_usd_per_byte") / si("pools", "cxl-ddr5", "price")
    return Finding(
        f"DDR5 {ddr5:.2f}, HBM3 {density:.2f} Gb/mm2",
        at_least(ddr5 / density, HOLDS_WITHIN),
        f"16 Gb on the {area * 1e6:.0f} mm2 of a stack's footprint with its vias, against a DDR5 die of as many bits: "
        f"{ddr5 / density:.1f} times the bits on a wafer, before the base die under each stack; a byte of HBM costs "
        f"{ratio:.1f} times one of DDR5 with its modules and controllers, which includes stacking, yield, margin and area",
    )


@claim("A72", "004:5", "a pipeline brings inference no latency, only capacity")
def pipelines_in_inference() -> Finding:
    one, four = (answers("llama3.1-405b", "h100-sxm", 8 * pp, tp=8, pp=pp) for pp in (1, 4))
    wide = answers("llama3.1-405b", "h100-sxm", 16, tp=16)
    busy = [answers("llama3.1-405b", "h100-sxm", 32, tp=8, pp=pp, batch=64) for pp in (4, 1)]
    rates = [float(report.tokens_per_s) for report in busy]
    held = [float(report.memory.weights_bytes) / 1e9 for report in (one, four)]
    return Finding(
        f"{pace_ms(four) / pace_ms(one):.2f} x the time a token, {rates[0] / rates[1]:.2f} x the throughput",
        either(pace_ms(four) >= pace_ms(one) and rates[0] <= 1.05 * rates[1]),
        f"Llama 3.1 405B on 4 x 8 H100: a token takes {pace_ms(four):.1f} ms through four stages and {pace_ms(one):.1f} on "
        f"one, four stages answer as many as four copies, and weights fall from {held[0]:.0f} to {held[1]:.0f} GB a chip; "
        f"tensor parallelism over two servers does cut latency, to {pace_ms(wide):.1f} ms; a chip whose memory is the limit "
        "gains users",
    )


@claim("A73", "004:6", 'Groq ("Grok") needs thousands of chips')
def groq_chips() -> Finding:
    room = si("chips", "groq-lpu", "memory_capacity")
    names = ("llama3.1-70b", "llama3.1-405b", "deepseek-v3")
    small, large, sparse = (si("workloads", name, "parameters") / room for name in names)
    wide = 2.0 * large
    return Finding(
        f"70B {small:.0f}, 405B {large:,.0f} in 8 bit and {wide:,.0f} in 16",
        at_least(large, 2000.0),
        f"weights over {room / 1e6:.0f} MB of SRAM, without any cache: hundreds for 70 B (576 were shown), nearly two "
        f"thousand for 405 B, {sparse:,.0f} for DeepSeek-V3; where a model is served in 16 bit all double",
    )


@claim("A74", "004:6", "Cerebras avoids the interconnect tax")
def wafer_tax() -> Finding:
    room = si("chips", "wse-3", "memory_capacity")
    alone = answers("llama3.1-8b", "wse-3", 1, "bf16")
    four = answers("llama3.1-70b", "wse-3", 4, "bf16", pp=4)
    server = answers("llama3.1-70b", "h100-sxm", 8, "bf16", tp=8)
    wafers = math.ceil(2.0 * float(four.parameters) / room)
    return Finding(
        f"8B {100 * exposed(alone):.0f} %, 70B on 4 wafers {100 * exposed(four):.0f} % of a token",
        half_right(exposed(alone) < 0.01, exposed(four) < exposed(server)),
        f"true of what fits the {room / 1e9:.0f} GB of one wafer; 70 B in 16 bit take {wafers}, and between wafers go "
        f"activations over Ethernet, {exposed(four):.0%} of the {pace_ms(four):.3f} ms of a token against "
        f"{exposed(server):.0%} of the {pace_ms(server):.0f} ms on eight H100: a larger share of a far smaller time, "
        f"{pace_ms(four) * exposed(four):.2f} ms against {pace_ms(server) * exposed(server):.1f}",
    )


@claim("A78", "004:10", "least latency is total parameters over bandwidth")
def latency_floor() -> Finding:
    def ratio(model: str, chip: str, chips: int, batch: int) -> float:
        report = answers(model, chip, chips, tp=chips, batch=batch, domain=chips)
        bandwidth = chips * si("chips", chip, "memory_bandwidth")
        return float(report.floor_time_s) * bandwidth / float(report.parameters)

    dense = ratio("llama3.1-70b", "h100-sxm", 8, 1)
    alone, many = (ratio("deepseek-v3", "gb200", 16, batch) for batch in (1, 32))
    real = answers("llama3.1-70b", "h100-sxm", 8, tp=8)
    return Finding(
        f"dense {dense:.2f} x, sparse {alone:.2f} x for one user and {many:.2f} x for 32",
        half_right(by_factor(dense, 1.0) == "holds", by_factor(alone, 1.0) == "holds"),
        "what a pass reads over what the claim says, in 8 bit: a dense model reads every weight; a sparse one only the "
        f"experts that its tokens meet, so DeepSeek-V3's floor for one user is {1.0 / alone:.0f} times lower, and near the "
        "claim only where a batch meets them all; keys and values add to both, and a token takes "
        f"{pace_ms(real) / floor_ms(real):.1f} times the floor",
    )


@claim("A79", "004:10", 'neither smaller batches nor "software tricks" lower it')
def tricks() -> Finding:
    wide = answers("llama3.1-70b", "h100-sxm", 8, "bf16", tp=8)
    narrow, narrower = (
        answers("llama3.1-70b", "h100-sxm", 8, tp=8, asked={"weights": weights}) for weights in ("fp8", "fp4")
    )
    drafted = answers("llama3.1-70b", "h100-sxm", 8, "bf16", tp=8, asked={"drafted_tokens": 3})
    read = floor_ms(wide) / floor_ms(narrow)
    sparse = [floor_ms(answers("deepseek-v3", "gb200", 16, domain=16, tp=16, batch=batch)) for batch in (32, 1)]
    sped = floor_ms(wide) / pace_ms(drafted)
    return Finding(
        f"8 bit lowers the floor x {read:.2f}, drafts the time a token x {pace_ms(wide) / pace_ms(drafted):.2f}",
        at_least(1.0, max(read, pace_ms(wide) / pace_ms(drafted)), roughly=1.1),
        f"storing weights in 8 bit halves what is read and in 4 bit halves it again ({floor_ms(narrow):.2f}, "
        f"{floor_ms(narrower):.2f} ms from {floor_ms(wide):.2f}); three drafted tokens bring {pace_ms(drafted):.1f} ms a "
        f"token instead of {pace_ms(wide):.1f}, {sped:.2f} times as fast as one pass's floor; of a sparse model one user "
        f"reads {sparse[0] / sparse[1]:.0f} times less than 32; a dense one's batch alone indeed changes little",
    )


@claim("A80", "004:11", "bandwidth is the primary bottleneck and a better predictor than FLOPs")
def bandwidth_or_flops() -> Finding:
    fields = ("chip__hbm_bandwidth_bytes_per_s", "chip__peak_flops_per_s")
    service = catalog.service("llama3.1-70b", mode="decode", precision="fp8")
    plan = catalog.serving_plan(service, 8, tp=8, batch=64)
    decode = [gain(lambda c: estimate(service, c, plan), _cluster("h100-sxm", 8, None), field) for field in fields]
    run = catalog.training_run("gpt3-175b", global_batch=1536)
    split = catalog.plan(run, 1024, tp=8, pp=8, virtual_stages=12)
    train = [gain(lambda c: estimate(run, c, split), catalog.cluster("h100-sxm", 1024), field) for field in fields]
    same = [float(answers("llama3.1-70b", chip, 8, tp=8, batch=64).tokens_per_s) for chip in ("h200", "h100-sxm")]
    more = si("chips", "h200", "memory_bandwidth") / si("chips", "h100-sxm", "memory_bandwidth")
    by_bandwidth, by_flops = (predicted_within(field) for field in ("memory_bandwidth", "peak.bf16"))
    return Finding(
        f"generation {decode[0]:.2f} against {abs(decode[1]):.2f}, training {train[0]:.2f} against {train[1]:.2f}",
        half_right(decode[0] > decode[1], train[0] > train[1]),
        "per cent of speed by per cent of HBM bandwidth against FLOP/s on H100: right for generating tokens, wrong for "
        f"training; H200, the same arithmetic with {more:.2f} times the bandwidth, generates {same[0] / same[1]:.2f} times "
        f"as fast; over six chips either predicts what a chip generates, bandwidth within a factor of {by_bandwidth:.2f} and "
        f"FLOP/s within {by_flops:.2f}",
    )


def predicted_within(field: str) -> float:
    """Typical factor between speed and a number of the datasheet times a constant: an 8 B model on one chip, batch 64."""
    chips = ("a100-80", "h100-sxm", "h200", "b200", "mi300x", "tpu-v5p")
    rates = [
        answers("llama3.1-8b", chip, 1, "bf16", batch=64).tokens_per_s / si("chips", chip, field) for chip in chips
    ]
    return float(np.exp(np.std(np.log(rates))))
