"""Plans of two groups of chips that can be part of a best pair: those that no other plan on as many chips is as good as.

Which plan is better for percentiles no few measures of a group tell: where these are limited, all pairs are taken of plans that
answer the requests and satisfy the limits by themselves.
"""

import dataclasses
from collections.abc import Mapping

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
"""Parts of a cluster of which two groups get integers; all its chips, where there are fewer."""

_DEGREES = ("tp", "pp", "ep", "expert_tp")

_FIRST, _OUTPUT = "time_to_first_token_s", "time_per_output_token_s"

_PERCENTILES = {
    True: tuple(f"time_to_first_token_{level}_s" for level in ("p95", "p99")),
    False: tuple(f"time_per_output_token_{level}_s" for level in ("p95", "p99")),
}
"""By whether a group has the prompts: percentiles that a pair's are no less than, at the same requests a second."""

MOST_PAIRS = 2_000_000
"""Pairs that are evaluated at most where percentiles are limited: two minutes."""

_LEEWAY = 1.01
"""On a group's own percentiles: alone it makes the first token, too, which of two groups the other one makes."""

_RATES = ("cost_per_token_usd", "energy_per_token_j", "carbon_per_token_kg")
_SEES_FIRST = (_FIRST, "request_time_s")
_SEES_OUTPUT = (_OUTPUT, "step_time_s", "request_time_s")
MONOTONE = tuple(dict.fromkeys((*_RATES, *_SEES_FIRST, *_SEES_OUTPUT)))
"""Metrics of a pair that get no worse where a group needs less time and energy for a request, and stops in smaller parts; with
others, such as mean power, the search could not leave plans out."""


RATES = ("request_interval_s", "active_j", "first_token_s", "pass_interval_s", "output_token_s")
"""Between two requests; of a request, above what chips draw idle; of a prompt at once; between two passes of a replica, on which
the queue waits; between two tokens."""


def _measures(service: Service, cluster: Cluster, plans: Plan) -> tuple[Array, ...]:
    """`RATES` of plans of one phase, and `_PERCENTILES`."""
    report = reports(service, cluster, plans)
    between = 1.0 / report.capacity_requests_per_s
    idle_w = cluster.chips * report.pue * power.idle_it_w(cluster, operating_point(cluster.chip, cluster.cooling))
    paced = report.step_time_s / plans.pp
    active_j = (report.power_w - idle_w) / report.requests_per_s
    own = between, active_j, report.time_to_first_token_s, paced, report.time_per_output_token_s
    return (*own, *(getattr(report, name) for names in _PERCENTILES.values() for name in names))


def pair_table(prefill: PlanTable, decode: PlanTable, rows: np.ndarray) -> PlanTable:
    """Pairs of plans of two groups of chips, one a column of `rows` (group, pair); keys are the degrees of each group."""
    tables = {"prefill": prefill, "decode": decode}
    return PlanTable(
        dict(zip(tables, rows, strict=True)),
        lambda of: [table[name][of[group]] for group, table in tables.items() for name in _DEGREES],
        lambda of: Disaggregated(**{group: table.at(of[group]) for group, table in tables.items()}),
    )


def chip_splits(chips: int) -> list[int]:
    """Chips for prompts: integers of parts of the cluster, and at least one part for each group.

    **Raises:** `UserError` for a single chip.
    """
    if chips < 2:
        raise UserError("two groups need two chips at least")
    part = -(-chips // SPLITS)
    return list(range(part, chips, part))


def pair_scope(service: Service, cluster: AnyCluster, pairs: int, evaluated: int, all_: bool = False) -> str:
    """Which pairs of plans the search covers, in a sentence. **Arguments:** `all_`: whether they are of `pairs_within_limits`."""
    left_out = "does not fit, or misses the requests or a limit by itself" if all_ else (
        "is no better in anything that counts than another plan on as many chips"
    )  # fmt: skip
    total, kinds = count_of(cluster.chips), cluster.groups
    answers, prompts = ([*degree_words(service, each)] for each in (kinds[0], kinds[-1]))
    words = [
        f"global over {pairs:,} pairs of plans: every split of {total:,} chips in integers of {chip_splits(total)[0]} for "
        "prompts, the others for answers; in each group every tp x pp x dp = its chips",
        *(
            answers
            if answers == prompts
            else [f"of answers: {', '.join(answers)}", f"of prompts: {', '.join(prompts)}"]
        ),
        f"{evaluated:,} pairs were evaluated whole: of the others one group {left_out}",
    ]
    return "; ".join(words)


class PairGroup:
    """The plans of one of two groups, for every split of the chips. **Arguments:** the `machine` of both."""

    def __init__(self, service: Service, machine: AnyCluster, prefills: bool) -> None:
        cluster = machine.groups[-1 if prefills else 0]  # that says the chips of both groups, too
        one, zero = np.ones_like(service.load), np.zeros_like(service.load)
        phases = {"prefills": one if prefills else zero, "decodes": zero if prefills else one}
        self.own, self.cluster, self.prefills = dataclasses.replace(service, **phases), cluster, prefills
        total = count_of(cluster.chips)
        parts = [serving_plans(self.own, cluster, n if prefills else total - n) for n in chip_splits(total)]
        widest = max(parts, key=lambda part: len(part.columns))  # few chips have fewer layouts
        whole = lambda part, name: part.columns.get(name, np.ones(part.count, int))
        columns = {name: np.concatenate([whole(part, name) for part in parts]) for name in widest.columns}
        self.plans = dataclasses.replace(widest, columns=columns)
        self.split = np.repeat(
            np.arange(len(parts)), [part.count for part in parts]
        )  # of each: an index into `chip_splits`
        everything = np.arange(self.plans.count)
        self.margin = in_blocks(self._room, self.plans, everything, service, cluster)[0]
        self.fitting = np.flatnonzero(self.margin >= -FEASIBILITY_TOLERANCE)
        self.measures = self._measured() if len(self.fitting) else {}

    def _room(self, service: Service, cluster: Cluster, plans: Plan) -> tuple[np.ndarray]:
        """Memory margins of plans, beside another group of the same degrees that holds nothing but weights."""
        empty = dataclasses.replace(plans, micro_batch=jnp.zeros_like(plans.tp))
        pair = Disaggregated(plans, empty) if self.prefills else Disaggregated(empty, plans)
        return (memory_margins(service, cluster, pair)[1],)

    def _measured(self) -> dict[str, np.ndarray]:
        """What a pair sees of the plans that fit, shape (plan,), the less the better."""
        index, plans = self.fitting, self.plans
        rates = map(without_rounding, in_blocks(_measures, plans, index, self.own, self.cluster))
        instance = plans["pp"] * np.maximum(plans["tp"], plans["ep"] * plans["expert_tp"])  # chips that stop together
        replica = plans["tp"] * plans["pp"]  # that hold one copy of what is no expert: a small one moves caches slowly
        chips = {"instance_chips": 1.0 * instance[index], "fewer_chips": -1.0 * replica[index]}
        if "cache_split" in plans.columns:  # ranks that hold less receive less
            chips["whole_cache"] = -1.0 * plans["cache_split"][index]
        names = (*RATES, *_PERCENTILES[True], *_PERCENTILES[False])
        return dict(zip(names, rates, strict=True)) | chips

    def holding(self, limits: Mapping[str, float]) -> np.ndarray:
        """Rows that fit, answer the requests that are stated, and hold limits of percentiles by themselves."""
        if not self.measures or not (asked := float(self.own.requests_per_s)):
            return self.fitting
        holds = self.measures["request_interval_s"] <= float(self.own.most_load) / asked * (1.0 + 1e-9)
        for name in set(_PERCENTILES[self.prefills]) & set(limits):
            holds &= self.measures[name] <= _LEEWAY * limits[name]
        return self.fitting[holds]

    def contenders(self, split: int, names: list[str], most: float) -> np.ndarray:
        """Rows of one split that fit and that no other one is as good as in the measures named.

        **Arguments:** `most` that the group's own latency may be: of a first token, or between tokens.
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
    """All pairs of the same split of plans that contend, for an objective of `MONOTONE` under limits.

    **Arguments:** `within`: whether to leave out plans that miss a limit by themselves.

    **Raises:** `UserError` where there are more pairs than one can wait for.
    """
    common = ["request_interval_s", "active_j", "instance_chips"]
    first = objective in _SEES_FIRST or _FIRST in limits
    output = objective in _SEES_OUTPUT or (_OUTPUT in limits and not within)
    of_prompts = [*common, *(["first_token_s", "pass_interval_s", "fewer_chips"] if first else [])]
    of_answers = [*common, *(["output_token_s"] if output else []), *(["fewer_chips"] if first else [])]
    most = [limits.get(name, np.inf) * (1.0 + 1e-9) if within else np.inf for name in (_FIRST, _OUTPUT)]
    pairs, count = [np.zeros((2, 0), int)], 0
    for split in range(int(prefill.split[-1]) + 1):
        rows = prefill.contenders(split, of_prompts, most[0]), decode.contenders(split, of_answers, most[1])
        pairs.append(np.stack([grid.ravel() for grid in np.meshgrid(*rows, indexing="ij")]))
        count += pairs[-1].shape[1]
        if count > MOST_PLANS:
            raise UserError(
                f"more than {MOST_PLANS:,} pairs of plans contend for {objective}: ask for fewer chips, or set limits of latency"
            )
    return pair_table(prefill.plans, decode.plans, np.concatenate(pairs, axis=1))


def pairs_within_limits(prefill: PairGroup, decode: PairGroup, limits: Mapping[str, float]) -> PlanTable:
    """All pairs of the same split of plans that hold limits of percentiles by themselves.

    **Raises:** `UserError` where there are more than `MOST_PAIRS`.
    """
    pairs, count = [np.zeros((2, 0), int)], 0
    rows = [group.holding(limits) for group in (prefill, decode)]
    for split in range(int(prefill.split[-1]) + 1):
        some = [own[group.split[own] == split] for group, own in zip((prefill, decode), rows, strict=True)]
        count += len(some[0]) * len(some[1])
        if count > MOST_PAIRS:
            raise UserError(
                f"more than {MOST_PAIRS:,} pairs of plans may hold the percentiles: ask for fewer chips, "
                "state the requests a second, or set tighter limits"
            )
        pairs.append(np.stack([grid.ravel() for grid in np.meshgrid(*some, indexing="ij")]))
    return pair_table(prefill.plans, decode.plans, np.concatenate(pairs, axis=1))


def least_memory_pair(prefill: PairGroup, decode: PairGroup) -> PlanTable:
    """The one pair of a split whose fuller group is the least over its memory."""
    groups = (prefill, decode)
    rows = [[np.flatnonzero(each.split == split) for each in groups] for split in range(int(prefill.split[-1]) + 1)]
    pairs = [[own[np.argmax(each.margin[own])] for own, each in zip(of, groups, strict=True)] for of in rows]
    best = max(pairs, key=lambda pair: min(each.margin[row] for each, row in zip(groups, pair, strict=True)))
    return pair_table(prefill.plans, decode.plans, np.asarray(best)[:, None])
