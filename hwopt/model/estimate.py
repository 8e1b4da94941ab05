"""The one entry of the model: (workload, cluster, plan) -> report; and the same lifted, its roots given from outside."""

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
from hwopt.types import Scalar
from hwopt.validation import checked
from hwopt.workload.service import Service
from hwopt.workload.train_serve import TrainServe
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer

REPORTS = {TrainingRun: TrainingReport, Service: ServingReport, TrainServe: TrainServeReport}
"""What `estimate` returns, by the kind of workload."""

KINDS = {
    "workload": tuple(REPORTS),
    "cluster": (Cluster, ClusterPair, Fleet),
    "plan": (Plan, Disaggregated, TrainServePlan, FleetPlan, FleetPipeline),
}
"""Classes of the inputs, in their order."""

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
@jax.jit
def estimate(workload, cluster, plan, *, temperature=None):
    """Time, memory, power, heat, failures, money and carbon of a training run or a service on a cluster under a plan.

    Compiled once for inputs of the same shapes. Pure: works under `jax.jit`, `vmap`, `grad` and `jacobian`; checks no
    values (constructors in the catalogue do) and knows no budgets. A plan that does not fit has `feasible = 0` and a
    negative margin that says by how much.

    **Arguments:**

    - `workload`: model, batch and tokens of a `TrainingRun`; model, requests and formats of a `Service`; both of a
      `TrainServe`.
    - `cluster`: chips, network, racks, cooling, facility, reliability, prices and software stack. The chip runs at the
      clock it asks for, or at the lower one at which the run draws what its power cap and cooling allow. A `ClusterPair` has
      chips of one kind for prompts and of another for answers, a `Fleet` groups that train together.
    - `plan`: degrees of parallelism; may be fractional (the relaxed model). For a service also two plans, `Disaggregated`; for a
      fleet a `FleetPlan`, or a `FleetPipeline` whose stages lie on the groups.
    - `temperature`: None for the exact model (hard maxima, the one whose numbers are reported); a small positive number
      for its smooth twin, an upper bound within a factor `2^temperature` a maximum.

    **Returns:** a `TrainingReport`, with the loss reached; a `ServingReport` for a service; a `TrainServeReport` for a model
    that is trained on one machine and served on another of the same chips.

    **Units:** SI throughout.
    """
    _check_groups(workload, cluster, plan)
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
    """`estimate` in the full space, its roots given: every leaf in closed form, for solvers that cannot read loops.

    The epigraph form: under margins of 0 or more, time, power, money and carbon are least at the least junction
    temperature and the best time between checkpoints, the loss at the most useful tokens, which are those of `estimate`
    wherever the chip sustains the clock it asks for and `learning.batch_margin` is positive. Hard maxima; nothing is clipped
    where margins are negative.

    **Arguments:** `given`: junction temperature, useful tokens, checkpoint interval; the others as in `estimate`.

    **Returns:** a report of the chip at the clock it asks for, and whether what is given is a state. `clock_margin` and
    `margins.cooling` are taken at the given temperature, not at the highest allowed: other numbers than `estimate`'s, of
    the same sign where the heat margin is 0. Goodput is not clipped: where `margins.failures` is negative it is meaningless.
    A service learns and saves nothing: only the junction temperature counts.

    **Units:** SI throughout.
    """
    workload, cluster, plan, given = _floating((workload, cluster, plan, given))
    return _report(workload, cluster, plan, hard_maximum, given)


def _check_groups(workload: Any, cluster: Any, plan: Any) -> None:
    """Refuses several kinds of chips where there are no groups to have them."""
    given = f"not a {type(workload).__name__} and a {type(plan).__name__}"
    if isinstance(cluster, ClusterPair) and not (isinstance(workload, Service) and isinstance(plan, Disaggregated)):
        words = "a ClusterPair has chips for prompts and others for answers: pass a Service and a Disaggregated plan"
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
    """One chip for two machines. The one that serves: same links and racks, as many chips as its plan uses, own software."""
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
    )
    return report, state


def report_type(workload: Any) -> type[AnyReport]:
    """What `estimate` returns for a workload."""
    return REPORTS[type(workload)]


def margin_names(workload: Any) -> tuple[str, ...]:
    """All that can make a workload's report infeasible, in the order of `margins_by_name`."""
    return report_type(workload).margin_names()


def _floating(tree):
    """Every leaf as a floating array of 32 bits or more: integers, NumPy scalars and half precision are welcome at the door."""
    wide = lambda leaf: jnp.promote_types(jnp.result_type(float, leaf), jnp.float32)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, wide(leaf)), tree)
