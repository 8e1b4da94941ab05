"""Best plan of a cluster as a screen and as JSON: the plan, the next best plans, and the plans that the search covered."""

import math
from functools import singledispatch
from typing import Any

from hwopt.calibration.intervals import Interval
from hwopt.model.report import ServingReport, TrainingReport
from hwopt.output.answers.documents import report_document
from hwopt.output.answers.screens import estimate_screen
from hwopt.output.text.layout import heading, wrapped
from hwopt.output.text.parts import breakdown_shares, number
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
        **_limits(best.report, search),
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
        **_further(report),
    }


@singledispatch
def _further(report: Any) -> dict[str, Any]:
    """Return further metrics of an alternative plan of a service; empty for a training run."""
    return {}


@singledispatch
def _limits(report: Any, search: PlanSearch) -> dict[str, Any]:
    """Return the requested latency limits of a service; empty for training.

    Limits that the plan misses also count as violations.
    """
    return {}


@_further.register
def _(report: ServingReport) -> dict[str, Any]:
    return {name: number(getattr(report, name)) for name in _SERVED}


@_limits.register
def _(report: ServingReport, search: PlanSearch) -> dict[str, Any]:
    value = {name: number(getattr(report, name)) if bool(report.feasible) else None for name in search.limits}
    rows = [
        {"name": name, "limit": limit, "value": value[name], "over": search.missed.get(name)}
        for name, limit in search.limits.items()
    ]
    return {"feasible": search.feasible, "violations": report.violations() | dict(search.missed), "limits": rows}


def plan_screen(
    search: PlanSearch,
    title: str,
    fitting_chips: int | None = None,
    around: Interval | None = None,
    constants: str = "",
) -> str:
    """Return the answer of `plan` as text for a terminal: the best plan, the next best plans, and the proof of optimality.

    **Arguments:** `title`: workload and cluster in words; the others as in `plan_search_document`.
    """
    best, goal = search.best, search.objective
    lines = [estimate_screen(best.report, best.plan, title, around, constants)]
    if not search.feasible:
        fits = bool(best.report.feasible)
        what = "satisfies the limits" if fits else "fits"
        lines += ["", f"None of {search.examined:,} plans {what}; this one comes closest."]
        lines += _missed(search) if fits else _remedies(search, fitting_chips)
        return "\n".join([*lines, "", wrapped(search.scope)])
    if search.alternatives:
        lines += heading(f"The next best by {goal.name}, each with its best {_chosen(best.report)}")
        lines += [_row(each, search) for each in search.alternatives]
    holding = ", satisfy the limits" if search.limits else ""
    evaluated = "the pairs evaluated" if best.plan.disaggregated else f"{search.examined:,}"
    least = f"{goal.name} = {pretty(best.objective, goal.unit, 6)} is the least of them: gap 0"
    timed = f"  {search.fitting:,} of {evaluated} fit{holding} and were timed by the exact model; {least}"
    return "\n".join([*lines, *heading("How good is it"), wrapped(search.scope), timed])


def _row(candidate: PlanCandidate, search: PlanSearch) -> str:
    report, goal = candidate.report, search.objective
    more = f"+{100 * (candidate.objective / search.best.objective - 1):.2f} %" if search.best.objective else ""
    bounds = ", ".join(f"{name} {100 * share:.0f} %" for name, share in binding(candidate))
    memory = pretty(float(report.memory_per_chip_bytes), "B", 3)
    line = plan_line(report, candidate.plan)
    value = f"{pretty(candidate.objective, goal.unit):>11} {more:>9}"
    return f"  {value}  {_facts(report, goal.name)}  {memory:>8}  {line}\n{'':14}bound by {bounds}"


@singledispatch
def _facts(report: Any, goal: str) -> str:
    """Return the metrics that distinguish an alternative plan, in addition to the objective `goal`."""
    raise TypeError(f"no plans of a {type(report).__name__}")


@_facts.register
def _(report: TrainingReport, goal: str) -> str:
    time = "" if goal == "step_time_s" else f"{pretty(float(report.step_time_s), 's'):>8} a step  "
    return f"{time}MFU {100 * float(report.mfu):4.1f} %"


@_facts.register
def _(report: ServingReport, goal: str) -> str:
    times = (("first", float(report.time_to_first_token_s)), ("next", float(report.time_per_output_token_s)))
    shown = "".join(f"  {name} {pretty(value, 's', 3):>7}" for name, value in times if not math.isnan(value))
    return f"{float(report.tokens_per_s_per_chip):7,.0f} token/s a chip{shown}"


@singledispatch
def _chosen(report: Any) -> str:
    """Return the plan settings that are optimized separately for each alternative plan, in words."""
    return "recomputation and sharding"


_chosen.register(ServingReport, lambda report: "batch")


def _missed(search: PlanSearch) -> list[str]:
    """Return the latency limits that the closest plan misses, each with the excess."""
    words = {"time_to_first_token_s": "the first token", "time_per_output_token_s": "each next token"} | {
        f"{name}_p{level}_s": f"{what} of the slowest {100 - level} %"
        for name, what in (("time_to_first_token", "the first token"), ("time_per_output_token", "each next token"))
        for level in (95, 99)
    }
    return [
        f"  - {words.get(name, name)} takes {pretty(float(getattr(search.best.report, name)), 's')}, "
        f"{100 * over:.3g} % over the limit of {pretty(search.limits[name], 's')}"
        for name, over in search.missed.items()
    ]


def _remedies(search: PlanSearch, fitting_chips: int | None) -> list[str]:
    """Return suggestions for a cluster on which no plan fits, such as a larger number of chips."""
    if others := [name for name in search.best.report.violations() if name != "memory"]:
        return [f"No plan remedies {', '.join(others)}: they are the cluster's, not the plan's."]
    if search.best.plan.disaggregated:
        return ["Each of two groups holds all weights: try more chips, or one group that does both."]
    if fitting_chips is not None:
        least = "the least multiple tried on which a plan fits"
        return [f"{fitting_chips:,} chips would do (--chips {fitting_chips}): {least}."]
    return ["No multiple of these chips that was tried remedies it: try a larger batch, or chips with more memory."]
