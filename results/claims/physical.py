"""Claims about links, pooled memory, other accelerators, sites, jitter, and where the bottleneck moves."""

from __future__ import annotations

import functools

import jax
import numpy as np

from hwopt import catalog
from hwopt.model.network.collectives import all_reduce_s
from results.claims.blueprint import CHIP, CHIPS, CONVERGED_TOKENS, best_on_blueprint, training
from results.claims.claim import HOLDS_WITHIN, Finding, at_least, by_factor, claim, either, half_right
from results.claims.machines import best, estimate, hidden, share, si, tokens_that_mend
from results.claims.serving_claims import gain
from tests.cases import replace

LARGE = 16_384
LARGE_PLAN = {"tp": 8, "pp": 4, "cp": 2, "virtual_stages": 32, "zero": 2}  # the fastest of all on one site


@functools.cache
def large(local_steps: int = 1, lines: str | None = None):
    """Llama 3.1 405B on 16,384 H100, at one site or two."""
    sites = 1 if lines is None else 2
    run = catalog.training_run("llama3.1-405b")
    cluster = catalog.cluster("h100-sxm", LARGE, sites=sites, lines=lines)
    return estimate(run, cluster, catalog.plan(run, LARGE, sites=sites, local_steps=local_steps, **LARGE_PLAN))


@claim("A46", "003:27", "pipeline parallelism costs activation memory")
def pipeline_activations() -> Finding:
    run = catalog.training_run("gpt3-175b", global_batch=1536)
    cluster = catalog.cluster("h100-sxm", 1024)

    def held(batch: int = 1536, **plan: int) -> tuple[float, float]:
        asked = replace(run, global_batch_sequences=float(batch))
        report = estimate(asked, cluster, catalog.plan(asked, 1024, tp=8, **plan))
        return float(report.memory.activations_bytes) / 1e9, float(report.memory.weights_bytes) / 1e9

    stages = 8
    (flat, all_weights), (piped, weights) = held(pp=1), held(pp=stages)
    one, chunks = held(batch=16, pp=stages)[0], held(pp=stages, virtual_stages=12)[0]
    return Finding(
        f"{piped / one:.1f} micro-batches in flight, {piped / flat:.2f} x the memory of no pipeline",
        by_factor(piped / one, float(stages)),
        f"GPT-3 on TP8: the first of {stages} stages keeps {stages} micro-batches of an eighth of the layers, {piped:.1f} "
        f"GB, where one is {one:.1f}; so activations do not shrink as weights do ({all_weights:.0f} to {weights:.1f} GB), "
        f"but they are no more than without a pipeline ({flat:.1f} GB); interleaving makes it {chunks:.1f}",
    )


@claim("A51", "003:41", "NVLink 4 carries more than 1 TB/s inside a node")
def nvlink_4() -> Finding:
    one, next_one = (si("links", name, "bandwidth") for name in ("nvlink-4", "nvlink-5"))
    chips = si("chips", "h100-sxm", "scale_up_domain")
    return Finding(
        f"{2.0 * one / 1e12:.2f} TB/s a chip, both directions",
        at_least(2.0 * one, 1e12),
        f"eighteen links make {one / 1e9:.0f} GB/s a direction, {2e-9 * one:.0f} as vendors count; all {chips:.0f} chips of "
        f"a node together send {chips * one / 1e12:.1f} TB/s, and NVLink 5 brings {2.0 * next_one / 1e12:.1f} a chip",
    )


@claim("A52", "003:41", "Infinity Fabric is similar on Radeon Instinct")
def infinity_fabric() -> Finding:
    ours, theirs = (si("links", name, "bandwidth") for name in ("infinity-fabric-mi300x", "nvlink-4"))
    pair = ours / si("links", "infinity-fabric-mi300x", "links")

    rates = [_bus_bytes_per_s(chip) / 1e9 for chip in ("mi300x", "h100-sxm")]
    return Finding(
        f"{ours / 1e9:.0f} against {theirs / 1e9:.0f} GB/s a direction",
        by_factor(ours, theirs),
        f"MI300X's seven links together; a pair of chips has only {pair / 1e9:.0f} GB/s where NVSwitch gives all "
        f"{theirs / 1e9:.0f}, and an all-reduce over eight reaches {rates[0]:.0f} against {rates[1]:.0f}; MI250X has "
        f"{si('links', 'infinity-fabric-mi250x', 'bandwidth') / 1e9:.0f}; neither is above 1 TB/s",
    )


def _bus_bytes_per_s(chip: str, message_bytes: float = 1e9, group: float = 8.0) -> float:
    """Bus bandwidth of a large all-reduce in a server."""
    network = catalog.cluster(chip, group).network
    with jax.enable_x64(True):
        seconds = all_reduce_s(network, *map(np.asarray, (message_bytes, group, 1.0, 0.0)))
    return 2.0 * (group - 1.0) / group * message_bytes / float(seconds)


@claim("A53", "003:41", "all-reduce dominates large-scale training")
def all_reduce_share() -> Finding:
    report = large()
    data, tensor = share(report, "dp_comm"), share(report, "tp_comm")
    compute = share(report, "compute", "memory_bound")
    return Finding(
        f"{100 * (data + tensor):.1f} % of the step",
        at_least(data + tensor, compute),
        f"Llama 3.1 405B on 16,384 H100 by its best plan: gradients {data:.1%} and tensor parallelism {tensor:.1%} that "
        f"nothing hides, against {compute:.0%} in kernels; {hidden(report):.0%} more communication runs hidden under these, "
        "so software that hides none would feel it, and still compute longer than it sends",
    )


@claim("A54", "003:42", "HBM pooled across nodes removes the need for model parallelism")
def pooled_memory() -> Finding:
    run = training(sequences=2400)
    cluster = catalog.cluster(CHIP, CHIPS)
    pooled = estimate(run, cluster, catalog.plan(run, CHIPS, cp=2, zero=3, recompute="full"))
    split = best_on_blueprint(CONVERGED_TOKENS, 1920).report
    slower = float(pooled.tokens_per_s) / float(split.tokens_per_s)
    hbm, nic = si("chips", CHIP, "memory_bandwidth"), si("links", "infiniband-ndr", "bandwidth")
    return Finding(
        f"{slower:.2f} x the speed, memory {float(pooled.memory_per_chip_bytes) / 1e9:.0f} GB",
        by_factor(slower, 1.0) if float(pooled.feasible) else "fails",
        "ZeRO-3 is such a pool in software: 500 B on 1,200 H100 without tensor or pipeline parallelism, weights gathered "
        f"layer by layer, fits with full recomputation at MFU {float(pooled.mfu):.0%} against {float(split.mfu):.0%}; each "
        "chip needs at least half a sequence of the batch, so it does not scale much further, and it is no use in "
        f"generation, where a NIC reads {hbm / nic:.0f} times slower than HBM",
    )


@claim("A55", "003:43", "TPU v5e and Trainium can beat GPUs for dense transformers")
def other_accelerators() -> Finding:
    run = catalog.training_run("llama2-70b", global_batch=1024)

    def usd(chip: str, price_usd: float = 0.0) -> float:
        """Of a million tokens, by the cheapest plan; a chip's other parts cost the same at another price."""
        cluster = catalog.cluster(chip, 256)
        if price_usd:
            base = cluster.prices.chip_base_usd + price_usd - si("chips", chip, "price")
            cluster = replace(cluster, prices__chip_base_usd=base)
        return 1e6 * float(best(run, cluster, objective="cost_per_token_usd").report.cost_per_token_usd)

    chips = ("tpu-v5e", "trainium1", "trainium2", "h100-sxm", "a100-80")
    tpu, first, second, hopper, ampere = map(usd, chips)
    price = catalog.record("chips", "tpu-v5e").quantities["price"]
    assert price.high is not None
    return Finding(
        f"v5e {tpu / hopper:.2f} x, Trainium {first / hopper:.2f} x and Trainium2 {second / hopper:.2f} x H100's cost",
        either(tpu < hopper and min(first, second) < hopper),
        f"USD a million tokens of Llama-2-70B on 256 chips, best plans: {tpu:.2f}, {first:.2f}, {second:.2f} against "
        f"{hopper:.2f} on H100 and {ampere:.2f} on A100, so the first Trainium beats A100 alone; neither is sold, and their "
        f"prices are estimates: a v5e of {price.high:,.0f} USD instead of {price.value:,.0f} would cost "
        f"{usd('tpu-v5e', price.high):.2f}",
    )


@claim("A76", "004:8", "training must be centralised")
def one_site() -> Finding:
    alone = large()

    def over(lines: str, local_steps: int = 1) -> float:
        return float(large(local_steps, lines).step_time_s) / float(alone.step_time_s)

    near, far, streamed = over("metro"), over("continental"), over("continental-streamed", 100)
    apart = large(100, "continental-streamed")
    more, tokens = (
        float(apart.loss) - float(alone.loss),
        tokens_that_mend(catalog.training_run("llama3.1-405b"), alone, apart),
    )
    internet = over("internet", 500)
    waits = float(large(lines="continental").breakdown.sites_comm_s)
    fibre, waves, public = (8e-12 * si("lines", name, "bandwidth") for name in ("metro", "continental", "internet"))
    return Finding(
        f"step x {near:.2f} over 50 km, x {far:.2f} over 3,000 km, x {streamed:.2f} with 100 local steps",
        either(min(near, streamed) > HOLDS_WITHIN),
        f"405 B on two sites of 8,192 H100: dark fibre of {fibre:.0f} Tb/s carries synchronous gradients, leased waves of "
        f"{waves:.0f} Tb/s do not: 2 x 1/2 x 405 B x 4 B over four fifths of them are {waits:.1f} s after each step of "
        f"{float(alone.step_time_s):.1f} ({far:.2f}), unless steps are local and exchanges streamed (loss + {more:.3f} nats by a "
        f"fit to 4 B parameters, which by the same law {tokens:.1f} times the tokens offset); over {1e3 * public:.0f} Gb/s of "
        f"internet even 500 local steps make it {internet:.2f}",
    )


@claim("A77", "004:9", "the bottleneck moves from arithmetic to memory, network and power")
def moving_bottleneck() -> Finding:
    run = catalog.training_run("gpt3-175b", global_batch=1536)
    plan = catalog.plan(run, 1024, tp=8, pp=8, virtual_stages=12)
    fields = (
        "chip__peak_flops_per_s",
        "chip__hbm_bandwidth_bytes_per_s",
        "network__bandwidth_bytes_per_s",
        "chip__power_cap_w",
    )

    def worth(chip: str) -> list[float]:
        return [gain(lambda c: estimate(run, c, plan), catalog.cluster(chip, 1024), field) for field in fields]

    each = [worth(chip) for chip in ("a100-80", "h100-sxm", "b200")]
    words, newest = [", ".join(f"{value:.2f}" for value in column) for column in zip(*each, strict=True)], each[-1]
    service = catalog.service("llama3.1-70b", mode="decode", precision="fp8")
    served = catalog.serving_plan(service, 8, tp=8, batch=64)
    around = catalog.cluster("h100-sxm", 8, stack=catalog.serving_stack("h100-sxm"))
    answer = [gain(lambda c: estimate(service, c, served), around, field) for field in fields]
    return Finding(
        f"training on B200: FLOP/s {newest[0]:.2f}, power {newest[3]:.2f}; generation on H100: HBM {answer[1]:.2f}",
        half_right(max(newest[1:]) > newest[0], max(answer[1:]) > answer[0]),
        f"per cent of speed by per cent of each, A100, H100, B200: in training FLOP/s {words[0]}, links {words[2]}, HBM "
        f"{words[1]} (faster HBM draws on what a chip at its cap may draw), power {words[3]}: arithmetic still binds, and "
        f"power where a chip stands at its cap; in generating tokens HBM is what counts ({answer[1]:.2f}, FLOP/s "
        f"{abs(answer[0]):.2f}, links {answer[2]:.2f})",
    )


@claim("A81", "004:12", "jitter forces fewer GPUs, and uniform latency beats peak bandwidth")
def jitter() -> Finding:
    run = catalog.training_run("gpt3-175b", global_batch=12288)
    # Congestion of RoCE without adaptive routing takes 10 to 40 % (Meta and Alibaba, SIGCOMM 2024, recalled): no public
    # distribution. A third, and a tail of 30 us a message.
    networks = {
        "even": {},
        "even, half": {"scale_out_bytes_per_s": si("links", "infiniband-hdr", "bandwidth")},
        "uneven": {"bandwidth_spread": 0.35, "latency_tail_s": 30e-6},
    }

    @functools.cache
    def rate(name: str, chips: int) -> float:
        plan = catalog.plan(run, chips, tp=8, pp=4, virtual_stages=24)
        report = estimate(run, catalog.cluster("h100-sxm", chips, **networks[name]), plan)
        return float(report.tokens_per_s) * float(report.goodput)

    few, many = 1536, 24576
    won = [rate("even, half", chips) / rate("uneven", chips) for chips in (few, many)]
    kept = [rate(name, many) / rate(name, few) / (many / few) for name in ("even", "uneven")]
    counts = (few, 2 * few, 4 * few, 8 * few, many)
    from_chips = next((n for n in counts if rate("even, half", n) > rate("uneven", n)), 2 * many)
    grows = rate("uneven", 2 * many) / rate("uneven", many)
    return Finding(
        f"x {won[0]:.2f} on 1,536, x {won[1]:.2f} on 24,576 H100",
        half_right(won[1] > 1.0, grows < 1.0),
        "speed on even 200 Gb/s over that on 400 Gb/s which vary by a third (assumed; no distribution is public): GPT-3 at "
        f"one batch, of sizes doubled from 1,536 the even ones win from {from_chips:,} on; the uneven keep {kept[1]:.0%} of "
        f"linear scaling on {many:,} against {kept[0]:.0%}, so fewer GPUs pay at an efficiency asked for, but twice as many "
        f"are still {grows:.2f} times as fast",
    )
