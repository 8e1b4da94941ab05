"""The best plan of a cluster as a screen and as JSON: the plan, the next best, and what was covered."""

from __future__ import annotations

from typing import Any

from hwopt.evidence.intervals import Interval
from hwopt.model.serving.report import ServingReport
from hwopt.optim.plan_search import Candidate, PlanSearch
from hwopt.plan import Disaggregated
from hwopt.report.documents import plan_document, report_document
from hwopt.report.layout import heading, wrapped
from hwopt.report.parts import breakdown_shares, number
from hwopt.report.screens import estimate_screen, plan_line
from hwopt.report.serving import absent, limits_document, serving_plan_document
from hwopt.report.serving_screens import serving_plan_line, serving_screen
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


def _plan_document(candidate: Candidate) -> dict[str, Any]:
    plan = candidate.plan
    if isinstance(candidate.report, ServingReport):
        return serving_plan_document(plan)
    return plan_document(plan)


def _line(candidate: Candidate) -> str:
    """A plan in the words that `--plan` takes."""
    plan = candidate.plan
    if isinstance(candidate.report, ServingReport):
        return serving_plan_line(plan)
    return plan_line(plan)


_SERVED = ("tokens_per_s_per_chip", "time_to_first_token_s", "time_per_output_token_s", "users", "cost_per_token_usd")
"""What an alternative of a service says of itself, where it has it."""


def _alternative_document(candidate: Candidate, best: Candidate) -> dict[str, Any]:
    report = candidate.report
    document = {
        "plan": _plan_document(candidate),
        "objective": number(candidate.objective),
        "excess": number(candidate.objective / best.objective - 1.0) if best.objective else None,
        "step_time_s": number(report.step_time_s),
        "mfu": number(report.mfu),
        "memory_per_chip_bytes": number(report.memory_per_chip_bytes),
        "bottleneck": report.bottleneck_name(),
        "binding": dict(binding(candidate)),
    }
    if isinstance(report, ServingReport):
        missing = absent(report)
        document |= {name: None if name in missing else number(getattr(report, name)) for name in _SERVED}
    return document


def plan_search_document(
    search: PlanSearch, fitting_chips: int | None = None, around: Interval | None = None, constants: str = ""
) -> dict[str, Any]:
    """An answer of `plan`: as `estimate`'s, with plan, certificate, alternatives and counts.

    **Arguments:** `fitting_chips` on which some plan fits, where none does on the cluster's; `around`: the interval of the
    prediction; `constants` in use.
    """
    best, goal = search.best, search.objective
    return {
        "plan": _plan_document(best),
        "objective": {
            "name": goal.name,
            "value": number(best.objective) if search.feasible else None,
            "unit": goal.unit,
        },
        **report_document(best.report, around, constants),
        **(limits_document(search) if isinstance(best.report, ServingReport) else {}),
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
    bounds = ", ".join(f"{name} {100 * share:.0f} %" for name, share in binding(candidate))
    memory = pretty(float(report.memory_per_chip_bytes), "B", 3)
    if isinstance(report, ServingReport):
        facts = _served(report)
    else:
        time = "" if goal.name == "step_time_s" else f"{pretty(float(report.step_time_s), 's'):>8} a step  "
        facts = f"{time}MFU {100 * float(report.mfu):4.1f} %"
    return f"  {value} {more:>9}  {facts}  {memory:>8}  {_line(candidate)}\n{'':14}bound by {bounds}"


def _served(report: ServingReport) -> str:
    """Throughput and latencies of a service's alternative."""
    times = (("first", report.time_to_first_token_s), ("next", report.time_per_output_token_s))
    shown = "".join(f"  {name} {pretty(float(value), 's', 3):>7}" for name, value in times if float(value))
    return f"{float(report.tokens_per_s_per_chip):7,.0f} token/s a chip{shown}"


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
    best = search.best
    if isinstance(best.report, ServingReport):
        lines = [serving_screen(best.report, best.plan, title, around, constants)]
    else:
        lines = [estimate_screen(best.report, best.plan, title, around, constants)]
    if not search.feasible:
        fits = bool(best.report.feasible)
        what = "holds the limits" if fits else "fits"
        lines += ["", f"None of {search.examined:,} plans {what}; this one comes closest."]
        lines += _missed(search) if fits else _mending(search, fitting_chips)
        return "\n".join([*lines, "", wrapped(search.scope)])
    served = isinstance(best.report, ServingReport)
    if search.alternatives:
        lines += heading(f"The next best by {search.objective.name}, each with its best {_CHOSEN[served]}")
        lines += [_row(each, search) for each in search.alternatives]
    lines += heading("How good is it")
    holding = ", hold the limits" if search.limits else ""
    evaluated = "the pairs evaluated" if isinstance(best.plan, Disaggregated) else f"{search.examined:,}"
    lines += [
        wrapped(search.scope),
        f"  {search.fitting:,} of {evaluated} fit{holding} and were timed by the exact model; "
        f"{search.objective.name} = {pretty(search.best.objective, search.objective.unit, 6)} is the least of them: gap 0",
    ]
    return "\n".join(lines)


_CHOSEN = {False: "recomputation and sharding", True: "batch"}
"""What an alternative has of its best, for training and for serving."""


def _missed(search: PlanSearch) -> list[str]:
    """Which limits the plan that comes closest misses, and by how much."""
    words = {"time_to_first_token_s": "the first token", "time_per_output_token_s": "each next token"}
    return [
        f"  - {words.get(name, name)} takes {pretty(float(getattr(search.best.report, name)), 's')}, "
        f"{100 * over:.3g} % over the limit of {pretty(search.limits[name], 's')}"
        for name, over in search.missed.items()
    ]


def _mending(search: PlanSearch, fitting_chips: int | None) -> list[str]:
    """What would make a plan fit."""
    over = search.best.report.violations()
    others = [name for name in over if name != "memory"]
    if others:
        return [f"No plan mends {', '.join(others)}: they are the cluster's, not the plan's."]
    if isinstance(search.best.plan, Disaggregated):
        return ["Each of two groups holds all weights: try more chips, or one group that does both."]
    if fitting_chips is not None:
        return [
            f"{fitting_chips:,} chips would do (--chips {fitting_chips}): the least multiple tried on which a plan fits."
        ]
    return ["No multiple of these chips that was tried mends it: try a larger batch, or chips with more memory."]
