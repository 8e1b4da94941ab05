"""Answers as plain dictionaries, ready for JSON: the contract of the `--json` flag."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from hwopt.evidence.intervals import Interval
from hwopt.model import chip_project
from hwopt.model.report import Report
from hwopt.model.serving.report import ServingReport
from hwopt.model.serving.train_and_serve import BothReport
from hwopt.optim.solution import Solution
from hwopt.plan import Plan, TrainingAndServing
from hwopt.report.parts import number, parts_document
from hwopt.report.serving import serving_plan_document, serving_report_document
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


def plan_document(plan: Plan) -> dict[str, float | int]:
    """A plan; whole numbers as integers."""
    values = {name: float(np.asarray(getattr(plan, name))) for name in plan.__dataclass_fields__}
    return {name: int(value) if value.is_integer() else value for name, value in values.items()}


def any_plan_document(plan: Any, serves: bool) -> dict[str, Any]:
    """A plan of training or of serving, or both where a chip trains and serves."""
    if isinstance(plan, TrainingAndServing):
        return {"training": plan_document(plan.training), "serving": serving_plan_document(plan.serving)}
    return serving_plan_document(plan) if serves else plan_document(plan)


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


def _both_document(report: BothReport, constants: str) -> dict[str, Any]:
    """Two machines of the same chips: what they have together, and each with its own report."""
    own = [field.name for field in dataclasses.fields(report) if field.name not in _OWN]
    return {name: number(getattr(report, name)) for name in own} | {
        "feasible": bool(report.feasible),
        "violations": report.violations(),
        "training": report_document(report.training, None, constants),
        "serving": report_document(report.serving, None, constants),
    }


_OWN = ("training", "serving", "margins", "feasible", "bottleneck")


def report_document(
    report: Report | ServingReport | BothReport, around: Interval | None = None, constants: str = ""
) -> dict[str, Any]:
    """A concrete report, its interval and the mode of its constants.

    A plan that does not fit gets its violations and memory, and null for what it would have done.
    """
    if isinstance(report, BothReport):
        return _both_document(report, constants)
    if isinstance(report, ServingReport):
        return serving_report_document(report, around, constants)
    feasible = bool(report.feasible)
    document: dict[str, Any] = {"feasible": feasible, "violations": report.violations()}
    for name in _NEEDS_A_FITTING_PLAN:
        document[name] = number(getattr(report, name)) if feasible else None
    for name in _ALWAYS:
        document[name] = number(getattr(report, name))
    document |= parts_document(report, feasible)
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
    report = solution.report
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
        "plan": any_plan_document(solution.plan, isinstance(report, ServingReport)),
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
        "report": report_document(report, around, constants),
        "sources": list(problem.sources),
    }
