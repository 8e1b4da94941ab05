"""Names and units of a sweep's columns, as attributes that xarray carries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwopt.design.metrics import Metric
from hwopt.design.variables import Variable
from hwopt.study.sweep.program import OUTCOMES, PARTS
from hwopt.study.sweep.specification import Specification


def flags(names: Sequence[str], long_name: str) -> dict[str, Any]:
    """Attributes of numbers that stand for names, by the CF conventions."""
    return {
        "units": "1",
        "long_name": long_name,
        "flag_values": list(range(len(names))),
        "flag_meanings": " ".join(name.replace(" ", "_") for name in names),
    }


def of_variable(each: Variable) -> dict[str, Any]:
    """Attributes of a design variable's column."""
    return {
        "units": each.unit or "1",
        "long_name": words(each.name),
        "role": "variable",
        "category": each.category,
        "lower": each.lower,
        "upper": each.upper,
    }


def of_metric(each: Metric) -> dict[str, Any]:
    """Attributes of a metric's column."""
    return {"units": each.unit or "1", "long_name": words(each.name), "role": "metric", "meaning": each.meaning}


_ENDS = (
    "_flops_per_s", "_bytes_per_s", "_per_chip_bytes", "_bytes", "_usd", "_w", "_j", "_s", "_kg", "_m2", "_k", "_hz",
)  # fmt: skip


def words(name: str) -> str:
    """A name without its unit, for an axis: `peak power` for `peak_power_w`."""
    end = next((end for end in _ENDS if name.endswith(end)), "")
    return (name.removesuffix(end) or name).replace("_", " ")


OUTCOME = flags(OUTCOMES, "what becomes of a variant")
BOTTLENECK = flags(PARTS, "largest part of a step")


def of_binding(spec: Specification) -> dict[str, Any]:
    """Attributes of numbers of constraints."""
    return flags(spec.constraints, "constraint nearest to its limit, or furthest beyond it")


def of_case(spec: Specification) -> dict[str, Any]:
    """Attributes of numbers of cases."""
    return flags([case.name for case in spec.cases], "combination of choices")
