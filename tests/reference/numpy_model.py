"""A second, independent model in plain Python floats: loops over operations, ifs instead of masks.

It knows nothing of `hwopt.model`; it reads the same input classes and repeats the published formulas, so that a wrong
index, mask or attribution in the arrays of the real model shows as a difference.
"""

from __future__ import annotations

import math
from collections import defaultdict

FORMATS = ("fp32", "tf32", "bf16", "fp8", "int8", "fp4")
BYTES = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}
BREAKDOWN = (
    "compute_s", "memory_bound_s", "host_s", "tp_comm_s", "cp_comm_s", "ep_comm_s", "pp_comm_s",
    "pp_bubble_s", "pp_imbalance_s", "dp_comm_s", "optimizer_s", "overhead_s", "jitter_s",
)  # fmt: skip


def per_format(vector) -> dict[str, float]:
    return {name: float(value) for name, value in zip(FORMATS, vector, strict=True)}


# Parameters ----------------------------------------------------------------------------------------------------------


def attention_weights(w) -> float:
    total = w.hidden * w.heads * w.v_dim  # output
    if w.query_rank > 0:
        total += w.hidden * w.query_rank + w.query_rank * w.heads * w.qk_dim
    else:
        total += w.hidden * w.heads * w.qk_dim
    if w.kv_rank > 0:
        total += w.hidden * w.kv_rank + w.kv_rank * w.heads * ((w.qk_dim - w.rope_dim) + w.v_dim)
    else:
        total += w.hidden * w.kv_heads * (w.qk_dim + w.v_dim)
    return total + w.hidden * w.rope_dim


def expert_weights(w) -> float:
    return w.mlp_matrices * w.hidden * w.expert_ffn


def multiplying_weights(w, per_token: bool) -> float:
    """Weights of layers without norms: those one token meets, or all."""
    dense = (w.layers - w.moe_layers) * w.mlp_matrices * w.hidden * w.ffn
    routed = w.experts_per_token if per_token else w.experts
    moe = w.moe_layers * ((routed + w.shared_experts) * expert_weights(w) + w.hidden * w.experts)
    return w.layers * attention_weights(w) + dense + moe


def parameters(w, per_token: bool) -> float:
    tables = w.vocab * w.hidden * (1.0 if w.tied_embeddings == 1 else 2.0 - w.tied_embeddings)
    norms = 2.0 * w.layers * w.hidden + w.hidden
    return multiplying_weights(w, per_token) + tables + w.learned_positions * w.hidden + norms


# FLOPs of a step -----------------------------------------------------------------------------------------------------


def keys_met(run, causal: float) -> float:
    """Keys that a query meets, mean over layers."""
    s, w = run.sequence_length, run.model
    window = min(w.window_tokens, s)
    everywhere, local = causal * s, 2.0 * causal * (window - window**2 / (2.0 * s))
    return everywhere + w.local_layers_fraction * (local - everywhere)


def computed_causal(run, stack) -> float:
    if stack.attention_scores_stored == 1:
        return 1.0
    return run.causal_fraction


def flops(run, plan, stack) -> tuple[float, float]:
    """Model FLOPs and repeated FLOPs of a step, all chips."""
    w = run.model
    tokens = run.global_batch_sequences * run.sequence_length
    weights = multiplying_weights(w, per_token=True)
    width = w.heads * (w.qk_dim + w.v_dim) * w.layers
    attention = 2.0 * keys_met(run, run.causal_fraction) * width
    model = 0.0
    for weight_pass, attention_pass in ((1.0, 1.0), (1.0, 1.0), (run.trainable_fraction, 1.0)):
        model += 2.0 * (weights + w.vocab * w.hidden) * weight_pass + attention * attention_pass
    attention_again = 2.0 * keys_met(run, computed_causal(run, stack)) * width
    only_attention = (1.0 - plan.recompute_full) * plan.recompute_attention
    again = plan.recompute_full * (2.0 * weights + attention_again) + only_attention * attention_again
    return tokens * model, tokens * again


# Collectives ---------------------------------------------------------------------------------------------------------


def tiers(network, group: float, stride: float):
    """(members, chips of the group below, latency, rate, reduction) of each tier that a group uses."""
    below = 1.0
    for i in range(3):
        filled = group
        if i < 2 and network.size[i] / stride < group:
            filled = max(network.size[i] / stride, 1.0)
        rate = network.bandwidth_bytes_per_s[i] * network.efficiency[i]
        yield filled / below, below, network.latency_s[i], rate, network.reduction_factor[i]
        below = filled


def launch(stack, group: float) -> float:
    return stack.collective_launch_s * min(group - 1.0, 1.0) if group > 1 else 0.0


def ring_pass(cluster, size: float, group: float, stride: float) -> float:
    total = launch(cluster.stack, group)
    for members, below, latency, rate, _ in tiers(cluster.network, group, stride):
        total += (members - 1.0) * latency + (1.0 - 1.0 / members) * size / below / rate
    return total


def all_reduce(cluster, size: float, group: float, stride: float) -> float:
    total = launch(cluster.stack, group)
    for members, below, latency, rate, reduction in tiers(cluster.network, group, stride):
        total += 2.0 * ((members - 1.0) * latency + reduction * (1.0 - 1.0 / members) * size / below / rate)
    return total


def all_to_all(cluster, size: float, group: float, stride: float) -> float:
    total = launch(cluster.stack, group)
    for members, below, latency, rate, _ in tiers(cluster.network, group, stride):
        total += (members - 1.0) * latency + (below * members - below) / group * size / rate
    return total


def send(cluster, size: float, group: float, stride: float) -> float:
    """The outermost tier in use decides; a tier used by less than one more member counts in part."""
    total, left = 0.0, 1.0
    for members, _, latency, rate, _ in reversed(list(tiers(cluster.network, group, stride))):
        used = min(members - 1.0, 1.0)
        total += left * used * (latency + size / rate)
        left *= 1.0 - used
    return total


# Kernels -------------------------------------------------------------------------------------------------------------


def chip_rates(run, cluster) -> tuple[float, float, float]:
    """Seconds a FLOP in the run's formats and in 16 bit, and seconds a byte of HBM."""
    chip = cluster.chip
    peak, efficiency, share = (
        per_format(v) for v in (chip.peak_flops_per_s, chip.matmul_efficiency, run.gemm_precision)
    )
    mixed = 0.0
    for name in FORMATS:
        mixed += share[name] / (peak[name] * efficiency[name] * chip.clock_ratio)
    bf16 = 1.0 / (peak["bf16"] * efficiency["bf16"] * chip.clock_ratio)
    return mixed, bf16, 1.0 / (chip.hbm_bandwidth_bytes_per_s * chip.hbm_efficiency)


def tokens_of(run, plan) -> float:
    return plan.micro_batch * run.sequence_length / plan.cp


def expert_tokens(run, plan) -> float:
    """Token copies that the busiest expert rank computes."""
    copies = tokens_of(run, plan) / plan.tp * run.model.experts_per_token
    return plan.expert_tp * copies * run.routing_imbalance


def layer_gemms(run, plan, moe: bool):
    """(rows, columns, inner, columns launched, count, low precision, is expert) of each GEMM of one layer."""
    w, t, tokens = run.model, plan.tp, tokens_of(run, plan)
    query = w.heads * w.qk_dim / t
    query_inner = w.query_rank if w.query_rank > 0 else w.hidden
    latent = w.query_rank + w.kv_rank + w.rope_dim
    if latent > 0:
        yield tokens, latent, w.hidden, latent, 1.0, True, False
    if w.kv_rank > 0:
        expanded = w.heads * (w.qk_dim - w.rope_dim + w.v_dim) / t
        yield tokens, query, query_inner, query, 1.0, True, False
        yield tokens, expanded, w.kv_rank, expanded, 1.0, True, False
    else:
        key_value = max(w.kv_heads / t, 1.0) * (w.qk_dim + w.v_dim)
        yield tokens, query, query_inner, query + key_value, 1.0, True, False
        yield tokens, key_value, w.hidden, query + key_value, 1.0, True, False
    yield tokens, w.hidden, w.heads * w.v_dim / t, w.hidden, 1.0, True, False
    gates = w.mlp_matrices - 1.0
    if not moe:
        yield tokens, gates * w.ffn / t, w.hidden, gates * w.ffn / t, 1.0, True, False
        yield tokens, w.hidden, w.ffn / t, w.hidden, 1.0, True, False
        return
    yield tokens / t, w.experts, w.hidden, w.experts, 1.0, False, False
    local = w.experts / plan.ep
    rows, inner = expert_tokens(run, plan) / local, w.expert_ffn / plan.expert_tp
    yield rows, gates * inner, w.hidden, gates * inner, local, True, True
    yield rows, w.hidden, inner, w.hidden, local, True, True
    if w.shared_experts > 0:
        shared = w.shared_experts * w.expert_ffn / t
        yield tokens, gates * shared, w.hidden, gates * shared, 1.0, True, False
        yield tokens, w.hidden, shared, w.hidden, 1.0, True, False


def gemm(run, cluster, rows, columns, inner, launched, count, low) -> tuple[float, float, float]:
    """(compute, memory, launch) seconds of one GEMM."""
    stack = cluster.stack
    mixed, bf16, byte_s = chip_rates(run, cluster)
    element = sum(share * BYTES[name] for name, share in per_format(run.gemm_precision).items()) if low else 2.0
    loss = 1.0
    for side in (rows, launched, inner):
        loss *= (side + stack.gemm_half_size) / side
    compute = 2.0 * rows * columns * inner * count * (mixed if low else bf16) * loss / stack.gemm_efficiency_factor
    compulsory = element * inner * (rows + columns) + 2.0 * rows * columns
    blocked = 2.0 * rows * columns * inner * element / math.sqrt(cluster.chip.sram_bytes / (3.0 * element))
    memory = max(max(compulsory, blocked) * count * byte_s - compute, 0.0)
    if low and element < 2.0:  # casts to the low format are kernels of their own
        memory += stack.cast_passes * min(2.0 - element, 1.0) * rows * inner * (2.0 + element) * count * byte_s
    return compute, memory, stack.kernel_launch_s


def attention_core(run, cluster, plan) -> tuple[tuple, tuple]:
    """(compute, memory, launch) of one layer's attention core, forward and backward."""
    w, stack, chip = run.model, cluster.stack, cluster.chip
    *_, byte_s = chip_rates(run, cluster)
    tokens, heads = tokens_of(run, plan), w.heads / plan.tp
    width = w.qk_dim + w.v_dim
    work = 2.0 * tokens * keys_met(run, computed_causal(run, stack)) * heads * width
    keys = heads if w.kv_rank > 0 else max(w.kv_heads / plan.tp, 1.0)
    streams = 2.0 * tokens * (heads + keys) * width
    peak = float(chip.peak_flops_per_s[FORMATS.index("bf16")]) * chip.clock_ratio
    directions = []
    for again, efficiency, stream_passes, score_bytes, kernels in (
        (1.0, stack.attention_forward_efficiency, 1.0, 13.0, 1.0),
        (None, stack.attention_backward_efficiency, 3.0, 19.0, 2.0),
    ):
        if again is None:
            again = 2.0 if stack.attention_scores_stored == 1 else 2.5
        compute = work * again / (peak * efficiency)
        if stack.attention_scores_stored == 1:
            memory = score_bytes * tokens * run.sequence_length * heads * byte_s
        else:
            memory = max(streams * stream_passes * byte_s - compute, 0.0)
        directions.append((compute, memory, kernels * stack.kernel_launch_s))
    return directions[0], directions[1]


def passes(run, cluster, plan, moe: bool) -> tuple[float, float, float]:
    """Norms, residuals, rotary embedding, activation, permutation of one layer, forward."""
    w, a, tokens = run.model, run.activation_bytes, tokens_of(run, plan)
    size = 10.0 * a * w.hidden * tokens / sequence_shards(plan) + 2.0 * a * tokens * w.heads * w.qk_dim / plan.tp
    if moe:
        copies = expert_tokens(run, plan)
        size += a * w.mlp_matrices * copies * w.expert_ffn / plan.expert_tp + 4.0 * a * w.hidden * copies
        size += a * w.mlp_matrices * tokens * w.shared_experts * w.expert_ffn / plan.tp
    else:
        size += a * w.mlp_matrices * tokens * w.ffn / plan.tp
    return (
        0.0,
        cluster.stack.elementwise_passes * size * chip_rates(run, cluster)[2],
        8.0 * cluster.stack.kernel_launch_s,
    )


def sequence_shards(plan) -> float:
    return plan.tp if plan.sequence_parallel == 1 else 1.0


# One layer -----------------------------------------------------------------------------------------------------------


def add(*times):
    return tuple(sum(column) for column in zip(*times, strict=True))


def beside(stack, work: float, communication: float, overlap: float) -> tuple[float, float]:
    """(exposed, hidden) of a communication beside work."""
    exposed = max(stack.communication_slowdown * communication, communication - overlap * work)
    return exposed, max(communication - exposed, 0.0)


def direction(stack, products, attention, experts, elementwise, comm, gather) -> dict[str, float]:
    everything = add(products, attention, experts, elementwise)
    seconds = defaultdict(float, compute_s=everything[0], memory_bound_s=everything[1], host_s=everything[2])
    elapsed = sum(everything)
    for name, work, overlap in (
        ("tp", sum(products), stack.tp_overlap),
        ("cp", sum(attention), stack.cp_overlap),
        ("ep", None, stack.ep_overlap),
    ):
        exposed, hidden = beside(stack, elapsed if work is None else work, comm[name], overlap)
        seconds[name + "_comm_s"] += exposed
        seconds["hidden_s"] += hidden
        elapsed += exposed
    if elapsed < stack.host_layer_s:
        seconds["host_s"] += stack.host_layer_s - elapsed
        elapsed = stack.host_layer_s
    exposed, hidden = beside(stack, elapsed, gather, stack.dp_overlap)
    seconds["dp_comm_s"] += exposed
    seconds["hidden_s"] += hidden
    return seconds


def layer_communication(run, cluster, plan, moe: bool) -> dict[str, float]:
    w, tokens = run.model, tokens_of(run, plan)
    block = tokens * w.hidden * run.activation_bytes
    around_attention = all_reduce(cluster, block, plan.tp, 1.0)
    comm = {"tp": 2.0 * around_attention, "ep": 0.0}
    if moe:
        comm["tp"] = around_attention + all_reduce(cluster, block * w.experts_per_token, plan.expert_tp, 1.0)
        if w.shared_experts > 0:
            comm["tp"] += around_attention
        sent = tokens / plan.tp * w.experts_per_token * w.hidden * run.activation_bytes * run.routing_imbalance
        comm["ep"] = 2.0 * all_to_all(cluster, sent, plan.ep, plan.expert_tp)
    heads = max(w.kv_heads / plan.tp, 1.0)
    keys_values = 2.0 * plan.micro_batch * run.sequence_length * heads * (w.qk_dim + w.v_dim)
    comm["cp"] = ring_pass(cluster, keys_values, plan.cp, plan.tp)
    return comm


def layer_weights(w, plan, moe: bool) -> tuple[float, float]:
    """Weights of a layer on one chip: all but routed experts, and routed experts."""
    own = attention_weights(w) / plan.tp + 2.0 * w.hidden
    if not moe:
        return own + w.mlp_matrices * w.hidden * w.ffn / plan.tp, 0.0
    own += w.shared_experts * expert_weights(w) / plan.tp + w.hidden * w.experts
    return own, w.experts * expert_weights(w) / plan.ep / plan.expert_tp


def expert_replicas(plan) -> float:
    return plan.tp * plan.cp * plan.dp / plan.ep / plan.expert_tp


def gather(run, cluster, plan, moe: bool, element: float) -> float:
    """Gathering (or scattering) one layer's sharded weights."""
    if plan.weights_sharded == 0:
        return 0.0
    own, routed = layer_weights(run.model, plan, moe)
    total = ring_pass(cluster, own * element, max(plan.dp * plan.cp / plan.shard_groups, 1.0), plan.tp)
    if moe:
        group = max(expert_replicas(plan) / plan.shard_groups, 1.0)
        total += ring_pass(cluster, routed * element, group, plan.ep * plan.expert_tp)
    return total


def layer(run, cluster, plan, moe: bool) -> dict[str, float]:
    """Forward, recomputation and backward of one layer and micro-batch."""
    stack = cluster.stack
    products, experts = (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
    for *shape, is_expert in layer_gemms(run, plan, moe):
        time = gemm(run, cluster, *shape)
        if is_expert:
            experts = add(experts, time)
        else:
            products = add(products, time)
    attention, attention_backward = attention_core(run, cluster, plan)
    elementwise = passes(run, cluster, plan, moe)
    comm = layer_communication(run, cluster, plan, moe)
    weights_s = gather(run, cluster, plan, moe, run.weight_bytes)
    gradients_s = gather(run, cluster, plan, moe, stack.gradient_bytes * run.trainable_fraction)

    times = lambda factor, kernels: tuple(factor * x for x in kernels)
    both = 1.0 + run.trainable_fraction
    forward = direction(stack, products, attention, experts, elementwise, comm, weights_s)
    backward = direction(
        stack, times(both, products), attention_backward, times(both, experts), times(2.0, elementwise),
        {"tp": comm["tp"], "cp": 2.0 * comm["cp"], "ep": comm["ep"]}, weights_s + gradients_s,
    )  # fmt: skip
    total = defaultdict(float)
    again = direction(stack, products, attention, experts, elementwise, comm, 0.0)
    for name in (*BREAKDOWN, "hidden_s"):
        total[name] = forward[name] + backward[name] + plan.recompute_full * again[name]
    for name, seconds in zip(("compute_s", "memory_bound_s", "host_s"), attention, strict=True):
        total[name] += (1.0 - plan.recompute_full) * plan.recompute_attention * seconds
    return total


# One step ------------------------------------------------------------------------------------------------------------


def head(run, cluster, plan) -> dict[str, float]:
    """Embedding, logits and loss of a micro-batch, forward and backward."""
    w, stack, tokens = run.model, cluster.stack, tokens_of(run, plan)
    columns = w.vocab / plan.tp
    products = gemm(run, cluster, tokens, columns, w.hidden, columns, 1.0, False)
    compute, memory, gap = (x * (2.0 + run.trainable_fraction) for x in products)
    streamed = 2.0 * tokens * (10.0 * columns + 2.0 * run.activation_bytes * w.hidden)
    memory += streamed * chip_rates(run, cluster)[2]
    reduce_s = all_reduce(cluster, tokens * w.hidden * run.activation_bytes, plan.tp, 1.0)
    return defaultdict(
        float,
        compute_s=compute,
        memory_bound_s=memory,
        host_s=gap + 6.0 * stack.kernel_launch_s,
        tp_comm_s=2.0 * reduce_s,
    )


def stage_weights(w, plan) -> tuple[float, float]:
    """Weights of the fullest stage on one chip, tables included: (all but routed experts, routed experts)."""
    own, routed = 0.0, 0.0
    for moe, layers in ((False, w.layers - w.moe_layers), (True, w.moe_layers)):
        of_own, of_routed = layer_weights(w, plan, moe)
        own += of_own * layers / plan.pp * plan.fullest_stage
        routed += of_routed * layers / plan.pp * plan.fullest_stage
    embedding, logits = (w.vocab + w.learned_positions) * w.hidden, w.vocab * w.hidden
    tables = max(embedding, logits) + (1.0 - w.tied_embeddings) * min(embedding, logits) / plan.pp
    return own + tables / plan.tp, routed


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
        if plan.weights_sharded == 0:
            for element in (stack.gradient_bytes, second):
                total += ring_pass(cluster, trained * element, group, stride)
        total += all_reduce(cluster, trained * stack.gradient_bytes / group, ranks / group, stride * group)
    return total


def shards(run, plan) -> tuple[float, float]:
    """Over how many chips a sharded state spreads: (all but routed experts, routed experts)."""
    return (
        max(plan.dp * plan.cp / plan.shard_groups, 1.0),
        max(expert_replicas(plan) / plan.shard_groups, 1.0),
    )


def sharded_weights(run, plan, is_sharded: float) -> float:
    own, routed = stage_weights(run.model, plan)
    if is_sharded == 1:
        own, routed = own / shards(run, plan)[0], routed / shards(run, plan)[1]
    return own + routed


def optimizer(run, cluster, plan) -> float:
    read = cluster.stack.gradient_bytes + run.master_bytes + run.moment_bytes
    written = run.master_bytes + run.moment_bytes + run.weight_bytes
    updated = sharded_weights(run, plan, plan.optimizer_sharded) * run.trainable_fraction
    return updated * (read + written) * cluster.stack.optimizer_passes * chip_rates(run, cluster)[2]


def step(run, cluster, plan) -> dict:
    """Step time, its parts, hidden and busy seconds."""
    w, stack = run.model, cluster.stack
    stage = defaultdict(float)
    for moe, layers in ((False, w.layers - w.moe_layers), (True, w.moe_layers)):
        if layers == 0:
            continue
        for name, seconds in layer(run, cluster, plan, moe).items():
            stage[name] += seconds * layers / plan.pp
    of_head = head(run, cluster, plan)
    stage_s, head_s = (sum(part[name] for name in BREAKDOWN) for part in (stage, of_head))
    slowest = max(stage_s * plan.fullest_stage, stage_s * plan.last_stage + head_s)
    batches = micro_batches(run, plan)

    message = tokens_of(run, plan) * w.hidden * run.activation_bytes / plan.tp
    one_send = send(cluster, message, plan.pp, plan.tp * plan.cp * plan.dp)
    sends = 2.0 * plan.virtual_stages * one_send
    sends_exposed, sends_hidden = beside(stack, slowest, sends, stack.pp_overlap * min(plan.virtual_stages - 1.0, 1.0))
    sync_exposed, sync_hidden = beside(
        stack, slowest + sends_exposed, gradient_sync(run, cluster, plan), stack.dp_overlap
    )

    parts = {name: batches * (stage[name] + of_head[name] / plan.pp) for name in BREAKDOWN}
    parts["pp_comm_s"] = batches * sends_exposed + 2.0 * (plan.pp - 1.0) * one_send
    parts["pp_bubble_s"] = plan.bubble_fraction * (plan.pp - 1.0) * stage_s / plan.virtual_stages
    parts["pp_imbalance_s"] = batches * (slowest - (stage_s + head_s / plan.pp))
    parts["dp_comm_s"] += sync_exposed
    parts["optimizer_s"] = optimizer(run, cluster, plan)
    x = math.log(cluster.chips)
    parts["jitter_s"] = sum(parts.values()) * stack.jitter_sigma * x * math.sqrt(2.0 / (x + 2.208))
    parts["overhead_s"] = float(stack.step_overhead_s)
    total = sum(parts.values())
    busy = (parts["compute_s"] + parts["memory_bound_s"] + parts["optimizer_s"]) / total
    hidden = batches * (stage["hidden_s"] + sends_hidden) + sync_hidden
    return {"step": total, "parts": parts, "hidden": hidden, "busy": busy}


def micro_batches(run, plan) -> float:
    return run.global_batch_sequences / plan.dp / plan.micro_batch


# Memory --------------------------------------------------------------------------------------------------------------


def core_activations(run, plan, stack) -> float:
    rows = tokens_of(run, plan) * run.model.heads / plan.tp
    if stack.attention_scores_stored == 1:
        return rows * run.sequence_length * (5.0 if stack.dropout_masks == 1 else 2.0)
    return 4.0 * rows


def body_activations(run, plan, stack, moe: bool) -> float:
    w, a, tokens = run.model, run.activation_bytes, tokens_of(run, plan)
    total = 4.0 * a * w.hidden * tokens / sequence_shards(plan)  # two norms' inputs and outputs
    if stack.dropout_masks == 1:
        total += 2.0 * w.hidden * tokens / sequence_shards(plan)
    keys = w.heads if w.kv_rank > 0 else max(w.kv_heads, plan.tp)
    total += a * tokens * (w.heads + keys) * (w.qk_dim + w.v_dim) / plan.tp
    total += a * tokens * (w.query_rank + w.kv_rank + w.rope_dim)
    if moe:
        total += a * expert_tokens(run, plan) * (w.mlp_matrices * w.expert_ffn / plan.expert_tp + w.hidden)
        total += a * tokens * w.mlp_matrices * w.shared_experts * w.expert_ffn / plan.tp
    else:
        total += a * tokens * w.mlp_matrices * w.ffn / plan.tp
    return total


def memory(run, plan, stack) -> dict[str, float]:
    w, tokens = run.model, tokens_of(run, plan)
    checkpoint = run.activation_bytes * w.hidden * tokens / sequence_shards(plan)
    core = core_activations(run, plan, stack)
    kept, working, largest = 0.0, 0.0, 0.0
    for moe, layers in ((False, w.layers - w.moe_layers), (True, w.moe_layers)):
        if layers == 0:
            continue
        body = body_activations(run, plan, stack, moe)
        normal = body + (1.0 - plan.recompute_attention) * core
        kept += layers / w.layers * (normal + plan.recompute_full * (checkpoint - normal))
        working = max(working, plan.recompute_full * (body + core))
        largest = max(largest, sum(layer_weights(w, plan, moe)))
    fullest = plan.fullest_stage * w.layers / plan.pp
    missing = fullest * plan.pp - w.layers
    first = fullest - min(max(missing - 1.0, 0.0), 1.0)
    on_first, on_second = plan.pp, plan.pp - 1.0
    if plan.virtual_stages > 1:
        chunked = min(plan.virtual_stages - 1.0, 1.0)
        on_first = plan.pp + chunked * (plan.pp - 1.0) / plan.virtual_stages
        on_second = on_first - (1.0 - chunked + chunked * 2.0 / plan.virtual_stages)
    count = micro_batches(run, plan)
    activations = kept * max(first * min(on_first, count), fullest * min(on_second, count))
    last = activations / min(plan.pp, micro_batches(run, plan)) + 8.0 * tokens * w.vocab / plan.tp
    if plan.weights_sharded == 1:
        working += 2.0 * largest * run.weight_bytes
    trained = run.trainable_fraction
    return {
        "weights_bytes": run.weight_bytes * sharded_weights(run, plan, plan.weights_sharded),
        "gradients_bytes": stack.gradient_bytes * trained * sharded_weights(run, plan, plan.gradients_sharded),
        "optimizer_bytes": (run.master_bytes + run.moment_bytes)
        * trained
        * sharded_weights(run, plan, plan.optimizer_sharded),
        "activations_bytes": activations,
        "logits_bytes": max(last - activations, 0.0),
        "working_bytes": working,
        "reserve_bytes": stack.memory_reserve_bytes + stack.fragmentation * (activations + working),
    }


# Power and money -----------------------------------------------------------------------------------------------------


def power(cluster, busy: float) -> dict[str, float]:
    chip, site, network = cluster.chip, cluster.facility, cluster.network
    volts = chip.threshold_voltage_fraction + (1.0 - chip.threshold_voltage_fraction) * chip.clock_ratio
    dynamic = chip.core_power_w * volts * volts * chip.clock_ratio
    dynamic += chip.hbm_bandwidth_bytes_per_s * chip.hbm_energy_j_per_byte
    links = sum(
        float(b) * float(e) for b, e in zip(network.bandwidth_bytes_per_s, network.energy_j_per_byte, strict=True)
    )
    it_peak = chip.idle_power_w + dynamic + site.host_power_w + links
    idle_host = site.host_power_w * site.idle_host_fraction
    it_average = chip.idle_power_w + idle_host + links + busy * (dynamic + site.host_power_w - idle_host)
    return {
        "chip": chip.idle_power_w + dynamic,
        "it_peak": it_peak,
        "peak": cluster.chips * site.pue * it_peak,
        "average": cluster.chips * site.pue * it_average,
    }


def money(cluster, it_peak_w: float, average_w: float) -> tuple[float, float]:
    """Capital, and the cost of owning it a second."""
    chip, site, network, price = cluster.chip, cluster.facility, cluster.network, cluster.prices
    each = price.chip_base_usd + price.host_usd
    each += chip.hbm_capacity_bytes * price.hbm_usd_per_byte
    each += chip.hbm_bandwidth_bytes_per_s * price.hbm_usd_per_byte_per_s
    for bandwidth, usd in zip(network.bandwidth_bytes_per_s, price.network_usd_per_byte_per_s, strict=True):
        each += float(bandwidth) * float(usd)
    each += price.domain_usd_per_chip * float(network.size[0]) / price.reference_domain
    equipment = cluster.chips * each * (1.0 + price.spares_fraction)
    building = cluster.chips * it_peak_w * site.construction_usd_per_w
    a_second = equipment / price.server_lifetime_s + equipment * price.maintenance_per_s
    a_second += building / site.construction_lifetime_s + average_w * site.electricity_usd_per_j
    return equipment + building, a_second


# The whole -----------------------------------------------------------------------------------------------------------


def margins(run, cluster, plan, bytes_used: float) -> dict[str, float]:
    w = run.model
    used = plan.tp * plan.pp * plan.dp * plan.cp
    return {
        "memory": math.log(cluster.chip.hbm_capacity_bytes) - math.log(bytes_used),
        "chips": -abs(math.log(cluster.chips / used)),
        "stages": math.log((w.layers + 2.0) / plan.pp / plan.virtual_stages),
        "tensor_parallel": math.log(w.heads / plan.tp),
        "experts": math.log((w.experts if w.experts > 0 else 1.0) / plan.ep),
        "replicas": math.log(expert_replicas(plan)),
        "batch": math.log(micro_batches(run, plan)),
        "context": math.log(run.sequence_length / plan.cp),
    }


def estimate(run, cluster, plan) -> dict[str, float]:
    """Every leaf of the model's report by name: `step_time_s`, `breakdown.compute_s`, `memory.weights_bytes`..."""
    time = step(run, cluster, plan)
    parts = memory(run, plan, cluster.stack)
    used_bytes = sum(parts.values())
    watts = power(cluster, time["busy"])
    capex, a_second = money(cluster, watts["it_peak"], watts["average"])
    needed, repeated = flops(run, plan, cluster.stack)
    rate = run.global_batch_sequences * run.sequence_length / time["step"]
    per_chip = needed / cluster.chips / time["step"]
    seconds_per_flop = 0.0
    peak = per_format(cluster.chip.peak_flops_per_s)
    for name, share in per_format(run.gemm_precision).items():
        seconds_per_flop += share / (peak[name] * cluster.chip.clock_ratio)
    run_time = run.tokens / rate
    limits = margins(run, cluster, plan, used_bytes)
    largest = max(range(len(BREAKDOWN)), key=lambda i: time["parts"][BREAKDOWN[i]])
    report = {
        "step_time_s": time["step"],
        "tokens_per_s": rate,
        "tokens_per_s_per_chip": rate / cluster.chips,
        "mfu": per_chip * seconds_per_flop,
        "hfu": (needed + repeated) / cluster.chips / time["step"] * seconds_per_flop,
        "model_flops_per_chip_per_s": per_chip,
        "memory_per_chip_bytes": used_bytes,
        "memory_capacity_bytes": cluster.chip.hbm_capacity_bytes,
        "power_w": watts["average"],
        "peak_power_w": watts["peak"],
        "chip_power_w": watts["chip"],
        "energy_per_token_j": watts["average"] / rate,
        "carbon_per_token_kg": watts["average"] / rate * cluster.facility.carbon_kg_per_j,
        "capex_usd": capex,
        "cost_per_token_usd": a_second / rate,
        "run_time_s": run_time,
        "run_cost_usd": a_second * run_time,
        "run_energy_j": watts["average"] * run_time,
        "parameters": parameters(run.model, per_token=False),
        "active_parameters": parameters(run.model, per_token=True),
        "hidden_s": time["hidden"],
        "bottleneck": float(largest),
        "feasible": float(all(value >= -1e-6 for value in limits.values())),
    }
    for group, values in (("breakdown", time["parts"]), ("memory", parts), ("margins", limits)):
        report |= {f"{group}.{name}": value for name, value in values.items()}
    return {name: float(value) for name, value in report.items()}
