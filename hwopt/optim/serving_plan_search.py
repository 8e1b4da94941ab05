"""The best whole-number plan that serves on a fixed cluster, by evaluating every valid one of a stated lattice."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.design.metrics import Metric
from hwopt.errors import UserError, suggest
from hwopt.hardware.cluster import Cluster
from hwopt.model.serving.report import ServingReport
from hwopt.optim.plan_blocks import (
    ALTERNATIVES,
    PlanSearch,
    Rows,
    candidates,
    check_alternatives,
    distinct,
    in_blocks,
    metric_of,
    reports,
    room,
    rounded,
)
from hwopt.optim.serving_plan_lattice import (
    PairLattice,
    pair_scope,
    scope,
    serving_lattice,
)
from hwopt.optim.serving_plan_pairs import BLOCK, Group, check_monotone, contending_pairs, roomiest_pair
from hwopt.workload.service import Service

OBJECTIVE = "cost_per_token_usd"

LIMITS = ("time_to_first_token_s", "time_per_output_token_s")
"""Metrics that a search may hold below a limit."""

_SAME = 1.0 + 1e-9  # a limit that is met to rounding is met

_ABSENT = {
    "prefill": ("time_per_output_token_s", "request_time_s"),
    "decode": ("time_to_first_token_s", "request_time_s"),
}
"""Metrics that a machine for one phase does not have."""


def mode_of(service: Service) -> str:
    """What a machine does: serve, prefill or decode."""
    if not float(service.decodes):
        return "prefill"
    return "serve" if float(service.prefills) else "decode"


def best_serving_plan(
    service: Service,
    cluster: Cluster,
    objective: str | None = None,
    alternatives: int = ALTERNATIVES,
    *,
    limits: Mapping[str, float] | None = None,
    disaggregate: bool = False,
) -> PlanSearch:
    """The best whole-number plan of a service: exhaustive over a lattice, by the exact model in float64.

    Two groups of chips: for each split of the chips, plans of a group are left out that another one on as many chips is at
    least as good as in all that the objective and the limits see of them; of the others all pairs are evaluated.

    **Arguments:** `objective`: a metric, the lower the better (default: cost a token); `alternatives`: how many other
    degrees to keep, each with its best batch; `limits`: the most that metrics of `LIMITS` may be; `disaggregate`: two groups
    of chips, one for prompts.

    **Returns:** a `PlanSearch`. Where no plan holds the limits, `best` is the one that misses them least, by the worst ratio.

    **Raises:** `UserError` for an unknown metric, for one that the service's phase does not have, and where no plan is valid.
    """
    goal = metric_of(objective or OBJECTIVE, ServingReport)
    bounds = dict(limits or {})
    _check_limits(bounds)
    mode = mode_of(service)
    for name in (goal.name, *bounds):
        if name in _ABSENT.get(mode, ()):
            raise UserError(f"metric '{name}': a machine in mode {mode} has none")
    check_alternatives(alternatives, BLOCK)
    with jax.enable_x64(True):
        if disaggregate:
            if mode != "serve":
                raise UserError(f"disaggregate: two groups share both phases; mode {mode} is one of them alone")
            return _best_pair(service, cluster, goal, bounds, alternatives)
        rows = serving_lattice(service, cluster)
        fits, margin = in_blocks(room, rows, np.arange(rows.count), service, cluster, block=BLOCK)
        words = scope(service, cluster, rows.count)
        ranked = _Ranked(goal, bounds, rows, rows[:-1], service, cluster)
        return ranked.search(np.flatnonzero(fits > 0), int(np.argmax(margin)), alternatives, rows.count, words)


def _check_limits(bounds: Mapping[str, float]) -> None:
    for name, value in bounds.items():
        if name not in LIMITS:
            raise UserError(f"'{name}' is no limit of a search for plans: {suggest(name, LIMITS)}")
        if not (math.isfinite(value) and value > 0.0):
            raise UserError(f"limit {name} = {value:g} must be a positive, finite number")


class _Ranked:
    """Rows of a lattice by objective and by how they hold the limits."""

    def __init__(
        self,
        goal: Metric,
        bounds: Mapping[str, float],
        rows: Rows,
        keys: tuple[np.ndarray, ...],
        service: Service,
        cluster: Cluster,
    ) -> None:
        self.goal, self.bounds, self.rows, self.keys = goal, bounds, rows, keys
        self.asked = (service, cluster)

    def search(self, fitting: np.ndarray, closest: int, alternatives: int, examined: int, words: str) -> PlanSearch:
        """The best of the rows that fit, or the `closest` where none does."""
        holding, order = fitting, fitting
        if len(fitting):
            value, time, fits, worst = in_blocks(self._evaluate(), self.rows, fitting, *self.asked, block=BLOCK)
            holds = (fits > 0) & (worst <= _SAME)
            holding = fitting[holds]
            order = holding[np.lexsort((holding, rounded(time[holds]), rounded(value[holds])))]
            # Those that fit and miss a limit are closer than those that do not fit.
            closest = int(fitting[np.lexsort((value, rounded(worst), fits <= 0))[0]])
        shown = distinct(self.keys, order, 1 + alternatives) if len(order) else np.asarray([closest])
        best, *others = candidates(self.goal, self.rows, shown, *self.asked, block=BLOCK)
        bound = best.objective if len(holding) else None
        over = {name: float(getattr(best.report, name)) / limit - 1.0 for name, limit in self.bounds.items()}
        missed = {name: each for name, each in over.items() if each > _SAME - 1.0 and bool(best.report.feasible)}
        return PlanSearch(self.goal, best, others, examined, len(holding), words, bound, self.bounds, missed)

    def _evaluate(self) -> Callable[[Service, Cluster, Any], tuple[Array, ...]]:
        def evaluate(service: Service, cluster: Cluster, plans: Any) -> tuple[Array, ...]:
            report = reports(service, cluster, plans)
            ratios = [getattr(report, name) / limit for name, limit in self.bounds.items()]
            worst = jnp.max(jnp.stack([jnp.zeros_like(report.feasible), *ratios]), axis=0)
            return self.goal.value(report), 1.0 / report.capacity_requests_per_s, report.feasible, worst

        return evaluate


def _best_pair(
    service: Service, cluster: Cluster, goal: Metric, bounds: Mapping[str, float], alternatives: int
) -> PlanSearch:
    check_monotone(goal.name)
    prefill, decode = Group(service, cluster, prefills=True), Group(service, cluster, prefills=False)
    examined = int(np.dot(np.bincount(prefill.split), np.bincount(decode.split)))

    def ranked(rows: PairLattice, fitting: np.ndarray) -> PlanSearch:
        words = pair_scope(service, cluster, examined, len(fitting))
        search = _Ranked(goal, bounds, rows, rows.degrees, service, cluster)
        return search.search(fitting, 0, alternatives, examined, words)

    found = None
    # Without those that miss a limit by themselves; where that leaves none that holds all limits, with them.
    for within in [True, False] if bounds else [False]:
        rows = contending_pairs(prefill, decode, goal.name, bounds, within)
        if rows.count:
            found = ranked(rows, np.arange(rows.count))
            if found.feasible:
                return found
    return found or ranked(roomiest_pair(prefill, decode), np.zeros(0, int))


__all__ = ["LIMITS", "OBJECTIVE", "best_serving_plan", "mode_of"]
