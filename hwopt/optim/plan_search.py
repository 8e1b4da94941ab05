"""The best whole-number plan of a fixed cluster, by evaluating every valid one of a stated lattice."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import numpy as np
from jaxtyping import Array

from hwopt.errors import UserError, suggest
from hwopt.hardware.cluster import Cluster
from hwopt.model.report import Report
from hwopt.optim.plan_blocks import (
    ALTERNATIVES,
    BLOCK,
    Candidate,
    PlanSearch,
    candidates,
    check_alternatives,
    distinct,
    in_blocks,
    metric_of,
    reports,
    room,
    rounded,
)
from hwopt.optim.plan_lattice import HELD, Lattice, lattice, scope
from hwopt.optim.serving_plan_lattice import serving_lattice
from hwopt.optim.serving_plan_pairs import BLOCK as SERVING_BLOCK
from hwopt.optim.serving_plan_search import best_serving_plan
from hwopt.plan import Plan
from hwopt.workload.service import Service
from hwopt.workload.training import TrainingRun

_DEGREES = Lattice._fields.index("recompute")  # columns before it are degrees and schedule
_MULTIPLES = [factor * 2**power for power in range(12) for factor in (2, 3)]  # of the chips, for a plan that fits


def best_plan(
    workload: TrainingRun | Service,
    cluster: Cluster,
    objective: str | None = None,
    alternatives: int = ALTERNATIVES,
    held: Mapping[str, float] | None = None,
    *,
    limits: Mapping[str, float] | None = None,
    disaggregate: bool = False,
) -> PlanSearch:
    """The best whole-number plan of a fixed cluster: exhaustive over a lattice, by the exact model in float64.

    Every plan's memory first, then the objective of those that fit; ties go to the faster plan, then to the plainer one.

    **Arguments:** `objective`: a metric of `hwopt.design.metrics`, the lower the better (step time for training, cost a token
    for a service); `alternatives`: how many other degrees or schedules to keep, each with its best recomputation and
    sharding, or batch; `held`: what all plans of a training run have alike, by name (`optimizer_offloaded`, `local_steps`,
    ...: `plan_lattice.HELD`); of a service, as of `best_serving_plan`: `limits` of metrics, and `disaggregate`.

    **Returns:** a `PlanSearch`.

    **Raises:** `UserError` for an unknown metric or name, and where no plan is valid.
    """
    if isinstance(workload, Service):
        if held:
            raise UserError(f"'{min(held)}' is a choice of training: a service has none that all plans have alike")
        return best_serving_plan(workload, cluster, objective, alternatives, limits=limits, disaggregate=disaggregate)
    if limits or disaggregate:
        raise UserError(f"{'limits' if limits else 'disaggregate'}: only a service has them, not a training run")
    return _best_training_plan(workload, cluster, objective or "step_time_s", alternatives, held)


def _best_training_plan(
    run: TrainingRun, cluster: Cluster, objective: str, alternatives: int, held: Mapping[str, float] | None
) -> PlanSearch:
    goal = metric_of(objective, Report)
    _check_held(held or {})
    check_alternatives(alternatives)
    rows = lattice(run, cluster)

    def evaluate(run: TrainingRun, cluster: Cluster, plans: Plan) -> tuple[Array, Array]:
        report = reports(run, cluster, plans)
        return goal.value(report), report.step_time_s

    with jax.enable_x64(True):
        fits, margin = in_blocks(room, rows, np.arange(rows.count), run, cluster, held)
        fitting = np.flatnonzero(fits > 0)
        if len(fitting):
            value, time = (rounded(each) for each in in_blocks(evaluate, rows, fitting, run, cluster, held))
            order = np.lexsort((fitting, time, value))
            # Recomputing or sharding more is no new plan.
            shown = distinct(rows[:_DEGREES], fitting[order], 1 + alternatives)
        else:
            shown = np.asarray([np.argmax(margin)])
        best, *others = candidates(goal, rows, shown, run, cluster, held)
    bound = best.objective if len(fitting) else None
    return PlanSearch(goal, best, others, rows.count, len(fitting), scope(run, cluster, rows.count), bound)


def _check_held(held: Mapping[str, float]) -> None:
    for name, value in held.items():
        if name not in HELD:
            raise UserError(f"'{name}' is not held fixed in a search for plans: {suggest(name, HELD)}")
        if name == "local_steps":
            if value < 1.0 or value != round(value):
                raise UserError(f"local_steps = {value:g} must be a whole number of at least 1")
        elif not 0.0 <= value <= 1.0:
            raise UserError(f"{name} = {value:g} must lie between 0 and 1")


def fitting_chips(workload: TrainingRun | Service, cluster_of: Callable[[int], Cluster], chips: int) -> int | None:
    """The smallest multiple of a number of chips, by 2, 3, 4, 6, 8, 12, ..., on which some plan fits.

    **Arguments:** `cluster_of` a number of chips. **Returns:** chips, or None where no multiple that was tried will do.
    """
    for multiple in _MULTIPLES:
        try:
            cluster = cluster_of(multiple * chips)
            served = isinstance(workload, Service)
            rows = serving_lattice(workload, cluster) if served else lattice(workload, cluster)
        except UserError:  # nothing divides
            continue
        with jax.enable_x64(True):
            size = SERVING_BLOCK if served else BLOCK
            if in_blocks(room, rows, np.arange(rows.count), workload, cluster, block=size)[0].any():
                return multiple * chips
    return None


def fastest_plan(run: TrainingRun, cluster: Cluster) -> Plan:
    """The fastest plan that fits; where none fits, the one closest to fitting.

    **Raises:** `UserError` where no plan is valid.
    """
    return best_plan(run, cluster, alternatives=0).best.plan


__all__ = ["BLOCK", "Candidate", "PlanSearch", "best_plan", "fastest_plan", "fitting_chips"]
