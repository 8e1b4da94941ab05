"""Pipeline parallelism across several chip types: candidate plans, allocation of layers, and the fastest pipeline."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from hwopt.catalog.load import leaf
from hwopt.design.plan_lattice import Sizes, named, plan_points, plan_relations
from hwopt.design.variables import count_of
from hwopt.hardware.cluster import Cluster, Fleet
from hwopt.model import machine
from hwopt.model.estimate import estimate
from hwopt.model.fleet.pipeline import PipelinePosition, at_work, stages
from hwopt.model.numerics.maximum import hard_maximum
from hwopt.plan import FleetPipeline, Plan
from hwopt.solver.options import SEARCH, FleetOptions
from hwopt.trace.cache import evaluate_rows_in_numpy
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import tensor_degrees

_RECOMPUTED = ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0))
"""Shares of layers and of attention cores that are recomputed: none, selective, full."""


class PipelineCandidate(NamedTuple):
    """A pipeline before its layers are allocated: order of the groups, stages and parallel degrees of each group."""

    order: tuple[int, ...]
    dp: int
    micro_batch: int
    tp: tuple[int, ...]
    ep: tuple[int, ...]
    recompute: tuple[int, ...]
    pp: tuple[int, ...]


def allocate_layers(
    layers: int, counts: Sequence[int], layer_s: Sequence[float], extra_s: Sequence[float], most: Sequence[int]
) -> list[int] | None:
    """Allocate layers to types of stages such that the slowest stage is as fast as possible. The result is exact.

    Each stage gets at least one layer. Each further layer goes to the stage that finishes earliest with it. This greedy rule is
    optimal because stage times increase with layers.

    **Arguments:**

    - `layers`: number of layers of the model.
    - `counts`: number of stages of each type.
    - `layer_s`: seconds per layer of each type.
    - `extra_s`: other seconds of a stage of each type.
    - `most`: maximum number of layers of a stage of each type.

    **Returns:** layers of all stages of each type together; None where the stages cannot hold the model.
    """
    taken = list(counts)
    left = layers - sum(taken)
    if left < 0 or any(each < 1 for each in most):
        return None
    for _ in range(left):
        done = [
            extra + seconds * (have // count + 1) if have // count < limit else math.inf
            for have, count, seconds, extra, limit in zip(taken, counts, layer_s, extra_s, most, strict=True)
        ]
        soonest = min(done)
        if math.isinf(soonest):
            return None
        taken[done.index(soonest)] += 1
    return taken


def pipeline_candidates(
    run: TrainingRun, clusters: Sequence[Cluster], options: FleetOptions = SEARCH.fleet
) -> Iterator[PipelineCandidate]:
    """Yield pipelines of whole stages that use all chips of each group, with the same number of replicas in each.

    With more than `ordered_groups` groups, only the given order is tried, and all groups have the same tensor parallelism.
    """
    groups, ordered = range(len(clusters)), len(clusters) <= options.ordered_groups
    chips = [count_of(each.chips) for each in clusters]
    batch, layers = count_of(run.global_batch_sequences), count_of(run.model.layers)
    experts = count_of(run.model.experts)
    degrees = [
        [t for t in tensor_degrees(run.model) if t <= count_of(each.network.size[0]) and t & (t - 1) == 0]
        for each in clusters
    ]
    alike = [(each,) * len(chips) for each in range(len(_RECOMPUTED))]
    recomputed = list(itertools.product(range(len(_RECOMPUTED)), repeat=2)) if len(chips) == 2 else alike
    tp, pp = [f"tp{place}" if ordered else "tp" for place in groups], [f"pp{place}" for place in groups]
    for order in itertools.permutations(groups) if ordered else [tuple(groups)]:
        kinds = [degrees[i] for i in order] if ordered else [sorted(set.intersection(*map(set, degrees)))]
        values = dict(zip(tp, kinds, strict=False)) | {"dp": range(1, batch + 1)}
        values |= dict.fromkeys(pp, range(1, layers + 1))
        values |= {"micro_batch": options.micro_batches, "micro_batches": range(1, batch + 1)}
        relations = plan_relations(Sizes(named(*values), batch=(batch, batch)), "batch")
        for t, p, i in zip(tp, pp, order, strict=True):
            relations += plan_relations(Sizes({"tp": t, "pp": p, "dp": "dp"}, (chips[i], chips[i])), "chips")
        for row in plan_points(values, relations):
            own, stages = (tuple(row[each] for each in names) for names in (tp, pp))
            ep = tuple(math.gcd(t * row["dp"], experts) if experts else 1 for t in own)
            if sum(stages) <= layers:
                yield from (
                    PipelineCandidate(order, row["dp"], row["micro_batch"], own, ep, x, stages) for x in recomputed
                )


def _plans(found: Sequence[PipelineCandidate], at: Any, fullest: Any, last: Any) -> Plan:
    """Return the plans of one group of each candidate, as columns.

    **Arguments:**

    - `found`: the candidates.
    - `at`: position of the group in each candidate's order.
    - `fullest`, `last`: layers of the fullest and of the last stage, over the mean.
    """
    of = lambda name: np.array([getattr(each, name)[place] for each, place in zip(found, at, strict=True)], float)
    full, attention = np.array(_RECOMPUTED)[of("recompute").astype(int)].T
    tp, ep = of("tp"), of("ep")
    columns = {
        "tp": tp, "pp": of("pp"), "dp": np.array([each.dp for each in found], float), "ep": ep,
        "expert_tp": np.where(ep > 1, 1.0, tp), "micro_batch": np.array([each.micro_batch for each in found], float),
        "fullest_stage": fullest, "last_stage": last, "sequence_parallel": tp > 1, "recompute_full": full,
        "recompute_attention": attention,
        **dict.fromkeys(("cp", "virtual_stages", "optimizer_sharded", "shard_groups", "bubble_fraction", "local_steps"), 1.0),
    }  # fmt: skip
    names = (name for name in Plan.__dataclass_fields__ if name != "layout")
    filled: dict[str, Any] = {
        name: np.broadcast_to(np.asarray(columns.get(name, 0.0), float), tp.shape) for name in names
    }
    return Plan(**filled)


def _one_group(run: TrainingRun, cluster: Cluster, plan: Plan, place: PipelinePosition) -> dict[str, Any]:
    """Evaluate one group of stages: the times and memory that the allocation of layers needs."""
    it = machine.machine(cluster, None)
    found = stages(run, cluster, at_work(it, place), plan, place, hard_maximum)
    return {
        "mean_s": found.mean_s, "head_s": found.head_s, "send_s": found.send_s, "link_s": found.link_s,
        "end_s": found.sync_s + found.optimizer_s, "bytes": found.memory.total_bytes,
    }  # fmt: skip


class _Groups(NamedTuple):
    """Times in seconds, and maximum layers per stage, of each group of each candidate (candidate, group)."""

    layer_s: np.ndarray
    head_s: np.ndarray
    sends_s: np.ndarray
    most: np.ndarray


def _evaluated_groups(run: TrainingRun, clusters: Sequence[Cluster], found: Sequence[PipelineCandidate]) -> _Groups:
    """Compute time per layer and memory room of each candidate's groups.

    The model is evaluated with one and with two layers per stage.
    """
    groups, rows = len(clusters), {}
    whole = sum(count_of(each.chips) for each in clusters)
    pp = np.array([each.pp for each in found], float)
    row, last = np.arange(len(found)), groups - 1
    for number in range(groups):
        mine = np.array([each.order.index(number) for each in found])
        onwards = np.cumsum(pp[:, ::-1], axis=1)[:, ::-1][row, mine]
        plans = _plans(found, mine, 1.0, 1.0)
        for layers in (1.0, 2.0):
            ends, final = ((mine == 0) | (mine == last)).astype(float), (mine == last).astype(float)
            where: tuple[Any, ...] = (
                np.full(len(row), float(whole)),
                layers * pp[row, mine],
                onwards,
                pp.sum(axis=1),
                ends,
                final,
            )
            rows[number, layers] = evaluate_rows_in_numpy(
                _one_group, (run, clusters[number]), (plans, PipelinePosition(*where))
            )
    at = np.array([[each.order[place] for place in range(groups)] for each in found])
    each = np.arange(len(found))[:, None]
    take = lambda name, layers=1.0: np.stack([rows[number, layers][name] for number in range(groups)], axis=1)[each, at]
    room = np.array([float(cluster.chip.hbm_capacity_bytes) for cluster in clusters])[at]
    one, two = take("bytes"), take("bytes", 2.0)
    most = np.floor(np.maximum((room - (2.0 * one - two)) / np.maximum(two - one, 1.0), 0.0) * (1.0 + 1e-9))
    send, link = take("send_s"), take("link_s")
    between = np.maximum(link[:, :-1], link[:, 1:])
    before = np.concatenate([send[:, :1], between], axis=1)
    after = np.concatenate([between, send[:, -1:]], axis=1)
    several = np.array([each.pp for each in found]) > 1
    sends = np.where(several, send + np.maximum(before, after), before + after)
    return _Groups(take("mean_s"), take("head_s"), sends, most)


def _outcome(run: TrainingRun, fleet: Fleet, plan: FleetPipeline) -> Any:
    report = estimate(run, fleet, plan)
    return report.step_time_s, report.feasible


def _pipeline(run: TrainingRun, found: PipelineCandidate, groups: _Groups, row: int) -> FleetPipeline | None:
    """Return a candidate with its layers allocated; None where its memory cannot hold the model."""
    last = len(found.pp) - 1
    # The stage with the output head is a type of its own.
    counts = [*found.pp[:last], found.pp[last] - 1, 1]
    layer, extra = list(groups.layer_s[row]), list(groups.sends_s[row])
    head = extra[last] + groups.head_s[row][last]
    most = [int(min(each, 1e6)) for each in groups.most[row]]
    used = [i for i, count in enumerate(counts) if count]
    shared = allocate_layers(
        count_of(run.model.layers),
        [counts[i] for i in used],
        [[*layer, layer[last]][i] for i in used],
        [[*extra, head][i] for i in used],
        [[*most, most[last]][i] for i in used],
    )
    if shared is None:
        return None
    taken = dict(zip(used, shared, strict=True))
    plans, layers = [], []
    for place, pp in enumerate(found.pp):
        whole = taken.get(place, 0) + (taken[last + 1] if place == last else 0)
        mean, count = whole / pp, counts[place]
        fullest = math.ceil(taken[place] / count) if count else 0
        final = taken[last + 1] if place == last else math.floor(taken[place] / count)
        column = _plans([found], [place], max(fullest, final) / mean, final / mean)
        plans.append(jax.tree.map(lambda leaf: leaf[0], column))
        layers.append(leaf(whole))
    return FleetPipeline(tuple(plans), tuple(layers))


def _bounds(run: TrainingRun, found: Sequence[PipelineCandidate], groups: _Groups) -> np.ndarray:
    """Return an estimate of each candidate's step time, s, with fractional layers and unlimited memory.

    It consists of the pace of all micro-batches and the pipeline fill.
    """
    pp = np.array([each.pp for each in found], float)
    pieces = count_of(run.global_batch_sequences) / np.array([each.dp * each.micro_batch for each in found])
    rates = pp / groups.layer_s
    last = groups.head_s[:, -1] / groups.layer_s[:, -1]
    pace = (count_of(run.model.layers) + (rates * groups.sends_s).sum(axis=1) + last) / rates.sum(axis=1)
    full = np.maximum(pace, (groups.layer_s + groups.sends_s).max(axis=1))
    return (pieces + pp.sum(axis=1) - 1.0) * full


def fastest_pipeline(
    run: TrainingRun, clusters: Sequence[Cluster], options: FleetOptions = SEARCH.fleet
) -> tuple[tuple[int, ...], FleetPipeline] | None:
    """Find the fastest pipeline over groups of chips.

    All `pipeline_candidates` are ranked by step time with fractional layers. The best ones that can hold the model get integer
    layers, and the full model evaluates them.

    **Returns:** the order of the groups and the plan in that order. Where no candidate can hold the model, it is the one with
    the most memory. None where there is no candidate.
    """
    found = list(pipeline_candidates(run, clusters, options))
    if not found:
        return None
    groups = _evaluated_groups(run, clusters, found)
    pp = np.array([each.pp for each in found])
    holds = ((pp * groups.most).sum(axis=1) >= count_of(run.model.layers)) & (groups.most >= 1).all(axis=1)
    rank = np.argsort(np.where(holds, _bounds(run, found, groups), np.inf), kind="stable")[: int(holds.sum())]
    made: list[tuple[PipelineCandidate, FleetPipeline]] = []
    for row in rank:
        plan = _pipeline(run, found[row], groups, row)
        if plan is not None:
            made.append((found[row], plan))
        if len(made) == options.exact_pipelines:
            break
    best: tuple[float, tuple[int, ...], FleetPipeline] | None = None
    for order in {each.order for each, _ in made}:
        mine = [plan for each, plan in made if each.order == order]
        stacked = jax.tree.map(lambda *leaves: np.array(leaves, float), *mine)
        step, fits = evaluate_rows_in_numpy(_outcome, (run, Fleet(tuple(clusters[i] for i in order))), (stacked,))
        seconds = np.where(fits > 0, step, np.inf)
        at = int(np.argmin(seconds))
        if np.isfinite(seconds[at]) and (best is None or seconds[at] < best[0]):
            best = float(seconds[at]), order, mine[at]
    if best is not None:
        return best[1:]
    roomiest = int(np.argmax((pp * np.minimum(groups.most, 1e6)).sum(axis=1)))
    plan = _pipeline(run, found[roomiest], groups._replace(most=np.full_like(groups.most, 1e6)), roomiest)
    assert plan is not None  # there are at most as many stages as layers
    return found[roomiest].order, plan
