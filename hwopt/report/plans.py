"""The best plan of a cluster as a screen and as JSON: the plan, the next best, and what was covered."""

from __future__ import annotations

from typing import Any

from hwopt.optim.plan_search import Candidate, PlanSearch
from hwopt.report.documents import breakdown_shares, number, plan_document, report_document
from hwopt.report.layout import heading, wrapped
from hwopt.report.screens import estimate_screen, plan_line
from hwopt.study.intervals import Interval
from hwopt.units import pretty

_FULL_MEMORY = 0.95
"""Share of HBM from which memory counts among what binds a plan."""

_PARTS = 3
"""Parts of a step that are named among what binds a plan."""


def binding(candidate: Candidate) -> list[tuple[str, float]]:
    """What binds a plan: the largest parts of its step by share of it, and memory where it is nearly full."""
    report = candidate.report
    parts = [(name, share) for name, _, share in breakdown_shares(report)[:_PARTS]]
    memory = float(report.memory_per_chip_bytes / report.memory_capacity_bytes)
    return [*parts, ("memory", memory)] if memory >= _FULL_MEMORY else parts


def _alternative_document(candidate: Candidate, best: Candidate) -> dict[str, Any]:
    report = candidate.report
    return {
        "plan": plan_document(candidate.plan),
        "objective": number(candidate.objective),
        "excess": number(candidate.objective / best.objective - 1.0) if best.objective else None,
        "step_time_s": number(report.step_time_s),
        "mfu": number(report.mfu),
        "memory_per_chip_bytes": number(report.memory_per_chip_bytes),
        "bottleneck": report.bottleneck_name(),
        "binding": dict(binding(candidate)),
    }


def plan_search_document(
    search: PlanSearch, fitting_chips: int | None = None, around: Interval | None = None, constants: str = ""
) -> dict[str, Any]:
    """An answer of `plan`: as `estimate`'s, with plan, certificate, alternatives and counts.

    **Arguments:** `fitting_chips` on which some plan fits, where none does on the cluster's; `around`: the interval of the
    prediction; `constants` in use.
    """
    best, goal = search.best, search.objective
    return {
        "plan": plan_document(best.plan),
        "objective": {
            "name": goal.name,
            "value": number(best.objective) if search.feasible else None,
            "unit": goal.unit,
        },
        **report_document(best.report, around, constants),
        "certificate": {"lower_bound": search.lower_bound, "gap": search.gap, "scope": search.scope},
        "alternatives": [_alternative_document(each, best) for each in search.alternatives],
        "examined": search.examined,
        "fitting": search.fitting,
        "fitting_chips": fitting_chips,
    }


def _row(candidate: Candidate, search: PlanSearch) -> str:
    report, goal = candidate.report, search.objective
    value = f"{pretty(candidate.objective, goal.unit):>11}"
    more = f"+{100 * (candidate.objective / search.best.objective - 1):.2f} %" if search.best.objective else ""
    time = "" if goal.name == "step_time_s" else f"  {pretty(float(report.step_time_s), 's'):>8} a step"
    bounds = ", ".join(f"{name} {100 * share:.0f} %" for name, share in binding(candidate))
    memory = pretty(float(report.memory_per_chip_bytes), "B", 3)
    return (
        f"  {value} {more:>9}{time}  MFU {100 * float(report.mfu):4.1f} %  {memory:>8}  {plan_line(candidate.plan)}\n"
        f"{'':14}bound by {bounds}"
    )


def plan_screen(
    search: PlanSearch,
    title: str,
    fitting_chips: int | None = None,
    around: Interval | None = None,
    constants: str = "",
) -> str:
    """One screen for `plan`: the best plan as `estimate` shows it, the next best, and the proof.

    **Arguments:** as of `plan_search_document`; `title`: workload and cluster in words.
    """
    lines = [estimate_screen(search.best.report, search.best.plan, title, around, constants)]
    if not search.feasible:
        lines += ["", f"None of {search.examined:,} plans fits; this one comes closest."]
        lines += _mending(search, fitting_chips)
        return "\n".join([*lines, "", wrapped(search.scope)])
    if search.alternatives:
        lines += heading(f"The next best by {search.objective.name}, each with its best recomputation and sharding")
        lines += [_row(each, search) for each in search.alternatives]
    lines += heading("How good is it")
    lines += [
        wrapped(search.scope),
        f"  {search.fitting:,} of {search.examined:,} fit and were timed by the exact model; "
        f"{search.objective.name} = {pretty(search.best.objective, search.objective.unit, 6)} is the least of them: gap 0",
    ]
    return "\n".join(lines)


def _mending(search: PlanSearch, fitting_chips: int | None) -> list[str]:
    """What would make a plan fit."""
    over = search.best.report.violations()
    others = [name for name in over if name != "memory"]
    if others:
        return [f"No plan mends {', '.join(others)}: they are the cluster's, not the plan's."]
    if fitting_chips is not None:
        return [
            f"{fitting_chips:,} chips would do (--chips {fitting_chips}): the least multiple tried on which a plan fits."
        ]
    return ["No multiple of these chips that was tried mends it: try a larger batch, or chips with more memory."]
