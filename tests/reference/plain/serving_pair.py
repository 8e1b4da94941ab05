"""Two kinds of chips that serve together, in plain Python floats: what adds up, what the slower or the larger decides."""

from __future__ import annotations

from tests.reference.plain import rack
from tests.reference.plain.collectives import send, stream
from tests.reference.plain.estimate import peak_seconds_per_flop
from tests.reference.plain.failures import interruptions
from tests.reference.plain.money import carbon, money, serves, spending
from tests.reference.plain.serving import plan_margins, watts
from tests.reference.plain.serving_pass import cached_token_bytes, flops, holders, remembered
from tests.reference.plain.serving_state import (
    arriving,
    batch_of,
    by_sequences,
    chip_seconds,
    chips_of,
    gained,
    instance,
    memory,
    timed,
)
from tests.reference.plain.thermal import operating_point


def beyond_domains(cluster, chips: float) -> float:
    """Chips of a group that is never within one domain."""
    return max(chips, 2.0 * float(cluster.network.size[0]))


def transfer(service, prompts, answers, plan) -> tuple[float, float]:
    """Of one prompt, and between two of a stream: each side sends or takes all of it through its own NICs."""
    w, total = service.model, chips_of(plan.prefill) + chips_of(plan.decode)
    channels = w.kv_rank + w.rope_dim if w.kv_rank > 0 else w.kv_heads * (w.qk_dim + w.v_dim)
    tokens = w.layers * remembered(w, service.input_tokens)
    size = channels * service.kv_bytes * tokens
    taken = cached_token_bytes(service, answers, plan.decode.tp, holders(plan.decode)) * tokens / plan.decode.pp
    there, here = beyond_domains(prompts, total), beyond_domains(answers, total)
    one = max(
        send(prompts, size * plan.prefill.dp / chips_of(plan.prefill), there, 1.0), send(answers, taken, here, 1.0)
    )
    many = max(
        stream(prompts, size / chips_of(plan.prefill), there, 1.0), stream(answers, taken / plan.decode.dp, here, 1.0)
    )
    return one, many


def estimate(service, pair, plan) -> dict[str, float]:
    """Leaves of the report by name: those that two kinds of chips make another sum, or another choice."""
    w, gain = service.model, gained(service)
    groups, plans = {"decode": pair.decode, "prefill": pair.prefill}, {"decode": plan.decode, "prefill": plan.prefill}
    points = {name: operating_point(each.chip, each.cooling) for name, each in groups.items()}
    running = {name: rack.running(each, points[name]) for name, each in groups.items()}
    own, prompts_a_pass = plan.decode.micro_batch, plan.prefill.micro_batch
    going, prompts = batch_of(service, own, 0.0), batch_of(service, 0.0, prompts_a_pass)
    step = timed(service, running["decode"], plan.decode, going)
    first = timed(service, running["prefill"], plan.prefill, prompts)
    passes = by_sequences(service, without_first=True) / gain / own
    decoded = passes * step["period"] / plan.decode.pp / plan.decode.dp
    prompted = first["period"] / plan.prefill.pp / plan.prefill.dp / prompts_a_pass
    travel, links = transfer(service, running["prefill"], running["decode"], plan)
    between = max(decoded, prompted / service.load, links)
    interval = arriving(service, between)
    waiting = 0.5 * service.load / (1.0 - service.load) * first["period"] / plan.prefill.pp
    first_token, token = waiting + first["latency"] + travel, step["period"] / gain
    prompt_flops = flops(w, prompts) / prompts_a_pass
    useful = passes * flops(w, going._replace(queries=gain)) + prompt_flops
    work = {
        "decode": chip_seconds(plan.decode, step, passes),
        "prefill": chip_seconds(plan.prefill, first, 1.0 / prompts_a_pass),
    }
    resident = {
        "decode": remembered(w, service.input_tokens + service.output_tokens / 2.0) * own * plan.decode.pp,
        "prefill": remembered(w, service.input_tokens) * prompts_a_pass * plan.prefill.pp,
    }
    batches, found, lost = {"decode": going, "prefill": prompts}, {}, {}
    report, needs, fractions = {}, {}, {}
    for name, hall in groups.items():
        storage = hall.storage if name == "decode" else rack.replaced(hall.storage, capacity_bytes=0.0, data_copies=0.0)
        sized = serves(rack.replaced(hall, chips=chips_of(plans[name]), storage=storage), service)
        draw = watts(sized, running[name], points[name], {"work": work[name], "interval": interval})
        capex, usd = money(sized, draw["fed"], draw["spares"], draw["average"])
        spent = spending(sized, draw["fed"], draw["spares"], draw["average"])
        found[name] = {
            "power_w": draw["average"],
            "peak_power_w": draw["design_pue"] * draw["fed"],
            "capex_usd": capex,
            "usd": usd,
            "kg": carbon(sized, draw["fed"], draw["spares"], draw["average"]),
            "standing": usd - spent["electricity"],
            "racks": sized.chips / sized.rack.chips,
            "hot_spares": draw["spares"],
        }
        rate = sum(interruptions(sized, instance(plans[name]), points[name]["kelvin"]).values())
        back = sized.recovery.swap_s if sized.recovery.hot_spares else sized.reliability.restart_s
        lost[name] = rate * back
        parts = memory(service, sized, plans[name], batches[name], resident[name])
        needs[name] = sum(parts.values())
        fractions[name] = needs[name] / sized.chip.hbm_capacity_bytes
        report |= {
            f"groups.{name}.group_chips": sized.chips,
            f"groups.{name}.in_use": (decoded if name == "decode" else prompted) / interval,
            f"groups.{name}.fullest_bytes": needs[name],
            f"groups.{name}.mean_power_w": draw["average"],
            f"groups.{name}.usd_per_s": usd,
        }
    together = {name: found["decode"][name] + found["prefill"][name] for name in found["decode"]}
    wasted, chips = 1.0 + max(lost.values()), sum(map(chips_of, plans.values()))
    fullest = max(fractions, key=lambda name: fractions[name])
    answers = found["decode"]["standing"] / together["standing"]
    peak = sum(chips_of(plans[name]) / peak_seconds_per_flop(service, groups[name].chip) for name in groups)
    limits = [
        plan_margins(service, groups[name], plans[name], needs[name], with_slots=False)["memory"] for name in groups
    ]
    request = interval * wasted
    names = ("power_w", "peak_power_w", "capex_usd", "racks", "hot_spares")
    return report | {name: together[name] for name in names} | {
        "step_time_s": step["period"],
        "time_per_output_token_full_batch_s": token,
        "time_to_first_token_full_batch_s": first_token,
        "kv_transfer_s": travel,
        "requests_per_s": 1.0 / interval,
        "capacity_requests_per_s": 1.0 / between,
        "mfu": useful / interval / peak,
        "goodput": 1.0 / wasted,
        "cost_per_token_usd": together["usd"] * request / service.output_tokens,
        "energy_per_token_j": together["power_w"] * request / service.output_tokens,
        "carbon_per_token_kg": together["kg"] * request / service.output_tokens,
        "cost_per_output_token_usd": together["usd"] * request * answers / service.output_tokens,
        "chip_usd_per_s": together["usd"] / chips,
        "chip_power_w": max(sum(points[name][part] for part in ("standby", "leakage", "core", "memory")) for name in points),
        "memory_per_chip_bytes": needs[fullest],
        "memory_capacity_bytes": groups[fullest].chip.hbm_capacity_bytes,
        "margins.memory": min(limits),
    }  # fmt: skip
