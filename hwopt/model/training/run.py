"""Report of a training run on a cluster under a plan: time, memory, power, cost, carbon and loss."""

import jax.numpy as jnp

from hwopt.hardware.cluster import Cluster
from hwopt.model import machine
from hwopt.model.chip.roofline import fastest_seconds_per_flop
from hwopt.model.chip.sustained_clock import asked_core_share
from hwopt.model.facility import cost, power
from hwopt.model.facility.reliability import failures
from hwopt.model.layers import work
from hwopt.model.layers.parameters import chip_weights, splits
from hwopt.model.machine import Lifted, LiftedMargins
from hwopt.model.network import sites
from hwopt.model.numerics.maximum import Maximum
from hwopt.model.operators import footprint as _tables  # noqa: F401 (registers rules for tables of operators)
from hwopt.model.operators import time as _times  # noqa: F401
from hwopt.model.report import TrainingMargins, TrainingReport
from hwopt.model.training import batch_ramp, learning
from hwopt.model.training.footprint import Footprint, Offloaded, footprint
from hwopt.model.training.schedule import StepTime, step_time
from hwopt.plan import Plan
from hwopt.types import Scalar
from hwopt.workload.operators import Operators
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import active_parameters, total_parameters


def training_report(
    run: TrainingRun, cluster: Cluster, plan: Plan, maximum: Maximum, given: Lifted | None
) -> tuple[TrainingReport, LiftedMargins]:
    """Return the report of a training run, and margins of the lifted variables.

    The model computes three quantities implicitly: chip temperature and useful tokens as roots, the checkpoint interval as a
    minimizer. A solver may lift them into variables of its own; the returned margins then constrain them.

    **Arguments:**

    - `run`, `cluster`, `plan`: the workload, the machine and the parallelization.
    - `maximum`: exact or smooth maximum.
    - `given`: values of the lifted variables; None to compute them.
    """
    it = machine.machine(cluster, given, run)
    point, always = it.point, jnp.ones_like(it.heat_margin)
    parameters, met = total_parameters(run.model), active_parameters(run.model)
    equivalent = learning.dense_equivalent_parameters(run.law, met, parameters)
    fresh_tokens = learning.repeated_tokens(run.law, run.unique_tokens, run.tokens / run.unique_tokens)
    batch_tokens = work.batch_tokens(run)
    learnt_batch = batch_tokens if run.ramp is None else batch_tokens * _learnt_fraction(run)
    if given is None:
        useful_tokens, enough = learning.effective_tokens(run.law, equivalent, fresh_tokens, learnt_batch), always
        lost = failures(run, cluster, it.stops, parameters, maximum)
    else:
        useful_tokens = given.useful_tokens
        enough = learning.useful_margin(run.law, equivalent, useful_tokens, fresh_tokens, learnt_batch)
        lost = failures(run, cluster, it.stops, parameters, maximum, given.checkpoint_interval_s)

    part, here, local = sites.one_site(run, cluster, plan)
    active = machine.running(here, point, settles=given is None)
    weights = chip_weights(part.model, local)

    def step(stage: TrainingRun) -> tuple[tuple[Footprint, Offloaded], StepTime]:
        held = footprint(stage, local, cluster.stack, weights, maximum)
        return held, step_time(stage, active, local, weights, held[1], maximum)

    steps = batch_ramp.over_run(part, step)
    (memory, outside), mean = steps.held, steps.mean
    tokens_per_s = batch_tokens / mean.step_s
    model_flops = work.model_flops(run.model, run)
    executed_flops = model_flops + work.repeated_flops(run.model, run, plan, cluster.stack)
    # A product with 1/N, because the derivative of a quotient of 1e24 FLOP leaves the range of float32. Arithmetic counts as if
    # every FLOP ran at the fastest rate of large GEMMs, HBM traffic by the bytes moved.
    gemm_s = executed_flops * (1.0 / cluster.chips) * fastest_seconds_per_flop(active.chip, run)
    core_s = gemm_s * mean.keeps.energy * asked_core_share(active.chip, point)
    activity = power.Activity(*(part / mean.step_s for part in (core_s, mean.hbm_s, mean.busy_s)))
    # Power at the meter, N PUE IT: the average counts for the bill, that at full load for the site's power budget.
    average_w = it.pue * (cluster.chips * power.active_it_w(cluster, point, activity) + it.standing_w)
    useful_tokens_per_s = tokens_per_s * lost.goodput
    spending = cost.spending(cluster, it.capital, average_w)
    usd_per_s = sum(spending)
    kg_per_s = sum(cost.carbon_parts(it.cluster, it.fed_w, it.powered, average_w).values())
    run_time = run.tokens / useful_tokens_per_s
    plan_holds = plan_margins(run, cluster, plan, memory.total_bytes, outside.total_bytes, given is not None)
    common = machine.outputs(
        [it],
        run,
        clock_ratio=active.chip.clock_ratio / mean.keeps.slowdown,
        parameters=parameters,
        active_parameters=met,
        tokens_per_s=tokens_per_s,
        useful_flops_per_s=model_flops / cluster.chips / mean.step_s,
        executed_over_useful=executed_flops / model_flops,
        memory=memory,
        memory_capacity_bytes=cluster.chip.hbm_capacity_bytes,
        breakdown=steps.last.breakdown,
        margins=TrainingMargins(**machine.margins([it]), **plan_holds, **lost.margins),
    )
    report = TrainingReport(
        **common,
        step_time_s=steps.last.step_s,
        hidden_s=steps.last.hidden_s,
        pool_per_chip_bytes=outside.total_bytes,
        power_w=average_w,
        spending=spending,
        interruptions=it.stops,
        goodput=lost.goodput,
        mean_time_between_failures_s=lost.mtbf_s,
        checkpoint_interval_s=lost.interval_s,
        energy_per_token_j=average_w / useful_tokens_per_s,
        carbon_per_token_kg=kg_per_s / useful_tokens_per_s,
        chip_usd_per_s=usd_per_s / cluster.chips,
        cost_per_token_usd=usd_per_s / useful_tokens_per_s,
        run_time_s=run_time,
        run_cost_usd=usd_per_s * run_time,
        run_energy_j=average_w * run_time,
        run_carbon_kg=kg_per_s * run_time,
        loss=_loss(run, equivalent, useful_tokens, sites.replicas_apart(cluster, plan)),
        tokens_per_unit=run.tokens_per_unit,
        unit_of_work=run.model.unit_of_work,
        stages=batch_ramp.stages(run, steps, common["mfu"]),
    )
    keeps_up = always if given is None else jnp.log(lost.interval_s / lost.drain_s)
    return report, LiftedMargins(it.heat_margin, enough, keeps_up)


def _loss(run: TrainingRun, equivalent: Scalar, useful_tokens: Scalar, apart: Scalar) -> Scalar:
    """Return the loss by the run's scaling law; NaN for models that are not language models, which have no law."""
    if isinstance(run.model, Operators) and not run.model.language:
        return jnp.full_like(useful_tokens, jnp.nan)
    return learning.loss_apart(run.law, equivalent, useful_tokens, apart)


def _learnt_fraction(run: TrainingRun) -> Scalar:
    """Return the constant batch that wastes as many tokens as the ramp, over the ramp's last batch."""
    assert run.ramp is not None
    return learning.equivalent_batch(run.law, batch_ramp.shares(run.ramp), batch_ramp.fractions(run.ramp))


_NO_SHARE = 1e-30
"""Smallest share of a memory pool; it replaces zero, so that the logarithm has a gradient."""


def plan_margins(
    run: TrainingRun, cluster: Cluster, plan: Plan, memory_bytes: Scalar, pool_bytes: Scalar, lifted: bool
) -> dict[str, Scalar]:
    """Return the logarithmic margins of a plan's constraints by name. A plan is feasible where none is negative.

    **Arguments:**

    - `memory_bytes`: bytes needed in a chip's own memory.
    - `pool_bytes`: bytes needed in a chip's share of the memory pool.
    - `lifted`: whether the model is being traced for a solver. The margin of the pool then stays finite even without
      offloading, because the trace must hold for plans with and without it.
    """
    smallest = run.global_batch_sequences
    if run.ramp is not None:
        smallest = smallest * run.ramp.batch_fractions[0]
    taken = splits(run.model, plan, copies=cluster.sites.count) | {
        "memory": (cluster.chip.hbm_capacity_bytes, memory_bytes),
        "sites": (plan.dp, cluster.sites.count),
        "batch": (smallest, plan.dp * plan.micro_batch),
        "context": (run.sequence_length, plan.cp),
    }
    share = pool_bytes / jnp.maximum(cluster.pool.usable_bytes, 1.0)
    room = -jnp.log(jnp.maximum(share, _NO_SHARE))
    return {name: jnp.log(most / used) for name, (most, used) in taken.items()} | {
        "pool": room if lifted else jnp.where(share > 0.0, room, jnp.inf),
        "chips": -jnp.abs(jnp.log(cluster.chips / plan.chips)),
    }
