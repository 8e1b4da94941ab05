"""A service's answers as plain dictionaries, ready for JSON: the contract of the `--json` flag."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from hwopt.evidence.intervals import Interval
from hwopt.model.serving.report import ServingReport
from hwopt.optim.plan_blocks import PlanSearch
from hwopt.plan import Disaggregated, Plan
from hwopt.report.parts import number, parts_document
from hwopt.workload.service import Service

FLOPS_CONVENTION = (
    "2 FLOP a weight and token, attention over the tokens before it; what is drafted in vain counts in hfu only"
)

_ALWAYS = (
    "prefill_chips", "decode_chips", "memory_per_chip_bytes", "memory_capacity_bytes", "peak_power_w", "site_power_w",
    "chip_power_w", "rack_power_w", "capex_usd", "parameters", "active_parameters", "clock_ratio", "clock_margin",
    "junction_temperature_k", "heat_flux_w_per_m2", "racks", "floor_area_m2", "pue", "silicon_area_m2", "hbm_stacks",
    "package_area_m2", "wafers",
)  # fmt: skip
"""What a plan that does not fit has too."""

_PARTS = ("breakdown", "hidden_s", "memory", "margins", "bottleneck", "feasible")

_NAMES = {"tp": "tp", "pp": "pp", "dp": "dp", "ep": "ep", "expert_tp": "expert_tp", "batch": "micro_batch"}
"""Words of `--plan` and the fields of a plan."""


def service_document(service: Service, mode: str) -> dict[str, Any]:
    """What is asked of a service."""
    names = (
        "input_tokens",
        "output_tokens",
        "cached_fraction",
        "requests_per_s",
        "load",
        "drafted_tokens",
        "acceptance",
        "draft_fraction",
    )
    return {"mode": mode} | {name: number(getattr(service, name)) for name in names}


def serving_plan_document(plan: Plan | Disaggregated) -> dict[str, Any]:
    """A plan that serves in the words of `--plan`; of two groups each with its chips. Whole numbers as integers."""
    if isinstance(plan, Disaggregated):
        groups = {"prefill": serving_plan_document(plan.prefill), "decode": serving_plan_document(plan.decode)}
        return {name: each | {"chips": each["tp"] * each["pp"] * each["dp"]} for name, each in groups.items()}
    values = {name: float(np.asarray(getattr(plan, field))) for name, field in _NAMES.items()}
    return {name: int(value) if value.is_integer() else value for name, value in values.items()}


def absent(report: ServingReport) -> set[str]:
    """Metrics that a machine of one phase, or one group of chips, does not have; the model gives them as 0."""
    found = set()
    if not float(report.time_to_first_token_s):
        found |= {"time_to_first_token_s", "request_time_s"}
    if not float(report.time_per_output_token_s):
        found |= {"time_per_output_token_s", "request_time_s", "users", "users_per_w"}
    if not float(report.kv_transfer_s):
        found |= {"kv_transfer_s"}
    return found


_IN_PROPORTION = (
    "step_time_s", "tokens_per_s", "tokens_per_s_per_chip", "requests_per_s", "time_to_first_token_s",
    "time_per_output_token_s", "request_time_s", "mfu", "hfu", "model_flops_per_chip_per_s", "cost_per_token_usd",
)  # fmt: skip
"""Metrics in proportion to the step time or to its reciprocal, and money, which nearly is: they share its interval."""


def _interval_document(report: ServingReport, around: Interval | None) -> dict[str, Any]:
    """`low` and `high` of the metrics that have an interval; null without one."""
    if around is None:
        return {"low": None, "high": None}
    known = [name for name in _IN_PROPORTION if bool(report.feasible) and name not in absent(report)]
    ends = {name: around.times(float(getattr(report, name))) for name in known}
    return {side: {name: each[i] for name, each in ends.items()} for i, side in enumerate(("low", "high"))}


def serving_report_document(
    report: ServingReport, around: Interval | None = None, constants: str = ""
) -> dict[str, Any]:
    """A concrete report, its interval and the mode of its constants: every metric, null where there is none.

    A plan that does not fit gets its violations and memory, and null for what it would have done.
    """
    feasible, missing = bool(report.feasible), absent(report)
    document: dict[str, Any] = {"feasible": feasible, "violations": report.violations()}
    for name in (field.name for field in dataclasses.fields(report)):
        if name not in _PARTS:
            known = name not in missing and (feasible or name in _ALWAYS)
            document[name] = number(getattr(report, name)) if known else None
    document |= parts_document(report, feasible)
    return document | {
        **_interval_document(report, around),
        "constants": str(constants) or None,
        "mfu_convention": FLOPS_CONVENTION,
    }


def limits_document(search: PlanSearch) -> dict[str, Any]:
    """Limits of a search for plans; those that its plan misses stand among the violations too."""
    report = search.best.report
    fits = bool(report.feasible)
    rows = [
        {
            "name": name,
            "limit": limit,
            "value": number(getattr(report, name)) if fits else None,
            "over": search.missed.get(name),
        }
        for name, limit in search.limits.items()
    ]
    return {
        "feasible": search.feasible,
        "violations": report.violations() | dict(search.missed),
        "limits": rows,
    }
