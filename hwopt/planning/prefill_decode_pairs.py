"""Pairs of prefill and decode plans for disaggregated serving, reduced to those that can be part of a best pair.

A plan of one group is left out if another plan on as many chips dominates it. No small set of measures of a group
determines latency percentiles. If percentiles are limited, all pairs are kept whose plans sustain the requests and
satisfy the limits by themselves.
"""

import dataclasses
from collections.abc import Callable, Mapping

import jax.numpy as jnp
import moocore
import numpy as np
from jaxtyping import Array

from hwopt.design.variables import count_of
from hwopt.errors import UserError
from hwopt.hardware.cluster import AnyCluster, Cluster
from hwopt.model.chip.thermal import operating_point
from hwopt.model.facility import power
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.plan import Disaggregated, Plan
from hwopt.planning.plan_table import MOST_PLANS, PlanTable, in_blocks, memory_margins, reports, without_rounding
from hwopt.planning.serving_plans import degree_words, serving_plans
from hwopt.workload.service import Service

SPLITS = 64
"""Maximum number of parts into which the chips are divided; each group gets a whole number of parts."""

_DEGREES = ("tp", "pp", "ep", "expert_tp")

_FIRST, _OUTPUT = "time_to_first_token_full_batch_s", "time_per_output_token_full_batch_s"

_PERCENTILES = {
    True: tuple(f"time_to_first_token{level}_s" for level in ("", "_p95", "_p99")),
    False: tuple(f"time_per_output_token{level}_s" for level in ("", "_p95", "_p99")),
}
"""Means and percentiles of latency in the busiest hour, of a prefill group (True) and of a decode group (False).

Those of a pair are at least as large, at the same request rate.
"""

MOST_PAIRS = 2_000_000
"""Maximum number of pairs that are evaluated if percentiles are limited: two minutes."""

_LEEWAY = 1.01
"""Tolerance factor on a group's own percentiles.

Evaluated alone, a decode group also produces the first token, which the prefill group produces in a pair.
"""

_RATES = ("cost_per_token_usd", "energy_per_token_j", "carbon_per_token_kg")
_SEES_FIRST = (_FIRST, "request_time_full_batch_s")
_SEES_OUTPUT = (_OUTPUT, "step_time_s", "request_time_full_batch_s")
MONOTONE = tuple(dict.fromkeys((*_RATES, *_SEES_FIRST, *_SEES_OUTPUT)))
"""Metrics of a pair that never get worse if a group needs less time and energy per request, and fails in smaller units.

With other metrics, such as mean power, plans could not be left out.
"""


RATES = ("request_interval_s", "active_j", "first_token_s", "pass_interval_s", "output_token_s")
"""Measures of a group that a pair depends on.

They are the time between two requests; the energy per request above idle power; the time to the first token of a prompt;
the time between two passes of a replica, which determines queueing; and the time between two output tokens.
"""


def _measures(service: Service, cluster: Cluster, plans: Plan) -> tuple[Array, ...]:
    """Return `RATES` and `_PERCENTILES` of plans of one phase."""
    report = reports(service, cluster, plans)
    between = 1.0 / report.capacity_requests_per_s
    idle_w = cluster.chips * report.pue * power.idle_it_w(cluster, operating_point(cluster.chip, cluster.cooling))
    paced = report.step_time_s / plans.pp
    active_j = (report.power_w - idle_w) / report.requests_per_s
    own = between, active_j, getattr(report, _FIRST), paced, getattr(report, _OUTPUT)
    return (*own, *(getattr(report, name) for names in _PERCENTILES.values() for name in names))


def pair_table(prefill: PlanTable, decode: PlanTable, rows: np.ndarray) -> PlanTable:
    """Return pairs of plans of two groups as a table. Two pairs count as different if the degrees of a group differ.

    **Arguments:** `prefill`, `decode`: plans of the groups; `rows`: indices of the plans (group, pair).
    """
    tables = {"prefill": prefill, "decode": decode}
    return PlanTable(
        dict(zip(tables, rows, strict=True)),
        lambda of: [table[name][of[group]] for group, table in tables.items() for name in _DEGREES],
        lambda of: Disaggregated(**{group: table.at(of[group]) for group, table in tables.items()}),
    )


def chip_splits(chips: int) -> list[int]:
    """Return the numbers of prefill chips to try: whole parts of the cluster, with at least one part for each group.

    **Raises:** `UserError` for a single chip.
    """
    if chips < 2:
        raise UserError("two groups need two chips at least")
    part = -(-chips // SPLITS)
    return list(range(part, chips, part))


def pair_scope(service: Service, cluster: AnyCluster, pairs: int, evaluated: int, all_: bool = False) -> str:
    """Return a sentence that describes the pairs covered by the search.

    **Arguments:** `pairs`: number of all pairs; `evaluated`: number of evaluated pairs; `all_`: whether they are those of
    `pairs_within_limits`.
    """
    left_out = "does not fit, or misses the requests or a limit by itself" if all_ else (
        "is no better in anything that counts than another plan on as many chips"
    )  # fmt: skip
    total, kinds = count_of(cluster.chips), cluster.groups
    answers, prompts = ([*degree_words(service, each)] for each in (kinds[0], kinds[-1]))
    words = [
        f"global over {pairs:,} pairs of plans: every split of {total:,} chips in integers of {chip_splits(total)[0]} for "
        "prefill, the others for decode; in each group every tp x pp x dp = its chips",
        *(
            answers
            if answers == prompts
            else [f"of answers: {', '.join(answers)}", f"of prompts: {', '.join(prompts)}"]
        ),
        f"{evaluated:,} pairs were evaluated whole: of the others one group {left_out}",
    ]
    return "; ".join(words)


class PairGroup:
    """Plans of one of two groups, for every split of the chips.

    **Arguments:** `service`: the workload; `machine`: hardware of both groups; `prefills`: whether this is the prefill
    group; `allowed`: function from plans to whether each may be used, all by default.
    """

    def __init__(
        self, service: Service, machine: AnyCluster, prefills: bool, allowed: Callable[[Plan], np.ndarray] | None = None
    ) -> None:
        cluster = machine.groups[-1 if prefills else 0]  # its number of chips is that of both groups together
        one, zero = np.ones_like(service.load), np.zeros_like(service.load)
        phases = {"prefills": one if prefills else zero, "decodes": zero if prefills else one}
        self.own, self.cluster, self.prefills = dataclasses.replace(service, **phases), cluster, prefills
        total = count_of(cluster.chips)
        parts = [serving_plans(self.own, cluster, n if prefills else total - n) for n in chip_splits(total)]
        widest = max(parts, key=lambda part: len(part.columns))  # few chips allow fewer layouts
        whole = lambda part, name: part.columns.get(name, np.ones(part.count, int))
        columns = {name: np.concatenate([whole(part, name) for part in parts]) for name in widest.columns}
        self.plans = dataclasses.replace(widest, columns=columns)
        self.split = np.repeat(
            np.arange(len(parts)), [part.count for part in parts]
        )  # of each: an index into `chip_splits`
        if allowed is not None:
            used = self.plans.which(allowed)
            self.plans, self.split = self.plans.only(used), self.split[used]
        everything = np.arange(self.plans.count)
        self.margin = in_blocks(self._room, self.plans, everything, service, cluster)[0]
        self.fitting = np.flatnonzero(self.margin >= -FEASIBILITY_TOLERANCE)
        self.measures = self._measured() if len(self.fitting) else {}

    def _room(self, service: Service, cluster: Cluster, plans: Plan) -> tuple[np.ndarray]:
        """Return the memory margins of one group's plans, next to a second group with the same degrees that holds only
        weights.
        """
        empty = dataclasses.replace(plans, micro_batch=jnp.zeros_like(plans.tp))
        pair = Disaggregated(plans, empty) if self.prefills else Disaggregated(empty, plans)
        return (memory_margins(service, cluster, pair)[1],)

    def _measured(self) -> dict[str, np.ndarray]:
        """Return the measures of the fitting plans that a pair depends on, shape (plan,) each; smaller is better."""
        index, plans = self.fitting, self.plans
        rates = map(without_rounding, in_blocks(_measures, plans, index, self.own, self.cluster))
        instance = plans["pp"] * np.maximum(plans["tp"], plans["ep"] * plans["expert_tp"])  # chips that fail together
        replica = plans["tp"] * plans["pp"]  # per copy of the non-expert weights: few chips transfer caches slowly
        chips = {"instance_chips": 1.0 * instance[index], "fewer_chips": -1.0 * replica[index]}
        if "cache_split" in plans.columns:  # ranks that hold less receive less
            chips["whole_cache"] = -1.0 * plans["cache_split"][index]
        names = (*RATES, *_PERCENTILES[True], *_PERCENTILES[False])
        return dict(zip(names, rates, strict=True)) | chips

    def holding(self, limits: Mapping[str, float]) -> np.ndarray:
        """Return rows that fit, sustain the stated request rate, and satisfy limits on percentiles by themselves."""
        if not self.measures or not (asked := float(self.own.requests_per_s)):
            return self.fitting
        holds = self.measures["request_interval_s"] <= float(self.own.most_load) / asked * (1.0 + 1e-9)
        for name in set(_PERCENTILES[self.prefills]) & set(limits):
            holds &= self.measures[name] <= _LEEWAY * limits[name]
        return self.fitting[holds]

    def contenders(self, split: int, names: list[str], most: float) -> np.ndarray:
        """Return the rows of one split that fit and are not dominated in the given measures.

        **Arguments:** `split`: index into `chip_splits`; `names`: measures; `most`: upper limit of the group's own
        latency (TTFT of a prefill group, TPOT of a decode group).
        """
        if not self.measures:
            return self.fitting
        latency = self.measures["first_token_s" if self.prefills else "output_token_s"]
        some = np.flatnonzero((self.split[self.fitting] == split) & (latency <= most))
        if not len(some):
            return some
        seen = [*names, *(["whole_cache"] if "whole_cache" in self.measures else [])]
        points = np.stack([self.measures[name][some] for name in seen], axis=1)
        return self.fitting[some[moocore.is_nondominated(points, keep_weakly=False)]]


def nondominated_pairs(
    prefill: PairGroup, decode: PairGroup, objective: str, limits: Mapping[str, float], within: bool
) -> PlanTable:
    """Return all pairs, within a split, of plans that are not dominated, for an objective of `MONOTONE` and limits.

    **Arguments:** `within`: whether to leave out plans that miss a limit by themselves.

    **Raises:** `UserError` if there are more than `MOST_PLANS` pairs.
    """
    common = ["request_interval_s", "active_j", "instance_chips"]
    first = objective in _SEES_FIRST or _FIRST in limits
    output = objective in _SEES_OUTPUT or (_OUTPUT in limits and not within)
    of_prompts = [*common, *(["first_token_s", "pass_interval_s", "fewer_chips"] if first else [])]
    of_answers = [*common, *(["output_token_s"] if output else []), *(["fewer_chips"] if first else [])]
    most = [limits.get(name, np.inf) * (1.0 + 1e-9) if within else np.inf for name in (_FIRST, _OUTPUT)]
    rows = lambda split: (
        prefill.contenders(split, of_prompts, most[0]), decode.contenders(split, of_answers, most[1])
    )  # fmt: skip
    too_many = f"pairs of plans contend for {objective}: ask for fewer chips, or set limits of latency"
    return _paired(prefill, decode, rows, MOST_PLANS, too_many)


def pairs_within_limits(prefill: PairGroup, decode: PairGroup, limits: Mapping[str, float]) -> PlanTable:
    """Return all pairs, within a split, of plans that satisfy the limits on percentiles by themselves.

    **Raises:** `UserError` if there are more than `MOST_PAIRS`.
    """
    own = [(group.split, group.holding(limits)) for group in (prefill, decode)]
    rows = lambda split: tuple(some[of[some] == split] for of, some in own)
    too_many = "pairs of plans may hold the percentiles: ask for fewer chips, state the requests a second, or set tighter limits"
    return _paired(prefill, decode, rows, MOST_PAIRS, too_many)


def _paired(
    prefill: PairGroup, decode: PairGroup, rows: Callable[[int], tuple[np.ndarray, ...]], most: int, too_many: str
) -> PlanTable:
    """Return all pairs of plans within a split of the chips.

    **Arguments:** `rows`: function from a split to the plans of each group; `most`: maximum number of pairs; `too_many`:
    end of the message for more.
    """
    pairs, count = [np.zeros((2, 0), int)], 0
    for split in range(int(prefill.split[-1]) + 1):
        some = rows(split)
        count += len(some[0]) * len(some[1])
        if count > most:
            raise UserError(f"more than {most:,} {too_many}")
        pairs.append(np.stack([grid.ravel() for grid in np.meshgrid(*some, indexing="ij")]))
    return pair_table(prefill.plans, decode.plans, np.concatenate(pairs, axis=1))


def least_memory_pair(prefill: PairGroup, decode: PairGroup) -> PlanTable:
    """Return the pair that comes closest to fitting: the group with the smaller memory margin has the largest margin of
    all pairs.
    """
    groups = (prefill, decode)
    rows = [[np.flatnonzero(each.split == split) for each in groups] for split in range(int(prefill.split[-1]) + 1)]
    pairs = [[own[np.argmax(each.margin[own])] for own, each in zip(of, groups, strict=True)] for of in rows]
    best = max(pairs, key=lambda pair: min(each.margin[row] for each, row in zip(groups, pair, strict=True)))
    return pair_table(prefill.plans, decode.plans, np.asarray(best)[:, None])
