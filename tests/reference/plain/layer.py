"""One layer of one micro-batch: kernels, and communication beside them."""

from __future__ import annotations

from collections import defaultdict

from tests.reference.plain.collectives import all_reduce, all_to_all, beyond, ring_pass, tiers
from tests.reference.plain.flops import busiest, micro_batches, tokens_of
from tests.reference.plain.kernels import attention_core, gemm, layer_gemms, passes
from tests.reference.plain.names import BREAKDOWN
from tests.reference.plain.pace import pace
from tests.reference.plain.weights import expert_replicas, layer_weights

KERNEL_PARTS = ("compute_s", "memory_bound_s", "host_s", "hbm_s")
ARITHMETIC = ("arithmetic_s", "core_s")  # at the clock asked for, and the same by its energy


def add(*times):
    return tuple(sum(column) for column in zip(*times, strict=True))


def elapsed_s(kernels) -> float:
    """HBM is busy under the other parts, so it does not count."""
    compute, memory, launch, _ = kernels
    return compute + memory + launch


def beside(stack, work: float, communication: float, overlap: float) -> tuple[float, float]:
    """(exposed, hidden) of a communication beside work."""
    exposed = max(stack.communication_slowdown * communication, communication - overlap * work)
    return exposed, max(communication - exposed, 0.0)


def at_pace(kernels, keeps: tuple[float, float]):
    return (kernels[0] * keeps[0], *kernels[1:])


def kernel_seconds(*groups) -> dict[str, float]:
    """Of groups of kernels, each with its pace."""
    seconds = defaultdict(float)
    for kernels, keeps in groups:
        for name, value in zip(KERNEL_PARTS, at_pace(kernels, keeps), strict=True):
            seconds[name] += value
        seconds["arithmetic_s"] += kernels[0]
        seconds["core_s"] += kernels[0] * keeps[1]
    return seconds


def paces(chip, products, attention, experts, elementwise) -> tuple[tuple[float, float], ...]:
    """Of products with what runs between them, of attention, of experts."""
    return pace(chip, add(products, elementwise)), pace(chip, attention), pace(chip, experts)


def direction(
    stack, keeps, host, products, attention, experts, elementwise, comm, gather, of_experts=None
) -> dict[str, float]:
    """`of_experts`: share of the work beside which tokens travel to experts, where it is not the software's usual one."""
    seconds = kernel_seconds(*zip((products, attention, experts), keeps, strict=True), (elementwise, (1.0, 1.0)))
    products, attention = at_pace(products, keeps[0]), at_pace(attention, keeps[1])
    elapsed = sum(seconds[name] for name in KERNEL_PARTS[:3])
    for name, work, overlap in (
        ("tp", elapsed_s(products), stack.tp_overlap),
        ("cp", elapsed_s(attention), stack.cp_overlap),
        ("ep", None, stack.ep_overlap if of_experts is None else of_experts),
    ):
        exposed, hidden = beside(stack, elapsed if work is None else work, comm[name], overlap)
        seconds[name + "_comm_s"] += exposed
        seconds["hidden_s"] += hidden
        elapsed += exposed
    if elapsed < host:
        seconds["host_s"] += host - elapsed
        elapsed = host
    exposed, hidden = beside(stack, elapsed, gather, stack.dp_overlap)
    seconds["dp_comm_s"] += exposed
    seconds["hidden_s"] += hidden
    return seconds


def distinct_domains(cluster, plan, w) -> float:
    """Of a token's copies, how many go to different scale-up domains."""
    copies = w.experts_per_token
    _, pods, outermost = tiers(cluster.network, plan.ep, plan.expert_tp)
    domains = pods.members * outermost.members
    anywhere = domains / (domains + 0.6 * max(copies - 1.0, 0.0))
    return min(anywhere, w.routed_groups / copies) if w.routed_groups > 0 else anywhere


def layer_communication(run, cluster, plan, moe: bool, of_prompts: float = 1.0) -> dict[str, float]:
    """`of_prompts`: tokens that go by kernels which send one copy a domain."""
    w, tokens = run.model, tokens_of(run, plan)
    block = tokens * w.hidden * run.activation_bytes
    around_attention = all_reduce(cluster, block, plan.tp, 1.0)
    comm = {"tp": (2.0 - w.parallel_layers) * around_attention, "ep": 0.0}
    if moe:
        comm["tp"] = around_attention + all_reduce(cluster, block * w.experts_per_token, plan.expert_tp, 1.0)
        if w.shared_experts > 0:
            comm["tp"] += around_attention
        sent = tokens / plan.tp * w.experts_per_token * w.hidden * run.activation_bytes * busiest(run, plan)
        sent *= (1.0 + cluster.stack.dispatch_bytes_share) / 2.0
        distinct = 1.0
        if cluster.stack.dispatch_deduplicated == 1:
            distinct = of_prompts * distinct_domains(cluster, plan, w) + (1.0 - of_prompts)
        comm["ep"] = 2.0 * all_to_all(cluster, sent, plan.ep, plan.expert_tp, distinct)
    heads = w.heads / plan.tp if w.kv_rank > 0 else max(w.kv_heads / plan.tp, 1.0)
    keys_values = 2.0 * plan.micro_batch * run.sequence_length * heads * (w.qk_dim + w.v_dim)
    comm["cp"] = ring_pass(cluster, keys_values, plan.cp, plan.tp)
    return comm


def gather(run, cluster, plan, moe: bool, element: float, sharded: float) -> float:
    """Gathering one layer's sharded weights, or scattering its gradients, per micro-batch. `sharded`: whether they are."""
    if sharded == 0:
        return 0.0
    own, routed = layer_weights(run.model, plan, moe)
    total = ring_pass(cluster, own * element, max(plan.dp * plan.cp / plan.shard_groups, 1.0), plan.tp)
    if moe:
        group = max(expert_replicas(plan) / plan.shard_groups, 1.0)
        total += ring_pass(cluster, routed * element, group, plan.ep * plan.expert_tp)
    # With a pipeline a chip keeps what it gathered until the step ends.
    once = 1.0 / micro_batches(run, plan)
    pipelined = min(plan.pp - 1.0, 1.0)
    return total / cluster.stack.gather_efficiency * (pipelined * once + 1.0 - pipelined)


def products_of_layer(run, cluster, plan, moe: bool, last: float) -> tuple[tuple, tuple]:
    """GEMMs forward, (all but experts', experts'); of the last one a share `last`."""
    products, experts = (0.0,) * 4, (0.0,) * 4
    for shape in layer_gemms(run, plan, moe):
        time = tuple((last if shape.last else 1.0) * seconds for seconds in gemm(run, cluster, shape))
        if shape.of_experts:
            experts = add(experts, time)
        else:
            products = add(products, time)
    return products, experts


def layer(run, cluster, plan, moe: bool) -> dict[str, float]:
    """Forward, recomputation and backward of one layer and micro-batch."""
    stack = cluster.stack
    products, experts = products_of_layer(run, cluster, plan, moe, last=1.0)
    products_again, experts_again = products_of_layer(run, cluster, plan, moe, last=1.0 - stack.recompute_stops_early)
    attention, attention_backward = attention_core(run, cluster, plan)
    elementwise = passes(run, cluster, plan, moe)
    comm = layer_communication(run, cluster, plan, moe)
    weights_s = gather(run, cluster, plan, moe, run.weight_bytes, plan.weights_sharded)
    gradients_s = gather(run, cluster, plan, moe, stack.gradient_bytes * run.trainable_fraction, plan.gradients_sharded)

    host = stack.host_moe_layer_s if moe else stack.host_layer_s
    host += 4.0 * min(plan.tp - 1.0, 1.0) * stack.host_collective_s
    times = lambda factor, kernels: tuple(factor * x for x in kernels)
    both = 1.0 + run.trainable_fraction
    chip = cluster.chip
    keeps = paces(chip, products, attention, experts, elementwise)
    keeps_back = keeps[0], pace(chip, attention_backward), keeps[2]
    repeats = paces(chip, products_again, attention, experts_again, elementwise)
    forward = direction(stack, keeps, host, products, attention, experts, elementwise, comm, weights_s)
    backward = direction(
        stack, keeps_back, host, times(both, products), attention_backward, times(both, experts), times(2.0, elementwise),
        {"tp": comm["tp"], "cp": 2.0 * comm["cp"], "ep": comm["ep"]}, weights_s + gradients_s,
    )  # fmt: skip
    total = defaultdict(float)
    again = direction(stack, repeats, host, products_again, attention, experts_again, elementwise, comm, 0.0)
    for name in (*BREAKDOWN, *ARITHMETIC, "hidden_s", "hbm_s"):
        total[name] = forward[name] + backward[name] + plan.recompute_full * again[name]
    for name, seconds in kernel_seconds((attention, keeps[1])).items():
        total[name] += (1.0 - plan.recompute_full) * plan.recompute_attention * seconds
    passes_of = {"tp": 2.0 + plan.recompute_full, "cp": 3.0 + plan.recompute_full, "ep": 2.0 + plan.recompute_full}
    ranks = max(plan.dp * plan.cp / plan.shard_groups, 1.0)
    total["nic_s"] = (2.0 * weights_s + gradients_s) * beyond(cluster.network, ranks, plan.tp)
    for name, group, stride in (("tp", plan.tp, 1.0), ("cp", plan.cp, plan.tp), ("ep", plan.ep, plan.expert_tp)):
        total["nic_s"] += passes_of[name] * comm[name] * beyond(cluster.network, group, stride)
    return total
