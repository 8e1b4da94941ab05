"""Every whole-number plan that serves on a fixed cluster, as columns; and every pair of plans for two groups of its chips."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from hwopt.catalog.plans import plan_leaves
from hwopt.errors import UserError
from hwopt.hardware.cluster import Cluster
from hwopt.model.serving import cache
from hwopt.optim.plan_lattice import MOST_PLANS
from hwopt.optim.whole_plans import divisors
from hwopt.plan import Disaggregated, Plan, stage_layers
from hwopt.workload.service import Service

SPLITS = 64
"""Parts of a cluster of which two groups get whole numbers; all its chips, where there are fewer."""


class ServingPlanLattice(NamedTuple):
    """Whole-number plans that serve, one an index."""

    tp: np.ndarray
    pp: np.ndarray
    dp: np.ndarray
    ep: np.ndarray
    expert_tp: np.ndarray
    batch: np.ndarray

    @property
    def count(self) -> int:
        """How many plans there are."""
        return len(self.tp)

    @property
    def replica_chips(self) -> np.ndarray:
        """Chips that hold one copy of what is no expert."""
        return self.tp * self.pp

    @property
    def instance_chips(self) -> np.ndarray:
        """Chips that stop together."""
        return self.pp * np.maximum(self.tp, self.ep * self.expert_tp)

    def at(self, index: np.ndarray, workload: Service, held: Mapping[str, float] | None = None) -> Plan:
        """Plans by index, float64, shape (plan,) a leaf; layers as even as whole ones go. Nothing is held."""
        rows = ServingPlanLattice(*(column[index] for column in self))
        stages = _stages(_whole(workload.model.layers))[rows.pp]
        columns = rows._asdict() | {"fullest_stage": stages[:, 0], "last_stage": stages[:, 1]}
        columns["micro_batch"] = columns.pop("batch")
        return plan_leaves({name: np.asarray(column, np.float64) for name, column in columns.items()})


class PairLattice(NamedTuple):
    """Pairs of plans of two groups of chips, one an index: row numbers of each."""

    prefill: ServingPlanLattice
    decode: ServingPlanLattice
    prefill_row: np.ndarray
    decode_row: np.ndarray

    @property
    def count(self) -> int:
        """How many pairs there are."""
        return len(self.prefill_row)

    @property
    def degrees(self) -> tuple[np.ndarray, ...]:
        """What makes two pairs different ones: tp, pp, ep and expert_tp of each group, whatever their chips and batches."""
        names = ("tp", "pp", "ep", "expert_tp")
        return (
            *(getattr(self.prefill, name)[self.prefill_row] for name in names),
            *(getattr(self.decode, name)[self.decode_row] for name in names),
        )

    def at(self, index: np.ndarray, workload: Service, held: Mapping[str, float] | None = None) -> Disaggregated:
        """Pairs by index, shape (pair,) a leaf."""
        return Disaggregated(
            prefill=self.prefill.at(self.prefill_row[index], workload),
            decode=self.decode.at(self.decode_row[index], workload),
        )


def _whole(value: object) -> int:
    return round(float(np.asarray(value)))


def _stages(layers: int) -> np.ndarray:
    """(fullest, last) of `stage_layers` by number of stages."""
    return np.asarray([(np.nan, np.nan), *(stage_layers(layers, pp, 1) for pp in range(1, layers + 3))])


def ladder(most: float) -> list[int]:
    """Batches: 1, 2, 3, 4, 6, 8, 12, ...: powers of two and 1.5 times those between, up to `most`."""
    found, power = [1], 2
    while power <= most:
        found += [power, power + power // 2]
        power *= 2
    return [batch for batch in found if batch <= max(most, 1)]


def most_sequences(service: Service, cluster: Cluster, tp: list[int]) -> np.ndarray:
    """Sequences, or prompts, whose keys and values alone fill the memory of a replica of one stage, by its tp.

    A replica of p stages holds p such batches of sequences, on p times the chips.
    """
    degrees = np.asarray(tp, np.float64)
    ones = np.ones_like(degrees)
    named = dict.fromkeys(("pp", "dp", "ep", "expert_tp", "micro_batch", "fullest_stage", "last_stage"), ones)
    with jax.enable_x64(True):
        tokens = service.mean_context if float(service.decodes) else service.input_tokens
        each = cache.layer_mean(service.model, tokens) * cache.token_bytes(
            service, plan_leaves(named | {"tp": degrees})
        )
        return np.asarray(cluster.chip.hbm_capacity_bytes / (each * service.model.layers))


def serving_lattice(service: Service, cluster: Cluster, chips: int | None = None) -> ServingPlanLattice:
    """Every valid plan of a lattice; `scope` says which.

    `N = t p d`; t divides the heads; e divides the experts, t_e divides t, `e t_e` divides `t d`; stages are no more than
    layers, embedding and head.

    **Arguments:** `chips` of a group of the cluster's; all by default.

    **Raises:** `UserError` where nothing divides, where chips lie at several sites, and where there are more plans than one
    can wait for.
    """
    if _whole(cluster.sites.count) != 1:
        raise UserError("a service at several sites is not modelled: each site serves alone, ask for one of them")
    total = _whole(cluster.chips) if chips is None else chips
    layers, experts = _whole(service.model.layers), _whole(service.model.experts)
    degrees = [tp for tp in divisors(_whole(service.model.heads)) if total % tp == 0]
    found, count = [], 0
    for tp, most in zip(degrees, most_sequences(service, cluster, degrees), strict=True):
        for pp in (each for each in divisors(total // tp) if each <= layers + 2):
            dp = total // (tp * pp)
            batches = ladder(float(most) if float(service.decodes) else float(most) * pp)
            places = [
                (ep, expert_tp)
                for ep in (divisors(experts) if experts else [1])
                for expert_tp in (divisors(tp) if experts else [tp])
                if (tp * dp) % (ep * expert_tp) == 0
            ]
            rows = [(tp, pp, dp, *place, batch) for place, batch in itertools.product(places, batches)]
            found.append(np.asarray(rows, np.int64).T)
            count += len(rows)
            if count > MOST_PLANS:
                raise UserError(f"more than {MOST_PLANS:,} plans serve on {total:,} chips: give one with --plan")
    return ServingPlanLattice(*np.concatenate(found, axis=1))  # tp = pp = 1 divides everything


def splits(chips: int) -> list[int]:
    """Chips for prompts: whole numbers of parts of the cluster, and at least one part for each group.

    **Raises:** `UserError` for a single chip.
    """
    if chips < 2:
        raise UserError("two groups need two chips at least")
    part = -(-chips // SPLITS)
    return list(range(part, chips, part))


def group(service: Service, prefills: bool) -> Service:
    """The service of one of two groups: prompts alone, or answers alone."""
    one, zero = np.ones_like(service.load), np.zeros_like(service.load)
    return replace(service, prefills=one if prefills else zero, decodes=zero if prefills else one)


def group_lattice(service: Service, cluster: Cluster, prefills: bool) -> tuple[ServingPlanLattice, np.ndarray]:
    """Plans of one of two groups for every split of the chips, and the split of each: an index into `splits`."""
    total, own = _whole(cluster.chips), group(service, prefills)
    parts = [serving_lattice(own, cluster, n if prefills else total - n) for n in splits(total)]
    columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    return ServingPlanLattice(*columns), np.repeat(np.arange(len(parts)), [part.count for part in parts])


def scope(service: Service, cluster: Cluster, plans: int) -> str:
    """Which plans the search covers, in a sentence."""
    words = [f"global over {plans:,} plans: every tp x pp x dp = {_whole(cluster.chips):,} chips", *_degrees(service)]
    return "; ".join(words)


def pair_scope(service: Service, cluster: Cluster, pairs: int, evaluated: int) -> str:
    """Which pairs of plans the search covers, in a sentence."""
    total = _whole(cluster.chips)
    part = splits(total)[0]
    words = [
        f"global over {pairs:,} pairs of plans: every split of {total:,} chips in whole numbers of {part} for prompts, the "
        "others for answers; in each group every tp x pp x dp = its chips",
        *_degrees(service),
        f"{evaluated:,} pairs were evaluated whole: of the others one group is no better in anything that counts than "
        "another plan on as many chips",
    ]
    return "; ".join(words)


def _degrees(service: Service) -> list[str]:
    experts = _whole(service.model.experts)
    words = [
        f"tp dividing the {_whole(service.model.heads)} heads",
        f"every ep that divides the {experts} experts and expert_tp that divides tp" if experts else "",
        "batches of 1, 2, 3, 4, 6, 8, 12, ... sequences as far as memory holds their keys and values",
        "layers spread evenly",
    ]
    return list(filter(None, words))
