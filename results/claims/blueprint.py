"""Claims about a blueprint: 500 B parameters on 1,200 H100 in 30 racks of 40, TP8 x PP4, under 30 days."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from hwopt import catalog
from hwopt.errors import UserError
from results.claims.claim import Finding, at_least, by_factor, claim, either
from results.claims.machines import best, estimate, exposed, hidden, share, si
from tests.cases import replace

CHIP, CHIPS, RACKS, RACK_CHIPS, DAYS = "h100-sxm", 1200, 30, 40, 30.0
TP, PP = 8, 4
PARAMETERS = 500e9
LAYERS = 156  # of Llama 3.1 405B's own width instead of 126: 501 B parameters
CONVERGED_TOKENS = 20.0 * PARAMETERS  # Chinchilla
GPT3_ERA_TOKENS = 300e9
BATCH_TOKENS = 2048 * 8192  # of the catalogue's 405 B run
EARLY_BATCH_TOKENS = 512 * 8192  # 4 M tokens, as 530 B took in 2021
BATCH_LEEWAY = 1.05  # a batch may differ so much for the sake of whole replicas

DAY = 86400.0  # s

DIVISIBLE = (CHIPS // (TP * PP)) * TP * PP
"""The most chips within the blueprint's that its own plan divides."""


def training(tokens: float = CONVERGED_TOKENS, sequences: int = 1920):
    """The blueprint's model and batch; 1,920 sequences of 8,192 tokens divide among 1,200 chips, 2,048 don't."""
    return replace(catalog.training_run("llama3.1-405b", global_batch=sequences, tokens=tokens), model__layers=LAYERS)


@functools.cache
def best_on_blueprint(tokens: float, sequences: int):
    """The best plan on 1,200 H100 with the network they are sold with."""
    return best(training(tokens, sequences), catalog.cluster(CHIP, CHIPS))


@functools.cache
def own_plan(scale_out: str = "infiniband-hdr", zero: int = 1, recompute: str = "full"):
    """The blueprint's TP8 x PP4 on the 1,184 chips that it divides, a micro-batch of one sequence, 1F1B."""
    run = training(sequences=DIVISIBLE // (TP * PP) * 52)
    cluster = catalog.cluster(CHIP, DIVISIBLE, scale_out=scale_out)
    return estimate(run, cluster, catalog.plan(run, DIVISIBLE, tp=TP, pp=PP, zero=zero, recompute=recompute))


class SmallestCluster(NamedTuple):
    """The fewest H100 that train a run in time, failures included, and how."""

    chips: int
    days: float
    batch_sequences: int
    plan: dict[str, int]
    mfu: float
    goodput: float
    power_w: float  # at the meter, average
    cost_usd: float  # of the run


def _batches(chips: int, most_tokens: float) -> list[int]:
    """Batches in sequences near a number of tokens that whole replicas of usual sizes share, small ones first."""
    aim = most_tokens / 8192
    found = set()
    for replica in (64, 80, 96, 128):
        dp, rest = divmod(chips, replica)
        if not rest:
            found.add(dp * max(1, round(aim / dp)))
    return sorted(batch for batch in found if aim / BATCH_LEEWAY <= batch <= aim * BATCH_LEEWAY)


@functools.cache
def _fastest(tokens: float, batch_tokens: float, chips: int):
    """(days, batch, candidate) of the best plan over batches, or None where nothing divides or fits."""
    found = []
    for batch in _batches(chips, batch_tokens):
        try:
            candidate = best(training(tokens, batch), catalog.cluster(CHIP, chips))
        except UserError:  # no plan divides
            continue
        if float(candidate.report.feasible):
            found.append((float(candidate.report.run_time_s) / DAY, batch, candidate))
    return min(found, key=lambda each: each[:2], default=None)


@functools.cache
def smallest_cluster(
    tokens: float = CONVERGED_TOKENS, days: float = DAYS, batch_tokens: float = BATCH_TOKENS, step: int = 256
) -> SmallestCluster:
    """The fewest H100 that train the blueprint's model on so many tokens in so many days, by the best plan of each number.

    Chips in multiples of `step`, upwards from 3 % below where a smaller cluster would arrive if scaling were free: neither MFU
    nor goodput grows with a cluster, but for luck in dividing. Batches within a twentieth of `batch_tokens`.
    """
    even = 640  # divides into replicas of 64, 80 and 128
    chips = 2.0 * PARAMETERS * tokens / (0.45 * si("chips", CHIP, "peak.bf16") * days * DAY)  # a third of a first guess
    for _ in range(2):
        middle = max(round(chips / even), 4)
        near = (
            even * (middle + off) for off in (0, 1, -1, 2, -2, 3, -3)
        )  # not all numbers share a batch near the one asked for
        below, known = next((n, found) for n in near if (found := _fastest(tokens, batch_tokens, n)) is not None)
        chips = below * known[0] / days
    least = math.ceil(0.97 * chips / step) * step
    for chips in range(least, 2 * least, step):
        found = _fastest(tokens, batch_tokens, chips)
        if found is not None and found[0] <= days:
            break
    else:
        raise UserError(f"no cluster below {2 * least:,} {CHIP} trains the run in {days:g} days")
    took, batch, candidate = found
    report, plan = candidate.report, candidate.plan
    names = ("tp", "pp", "dp", "cp", "virtual_stages", "micro_batch")
    return SmallestCluster(
        chips, took, batch, {name: round(float(getattr(plan, name))) for name in names}, float(report.mfu),
        float(report.goodput), float(report.power_w), float(report.run_cost_usd),
    )  # fmt: skip


@claim("A56", "003:46-47", '500 B parameters "to convergence" in under 30 days on 1,200 H100')
def blueprint_days() -> Finding:
    converged = float(best_on_blueprint(CONVERGED_TOKENS, 1920).report.run_time_s) / DAY
    early = float(best_on_blueprint(GPT3_ERA_TOKENS, 480).report.run_time_s) / DAY
    needed = smallest_cluster()
    enough = smallest_cluster(GPT3_ERA_TOKENS, DAYS, EARLY_BATCH_TOKENS, 16)
    flop = 6.0 * PARAMETERS * CONVERGED_TOKENS
    plan = " x ".join(f"{name.upper()}{needed.plan[name]}" for name in ("tp", "pp", "cp", "dp"))
    return Finding(
        f"{converged:.0f} days; {needed.chips:,} H100 do it in 30",
        at_least(DAYS, converged),
        f"20 tokens a parameter are {flop:.1e} FLOP, {converged / DAYS:.0f} times too many even by the best plan; at 16 M "
        f"tokens a step the smallest cluster is {needed.chips:,} H100 ({plan}, MFU {needed.mfu:.0%}, goodput "
        f"{needed.goodput:.0%}, {needed.power_w / 1e6:.0f} MW, {needed.days:.1f} days); the 300 B tokens of GPT-3's day, a "
        f"thirtieth, take {early:.0f} days, and {enough.chips} H100 would do",
    )


@claim("A57", "003:47", "30 racks of 40 H100")
def blueprint_racks() -> Finding:
    each = {name: rack_of_forty(name) for name in ("air", "rear-door", "direct-liquid")}
    fit = [name for name, report in each.items() if float(report.margins.rack_power) >= 0.0]
    alone = float(catalog.cluster(CHIP, CHIPS).rack.chips)
    power = float(each["direct-liquid"].rack_power_w)
    return Finding(
        f"{RACKS * RACK_CHIPS:,} chips, {power / 1e3:.0f} kW a rack",
        either(RACKS * RACK_CHIPS == CHIPS and bool(fit)),
        f"five servers of 8 a rack draw {float(each['air'].rack_power_w) / 1e3:.0f} kW with fans, {power / 1e3:.0f} with "
        f"cold plates: {' or '.join(fit)} carries that; by air {alone:.0f} chips a rack, {CHIPS / alone:.0f} racks",
    )


@functools.cache
def rack_of_forty(cooling: str):
    """The blueprint's chips in its racks, by the best plan's degrees."""
    run = training()
    cluster = catalog.cluster(CHIP, CHIPS, cooling=cooling, rack_chips=RACK_CHIPS)
    return estimate(run, cluster, best_on_blueprint(CONVERGED_TOKENS, 1920).plan)


@claim("A58", "003:47", "NVLink 3.0 joins the H100 of a rack")
def blueprint_nvlink() -> Finding:
    link, domain = str(catalog.record("chips", CHIP).text["scale_up"]), si("chips", CHIP, "scale_up_domain")
    rates = [si("links", name, "bandwidth") / 1e9 for name in (link, "nvlink-3")]
    return Finding(
        f"{domain:.0f} chips on {rates[0]:.0f} GB/s",
        either(link == "nvlink-3" and domain >= RACK_CHIPS),
        f"H100 has {link.replace('nvlink-', 'NVLink ')}, {rates[0]:.0f} GB/s a direction against {rates[1]:.0f} of NVLink 3 "
        f"(A100), and its domain is one server of {domain:.0f}: between the {RACK_CHIPS / domain:.0f} servers of a rack "
        "there is only the scale-out network",
    )


@claim("A59", "003:47", "InfiniBand HDR, 200 Gb/s, for 1,200 H100")
def blueprint_hdr() -> Finding:
    run, plan = training(), best_on_blueprint(CONVERGED_TOKENS, 1920).plan
    rate = si("links", "infiniband-hdr", "bandwidth")

    def step(**network) -> float:
        return float(estimate(run, catalog.cluster(CHIP, CHIPS, **network), plan).step_time_s)

    usual = step()
    port = step(scale_out="infiniband-hdr") / usual
    shared = step(scale_out="infiniband-hdr", scale_out_bytes_per_s=rate / 8.0) / usual
    return Finding(
        f"step x {port:.3f} with a port a chip, x {shared:.2f} with one a server",
        by_factor(port, 1.0),
        f"H100 servers are sold with 400 Gb/s a chip; half of that costs {port - 1.0:.1%} of the step because most is "
        f"hidden, but one 200 Gb/s port for eight chips would cost {shared - 1.0:.0%}",
    )


@claim("A60", "003:48", "TP8 x PP4 leaves about 5 GB of weights on a GPU")
def blueprint_weights() -> Finding:
    held = float(own_plan().memory.weights_bytes)
    return Finding(
        f"{held / 1e9:.1f} GB",
        by_factor(held, 5e9),
        f"{PARAMETERS:.0e} x 2 B / {TP * PP} = {PARAMETERS * 2 / (TP * PP) / 1e9:.1f} GB in bf16 (the fullest stage has a "
        f"little more); 5 GB would need {PARAMETERS * 2 / 5e9:.0f}-way model parallelism, or 2.6 bits a weight",
    )


@claim("A61", "003:48", "that memory plan fits")
def blueprint_memory() -> Finding:
    plain, sharded = own_plan(zero=0), own_plan()
    kept = own_plan(recompute="none")
    room, needed = (float(getattr(plain, f"memory_{name}_bytes")) for name in ("capacity", "per_chip"))
    fits = float(sharded.memory_per_chip_bytes)
    return Finding(
        f"{needed / 1e9:.0f} GB as stated, {fits / 1e9:.0f} GB with a sharded optimizer",
        at_least(room, needed),
        f"weights, gradients, master copy and moments of {PARAMETERS / (TP * PP) / 1e9:.1f} B parameters and checkpointed "
        f"activations against {room / 1e9:.1f} GB; ZeRO-1 over the replicas and recomputing every layer make it fit, without "
        f"recomputation it is {float(kept.memory_per_chip_bytes) / 1e9:.0f} GB",
    )


@claim("A62", "003:47-48", "1,200 GPUs with 32-way model parallelism")
def blueprint_divides() -> Finding:
    replicas = CHIPS / (TP * PP)
    found = best_on_blueprint(CONVERGED_TOKENS, 1920).plan
    degrees = ", ".join(f"{name} {float(getattr(found, name)):.0f}" for name in ("tp", "pp", "cp", "dp"))
    return Finding(
        f"{replicas:.1f} replicas",
        either(CHIPS % (TP * PP) == 0),
        f"{CHIPS:,} / {TP * PP} is not whole: {DIVISIBLE:,} or {DIVISIBLE + TP * PP:,} chips would divide, and a rack of 40 "
        f"holds {RACK_CHIPS / (TP * PP):.2f} replicas; the best plan that uses all 1,200 is {degrees}",
    )


@claim("A65", "003:51", "communication takes about 5 % of a step")
def blueprint_communication() -> Finding:
    stated, found = own_plan(), best_on_blueprint(CONVERGED_TOKENS, 1920).report
    return Finding(
        f"{100 * exposed(stated):.1f} %, another {100 * hidden(stated):.0f} % hidden",
        by_factor(exposed(stated), 0.05),
        "TP8 x PP4 over HDR, what is not hidden under compute; with the 400 Gb/s that H100 are sold with "
        f"{exposed(own_plan('infiniband-ndr')):.1%}, by the best plan on all 1,200 {exposed(found):.1%}: the claim errs on "
        "the safe side",
    )


@claim("A66", "003:51", "GPUs are 78 % utilised, pipeline bubbles included")
def blueprint_utilisation() -> Finding:
    stated, found = own_plan(), best_on_blueprint(CONVERGED_TOKENS, 1920).report
    busy = share(stated, "compute", "memory_bound", "optimizer")
    return Finding(
        f"{100 * float(stated.hfu):.0f} % of peak, {100 * float(stated.mfu):.0f} % useful, {100 * busy:.0f} % of the time",
        by_factor(float(stated.hfu), 0.78),
        f"kernels run {busy:.0%} of the step (bubble {share(stated, 'pp_bubble'):.1%}), which is what a monitor shows and "
        f"would let the claim stand; of the peak they do {float(stated.hfu):.0%} with the layers that TP8 x PP4 must "
        f"recompute to fit, {float(stated.mfu):.0%} without, on which the days depend; the best plan reaches "
        f"{float(found.mfu):.0%}",
    )
