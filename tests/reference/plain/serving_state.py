"""A machine in steady state: passes that follow each other, what a request takes of them, and how long it waits."""

from __future__ import annotations

from tests.reference.plain.collectives import send, stream
from tests.reference.plain.rack import replaced
from tests.reference.plain.serving_pass import (
    Batch,
    cached_token_bytes,
    floor,
    flops,
    holders,
    kinds,
    one_pass,
    remembered,
)
from tests.reference.plain.weights import layer_weights, shards, stage_weights


def chips_of(plan) -> float:
    return plan.tp * plan.pp * plan.dp * plan.cp


def gained(service) -> float:
    """Tokens of a pass and sequence: guesses are taken until the first wrong one, and one comes on top."""
    whole = int(service.drafted_tokens)
    rest = service.drafted_tokens - whole
    assert rest == 0.0
    return sum(service.acceptance**i for i in range(whole + 1))


def batch_of(service, sequences: float, prompts: float, queries: float | None = None) -> Batch:
    new = service.input_tokens * (1.0 - service.cached_fraction)
    return Batch(
        sequences=sequences,
        queries=1.0 + service.drafted_tokens if queries is None else queries,
        context=service.input_tokens + service.output_tokens / 2.0,
        prompts=prompts,
        new=new,
        cached=service.input_tokens - new,
    )


def by_sequences(service, without_first: bool) -> float:
    """Tokens of an answer that passes of its sequence make; the first one may be the prompt's."""
    return max(service.output_tokens - 1.0, 1.0) if without_first else service.output_tokens


def arriving(service, between: float) -> float:
    """Seconds between requests: those asked for, or as few as there can be with the headroom that is kept."""
    return 1.0 / service.requests_per_s if service.requests_per_s > 0 else kept_free(service, between)


def kept_free(service, between: float) -> float:
    """Seconds between requests of which the busiest hour's are answered too."""
    return between * max(service.peak_over_mean, 1.0 / service.capacity_in_use)


def timed(service, cluster, plan, batch: Batch) -> dict:
    """A pass and the draft model's: one for each guess, or one that takes in the prompts where there are no sequences."""
    time, drafts = one_pass(service, cluster, plan, batch), service.drafted_tokens
    if batch.sequences == 0:
        drafts = min(drafts, 1.0)
    factor = 1.0 + drafts * service.draft_fraction
    scaled = {name: factor * value for name, value in time.items() if name not in ("parts", "slowdown")}
    parts = {name: factor * value for name, value in time["parts"].items()}
    return {**scaled, "parts": parts, "slowdown": time["slowdown"]}


def mean_of(one: dict, other: dict, share: float) -> dict:
    """Of two passes, `share` of them the other."""
    mixed = {
        name: (1.0 - share) * value + share * other[name]
        for name, value in one.items()
        if name not in ("parts", "slowdown")
    }
    parts = {name: (1.0 - share) * value + share * other["parts"][name] for name, value in one["parts"].items()}
    asked = (1.0 - share) * one["parts"]["compute_s"] / one["slowdown"] + share * other["parts"]["compute_s"] / other[
        "slowdown"
    ]
    return {**mixed, "parts": parts, "slowdown": parts["compute_s"] / asked}


def chip_seconds(plan, time: dict, passes: float) -> dict[str, float]:
    chips = plan.tp * plan.pp * plan.cp
    return {name: passes * chips * time[name] for name in ("arithmetic", "hbm", "busy")}


def memory(service, cluster, plan, batch: Batch, resident: float) -> dict[str, float]:
    """Bytes of the fullest chip; `resident` tokens in each layer of a replica."""
    w, stack = service.model, cluster.stack
    embedding, logits = (w.vocab + w.learned_positions) * w.hidden, w.vocab * w.hidden
    tables = max(embedding, logits) + (1.0 - w.tied_embeddings) * min(embedding, logits) * max(2.0 - plan.pp, 0.0)
    (own, routed), (ranks, expert_ranks), gathered = stage_weights(w, plan), (1.0, 1.0), 0.0
    if plan.weights_sharded == 1:
        ranks, expert_ranks = shards(plan)
        gathered = stack.layers_whole * max(sum(layer_weights(w, plan, moe)) for moe, _ in kinds(w))
    weights = service.weight_bytes * (own / ranks + routed / expert_ranks)
    if service.weight_bytes < 2.0:
        weights += (2.0 - service.weight_bytes) * tables / plan.tp / ranks
    if service.drafted_tokens > 0:
        weights += weights * service.draft_fraction
    layers = w.layers * plan.fullest_stage / plan.pp
    kept = resident * layers * cached_token_bytes(service, cluster, plan.tp, holders(plan))
    inner = w.mlp_matrices * max(w.ffn, w.expert_ffn * w.experts_per_token) / plan.tp
    at_once = batch.sequences * batch.queries + min(batch.prompts * batch.new, 512.0)
    working = at_once * service.activation_bytes * (4.0 * w.hidden + inner)
    working += gathered * service.weight_bytes + 4.0 * batch.sampled() * w.vocab / plan.tp
    return {
        "weights_bytes": weights,
        "cache_bytes": kept,
        "working_bytes": working,
        "reserve_bytes": stack.memory_reserve_bytes + stack.fragmentation * (kept + working),
    }


def undivided(plan):
    """A plan whose batch passes whole: one sequence has no halves."""
    return replaced(plan, layout=replaced(plan.layout, two_batches=0.0)) if plan.layout else plan


def instance(plan) -> float:
    """Chips that stop together."""
    return plan.pp * max(plan.tp * plan.cp, plan.ep * plan.expert_tp)


def colocated(service, cluster, plan) -> dict:
    """One group of chips for what the service does."""
    w, own, chips = service.model, plan.micro_batch, chips_of(plan)
    decodes, prefills = service.decodes == 1, service.prefills == 1
    gain, generated = gained(service), by_sequences(service, without_first=prefills)
    if decodes:
        passes = generated / gain / own
        prompts = 1.0 / passes if prefills else 0.0  # of a request a prompt, spread over its share of passes
        batch = batch_of(service, own, prompts)
        first = batch._replace(prompts=1.0 + prompts if prefills else 0.0)
        usual = batch._replace(prompts=0.0)
    else:
        passes = 1.0 / own
        prompts, batch = 0.0, batch_of(service, 0.0, own)
        first = usual = batch
    step, first_pass = timed(service, cluster, plan, usual), timed(service, cluster, plan, first)
    usual_s = step["period"]
    if prompts > 0.0:  # of 1 + r passes in the mean r have prompts, those of 1 + r requests
        step = mean_of(step, first_pass, prompts / (1.0 + prompts))
    alone = timed(service, cluster, undivided(plan), batch_of(service, 1.0, 0.0)) if decodes else step
    resident = remembered(w, service.input_tokens + service.output_tokens / 2.0) * batch.sequences * plan.pp
    resident += remembered(w, service.input_tokens) * first.prompts * (1.0 if decodes else plan.pp)
    first_token = 0.0
    if prefills:
        first_token = first_pass["latency"]
        first_token += step["period"] / plan.pp / 2.0 if decodes else 0.0
    between = passes * step["period"] / plan.pp / plan.dp
    of_prompts = (
        (first_pass["period"] * prompts - usual_s * prompts) / (1.0 + prompts) / step["period"] if decodes else 1.0
    )
    return {
        "of_prompts": of_prompts,
        "step": step,
        "first_pass": first_pass,
        "empty": alone,
        "passes": generated / gain,
        "gain": gain,
        "floor": floor(service, cluster, plan, usual),
        "between": between,
        "interval": arriving(service, between),
        "first": first_token,
        "token": step["period"] / gain if decodes else 0.0,
        "transfer": 0.0,
        "work": chip_seconds(plan, step, passes),
        "useful": passes * flops(w, batch._replace(queries=gain)),
        "executed": passes * flops(w, batch),
        "prefill_chips": 0.0 if decodes else chips,
        "decode_chips": chips if decodes else 0.0,
        "instance": instance(plan),
        "memory": memory(service, cluster, plan, first, resident),
        "plans": (plan,),
        "needs": (memory(service, cluster, plan, first, resident),),
    }


def transfer(service, cluster, plan) -> tuple[float, float]:
    """Seconds that one prompt's keys and values travel, and seconds between requests where links do nothing else.

    Each chip that has a part of them sends it, each chip that needs a part receives it, copies too.
    """
    w = service.model
    channels = w.kv_rank + w.rope_dim if w.kv_rank > 0 else w.kv_heads * (w.qk_dim + w.v_dim)
    tokens = w.layers * remembered(w, service.input_tokens)
    size = channels * service.kv_bytes * tokens
    received = cached_token_bytes(service, cluster, plan.decode.tp, holders(plan.decode)) * tokens / plan.decode.pp
    everybody = chips_of(plan.prefill) + chips_of(plan.decode)
    alone = max(size * plan.prefill.dp / chips_of(plan.prefill), received)
    shared = max(size / chips_of(plan.prefill), received / plan.decode.dp)
    return send(cluster, alone, everybody, 1.0), stream(cluster, shared, everybody, 1.0)


def disaggregated(service, cluster, plan) -> dict:
    """Prompts on chips of their own."""
    w, gain = service.model, gained(service)
    decode, prefill = plan.decode, plan.prefill
    own, prompts_a_pass = decode.micro_batch, prefill.micro_batch
    going, prompts = batch_of(service, own, 0.0), batch_of(service, 0.0, prompts_a_pass)
    step, first = timed(service, cluster, decode, going), timed(service, cluster, prefill, prompts)
    generated = by_sequences(service, without_first=True)
    passes = generated / gain / own
    decoded = passes * step["period"] / decode.pp / decode.dp
    prefilled = first["period"] / prefill.pp / prefill.dp / prompts_a_pass / service.load
    travel, links = transfer(service, cluster, plan)
    between = max(decoded, prefilled, links)
    waiting = 0.5 * service.load / (1.0 - service.load) * first["period"] / prefill.pp
    resident = remembered(w, service.input_tokens + service.output_tokens / 2.0) * own * decode.pp
    of_prompts = remembered(w, service.input_tokens) * prompts_a_pass * prefill.pp
    needs = (
        memory(service, cluster, decode, going, resident),
        memory(service, cluster, prefill, prompts, of_prompts),
    )
    one, other = (chip_seconds(p, t, n) for p, t, n in ((decode, step, passes), (prefill, first, 1.0 / prompts_a_pass)))
    prompt_flops = flops(w, prompts) / prompts_a_pass
    return {
        "of_prompts": chips_of(prefill) / (chips_of(prefill) + chips_of(decode)),
        "step": step,
        "first_pass": first,
        "empty": timed(service, cluster, undivided(decode), batch_of(service, 1.0, 0.0)),
        "passes": generated / gain,
        "gain": gain,
        "floor": floor(service, cluster, decode, going),
        "between": between,
        "interval": arriving(service, between),
        "first": waiting + first["latency"] + travel,
        "token": step["period"] / gain,
        "transfer": travel,
        "work": {name: one[name] + other[name] for name in one},
        "useful": passes * flops(w, going._replace(queries=gain)) + prompt_flops,
        "executed": passes * flops(w, going) + prompt_flops,
        "prefill_chips": chips_of(prefill),
        "decode_chips": chips_of(decode),
        "instance": max(instance(decode), instance(prefill)),
        "memory": max(needs, key=lambda parts: sum(parts.values())),
        "plans": (decode, prefill),
        "needs": needs,
    }
