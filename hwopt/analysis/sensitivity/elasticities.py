"""Elasticities of metrics to every model input at one design, by automatic differentiation of the traced model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hwopt.declared import Result
from hwopt.design.design import Design, Inputs
from hwopt.design.metrics import metric_of, numbers
from hwopt.design.template_inputs import Input, inputs_of
from hwopt.hardware.chip_project import ChipProject
from hwopt.hardware.cluster import Cluster
from hwopt.model.chip.chip_project import installed
from hwopt.model.estimate import KINDS, estimate, report_type
from hwopt.model.report import ServingReport, TrainingReport, TrainServeReport
from hwopt.plan import Disaggregated, Plan, TrainServePlan
from hwopt.trace.cache import are_numbers, cached_trace, gradient_in_numpy
from hwopt.trace.derivatives import value_and_gradient
from hwopt.validation import check_kinds, names_of
from hwopt.workload.service import Service
from hwopt.workload.train_serve import TrainServe
from hwopt.workload.training import TrainingRun

_USUAL: dict[type, tuple[str, ...]] = {
    TrainingReport: ("step_time_s", "mfu", "run_cost_usd", "peak_power_w", "energy_per_token_j"),
    ServingReport: (
        "time_per_output_token_s", "time_to_first_token_s", "cost_per_token_usd", "peak_power_w", "energy_per_token_j",
    ),
    TrainServeReport: ("lifetime_cost_usd", "run_time_s", "time_per_output_token_s", "capex_usd", "peak_power_w"),
}  # fmt: skip


def default_metrics(workload: Any) -> tuple[str, ...]:
    """Return the metrics whose elasticities are shown by default."""
    return _USUAL[report_type(workload)]


@dataclass(frozen=True)
class Elasticities(Result):
    """Elasticities of metrics at one design: percent change of each metric by percent of each input, all else fixed."""

    metrics: dict[str, float]  # name -> value, SI
    inputs: tuple[Input, ...]
    table: np.ndarray  # (metric, input); NaN where a metric is not positive

    def of(self, metric: str) -> dict[str, float]:
        """Return the nonzero elasticities of one metric by input name, the largest first."""
        row = self.table[list(self.metrics).index(metric)]
        order = np.argsort(-np.abs(row), kind="stable")
        return {self.inputs[i].name: float(row[i]) for i in order if row[i] and math.isfinite(row[i])}

    def to_dataframe(self) -> Any:
        """Return the table as a `pandas.DataFrame`: a row for each input, a column for each metric."""
        from pandas import DataFrame

        return DataFrame(self.table.T, [each.name for each in self.inputs], [*self.metrics])


def elasticities(
    workload: TrainingRun | Service | TrainServe,
    cluster: Cluster,
    plan: Plan | Disaggregated | TrainServePlan,
    *,
    project: ChipProject | None = None,
    metrics: Sequence[str] | None = None,
) -> Elasticities:
    """Compute elasticities `d log(metric) / d log(input)` of metrics to every positive input, each alone, all else fixed.

    Where two branches of a maximum tie, the derivative is the mean of both.

    **Arguments:**

    - `workload`, `cluster`, `plan`: inputs of `estimate`.
    - `project`: parametric chip of the cluster. Its parameters are inputs then, instead of those of the resulting chip.
    - `metrics`: names of numbers of the report; `default_metrics` by default.

    **Returns:** the metrics' values and a table of elasticities (metric, input).

    **Raises:** `UserError` for an unknown metric.

    **Units:** percent per percent.
    """
    check_kinds("elasticities", {"workload": workload, "cluster": cluster, "plan": plan}, KINDS)
    metrics = default_metrics(workload) if metrics is None else names_of("metrics", metrics)
    for name in metrics:
        metric_of(name, workload)  # raises for unknown ones
    fields = numbers(workload)
    design = Design(workload, cluster, plan, project)
    inputs, names = inputs_of(design), list(dict.fromkeys(metrics))
    leaves, structure = jax.tree.flatten(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), design))
    shapes = [jax.ShapeDtypeStruct(leaf.shape, np.float64) for leaf in leaves]
    line = cached_trace(_numbers, jax.tree.unflatten(structure, shapes)).line
    point = [float(x) for leaf in leaves for x in leaf.ravel()]
    values, slopes = value_and_gradient(line, point, [fields.index(name) for name in names])
    starts = np.cumsum([0, *(leaf.size for leaf in leaves)])
    by_input = slopes[:, [starts[each.leaf] + each.element for each in inputs]]
    scale = np.where(values > 0.0, values, math.nan)[:, None]
    table = by_input * np.array([each.value for each in inputs]) / scale
    return Elasticities(dict(zip(names, values.tolist(), strict=True)), tuple(inputs), table)


def gradient(
    metric: str,
    workload: TrainingRun | Service | TrainServe,
    cluster: Cluster,
    plan: Plan | Disaggregated | TrainServePlan,
) -> Inputs:
    """Return the derivatives of a metric of `estimate` with respect to every number of its inputs, each alone.

    Numbers are differentiated in NumPy and float64, without compilation. Traced inputs are differentiated by `jax.grad`. Where
    two branches of a maximum tie, the derivative is the mean of both.

    **Arguments:**

    - `metric`: name of a number of the report, such as "step_time_s".
    - `workload`, `cluster`, `plan`: inputs of `estimate`.

    **Returns:** `(workload, cluster, plan)`, with a derivative in place of each number.

    **Units:** the metric's unit per unit of the input, SI.

    **Raises:** `UserError` for an unknown metric.
    """
    given = Inputs(workload, cluster, plan)
    check_kinds("gradient", given._asdict(), KINDS)
    part = metric_of(names_of("gradient: metric", [metric])[0], workload).value
    if are_numbers(given):
        return Inputs(*gradient_in_numpy(estimate, part, *given))
    return jax.grad(lambda each: part(estimate(*each)))(given)


def _numbers(design: Design) -> list[jax.Array]:
    """Return the numbers of the report, in the order of `numbers`."""
    cluster = design.cluster if design.project is None else installed(design.cluster, design.project)
    report = estimate(design.workload, cluster, design.plan)
    return [jnp.asarray(getattr(report, name)) for name in numbers(design.workload)]
