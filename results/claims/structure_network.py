"""Claims of structure about links, fabrics, and what travels on them."""

from __future__ import annotations

import jax
import numpy as np

from hwopt import catalog
from hwopt.model.network import collectives
from results.claims.claim import HOLDS_WITHIN, Finding, at_least, claim, either
from results.claims.machines import best, estimate, exposed, hidden, shares, si
from results.claims.structure_machines import BATCH, CHIPS, LINKS, MANY, PCIE, best_of, changed, gpt3, h100

HALF_INSIDE, TWICE_INSIDE, TWICE_OUTSIDE = (np.array(each) for each in ([0.5, 1, 1], [2.0, 1, 1], [1.0, 2, 2]))
_compiled = jax.jit(collectives.all_reduce_s)


def _all_reduce_s(network, size_bytes: float, group: float, stride: float) -> float:
    """An all-reduce without software's launch."""
    with jax.enable_x64(True):
        arguments = (np.float64(each) for each in (size_bytes, group, stride, 0.0))
        return float(_compiled(network, *arguments))


@claim("B3", "000:14", "communication between GPUs is the weak link")
def weak_link() -> Finding:
    small, large = (best_of(chips).report for chips in (CHIPS, MANY))
    parts = shares(large)
    of_lost = exposed(large) / (1.0 - parts["compute"])
    waits = parts["pp_bubble"] + parts["pp_imbalance"]
    return Finding(
        f"{100 * exposed(small):.1f} % of a step on {CHIPS:,} chips, {100 * exposed(large):.1f} % on {MANY:,}",
        at_least(of_lost, 0.5),  # weak link: most of what is lost
        f"GPT-3 on H100 at its best plan computes {100 * parts['compute']:.0f} % of a step on {MANY:,} chips; data "
        f"of others cost {100 * exposed(large):.1f} %, idle pipeline stages {100 * waits:.1f} %, software "
        f"{100 * parts['overhead']:.1f} %: communication is {100 * of_lost:.0f} % of what is lost, the link that "
        "weakens first as a cluster grows and not the one that limits it",
    )


@claim("B5", "000:27", "without NVLink and SXM sockets models would not even fit across GPUs")
def fits_without_nvlink() -> Finding:
    with_it, without = best_of(), best_of(**PCIE)
    same = estimate(gpt3(), h100(**PCIE), with_it.plan)
    held = float(same.memory_per_chip_bytes) / 1e9
    return Finding(
        f"{float(with_it.report.memory_per_chip_bytes) / 1e9:.1f} GB a chip with NVLink, {held:.1f} GB with PCIe",
        either(not bool(same.feasible)),
        f"what a chip holds follows from the plan and not from the link: GPT-3's {held:.0f} GB are the same over "
        "PCIe 5.0, and the best plan there takes "
        f"{float(without.report.step_time_s / with_it.report.step_time_s):.2f} times as long; a shared address "
        "space is true of NVLink and used by no plan here",
    )


@claim("B6", "000:38", "NVLink avoids host memory; training would collapse without it")
def collapse_without_nvlink() -> Finding:
    def slower(chips: int) -> tuple[float, float]:
        # Staged in host memory a byte crosses the socket twice.
        staged = best(gpt3(), changed(h100(chips, **PCIE), LINKS, HALF_INSIDE))
        one = best_of(chips).report.step_time_s
        return float(best_of(chips, **PCIE).report.step_time_s / one), float(staged.report.step_time_s / one)

    (few, few_staged), (many, many_staged) = slower(CHIPS), slower(MANY)
    inside, instead = si("links", "nvlink-4", "bandwidth"), si("links", "pcie-5", "bandwidth")
    return Finding(
        f"{few:.2f} times the step over PCIe, {few_staged:.2f} times through host memory; {many_staged:.2f} times "
        f"at {MANY:,} chips",
        either(few_staged >= 2.0),  # collapse: at the very least half the speed is gone
        f"with {instead / 1e9:.0f} GB/s in place of {inside / 1e9:.0f} the best plan of GPT-3 on {CHIPS:,} H100 "
        f"splits tensors less and takes {few:.2f} times as long, {few_staged:.2f} times with every byte staged in "
        f"host memory; on {MANY:,}, where the same batch is thin, {many:.2f} and {many_staged:.2f} times: dear "
        "there, and no collapse",
    )


@claim("B12", "001:42", "sharding adds communication")
def sharding_communicates() -> Finding:
    run = catalog.training_run("llama3-70b", global_batch=1024)
    cluster = h100(512)

    def report(**split):
        return estimate(run, cluster, catalog.plan(run, 512, **split))

    def busy(**split) -> float:
        found = report(**split)
        return (exposed(found) + hidden(found)) * float(found.step_time_s)

    plain = report(zero=1)
    over = float(plain.memory_per_chip_bytes / plain.memory_capacity_bytes)
    replicas, tensors, stages, shards = busy(zero=1), busy(tp=8), busy(pp=8), busy(zero=3)
    return Finding(
        f"{replicas:.2f} s a step for replicas, {tensors:.2f} s with tp=8, {stages:.2f} s with pp=8, {shards:.2f} s "
        "with FSDP",
        at_least(sum(each > replicas for each in (tensors, stages, shards)), 3),
        f"Llama-3-70B on 512 H100, exposed and hidden: whole replicas send gradients for {replicas:.2f} s; tensor "
        f"parallelism and FSDP send more, pipeline stages {'more' if stages > replicas else 'less'}, as each then "
        f"reduces an eighth of the gradients; whole replicas would need {over:.1f} times the memory there is",
    )


@claim("B22", "002:10", "data parallelism shares gradients, tensor and pipeline parallelism exchange activations")
def what_is_sent() -> Finding:
    # Nothing is hidden, so that all of it can be seen.
    cluster = changed(h100(), lambda c: (c.stack.dp_overlap, c.stack.tp_overlap, c.stack.pp_overlap), 0.0)

    def sent(batch: float):
        return estimate(gpt3(batch), cluster, best_of().plan).breakdown

    once, twice = sent(BATCH), sent(2.0 * BATCH)
    names = ("dp_comm_s", "tp_comm_s", "pp_comm_s")
    data, tensor, pipeline = (float(getattr(twice, name) / getattr(once, name)) for name in names)
    return Finding(
        f"with twice the batch {data:.2f} times for gradients, {tensor:.2f} times for tensors, {pipeline:.2f} times "
        "for stages",
        either(data < HOLDS_WITHIN and min(tensor, pipeline) > 2.0 / HOLDS_WITHIN),
        "time of GPT-3's traffic in a step when its sequences double: gradients have the size of the model, "
        f"whatever the batch ({data:.2f} times); activations grow with the tokens ({tensor:.2f} and {pipeline:.2f} "
        "times)",
    )


@claim("B24", "002:13", "NVLink inside the server, Ethernet or InfiniBand across")
def two_levels() -> Finding:
    found, flat = best_of(MANY), best_of(MANY, domain=1)
    inside, across = si("links", "nvlink-4", "bandwidth") / 1e9, si("links", "infiniband-ndr", "bandwidth") / 1e9
    tp, slower = float(found.plan.tp), float(flat.report.step_time_s / found.report.step_time_s)
    domain = si("chips", "h100-sxm", "scale_up_domain")
    return Finding(
        f"{inside:.0f} GB/s inside, {across:.0f} GB/s across; one level of {across:.0f} GB/s takes {slower:.2f} "
        "times as long",
        either(inside > across and tp <= domain and slower > 1.0),
        f"the best plan of {MANY:,} H100 has tp={tp:.0f} on servers of {domain:.0f} chips, and a step "
        f"without the inner level takes {slower:.2f} times as long; the line moves: a GB200 has "
        f"{si('chips', 'gb200', 'scale_up_domain'):.0f} chips inside, and a TPU v4 pod is one torus of "
        f"{si('chips', 'tpu-v4', 'scale_up_domain'):,.0f}",
    )


@claim("B31", "003:22", "NVLink does not help across nodes; these need a fabric with RDMA")
def across_nodes() -> Finding:
    cluster = h100()
    group = (2.8e9, CHIPS / 8, 8)  # a rank's bytes, one chip a server
    base = _all_reduce_s(cluster.network, *group)
    nvlink = base / _all_reduce_s(changed(cluster, LINKS, TWICE_INSIDE).network, *group)
    nic = base / _all_reduce_s(changed(cluster, LINKS, TWICE_OUTSIDE).network, *group)
    # Sockets instead of RDMA: ten times the latency of a step (assumption), the rate of the wire.
    late = changed(h100(MANY), lambda c: c.network.latency_s, np.array([1.0, 10, 10]))
    slower = float(estimate(gpt3(), late, best_of(MANY).plan).step_time_s / best_of(MANY).report.step_time_s)
    return Finding(
        f"twice the NVLink {nvlink:.2f} times, twice the fabric {nic:.2f} times the speed of an all-reduce across "
        "servers",
        either(nvlink < 1.01 and nic > 2.0 / HOLDS_WITHIN),
        f"an all-reduce over one chip of each of {CHIPS // 8} servers gains {100 * (nvlink - 1):.0f} % from twice "
        f"the NVLink and {100 * (nic - 1):.0f} % from twice the fabric; RDMA helps more than it is needed: ten "
        f"times its latency takes {slower:.2f} times the step on {MANY:,} chips (what it saves a host is not in the "
        "model); in a GB200 rack NVLink itself crosses 18 nodes",
    )


@claim("B32", "003:22", "fat tree or dragonfly changes cost and failure domain")
def tree_or_dragonfly() -> Finding:
    ends, names = np.float64(16384), ("roce-400-fat-tree", "dragonfly-400")
    tree, fly = (float(catalog.topology(name).price_usd(ends, catalog.parts(name)) / ends) for name in names)
    leaf, router = si("fabrics", names[0], "radix") / 2.0, si("fabrics", names[1], "hosts")
    usual, other = (float(best_of(fabric=name, objective="run_cost_usd").report.run_cost_usd) for name in names)
    return Finding(
        f"{tree:,.0f} $ and {leaf:.0f} chips a leaf against {fly:,.0f} $ and {router:.0f} chips a router",
        either(tree / fly > HOLDS_WITHIN and leaf > HOLDS_WITHIN * router),
        f"of 16,384 ends of 400 Gb/s Ethernet each costs {tree:,.0f} $ on a fat tree, where a leaf that fails takes "
        f"{leaf:.0f} chips, and {fly:,.0f} $ on a dragonfly, where a router takes {router:.0f}; GPT-3's run on "
        f"{CHIPS:,} chips becomes {100 * (1 - other / usual):.1f} % cheaper by it",
    )


@claim("B34", "003:36", "the right communication library saves seconds an epoch")
def seconds_an_epoch() -> Finding:
    # ResNet-50: 25.6 M parameters (He et al. 2015), fp32 gradients; ImageNet has 1,281,167 images, 256 a step.
    gradients, steps = 25.6e6 * 4.0, 1_281_167 / 256
    direct = h100(8).network
    staged = changed(h100(8, **PCIE), LINKS, HALF_INSIDE).network  # through host memory, as a library unaware of NVLink
    saved = steps * (_all_reduce_s(staged, gradients, 8, 1) - _all_reduce_s(direct, gradients, 8, 1))
    run, plan = gpt3(), best_of().plan
    slow = changed(h100(), lambda c: c.stack.collective_launch_s, 10.0)
    run_steps = float(run.tokens / (run.global_batch_sequences * run.sequence_length))
    longer = run_steps * float(estimate(run, slow, plan).step_time_s - best_of().report.step_time_s)
    return Finding(
        f"{saved:.0f} s an epoch of ResNet-50 on 8 H100",
        either(1.0 <= saved < 60.0),
        f"{steps:,.0f} all-reduces of {gradients / 1e6:.0f} MB over NVLink instead of host memory save {saved:.0f} "
        "s, before overlap; a language model has one epoch of days: a library that takes ten times as long to "
        f"start a collective costs GPT-3 {longer / 3600:.1f} h of its run",
    )


@claim("B35", "003:37", "placement affects traffic between nodes")
def placement() -> Finding:
    network = h100().network
    block = 2.0 * 2048 * float(gpt3().model.hidden) * 2.0  # activations of a micro-batch of two sequences, 16 bit
    together, apart = _all_reduce_s(network, block, 8, 1), _all_reduce_s(network, block, 8, 8)
    return Finding(
        f"{1e3 * together:.2f} ms inside a server, {1e3 * apart:.2f} ms across eight",
        either(apart / together > 1.15),
        f"the all-reduce of a layer's {block / 1e6:.0f} MB over eight tensor-parallel ranks takes "
        f"{apart / together:.1f} times as long when they sit in eight servers: all of its bytes leave the server "
        "instead of none",
    )


@claim("B37", "003:54", "choose the fastest links you can afford")
def fastest_links() -> Finding:
    rates = {200: "hdr-fat-tree", 400: "ndr-fat-tree", 800: "xdr-cpo"}
    found = {rate: best_of(fabric=name, objective="run_cost_usd").report for rate, name in rates.items()}
    cost = {rate: float(report.run_cost_usd) / 1e3 for rate, report in found.items()}
    faster = float(found[400].step_time_s / found[800].step_time_s) - 1.0
    cheapest = min(cost, key=cost.__getitem__)
    return Finding(
        ", ".join(f"{thousands:.0f} k$ at {rate} Gb/s" for rate, thousands in cost.items()),
        either(cheapest == max(rates)),
        f"GPT-3's run on {CHIPS:,} H100 by cost: from 400 to 800 Gb/s the step is {100 * faster:.1f} % faster and "
        f"the run {100 * (cost[800] / cost[400] - 1):.1f} % dearer, and {cheapest} Gb/s is the cheapest: a link is "
        "worth what the step waits for it; the fastest is right only where time counts and money does not",
    )


@claim("B38", "004:7", "growth of the scale-up domain is a physical problem")
def scale_up_growth() -> Finding:
    run, plan = gpt3(), catalog.plan(gpt3(), 768, tp=4, micro_batch=8, zero=3)
    rack = estimate(run, catalog.cluster("gb200", 768), plan)
    size = si("chips", "gb200", "scale_up_domain")
    room = {name: float(np.exp(getattr(rack.margins, name))) for name in ("rack_cables", "rack_weight", "rack_power")}
    over = estimate(run, catalog.cluster("gb200", 768, domain=2 * size), plan)  # 144 chips in two racks of 72
    dearer = float(over.capex_usd - rack.capex_usd) / 768
    watts = float(over.peak_power_w - rack.peak_power_w) / 768
    most = size * room["rack_cables"]
    return Finding(
        f"{most:.0f} chips a rack by cables; beyond it {dearer:,.0f} $ and {watts:.0f} W a chip for optics and more switches",
        either(most < 2.0 * size),
        f"a rack of {size:.0f} GB200 has room for {room['rack_cables']:.2f} times its copper, "
        f"{room['rack_weight']:.2f} times its weight and {room['rack_power']:.2f} times its power, so 144 chips "
        f"take two racks, optics and three switches a way instead of one: {dearer:,.0f} $ and {watts:.0f} W a chip more",
    )


@claim("B23", "002:11", "the more distributed, the more time goes into moving data")
def more_distributed() -> Finding:
    found = {chips: best_of(chips).report for chips in (384, CHIPS, MANY)}
    waits = [100 * exposed(report) for report in found.values()]
    moving = [100 * (exposed(report) + hidden(report)) for report in found.values()]
    return Finding(
        ", ".join(f"{share:.1f} % of a step on {chips:,} chips" for chips, share in zip(found, waits, strict=True)),
        either(waits[0] < waits[1] < waits[2]),
        "time that GPT-3 waits for data to move, at the best plan for a fixed batch; overlapped communication costs no "
        f"time and does not grow: with it {moving[0]:.0f}, {moving[1]:.0f} and {moving[2]:.0f} %",
    )
