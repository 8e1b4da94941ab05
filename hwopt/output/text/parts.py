"""Helpers shared by JSON documents and screens: finite numbers, and components of a whole by size."""

import math
from collections.abc import Mapping
from typing import Any

from hwopt.model.report import Report

STEP = {
    "compute": "compute",
    "memory_bound": "memory-bound kernels",
    "host": "host and kernel launches",
    "tp_comm": "tensor-parallel communication",
    "cp_comm": "context-parallel communication",
    "ep_comm": "expert-parallel communication",
    "pp_comm": "pipeline communication",
    "pp_bubble": "pipeline bubble",
    "pp_imbalance": "pipeline imbalance",
    "dp_comm": "data-parallel communication",
    "optimizer": "optimizer update",
    "offload": "waiting for the memory pool",
    "input": "waiting for training data",
    "sites_comm": "communication between sites",
    "overhead": "fixed overhead of a step",
    "jitter": "jitter between chips",
    "production": "straggler and stall overhead",
}
"""Component of the step time -> its label on screens and pages."""


def step_label(name: str) -> str:
    """Return the label of a component of the step time; other names with spaces."""
    return STEP.get(name, name.replace("_", " "))


def number(value: Any) -> float | None:
    """Return a value as a float for JSON; None where it is not finite."""
    value = float(value)
    return value if math.isfinite(value) else None


def numbers(values: Mapping[str, Any]) -> dict[str, float | None]:
    """Return values as floats for JSON, by name; None for those that are not finite."""
    return {name: number(value) for name, value in values.items()}


def shares(parts: Mapping[str, Any], whole: float, least: float = 0.0) -> list[tuple[str, float, float]]:
    """Return components as (name, value, share of the `whole`), the largest first, without shares up to `least`."""
    values = {name.removesuffix("_s"): float(value) for name, value in parts.items()}
    large = [(name, value, value / whole) for name, value in values.items() if value > least * whole]
    return sorted(large, key=lambda part: -part[1])


def breakdown_shares(report: Report) -> list[tuple[str, float, float]]:
    """Return the step-time breakdown as (name, seconds, share), the largest first, without components below 0.1 %."""
    return shares(report.breakdown._asdict(), float(report.step_time_s), 1e-3)
