"""Several kinds of chips that hold the stages of one pipeline: layers of each, the slowest stage, links between kinds, memory.

A group of chips runs as a piece of a longer pipeline: its step, memory and gradients are those of `schedule`, `footprint` and
`training`, of so many layers on so many stages.
"""

from __future__ import annotations

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
    """Where a group of stages stands in a pipeline."""

    chips: Scalar  # of all groups, among which distances lie
    layers: Scalar  # of the group
    onwards: Scalar  # stages from its first to the end of the pipeline
    stages: Scalar  # of the whole pipeline
    ends: Scalar  # 1: it has the first stage or the last, and so a table
    last: Scalar  # 1: it has the last stage, and so the head


class PipelineStages(NamedTuple):
    """A group of stages: seconds of a micro-batch, forward and backward, and what they hold."""

    mean_s: Array  # a mean stage, without head and sends
    head_s: Array  # of the last stage; 0 of a group that lacks it
    full_s: Array  # the slowest stage, without sends
    send_s: Array  # of one activation to a stage of the same group
    link_s: Array  # to one of another group, through this group's network
    sync_s: Array  # gradients, once a step
    optimizer_s: Array
    work: ExposedTime  # of a mean stage, head included
    memory: Footprint


def pipeline_positions(plan: FleetPipeline) -> list[PipelinePosition]:
    """Where each group stands."""
    counts = [each.pp for each in plan.groups]
    whole, one = added(counts), jnp.ones_like(counts[0])
    of_last = [one * (i == len(counts) - 1) for i in range(len(counts))]
    at_ends = [one * (i in (0, len(counts) - 1)) for i in range(len(counts))]
    onwards = [added(counts[i:]) for i in range(len(counts))]
    shared = [added([each.chips for each in plan.groups])] * len(counts), plan.layers, onwards, [whole] * len(counts)
    return [PipelinePosition(*each) for each in zip(*shared, at_ends, of_last, strict=True)]


def _piece(run: TrainingRun, plan: Plan, layers: Scalar, pp: Scalar) -> tuple[TrainingRun, Plan]:
    """A run and a plan of `pp` stages as full as those of a group that has `layers` on its own."""
    model = run.model
    share = layers * (pp / plan.pp) / model.layers
    shapes = lambda r: (r.model.layers, r.model.moe_layers)
    part = eqx.tree_at(shapes, run, (model.layers * share, model.moe_layers * share))
    return part, eqx.tree_at(lambda p: p.pp, plan, pp)


def _weights(part: TrainingRun, local: Plan, place: PipelinePosition) -> Weights:
    """Weights of a chip; a group in the middle holds no table, one at an end one, both only where one stage is all."""
    weights = chip_weights(part.model, local)
    whole = eqx.tree_at(lambda p: p.pp, local, place.stages)
    more = place.ends * table_parameters(part.model, whole) - table_parameters(part.model, local)
    return weights._replace(stage=weights.stage + more, last=weights.last + more)


def at_work(it: Machine, place: PipelinePosition) -> Cluster:
    """A group at its clocks, in one hall with the others."""
    hall = eqx.tree_at(lambda c: c.chips, it.cluster, place.chips)
    running = machine.running(it.cluster, it.point, settles=True)
    return eqx.tree_at(lambda c: c.network, running, rack.spread_out(hall))


def stages(
    run: TrainingRun, here: Cluster, active: Cluster, plan: Plan, place: PipelinePosition, maximum: Maximum
) -> PipelineStages:
    """Times and memory of a group's stages. **Arguments:** the cluster as it stands `here`, and `active` at its clocks.

    Under 1F1B a stage keeps the activations of as many micro-batches as there are stages from it to the end: memory is that of
    the first stage of a pipeline of these alone, each as full.
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
    """Seconds of one activation between one group and the next: that of the slower network."""
    return [hard_maximum(a.link_s, b.link_s) for a, b in itertools.pairwise(each)]


def sends_s(plan: FleetPipeline, each: list[PipelineStages], between: list[Array]) -> list[Array]:
    """Sends of the stage of each group that has most of them: to the next and to the one before, as in `schedule.step_time`."""
    before = [each[0].send_s, *between]
    after = [*between, each[-1].send_s]
    return [
        jnp.where(own.pp > 1.5, stage.send_s + hard_maximum(left, right), left + right)
        for own, stage, left, right in zip(plan.groups, each, before, after, strict=True)
    ]


class _PipelineStep(NamedTuple):
    """A step of a pipeline."""

    step_s: Array
    pace_s: Array  # of a micro-batch at the slowest stage, with its sends
    own_s: list[Array]  # the same of each group's slowest stage
    stretch: Array  # 1 + jitter + production


def _step(
    run: TrainingRun,
    clusters: list[Cluster],
    plan: FleetPipeline,
    each: list[PipelineStages],
    between: list[Array],
    maximum: Maximum,
) -> _PipelineStep:
    """Time of a step of stages that differ.

    `T = (1 + jitter) (max_g (m W + exposed gradients_g + optimizer_g) + fill) + overhead`, with the pace of the slowest stage
    `W = max_g (F_g + sends_g)`; the fill is what all stages but a mean one take, and their sends:
    `(1 - 1/p) sum p_g F_g + 2 sum sends`. Exact of equal stages; of unequal ones an upper bound of 1F1B, 0.4 % above a
    simulation of it (median of 300 drawn ones of 2 to 8 stages and 8 to 64 micro-batches), 9.5 % at most.
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
    """A training run whose layers lie on several kinds of chips, each a group of stages of one pipeline.

    `exchange_s` is what of the step free links between groups would save, `ideal_step_time_s` the step of layers in proportion to
    speed, were they no integers: all stages then take `W = (L + sum p_g sends_g / tau_g + head / tau_last) / sum (p_g / tau_g)`, of
    tau seconds a layer.
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
    """Pace of stages whose layers are in proportion to speed."""
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
    """Each group as a machine, and its stages; one traced copy serves them all."""

    def one(cluster: Cluster, own: Plan, place: PipelinePosition) -> tuple[Machine, PipelineStages]:
        it = machine.machine(cluster, None)
        return it, stages(run, cluster, at_work(it, place), own, place, maximum)

    groups = list(zip(fleet.groups, plan.groups, where, strict=True))
    together = jax.vmap(one)(*jax.tree.map(lambda *leaves: jnp.stack(leaves), *groups))
    of = lambda place: jax.tree.map(lambda leaf: leaf[place], together)
    its, found = zip(*(of(place) for place in range(len(groups))), strict=True)
    return list(its), list(found)


def group_flops(run: TrainingRun, layers: Scalar, last: Scalar) -> Scalar:
    """FLOPs a step needs of a group's layers, and of the head where it has the last stage; over all groups those of the step."""
    share = layers / run.model.layers
    shapes = lambda r: (r.model.layers, r.model.moe_layers)
    part = eqx.tree_at(shapes, run, (run.model.layers * share, run.model.moe_layers * share))
    head = work.batch_tokens(run) * 2.0 * (2.0 + run.trainable_fraction) * run.model.vocab * run.model.hidden
    return work.step_model_flops(part) - (1.0 - last) * head


def _stage_report(
    run: TrainingRun, it: Machine, own: Plan, stage: PipelineStages, place: PipelinePosition, step: Array, busy: Array
) -> tuple[Array, StageReport]:
    """Power that a group draws over a step, and what it says of itself."""
    cluster = it.cluster
    part, _ = _piece(run, own, place.layers, own.pp)
    flops = group_flops(run, place.layers, place.last)
    executed = flops + work.recompute_flops(part, own, cluster.stack)
    active = machine.running(cluster, it.point, settles=True)
    mean, keeps = stage.work.scaled(micro_batches(run, own)), stage.work.mean_pace
    gemm_s = executed * (1.0 / cluster.chips) * fastest_seconds_per_flop(active.chip, run)
    core_s = gemm_s * keeps.energy * asked_core_share(active.chip, it.point)
    busy_s = mean.compute_s + mean.memory_bound_s + stage.optimizer_s
    activity = power.Activity(*(seconds / step for seconds in (core_s, mean.hbm_s + stage.optimizer_s, busy_s)))
    drawn = it.pue * (cluster.chips * power.it_w(cluster, it.point, activity) + it.standing_w)
    free = jnp.full_like(step, jnp.inf)
    total = stage.memory.total_bytes
    margins = TrainingMargins(
        **machine.margins([it]),
        **plan_margins(part, cluster, own, total, jnp.zeros_like(total), lifted=False),
        failures=free, stored=free, saves=free,
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
