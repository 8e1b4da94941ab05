"""Metrics that can be an objective or a budget: the numbers declared by reports, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from hwopt.errors import UserError, suggest
from hwopt.model.estimate import report_type
from hwopt.model.report import ServingReport, TrainingReport, TrainServeReport, outputs
from hwopt.types import Scalar


@dataclass(frozen=True)
class Metric:
    """A positive number of a report. `unit` is SI; `meaning` completes "the budget limits ..."; see `Output` for `bounded`."""

    name: str
    unit: str
    value: Callable[[Any], Scalar]
    meaning: str
    bounded: bool = True


METRICS: Mapping[str, Metric] = {
    name: Metric(name, each.unit, attrgetter(name), each.meaning, each.bounded)
    for kind in (TrainServeReport, ServingReport, TrainingReport)
    for name, each in outputs(kind).items()
}


def metric(name: str) -> Metric:
    """Return a metric by name.

    **Raises:** `UserError` for an unknown name.
    """
    if name not in METRICS:
        raise UserError(f"unknown metric '{name}': {suggest(name, METRICS)}")
    return METRICS[name]


def numbers(workload: Any) -> tuple[str, ...]:
    """Return the names of the numbers of a workload's report."""
    return tuple(outputs(report_type(workload)))


def metric_of(name: str, workload: Any) -> Metric:
    """Return a metric of a workload's report by name.

    **Raises:** `UserError` for an unknown name, and for a metric of another type of workload.
    """
    chosen, known = metric(name), numbers(workload)
    if name not in known:
        raise UserError(f"metric '{name}' is not available for this workload: {suggest(name, known)}")
    return chosen
