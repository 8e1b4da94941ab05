"""xarray attributes of a sweep store: names and units of the arrays, and the description in the root group."""

from collections.abc import Mapping, Sequence
from typing import Any

from hwopt import escape
from hwopt.design.metrics import Metric
from hwopt.design.variables import Variable
from hwopt.sweeps.program import PARTS
from hwopt.sweeps.specification import Specification, canonical
from hwopt.units import label
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import TOKEN


def number(long_name: str, unit: str = "") -> dict[str, Any]:
    """Return the attributes of a numeric array; its unit is "1" for ratios and counts."""
    return {"units": unit or "1", "long_name": long_name}


def flags(names: Sequence[str], long_name: str) -> dict[str, Any]:
    """Return the attributes of an array of integer codes that stand for names, following the CF conventions."""
    meanings = " ".join(escape.line(name).replace(" ", "_") for name in names)
    return number(long_name) | {"flag_values": list(range(len(names))), "flag_meanings": meanings}


def of_variable(each: Variable) -> dict[str, Any]:
    """Return the attributes of the column of a design variable."""
    box = {"category": each.category, "lower": each.lower, "upper": each.upper}
    return number(label(each.name, each.unit), each.unit) | {"role": "variable"} | box


def of_metric(each: Metric) -> dict[str, Any]:
    """Return the attributes of the column of a metric."""
    return number(label(each.name, each.unit), each.unit) | {"role": "metric", "meaning": each.meaning}


BOTTLENECK = flags(PARTS, "largest part of a step")


def of_binding(spec: Specification) -> dict[str, Any]:
    """Return the attributes of an array of constraint numbers."""
    return flags(spec.constraints, "constraint nearest to its limit, or furthest beyond it")


def of_case(spec: Specification) -> dict[str, Any]:
    """Return the attributes of an array of case numbers."""
    return flags([case.name for case in spec.cases], "combination of choices")


def _counted(workload: Any) -> dict[str, Any]:
    """Return the unit that reports count training work in, and the tokens per unit; empty if work is counted in tokens."""
    if not isinstance(workload, TrainingRun) or workload.model.unit_of_work == TOKEN:
        return {}
    return {"unit_of_work": workload.model.unit_of_work, "tokens_per_unit": float(workload.tokens_per_unit)}


def of_root(spec: Specification, document: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return the attributes of a dataset: the design problem, the configuration behind every number, and `more`."""
    problem = spec.problem
    return {
        "title": problem.name,
        "question": problem.question,
        "objective": problem.objective.name,
        "objective_unit": problem.objective.unit,
        **_counted(problem.template.workload),
        "metrics": " ".join(each.name for each in spec.metrics),
        "variables": " ".join(spec.variables),
        "configuration": canonical(document),
        "versions": canonical(spec.versions()),
        "sources": "\n".join(dict.fromkeys(text for case in spec.cases for text in case.problem.sources)),
    } | more
