"""One machine in words: performance, memory, heat, racks, power, failures, and breakdowns of time and cost."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from hwopt.calibration.intervals import Interval
from hwopt.hardware.prices import Prices
from hwopt.model.report import Report, ServingReport, TrainingReport, over_words
from hwopt.output.answer import Breakdown, Lines, Section
from hwopt.output.text.batch_ramp import stage_parts
from hwopt.output.text.parts import STEP, breakdown_shares, shares
from hwopt.output.text.plans import chip_count
from hwopt.output.text.token_prices import PER, million_words, price_words, priced_tokens, tokens_counted
from hwopt.units import YEAR_S, pretty

_MEMORY = {"cache": "KV cache", "working": "temporary buffers", "reserve": "framework reserve"}
"""Components of memory whose label differs from their field name."""

Parts = Sequence[tuple[str, str, float]]
"""Components of a whole as (name, amount, share)."""


class Fact(NamedTuple):
    """Named statement, with components that are drawn as bars where it has any."""

    name: str
    text: str
    parts: Parts = ()


def conditions(report: Report) -> list[Fact]:
    """Return throughput, latencies, utilization, memory, heat, power and failures of a concrete report."""
    mtbf = pretty(float(report.mean_time_between_failures_s), "s")
    if isinstance(report, ServingReport):
        prices = [Fact("price", million_words(report)), *(Fact("  price list", words) for words in price_words(report))]
        machine = _machine(report, f"replica MTBF {mtbf}")
        return [*_throughput(report), *_latencies(report), *prices, *machine, *_groups(report)]
    assert isinstance(report, TrainingReport)
    checkpoint = pretty(float(report.checkpoint_interval_s), "s", 3)
    stages = stage_parts(report)
    words = (
        "its stages by share of the run time; throughput, utilization and power on this screen are means over the run"
    )
    ramp = [Fact("batch ramp", words, stages)] if stages else []
    return [*_machine(report, f"MTBF {mtbf} ({_causes(report)}), a checkpoint every {checkpoint}"), *ramp]


def _groups(report: ServingReport) -> list[Fact]:
    """Return utilization, memory, power and cost of the prefill and the decode group, where they have different chips."""
    if report.groups is None:
        return []
    facts = []
    for name in ("prefill", "decode"):
        own = report.groups[name]
        used, capacity = float(own.fullest_bytes), float(own.capacity_bytes)
        busy, full, mean = 100 * float(own.in_use), float(own.full_load_w), float(own.mean_power_w)
        words = [
            f"{chip_count(float(own.group_chips))} at {busy:.0f} % of capacity",
            f"memory of a chip {100 * used / capacity:.0f} % of {pretty(capacity, 'B', 3)}",
            f"{pretty(full, 'W', 3)} per chip at full load, {pretty(mean, 'W', 3)} total on average",
            f"{pretty(float(own.usd_per_s) / float(own.group_chips), 'USD/s', 3)} per chip",
        ]
        facts.append(Fact(name, ", ".join(words)))
    return facts


def memory(report: Any) -> list[Fact]:
    """Return the memory use of the fullest chip by component, and what is offloaded to the memory pool."""
    used, capacity = float(report.memory_per_chip_bytes), float(report.memory_capacity_bytes)
    parts = {name: value for name, value in _memory_parts(report).items() if value > 0.001 * used}
    rows = [(name, pretty(value, "B", 3), value / capacity) for name, value in parts.items()]
    whole = f"{pretty(used, 'B')} of {pretty(capacity, 'B')} on the fullest chip ({100 * used / capacity:.0f} %)"
    outside = float(getattr(report, "pool_per_chip_bytes", 0.0))
    pool = (
        [
            Fact(
                "memory pool",
                f"{pretty(outside, 'B')} per chip offloaded to memory beyond it, such as DRAM of its host; cost included",
            )
        ]
        if outside
        else []
    )
    return [Fact("memory", whole, rows), *pool]


def _memory_parts(report: Report) -> dict[str, float]:
    parts = {name.removesuffix("_bytes"): float(value) for name, value in report.memory._asdict().items()}
    return {_MEMORY.get(name, name): value for name, value in parts.items()}


_FAILING = {"stacks": "HBM stacks"}
"""Causes of interruptions whose label differs from their field name."""

_FEW = 0.1
"""Share of interruptions below which a screen does not name a cause."""


def _causes(report: Report) -> str:
    """Return the most frequent causes of interruptions with their shares."""
    parts = shares(rates := report.interruptions._asdict(), sum(map(float, rates.values())))
    return ", ".join(f"{_FAILING.get(cause, cause)} {100 * share:.0f} %" for cause, _, share in parts if share >= _FEW)


def _machine(report: Report, failures: str) -> list[Fact]:
    """Return facts on utilization, memory, chip, racks, power and failures of a machine."""
    rate = pretty(float(report.model_flops_per_chip_per_s), "FLOP/s")
    kelvin, flux = float(report.junction_temperature_k), float(report.heat_flux_w_per_m2)
    slowed = "" if float(report.clock_margin) >= -1e-9 else " (power cap or cooling does not allow full load)"
    clock = f"clock {100 * float(report.clock_ratio):.1f} % of nominal{slowed}"
    at_clock = "" if abs(float(report.clock_ratio) - 1.0) < 1e-3 else " of the peak at the requested clock"
    chip, rack, mean, peak = (
        pretty(float(power), "W")
        for power in (report.chip_power_w, report.rack_power_w, report.power_w, report.peak_power_w)
    )
    standing_by = float(report.hot_spares)
    spares = f"{standing_by:,.0f} hot spares, " if standing_by > 0.0 else ""
    racks, floor = math.ceil(float(report.racks) - 1e-9), float(report.floor_area_m2)
    filled = float(report.racks) / racks  # peak power and floor are those of the filled part
    each = f", {100 * filled:.0f} % filled; a full one draws {rack}" if filled < 1.0 - 1e-6 else f", each {rack}"
    ground = f"{floor:{',.0f' if floor >= 10.0 else '.2g'}} m2 of floor"
    return [
        Fact(
            "utilization",
            f"MFU {100 * float(report.mfu):.1f} %, HFU {100 * float(report.hfu):.1f} %{at_clock}, {rate} per chip",
        ),
        *memory(report),
        Fact("chip", f"{chip} and {kelvin - 273.15:.1f} degC (junction) at full load, {flux / 1e4:.0f} W/cm2, {clock}"),
        Fact("racks", f"{racks:,}{each} of IT power at full load; {ground}"),
        Fact("power", f"{mean} on average at the meter, {peak} at full load on the hottest design day"),
        Fact("PUE", f"{float(report.pue):.3f} over the year, {float(report.design_pue):.3f} on the design day"),
        Fact("failures", f"{failures}, {spares}goodput {100 * float(report.goodput):.1f} %"),
    ]


def _throughput(report: ServingReport) -> list[Fact]:
    each = 1.0 / float(report.time_per_output_token_s)
    rates = [pretty(float(rate), "token/s") for rate in (report.tokens_per_s, report.tokens_per_s_per_chip, each)]
    throughput = f"{rates[0]} ({tokens_counted(report)}), {rates[1]} per chip; {pretty(float(report.requests_per_s), 'request/s')}"
    if math.isnan(each):
        return [Fact("throughput", throughput)]
    users = (
        f"{float(report.users):,.0f} requests at a time, {1e6 * float(report.users_per_w):,.0f} per MW of average power"
    )
    return [Fact("throughput", throughput), Fact("concurrency", f"{users}; {rates[2]} per user")]


def _latencies(report: ServingReport) -> list[Fact]:
    """Return mean and percentiles of the latencies in the busiest hour, and the latencies of a full batch."""
    load, whole = float(report.busiest_load), float(report.request_time_s)
    peak = load * float(report.capacity_requests_per_s / report.requests_per_s)
    hour, others = "every hour alike", ""
    if peak > 1.0 + 1e-6:
        hour = f"the busiest hour, {peak:.3g} times the mean hour"
        others = "; throughput, price, power and MFU are means of the day"
    said = f"{100.0 * load:.3g} % of capacity in {hour}; the latencies are those of this load{others}"
    levels = {what: _levels(report, name) for what, name in _LATENCIES.items()}
    if not any(levels.values()):
        said = "as much as the machine answers: every batch is full, and requests come as slots become free"
    elif math.isfinite(whole):
        levels["full response"] = f"mean {pretty(whole, 's', 3)}"
    return [Fact("load", said), *(Fact(what, words) for what, words in levels.items() if words), *_full_batch(report)]


_LATENCIES = {"TTFT": "time_to_first_token", "TPOT": "time_per_output_token"}
"""Customary name of a latency -> start of its metrics."""


def _levels(report: ServingReport, name: str) -> str:
    """Return mean and percentiles of a latency in words; empty where the load exceeds the capacity."""
    known = {level or "_mean": float(getattr(report, f"{name}{level}_s")) for level in ("", "_p50", "_p95", "_p99")}
    words = ", ".join(f"{level[1:]} {pretty(value, 's', 3)}" for level, value in known.items())
    return words if all(map(math.isfinite, known.values())) else ""


def _full_batch(report: ServingReport) -> list[Fact]:
    """Return the latencies while every slot is taken, without a wait for a slot."""
    first, each = (float(getattr(report, f"{name}_full_batch_s")) for name in _LATENCIES.values())
    said, moved = [], float(report.kv_transfer_s)
    if not math.isnan(each):
        least = pretty(float(report.floor_time_s) * each / float(report.step_time_s), "s")
        said.append(f"TPOT {pretty(each, 's')} (memory-bandwidth floor {least}: weights and KV cache read once)")
    if not math.isnan(first):
        planned = f", with the queue at the planned load and KV-cache transfer ({pretty(moved, 's', 3)})"
        said.append(f"TTFT {pretty(first, 's')} without a wait for a slot{planned if moved > 0.0 else ''}")
    return [Fact("full batch", "; ".join(said))]


def violations_text(report: Any) -> list[str]:
    """Return the violated constraints of an infeasible report, each with its excess."""
    return [over_words(name, over) for name, over in report.violations().items()]


def time_section(report: Report) -> Section:
    """Return the section on the step time: its breakdown, overlapped communication, and the largest component."""
    step, hidden = float(report.step_time_s), float(report.hidden_s)
    parts = [(name, pretty(seconds, "s"), share) for name, seconds, share in breakdown_shares(report)]
    moved = " (memory-pool transfers included)" if float(getattr(report, "pool_per_chip_bytes", 0.0)) else ""
    notes = [f"overlapped communication{moved}, not in the sum: {pretty(hidden, 's')}"] if hidden > 1e-6 * step else []
    notes.append(f"bottleneck: {STEP[report.bottleneck_name()]}")
    if isinstance(report, ServingReport) and any(name == "memory_bound" for name, *_ in parts):
        notes.append("memory-bound kernels: only the time that they take beyond their computation")
    whose = f" of a {step_of(report)}" if step_of(report) != "step" else ""
    batch = ", full batch" if isinstance(report, ServingReport) else ""
    return breakdown_section(f"Step-time breakdown{whose} ({pretty(step, 's')}{batch})", parts, *notes)


def step_of(report: Any) -> str:
    """Return the name of a step: that of the decode group where prefill and decode are disaggregated."""
    apart = isinstance(report, ServingReport) and float(report.prefill_chips) > 0.0 and float(report.decode_chips) > 0.0
    return "decode step" if apart else "step"


def money_section(report: Report) -> Section:
    """Return the section on the cost: its breakdown, and the cost of a productive chip-hour."""
    what, spent = _paid(report)
    spending = report.spending._asdict()
    parts = shares(spending, sum(map(float, spending.values())))
    amounts = [(name, pretty(share * spent, "USD"), share) for name, _, share in parts]
    note = f"{chip_hour(report)}, including the cost of idle time"
    basis = "equipment and building: an annuity over their life, not the purchase; chips with their HBM"
    return breakdown_section(f"Cost breakdown ({what})", amounts, note, basis)


def financing(prices: Prices) -> str:
    """Return how a machine is paid, in words: life of its equipment, interest, share of time in use."""
    years, interest = float(prices.server_lifetime_s) / YEAR_S, 100.0 * float(prices.capital_rate_per_s) * YEAR_S
    return f"{years:.3g}-year annuity at {interest:.3g} %, {100.0 * float(prices.occupancy):.3g} % occupied"


def breakdown_section(title: str, parts: Parts, *notes: str) -> Section:
    """Return the section on the components of a total, the largest first. **Arguments:** `notes`: lines below them."""
    return Section(title, [Breakdown(title, parts), Lines(notes)], wide=False)


def chip_hour(report: Report) -> str:
    """Return the cost of a productive chip-hour, as a rate in words."""
    return f"{3600.0 * float(report.chip_usd_per_s):.3g} $ per productive chip-hour"


def _paid(report: Report) -> tuple[str, float]:
    """Return what the cost pays for, in words, and its amount in USD."""
    if isinstance(report, TrainingReport):
        return "cost of the cluster during the run", float(report.run_cost_usd)
    return f"cost of a million {priced_tokens(report)}", PER * float(report.cost_per_token_usd)


def interval_words(report: Any, around: Interval | None, constants: str) -> str:
    """Return the name of the constants in use, and the 80 % prediction interval of the step time."""
    if around is None:
        return f"{constants}; no prediction interval, because no measured run is like this one"
    low, high = around.times(float(report.step_time_s))
    return f"{constants}; 80 % prediction interval of the step time: {pretty(low, 's')} to {pretty(high, 's')}"
