"""The best integer plan of a fixed cluster, by evaluating every valid one of a stated lattice."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import singledispatch
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from hwopt.design.metrics import Metric, metric_of
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
    candidates,
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
from hwopt.validation import check_kinds
from hwopt.workload.service import Service
from hwopt.workload.training import TrainingRun

ALTERNATIVES = 5

MEANS = ("time_to_first_token_s", "time_per_output_token_s")

LIMITS = (*MEANS, *(f"{name[:-2]}_{level}_s" for name in MEANS for level in ("p95", "p99")))
"""Metrics of a service that a search may keep below a limit."""

_MULTIPLES = [factor * 2**power for power in range(12) for factor in (2, 3)]  # of the chips, for a plan that fits

_SAME = 1.0 + 1e-9  # a limit that is met to rounding is met


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
) -> PlanSearch:
    """The best integer plan of a fixed cluster: exhaustive over a lattice, by the exact model in float64.

    Every plan's memory first, then the objective of those that fit; ties go to the faster plan, then to the plainer one.
    Two groups of chips: for each split of the chips, plans of a group are left out that another one on as many chips is at
    least as good as in all that the objective and the limits see of them; of the others all pairs are evaluated. Where percentiles
    are limited only plans are left out that miss a limit by themselves.

    **Arguments:** `objective`: a metric, the lower the better (step time for training, cost a token for a service);
    `alternatives`: how many other degrees or schedules to keep, each with its best recomputation and sharding, or batch;
    `common`: what all plans of a training run have alike, by name (`optimizer_offloaded`, `local_steps`, ...); of a service
    `limits`: the most that metrics of `LIMITS` may be, `disaggregate`: two groups of chips, one for prompts, `layouts` that
    plans may have (`hwopt.design.serving_layouts.LAYOUTS`; by default those of the software), and a `batch`: the sequences, or
    prompts, that all replicas and stages together hold at a time (by default any). A `ClusterPair` has two groups.

    **Returns:** a `PlanSearch`. Where no plan fits or satisfies the limits, `best` is the one that comes closest.

    **Raises:** `UserError` for an unknown metric or name, for one that the workload does not have, and where no plan is valid.
    """
    check_kinds("best_plan", {"workload": workload, "cluster": cluster}, _KINDS)
    if alternatives < 0:
        raise UserError(f"{alternatives} alternatives: must not be negative")
    if isinstance(cluster, ClusterPair):
        if not isinstance(workload, Service):
            raise UserError("two kinds of chips, for prompts and for answers, serve: a training run has neither")
        disaggregate = True
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
    return _best(workload, cluster, objective, alternatives, common or {}, dict(limits or {}), disaggregate, batch)


_KINDS = {"workload": (TrainingRun, Service), "cluster": (Cluster, ClusterPair)}


@singledispatch
def _best(workload: Any, *arguments: Any) -> PlanSearch:
    raise TypeError(f"no plans of {type(workload).__name__}: name a training run or a service")


@_best.register
def _(
    workload: TrainingRun, cluster: Cluster, objective: str | None, alternatives: int, common: Mapping[str, float],
    limits: Mapping[str, float], disaggregate: bool, batch: int | None,
) -> PlanSearch:  # fmt: skip
    if limits or disaggregate:
        raise UserError(f"{'limits' if limits else 'disaggregate'}: only a service has them, not a training run")
    goal = metric_of(objective or ("step_time_s" if workload.ramp is None else "run_time_s"), workload)
    plans = training_plans.training_plans(workload, cluster, common)
    ranking = _Ranking(goal, plans, workload, cluster, attrgetter("step_time_s"))
    return ranking.search_all(alternatives, training_plans.training_scope(workload, cluster, plans.count, common))


@_best.register
def _(
    workload: Service, cluster: Cluster, objective: str | None, alternatives: int, common: Mapping[str, float],
    limits: Mapping[str, float], disaggregate: bool, batch: int | None,
) -> PlanSearch:  # fmt: skip
    if common:
        raise UserError(f"'{min(common)}' is a choice of training: a service has none that all plans have alike")
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
    if disaggregate:
        _check_pairs(workload, goal)
        with jax.enable_x64(True):
            return _best_pair(workload, cluster, goal, limits, alternatives)
    plans = serving_plans.serving_plans(workload, cluster, batch=batch)
    ranking = _Ranking(goal, plans, workload, cluster, _between_requests, limits)
    return ranking.search_all(alternatives, serving_plans.serving_scope(workload, cluster, plans.count, batch))


def _mode(service: Service) -> str:
    return "prefill" if not float(service.decodes) else "serve" if float(service.prefills) else "decode"


def _check_pairs(service: Service, goal: Metric) -> None:
    """Refuses what pairs of plans cannot be searched for."""
    if goal.name not in MONOTONE:
        raise UserError(f"'{goal.name}' is no objective of two groups of chips: {suggest(goal.name, MONOTONE)}")
    if (mode := _mode(service)) != "serve":
        raise UserError(f"disaggregate: two groups share both phases; mode {mode} is one of them alone")


def _between_requests(report: Any) -> Array:
    return 1.0 / report.capacity_requests_per_s


@dataclass(frozen=True)
class _Ranking:
    """Plans by objective and by how they satisfy the limits.

    **Arguments:** `pace` of a report, by which ties are broken: the less the better.
    """

    goal: Metric
    plans: PlanTable
    workload: Any
    cluster: AnyCluster
    pace: Callable[[Any], Array]
    limits: Mapping[str, float] = field(default_factory=dict)

    def search_all(self, alternatives: int, scope: str) -> PlanSearch:
        """The best of all plans."""
        with jax.enable_x64(True):
            fits, margin = in_blocks(
                memory_margins, self.plans, np.arange(self.plans.count), self.workload, self.cluster
            )
            return self.search(np.flatnonzero(fits > 0), int(np.argmax(margin)), alternatives, self.plans.count, scope)

    def search(self, fitting: np.ndarray, closest: int, alternatives: int, examined: int, scope: str) -> PlanSearch:
        """The best of the plans that fit, or the `closest` where none does."""
        return self.found(self.ordered(fitting), closest, alternatives, examined, scope)

    def ordered(self, fitting: np.ndarray) -> tuple[np.ndarray, int]:
        """Plans by index, the best that satisfy the limits first, then those closest to holding them; how many hold them."""
        if not len(fitting):
            return fitting, 0
        value, pace, fits, worst = in_blocks(self._evaluate, self.plans, fitting, self.workload, self.cluster)
        holds = (fits > 0) & (worst <= _SAME)
        best = np.lexsort((fitting, without_rounding(pace), without_rounding(value), ~holds))
        # Those that fit and miss a limit are closer than those that do not fit.
        closest = np.lexsort((value, without_rounding(worst), fits <= 0, holds))
        holding = int(np.count_nonzero(holds))
        return fitting[np.concatenate([best[:holding], closest[: len(fitting) - holding]])], holding

    def found(
        self, ordered: tuple[np.ndarray, int], closest: int, alternatives: int, examined: int, scope: str
    ) -> PlanSearch:
        """What a search answers. **Arguments:** of `ordered`; the plan `closest` to fitting where none fits."""
        order, holding = ordered
        wanted = min(1 + alternatives, self.plans.block)
        nearest = order[:1] if len(order) else np.asarray([closest])
        shown = self.plans.distinct(order[:holding], wanted) if holding else nearest
        best, *others = self.candidates(shown)
        bound, missed = best.objective if holding else None, self.missed(best.report)
        return PlanSearch(self.goal, best, others, examined, holding, scope, bound, self.limits, missed)

    def missed(self, report: Any) -> dict[str, float]:
        """Limits that a plan which fits misses, by a fraction of each."""
        over = {name: float(getattr(report, name)) / limit - 1.0 for name, limit in self.limits.items()}
        return {name: each for name, each in over.items() if each > _SAME - 1.0 and bool(report.feasible)}

    def candidates(self, rows: np.ndarray) -> list[PlanCandidate]:
        """Plans by index as they are shown: without what is that of plain plans."""
        found = candidates(self.goal, self.plans, rows, self.workload, self.cluster)
        if not isinstance(self.workload, Service):
            return found
        experts = float(self.workload.model.experts)
        return [each._replace(plan=serving_plans.without_plain(each.plan, experts)) for each in found]

    def _evaluate(self, workload: Any, cluster: Cluster, plans: Any) -> tuple[Array, ...]:
        report = reports(workload, cluster, plans)
        ratios = [getattr(report, name) / limit for name, limit in self.limits.items()]
        worst = np.max([np.zeros_like(report.feasible), *ratios], axis=0)
        return self.goal.value(report), self.pace(report), report.feasible, worst


def _best_pair(
    service: Service, cluster: AnyCluster, goal: Metric, limits: Mapping[str, float], alternatives: int
) -> PlanSearch:
    return _pairs(service, cluster, goal, limits, alternatives)[0]


def _pairs(
    service: Service, cluster: AnyCluster, goal: Metric, limits: Mapping[str, float], alternatives: int
) -> tuple[PlanSearch, list[PrefillDecodeSplit]]:
    """The best pair of plans of two groups, and the best of each split of the chips, best split first."""
    prefill, decode = PairGroup(service, cluster, prefills=True), PairGroup(service, cluster, prefills=False)
    examined = int(np.dot(np.bincount(prefill.split), np.bincount(decode.split)))

    percentiles = bool(set(limits) - set(MEANS))

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
    # Without those that miss a limit by themselves; where that leaves none that satisfies all limits, with them.
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
    """A machine, and whether prompts have chips of their own there."""

    machine: AnyCluster
    apart: bool


def every_split(
    service: Service,
    cluster: AnyCluster,
    objective: str | None = None,
    alternatives: int = ALTERNATIVES,
    limits: Mapping[str, float] | None = None,
) -> tuple[PlanSearch, list[PrefillDecodeSplit]]:
    """Prefill and decode on the same chips, and every split of the chips between them, each with its best plan.

    **Arguments:** as of `best_plan`; of two kinds of chips both phases on each kind alone, and every split between them.

    **Returns:** the search of the better of both ways, and the splits, the best first: those that satisfy the limits, then others;
    chips for which no pair fits, or holds a limit by itself, are left out.

    **Raises:** `UserError` as `best_plan`.
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
    """The same over several machines, by name. **Arguments:** `ways`, the first of which has prompts beside answers."""
    if not isinstance(service, Service):
        raise UserError("every_split: only a service has prompts and answers to split, not a training run")
    goal = metric_of(objective or "cost_per_token_usd", service)
    _check_pairs(service, goal)
    searches: dict[str, PlanSearch] = {}
    splits: list[PrefillDecodeSplit] = []
    for name, (machine, apart) in ways.items():
        splits_of(count_of(machine.chips))
        if apart:
            with jax.enable_x64(True):
                searches[name], found = _pairs(service, machine, goal, dict(limits or {}), alternatives)
            splits += [replace(each, way=name) for each in found]
        else:
            one = searches[name] = best_plan(service, machine, objective, alternatives, limits=limits)
            splits.append(PrefillDecodeSplit(one.best, bool(one.best.report.feasible), one.missed, name))
    ranked = sorted(splits, key=lambda each: each.rank)
    better = searches[ranked[0].way]
    return better if better.feasible else next(iter(searches.values())), ranked


def fitting_chips(workload: TrainingRun | Service, cluster_of: Callable[[int], Cluster], chips: int) -> int | None:
    """The smallest multiple of a number of chips, by 2, 3, 4, 6, 8, 12, ..., on which some plan fits.

    **Arguments:** `cluster_of` a number of chips. **Returns:** chips, or None where no multiple that was tried will do.
    """
    for multiple in _MULTIPLES:
        try:
            cluster = cluster_of(multiple * chips)
            plans = _plans(workload, cluster)
        except UserError:  # nothing divides
            continue
        with jax.enable_x64(True):
            if in_blocks(memory_margins, plans, np.arange(plans.count), workload, cluster)[0].any():
                return multiple * chips
    return None


@singledispatch
def _plans(workload: Any, cluster: Cluster) -> PlanTable:
    """Every valid plan of a workload on a cluster."""
    raise TypeError(f"no plans of {type(workload).__name__}")


_plans.register(TrainingRun, training_plans.training_plans)
_plans.register(Service, serving_plans.serving_plans)
