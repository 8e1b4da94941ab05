"""One pass of a batch of sequences and prompts through a model that serves."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import NamedTuple

from tests.reference.plain.collectives import all_reduce, all_to_all, ring_pass, send
from tests.reference.plain.extremes import largest_of
from tests.reference.plain.flops import busiest
from tests.reference.plain.kernels import Gemm, chip_rates, gemm, layer_gemms, passes, wide_rate
from tests.reference.plain.layer import ARITHMETIC, add, direction, kernel_seconds, layer_communication, paces
from tests.reference.plain.names import BREAKDOWN
from tests.reference.plain.pace import pace
from tests.reference.plain.rack import replaced
from tests.reference.plain.weights import held_experts, layer_weights, multiplying_weights, shards


class Batch(NamedTuple):
    """Sequences that go on, and prompts beside them, of one replica."""

    sequences: float
    queries: float  # tokens of each that a pass checks
    context: float  # tokens before them
    prompts: float
    new: float  # tokens of a prompt
    cached: float  # tokens of a prompt that are there already

    def rows(self) -> float:
        return self.sequences * self.queries + self.prompts * self.new

    def sampled(self) -> float:
        return self.sequences * self.queries + self.prompts


def remembered(w, tokens: float) -> float:
    """Tokens that a layer keeps, mean over layers."""
    within = min(tokens, w.window_tokens)
    return tokens + w.local_layers_fraction * (within - tokens)


def sharers(w, tp: float) -> float:
    """Chips that need the same keys and values."""
    return tp if w.kv_rank > 0 else max(tp / w.kv_heads, 1.0)


def holders(plan) -> float:
    """Chips that hold the same keys and values together, each some of the tokens."""
    return plan.layout.cache_split if plan.layout else 1.0


def cached_token_bytes(service, cluster, tp: float, split: float) -> float:
    """Of one token and layer on one chip: a copy, or a part of one."""
    w = service.model
    channels = w.kv_rank + w.rope_dim if w.kv_rank > 0 else max(w.kv_heads / tp, 1.0) * (w.qk_dim + w.v_dim)
    channels /= sharers(w, tp) if cluster.stack.cache_sharded == 1 else split
    return channels * service.kv_bytes


def cached_bytes_read(service, cluster, plan, batch: Batch) -> float:
    """Of one layer on one chip, by the sequences, once."""
    each = cached_token_bytes(service, cluster, plan.tp, holders(plan))
    return batch.sequences * remembered(service.model, batch.context) * each


def times_read(w, stack, tp: float) -> float:
    """By the query heads that share keys and values: once by one of them, and by some of the others."""
    if w.kv_rank > 0:
        return 1.0
    others = max(w.heads / tp / max(w.kv_heads / tp, 1.0) - 1.0, 0.0)
    return 1.0 + stack.cache_rereads * others


def prompt_keys(w, cached: float, new: float) -> float:
    """Keys that the new tokens of a prompt meet, one after the other, mean over tokens and layers."""
    everywhere, end = cached + new / 2.0, cached + new
    filled = min(max(w.window_tokens, cached), end)  # from here on a token meets as many as the window holds
    growing = (filled - cached) * (cached + filled) / 2.0
    within = (growing + (end - filled) * w.window_tokens) / new
    return (1.0 - w.local_layers_fraction) * everywhere + w.local_layers_fraction * within


def experts_met(service, plan, batch: Batch) -> tuple[float, float]:
    """Experts of a chip that some token of all who share them goes to, and how many come to each on the busiest chip."""
    w = service.model
    held = held_experts(w, plan)
    here, choosing = held / plan.ep, batch.rows() / plan.tp * plan.ep * plan.expert_tp
    each = choosing * w.experts / held  # of those who look for an expert, who look at one of its copies
    missed = (1.0 - w.experts_per_token / w.experts) ** each
    met = here if w.experts_per_token == w.experts else max(here * (1.0 - missed), 1.0)
    comers = choosing / plan.ep * w.experts_per_token * busiest(service, plan)
    return met, comers / met


def as_training(service, batch: Batch, plan):
    """Rows as the one sequence of a micro-batch: what training's kernels and exchanges are told."""
    flow = SimpleNamespace(
        model=service.model,
        sequence_length=batch.rows(),
        gemm_precision=service.gemm_precision,
        activation_bytes=service.activation_bytes,
        routing_imbalance=service.routing_imbalance,
    )
    return flow, replaced(plan, micro_batch=1.0, cp=1.0)


def products(service, plan, batch: Batch, moe: bool):
    """GEMMs of one layer."""
    flow, one = as_training(service, batch, plan)
    for shape in layer_gemms(flow, one, moe):
        if shape.of_experts:
            met, each = experts_met(service, plan, batch)
            # All of them are one kernel, which starts and ends once.
            shape = shape._replace(rows=each, count=met, launched=shape.columns * met)
        yield shape._replace(weight=service.weight_bytes if shape.low else 2.0)


def head_product(service, plan, batch: Batch) -> Gemm:
    w = service.model
    return Gemm(batch.sampled(), w.vocab / plan.tp, w.hidden, low=False)


def attention_flops(w, batch: Batch) -> tuple[float, float]:
    """Of one layer, all heads: by sequences, by prompts."""
    score_and_value = w.qk_dim + w.v_dim
    generated = score_and_value
    if w.kv_rank > 0:  # on the latent itself
        generated = (w.kv_rank + w.rope_dim) + w.kv_rank
    keys = batch.sequences * batch.queries * remembered(w, batch.context)
    of_prompts = batch.prompts * batch.new * prompt_keys(w, batch.cached, batch.new)
    return 2.0 * w.heads * generated * keys, 2.0 * w.heads * score_and_value * of_prompts


def attention(service, cluster, plan, batch: Batch) -> tuple[float, float, float, float]:
    w, stack, byte_s = service.model, cluster.stack, chip_rates(service, cluster)[2]
    rate = wide_rate(service, cluster.chip) * stack.attention_forward_efficiency
    of_sequences, of_prompts = attention_flops(w, batch)
    compute = of_sequences / plan.tp / rate
    traffic = cached_bytes_read(service, cluster, plan, batch) * times_read(w, stack, plan.tp) * byte_s
    start = stack.kernel_launch_s
    if batch.sequences > 0:
        start += stack.attention_start_s
    if batch.prompts > 0:
        start += stack.prompt_start_s
    sequences = compute, max(traffic - compute, 0.0), float(start), traffic

    heads, fresh = w.heads / plan.tp, batch.prompts * batch.new
    keys = heads if w.kv_rank > 0 else max(w.kv_heads / plan.tp, 1.0)
    compute = of_prompts / plan.tp / rate
    traffic = 2.0 * fresh * (heads + keys) * (w.qk_dim + w.v_dim)
    there = cached_token_bytes(service, cluster, plan.tp, 1.0)  # all of them, from whoever holds them
    traffic += batch.prompts * remembered(w, batch.cached) * there
    traffic *= byte_s
    scores = 0.0
    if stack.attention_scores_stored == 1:
        seen = batch.cached + batch.new / 2.0
        compute *= (seen + batch.new / 2.0) / seen  # later tokens' keys too
        scores = 8.0 * fresh * (batch.cached + batch.new) * heads * byte_s
    prompts = compute, max(traffic - compute, 0.0) + scores, 0.0, traffic + scores
    return add(sequences, prompts)


def summed(cluster, size: float, group: float) -> float:
    """An all-reduce by the library, or, of little, by one kernel in which each rank reads what all others hold."""
    library, start = all_reduce(cluster, size, group, 1.0), cluster.stack.direct_reduce_s
    if start >= 1.0 or group > cluster.network.size[0] or (group - 1.0) * size > 1e6:
        return library
    links = cluster.network.bandwidth_bytes_per_s[0] * cluster.network.efficiency[0]
    return min(group - 1.0, 1.0) * start + (group - 1.0) * size / links


def exchanges(flow, cluster, plan, moe: bool, of_prompts: float) -> dict[str, float]:
    """Communication of one layer: sums over tensor ranks after attention and after the MLP, and the way to experts."""
    w, size = flow.model, flow.sequence_length * flow.model.hidden * flow.activation_bytes
    once = summed(cluster, size, plan.tp)
    if not moe:
        return {"tp": once if w.parallel_layers == 1 else 2.0 * once, "cp": 0.0, "ep": 0.0}
    copies = w.experts_per_token / plan.tp * plan.expert_tp
    spread = summed(cluster, copies * size, plan.expert_tp)
    if w.shared_experts > 0:
        spread += once
    # Experts that are not spread add up with the shared ones before the sum over ranks.
    away = min(plan.ep - 1.0, 1.0)
    tp = once + (1.0 - away) * once + away * spread
    if cluster.stack.tokens_gathered == 0:
        return {"tp": tp, "cp": 0.0, "ep": layer_communication(flow, cluster, plan, moe, of_prompts)["ep"]}
    everywhere, stack = plan.ep * size / plan.tp, cluster.stack
    there = ring_pass(cluster, everywhere * stack.dispatch_bytes_share, plan.ep, plan.expert_tp)
    back = ring_pass(cluster, everywhere, plan.ep, plan.expert_tp)
    return {
        "tp": tp,
        "cp": 0.0,
        "ep": there + back + 2.0 * away * (stack.gathered_launch_s - stack.collective_launch_s),
    }


def queries_there_and_back(service, cluster, plan, batch: Batch) -> float:
    """Where chips that need the same keys and values have a part of them each: queries go to all, what they met returns."""
    if cluster.stack.cache_sharded == 0 or batch.sequences == 0:
        return 0.0
    w = service.model
    rows = batch.sequences * batch.queries * w.heads / plan.tp * service.activation_bytes
    width = 2.0 * w.kv_rank + w.rope_dim if w.kv_rank > 0 else w.qk_dim + w.v_dim
    return 2.0 * all_to_all(cluster, rows * width / 2.0, sharers(w, plan.tp), 1.0)


def partial_attention(service, cluster, plan, batch: Batch) -> float:
    """Where chips hold some of the tokens each: queries of all their heads come together, outputs are added up where they belong,
    and prompts collect what is cached.
    """
    ranks, w = holders(plan), service.model
    if ranks == 1 or cluster.stack.cache_sharded == 1:
        return 0.0
    heads = batch.sequences * batch.queries * w.heads / plan.tp * ranks
    query, value = (w.kv_rank + w.rope_dim, w.kv_rank) if w.kv_rank > 0 else (w.qk_dim, w.v_dim)
    sizes = [heads * query * service.activation_bytes, heads * (value * service.activation_bytes + 4.0)]
    whole = cached_token_bytes(service, cluster, plan.tp, 1.0)
    sizes.append(batch.prompts * remembered(w, batch.cached) * whole)
    return sum(ring_pass(cluster, size, ranks, 1.0) for size in sizes if size > 0)


def gather(service, cluster, plan, moe: bool) -> float:
    """One layer's weights from the replicas that have a part of them each."""
    if plan.weights_sharded == 0:
        return 0.0
    (own, routed), (ranks, expert_ranks) = layer_weights(service.model, plan, moe), shards(plan)
    total = ring_pass(cluster, own * service.weight_bytes, ranks, plan.tp)
    if moe:
        total += ring_pass(cluster, routed * service.weight_bytes, expert_ranks, plan.ep * plan.expert_tp)
    return total / cluster.stack.gather_efficiency


def layer(service, cluster, plan, whole: Batch, moe: bool) -> dict[str, float]:
    """One layer, its halves one after the other where a batch passes in two."""
    two = bool(plan.layout and plan.layout.two_batches == 1)
    parts = 2.0 if two else 1.0
    batch = whole._replace(sequences=whole.sequences / parts, prompts=whole.prompts / parts)
    weights_s = gather(service, cluster, plan, moe) / parts
    one = part_of_layer(service, cluster, plan, batch, moe, weights_s, cluster.stack.two_batch_overlap if two else None)
    return {name: parts * value for name, value in one.items()}


def part_of_layer(service, cluster, plan, batch: Batch, moe: bool, weights_s: float, of_experts) -> dict[str, float]:
    stack, (flow, one) = cluster.stack, as_training(service, batch, plan)
    others, experts = (0.0,) * 4, (0.0,) * 4
    for shape in products(service, plan, batch, moe):
        time = gemm(service, cluster, shape)
        if shape.of_experts:
            experts = add(experts, time)
        else:
            others = add(others, time)
    comm = exchanges(flow, cluster, one, moe, batch.prompts * batch.new / batch.rows())
    comm["tp"] += queries_there_and_back(service, cluster, plan, batch)
    comm["tp"] += partial_attention(service, cluster, plan, batch)
    host = cluster.chip.host_slowness * (stack.host_moe_layer_s if moe else stack.host_layer_s)
    if stack.passes_graphed == 1 and batch.prompts == 0:
        host = 0.0
    core, elementwise = attention(service, cluster, plan, batch), passes(flow, cluster, one, moe)
    if moe:
        elementwise = add(elementwise, (0.0, 0.0, stack.expert_start_s, 0.0))
    keeps = paces(cluster.chip, others, core, experts, elementwise)
    return direction(stack, keeps, host, others, core, experts, elementwise, comm, weights_s, of_experts)


def head(service, cluster, plan, batch: Batch) -> dict[str, float]:
    """Embedding, logits and the choice among them."""
    w = service.model
    compute, memory, gap, traffic_s = gemm(service, cluster, head_product(service, plan, batch))
    logits = batch.sampled() * w.vocab
    sampling_s = 12.0 * logits / plan.tp * chip_rates(service, cluster)[2]
    embedding_s = all_reduce(cluster, batch.rows() * w.hidden * service.activation_bytes, plan.tp, 1.0)
    kernels = compute, memory + sampling_s, gap + 6.0 * cluster.stack.kernel_launch_s, traffic_s + sampling_s
    exchanged = {"tp_comm_s": embedding_s + ring_pass(cluster, 2.0 * logits, plan.tp, 1.0)}
    return kernel_seconds((kernels, pace(cluster.chip, kernels))) | exchanged


def flops(w, batch: Batch) -> float:
    """Of a pass, all chips of a replica."""
    of_weights = 2.0 * (batch.rows() * multiplying_weights(w, per_token=True) + batch.sampled() * w.vocab * w.hidden)
    return of_weights + w.layers * sum(attention_flops(w, batch))


def kinds(w):
    for moe, layers in ((False, w.layers - w.moe_layers), (True, w.moe_layers)):
        if layers > 0:
            yield moe, layers


def floor(service, cluster, plan, batch: Batch) -> float:
    """Seconds of reading every weight and every cached token once, stage after stage."""
    w = service.model
    size = w.layers * cached_bytes_read(service, cluster, plan, batch)
    last = head_product(service, plan, batch)
    size += last.columns * last.inner * 2.0
    for moe, layers in kinds(w):
        for shape in products(service, plan, batch, moe):
            size += layers * shape.columns * shape.inner * shape.count * shape.weight
    return size * chip_rates(service, cluster)[2]


def one_pass(service, cluster, plan, batch: Batch) -> dict:
    """Seconds from first stage to first stage, between passes of the same sequences, and their parts."""
    w, stack, seconds = service.model, cluster.stack, defaultdict(float)
    of_head = head(service, cluster, plan, batch)
    for moe, layers in kinds(w):
        for name, value in layer(service, cluster, plan, batch, moe).items():
            seconds[name] += layers * value
    layers_s, head_s = (sum(part[name] for name in BREAKDOWN) for part in (seconds, of_head))
    message = batch.rows() * w.hidden * service.activation_bytes / plan.tp
    together = max(plan.tp, plan.ep * plan.expert_tp)
    one_send = send(cluster, message, plan.pp, together)
    latency, stage = layers_s + head_s + plan.pp * one_send, layers_s / plan.pp
    slowest = max(stage * plan.fullest_stage, stage * plan.last_stage + head_s) + one_send
    pace = max(latency, min(plan.pp - 1.0, 1.0) * plan.pp * slowest)
    late = pace * stack.jitter_sigma * largest_of(together)
    parts = {name: seconds[name] + of_head[name] for name in BREAKDOWN}
    parts["pp_comm_s"] = plan.pp * one_send
    parts["pp_imbalance_s"] = pace - latency
    slow = cluster.chip.host_slowness
    host = slow * batch.sequences * stack.host_sequence_s  # beside the device, of each micro-batch
    parts["jitter_s"], parts["overhead_s"] = late, float(slow * stack.step_overhead_s + max(plan.pp * host - pace, 0.0))
    arithmetic, core = (seconds[name] + of_head[name] for name in ARITHMETIC)
    return {
        "parts": parts,
        "period": sum(parts.values()),
        "latency": max(latency, host) + late + slow * stack.step_overhead_s,
        "hidden": seconds["hidden_s"],
        "busy": (parts["compute_s"] + parts["memory_bound_s"]) / plan.pp,
        "hbm": (seconds["hbm_s"] + of_head["hbm_s"]) / plan.pp,
        "slowdown": parts["compute_s"] / arithmetic,
        "arithmetic": flops(w, batch) * min(chip_rates(service, cluster)[:2]) / (plan.tp * plan.pp) * core / arithmetic,
    }
