"""Claims about communication and about what more chips bring."""

from __future__ import annotations

import functools
import math
from itertools import pairwise

import jax

from hwopt import catalog
from hwopt.hardware.topology import Torus
from hwopt.model.network.collectives import all_reduce_s
from results.claims.claim import Finding, Verdict, at_least, by_factor, claim, either
from results.claims.machines import best, estimate, si
from results.claims.runs import DAY_S, Run, llama3_405b, run_of


def _exponent(first: float, last: float, growth: float) -> float:
    """Power of the growth by which something grows."""
    return math.log(last / first) / math.log(growth)


@claim("A10", "001:30", "communication grows quadratically with the number of nodes")
def all_reduce_growth() -> Finding:
    few, many, message = 128.0, 8192.0, 1e9  # chips in nodes of eight; bytes of gradients
    cluster = catalog.cluster("h100-sxm", many)
    with jax.enable_x64(True):
        once, later = (
            float(all_reduce_s(cluster.network, message, chips, 1.0, cluster.stack.collective_launch_s))
            for chips in (few, many)
        )
    each, whole = _exponent(once, later, many / few), _exponent(few * once, many * later, many / few)
    moved = [2.0 * (chips - 1.0) / chips * message / 1e9 for chips in (few, many)]
    return Finding(
        f"power {each:.2f} of the nodes a chip, {whole:.2f} in total",
        by_factor(whole, 2.0),
        f"an all-reduce of 1 GB on {few / 8:.0f} and {many / 8:,.0f} nodes of eight H100: {once * 1e3:.1f} and "
        f"{later * 1e3:.1f} ms, {moved[0]:.2f} and {moved[1]:.2f} GB a chip; only pairs that could talk grow quadratically",
    )


def _strong(chips: int) -> Run:
    """GPT-3 175B, 2 M tokens a step whatever the machine: A100, 8 x 8 chips a replica."""
    replicas = chips // 64
    chunks = 3 if 1024 // replicas >= 8 else 1
    plan = dict(tp=8, pp=8, micro_batch=1, virtual_stages=chunks, recompute="selective")
    return run_of(catalog.training_run("gpt3-175b", global_batch=1024), "a100-80", chips, plan)


@functools.cache
def _strong_runs() -> dict[int, Run]:
    return {chips: _strong(chips) for chips in (128, 256, 512, 1024, 2048, 4096, 8192)}


@claim("A13", "001:32", "beyond some number of GPUs efficiency fell")
def efficiency_at_fixed_batch() -> Finding:
    mfu = {chips: float(run.report.mfu) for chips, run in _strong_runs().items()}
    knee = next(chips for chips, value in mfu.items() if value < 0.9 * mfu[128])
    last = _strong_runs()[8192]
    return Finding(
        f"MFU {mfu[128]:.0%} on 128, {mfu[1024]:.0%} on 1,024, {mfu[8192]:.0%} on 8,192 chips",
        either(mfu[8192] < mfu[128] / 1.15),
        f"GPT-3 175B at 2 M tokens a step on A100, 64 chips a replica: a tenth is lost on {knee:,} chips; on 8,192 the "
        f"pipeline's bubble takes {last.share('pp_bubble'):.0%}, communication {last.communication:.0%}; with a batch that grows "
        "with the machine it does not fall",
    )


@claim("A14", "001:34", "a TPU v4 pod has a bisection of 4.8 Tb/s")
def tpu_bisection() -> Finding:
    chips, link = (
        si("chips", "tpu-v4", "scale_up_domain"),
        si("links", "ici-v4", "bandwidth") / si("links", "ici-v4", "links"),
    )
    torus = Torus(axes=si("links", "ici-v4", "dimensions"))
    found = 8.0 * float(torus.bisection_bytes_per_s(chips, link))
    return Finding(
        f"{found / 1e12:.0f} Tb/s",
        by_factor(found, 4.8e12),
        f"a cut of 16 x 16 x 16 crosses {float(torus.bisection_links(chips)):.0f} links of {link / 1e9:.0f} GB/s, "
        f"{found / 8e12:.0f} TB/s (Google states 24); {found / 4.8e12:.0f} times the claim, and "
        f"{found / 8 / 4.8e12:.1f} times if that meant TB/s",
    )


def _useful_tokens_per_s(run: Run) -> float:
    return float(run.report.tokens_per_s * run.report.goodput)


@claim("A29", "001:64", "doubling the hardware rarely doubles the throughput")
def doubling() -> Finding:
    sizes, doubles = (1024, 2048, 4096, 8192), 1.9  # less than 1.9 times is no doubling
    fixed = [_useful_tokens_per_s(_strong_runs()[chips]) for chips in sizes]
    plan = dict(tp=8, pp=8, micro_batch=1, virtual_stages=3, recompute="selective")
    grown = [
        _useful_tokens_per_s(run_of(catalog.training_run("gpt3-175b", global_batch=chips // 4), "a100-80", chips, plan))
        for chips in sizes
    ]
    strong, weak = ([after / before for before, after in pairwise(speeds)] for speeds in (fixed, grown))
    short = sum(each < doubles for each in strong + weak)
    return Finding(
        f"{strong[0]:.2f}, {strong[1]:.2f}, {strong[2]:.2f} times at one batch, {weak[0]:.2f}, {weak[1]:.2f}, {weak[2]:.2f} times "
        "with twice the batch",
        at_least(short / len(strong + weak), 0.5),  # rarely: at least half of the doublings fall short
        f"GPT-3 175B on {sizes[0]:,} A100 and three doublings, failures counted: {short} of {len(strong + weak)} bring less than "
        f"{doubles} times; right at 2 M tokens a step on thousands of chips, wrong where the batch may grow, which B_crit limits",
    )


@claim("A30", "001:72", "30 % of Meta's AI organisation works on infrastructure")
def staff() -> Finding:
    upkeep = si("prices", "default", "maintenance") * 365.25 * DAY_S
    verdict: Verdict = "cannot be decided"
    return Finding(
        f"{upkeep:.0%} of the hardware's price a year",
        verdict,
        "how people are assigned is a record, not a result; the nearest number of the model is what it charges for staff, "
        "repair and software together",
    )


@functools.cache
def _llama_2_on_4096() -> Run:
    """Llama 2 70B, 4 M tokens a step, on 4,096 H100 by the best plan."""
    run, cluster = catalog.training_run("llama2-70b"), catalog.cluster("h100-sxm", 4096)
    return Run(4096, run, cluster, best(run, cluster).report)


@claim("A31", "001:102", "gradient synchronisation takes 30 to 50 % of the time on thousands of GPUs")
def gradient_share() -> Finding:
    large, small = llama3_405b(), _llama_2_on_4096()
    plan = dict(tp=2, zero=3, micro_batch=1)
    poor = run_of(catalog.training_run("llama2-70b", global_batch=2048), "h100-sxm", 4096, plan)
    share = small.share("dp_comm")
    return Finding(
        f"{share:.1%} of a step on 4,096 chips, {large.share('dp_comm'):.1%} on 16,384 chips",
        at_least(share, 0.30),
        f"Llama-2-70B at 4 M tokens a step by its best plan, Llama-3.1-405B by Meta's: gradients move once a step, beside the "
        f"backward pass; weights gathered for every layer of one sequence take {poor.share('dp_comm'):.0%} on 4,096 chips, a "
        "plan nobody need choose",
    )


@claim("A32", "001:30,102", "communication, not computation, is the main bottleneck")
def bottleneck() -> Finding:
    large, small = llama3_405b(), _llama_2_on_4096()
    found = max(run.communication / run.share("compute") for run in (large, small))
    return Finding(
        f"communication {large.communication:.0%}, computation {large.share('compute'):.0%} of a step on 16,384 chips; "
        f"{small.communication:.0%} and {small.share('compute'):.0%} on 4,096 chips",
        at_least(found, 1.0),
        f"Llama-3.1-405B and Llama-2-70B on H100: what is not hidden; another "
        f"{float(large.report.hidden_s / large.report.step_time_s):.0%} and "
        f"{float(small.report.hidden_s / small.report.step_time_s):.0%} of a step run beside compute; filling pipelines costs "
        f"{large.share('pp_bubble'):.0%} and {small.share('pp_bubble'):.0%}",
    )


@claim("A34", "002:17", "dense racks draw tens of kilowatts")
def rack_power() -> Finding:
    run = catalog.training_run("llama2-70b")
    plan = catalog.plan(run, 64, tp=8, zero=3, micro_batch=1)
    clusters = [catalog.cluster(chip, 64) for chip in ("h100-sxm", "gb200")]
    air, liquid = (float(estimate(run, cluster, plan).rack_power_w) for cluster in clusters)
    few, many = (float(cluster.rack.chips) for cluster in clusters)
    return Finding(
        f"{air / 1e3:.0f} kW of H100 on air, {liquid / 1e3:.0f} kW of GB200 on liquid",
        either(10e3 <= air < 100e3),
        f"{few:.0f} H100, whole servers within the {si('cooling', 'air', 'rack_power') / 1e3:.0f} kW that air removes; right for "
        f"those, too low for the densest, {many:.0f} chips on one backplane",
    )


@claim("A44", "003:27", "model parallelism: memory scales linearly, communication quadratically")
def tensor_parallel_growth() -> Finding:
    run, few, many = catalog.training_run("gpt3-175b", global_batch=64), 8, 48  # ranks within one domain of 72
    cluster = catalog.cluster("gb200", many)
    held = [
        float(estimate(run, catalog.cluster("gb200", ranks), catalog.plan(run, ranks, tp=ranks)).memory.weights_bytes)
        for ranks in (few, many)
    ]
    block = float(run.sequence_length * run.model.hidden * run.activation_bytes)
    with jax.enable_x64(True):
        times = [float(all_reduce_s(cluster.network, block, float(ranks), 1.0, 0.0)) for ranks in (few, many)]
    volume = [2.0 * (ranks - 1.0) / ranks * block for ranks in (few, many)]
    growth = many / few
    memory, whole = _exponent(*held, growth), _exponent(few * volume[0], many * volume[1], growth)
    return Finding(
        f"memory a chip with power {memory:.2f}, bytes of all chips with power {whole:.2f} of the ranks",
        by_factor(whole, 2.0),
        f"GPT-3's layer on {few} and {many} ranks of one NVLink domain: {held[0] / 1e9:.0f} and {held[1] / 1e9:.0f} GB of weights "
        f"a chip, as claimed; {volume[0] / 1e6:.0f} and {volume[1] / 1e6:.0f} MB a chip and all-reduce, "
        f"{times[0] * 1e6:.0f} and {times[1] * 1e6:.0f} us: linear in total, nearly constant a chip",
    )


@claim("A45", "003:26", "pipelines hide latency and add bubbles")
def pipeline_bubble() -> Finding:
    run = catalog.training_run("gpt3-175b", global_batch=256)
    stages, micro_batches = 8, 32
    piped = run_of(run, "a100-80", 512, dict(tp=8, pp=stages, micro_batch=1, recompute="selective"))
    wide = run_of(run, "a100-80", 512, dict(tp=32, micro_batch=1, recompute="full"))
    bubble, sends, across = piped.share("pp_bubble"), piped.share("pp_comm"), wide.share("tp_comm")
    formula = (stages - 1) / (micro_batches + stages - 1)
    return Finding(
        f"bubble {bubble:.1%}, sends {sends:.1%} of a step",
        either(bubble > 0.0 and sends < across),
        f"GPT-3 175B on 512 A100, {stages} stages, {micro_batches} micro-batches: (p - 1) / (m + p - 1) = {formula:.1%} before "
        f"what is not pipelined; tensor parallelism across nodes, tp = 32, would wait {across:.0%}; a single sequence gains no "
        "latency, micro-batches only keep stages busy",
    )
