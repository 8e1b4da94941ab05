"""Verdict of an answer: what to buy, or which machine, and what it does, with prediction intervals where they are known."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hwopt import catalog, escape
from hwopt.calibration.intervals import Interval
from hwopt.model.facility import rack
from hwopt.model.report import ServingReport, TrainingReport, TrainServeReport
from hwopt.output.text.bill import systems
from hwopt.output.text.token_prices import million_words
from hwopt.solver.solution import Solution
from hwopt.units import pretty


def ranged(words: str, around: Interval | None, exact: str = "") -> str:
    """Return an amount in words with its 80 % prediction interval in the same unit: `50 days (43-58)`.

    **Arguments:** `words`: starts with the number; `around`: None where no interval is known; `exact`: the same with more digits.
    """
    if around is None:
        return words
    number, unit, *rest = words.split(" ", 2)
    ends = around.times(float((exact or number).split()[0].replace(",", "")))
    within = "-".join(f"{end:.3g}" if end < 1e3 else f"{end:,.0f}" for end in ends)
    return " ".join([number, unit, f"({within})", *rest])


def run_time(report: TrainingReport, around: Interval | None) -> str:
    """Return the time of a run with its range: `50 days (43-58)`."""
    short, exact = (pretty(float(report.run_time_s), "s", digits) for digits in (3, 9))
    return ranged(short, around, exact)


def service(report: ServingReport, around: Interval | None) -> str:
    """Return the rate of a service and its price with its range."""
    rate = pretty(float(report.requests_per_s), "request/s", 3).replace("request/s", "requests/s")
    return f"{rate} at {ranged(million_words(report), around)}"


def achieved(report: Any, around: Interval | None = None) -> str:
    """Return the time and cost of a run, or the rate and price of a service, in words."""
    if isinstance(report, TrainServeReport):
        return f"{achieved(report.training)}; {achieved(report.serving)}"
    if isinstance(report, ServingReport):
        return f"it serves {service(report, around)}"
    cost = pretty(float(report.run_cost_usd), "USD", 3)
    uses = f"uses {cost} of the cluster's life" if float(report.capex_usd) else f"costs {cost}"
    return f"the run takes {run_time(report, around)} and {uses}"


def machine(chips: float, names: Sequence[str], plan: Any) -> str:
    """Return the chips of a machine in words; with two types, those of prefill and those of decode."""
    if len(names) == 1:
        return f"{chips:,.0f} {escape.line(names[0])}"
    prefill, decode = f"{float(plan.prefill.chips):,.0f}", f"{float(plan.decode.chips):,.0f}"
    return f"{prefill} {escape.line(names[0])} for prefill and {decode} {escape.line(names[1])} for decode"


def _used_and_idle(solutions: Sequence[Solution]) -> tuple[float, float]:
    """Return the chips at work and those that racks of one type of chips leave idle."""
    clusters = [each.built.cluster for each in solutions]
    idle = sum(float(rack.chips_in_racks(each) - each.chips) for each in clusters if len(each.groups) == 1)
    return sum(float(each.chips) for each in clusters), idle


def chips_bought(solutions: Sequence[Solution]) -> str:
    """Return the number and name of the chips to buy. **Arguments:** answers that share their chips."""
    first = solutions[0]
    records = first.problem.provenance.records
    names = [records[role].slug for role in ("chip", "decode_chip") if role in records]
    names = names if names and first.chip is None else ["custom chips" if first.chip else "chips"]
    return machine(sum(_used_and_idle(solutions)), names, first.built.plan)


def purchase(solutions: Sequence[Solution]) -> str:
    """Return what to buy in a sentence: chips, racks, capital and peak power. **Arguments:** answers that share their chips."""
    reports = [each.report for each in solutions]
    parts = [
        getattr(each, part, each)
        for each in reports
        for part in ("training", "serving")[: 1 + hasattr(each, "serving")]
    ]
    racks = sum(math.ceil(float(each.racks) - 1e-9) for each in parts)
    capital, power = (sum(float(getattr(each, name)) for each in reports) for name in ("capex_usd", "peak_power_w"))
    used, idle = _used_and_idle(solutions)
    said = [
        *([f"{used:,.0f} used, {idle:,.0f} hot spares"] if idle else []),
        *(one.slices for each in solutions for one in systems(each) if one.slice),
        f"{racks:,} rack{'s' * (racks != 1)}",
        *([pretty(capital, "USD")] if capital else []),
        pretty(power, "W", 3),
    ]
    return f"{'Buy' if capital else 'Rent'} {chips_bought(solutions)} ({', '.join(said)})."


def bought(solution: Solution, around: Interval | None) -> str:
    """Return the purchase and its performance, or the outcome of a search without a feasible design."""
    if not solution.feasible:
        return solution.headline
    does = achieved(solution.report, around)
    return f"{purchase([solution])} {does[0].upper()}{does[1:]}."


def performance(report: Any, plan: Any, asked: Mapping[str, Any], around: Interval | None) -> str:
    """Return what a given machine does with a plan, in a sentence. **Arguments:** `asked`: workload and chips."""
    names = [asked[role] for role in ("chip", "decode_chip") if role in asked]
    torus = f" in {catalog.slice_words(asked['chips'], asked['slice'])}" if "slice" in asked else ""
    with_what, workload = machine(asked["chips"], names, plan) + torus, escape.line(catalog.named(asked["workload"]))
    if isinstance(report, ServingReport):
        return f"{with_what} serve {workload}: {service(report, around)}."
    cost, mfu = pretty(float(report.run_cost_usd), "USD", 3), 100.0 * float(report.mfu)
    return f"{with_what} train {workload} in {run_time(report, around)}, MFU {mfu:.3g} %, for {cost}."
