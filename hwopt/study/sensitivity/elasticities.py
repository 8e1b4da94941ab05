"""Elasticities of metrics to every input of the model at one design, by reverse-mode derivatives of `estimate`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from hwopt.design.metrics import METRICS, number, numbers
from hwopt.design.variables import Design
from hwopt.errors import UserError, suggest
from hwopt.hardware.chip_project import ChipProject
from hwopt.hardware.cluster import Cluster
from hwopt.model.chip_project import installed
from hwopt.model.estimate import estimate
from hwopt.optim.quick_jit import quick_jit
from hwopt.plan import Disaggregated, Plan, TrainingAndServing
from hwopt.study.sensitivity.inputs import Input, design_inputs, unit_of
from hwopt.workload.service import Service
from hwopt.workload.train_and_serve import TrainAndServe
from hwopt.workload.training import TrainingRun

_TRAINING = ("step_time_s", "mfu", "run_cost_usd", "peak_power_w", "energy_per_token_j")
_SERVING = (
    "time_per_output_token_s",
    "time_to_first_token_s",
    "cost_per_token_usd",
    "peak_power_w",
    "energy_per_token_j",
)


_BOTH = ("lifetime_cost_usd", "run_time_s", "time_per_output_token_s", "capex_usd", "peak_power_w")


def default_metrics(workload: TrainingRun | Service | TrainAndServe) -> tuple[str, ...]:
    """Metrics whose elasticities are shown where nothing else is asked for."""
    if isinstance(workload, TrainAndServe):
        return _BOTH
    return _SERVING if isinstance(workload, Service) else _TRAINING


@dataclass(frozen=True)
class Elasticities:
    """Percents of each metric by percent of each input, at one design, all else held."""

    metrics: dict[str, float]  # name -> value, SI
    inputs: tuple[Input, ...]
    table: np.ndarray  # (metric, input); NaN where a metric is not positive

    def of(self, metric: str) -> dict[str, float]:
        """Name of input -> elasticity of one metric, largest first, without those that do nothing."""
        row = self.table[list(self.metrics).index(metric)]
        order = np.argsort(-np.abs(row), kind="stable")
        return {self.inputs[i].name: float(row[i]) for i in order if row[i] and math.isfinite(row[i])}


def metric_unit(name: str) -> str:
    """SI unit of a number of a report."""
    return METRICS[name].unit if name in METRICS else unit_of(name)


def check_metrics(names: Sequence[str], workload: TrainingRun | Service | TrainAndServe) -> None:
    """Refuses what is no number of a workload's report.

    **Raises:** `UserError` for an unknown name.
    """
    known = numbers(workload)
    for name in names:
        if name not in known:
            raise UserError(f"unknown metric '{name}': {suggest(name, known)}")


def elasticities(
    workload: TrainingRun | Service | TrainAndServe,
    cluster: Cluster,
    plan: Plan | Disaggregated | TrainingAndServing,
    *,
    project: ChipProject | None = None,
    metrics: Sequence[str] | None = None,
) -> Elasticities:
    """Elasticities `d log(metric) / d log(input)` of metrics to every positive input, each alone, all else held.

    Where two branches of a maximum tie, the derivative is that of one of them.

    **Arguments:** the inputs of `estimate`; `project` of the cluster's chip where it is drawn: its numbers are inputs
    then, and those of the chip that it becomes are not; `metrics`: names of numbers of the report, `default_metrics` by
    default.

    **Raises:** `UserError` for an unknown metric.

    **Units:** percent by percent.
    """
    metrics = default_metrics(workload) if metrics is None else metrics
    check_metrics(metrics, workload)
    fields = numbers(workload)
    design = Design(workload, cluster, plan, project)
    inputs = design_inputs(design)
    with jax.enable_x64(True):
        design = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), design)
        rows = []
        for name in metrics:
            values, pulled = _pulled(design, jnp.asarray([float(field == name) for field in fields]))
            leaves = [np.asarray(leaf).ravel() for leaf in jax.tree.leaves(pulled)]
            rows.append([leaves[each.leaf][each.element] * each.value for each in inputs])
    found = {name: float(values[fields.index(name)]) for name in metrics}
    scale = np.array([value if value > 0.0 else math.nan for value in found.values()])
    return Elasticities(found, tuple(inputs), np.asarray(rows).reshape(len(found), -1) / scale[:, None])


def _vector(design: Design) -> jax.Array:
    """All numbers of the report of a design, (field,)."""
    cluster = design.cluster if design.project is None else installed(design.cluster, design.project)
    report = estimate(design.workload, cluster, design.plan)
    return jnp.stack([number(name)(report) for name in numbers(design.workload)])


def _pull(design: Design, weights: jax.Array) -> tuple[jax.Array, Design]:
    values, back = jax.vjp(_vector, design)
    return values, back(weights)[0]


_pulled = quick_jit(_pull)
"""Numbers of the report, and the gradient of their weighted sum: one program whichever metric is asked for."""
