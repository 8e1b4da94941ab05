"""Entry point of the model: (workload, cluster, plan) -> report; and a lifted form with implicit quantities given as inputs."""

from functools import singledispatch
from typing import Any, TypeAlias, overload

import equinox as eqx
import jax
import jax.numpy as jnp

from hwopt.errors import UserError
from hwopt.hardware.cluster import AnyCluster, Cluster, ClusterPair, Fleet
from hwopt.model.fleet.data_parallel import FleetReport, fleet_report
from hwopt.model.fleet.pipeline import pipeline_report
from hwopt.model.machine import Lifted, LiftedMargins
from hwopt.model.numerics.maximum import Maximum, choose, hard_maximum
from hwopt.model.report import AnyReport, ServingReport, TrainingReport, TrainServeReport
from hwopt.model.serving.estimate import serving_report
from hwopt.model.training.run import training_report
from hwopt.plan import Disaggregated, FleetPipeline, FleetPlan, Plan, TrainServePlan
from hwopt.trace.cache import are_numbers, evaluate_in_numpy
from hwopt.types import Scalar
from hwopt.validation import checked
from hwopt.workload.service import Service
from hwopt.workload.train_serve import TrainServe
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer

REPORTS = {TrainingRun: TrainingReport, Service: ServingReport, TrainServe: TrainServeReport}
"""Class of the report that `estimate` returns, by class of the workload."""

KINDS = {
    "workload": tuple(REPORTS),
    "cluster": (Cluster, ClusterPair, Fleet),
    "plan": (Plan, Disaggregated, TrainServePlan, FleetPlan, FleetPipeline),
}
"""Accepted classes of each argument of `estimate`, in order."""

Temperature: TypeAlias = Scalar | None


@overload
def estimate(
    workload: TrainingRun, cluster: Cluster, plan: Plan, *, temperature: Temperature = None
) -> TrainingReport: ...
@overload
def estimate(
    workload: TrainingRun, cluster: Fleet, plan: FleetPlan | FleetPipeline, *, temperature: Temperature = None
) -> FleetReport: ...
@overload
def estimate(
    workload: Service, cluster: AnyCluster, plan: Plan | Disaggregated, *, temperature: Temperature = None
) -> ServingReport: ...
@overload
def estimate(
    workload: TrainServe, cluster: Cluster, plan: TrainServePlan, *, temperature: Temperature = None
) -> TrainServeReport: ...
@checked(**KINDS)
def estimate(workload, cluster, plan, *, temperature=None):
    """Return time, memory, power, temperature, failures, cost and carbon of a workload on a cluster under a plan.

    Numbers are evaluated in NumPy and float64, without compilation; the trace of the model is cached on disk. The function is
    pure and works under `jax.jit`, `vmap`, `grad` and `jacobian`, which compile it. It does not validate values (constructors
    in the catalog do) and has no budgets. A plan that does not fit has `feasible = 0` and a negative margin, which is the size
    of the violation.

    **Arguments:**

    - `workload`: a `TrainingRun` (model, batch and tokens), a `Service` (model, requests and number formats), or a `TrainServe`
      (both).
    - `cluster`: chips, network, racks, cooling, facility, reliability, prices and software stack. The chip runs at the
      requested clock, or at a lower one if power cap or cooling require it. A `ClusterPair` has different chips for prefill and
      decode, a `Fleet` has groups of chips that train together.
    - `plan`: degrees of parallelism; may be fractional (the relaxed model). A service also accepts two plans, `Disaggregated`.
      A fleet needs a `FleetPlan`, or a `FleetPipeline` whose stages are on the groups.
    - `temperature`: None for the exact model (hard maxima), whose numbers are reported. A small positive number gives a smooth
      approximation, an upper bound within a factor `2^temperature` per maximum.

    **Returns:**

    - a `TrainingReport` for a training run, including the loss reached;
    - a `ServingReport` for a service;
    - a `TrainServeReport` for a model that is trained on one machine and served on another with the same chips;
    - a `FleetReport` for a `Fleet`.

    **Units:** SI throughout.
    """
    _check_groups(workload, cluster, plan)
    if temperature is None and are_numbers((workload, cluster, plan)):
        return evaluate_in_numpy(estimate, workload, cluster, plan)
    return _compiled(workload, cluster, plan, temperature)


@jax.jit
def _compiled(workload, cluster, plan, temperature):
    """Return the report of `estimate` as traced and compiled by JAX, once for inputs of the same shapes."""
    workload, cluster, plan = _floating((workload, cluster, plan))
    if isinstance(cluster, Fleet):
        if isinstance(plan, FleetPipeline):
            return pipeline_report(workload, cluster, plan, choose(temperature))
        return fleet_report(workload, cluster, plan, choose(temperature))
    return _report(workload, cluster, plan, choose(temperature), None)[0]


def lifted_estimate(
    workload: TrainingRun | Service | TrainServe,
    cluster: Cluster,
    plan: Plan | Disaggregated | TrainServePlan,
    given: Lifted,
) -> tuple[AnyReport, LiftedMargins]:
    """Return the report of `estimate` in lifted form, where implicit quantities are inputs and every output is a closed form.

    It is for solvers that cannot handle loops. The lifted variables are constrained by margins of 0 or more (epigraph form).
    Time, power, cost and carbon are then smallest at the lowest feasible junction temperature and the best checkpoint interval.
    The loss is smallest at the largest feasible number of useful tokens. These optima equal the results of `estimate` where the
    chip sustains the requested clock and `learning.batch_margin` is positive. Maxima are exact. Values are not clipped where
    margins are negative.

    **Arguments:** `given`: junction temperature, useful tokens, checkpoint interval; the others as in `estimate`.

    **Returns:** a report of the chip at the requested clock, and the margins of the lifted variables. `clock_margin` and
    `margins.cooling` refer to the given temperature, not to the highest allowed one. They differ from those of `estimate`, but
    have the same sign where the heat margin is 0. Goodput is not clipped: it is meaningless where `margins.failures` is
    negative. For a service only the junction temperature counts, because it has no learning and no checkpoints.

    **Units:** SI throughout.
    """
    workload, cluster, plan, given = _floating((workload, cluster, plan, given))
    return _report(workload, cluster, plan, hard_maximum, given)


def _check_groups(workload: Any, cluster: Any, plan: Any) -> None:
    """Raise if a cluster with several groups of chips does not match workload and plan.

    **Raises:** `UserError`.
    """
    given = f"not a {type(workload).__name__} and a {type(plan).__name__}"
    if isinstance(cluster, ClusterPair) and not (isinstance(workload, Service) and isinstance(plan, Disaggregated)):
        words = "a ClusterPair has chips for prefill and others for decode: pass a Service and a Disaggregated plan"
        raise UserError(f"estimate: {words}, {given}")
    fleets = FleetPlan, FleetPipeline
    if not isinstance(cluster, Fleet) and not isinstance(plan, fleets):
        return
    if not (isinstance(cluster, Fleet) and isinstance(plan, fleets) and isinstance(workload, TrainingRun)):
        raise UserError(
            f"estimate: groups of a Fleet train by a FleetPlan or a FleetPipeline: pass a TrainingRun and both, {given}"
        )
    shares = len(plan.layers if isinstance(plan, FleetPipeline) else plan.sequences)
    counts = len(cluster.groups), len(plan.groups), shares
    if len(set(counts)) > 1 or not counts[0]:
        raise UserError("estimate: {} groups of chips, {} plans, {} shares: pass as many of each".format(*counts))
    if workload.ramp is not None:
        raise UserError("estimate: a fleet shares one batch: leave out the batch ramp")
    if isinstance(plan, FleetPipeline) and (cluster.lines is not None or not isinstance(workload.model, Transformer)):
        raise UserError("estimate: stages of a pipeline on several kinds of chips: of a transformer, all at one site")


@singledispatch
def _report(
    workload: Any, cluster: Cluster, plan: Any, maximum: Maximum, given: Lifted | None
) -> tuple[AnyReport, LiftedMargins]:
    raise TypeError(f"estimate takes a training run, a service or both, not {type(workload).__name__}")


_report.register(TrainingRun, training_report)
_report.register(Service, serving_report)


@_report.register
def _(
    workload: TrainServe, cluster: Cluster, plan: TrainServePlan, maximum: Maximum, given: Lifted | None
) -> tuple[TrainServeReport, LiftedMargins]:
    """Return the report of a training and a serving machine with the same chip.

    The serving machine has the same links and racks, as many chips as its plan uses, and its own software stack.
    """
    training, state = training_report(workload.training, cluster, plan.training, maximum, given)
    serves = eqx.tree_at(lambda c: (c.chips, c.stack), cluster, (plan.serving.chips, workload.stack))
    serving, _ = serving_report(workload.service, serves, plan.serving, maximum, given)
    of = lambda report, *names: {name: getattr(report, name) for name in names}
    hotter = training.rack_power_w > serving.rack_power_w
    report = TrainServeReport(
        training=training,
        serving=serving,
        feasible=training.feasible * serving.feasible,
        lifetime_cost_usd=training.run_cost_usd + workload.served_tokens * serving.cost_per_token_usd,
        lifetime_energy_j=training.run_energy_j + workload.served_tokens * serving.energy_per_token_j,
        capex_usd=training.capex_usd + serving.capex_usd,
        peak_power_w=training.peak_power_w + serving.peak_power_w,
        rack_power_w=jnp.where(hotter, training.rack_power_w, serving.rack_power_w),
        **of(training, "bottleneck", "run_time_s", "run_cost_usd", "clock_ratio", "clock_margin"),
        **of(training, "junction_temperature_k", "chip_power_w", "silicon_area_m2"),
        **of(training, "total_processing_performance", "performance_density_per_m2", "io_rate_bytes_per_s"),
        **of(serving, "time_to_first_token_s", "time_per_output_token_s", "cost_per_token_usd", "requests_per_s"),
        **of(serving, "time_to_first_token_full_batch_s", "time_per_output_token_full_batch_s"),
    )
    return report, state


def report_type(workload: Any) -> type[AnyReport]:
    """Return the class of the report that `estimate` returns for a workload."""
    return REPORTS[type(workload)]


def margin_names(workload: Any) -> tuple[str, ...]:
    """Return the names of all margins of a workload's report, in the order of `margins_by_name`."""
    return report_type(workload).margin_names()


def _floating(tree):
    """Convert every leaf to a floating-point array of at least 32 bits, from integers, NumPy scalars or half precision."""
    wide = lambda leaf: jnp.promote_types(jnp.result_type(float, leaf), jnp.float32)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, wide(leaf)), tree)
