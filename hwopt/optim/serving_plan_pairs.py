"""Plans of two groups of chips that can be part of a best pair: those that no other plan on as many chips is as good as."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import moocore
import numpy as np
from jaxtyping import Array

from hwopt.errors import UserError, suggest
from hwopt.hardware.cluster import Cluster
from hwopt.model import power
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.model.thermal import operating_point
from hwopt.optim.plan_blocks import in_blocks, reports, room, rounded
from hwopt.optim.plan_lattice import MOST_PLANS
from hwopt.optim.serving_plan_lattice import PairLattice, group, group_lattice
from hwopt.plan import Disaggregated, Plan
from hwopt.workload.service import Service

BLOCK = 4096
"""Plans evaluated at a time: lattices are small."""

_FIRST, _OUTPUT = "time_to_first_token_s", "time_per_output_token_s"

_RATES = ("cost_per_token_usd", "energy_per_token_j", "carbon_per_token_kg")
_SEES_FIRST = (_FIRST, "request_time_s")
_SEES_OUTPUT = (_OUTPUT, "step_time_s", "request_time_s")
MONOTONE = tuple(dict.fromkeys((*_RATES, *_SEES_FIRST, *_SEES_OUTPUT)))
"""Metrics of a pair that get no worse where a group needs less time and energy for a request, and stops in smaller parts."""


def check_monotone(objective: str) -> None:
    """Refuses a metric that a better group can make worse, such as mean power: the search could not leave plans out."""
    if objective not in MONOTONE:
        raise UserError(f"'{objective}' is no objective of two groups of chips: {suggest(objective, MONOTONE)}")


class Measures(NamedTuple):
    """What a pair sees of a group's plans; shape (plan,), the less the better."""

    request_interval_s: np.ndarray
    active_j: np.ndarray  # of a request, above what chips draw idle
    instance_chips: np.ndarray
    first_token_s: np.ndarray  # of a prompt at once
    pass_interval_s: np.ndarray  # between two passes of a replica, on which the queue waits
    output_token_s: np.ndarray
    fewer_chips: np.ndarray  # less the chips of a replica: a small one moves keys and values slowly


def _measures(service: Service, cluster: Cluster, plans: Plan) -> tuple[Array, ...]:
    """The measures that a report has, of plans of one phase."""
    report = reports(service, cluster, plans)
    between = 1.0 / report.capacity_requests_per_s
    idle_w = cluster.chips * report.pue * power.idle_it_w(cluster, operating_point(cluster.chip, cluster.cooling))
    paced = report.step_time_s / plans.pp
    active_j = (report.power_w - idle_w) / report.requests_per_s
    return between, active_j, report.time_to_first_token_s, paced, report.time_per_output_token_s


class Group:
    """The plans of one of two groups, for every split of the chips."""

    def __init__(self, service: Service, cluster: Cluster, prefills: bool) -> None:
        self.own, self.cluster, self.prefills = group(service, prefills), cluster, prefills
        self.rows, self.split = group_lattice(service, cluster, prefills)
        everything = np.arange(self.rows.count)
        self.margin = in_blocks(self._room, self.rows, everything, service, cluster, block=BLOCK)[0]
        self.fitting = np.flatnonzero(self.margin >= -FEASIBILITY_TOLERANCE)
        self.measures = self._measured() if len(self.fitting) else None

    def _room(self, service: Service, cluster: Cluster, plans: Plan) -> tuple[Array]:
        """Memory margins of plans, beside another group of the same degrees that holds nothing but weights."""
        empty = dataclasses.replace(plans, micro_batch=jnp.zeros_like(plans.tp))
        pair = Disaggregated(plans, empty) if self.prefills else Disaggregated(empty, plans)
        return (room(service, cluster, pair)[1],)

    def _measured(self) -> Measures:
        """Measures of the plans that fit."""
        index = self.fitting
        found = in_blocks(_measures, self.rows, index, self.own, self.cluster, block=BLOCK)
        between, active, first, paced, output = map(rounded, found)
        instance, replica = self.rows.instance_chips[index], self.rows.replica_chips[index]
        return Measures(between, active, 1.0 * instance, first, paced, output, -1.0 * replica)

    def contenders(self, split: int, names: list[str], most: float) -> np.ndarray:
        """Rows of one split that fit and that no other one is as good as in the measures named.

        **Arguments:** `most` that the group's own latency may be: of a first token, or between tokens.
        """
        if self.measures is None:
            return self.fitting
        latency = self.measures.first_token_s if self.prefills else self.measures.output_token_s
        some = np.flatnonzero((self.split[self.fitting] == split) & (latency <= most))
        if not len(some):
            return some
        points = np.stack([getattr(self.measures, name)[some] for name in names], axis=1)
        return self.fitting[some[moocore.is_nondominated(points, keep_weakly=False)]]


def contending_pairs(
    prefill: Group, decode: Group, objective: str, limits: Mapping[str, float], within: bool
) -> PairLattice:
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
    return PairLattice(prefill.rows, decode.rows, *np.concatenate(pairs, axis=1))


def roomiest_pair(prefill: Group, decode: Group) -> PairLattice:
    """The one pair of a split whose fuller group is the least over its memory."""
    found = []
    for split in range(int(prefill.split[-1]) + 1):
        rows = [np.flatnonzero(each.split == split) for each in (prefill, decode)]
        both = [own[np.argmax(each.margin[own])] for own, each in zip(rows, (prefill, decode), strict=True)]
        found.append((min(prefill.margin[both[0]], decode.margin[both[1]]), both))
    _, both = max(found, key=lambda each: each[0])
    return PairLattice(prefill.rows, decode.rows, *(np.asarray([row]) for row in both))
