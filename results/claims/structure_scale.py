"""Claims of structure about size: what more chips, sites, tokens and failures do to a run."""

from __future__ import annotations

import math

import jax
import numpy as np

from hwopt import catalog
from hwopt.model.numerics.maximum import expected_maximum_sigmas
from hwopt.model.training import learning
from hwopt.workload.transformer import total_parameters
from results.claims.claim import HOLDS_WITHIN, Finding, at_least, by_factor, claim, either
from results.claims.machines import best, estimate, tokens_that_mend
from results.claims.structure_machines import (
    BATCH,
    CHIPS,
    FABRIC,
    FLOPS,
    HBM,
    LINKS,
    MANY,
    best_of,
    changed,
    gpt3,
    h100,
    speed,
    worth,
)

SITES = FABRIC | {"sites": 3}
LOCAL_STEPS = 500.0  # of DiLoCo, arXiv 2311.08105


def _mfu(found) -> float:
    return 100.0 * float(found.report.mfu)


@claim("B1", "000:5", 'interconnect, memory and infrastructure are "the real" bottlenecks')
def real_bottlenecks() -> Finding:
    run, cluster, found = gpt3(), h100(MANY), best_of(MANY)
    arithmetic, memory, links = (-worth(what, run, cluster, found.plan) for what in (FLOPS, HBM, LINKS))
    roomy = best(run, changed(cluster, lambda c: c.chip.hbm_capacity_bytes, 2.0))
    room = float(found.report.step_time_s / roomy.report.step_time_s)
    doubled = speed(best_of(2 * MANY)) / speed(found)
    return Finding(
        f"1 % more: FLOP/s {arithmetic:.2f} %, memory {memory:.3f} %, all links {links:.3f} % of speed",
        either(memory + links > arithmetic),
        f"GPT-3 on {MANY:,} H100 at its best plan: a per cent of arithmetic is worth "
        f"{arithmetic / (memory + links):.0f} times as much as one of memory bandwidth and of all links together; "
        f"twice the capacity makes {room:.2f} times the speed; power and floor limit how many chips there are, and "
        f"twice of them bring {doubled:.2f} times: infrastructure buys arithmetic, it does not replace it as "
        "bottleneck",
    )


@claim("B2", "000:10", "models are trained across several data centres")
def several_sites() -> Finding:
    one = float(best_of().report.step_time_s)
    region = float(best_of(**SITES, lines="metro").report.step_time_s) / one
    continent = float(best_of(**SITES, lines="continental").report.step_time_s) / one
    return Finding(
        f"{region:.2f} times the step over three sites of a region, {continent:.2f} times over three of a continent",
        by_factor(region, 1.0),
        f"GPT-3 on {CHIPS:,} H100 in three buildings 50 km apart, every step synchronous, is "
        f"{100 * (region - 1):.0f} % slower: possible, and worth it where one site lacks power; 3,000 km apart on 4 "
        f"Tb/s it takes {continent:.2f} times as long",
    )


@claim("B9", "000:58", "compute-efficient training reduces the need for compute")
def compute_efficient() -> Finding:
    run = gpt3()
    with jax.enable_x64(True):
        size, spent = float(total_parameters(run.model)), float(run.tokens)
        reached = float(learning.loss(run.law, size, spent))
        low, high = 20.0, 25.0  # exponents of ten, FLOP
        for _ in range(40):
            middle = 0.5 * (low + high)
            optimum = learning.compute_optimal(run.law, 10.0**middle)
            low, high = (middle, high) if float(learning.loss(run.law, *optimum)) > reached else (low, middle)
        parameters, tokens = map(float, learning.compute_optimal(run.law, 10.0**high))
    saving = 6.0 * size * spent / 10.0**high
    return Finding(
        f"{saving:.2f} times less compute for GPT-3's loss",
        at_least(saving, HOLDS_WITHIN),
        f"by the refitted Chinchilla law {parameters / 1e9:.0f} B parameters on {tokens / 1e12:.2f} T tokens reach "
        f"the loss that GPT-3 got from {size / 1e9:.0f} B on 0.3 T, for {10.0**high:.1e} instead of "
        f"{6.0 * size * spent:.1e} FLOP; whether a saving is spent on larger models is not the model's to say",
    )


@claim("B10", "001:32", "more GPUs can reduce efficiency")
def knee() -> Finding:
    few, many = best_of(MANY), best_of(2 * MANY)
    first = speed(best_of()) / speed(best_of(384))
    gain = speed(many) / speed(few)
    dearer = float(many.report.run_cost_usd / few.report.run_cost_usd) - 1.0
    return Finding(
        f"{gain:.2f} times the speed from {MANY:,} to {2 * MANY:,} chips",
        either(gain < 2.0 / HOLDS_WITHIN),
        "GPT-3 at a fixed batch, each size at its best plan, failures counted: four times 384 chips bring "
        f"{first:.2f} times the speed, the last doubling {gain:.2f} times, and the run becomes {100 * dearer:.0f} % "
        "dearer",
    )


@claim("B13", "001:46", "large batches hurt quality, small ones leave a cluster idle")
def batch_size() -> Finding:
    run, length = gpt3(), float(gpt3().sequence_length)
    with jax.enable_x64(True):
        size = total_parameters(run.model)
        critical = float(learning.critical_batch_tokens(run.law, size, run.tokens))
        large = round(critical / length / CHIPS) * CHIPS
        useful = float(learning.effective_tokens(run.law, size, run.tokens, large * length) / run.tokens)
    usual, busy = float(best_of().report.loss), _mfu(best_of())
    loss = float(estimate(gpt3(float(large)), h100(), best_of().plan).loss)
    idle = _mfu(best_of(batch=BATCH / 8))
    return Finding(
        f"loss {usual:.3f} at {BATCH * length / 1e6:.1f} M tokens a step, {loss:.3f} at {large * length / 1e6:.0f} "
        f"M; MFU {busy:.0f} % and {idle:.0f} % at {BATCH / 8 * length / 1e6:.2f} M",
        either(loss > 1.01 * usual and idle < busy / HOLDS_WITHIN),
        f"at the critical batch of GPT-3's 300 G tokens, {critical / 1e6:.0f} M, they teach as much as "
        f"{100 * useful:.0f} % of them would in small batches; at an eighth of its own batch {CHIPS:,} chips reach "
        f"{idle:.0f} % of peak instead of {busy:.0f} %",
    )


@claim("B14", "001:54", "fault overhead grows with the cluster")
def faults() -> Finding:
    sizes = (CHIPS, MANY, 2 * MANY)
    lost = [100.0 * (1.0 - float(best_of(chips).report.goodput)) for chips in sizes]
    hours = [float(best_of(chips).report.mean_time_between_failures_s) / 3600.0 for chips in sizes]
    return Finding(
        ", ".join(f"{share:.1f} % lost on {chips:,} chips" for share, chips in zip(lost, sizes, strict=True)),
        either(lost[0] < lost[1] < lost[2]),
        f"any chip stops the job, so its interruptions come every {hours[0]:.0f}, {hours[1]:.1f} and {hours[2]:.1f} "
        f"hours; with the best time between checkpoints {sizes[1] // sizes[0]} times the chips lose "
        f"{lost[1] / lost[0]:.1f} times the share",
    )


@claim("B15", "001:66", "utilisation falls with cluster size")
def utilisation() -> Finding:
    few, many, grown = _mfu(best_of()), _mfu(best_of(MANY)), _mfu(best_of(MANY, batch=BATCH * MANY / CHIPS))
    return Finding(
        f"MFU {few:.1f} % on {CHIPS:,} chips, {many:.1f} % on {MANY:,}",
        either(many < few / HOLDS_WITHIN),
        f"at GPT-3's own batch every chip of {MANY:,} has an eighth of the work between two exchanges; where the "
        f"batch grows with the cluster MFU stays at {grown:.1f} %, so it is the batch, not the number of chips, "
        "that costs",
    )


@claim("B16", "001:76", "federated, progressive and transfer learning avoid the limits")
def low_communication() -> Finding:
    one, wide = best_of(), best_of(**SITES, lines="continental")
    apart = best_of(**SITES, lines="continental", local_steps=LOCAL_STEPS)
    penalty, tokens = float(apart.report.loss / one.report.loss), tokens_that_mend(gpt3(), one.report, apart.report)
    step, waits = (float(each.report.step_time_s / one.report.step_time_s) for each in (apart, wide))
    lines = float(wide.report.breakdown.sites_comm_s)
    return Finding(
        f"{step:.2f} times the step, {tokens:.2f} times the tokens for the same loss",
        either(step * tokens <= HOLDS_WITHIN),
        f"three sites of a continent that exchange every {LOCAL_STEPS:.0f} steps do not wait (synchronous, 2 x 2/3 x 175 B x "
        f"4 B over four fifths of 4 Tb/s take {lines:.1f} s after each step of {float(one.report.step_time_s):.1f}: "
        f"{waits:.2f} times) and learn less: by the published fit, of models up to 2.4 B, a loss "
        f"{100 * (penalty - 1):.1f} % higher, which {tokens:.2f} times the tokens offset: one limit is exchanged for "
        "another; transfer learning lives on tokens another run paid for, and models that grow are not in the model",
    )


@claim("B17", "001:84", "hardware, software and algorithms must be designed together")
def codesign() -> Finding:
    old, new = ("a100-80", {"fabric": "hdr-fat-tree"}), ("h100-sxm", FABRIC)

    def gained(machine, stack: str, precision: str) -> float:
        chip, around = machine
        undocumented = precision == "fp8" and stack == "megatron-2021"  # asked as if that software had 8-bit products
        return speed(best_of(CHIPS, chip, precision=precision, stack=stack, any_software=undocumented, **around))

    base = gained(old, "megatron-2021", "bf16")
    chip, software, format = (
        gained(*each) / base
        for each in ((new, "megatron-2021", "bf16"), (old, "nemo-2025", "bf16"), (old, "megatron-2021", "fp8"))
    )
    together = gained(new, "nemo-2025", "fp8") / base
    return Finding(
        f"{together:.1f} times together, {chip * software * format:.1f} times as the product of each alone",
        either(together > HOLDS_WITHIN * chip * software * format),
        f"GPT-3 on {CHIPS:,} chips: A100 to H100 alone brings {chip:.2f} times, software of 2025 alone "
        f"{software:.2f}, 8-bit products alone {format:.2f} (A100 has no units for them), all at once "
        f"{together:.2f}: each needs the others",
    )


@claim("B33", "003:33", "density reduces floor and hops but raises the risk of cascades")
def density() -> Finding:
    plan, around = best_of().plan, {"cooling": "direct-liquid"}
    sparse, dense = (estimate(gpt3(), h100(rack_chips=chips, **around), plan) for chips in (32, 64))
    floor, behind = (float(getattr(sparse, name) / getattr(dense, name)) for name in ("floor_area_m2", "racks"))
    hops = float(catalog.topology("ndr-fat-tree").worst_hops(np.float64(CHIPS)))
    saved = 1.0 - float(dense.step_time_s / sparse.step_time_s)
    alike = float(dense.mean_time_between_failures_s / sparse.mean_time_between_failures_s)
    parts = (floor > HOLDS_WITHIN, saved > 1e-3, behind > HOLDS_WITHIN)  # a path that is shorter saves some of a step
    return Finding(
        f"{float(sparse.floor_area_m2):.0f} m2 with 32 chips a rack, {float(dense.floor_area_m2):.0f} m2 with 64; "
        f"{hops:.0f} switches on a path in both",
        at_least(sum(parts), len(parts)),
        f"{CHIPS:,} H100 in racks of 64 take {floor:.1f} times less floor; hops follow from the ports of switches, "
        f"and shorter cables save {1e6 * saved:.0f} millionths of a step; a rack that fails takes {behind:.0f} "
        f"times the chips, though of a synchronous job any one chip is enough ({alike:.2f} times the time between "
        "interruptions, by failures that are independent)",
    )


@claim("B36", "003:38", "stragglers cause long tails")
def stragglers() -> Finding:
    sigma = 100.0 * float(h100().stack.jitter_sigma)
    many, few = (float(expected_maximum_sigmas(np.float64(chips))) for chips in (16384, 8))
    spread = math.pi / math.sqrt(6.0) / math.sqrt(2.0 * math.log(16384))  # of the maximum, Gumbel's limit
    return Finding(
        f"{many * sigma:.1f} % of a step on 16,384 chips, {few * sigma:.1f} % on 8",
        either(many > few),
        f"a step ends with its slowest chip: of a spread of {sigma:.2f} % a chip, 16,384 lose {many:.2f} standard "
        f"deviations and 8 {few:.2f}; what grows is every step more than the tail, since the slowest of 16,384 "
        f"varies {spread:.2f} times as much as one chip does",
    )
