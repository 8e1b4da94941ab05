"""One machine in words: performance, memory, heat, racks, power, failures, and breakdowns of time and cost."""

import math
from collections.abc import Sequence
from functools import singledispatch
from typing import Any, NamedTuple

from hwopt.calibration.intervals import Interval
from hwopt.model.report import Report, ServingReport, TrainingReport, over_words
from hwopt.output.text.batch_ramp import stage_parts
from hwopt.output.text.layout import fact, heading, part_lines
from hwopt.output.text.parts import breakdown_shares, shares
from hwopt.output.text.token_prices import PER, price_words, tokens_counted
from hwopt.units import pretty

_MEMORY = {"cache": "KV cache"}
"""Components of memory whose label differs from their field name."""

Parts = Sequence[tuple[str, str, float]]
"""Components of a whole as (name, amount, share)."""


class Fact(NamedTuple):
    """Named statement, with components that are drawn as bars where it has any."""

    name: str
    text: str
    parts: Parts = ()


class PartsBreakdown(NamedTuple):
    """Breakdown of a total: `parts`, the largest first, and a `note`."""

    title: str
    parts: Parts
    note: str = ""


def fact_lines(facts: Sequence[Fact]) -> list[str]:
    """Return facts (names with texts, and bars where they have components) as lines of text."""
    return [
        line
        for name, text, parts in facts
        for line in (fact(name, text), *part_lines((f"  {part}", amount, share) for part, amount, share in parts))
    ]


@singledispatch
def conditions(report: Any) -> list[Fact]:
    """Return throughput, latencies, utilization, memory, heat, power and failures of a concrete report."""
    raise TypeError(f"nothing is said of a {type(report).__name__}")


@conditions.register
def _(report: TrainingReport) -> list[Fact]:
    each, checkpoint = float(report.mean_time_between_failures_s), float(report.checkpoint_interval_s)
    failures = f"one in {pretty(each, 's')} ({_causes(report)}), a checkpoint every {pretty(checkpoint, 's', 3)}"
    stages = stage_parts(report)
    words = "stages by their share of the run's time (waits: for communication); rates, utilisation and power are means over it"
    ramp = [Fact("batch ramp", words, stages)] if stages else []
    return [*_machine(report, failures, f" ({report.mfu_convention})"), *ramp]


@conditions.register
def _(report: ServingReport) -> list[Fact]:
    failures = f"one of a replica in {pretty(float(report.mean_time_between_failures_s), 's')}"
    prices = Fact("prices", price_words(report))
    return [*_throughput(report), *_latencies(report), prices, *_machine(report, failures), *_groups(report)]


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
            f"{float(own.group_chips):,.0f} chips at {busy:.0f} % of what they can answer",
            f"{100 * used / capacity:.0f} % of {pretty(capacity, 'B', 3)} full",
            f"{pretty(full, 'W', 3)} a chip at full load, {pretty(mean, 'W', 3)} together on average",
            f"{pretty(float(own.usd_per_s) / float(own.group_chips), 'USD/s', 3)} a chip",
        ]
        facts.append(Fact(name, ", ".join(words)))
    return facts


@singledispatch
def memory(report: Any) -> list[Fact]:
    """Return the memory use of a chip by component, as facts."""
    raise TypeError(f"nothing is said of the memory of a {type(report).__name__}")


@memory.register
def _(report: TrainingReport) -> list[Fact]:
    used, outside = float(report.memory_per_chip_bytes), float(report.pool_per_chip_bytes)
    parts = [f"{name} {pretty(value, 'B', 3)}" for name, value in _memory_parts(report).items() if value > 0.001 * used]
    pool = [Fact("memory pool", f"{pretty(outside, 'B')} a chip")] if outside else []
    return [Fact("memory", f"{_memory(report, 'a chip')}: {', '.join(parts)}"), *pool]


@memory.register
def _(report: ServingReport) -> list[Fact]:
    capacity, parts = float(report.memory_capacity_bytes), _memory_parts(report)
    rows = [(name, pretty(value, "B", 3), value / capacity) for name, value in parts.items()]
    return [Fact("memory", _memory(report, "on the fullest chip"), rows)]


def _memory(report: Report, where: str) -> str:
    used, capacity = float(report.memory_per_chip_bytes), float(report.memory_capacity_bytes)
    return f"{pretty(used, 'B')} of {pretty(capacity, 'B')} {where} ({100 * used / capacity:.0f} %)"


def _memory_parts(report: Report) -> dict[str, float]:
    parts = {name.removesuffix("_bytes"): float(value) for name, value in report.memory._asdict().items()}
    return {_MEMORY.get(name, name): value for name, value in parts.items()}


_FEW = 0.1
"""Share of interruptions below which a screen does not name a cause."""


def _causes(report: Report) -> str:
    """Return the most frequent causes of interruptions with their shares."""
    parts = shares(rates := report.interruptions._asdict(), sum(map(float, rates.values())))
    return ", ".join(f"{cause} {100 * share:.0f} %" for cause, _, share in parts if share >= _FEW)


def _machine(report: Report, failures: str, convention: str = "") -> list[Fact]:
    """Return facts on utilization, memory, chip, racks, power and failures of a machine."""
    rate = pretty(float(report.model_flops_per_chip_per_s), "FLOP/s")
    kelvin, flux = float(report.junction_temperature_k), float(report.heat_flux_w_per_m2)
    slowed = "" if float(report.clock_margin) >= -1e-9 else ", where its power cap or cooling allows no full load"
    clock = f"clock {float(report.clock_ratio):.3f} of nominal{slowed}"
    chip, rack, mean, peak = (
        pretty(float(power), "W")
        for power in (report.chip_power_w, report.rack_power_w, report.power_w, report.peak_power_w)
    )
    standing_by = float(report.hot_spares)
    spares = f"{standing_by:,.0f} chips stand by, " if standing_by > 0.0 else ""
    racks, floor = math.ceil(float(report.racks) - 1e-9), float(report.floor_area_m2)
    return [
        Fact(
            "utilisation",
            f"MFU {100 * float(report.mfu):.1f} %, HFU {100 * float(report.hfu):.1f} %, {rate} a chip{convention}",
        ),
        *memory(report),
        Fact("chip", f"{chip} at full load, {kelvin - 273.15:.1f} degC, {flux / 1e4:.0f} W/cm2, {clock}"),
        Fact("racks", f"{racks:,} of {rack} at full load, {floor:,.0f} m2"),
        Fact(
            "power",
            f"{mean} on average at the meter, {peak} at full load on the design day; "
            f"PUE {float(report.pue):.3f} over the year, {float(report.design_pue):.3f} that day",
        ),
        Fact("failures", f"{failures}, {spares}{100 * float(report.goodput):.1f} % of the time useful"),
    ]


def _throughput(report: ServingReport) -> list[Fact]:
    requests, each = pretty(float(report.requests_per_s), "request/s"), float(report.time_per_output_token_s)
    rates = [pretty(float(rate), "token/s") for rate in (report.tokens_per_s, report.tokens_per_s_per_chip, 1.0 / each)]
    if math.isnan(each):
        return [Fact("throughput", f"{rates[0]}, {rates[1]} a chip; {requests}")]
    users = f"{float(report.users):,.0f} at a time, {1e6 * float(report.users_per_w):,.0f} a MW"
    return [Fact("throughput", "{}, {} a chip, {} a user; ".format(*rates) + requests), Fact("users", users)]


def _latencies(report: ServingReport) -> list[Fact]:
    """Return the latencies that users see, those that the service has."""
    first, each = float(report.time_to_first_token_s), float(report.time_per_output_token_s)
    moved, facts = float(report.kv_transfer_s), []
    if not math.isnan(first):
        planned = f", in full batches at the planned load, {pretty(moved, 's', 3)} of it to move keys and values"
        facts.append(Fact("first token", f"{pretty(first, 's')} after the request{planned if moved > 0.0 else ''}"))
    if not math.isnan(each):
        least = float(report.floor_time_s) * each / float(report.step_time_s)
        floor = f"{pretty(least, 's')} ({each / least:.2f} times the floor)"
        facts.append(Fact("next tokens", f"{pretty(each, 's')} each; reading weights and cache alone takes {floor}"))
    if facts and not math.isnan(whole := float(report.request_time_s)):
        facts.append(Fact("whole answer", pretty(whole, "s")))
    return [*facts, *_percentiles(report)]


def _percentiles(report: ServingReport) -> list[Fact]:
    """Return the latency percentiles in the busiest hour; empty where the load exceeds the capacity."""
    facts = []
    for what, name in (("first token", "time_to_first_token"), ("next tokens", "time_per_output_token")):
        values = [(level, float(getattr(report, f"{name}_p{level}_s"))) for level in (50, 95, 99)]
        if all(math.isfinite(value) for _, value in values):
            facts.append(Fact(f"  {what}", ", ".join(f"p{level} {pretty(value, 's', 3)}" for level, value in values)))
    if not facts:
        return []
    return [Fact("busiest hour", f"at {100 * float(report.busiest_load):.3g} % of what it can answer"), *facts]


def violations_text(report: Any) -> list[str]:
    """Return the violated constraints of an infeasible report, each with its excess."""
    return [over_words(name, over) for name, over in report.violations().items()]


def time_split(report: Report) -> PartsBreakdown:
    """Return the breakdown of the step time."""
    step, hidden = float(report.step_time_s), float(report.hidden_s)
    parts = [(name, pretty(seconds, "s"), share) for name, seconds, share in breakdown_shares(report)]
    note = f"hidden under other work: {pretty(hidden, 's')} of communication" if hidden > 1e-6 * step else ""
    return PartsBreakdown(f"Where a step of {pretty(step, 's')} goes", parts, note)


def time_lines(report: Report) -> list[str]:
    """Return the breakdown of the step time as lines, the largest component first."""
    title, parts, note = time_split(report)
    return [*heading(title), *part_lines(parts), *([f"  {note}"] if note else [])]


def money_split(report: Report) -> PartsBreakdown:
    """Return the breakdown of the cost."""
    what, spent = _paid(report)
    spending = report.spending._asdict()
    parts = shares(spending, sum(map(float, spending.values())))
    return PartsBreakdown(
        f"Where the money goes ({what})", [(name, pretty(x * spent, "USD"), x) for name, _, x in parts]
    )


def money_lines(report: Report) -> list[str]:
    """Return the breakdown of the cost as lines, the largest component first."""
    title, parts, _ = money_split(report)
    return [*heading(title), *part_lines(parts, 22, 12), f"  {chip_hour(report)}, idle time paid for"]


def chip_hour(report: Report) -> str:
    """Return the cost of a chip while in use, as a rate in words."""
    return f"a chip in use {pretty(float(report.chip_usd_per_s), 'USD/s', 3)}"


@singledispatch
def _paid(report: Any) -> tuple[str, float]:
    """Return what the cost pays for, in words, and its amount in USD."""
    raise TypeError(f"no money of a {type(report).__name__}")


@_paid.register
def _(report: TrainingReport) -> tuple[str, float]:
    return "cost of the cluster during the run", float(report.run_cost_usd)


@_paid.register
def _(report: ServingReport) -> tuple[str, float]:
    return f"cost of a million {tokens_counted(report)}", PER * float(report.cost_per_token_usd)


def interval_words(report: Any, around: Interval | None, constants: str) -> str:
    """Return the name of the constants in use, and the 80 % prediction interval of the step time."""
    if around is None:
        return f"{constants}: no interval"
    low, high = around.times(float(report.step_time_s))
    return f"{constants}: four in five measured steps lie within {pretty(low, 's')} .. {pretty(high, 's')}"
