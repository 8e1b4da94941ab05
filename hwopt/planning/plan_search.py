"""Best integer plan of a fixed cluster, by evaluation of every valid plan of a lattice (a declared set of integer plans)."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from hwopt.design.metrics import Metric, metric, metric_of
from hwopt.design.serving_layouts import with_layouts
from hwopt.design.variables import count_of
from hwopt.errors import UserError, suggest
from hwopt.hardware.cluster import AnyCluster, Cluster, ClusterPair
from hwopt.model.report import ServingReport, outputs
from hwopt.planning import serving_plans, training_plans
from hwopt.planning.plan_table import (
    PlanCandidate,
    PlanSearch,
    PlanTable,
    PrefillDecodeSplit,
    in_blocks,
    memory_margins,
    reports,
    without_rounding,
)
from hwopt.planning.prefill_decode_pairs import (
    MONOTONE,
    PairGroup,
    least_memory_pair,
    nondominated_pairs,
    pair_scope,
    pairs_within_limits,
)
from hwopt.planning.prefill_decode_pairs import chip_splits as splits_of
from hwopt.planning.training_plans import COMMON
from hwopt.validation import check_kinds
from hwopt.workload.service import Service
from hwopt.workload.training import TrainingRun

ALTERNATIVES = 5

Allowed = Callable[[Any], np.ndarray]
"""Function from plans, shape (plan,) per leaf, to whether each may be used."""

FULL_BATCH = {
    f"{name}_s": f"{name}_full_batch_s" for name in ("time_to_first_token", "time_per_output_token", "request_time")
}
"""Mean latency in the busiest hour -> the same latency of a full batch."""

LIMITS = tuple(
    f"time_{name}_token{level}_s"
    for level in ("_full_batch", "", "_p95", "_p99")
    for name in ("to_first", "per_output")
)
"""Latency metrics of a service on which a search accepts upper limits."""

_MULTIPLES = [factor * 2**power for power in range(12) for factor in (2, 3)]  # of chips, for `fitting_chips`

_SAME = 1.0 + 1e-9  # tolerance for rounding at a limit


def best_plan(
    workload: TrainingRun | Service,
    cluster: AnyCluster,
    objective: str | None = None,
    alternatives: int = ALTERNATIVES,
    common: Mapping[str, float] | None = None,
    *,
    limits: Mapping[str, float] | None = None,
    disaggregate: bool = False,
    layouts: Collection[str] | None = None,
    batch: int | None = None,
    allowed: Allowed | None = None,
) -> PlanSearch:
    """Find the best integer plan of a fixed cluster, exhaustively over a lattice, with the exact model in float64.

    The memory of every plan is evaluated first, then the objective of those that fit. Ties go to the faster plan, then to
    the one with fewer special settings.

    With disaggregated prefill and decode, every split of the chips between two groups is searched. Plans of a group that
    are dominated are left out: another plan on as many chips is at least as good in every respect that objective and
    limits depend on. All pairs of the other plans are evaluated. If percentiles are limited, only plans that miss a limit
    by themselves are left out.

    **Arguments:**

    - `workload`, `cluster`: training run or service, and hardware. A `ClusterPair` has two groups, for prefill and
      decode.
    - `objective`: metric to minimize; by default step time for training and cost per token for a service.
    - `alternatives`: number of further plans to return. They differ in degrees or schedule; each has its best
      recomputation and sharding, or batch size.
    - `common`: values that all plans share, by name: shares of a training run (`optimizer_offloaded`, ...), `local_steps`, and
      columns of the lattice (`tp`, `pp`, ...; `recompute` is 1 for none, 2 for selective, 3 for full).
    - `limits`: for a service, upper limits on metrics of `LIMITS`.
    - `disaggregate`: for a service, two groups of chips, one of them for prefill.
    - `layouts`: for a service, layouts that plans may use (`hwopt.design.serving_layouts.LAYOUTS`); by default those of
      the software stack.
    - `batch`: for a service, sequences (or prompts) that all replicas and stages together process at a time; any by
      default.
    - `allowed`: function from plans of a group of chips, shape (plan,) per leaf, to whether each may be used; all by
      default.

    **Returns:** a `PlanSearch`. If no plan fits or satisfies the limits, `best` is the one that comes closest.

    **Raises:** `UserError` for an unknown metric or name, for one that the workload does not have, and if no plan is
    valid.
    """
    check_kinds("best_plan", {"workload": workload, "cluster": cluster}, _KINDS)
    if alternatives < 0:
        raise UserError(f"{alternatives} alternatives: must not be negative")
    disaggregate = disaggregate or isinstance(cluster, ClusterPair)
    if isinstance(workload, Service) and layouts is not None:
        own, *others = [with_layouts(each, layouts) for each in cluster.groups]
        cluster = ClusterPair(prefill=others[0], decode=own) if others else own
    elif layouts is not None or (batch is not None and not isinstance(workload, Service)):
        raise UserError(f"{'batch' if layouts is None else 'layouts'}: only a service has them, not a training run")
    if batch is not None and (batch < 1 or disaggregate):
        raise UserError(
            "batch: two groups of chips have one each: ask for one group"
            if disaggregate
            else f"batch = {batch} must be 1 or more"
        )
    if isinstance(workload, Service):
        if common and disaggregate:
            raise UserError(f"{min(common)}: two groups of chips have a plan each: state both with hwopt estimate")
        return _best_service(
            workload, cluster, objective, alternatives, dict(limits or {}), disaggregate, batch, allowed, common or {}
        )
    if isinstance(cluster, ClusterPair):
        raise UserError("two kinds of chips, for prefill and for decode, serve requests; a training run has one kind")
    if limits or disaggregate:
        raise UserError(f"{'limits' if limits else 'disaggregate'}: only a service has them, not a training run")
    goal = metric_of(objective or ("step_time_s" if workload.ramp is None else "run_time_s"), workload)
    alike, fixed = ({n: x for n, x in (common or {}).items() if (n in COMMON) is own} for own in (True, False))
    plans = _allowed(training_plans.training_plans(workload, cluster, alike).having(fixed), allowed)
    ranking = _Ranking(goal, plans, workload, cluster, attrgetter("step_time_s"))
    return ranking.search_all(alternatives, training_plans.training_scope(workload, cluster, plans.count, alike))


def _allowed(plans: PlanTable, allowed: Allowed | None) -> PlanTable:
    return plans if allowed is None else plans.only(plans.which(allowed))


_KINDS = {"workload": (TrainingRun, Service), "cluster": (Cluster, ClusterPair)}


def _best_service(
    workload: Service, cluster: AnyCluster, objective: str | None, alternatives: int, limits: Mapping[str, float],
    disaggregate: bool, batch: int | None, allowed: Allowed | None, common: Mapping[str, float],
) -> PlanSearch:  # fmt: skip
    goal = metric_of(objective or "cost_per_token_usd", workload)
    for name, value in limits.items():
        if name not in LIMITS:
            raise UserError(f"'{name}' is no limit of a search for plans: {suggest(name, LIMITS)}")
        if not (math.isfinite(value) and value > 0.0):
            raise UserError(f"limit {name} = {value:g} must be a positive, finite number")
    mode = _mode(workload)
    for name in (goal.name, *limits):
        if not all(float(getattr(workload, phase)) for phase in outputs(ServingReport)[name].phases):
            raise UserError(f"metric '{name}': a machine in mode {mode} has none")
    if disaggregate or isinstance(cluster, ClusterPair):
        goal = _pair_goal(workload, goal)
        with jax.enable_x64(True):
            return _pairs(workload, cluster, goal, limits, alternatives, allowed)[0]
    plans = _allowed(serving_plans.serving_plans(workload, cluster, batch=batch).having(common), allowed)
    ranking = _Ranking(goal, plans, workload, cluster, _between_requests, limits)
    return ranking.search_all(alternatives, serving_plans.serving_scope(workload, cluster, plans.count, batch))


def _mode(service: Service) -> str:
    return "prefill" if not float(service.decodes) else "serve" if float(service.prefills) else "decode"


def _pair_goal(service: Service, goal: Metric) -> Metric:
    """Return the objective of a search over pairs of plans: of a full batch where no rate is stated, as all batches are full.

    **Raises:** `UserError` if the objective or the service mode does not allow such a search.
    """
    goal = goal if float(service.requests_per_s) else metric(FULL_BATCH.get(goal.name, goal.name))
    if goal.name not in MONOTONE:
        raise UserError(f"'{goal.name}' is no objective of two groups of chips: {suggest(goal.name, MONOTONE)}")
    if (mode := _mode(service)) != "serve":
        raise UserError(f"disaggregate: two groups share both phases; mode {mode} is one of them alone")
    return goal


def _between_requests(report: Any) -> Array:
    return 1.0 / report.capacity_requests_per_s


@dataclass(frozen=True)
class _Ranking:
    """Ranking of plans by objective and by how well they satisfy the limits.

    **Arguments:** `pace`: function of a report that breaks ties; smaller is better.
    """

    goal: Metric
    plans: PlanTable
    workload: Any
    cluster: AnyCluster
    pace: Callable[[Any], Array]
    limits: Mapping[str, float] = field(default_factory=dict)

    def search_all(self, alternatives: int, scope: str) -> PlanSearch:
        """Find the best of all plans."""
        with jax.enable_x64(True):
            fits, margin = in_blocks(
                memory_margins, self.plans, np.arange(self.plans.count), self.workload, self.cluster
            )
            ordered = self.ordered(np.flatnonzero(fits > 0))
            return self.found(ordered, int(np.argmax(margin)), alternatives, self.plans.count, scope)

    def ordered(self, fitting: np.ndarray) -> tuple[np.ndarray, int]:
        """Return plan indices in order of preference, and the number of plans that satisfy the limits.

        Plans that satisfy the limits come first, ordered by objective. The others follow, ordered by how far they miss a
        limit.
        """
        if not len(fitting):
            return fitting, 0
        value, pace, fits, worst = in_blocks(self._evaluate, self.plans, fitting, self.workload, self.cluster)
        holds = (fits > 0) & (worst <= _SAME)
        best = np.lexsort((fitting, without_rounding(pace), without_rounding(value), ~holds))
        # Plans that fit but miss a limit rank before those that do not fit.
        closest = np.lexsort((value, without_rounding(worst), fits <= 0, holds))
        holding = int(np.count_nonzero(holds))
        return fitting[np.concatenate([best[:holding], closest[: len(fitting) - holding]])], holding

    def found(
        self, ordered: tuple[np.ndarray, int], closest: int, alternatives: int, examined: int, scope: str
    ) -> PlanSearch:
        """Return the result of a search.

        **Arguments:** `ordered`: result of the method `ordered`; `closest`: index of the plan closest to fitting, if none
        fits.
        """
        order, holding = ordered
        wanted = min(1 + alternatives, self.plans.block)
        nearest = order[:1] if len(order) else np.asarray([closest])
        shown = self.plans.distinct(order[:holding], wanted) if holding else nearest
        best, *others = self.candidates(shown)
        bound, missed = best.objective if holding else None, self.missed(best.report)
        return PlanSearch(self.goal, best, others, examined, holding, scope, bound, self.limits, missed)

    def missed(self, report: Any) -> dict[str, float]:
        """Return the limits that a fitting plan misses, with the excess as a fraction of each limit."""
        over = {name: float(getattr(report, name)) / limit - 1.0 for name, limit in self.limits.items()}
        return {name: each for name, each in over.items() if each > _SAME - 1.0 and bool(report.feasible)}

    def candidates(self, rows: np.ndarray) -> list[PlanCandidate]:
        """Return plans by index with their complete reports, at most one block, without layouts that equal the default."""
        some = self.plans.at(rows)
        both = some, reports(self.workload, self.cluster, some)
        each = [jax.tree.map(lambda leaf, place=place: leaf[place], both) for place in range(len(rows))]
        if isinstance(self.workload, Service):
            experts = float(self.workload.model.experts)
            each = [(serving_plans.without_plain(plan, experts), report) for plan, report in each]
        return [PlanCandidate(plan, report, float(self.goal.value(report))) for plan, report in each]

    def _evaluate(self, workload: Any, cluster: Cluster, plans: Any) -> tuple[Array, ...]:
        report = reports(workload, cluster, plans)
        ratios = [getattr(report, name) / limit for name, limit in self.limits.items()]
        worst = np.max([np.zeros_like(report.feasible), *ratios], axis=0)
        return self.goal.value(report), self.pace(report), report.feasible, worst


def _pairs(
    service: Service,
    cluster: AnyCluster,
    goal: Metric,
    limits: Mapping[str, float],
    alternatives: int,
    allowed: Allowed | None = None,
) -> tuple[PlanSearch, list[PrefillDecodeSplit]]:
    """Return the best pair of prefill and decode plans, and the best pair of each split of the chips, best split first."""
    prefill, decode = (PairGroup(service, cluster, prefills, allowed) for prefills in (True, False))
    examined = int(np.dot(np.bincount(prefill.split), np.bincount(decode.split)))
    if not float(service.requests_per_s):  # all batches are full
        limits = {FULL_BATCH.get(name, name): limit for name, limit in limits.items()}

    percentiles = bool(set(limits) - set(FULL_BATCH.values()))

    def ranked(
        pairs: PlanTable, fitting: np.ndarray, all_: bool = False
    ) -> tuple[PlanSearch, list[PrefillDecodeSplit]]:
        words = pair_scope(service, cluster, examined, len(fitting), all_)
        ranking = _Ranking(goal, pairs, service, cluster, _between_requests, limits)
        ordered = ranking.ordered(fitting)
        apart = prefill.split[pairs["prefill"][ordered[0]]]
        first = ordered[0][np.sort(np.unique(apart, return_index=True)[1])]
        rows = ranking.candidates(first) if len(first) else []
        splits = [PrefillDecodeSplit(each, bool(each.report.feasible), ranking.missed(each.report)) for each in rows]
        return ranking.found(ordered, 0, alternatives, examined, words), splits

    closest = None
    # Plans that miss a limit by themselves are left out first. If no pair then satisfies all limits, they are included.
    for within in [True, False] if limits else [False]:
        all_ = within and percentiles
        if all_:
            pairs = pairs_within_limits(prefill, decode, limits)
        else:
            pairs = nondominated_pairs(prefill, decode, goal.name, limits, within)
        if pairs.count:
            closest = ranked(pairs, np.arange(pairs.count), all_)
            if closest[0].feasible:
                return closest
    return closest or ranked(least_memory_pair(prefill, decode), np.zeros(0, int))


class SplitOption(NamedTuple):
    """Machine to evaluate, and whether prefill has chips of its own there (disaggregated)."""

    machine: AnyCluster
    apart: bool


def every_split(
    service: Service,
    cluster: AnyCluster,
    objective: str | None = None,
    alternatives: int = ALTERNATIVES,
    limits: Mapping[str, float] | None = None,
) -> tuple[PlanSearch, list[PrefillDecodeSplit]]:
    """Compare colocated prefill and decode with every split of the chips between them, each with its best plan.

    **Arguments:** see `best_plan`. With two chip types, both phases on each type alone are compared with every split
    between the types.

    **Returns:** the search result of the better of both ways; and all splits, best first. Those that satisfy the limits
    come before the others. Splits are left out if no pair of plans fits or satisfies a limit by itself.

    **Raises:** `UserError`, as `best_plan`.
    """
    check_kinds("every_split", {"workload": service, "cluster": cluster}, {**_KINDS, "workload": (Service,)})
    kinds = dict(zip(("decode", "prefill"), cluster.groups, strict=False)) if len(cluster.groups) > 1 else {"": cluster}
    ways = {name: SplitOption(each, apart=False) for name, each in kinds.items()} | {
        "apart": SplitOption(cluster, apart=True)
    }
    return ranked_splits(service, ways, objective, alternatives, limits)


def ranked_splits(
    service: Service,
    ways: Mapping[str, SplitOption],
    objective: str | None = None,
    alternatives: int = ALTERNATIVES,
    limits: Mapping[str, float] | None = None,
) -> tuple[PlanSearch, list[PrefillDecodeSplit]]:
    """Compare colocated and disaggregated serving, as `every_split` does, over several named machines.

    **Arguments:** `ways`: machines by name; in the first, prefill and decode are colocated.
    """
    if not isinstance(service, Service):
        raise UserError("every_split: only a service has prompts and answers to split, not a training run")
    goal = _pair_goal(service, metric_of(objective or "cost_per_token_usd", service))
    searches: dict[str, PlanSearch] = {}
    splits: list[PrefillDecodeSplit] = []
    for name, (machine, apart) in ways.items():
        splits_of(count_of(machine.chips))
        if apart:
            with jax.enable_x64(True):
                searches[name], found = _pairs(service, machine, goal, dict(limits or {}), alternatives)
            splits += [replace(each, way=name) for each in found]
        else:
            one = searches[name] = best_plan(service, machine, goal.name, alternatives, limits=limits)
            splits.append(PrefillDecodeSplit(one.best, bool(one.best.report.feasible), one.missed, name))
    ranked = sorted(splits, key=lambda each: each.rank)
    better = searches[ranked[0].way]
    return better if better.feasible else next(iter(searches.values())), ranked


_LATTICES: dict[type, Callable[[Any, Cluster], PlanTable]] = {
    TrainingRun: training_plans.training_plans,
    Service: serving_plans.serving_plans,
}
"""Function that returns every valid plan of a type of workload on a cluster."""


def fitting_chips(workload: TrainingRun | Service, cluster_of: Callable[[int], Cluster], chips: int) -> int | None:
    """Return the smallest multiple of a number of chips, by 2, 3, 4, 6, 8, 12, ..., on which some plan fits in memory.

    **Arguments:** `cluster_of`: function from a number of chips to a cluster.

    **Returns:** the number of chips; None if no tested multiple is sufficient.
    """
    for multiple in _MULTIPLES:
        try:
            cluster = cluster_of(multiple * chips)
            plans = _LATTICES[type(workload)](workload, cluster)
        except UserError:  # nothing divides evenly
            continue
        with jax.enable_x64(True):
            if in_blocks(memory_margins, plans, np.arange(plans.count), workload, cluster)[0].any():
                return multiple * chips
    return None
