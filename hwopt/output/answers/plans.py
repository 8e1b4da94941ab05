"""Answer of `hwopt plan`: the best plan of a cluster, the next best plans, and the plans that the search covered."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hwopt.calibration.evidence import Evidence
from hwopt.calibration.intervals import Interval
from hwopt.model.report import ServingReport
from hwopt.output.answer import Answer, Lines, Section, Sentences, Table
from hwopt.output.answers.documents import report_document
from hwopt.output.answers.estimate import estimate_sections, verdict
from hwopt.output.text.cluster import violations_text
from hwopt.output.text.customary_units import amount
from hwopt.output.text.parts import STEP, breakdown_shares, number
from hwopt.output.text.plans import plan_document, plan_line
from hwopt.planning.plan_table import PlanCandidate, PlanSearch
from hwopt.units import pretty

_FULL_MEMORY = 0.95
"""Share of a chip's memory in use from which memory is listed among the bottlenecks of a plan."""

_PARTS = 3
"""Maximum number of step-time components listed as bottlenecks."""

_SERVED = ("tokens_per_s_per_chip", "time_to_first_token_s", "time_per_output_token_s", "users", "cost_per_token_usd")
"""Metrics reported for each alternative plan of a service, where it has them."""


def binding(candidate: PlanCandidate) -> list[tuple[str, float]]:
    """Return the bottlenecks of a plan with their shares: the largest step-time components, and memory where nearly full."""
    report = candidate.report
    parts = [(name, share) for name, _, share in breakdown_shares(report)[:_PARTS]]
    memory = float(report.memory_per_chip_bytes / report.memory_capacity_bytes)
    return [*parts, ("memory", memory)] if memory >= _FULL_MEMORY else parts


def plan_search_document(
    search: PlanSearch, fitting_chips: int | None = None, around: Interval | None = None, constants: str = ""
) -> dict[str, Any]:
    """Return the answer of `plan` as JSON: that of `estimate`, plus plan, optimality certificate, alternatives and counts.

    **Arguments:**

    - `fitting_chips`: a chip count on which some plan fits, where none fits on this cluster.
    - `around`: prediction interval.
    - `constants`: name of the constants in use, such as `calibrated`.
    """
    best, goal = search.best, search.objective
    value = number(best.objective) if search.feasible else None
    return {
        "plan": plan_document(best.report, best.plan),
        "objective": {"name": goal.name, "value": value, "unit": goal.unit},
        **report_document(best.report, around, constants),
        **(_limits(best.report, search) if isinstance(best.report, ServingReport) else {}),
        "certificate": {"lower_bound": search.lower_bound, "gap": search.gap, "scope": search.scope},
        "alternatives": [_alternative(each, best) for each in search.alternatives],
        "examined": search.examined,
        "fitting": search.fitting,
        "fitting_chips": fitting_chips,
    }


def _alternative(candidate: PlanCandidate, best: PlanCandidate) -> dict[str, Any]:
    report = candidate.report
    return {
        "plan": plan_document(report, candidate.plan),
        "objective": number(candidate.objective),
        "excess": number(candidate.objective / best.objective - 1.0) if best.objective else None,
        "step_time_s": number(report.step_time_s),
        "mfu": number(report.mfu),
        "memory_per_chip_bytes": number(report.memory_per_chip_bytes),
        "bottleneck": report.bottleneck_name(),
        "binding": dict(binding(candidate)),
        **({name: number(getattr(report, name)) for name in _SERVED} if isinstance(report, ServingReport) else {}),
    }


def _limits(report: ServingReport, search: PlanSearch) -> dict[str, Any]:
    """Return the requested latency limits of a service. Limits that the plan misses also count as violations."""
    value = {name: number(getattr(report, name)) if bool(report.feasible) else None for name in search.limits}
    rows = [
        {"name": name, "limit": limit, "value": value[name], "over": search.missed.get(name)}
        for name, limit in search.limits.items()
    ]
    return {"feasible": search.feasible, "violations": report.violations() | dict(search.missed), "limits": rows}


def plan_answer(
    search: PlanSearch,
    title: str,
    asked: Mapping[str, Any],
    fitting_chips: int | None = None,
    around: Interval | None = None,
    constants: str = "",
    also: Mapping[str, Any] | None = None,
    more: Sequence[Section] = (),
    won: str = "",
    evidence: Evidence | None = None,
) -> Answer:
    """Return the answer of `hwopt plan`: the best plan, the next best plans, and the proof of optimality.

    **Arguments:**

    - `title`: workload and cluster in words.
    - `asked`: JSON keys that repeat the question.
    - `also`: further JSON keys, and `more`: sections on them.
    - `won`: the best combination of choices in words; empty without choices.
    - `evidence`: measured runs with the features of the best plan.
    - The others: as in `plan_search_document`.
    """
    best, goal = search.best, search.objective
    document = plan_search_document(search, fitting_chips, around, constants)
    value = amount(best.objective, goal.unit, 6)
    sections = estimate_sections(best.report, best.plan, around, constants)
    if not search.feasible:
        fits = bool(best.report.feasible)
        what = "satisfies the limits" if fits else "fits"
        missed = ", ".join(_missed(search)) if fits else "; ".join(violations_text(best.report))
        said = (
            f"None of {search.examined:,} plans {what}. The one below comes closest: {'' if fits else 'it '}{missed}."
        )
        said += "" if fits else f" {_remedy(search, fitting_chips)}"
        scope = Section("Plans of the search", [Sentences([search.scope], later="  ")], titled=False)
        none = ("", ""), ("", False, "")
        return Answer("plan", document, title, said, *none, [*sections, scope, *more], (), False, asked, also or {})
    holding = ", satisfy the limits" if search.limits else ""
    evaluated = "the pairs evaluated" if best.plan.disaggregated else f"{search.examined:,}"
    timed = f"{search.fitting:,} of {evaluated} fit{holding} and were evaluated with the full model"
    least = f"the best has {goal.name} = {value}: optimality gap 0"
    risk = _limit_at_risk(search, around)
    sections += [
        _alternatives(search),
        Section("How good is it", [Sentences([search.scope, f"{timed}; {least}", *risk], later="  ")]),
        *more,
    ]
    chosen = f" {won}" if won else ""
    chosen += f", with {_limit_words(search)}" if search.limits else ""
    does, bottleneck = verdict(best.report, best.plan, asked, around)
    said = f"Best of {search.examined:,} plans by {goal.name}: {value}{chosen}, proved. {bottleneck}"
    badge = ("proved", True, timed)
    return Answer(
        "plan",
        document,
        title,
        does,
        (goal.name, value),
        badge,
        sections,
        asked=asked,
        also=also or {},
        details=said,
        evidence=evidence,
    )


def _alternatives(search: PlanSearch) -> Section:
    """Return the section on the next best plans, each with its objective, speed, memory and bottlenecks."""
    goal, serves = search.objective, isinstance(search.best.report, ServingReport)
    timed = goal.name == "step_time_s"  # no second column of it
    speed = ("token/s per chip", "TTFT", "TPOT") if serves else ("MFU",) if timed else ("step", "MFU")
    heads = (goal.name, "above best", *speed, "memory", "largest parts of a step")
    rows = [_row(each, search, serves) for each in search.alternatives]
    plans = [plan_line(each.report, each.plan) for each in search.alternatives]
    chosen = "batch" if serves else "recomputation and sharding"
    table = [Table("plans", heads, rows, "r" * (len(heads) - 1) + "l", under=plans)] if rows else []
    batch = Lines(["batch: sequences in one pass of a replica; a replica of pp stages holds pp batches at a time"])
    said = [batch] if serves and rows else []
    return Section(f"Next best plans by {goal.name}, each with its best {chosen}", [*table, *said])


def _row(candidate: PlanCandidate, search: PlanSearch, serves: bool) -> list[str]:
    report, best = candidate.report, search.best.objective
    times = (float(report.time_to_first_token_s), float(report.time_per_output_token_s)) if serves else ()
    latencies = ["-" if math.isnan(each) else pretty(each, "s", 3) for each in times]
    step = [] if search.objective.name == "step_time_s" else [pretty(float(report.step_time_s), "s")]
    training = [*step, f"{100 * float(report.mfu):.1f} %"]
    return [
        amount(candidate.objective, search.objective.unit),
        f"+{100 * (candidate.objective / best - 1):.2f} %" if best else "",
        *([f"{float(report.tokens_per_s_per_chip):,.0f}", *latencies] if serves else training),
        pretty(float(report.memory_per_chip_bytes), "B", 3),
        ", ".join(f"{STEP.get(name, name)} {100 * share:.0f} %" for name, share in binding(candidate)),
    ]


def _limit_words(search: PlanSearch) -> str:
    """Return the latency limits of the search in words."""
    limits = [f"{latency_words(name)} up to {pretty(limit, 's')}" for name, limit in search.limits.items()]
    return " and ".join(limits)


def _limit_at_risk(search: PlanSearch, around: Interval | None) -> list[str]:
    """Return a sentence where the prediction interval of the TPOT of a full batch exceeds its limit; else nothing."""
    limit = search.limits.get("time_per_output_token_full_batch_s")
    if limit is None or around is None:
        return []
    each = float(search.best.report.time_per_output_token_full_batch_s)
    high = around.times(each)[1]
    if high <= limit:
        return []
    return [
        f"The limit is met by the predicted TPOT of {pretty(each, 's')}. Its 80 % prediction interval reaches {pretty(high, 's')}, "
        f"above the limit of {pretty(limit, 's')}."
    ]


def _missed(search: PlanSearch) -> list[str]:
    """Return the latency limits that the closest plan misses, each with the excess."""
    return [
        f"{latency_words(name)} is {pretty(float(getattr(search.best.report, name)), 's')}, "
        f"{1.0 + over:.3g} times the limit of {pretty(search.limits[name], 's')}"
        for name, over in search.missed.items()
    ]


def latency_words(name: str) -> str:
    """Return the customary name of a latency metric: `TTFT`, `TPOT p99`, `TPOT full batch`."""
    metric, _, level = name.removesuffix("_s").partition("_token")
    known = {"time_to_first": "TTFT", "time_per_output": "TPOT"}
    return f"{known[metric]}{level.replace('_', ' ')}" if metric in known else name


def _remedy(search: PlanSearch, fitting_chips: int | None) -> str:
    """Return a suggestion for a cluster on which no plan fits, such as a larger number of chips."""
    if search.best.report.violations().keys() - {"memory", "pool"}:
        return "No plan can change this: it is a limit of the cluster."
    if search.best.plan.disaggregated:
        return "Each group of chips holds all weights: use more chips, or colocate prefill and decode."
    if fitting_chips is not None:
        return f"{fitting_chips:,} chips are enough (--chips {fitting_chips}): the smallest multiple tried on which a plan fits."
    return "No multiple of these chips that was tried is enough: use a larger batch, or chips with more memory."
