"""Metrics that can be an objective or a budget: a name, a unit, and where a report holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hwopt.errors import UserError, suggest
from hwopt.model.estimate import report_type
from hwopt.types import Scalar


@dataclass(frozen=True)
class Metric:
    """A positive number of a report of training or serving. `unit` is SI; `meaning` completes "the budget limits ..."."""

    name: str
    unit: str
    value: Callable[[Any], Scalar]
    meaning: str


def _field(name: str) -> Callable[[Any], Scalar]:
    return lambda report: getattr(report, name)


METRICS: Mapping[str, Metric] = {
    each.name: each
    for each in (
        Metric("step_time_s", "s", _field("step_time_s"), "the time of one step"),
        Metric("run_time_s", "s", _field("run_time_s"), "the time of the whole run"),
        Metric("run_cost_usd", "USD", _field("run_cost_usd"), "the cost of owning the cluster while the run lasts"),
        Metric("run_energy_j", "J", _field("run_energy_j"), "energy at the meter over the run"),
        Metric("capex_usd", "USD", _field("capex_usd"), "capital cost of equipment and building"),
        Metric("peak_power_w", "W", _field("peak_power_w"), "power at the meter with every chip at full load"),
        Metric("site_power_w", "W", _field("site_power_w"), "power at the meter of one of several sites, at full load"),
        Metric("power_w", "W", _field("power_w"), "average power at the meter"),
        Metric("chip_power_w", "W", _field("chip_power_w"), "power of one chip at full load"),
        Metric("rack_power_w", "W", _field("rack_power_w"), "power of one rack at full load"),
        Metric(
            "junction_temperature_k", "K", _field("junction_temperature_k"), "the junction's temperature at full load"
        ),
        Metric("silicon_area_m2", "m2", _field("silicon_area_m2"), "die area of one chip"),
        Metric("hbm_stacks", "stack", _field("hbm_stacks"), "HBM stacks of the cluster"),
        Metric("package_area_m2", "m2", _field("package_area_m2"), "interposer area of the cluster"),
        Metric("wafers", "wafer", _field("wafers"), "wafers of the cluster"),
        Metric("run_carbon_kg", "kg", _field("run_carbon_kg"), "carbon of the run, embodied share included"),
        Metric("carbon_per_token_kg", "kg/token", _field("carbon_per_token_kg"), "carbon of one token"),
        Metric("loss", "nat", _field("loss"), "loss after the run"),
        Metric("cost_per_token_usd", "USD/token", _field("cost_per_token_usd"), "cost of one token"),
        Metric("energy_per_token_j", "J/token", _field("energy_per_token_j"), "energy of one token"),
        Metric(
            "time_to_first_token_s", "s", _field("time_to_first_token_s"), "the time to the first token of an answer"
        ),
        Metric(
            "time_per_output_token_s", "s", _field("time_per_output_token_s"), "the time between tokens of an answer"
        ),
        Metric(
            "lifetime_cost_usd", "USD", _field("lifetime_cost_usd"), "the cost of training and of all tokens served"
        ),
        Metric("lifetime_energy_j", "J", _field("lifetime_energy_j"), "energy of training and of all tokens served"),
        Metric("request_time_s", "s", _field("request_time_s"), "the time from a request to the end of its answer"),
    )
}


def metric(name: str) -> Metric:
    """A metric by name.

    **Raises:** `UserError` for an unknown name.
    """
    if name not in METRICS:
        raise UserError(f"unknown metric '{name}': {suggest(name, METRICS)}")
    return METRICS[name]


_NO_NUMBERS = ("breakdown", "memory", "margins", "bottleneck", "feasible", "training", "serving")


def numbers(workload: Any) -> tuple[str, ...]:
    """Names of the numbers of a workload's report."""
    return tuple(name for name in report_type(workload).__dataclass_fields__ if name not in _NO_NUMBERS)


def number(name: str) -> Callable[[Any], Scalar]:
    """Where a report holds a number."""
    return METRICS[name].value if name in METRICS else _field(name)
