"""One step: micro-batches through stages, gradients, optimizer."""

from __future__ import annotations

from collections import defaultdict

from tests.reference.plain import pool
from tests.reference.plain.collectives import all_reduce, beyond, ring_pass, send
from tests.reference.plain.extremes import largest_of
from tests.reference.plain.flops import micro_batches, tokens_of
from tests.reference.plain.kernels import Gemm, chip_rates, gemm
from tests.reference.plain.layer import ARITHMETIC, beside, kernel_seconds, layer
from tests.reference.plain.names import BREAKDOWN
from tests.reference.plain.pace import pace
from tests.reference.plain.sites import exchange
from tests.reference.plain.weights import expert_replicas, sharded_weights, stage_weights


def head(run, cluster, plan) -> dict[str, float]:
    """Embedding, logits and loss of a micro-batch, forward and backward."""
    w, stack, tokens = run.model, cluster.stack, tokens_of(run, plan)
    columns = w.vocab / plan.tp
    products = gemm(run, cluster, Gemm(tokens, columns, w.hidden, low=False))
    compute, memory, gap, traffic_s = (x * (2.0 + run.trainable_fraction) for x in products)
    streamed = 2.0 * tokens * (10.0 * columns + 2.0 * run.activation_bytes * w.hidden)
    streamed_s = streamed * chip_rates(run, cluster)[2]
    reduce_s = all_reduce(cluster, tokens * w.hidden * run.activation_bytes, plan.tp, 1.0)
    kernels = compute, memory + streamed_s, gap + 6.0 * stack.kernel_launch_s, traffic_s + streamed_s
    return kernel_seconds((kernels, pace(cluster.chip, kernels))) | {"tp_comm_s": 2.0 * reduce_s}


def gradient_sync(run, cluster, plan) -> float:
    stack, total = cluster.stack, 0.0
    own, routed = stage_weights(run.model, plan)
    for weights, ranks, stride in (
        (own, plan.dp * plan.cp, plan.tp),
        (routed, expert_replicas(plan), plan.ep * plan.expert_tp),
    ):
        if weights == 0:
            continue
        group = max(ranks / plan.shard_groups, 1.0)
        trained = weights * run.trainable_fraction
        second = run.weight_bytes if plan.optimizer_sharded == 1 else stack.gradient_bytes
        for element, sharded in ((stack.gradient_bytes, plan.gradients_sharded), (second, plan.weights_sharded)):
            if sharded == 0:
                total += ring_pass(cluster, trained * element, group, stride)
        across = max(ranks / group, 1.0)  # less where a site has not all experts, which is a violated margin
        total += all_reduce(cluster, trained * stack.gradient_bytes / group, across, stride * group)
    return total


def batches_beside_reduction(run, plan) -> float:
    """Micro-batches left when the first gradients are complete: the last one, or one of each stage with chunks."""
    count, chunked = micro_batches(run, plan), min(plan.virtual_stages - 1.0, 1.0)
    without, with_chunks = min(1.0, count), min(plan.pp, count)
    return without + chunked * (with_chunks - without)


def optimizer(run, cluster, plan) -> float:
    read = cluster.stack.gradient_bytes + run.master_bytes + run.moment_bytes
    written = run.master_bytes + run.moment_bytes + run.weight_bytes
    updated = sharded_weights(run.model, plan, plan.optimizer_sharded) * run.trainable_fraction
    updated *= 1.0 - plan.optimizer_offloaded
    return updated * (read + written) * cluster.stack.optimizer_passes * chip_rates(run, cluster)[2]


def feeding(run, cluster) -> float:
    """Seconds in which storage hands over a batch."""
    size = run.global_batch_sequences * run.sequence_length * run.input_bytes_per_token
    return size / (cluster.chips * cluster.storage.input_bytes_per_s_per_chip)


def waiting(run, cluster, plan, on_chip: float, nic_s: float) -> tuple[dict[str, float], float]:
    """Seconds that a step waits for pool, input, slow chips and other sites, and those that it hides of them.

    `nic_s`: traffic that leaves the scale-up domain, by a NIC that may use the pool's link.
    """
    overlap, between = cluster.stack.dp_overlap, cluster.sites.overlap
    (link_s, memory_s), exchanged = pool.stream(run, cluster, plan), exchange(run, cluster.sites, plan)
    streamed = max(link_s, memory_s)
    both_s = link_s + nic_s * pool.offloads(plan) if cluster.pool.shares_link == 1 else link_s
    beside_pool = max(on_chip, (1.0 - overlap) * on_chip + streamed, both_s)
    with_pool = beside_pool + pool.update(run, cluster, plan)
    fed = max(with_pool, feeding(run, cluster))
    together = cluster.chips * cluster.sites.count ** (1.0 / plan.local_steps)
    late = fed * cluster.stack.jitter_sigma * largest_of(together)
    run_for_weeks = cluster.operation
    beyond = fed * run_for_weeks.stall_fraction + fed * run_for_weeks.straggler_sigma * largest_of(together)
    own = fed + late + beyond
    joined = max(own, (1.0 - between) * own + exchanged)
    parts = {"offload_s": with_pool - on_chip, "input_s": fed - with_pool, "jitter_s": late, "production_s": beyond}
    parts["sites_comm_s"] = joined - own
    hidden = max(streamed - (beside_pool - on_chip), 0.0) + max(exchanged - parts["sites_comm_s"], 0.0)
    return parts, hidden


def step(run, cluster, plan) -> dict:
    """Of one site: step time, its parts, and the seconds hidden, with kernels running, and with HBM busy."""
    w, stack = run.model, cluster.stack
    stage = defaultdict(float)
    for moe, layers in ((False, w.layers - w.moe_layers), (True, w.moe_layers)):
        if layers == 0:
            continue
        for name, seconds in layer(run, cluster, plan, moe).items():
            stage[name] += seconds * layers / plan.pp
    of_head = head(run, cluster, plan)
    stage, of_head = (defaultdict(float, {name: stack.level * x for name, x in of.items()}) for of in (stage, of_head))
    stage_s, head_s = (sum(part[name] for name in BREAKDOWN) for part in (stage, of_head))
    slowest = max(stage_s * plan.fullest_stage, stage_s * plan.last_stage + head_s)
    batches = micro_batches(run, plan)

    message = tokens_of(run, plan) * w.hidden * run.activation_bytes / plan.tp
    one_send = stack.level * send(cluster, message, plan.pp, plan.tp * plan.cp * plan.dp)
    sends = 2.0 * plan.virtual_stages * one_send
    sends_exposed, sends_hidden = beside(stack, slowest, sends, stack.pp_overlap * min(plan.virtual_stages - 1.0, 1.0))
    work_left = (slowest + sends_exposed) * batches_beside_reduction(run, plan)
    sync = stack.level * gradient_sync(run, cluster, plan)
    sync_exposed, sync_hidden = beside(stack, work_left, sync, stack.dp_overlap)
    nic_s = batches * stage["nic_s"] + sync * beyond(cluster.network, plan.dp * plan.cp, plan.tp)
    nic_s += batches * sends * beyond(cluster.network, plan.pp, plan.tp * plan.cp * plan.dp)

    parts = {name: batches * (stage[name] + of_head[name] / plan.pp) for name in BREAKDOWN}
    parts["pp_comm_s"] = batches * sends_exposed + 2.0 * (plan.pp - 1.0) * one_send
    parts["pp_bubble_s"] = plan.bubble_fraction * (plan.pp - 1.0) * stage_s / plan.virtual_stages
    parts["pp_imbalance_s"] = batches * (slowest - (stage_s + head_s / plan.pp))
    parts["dp_comm_s"] += sync_exposed
    parts["optimizer_s"] = stack.level * optimizer(run, cluster, plan)
    waited, unseen = waiting(run, cluster, plan, sum(parts.values()), nic_s)
    parts |= waited
    parts["overhead_s"] = float(stack.step_overhead_s)
    total = sum(parts.values())
    busy = parts["compute_s"] + parts["memory_bound_s"] + parts["optimizer_s"]
    hbm = batches * (stage["hbm_s"] + of_head["hbm_s"] / plan.pp) + parts["optimizer_s"]
    hidden = batches * (stage["hidden_s"] + sends_hidden) + sync_hidden + unseen
    arithmetic, core = (stage[name] + of_head[name] / plan.pp for name in ARITHMETIC)
    keeps = {"slowdown": parts["compute_s"] / batches / arithmetic, "energy": core / arithmetic}
    return {"step": total, "parts": parts, "hidden": hidden, "busy": busy, "hbm": hbm, **keeps}
