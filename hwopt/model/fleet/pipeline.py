"""Pipeline parallelism over groups of different chips: layers of each group, the slowest stage, links between groups, memory.

A group of chips runs a segment of a longer pipeline. Its step, memory and gradients come from `schedule`, `footprint` and
`training`, with the layers and stages of the segment.
"""

import itertools
from functools import reduce
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.cluster import Cluster, Fleet
from hwopt.model import machine
from hwopt.model.chip.roofline import fastest_peak, fastest_seconds_per_flop
from hwopt.model.chip.sustained_clock import asked_core_share
from hwopt.model.facility import cost, power, rack
from hwopt.model.fleet.data_parallel import FleetReport, totals
from hwopt.model.layers import work
from hwopt.model.layers.layer_time import ExposedTime
from hwopt.model.layers.parameters import Weights, chip_weights, table_parameters
from hwopt.model.machine import Machine, added
from hwopt.model.network import collectives
from hwopt.model.numerics.maximum import Maximum, above_zero, hard_maximum, jitter_fraction, overlapped, several
from hwopt.model.report import FEASIBILITY_TOLERANCE, StageReport, TrainingMargins
from hwopt.model.training.footprint import Footprint, footprint, micro_batches
from hwopt.model.training.run import plan_margins
from hwopt.model.training.schedule import gradient_sync_s, input_s, optimizer_s, plain_micro_batches, stage_times
from hwopt.plan import FleetPipeline, Plan
from hwopt.types import Scalar
from hwopt.workload.training import TrainingRun


class PipelinePosition(NamedTuple):
    """Position of a group of stages in a pipeline."""

    chips: Scalar  # of all groups, which sets the distances in the hall
    layers: Scalar  # of the group
    onwards: Scalar  # stages from its first to the end of the pipeline
    stages: Scalar  # of the whole pipeline
    ends: Scalar  # 1: it has the first or the last stage, and so an embedding table
    last: Scalar  # 1: it has the last stage, and so the head


class PipelineStages(NamedTuple):
    """Times and memory of a group of stages. Unless noted, times are for one micro-batch, forward and backward."""

    mean_s: Array  # a mean stage, without head and sends
    head_s: Array  # head on the last stage; 0 for other groups
    full_s: Array  # the slowest stage, without sends
    send_s: Array  # sending one activation to a stage of the same group
    link_s: Array  # sending one activation to another group, through this group's network
    sync_s: Array  # gradient reduction, once a step
    optimizer_s: Array  # once a step
    work: ExposedTime  # of a mean stage, including its share of the head
    memory: Footprint


def pipeline_positions(plan: FleetPipeline) -> list[PipelinePosition]:
    """Return the position of each group in the pipeline."""
    counts = [each.pp for each in plan.groups]
    whole, one = added(counts), jnp.ones_like(counts[0])
    of_last = [one * (i == len(counts) - 1) for i in range(len(counts))]
    at_ends = [one * (i in (0, len(counts) - 1)) for i in range(len(counts))]
    onwards = [added(counts[i:]) for i in range(len(counts))]
    shared = [added([each.chips for each in plan.groups])] * len(counts), plan.layers, onwards, [whole] * len(counts)
    return [PipelinePosition(*each) for each in zip(*shared, at_ends, of_last, strict=True)]


def _piece(run: TrainingRun, plan: Plan, layers: Scalar, pp: Scalar) -> tuple[TrainingRun, Plan]:
    """Return a run and a plan for `pp` stages, each with as many layers as a stage of a group that has `layers` in total."""
    model = run.model
    share = layers * (pp / plan.pp) / model.layers
    shapes = lambda r: (r.model.layers, r.model.moe_layers)
    part = eqx.tree_at(shapes, run, (model.layers * share, model.moe_layers * share))
    return part, eqx.tree_at(lambda p: p.pp, plan, pp)


def _weights(part: TrainingRun, local: Plan, place: PipelinePosition) -> Weights:
    """Return the weights of a chip of a group.

    A group in the middle stores no embedding table, a group at an end stores one. Both tables are on one chip only if the
    pipeline has a single stage.
    """
    weights = chip_weights(part.model, local)
    whole = eqx.tree_at(lambda p: p.pp, local, place.stages)
    more = place.ends * table_parameters(part.model, whole) - table_parameters(part.model, local)
    return weights._replace(stage=weights.stage + more, last=weights.last + more)


def at_work(it: Machine, place: PipelinePosition) -> Cluster:
    """Return a group's cluster at its operating clocks, with network distances of one hall that contains all groups."""
    hall = eqx.tree_at(lambda c: c.chips, it.cluster, place.chips)
    running = machine.running(it.cluster, it.point, settles=True)
    return eqx.tree_at(lambda c: c.network, running, rack.spread_out(hall))


def stages(
    run: TrainingRun, here: Cluster, active: Cluster, plan: Plan, place: PipelinePosition, maximum: Maximum
) -> PipelineStages:
    """Return times and memory of a group's stages.

    Under 1F1B a stage keeps the activations of as many micro-batches as there are stages from it to the end. Its memory is
    therefore that of the first stage of a pipeline with only these stages, all with as many layers.

    **Arguments:**

    - `here`: the group's cluster as given.
    - `active`: the same cluster at its operating clocks, see `at_work`.
    - `place`: position of the group in the pipeline.
    """
    stack, level = active.stack, active.stack.level
    part, local = _piece(run, plan, place.layers, place.stages)
    weights = _weights(part, local, place)
    stage, head = (each.scaled(level) for each in stage_times(part.model, part, active, local, weights, maximum))
    head = head.scaled(place.last)
    message = work.tokens_per_chip(run, plan) * run.model.hidden * run.activation_bytes / plan.tp
    width = plan.tp * plan.cp * plan.dp
    send = lambda stride: level * collectives.neighbour_send_s(active.network, message, place.stages, stride)
    kept, onwards = _piece(run, plan, place.layers, place.onwards)
    middle = eqx.tree_at(lambda s: s.table_gradient_bytes, stack, stack.table_gradient_bytes * place.ends)
    memory, _ = footprint(kept, onwards, middle, _weights(kept, onwards, place), maximum)
    return PipelineStages(
        mean_s=stage.total_s,
        head_s=head.total_s,
        full_s=maximum(stage.total_s * plan.fullest_stage, stage.total_s * plan.last_stage + head.total_s),
        send_s=send(width),
        link_s=send(hard_maximum(width, here.network.size[0])),
        sync_s=level * gradient_sync_s(part, active, local, weights),
        optimizer_s=level * optimizer_s(part, active, local, weights),
        work=stage.plus(head.scaled(1.0 / plan.pp)),
        memory=memory._replace(logits_bytes=place.last * memory.logits_bytes),
    )


def links(each: list[PipelineStages]) -> list[Array]:
    """Return the seconds to send one activation from each group to the next: those of the slower network."""
    return [hard_maximum(a.link_s, b.link_s) for a, b in itertools.pairwise(each)]


def sends_s(plan: FleetPipeline, each: list[PipelineStages], between: list[Array]) -> list[Array]:
    """Return, for each group, the send time per micro-batch of the stage with the largest one.

    A stage sends activations to the next and gradients to the previous stage, as in `schedule.step_time`.
    """
    before = [each[0].send_s, *between]
    after = [*between, each[-1].send_s]
    return [
        jnp.where(own.pp > 1.5, stage.send_s + hard_maximum(left, right), left + right)
        for own, stage, left, right in zip(plan.groups, each, before, after, strict=True)
    ]


class _PipelineStep(NamedTuple):
    """Step time of a pipeline and the times that set it."""

    step_s: Array
    pace_s: Array  # time of a micro-batch at the slowest stage, with its sends
    own_s: list[Array]  # like `pace_s`, at the slowest stage of each group
    stretch: Array  # 1 + jitter + production


def _step(
    run: TrainingRun,
    clusters: list[Cluster],
    plan: FleetPipeline,
    each: list[PipelineStages],
    between: list[Array],
    maximum: Maximum,
) -> _PipelineStep:
    """Return the step time of a pipeline with unequal stages.

    `T = (1 + jitter) (max_g (m W + exposed gradients_g + optimizer_g) + fill) + overhead`

    There are m micro-batches. `W = max_g (F_g + sends_g)` is the pace of the slowest stage, where F_g is the time of a
    micro-batch on a stage of group g. The fill is the time of all stages except a mean one, and their sends:
    `(1 - 1/p) sum p_g F_g + 2 sum sends`, for p stages, p_g of them in group g.

    The formula is exact for equal stages. For unequal stages it is an upper bound for 1F1B. On 300 random pipelines (2 to 8
    stages, 8 to 64 micro-batches) it is 0.4 % above a simulation in the median, and 9.5 % at most.
    """
    first, m = plan.groups[0], micro_batches(run, plan.groups[0])
    count = added([own.pp for own in plan.groups])
    own_s = []
    for own, cluster, stage, sends in zip(plan.groups, clusters, each, sends_s(plan, each, between), strict=True):
        overlap = cluster.stack.pp_overlap * several(own.virtual_stages)
        own_s.append(overlapped(stage.full_s, sends, overlap, cluster.stack.communication_slowdown, maximum))
    pace = reduce(maximum, own_s)
    ends = []
    whole = eqx.tree_at(lambda p: p.pp, first, count)
    for cluster, stage in zip(clusters, each, strict=True):
        left = plain_micro_batches(cluster.stack, whole, m)
        beside = m * pace + cluster.stack.communication_slowdown * stage.sync_s
        ends.append(maximum(beside, left * pace + stage.sync_s) + stage.optimizer_s)
    fill = added([own.pp * stage.mean_s for own, stage in zip(plan.groups, each, strict=True)])
    fill = first.bubble_fraction * (count - 1.0) / count * fill
    fill = fill + added([2.0 * (own.pp - 1.0) * stage.send_s for own, stage in zip(plan.groups, each, strict=True)])
    on_chip = reduce(maximum, ends) + (fill + 2.0 * added(between) if between else fill)
    rate = reduce(hard_maximum, [input_s(run, cluster) for cluster in clusters[:1]])
    fed = maximum(on_chip, rate)
    chips = added([cluster.chips for cluster in clusters])
    most = lambda of: reduce(hard_maximum, [of(cluster) for cluster in clusters])
    stretch = 1.0 + jitter_fraction(most(lambda c: c.stack.jitter_sigma), chips)
    stretch = stretch + most(lambda c: c.operation.stall_fraction)
    stretch = stretch + jitter_fraction(most(lambda c: c.operation.straggler_sigma), chips)
    return _PipelineStep(fed * stretch + most(lambda c: c.stack.step_overhead_s), pace, own_s, stretch)


def pipeline_report(run: TrainingRun, fleet: Fleet, plan: FleetPipeline, maximum: Maximum) -> FleetReport:
    """Return the report of a training run whose pipeline stages are on groups of different chips.

    - `exchange_s` is the time that the step would save if links between groups were free.
    - `ideal_step_time_s` is the step with layers in proportion to speed, ignoring that layers are integers. All stages then
      take `W = (L + sum p_g sends_g / tau_g + head / tau_last) / sum (p_g / tau_g)`, for L layers in total, and p_g stages of
      tau_g seconds per layer in group g.
    """
    where = pipeline_positions(plan)
    its, each = _each(run, fleet, plan, where, maximum)
    clusters = list(fleet.groups)
    between = links(each)
    step = _step(run, clusters, plan, each, between, maximum)
    free = _step(run, clusters, plan, each, [jnp.zeros_like(link) for link in between], maximum)
    m = micro_batches(run, plan.groups[0])
    reports, powers = [], []
    for it, own, stage, place, own_s in zip(its, plan.groups, each, where, step.own_s, strict=True):
        drawn, report = _stage_report(run, it, own, stage, place, step.step_s, m * own_s)
        powers.append(drawn)
        reports.append(report)
    return totals(
        run,
        its,
        reports,
        powers,
        maximum,
        step_s=step.step_s,
        exchange_s=step.step_s - free.step_s,
        ideal_s=step.step_s - m * above_zero(step.pace_s - _even_pace(run, plan, each, between)) * step.stretch,
        waits=[m * above_zero(step.pace_s - own_s) / step.step_s for own_s in step.own_s],
        apart=jnp.ones_like(step.step_s),
        whole_model=-jnp.abs(jnp.log(added(plan.layers) / run.model.layers)),
        replicas_alike=-added([jnp.abs(jnp.log(_batch(own) / _batch(plan.groups[0]))) for own in plan.groups]),
    )


def _batch(plan: Plan) -> Scalar:
    return plan.dp * plan.cp * plan.micro_batch


def _even_pace(run: TrainingRun, plan: FleetPipeline, each: list[PipelineStages], between: list[Array]) -> Array:
    """Return the time of a micro-batch per stage if layers were distributed in proportion to speed, see `pipeline_report`."""
    sends = sends_s(plan, each, between)
    rates = [
        own.pp / (stage.mean_s * own.pp / layers)
        for own, stage, layers in zip(plan.groups, each, plan.layers, strict=True)
    ]
    taken = added([rate * sent for rate, sent in zip(rates, sends, strict=True)])
    head = rates[-1] / plan.groups[-1].pp * each[-1].head_s
    return (run.model.layers + taken + head) / added(rates)


def _each(
    run: TrainingRun, fleet: Fleet, plan: FleetPipeline, where: list[PipelinePosition], maximum: Maximum
) -> tuple[list[Machine], list[PipelineStages]]:
    """Return each group as a machine, and its stages. The model is traced once for all groups."""

    def one(cluster: Cluster, own: Plan, place: PipelinePosition) -> tuple[Machine, PipelineStages]:
        it = machine.machine(cluster, None, run)
        return it, stages(run, cluster, at_work(it, place), own, place, maximum)

    groups = list(zip(fleet.groups, plan.groups, where, strict=True))
    together = jax.vmap(one)(*jax.tree.map(lambda *leaves: jnp.stack(leaves), *groups))
    of = lambda place: jax.tree.map(lambda leaf: leaf[place], together)
    its, found = zip(*(of(place) for place in range(len(groups))), strict=True)
    return list(its), list(found)


def group_flops(run: TrainingRun, layers: Scalar, last: Scalar) -> Scalar:
    """Return the model FLOPs of a step for a group's layers, including the head on the last stage.

    Summed over groups they equal the model FLOPs of the step.

    **Arguments:**

    - `layers`: layers of the group.
    - `last`: 1 if the group has the last stage, else 0.
    """
    share = layers / run.model.layers
    shapes = lambda r: (r.model.layers, r.model.moe_layers)
    part = eqx.tree_at(shapes, run, (run.model.layers * share, run.model.moe_layers * share))
    head = work.batch_tokens(run) * 2.0 * (2.0 + run.trainable_fraction) * run.model.vocab * run.model.hidden
    return work.model_flops(part.model, part) - (1.0 - last) * head


def _stage_report(
    run: TrainingRun, it: Machine, own: Plan, stage: PipelineStages, place: PipelinePosition, step: Array, busy: Array
) -> tuple[Array, StageReport]:
    """Return the average power that a group draws over a step, and the report of its stages."""
    cluster = it.cluster
    part, _ = _piece(run, own, place.layers, own.pp)
    flops = group_flops(run, place.layers, place.last)
    executed = flops + work.repeated_flops(part.model, part, own, cluster.stack)
    active = machine.running(cluster, it.point, settles=True)
    mean, keeps = stage.work.scaled(micro_batches(run, own)), stage.work.mean_pace
    gemm_s = executed * (1.0 / cluster.chips) * fastest_seconds_per_flop(active.chip, run)
    core_s = gemm_s * keeps.energy * asked_core_share(active.chip, it.point)
    busy_s = mean.compute_s + mean.memory_bound_s + stage.optimizer_s
    activity = power.Activity(*(seconds / step for seconds in (core_s, mean.hbm_s + stage.optimizer_s, busy_s)))
    drawn = it.pue * (cluster.chips * power.active_it_w(cluster, it.point, activity) + it.standing_w)
    free = jnp.full_like(step, jnp.inf)
    total = stage.memory.total_bytes
    margins = TrainingMargins(
        **machine.margins([it]),
        **plan_margins(part, cluster, own, total, jnp.zeros_like(total), lifted=False),
        failures=free, saves=free,
    )  # fmt: skip
    fits = jnp.stack([value >= -FEASIBILITY_TOLERANCE for value in jax.tree.leaves(margins)])
    return drawn, StageReport(
        margins=margins,
        feasible=jnp.all(fits).astype(step.dtype),
        memory=stage.memory,
        layers=place.layers,
        stages=own.pp,
        step_time_s=busy,
        mfu=flops / (cluster.chips * fastest_peak(cluster.chip, run)) / step,
        memory_per_chip_bytes=total,
        memory_capacity_bytes=cluster.chip.hbm_capacity_bytes,
        power_w=drawn,
        peak_power_w=it.design_pue * it.fed_w,
        capex_usd=cost.capex_usd(cluster, it.capital),
        clock_ratio=active.chip.clock_ratio / keeps.slowdown,
    )
