"""What documents and screens have in common: finite numbers, parts of a whole by their size."""

import math
from collections.abc import Mapping
from typing import Any

from hwopt.model.report import Report


def number(value: Any) -> float | None:
    """A finite number, or null."""
    value = float(value)
    return value if math.isfinite(value) else None


def numbers(values: Mapping[str, Any]) -> dict[str, float | None]:
    """Finite numbers by name, and nulls."""
    return {name: number(value) for name, value in values.items()}


def shares(parts: Mapping[str, Any], whole: float, least: float = 0.0) -> list[tuple[str, float, float]]:
    """Parts as (name, value, share of the `whole`), largest first, without those of no more than a `least` share."""
    values = {name.removesuffix("_s"): float(value) for name, value in parts.items()}
    large = [(name, value, value / whole) for name, value in values.items() if value > least * whole]
    return sorted(large, key=lambda part: -part[1])


def breakdown_shares(report: Report) -> list[tuple[str, float, float]]:
    """Parts of the step as (name, seconds, share), largest first, parts below a thousandth left out."""
    return shares(report.breakdown._asdict(), float(report.step_time_s), 1e-3)
