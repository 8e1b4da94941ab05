"""Parts of a report that training and serving share, ready for JSON."""

from __future__ import annotations

import math
from typing import Any

from hwopt.model.report import Report
from hwopt.model.serving.report import ServingReport


def number(value: Any) -> float | None:
    """A finite number, or null."""
    value = float(value)
    return value if math.isfinite(value) else None


def parts_document(report: Report | ServingReport, feasible: bool) -> dict[str, Any]:
    """Where time and memory go, and every margin; null for the time of a plan that is not `feasible`."""
    times = {name: number(value) if feasible else None for name, value in report.breakdown._asdict().items()}
    return {
        "breakdown": times,
        "hidden_s": number(report.hidden_s) if feasible else None,
        "memory": {name: number(value) for name, value in report.memory._asdict().items()},
        "bottleneck": report.bottleneck_name() if feasible else None,
        "margins": {name: number(getattr(report.margins, name)) for name in report.margins.__dataclass_fields__},
    }


def breakdown_shares(report: Report | ServingReport) -> list[tuple[str, float, float]]:
    """Parts of the step as (name, seconds, share), largest first, parts below a thousandth left out."""
    step = float(report.step_time_s)
    parts = [(name.removesuffix("_s"), float(value)) for name, value in report.breakdown._asdict().items()]
    return sorted(((n, s, s / step) for n, s in parts if s > 1e-3 * step), key=lambda part: -part[1])
