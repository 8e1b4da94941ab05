"""Answers as plain dictionaries, ready for JSON: the contract of the `--json` flag."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from hwopt.model import chip_project
from hwopt.model.report import Report
from hwopt.model.schedule import Breakdown
from hwopt.optim.solution import Solution
from hwopt.plan import Plan
from hwopt.study.intervals import Interval
from hwopt.types import PRECISIONS

_IN_PROPORTION = (
    "step_time_s", "tokens_per_s", "tokens_per_s_per_chip", "mfu", "hfu", "model_flops_per_chip_per_s",
    "cost_per_token_usd", "run_time_s", "run_cost_usd",
)  # fmt: skip
"""Metrics in proportion to the step time or to its reciprocal, and money, which nearly is: they share its interval."""

ATTENTION_CONVENTION = "causal: half the score matrix counts; recomputation counts in hfu only"

_NEEDS_A_FITTING_PLAN = (
    "step_time_s", "tokens_per_s", "tokens_per_s_per_chip", "mfu", "hfu", "model_flops_per_chip_per_s", "power_w",
    "energy_per_token_j", "carbon_per_token_kg", "cost_per_token_usd", "run_time_s", "run_cost_usd", "run_energy_j",
    "run_carbon_kg", "goodput", "mean_time_between_failures_s", "checkpoint_interval_s", "loss",
)  # fmt: skip
_ALWAYS = (
    "memory_per_chip_bytes", "memory_capacity_bytes", "pool_per_chip_bytes", "peak_power_w", "site_power_w", "chip_power_w",
    "capex_usd", "parameters",
    "active_parameters", "clock_ratio", "junction_temperature_k", "heat_flux_w_per_m2", "rack_power_w", "racks",
    "floor_area_m2", "pue", "silicon_area_m2", "hbm_stacks", "package_area_m2", "wafers",
)  # fmt: skip


def number(value: Any) -> float | None:
    """A finite number, or null."""
    value = float(value)
    return value if math.isfinite(value) else None


def plan_document(plan: Plan) -> dict[str, float | int]:
    """A plan; whole numbers as integers."""
    values = {name: float(np.asarray(getattr(plan, name))) for name in plan.__dataclass_fields__}
    return {name: int(value) if value.is_integer() else value for name, value in values.items()}


def interval_document(report: Report, around: Interval | None) -> dict[str, Any]:
    """`low` and `high` of the metrics that have an interval; null without one."""
    if around is None:
        return {"low": None, "high": None}
    ends: list[dict[str, float]] = [{}, {}]
    if bool(report.feasible):
        for name in _IN_PROPORTION:
            for end, value in zip(ends, around.times(float(getattr(report, name))), strict=True):
                end[name] = value
    for end, value in zip(ends, around.memories(float(report.memory_per_chip_bytes)), strict=True):
        end["memory_per_chip_bytes"] = value
    return {"low": ends[0], "high": ends[1]}


def report_document(report: Report, around: Interval | None = None, constants: str = "") -> dict[str, Any]:
    """A concrete report, its interval and the mode of its constants.

    A plan that does not fit gets its violations and memory, and null for what it would have done.
    """
    feasible = bool(report.feasible)
    document: dict[str, Any] = {"feasible": feasible, "violations": report.violations()}
    for name in _NEEDS_A_FITTING_PLAN:
        document[name] = number(getattr(report, name)) if feasible else None
    for name in _ALWAYS:
        document[name] = number(getattr(report, name))
    document["breakdown"] = {
        name: number(value) if feasible else None for name, value in report.breakdown._asdict().items()
    }
    document["hidden_s"] = number(report.hidden_s) if feasible else None
    document["memory"] = {name: number(value) for name, value in report.memory._asdict().items()}
    document["bottleneck"] = report.bottleneck_name() if feasible else None
    document["margins"] = {name: number(getattr(report.margins, name)) for name in report.margins.__dataclass_fields__}
    document |= interval_document(report, around)
    document |= {"constants": str(constants) or None, "mfu_convention": ATTENTION_CONVENTION}
    return document


def chip_document(solution: Solution) -> dict[str, Any] | None:
    """The chip of an answer that drew one: what it is, and what it costs to make; None for chips as they are sold."""
    project = solution.built.project
    if project is None:
        return None
    with jax.enable_x64(True):
        chip, bill, areas = solution.built.cluster.chip, chip_project.bill(project), chip_project.areas(project)
        total = bill.total
    peaks = dict(zip(PRECISIONS, map(float, chip.peak_flops_per_s * chip.clock_ratio), strict=True))
    return {
        "peak_flops_per_s": peaks,
        "sram_bytes": number(chip.sram_bytes),
        "hbm_bandwidth_bytes_per_s": number(chip.hbm_bandwidth_bytes_per_s),
        "hbm_capacity_bytes": number(chip.hbm_capacity_bytes),
        "power_w": number(solution.report.chip_power_w),
        "areas": {name: number(value) for name, value in areas._asdict().items()},
        "wafers": number(chip.wafers),
        "embodied_carbon_kg": number(chip.embodied_carbon_kg),
        "bill_usd": {name: number(value) for name, value in bill._asdict().items()} | {"total": number(total)},
        "price_usd": number(solution.built.cluster.prices.chip_base_usd),
    }


def solution_document(solution: Solution, around: Interval | None = None, constants: str = "") -> dict[str, Any]:
    """An answer of `optimize`."""
    problem = solution.problem
    return {
        "question": problem.question,
        "outcome": solution.outcome.name,
        "message": solution.outcome.value,
        "feasible": solution.feasible,
        "objective": {
            "name": problem.objective.name,
            "value": number(solution.objective),
            "unit": problem.objective.unit,
        },
        "design": {
            name: {
                "value": number(each.value),
                "unit": each.unit,
                "lower": each.lower,
                "upper": each.upper,
                "at_bound": each.at_bound,
            }
            for name, each in solution.design.items()
        },
        "plan": plan_document(solution.plan),
        "chip": chip_document(solution),
        "budgets": [
            {
                "name": each.name,
                "used": number(each.used),
                "limit": each.limit,
                "unit": each.unit,
                "shadow_price": number(each.shadow_price),
                "shadow_price_unit": each.shadow_price_unit,
                "elasticity": number(each.elasticity),
                "one_sided_prices": None
                if each.one_sided is None
                else {"tighter": number(each.one_sided[0]), "looser": number(each.one_sided[1])},
                "relaxed_elasticity": None if each.relaxed_elasticity is None else number(each.relaxed_elasticity),
            }
            for each in solution.budgets
        ],
        "clash": solution.clash,
        "certificate": {
            "kkt_residual": number(solution.certificate.kkt_residual),
            "max_violation": number(solution.certificate.max_violation),
            "lower_bound": solution.certificate.lower_bound,
            "gap": solution.certificate.gap,
            "scope": solution.certificate.scope,
        },
        "report": report_document(solution.report, around, constants),
        "sources": list(problem.sources),
    }


def breakdown_shares(report: Report) -> list[tuple[str, float, float]]:
    """Parts of the step as (name, seconds, share), largest first, parts below a thousandth left out."""
    step = float(report.step_time_s)
    parts = [
        (name.removesuffix("_s"), float(value)) for name, value in zip(Breakdown._fields, report.breakdown, strict=True)
    ]
    return sorted(((n, s, s / step) for n, s in parts if s > 1e-3 * step), key=lambda part: -part[1])
