"""Every whole-number plan of a fixed cluster, as columns: what the search for the best one covers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from hwopt.errors import UserError
from hwopt.hardware.cluster import Cluster
from hwopt.optim.whole_plans import divisors
from hwopt.plan import Plan, stage_layers
from hwopt.workload.training import TrainingRun

LEAST_CONTEXT_TOKENS = 1024
"""Tokens of a sequence that context parallelism leaves a chip at least: below, its ring passes outlast their attention."""

MOST_PLANS = 20_000_000
"""Plans that are enumerated at most: 2 GB of memory, half a minute."""

NONE, SELECTIVE, FULL = 0, 1, 2
"""Values of the column `recompute`."""


HELD = {"weights_offloaded": 0.0, "optimizer_offloaded": 0.0, "activations_offloaded": 0.0, "local_steps": 1.0}
"""What every plan of a lattice has alike, and what it is unless a caller says otherwise."""


class Lattice(NamedTuple):
    """Whole-number plans, one an index; the plainest of those that differ in sharding alone comes first."""

    tp: np.ndarray
    pp: np.ndarray
    dp: np.ndarray
    cp: np.ndarray
    ep: np.ndarray
    expert_tp: np.ndarray
    virtual_stages: np.ndarray
    micro_batch: np.ndarray
    recompute: np.ndarray  # NONE, SELECTIVE or FULL
    zero: np.ndarray  # 1, 2 or 3

    @property
    def count(self) -> int:
        """How many plans there are."""
        return len(self.tp)

    def at(self, index: np.ndarray, run: TrainingRun, held: Mapping[str, float] | None = None) -> Plan:
        """Plans by index, float64, shape (plan,) a leaf; layers as even as whole ones go, 1F1B, sequence parallel.

        **Arguments:** `index` of shape (plan,); `run`, for its layers and tokens; `held` values of `HELD`, the same for all.
        """
        rows = Lattice(*(column[index] for column in self))
        sequence = _whole(run.sequence_length)
        stages = _stages(_whole(run.model.layers))[rows.pp, rows.virtual_stages]
        ones = np.ones(len(index))
        columns = {name: getattr(rows, name) for name in Lattice._fields[:8]} | {
            "fullest_stage": stages[:, 0],
            "last_stage": stages[:, 1],
            "sequence_parallel": (rows.tp > 1) & (sequence % (rows.tp * rows.cp) == 0),
            "optimizer_sharded": ones,
            "gradients_sharded": rows.zero >= 2,
            "weights_sharded": rows.zero >= 3,
            "shard_groups": ones,
            "recompute_full": rows.recompute == FULL,
            "recompute_attention": rows.recompute == SELECTIVE,
            "bubble_fraction": ones,
            **{name: value * ones for name, value in (HELD | dict(held or {})).items()},
        }
        return Plan(**{name: np.asarray(column, np.float64) for name, column in columns.items()})


def _whole(value: object) -> int:
    return round(float(np.asarray(value)))


@cache
def _stages(layers: int) -> np.ndarray:
    """(fullest, last) of `stage_layers` for every shape of a pipeline, shape (pp, virtual stages, 2)."""
    found = np.full((layers + 3, layers + 3, 2), np.nan)
    for pp in range(1, layers + 3):
        for chunks in range(1, (layers + 2) // pp + 1):
            found[pp, chunks] = stage_layers(layers, pp, chunks)
    return found


def contexts(sequence: int) -> list[int]:
    """Context parallel degrees: powers of two that leave a chip enough tokens, in two equal halves (causal balance)."""
    powers = (2**i for i in range(1, 20))
    return [1, *(c for c in powers if sequence % (2 * c) == 0 and sequence >= c * LEAST_CONTEXT_TOKENS)]


def _splits(run: TrainingRun, chips: int, sites: int) -> Iterator[tuple[int, int, int, int]]:
    """(tp, pp, dp, cp) with `tp pp dp cp = N`: whole heads a chip, a chunk for every stage, a batch for every replica, the
    same replicas at every site.
    """
    heads, layers, batch = (_whole(x) for x in (run.model.heads, run.model.layers, run.global_batch_sequences))
    for tp, cp in itertools.product(divisors(heads), contexts(_whole(run.sequence_length))):
        if chips % (tp * cp):
            continue
        for pp in divisors(chips // (tp * cp)):
            dp = chips // (tp * cp * pp)
            if pp <= layers + 2 and batch % dp == 0 and dp % sites == 0:
                yield tp, pp, dp, cp


def _of_split(run: TrainingRun, sites: int, tp: int, pp: int, dp: int, cp: int) -> np.ndarray:
    """All rows of one split of the chips, shape (column, plan)."""
    layers, experts, batch = (_whole(x) for x in (run.model.layers, run.model.experts, run.global_batch_sequences))
    schedules = [
        (v, b)
        for b in divisors(batch // dp)
        for v in range(1, (layers + 2) // pp + 1 if pp > 1 else 2)
        if v == 1 or batch // (dp * b) >= pp
    ]
    places = [
        (ep, expert_tp)
        for ep in (divisors(experts) if experts else [1])
        for expert_tp in (divisors(tp) if experts else [tp])
        if (tp * cp * (dp // sites)) % (ep * expert_tp) == 0
    ]
    alone = dp * cp == 1 and not experts  # one rank has nothing to shard; experts may have replicas even then
    zero = [1] if alone else [1, 2] if pp > 1 else [1, 2, 3]
    kinds = [(recompute, level) for recompute in (NONE, SELECTIVE, FULL) for level in zero]
    i, j, k = (grid.ravel() for grid in np.indices((len(places), len(schedules), len(kinds)), np.int32))
    fixed = np.broadcast_to(np.asarray([[tp], [pp], [dp], [cp]], np.int32), (4, len(i)))
    choices = [np.asarray(rows, np.int32).T[:, at] for rows, at in ((places, i), (schedules, j), (kinds, k))]
    return np.concatenate([fixed, *choices])


def lattice(run: TrainingRun, cluster: Cluster) -> Lattice:
    """Every valid plan of a lattice; `scope` says which.

    `N = t p d c`, t divides the heads, `d b` the batch, e the experts; `e t_e` divides `t c d`, t_e divides t;
    interleaving has at least as many micro-batches as stages; chunks are no more than layers, embedding and head.

    **Raises:** `UserError` where nothing divides, or where there are more plans than one can wait for.
    """
    chips, batch = _whole(cluster.chips), _whole(run.global_batch_sequences)
    found, count = [], 0
    sites = _whole(cluster.sites.count)
    for split in _splits(run, chips, sites):
        found.append(_of_split(run, sites, *split))
        count += found[-1].shape[1]
        if count > MOST_PLANS:
            raise UserError(
                f"more than {MOST_PLANS:,} plans split {chips:,} chips and a batch of {batch:,} sequences: choose a batch or "
                "a number of chips with fewer factors, or give a plan with --plan to hwopt estimate"
            )
    if not found:
        raise UserError(
            f"no plan divides {chips:,} chips, {_whole(run.model.heads)} heads and a global batch of {batch:,} sequences: "
            "choose chips with small factors or another batch"
        )
    return Lattice(*np.concatenate(found, axis=1))


def scope(run: TrainingRun, cluster: Cluster, plans: int) -> str:
    """Which plans the search covers, in a sentence."""
    layers, chips, batch = (_whole(x) for x in (run.model.layers, cluster.chips, run.global_batch_sequences))
    degrees = contexts(_whole(run.sequence_length))
    experts = _whole(run.model.experts)
    words = [
        f"global over {plans:,} plans: every tp x pp x dp x cp = {chips:,} chips with tp dividing the {_whole(run.model.heads)} "
        f"heads, cp in {{{', '.join(map(str, degrees))}}} and dp x micro-batch x micro-batches = {batch:,} sequences",
        f"every ep that divides the {experts} experts and expert_tp that divides tp" if experts else "",
        f"every number of chunks a stage within the {layers} layers, embedding and head (interleaving where micro-batches "
        "are at least pp)",
        "recompute none, selective or full",
        "ZeRO-1, ZeRO-2, and ZeRO-3 where pp = 1",
        "layers spread evenly, 1F1B schedules, sequence parallel",
    ]
    return "; ".join(filter(None, words))
