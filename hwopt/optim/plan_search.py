"""The best whole-number plan of a fixed cluster, by evaluating every valid one of a stated lattice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from hwopt.design.metrics import Metric, metric
from hwopt.errors import UserError, suggest
from hwopt.hardware.cluster import Cluster
from hwopt.model.estimate import estimate
from hwopt.model.report import Report
from hwopt.optim.compiled import compiled_for_one_question
from hwopt.optim.plan_lattice import HELD, Lattice, lattice, scope
from hwopt.plan import Plan
from hwopt.workload.training import TrainingRun

BLOCK = 16384
"""Plans evaluated at a time; the last block is padded, so that one compiled function serves all."""

ALTERNATIVES = 5

_BITS = 40  # objectives equal to so many bits are one: the rest is rounding
_DEGREES = Lattice._fields.index("recompute")  # columns before it are degrees and schedule
_MULTIPLES = [factor * 2**power for power in range(12) for factor in (2, 3)]  # of the chips, for a plan that fits


class Candidate(NamedTuple):
    """A plan and what the exact model says about it."""

    plan: Plan
    report: Report
    objective: float


class PlanSearch(NamedTuple):
    """The best plan of a cluster over a lattice. Where none fits, `best` is the one closest to fitting."""

    objective: Metric
    best: Candidate
    alternatives: list[Candidate]  # the next best that fit, other degrees or schedules each
    examined: int  # plans of the lattice
    fitting: int
    scope: str
    lower_bound: float | None  # of the objective over the lattice: every plan was evaluated, so it is the best one's

    @property
    def feasible(self) -> bool:
        """Whether any plan fits."""
        return self.fitting > 0

    @property
    def gap(self) -> float | None:
        """Best objective less the lower bound, over the bound: 0 by exhaustion; None where no plan fits."""
        if self.lower_bound is None or self.best.objective == self.lower_bound:
            return None if self.lower_bound is None else 0.0
        return self.best.objective / self.lower_bound - 1.0


def _mapped(run: TrainingRun, cluster: Cluster, plans: Plan) -> Report:
    return jax.vmap(lambda plan: estimate(run, cluster, plan))(plans)


@partial(compiled_for_one_question, static=())
def _room(run: TrainingRun, cluster: Cluster, plans: Plan) -> tuple[Array, Array]:
    """Feasibility and memory margins of plans; the compiler drops all else of the model, step time above all."""
    report = _mapped(run, cluster, plans)
    return report.feasible, report.margins.memory


@partial(compiled_for_one_question, static=())
def _reports(run: TrainingRun, cluster: Cluster, plans: Plan) -> Report:
    """Reports of plans, whole: one program serves every objective and the answer's own report."""
    return _mapped(run, cluster, plans)


def _in_blocks(
    function: Callable,
    rows: Lattice,
    index: np.ndarray,
    run: TrainingRun,
    cluster: Cluster,
    held: Mapping[str, float] | None = None,
) -> list:
    """A function's answers for plans by index, each of shape (plan,)."""
    parts = []
    for first in range(0, len(index), BLOCK):
        some = index[np.minimum(np.arange(first, first + BLOCK), len(index) - 1)]
        parts.append([np.asarray(part) for part in function(run, cluster, rows.at(some, run, held))])
    return [np.concatenate(each)[: len(index)] for each in zip(*parts, strict=True)]


def _distinct(rows: Lattice, ranked: np.ndarray, wanted: int) -> np.ndarray:
    """The first `wanted` of ranked plans that differ in degrees or schedule: recomputing or sharding more is no new plan.

    **Arguments:** `ranked` indices into `rows`, best first. **Returns:** indices.
    """
    found: dict[tuple[int, ...], int] = {}
    for row in ranked:
        found.setdefault(tuple(int(column[row]) for column in rows[:_DEGREES]), int(row))
        if len(found) == wanted:
            break
    return np.asarray(list(found.values()))


def best_plan(
    run: TrainingRun,
    cluster: Cluster,
    objective: str = "step_time_s",
    alternatives: int = ALTERNATIVES,
    held: Mapping[str, float] | None = None,
) -> PlanSearch:
    """The best whole-number plan of a fixed cluster: exhaustive over a lattice, by the exact model in float64.

    Every plan's memory first, then the objective of those that fit; ties go to the faster plan, then to the plainer one.

    **Arguments:** `objective`: a metric of `hwopt.design.metrics`, the lower the better; `alternatives`: how many other
    degrees or schedules to keep, each with its best recomputation and sharding; `held`: what all plans have alike, by name
    (`optimizer_offloaded`, `local_steps`, ...: `plan_lattice.HELD`).

    **Returns:** a `PlanSearch`.

    **Raises:** `UserError` for an unknown metric or name, and where no plan is valid.
    """
    goal = metric(objective)
    _check_held(held or {})
    if not 0 <= alternatives < BLOCK:
        raise UserError(f"{alternatives} alternatives: must be between 0 and {BLOCK - 1:,}")
    rows = lattice(run, cluster)

    def evaluate(run: TrainingRun, cluster: Cluster, plans: Plan) -> tuple[Array, Array]:
        report = _reports(run, cluster, plans)
        return goal.value(report), report.step_time_s

    with jax.enable_x64(True):
        fits, margin = _in_blocks(_room, rows, np.arange(rows.count), run, cluster, held)
        fitting = np.flatnonzero(fits > 0)
        if len(fitting):
            value, time = (_rounded(each) for each in _in_blocks(evaluate, rows, fitting, run, cluster, held))
            order = np.lexsort((fitting, time, value))
            shown = _distinct(rows, fitting[order], 1 + alternatives)
        else:
            shown = np.asarray([np.argmax(margin)])
        padded = shown[np.minimum(np.arange(BLOCK), len(shown) - 1)]
        plans = rows.at(padded, run, held)
        reports = jax.tree.map(np.asarray, _reports(run, cluster, plans))
    best, *others = (_candidate(goal, plans, reports, place) for place in range(len(shown)))
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


def _rounded(values: np.ndarray) -> np.ndarray:
    """Values without the bits that rounding orders."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(np.ldexp(mantissa, _BITS)), exponent - _BITS)


def _candidate(goal: Metric, plans: Plan, reports: Report, place: int) -> Candidate:
    plan, report = jax.tree.map(lambda leaf: leaf[place], (plans, reports))
    return Candidate(plan, report, float(goal.value(report)))


def fitting_chips(run: TrainingRun, cluster_of: Callable[[int], Cluster], chips: int) -> int | None:
    """The smallest multiple of a number of chips, by 2, 3, 4, 6, 8, 12, ..., on which some plan fits.

    **Arguments:** `cluster_of` a number of chips. **Returns:** chips, or None where no multiple that was tried will do.
    """
    for multiple in _MULTIPLES:
        try:
            cluster = cluster_of(multiple * chips)
            rows = lattice(run, cluster)
        except UserError:  # nothing divides
            continue
        with jax.enable_x64(True):
            if _in_blocks(_room, rows, np.arange(rows.count), run, cluster)[0].any():
                return multiple * chips
    return None


def fastest_plan(run: TrainingRun, cluster: Cluster) -> Plan:
    """The fastest plan that fits; where none fits, the one closest to fitting.

    **Raises:** `UserError` where no plan is valid.
    """
    return best_plan(run, cluster, alternatives=0).best.plan


__all__ = ["Candidate", "PlanSearch", "best_plan", "fastest_plan", "fitting_chips"]
