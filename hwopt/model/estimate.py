"""The one entry of the model: (workload, cluster, plan) -> Report; and the same with its roots given from outside."""

from __future__ import annotations

from typing import NamedTuple, overload

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.chip import Chip
from hwopt.hardware.cluster import Cluster
from hwopt.model import carbon, cost, learning, power, rack, reliability, sites, work
from hwopt.model.footprint import footprint
from hwopt.model.maximum import Maximum, choose, hard_maximum
from hwopt.model.parameters import expert_replicas, held_parameters
from hwopt.model.report import FEASIBILITY_TOLERANCE, Margins, Report
from hwopt.model.roofline import seconds_per_flop
from hwopt.model.schedule import Breakdown, StepTime, step_time
from hwopt.model.serving.estimate import serving_report
from hwopt.model.serving.report import ServingReport
from hwopt.model.serving.train_and_serve import BothReport, both_report, serving_cluster
from hwopt.model.thermal import OperatingPoint, operating_point, settled_point
from hwopt.plan import Disaggregated, Plan, TrainingAndServing
from hwopt.types import Scalar
from hwopt.workload.service import Service
from hwopt.workload.train_and_serve import TrainAndServe
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import active_parameters, total_parameters


class Settled(eqx.Module):
    """What the model finds as roots and as a minimum, given."""

    junction_k: Scalar  # at full load
    useful_tokens: Scalar  # what vanishing batches would need for the run's loss
    checkpoint_interval_s: Scalar


class SettledMargins(eqx.Module):
    """Signed logarithmic margins of what is given: all zero or more is a state that the cluster and the run can hold."""

    heat: Scalar  # junction temperature over the one that its power leads to
    learning: Scalar  # fresh tokens processed over those that the useful ones take
    storage: Scalar  # time between saves over what storage takes for one


class _Lesson(NamedTuple):
    """What learns, and from how much."""

    parameters: Array
    active_parameters: Array
    equivalent_parameters: Array  # of the dense model that learns as well
    fresh_tokens: Array
    batch_tokens: Array


def report_type(workload: TrainingRun | Service | TrainAndServe) -> type[Report | ServingReport | BothReport]:
    """What `estimate` returns for a workload."""
    if isinstance(workload, TrainAndServe):
        return BothReport
    return ServingReport if isinstance(workload, Service) else Report


@overload
def estimate(workload: TrainingRun, cluster: Cluster, plan: Plan, *, temperature: Scalar | None = None) -> Report: ...
@overload
def estimate(
    workload: Service, cluster: Cluster, plan: Plan | Disaggregated, *, temperature: Scalar | None = None
) -> ServingReport: ...
@overload
def estimate(
    workload: TrainAndServe, cluster: Cluster, plan: TrainingAndServing, *, temperature: Scalar | None = None
) -> BothReport: ...
@jax.jit
def estimate(workload, cluster, plan, *, temperature=None):
    """Time, memory, power, heat, failures, money and carbon of a training run or a service on a cluster under a plan.

    Compiled once for inputs of the same shapes. Pure: works under `jax.jit`, `vmap`, `grad` and `jacobian`; checks no
    values (constructors in the catalogue do) and knows no budgets. A plan that does not fit has `feasible = 0` and a
    negative margin that says by how much.

    **Arguments:**

    - `workload`: model, batch and tokens of a `TrainingRun`; model, requests and formats of a `Service`.
    - `cluster`: chips, network, racks, cooling, facility, reliability, prices and software stack. The chip runs at the
      clock it asks for, or at the lower one that its power cap and cooling sustain.
    - `plan`: degrees of parallelism; may be fractional (the relaxed model). For a service also two plans, `Disaggregated`.
    - `temperature`: None for the exact model (hard maxima, the one whose numbers are reported); a small positive number
      for its smooth twin, an upper bound within a factor `2^temperature` a maximum.

    **Returns:** a `Report`, with the loss reached; a `ServingReport` for a service; a `BothReport` for a model that is trained
    on one machine and served on another of the same chips.

    **Units:** SI throughout.
    """
    workload, cluster, plan = _floating((workload, cluster, plan))
    if isinstance(workload, TrainAndServe):
        training = estimate(workload.training, cluster, plan.training, temperature=temperature)
        serves = serving_cluster(workload, cluster, plan)
        return both_report(
            workload, training, estimate(workload.service, serves, plan.serving, temperature=temperature)
        )
    point = operating_point(cluster.chip, cluster.cooling)
    if isinstance(workload, Service):
        return serving_report(workload, _running(cluster, point), cluster.chip, plan, point, choose(temperature))
    lesson = _lesson(workload)
    useful = learning.effective_tokens(
        workload.law, lesson.equivalent_parameters, lesson.fresh_tokens, lesson.batch_tokens
    )
    maximum = choose(temperature)
    failures = reliability.failures(
        cluster.reliability, cluster.storage, cluster.chips, point.junction_k, lesson.parameters, workload, maximum
    )
    return _report(workload, cluster, plan, point, lesson, useful, failures, maximum)


def settled_estimate(
    workload: TrainingRun | Service | TrainAndServe,
    cluster: Cluster,
    plan: Plan | Disaggregated | TrainingAndServing,
    settled: Settled,
) -> tuple[Report | ServingReport | BothReport, SettledMargins]:
    """`estimate` with its roots given: every leaf in closed form, for solvers that cannot read loops.

    The epigraph form: under margins of 0 or more, time, power, money and carbon are least at the least junction
    temperature and the best time between checkpoints, the loss at the most useful tokens, which are those of `estimate`
    wherever the chip sustains the clock it asks for and `learning.batch_margin` is positive. Hard maxima; nothing is held
    where margins are negative.

    **Arguments:** `settled`: junction temperature, useful tokens, checkpoint interval; the others as in `estimate`.

    **Returns:** a `Report` of the chip at the clock it asks for, and whether what is given settles. `clock_margin` and
    `margins.cooling` are taken at the given temperature, not at the highest allowed: other numbers than `estimate`'s, of
    the same sign where the heat margin is 0. Goodput is not held: where `margins.failures` is negative it is meaningless.
    A service learns and saves nothing: only the junction temperature counts.

    **Units:** SI throughout.
    """
    workload, cluster, plan, settled = _floating((workload, cluster, plan, settled))
    if isinstance(workload, TrainAndServe):
        assert isinstance(plan, TrainingAndServing)
        training, state = settled_estimate(workload.training, cluster, plan.training, settled)
        serves = serving_cluster(workload, cluster, plan)
        serving, _ = settled_estimate(workload.service, serves, plan.serving, settled)
        assert isinstance(training, Report) and isinstance(serving, ServingReport)
        return both_report(workload, training, serving), state
    point, heat = settled_point(cluster.chip, cluster.cooling, settled.junction_k)
    if isinstance(workload, Service):
        assert not isinstance(plan, TrainingAndServing)
        report = serving_report(workload, _running(cluster, point), cluster.chip, plan, point, hard_maximum)
        return report, SettledMargins(heat, jnp.ones_like(heat), jnp.ones_like(heat))
    assert isinstance(plan, Plan)
    lesson, useful = _lesson(workload), settled.useful_tokens
    enough = learning.useful_margin(
        workload.law, lesson.equivalent_parameters, useful, lesson.fresh_tokens, lesson.batch_tokens
    )
    failures, storage = reliability.settled_failures(
        cluster.reliability,
        cluster.storage,
        cluster.chips,
        point.junction_k,
        lesson.parameters,
        workload,
        settled.checkpoint_interval_s,
    )
    report = _report(workload, cluster, plan, point, lesson, useful, failures, hard_maximum)
    return report, SettledMargins(heat, enough, storage)


def _lesson(run: TrainingRun) -> _Lesson:
    parameters, active = total_parameters(run.model), active_parameters(run.model)
    return _Lesson(
        parameters=parameters,
        active_parameters=active,
        equivalent_parameters=learning.dense_equivalent_parameters(run.law, active, parameters),
        fresh_tokens=learning.repeated_tokens(run.law, run.unique_tokens, run.tokens / run.unique_tokens),
        batch_tokens=run.global_batch_sequences * run.sequence_length,
    )


def _report(
    workload: TrainingRun,
    cluster: Cluster,
    plan: Plan,
    point: OperatingPoint,
    lesson: _Lesson,
    useful_tokens: Scalar,
    failures: reliability.Failures,
    maximum: Maximum,
) -> Report:
    """Everything but the roots: chips at `point`, a run that learns from `useful_tokens` and loses to `failures`."""
    run, here, local = sites.one_site(workload, cluster, plan)
    running = _running(here, point)
    held = held_parameters(run.model, local)
    memory, outside = footprint(run, local, cluster.stack, held, maximum)
    time = step_time(run, running, local, held, outside, maximum)

    tokens_per_s = lesson.batch_tokens / time.step_s
    model_flops = work.step_model_flops(workload)
    executed_flops = model_flops + work.recompute_flops(workload, plan, cluster.stack)
    per_chip = model_flops / cluster.chips / time.step_s
    peak = 1.0 / jnp.sum(workload.gemm_precision / cluster.chip.peak_flops_per_s) * cluster.chip.clock_ratio

    it_peak_w = power.it_w(cluster, point, power.FULL_LOAD)
    # A product with 1/N: the slope of a quotient of 1e24 FLOP leaves float32 where cost is asked for its gradient.
    activity = _activity(workload, running.chip, time, executed_flops * (1.0 / cluster.chips))
    # At the meter, N PUE IT: at full load the budget of a site, on average what the bill counts.
    pue = power.pue(cluster.facility, cluster.cooling)
    average_w = cluster.chips * pue * power.it_w(cluster, point, activity)
    useful_tokens_per_s = tokens_per_s * failures.goodput
    built = cost.capital(cluster, it_peak_w)
    usd_per_s = sum(cost.cost_parts(cluster, built, average_w).values())
    kg_per_s = sum(carbon.carbon_parts(cluster, it_peak_w, average_w).values())
    run_time = workload.tokens / useful_tokens_per_s
    needed = (memory.total_bytes, outside.total_bytes)
    margins = _margins(workload, cluster, plan, needed, point, it_peak_w, failures.margin)
    fits = jnp.stack([value >= -FEASIBILITY_TOLERANCE for value in jax.tree.leaves(margins)])
    return Report(
        step_time_s=time.step_s,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_chip=tokens_per_s / cluster.chips,
        mfu=per_chip / peak,
        hfu=per_chip / peak * (executed_flops / model_flops),
        model_flops_per_chip_per_s=per_chip,
        memory_per_chip_bytes=memory.total_bytes,
        memory_capacity_bytes=cluster.chip.hbm_capacity_bytes,
        pool_per_chip_bytes=outside.total_bytes,
        clock_ratio=point.clock_ratio,
        clock_margin=point.clock_margin,
        junction_temperature_k=point.junction_k,
        heat_flux_w_per_m2=point.power_w / cluster.chip.silicon_area_m2,
        chip_power_w=point.power_w,
        rack_power_w=cluster.rack.chips * it_peak_w,
        racks=rack.racks(cluster),
        floor_area_m2=rack.floor_area_m2(cluster),
        pue=pue,
        power_w=average_w,
        peak_power_w=cluster.chips * pue * it_peak_w,
        site_power_w=here.chips * pue * it_peak_w,
        goodput=failures.goodput,
        mean_time_between_failures_s=failures.mtbf_s,
        checkpoint_interval_s=failures.interval_s,
        energy_per_token_j=average_w / useful_tokens_per_s,
        carbon_per_token_kg=kg_per_s / useful_tokens_per_s,
        capex_usd=cost.capex_usd(cluster, built),
        cost_per_token_usd=usd_per_s / useful_tokens_per_s,
        run_time_s=run_time,
        run_cost_usd=usd_per_s * run_time,
        run_energy_j=average_w * run_time,
        run_carbon_kg=kg_per_s * run_time,
        loss=learning.loss_apart(
            workload.law, lesson.equivalent_parameters, useful_tokens, sites.replicas_apart(cluster, plan)
        ),
        silicon_area_m2=cluster.chip.silicon_area_m2,
        hbm_stacks=cluster.chips * cluster.chip.hbm_stacks,
        package_area_m2=cluster.chips * cluster.chip.package_area_m2,
        wafers=cluster.chips * cluster.chip.wafers,
        parameters=lesson.parameters,
        active_parameters=lesson.active_parameters,
        breakdown=time.breakdown,
        hidden_s=time.hidden_s,
        memory=memory,
        margins=margins,
        bottleneck=_largest(time.breakdown),
        feasible=jnp.all(fits).astype(time.step_s.dtype),
    )


def _running(cluster: Cluster, point: OperatingPoint) -> Cluster:
    """The cluster at its sustained clock, with the distances its racks put between chips."""
    where = lambda c: (c.chip.clock_ratio, c.network)
    return eqx.tree_at(where, cluster, (point.clock_ratio, rack.spread_out(cluster)))


def _activity(run: TrainingRun, chip: Chip, time: StepTime, chip_flops: Scalar) -> power.Activity:
    """What chips do over a step: energy follows the arithmetic done and the bytes moved, not the time they take.

    Arithmetic counts as if all of it ran at the rate of large GEMMs.
    """
    gemm_s = chip_flops * seconds_per_flop(chip, run)[0]
    return power.Activity(gemm_s / time.step_s, time.hbm_s / time.step_s, time.busy_s / time.step_s)


def _floating(tree):
    """Every leaf as a floating array: whole numbers and NumPy scalars are welcome at the door."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float, leaf)), tree)


def _largest(breakdown: Breakdown) -> Scalar:
    stacked = jnp.stack(list(breakdown))
    return jnp.argmax(stacked, axis=0).astype(stacked.dtype)


def _margins(
    run: TrainingRun,
    cluster: Cluster,
    plan: Plan,
    needed_bytes: tuple[Scalar, Scalar],
    point: OperatingPoint,
    it_peak_w: Scalar,
    failures: Scalar,
) -> Margins:
    """Logarithmic margins of the constraints that make a plan and a rack one.

    **Arguments:** `needed_bytes` of a chip's own memory and of its share of the pool.
    """
    w = run.model
    memory_bytes, pool_bytes = needed_bytes
    used = plan.tp * plan.pp * plan.dp * plan.cp
    experts = jnp.where(w.experts > 0, w.experts, 1.0)
    return Margins(
        memory=jnp.log(cluster.chip.hbm_capacity_bytes / memory_bytes),
        pool=jnp.where(
            pool_bytes > 0, jnp.log(cluster.pool.capacity_bytes / jnp.where(pool_bytes > 0, pool_bytes, 1.0)), 0.0
        ),
        chips=-jnp.abs(jnp.log(cluster.chips / used)),
        stages=jnp.log((w.layers + 2.0) / (plan.pp * plan.virtual_stages)),
        tensor_parallel=jnp.log(w.heads / plan.tp),
        experts=jnp.log(experts / plan.ep),
        replicas=jnp.log(expert_replicas(plan) / cluster.sites.count),
        sites=jnp.log(plan.dp / cluster.sites.count),
        batch=jnp.log(run.global_batch_sequences / (plan.dp * plan.micro_batch)),
        context=jnp.log(run.sequence_length / plan.cp),
        cooling=point.cooling_margin,
        rack_power=jnp.log(rack.rack_limit_w(cluster) / (cluster.rack.chips * it_peak_w)),
        rack_cables=rack.cables_margin(cluster),
        rack_weight=jnp.log(cluster.rack.weight_limit_kg / rack.rack_weight_kg(cluster)),
        failures=failures,
    )
