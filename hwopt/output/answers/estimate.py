"""Answer of `hwopt estimate`: time, memory, power and cost of one cluster under one plan."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hwopt.calibration.evidence import Evidence
from hwopt.calibration.intervals import Interval
from hwopt.declared import plain
from hwopt.model.report import Report, TrainingReport
from hwopt.output.answer import Answer, Facts, Section
from hwopt.output.answers.documents import report_document
from hwopt.output.text.cluster import (
    Fact,
    chip_hour,
    conditions,
    interval_words,
    memory,
    step_of,
    time_section,
    violations_text,
)
from hwopt.output.text.layout import MODEL_ONLY
from hwopt.output.text.parts import STEP
from hwopt.output.text.plans import plan_document, plan_lines
from hwopt.output.text.token_prices import million_words, rate_words, unit_of_work
from hwopt.output.text.verdict import performance
from hwopt.units import pretty


def estimate_answer(
    report: Report,
    plan: Any,
    title: str,
    around: Interval | None = None,
    constants: str = "",
    asked: Mapping[str, Any] | None = None,
    also: Mapping[str, Any] | None = None,
    more: Sequence[Section] = (),
    financed: str = "",
    evidence: Evidence | None = None,
) -> Answer:
    """Return the answer of `hwopt estimate`.

    **Arguments:**

    - `title`: workload, cluster and, for a service, requests, in words.
    - `around`: prediction interval.
    - `constants`: name of the constants in use, such as `calibrated`; empty where unknown.
    - `asked`: JSON keys that repeat the question.
    - `also`: further results by JSON key; those that are None are left out.
    - `more`: sections on them.
    - `financed`: how the machine is paid, in words.
    - `evidence`: measured runs with the features of the plan.
    """
    known = {name: plain(each) for name, each in (also or {}).items() if each is not None}
    document = {"plan": plan_document(report, plan), **report_document(report, around, constants)}
    step = pretty(float(report.step_time_s), "s") if bool(report.feasible) else ""
    sections = (*estimate_sections(report, plan, around, constants, financed), *more)
    said, bottleneck = verdict(report, plan, asked or {}, around)
    return Answer(
        "estimate", document, title, said, ("a step takes", step), ("model", False, MODEL_ONLY), sections,
        feasible=bool(report.feasible), asked=asked or {}, also=known, details=bottleneck, evidence=evidence,
    )  # fmt: skip


def estimate_sections(
    report: Report, plan: Any, around: Interval | None, constants: str, financed: str = ""
) -> list[Section]:
    """Return the sections on one machine under one plan. **Arguments:** as for `estimate_answer`."""
    said = [words if what == "plan" else f"{what} {words}" for what, words in plan_lines(report, plan)]
    planned = [Fact("" if place else "plan", words) for place, words in enumerate(said)]
    if not bool(report.feasible):
        return [Section("The plan", [Facts([*planned, *memory(report)])], titled=False)]
    pace, whole = _run(report) if isinstance(report, TrainingReport) else ([], [])  # a service has no end
    capital = float(report.capex_usd)
    money = (f"capital {pretty(capital, 'USD')}" if capital else "rented") + (f" ({financed})" if financed else "")
    unit, tokens = unit_of_work(report)
    facts = [
        *planned,
        *pace,
        *conditions(report),
        Fact("energy", f"{pretty(float(report.energy_per_token_j) * tokens, 'J')} per {unit}"),
        Fact("cost", f"{money}; {million_words(report)}; {chip_hour(report)}"),
        *whole,
        *([Fact("constants", interval_words(report, around, constants))] if constants else []),
    ]
    return [Section("At a glance", [Facts(facts)], titled=False), time_section(report)]


def verdict(report: Any, plan: Any, asked: Mapping[str, Any], around: Interval | None) -> tuple[str, str]:
    """Return whether a plan fits and what it achieves, in a sentence, and its bottleneck in another."""
    if not bool(report.feasible):
        return f"This plan does not fit. It {'; it '.join(violations_text(report))}.", ""
    largest, share = STEP[report.bottleneck_name()], 100 * float(max(report.breakdown)) / float(report.step_time_s)
    bottleneck = f"The largest part of a {step_of(report)} is {largest} ({share:.0f} %)."
    return performance(report, plan, asked, around), bottleneck


def _loss_words(report: TrainingReport) -> str:
    loss = float(report.loss)
    return "loss unknown (no scaling law)" if math.isnan(loss) else f"final loss {loss:.4f}"


def _run(report: TrainingReport) -> tuple[list[Fact], list[Fact]]:
    """Return the facts on speed and those on the whole run of a training run."""
    unit, tokens = unit_of_work(report)
    rate, each = rate_words(report, report.tokens_per_s), float(report.tokens_per_s_per_chip) / tokens
    step, time = (pretty(float(seconds), "s") for seconds in (report.step_time_s, report.run_time_s))
    cost, carbon = pretty(float(report.run_cost_usd), "USD"), float(report.run_carbon_kg) / 1e3
    pace = [Fact("step time", step), Fact("throughput", f"{rate}, {each:,.0f} {unit}/s per chip")]
    return pace, [
        Fact(
            "whole run",
            f"{time}, {cost}, {carbon:{',.0f' if carbon >= 100.0 else '.3g'}} t CO2e, {_loss_words(report)}",
        )
    ]
