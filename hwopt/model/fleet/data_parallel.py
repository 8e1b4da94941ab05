"""Data parallelism over groups of different chips: shares of the batch, a common step, total power, cost and failures.

Each group holds whole replicas and takes a share of the sequences of every step. Its time is that of a run with this batch on
its chips alone (`training`). All groups wait for the slowest one, and then reduce gradients over the groups.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from hwopt.declared import Result
from hwopt.hardware.cluster import Cluster, Fleet
from hwopt.model import machine
from hwopt.model.chip.roofline import fastest_peak
from hwopt.model.facility import cost, reliability
from hwopt.model.facility.cost import Spending
from hwopt.model.layers import work
from hwopt.model.machine import Machine, added
from hwopt.model.network import collectives, sites
from hwopt.model.numerics.maximum import Maximum, above_zero, hard_maximum
from hwopt.model.report import (
    FEASIBILITY_TOLERANCE,
    FleetMargins,
    StageReport,
    TrainingReport,
    output,
    outputs,
    violations,
)
from hwopt.model.training import learning
from hwopt.model.training.run import training_report
from hwopt.plan import FleetPlan, Plan
from hwopt.quantity import field_of, quantities
from hwopt.types import Scalar
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import active_parameters, total_parameters


def _of_a_run(name: str) -> Any:
    """Return a report field with the unit and meaning that it has in `TrainingReport`."""
    return field_of(outputs(TrainingReport)[name])


class FleetReport(eqx.Module, Result):
    """Metrics of a heterogeneous fleet that trains one model, and of each group with its share of the work."""

    groups: tuple[TrainingReport | StageReport, ...]  # alone with its share of the batch, or its pipeline stages
    waits: tuple[Scalar, ...]  # share of the step that a group waits for the slowest
    standing_usd_per_s: tuple[Scalar, ...]  # cost of a group regardless of its work
    electricity_usd_per_j: tuple[Scalar, ...]
    margins: FleetMargins
    feasible: Scalar
    step_time_s: Scalar = _of_a_run("step_time_s")
    exchange_s: Scalar = output(
        "s", "what lies between groups: reducing gradients over them, or activations from one to the next", paced=True
    )
    ideal_step_time_s: Scalar = output(
        "s", "the step of shares in proportion to speed, not in whole sequences or layers", paced=True
    )
    tokens_per_s: Scalar = _of_a_run("tokens_per_s")
    mfu: Scalar = _of_a_run("mfu")
    chips: Scalar = output("chip", "chips of all groups", standing=True)
    power_w: Scalar = _of_a_run("power_w")
    peak_power_w: Scalar = _of_a_run("peak_power_w")
    capex_usd: Scalar = _of_a_run("capex_usd")
    goodput: Scalar = _of_a_run("goodput")
    mean_time_between_failures_s: Scalar = _of_a_run("mean_time_between_failures_s")
    checkpoint_interval_s: Scalar = _of_a_run("checkpoint_interval_s")
    energy_per_token_j: Scalar = _of_a_run("energy_per_token_j")
    carbon_per_token_kg: Scalar = _of_a_run("carbon_per_token_kg")
    cost_per_token_usd: Scalar = _of_a_run("cost_per_token_usd")
    run_time_s: Scalar = _of_a_run("run_time_s")
    run_cost_usd: Scalar = _of_a_run("run_cost_usd")
    run_energy_j: Scalar = _of_a_run("run_energy_j")
    run_carbon_kg: Scalar = _of_a_run("run_carbon_kg")
    loss: Scalar = _of_a_run("loss")

    def violations(self) -> dict[str, float]:
        """Return the violated constraints of a concrete report: name -> relative excess over the limit.

        Names of a group's constraints start with its number.
        """
        own = {name: getattr(self.margins, name) for name in quantities(FleetMargins)}
        groups = {
            f"{i + 1}.{name}": x for i, each in enumerate(self.groups) for name, x in each.margins_by_name().items()
        }
        return violations(own | groups)


def share_of(run: TrainingRun, sequences: Scalar) -> TrainingRun:
    """Return a copy of the run with a global batch of `sequences`."""
    return eqx.tree_at(lambda r: r.global_batch_sequences, run, sequences)


def exchange_s(run: TrainingRun, clusters: Sequence[Cluster], plans: Sequence[Plan]) -> Array:
    """Return the time of the gradient all-reduce over G groups, after each has reduced its own gradients.

    `2 (G - 1) max_g (alpha_g + P e / (G N_g B_g))`

    The groups form a ring through their NICs, with latency alpha_g and bandwidth B_g per chip. Each of the N_g chips of a group
    transfers its part of all P gradients of e bytes. Every ring step waits for the slowest fabric. The exchange is not
    overlapped, because it starts when the slowest group is done. It is 0 for one group.

    **Returns:** s.

    **Source:** hierarchical all-reduce as in `collectives.ring_pass_s`.
    """
    count = float(len(clusters))
    moved = total_parameters(run.model) * run.trainable_fraction / count
    steps = []
    for cluster, plan in zip(clusters, plans, strict=True):
        beyond = hard_maximum(plan.chips, 2.0 * cluster.network.size[0])
        part = moved * cluster.stack.gradient_bytes / plan.chips
        steps.append(collectives.neighbour_send_s(cluster.network, part, beyond, jnp.ones_like(beyond)))
    return 2.0 * (count - 1.0) * reduce(hard_maximum, steps)


def fleet_report(run: TrainingRun, fleet: Fleet, plan: FleetPlan, maximum: Maximum) -> FleetReport:
    """Return the report of a training run on groups of different chips: `T = max_g T_g(b_g) + exchange`, `sum b_g = B`.

    Group g takes b_g of the B sequences of a step. Groups at different sites exchange over the lines between sites instead
    (`sites.exchange_s`), overlapped with a part of the step. All sites send equally much, whatever their share of the chips.

    If shares were proportional to the groups' speeds r_g (sequences a second), all groups would take `B / sum r_g`. This ideal
    step is slightly shorter, because shares are whole sequences. A waiting group draws idle power. A failure in any group stops
    the job.
    """
    clusters, plans = fleet.groups, plan.groups
    its, alone = _each_alone(run, fleet, plan, maximum)
    times = [each.step_time_s for each in alone]
    slowest = reduce(maximum, times)
    if fleet.lines is None:
        exchange, apart = (
            exchange_s(run, [machine.running(it.cluster, it.point, settles=True) for it in its], plans),
            1.0,
        )
    else:  # the first group pays for the lines and for further sites
        joined = eqx.tree_at(lambda c: c.sites, clusters[0], fleet.lines)
        its[0] = machine.machine(joined, None, run)
        lines_s, hidden_s = sites.exchange_s(run, joined, plans[0]), fleet.lines.overlap * slowest
        exchange, apart = above_zero(lines_s - hidden_s), sites.replicas_apart(joined, plans[0])
    step = slowest + exchange
    speeds = [sequences / seconds for sequences, seconds in zip(plan.sequences, times, strict=True)]
    return totals(
        run,
        its,
        alone,
        [_drawn_w(it, each, step) for it, each in zip(its, alone, strict=True)],
        maximum,
        step_s=step,
        exchange_s=exchange,
        ideal_s=run.global_batch_sequences / added(speeds) + exchange,
        waits=[above_zero(1.0 - (seconds + exchange) / step) for seconds in times],
        apart=jnp.asarray(apart, step.dtype),
        whole_batch=-jnp.abs(jnp.log(added(plan.sequences) / run.global_batch_sequences)),
    )


def totals(
    run: TrainingRun,
    its: Sequence[Machine],
    groups: Sequence[TrainingReport | StageReport],
    powers_w: Sequence[Scalar],
    maximum: Maximum,
    *,
    step_s: Scalar,
    exchange_s: Scalar,
    ideal_s: Scalar,
    waits: Sequence[Scalar],
    apart: Scalar,
    **margins: Scalar,
) -> FleetReport:
    """Return the report of a fleet from its step time, with power, cost and failures summed over groups.

    **Arguments:**

    - `its`, `groups`: machine and report of each group.
    - `powers_w`: average power of each group over a step.
    - `step_s`, `exchange_s`, `ideal_s`: times of the step, of the exchange between groups, and of the step with ideal shares.
    - `waits`: share of the step that each group waits.
    - `apart`: number of replicas that train independently, see `sites.replicas_apart`.
    - `margins`: margins of the way the step is split; those not given are satisfied (0).
    """
    clusters = [it.cluster for it in its]
    spendings = [cost.spending(it.cluster, it.capital, w) for it, w in zip(its, powers_w, strict=True)]
    spending = Spending(*map(added, zip(*spendings, strict=True)))
    parameters = total_parameters(run.model)
    stops = reliability.Interruptions(*map(added, zip(*(it.stops for it in its), strict=True)))
    lost = reliability.joint_failures(run, clusters, stops, parameters, maximum)
    power_w, usd_per_s, batch_tokens = added(powers_w), added(spending), work.batch_tokens(run)
    carbon = [cost.carbon_parts(it.cluster, it.fed_w, it.powered, w) for it, w in zip(its, powers_w, strict=True)]
    kg_per_s = added([added([*each.values()]) for each in carbon])
    tokens_per_s = batch_tokens / step_s
    useful_per_s = tokens_per_s * lost.goodput
    run_time = run.tokens / useful_per_s
    chips = added([each.chips for each in clusters])
    peak = added([each.chips * fastest_peak(each.chip, run) for each in clusters])
    splits = ("whole_batch", "whole_model", "replicas_alike")
    held = FleetMargins(**{name: jnp.zeros_like(step_s) for name in splits} | margins, **lost.margins)
    holds = jnp.stack([getattr(held, name) >= -FEASIBILITY_TOLERANCE for name in vars(held)])
    return FleetReport(
        groups=tuple(groups),
        waits=tuple(waits),
        standing_usd_per_s=tuple(each.standing for each in spendings),
        electricity_usd_per_j=tuple(cost.electricity_usd_per_j(each) for each in clusters),
        margins=held,
        feasible=jnp.all(holds).astype(step_s.dtype) * reduce(jnp.multiply, [each.feasible for each in groups]),
        step_time_s=step_s,
        exchange_s=exchange_s,
        ideal_step_time_s=ideal_s,
        tokens_per_s=tokens_per_s,
        mfu=work.model_flops(run.model, run) / peak / step_s,
        chips=chips,
        power_w=power_w,
        peak_power_w=added([each.peak_power_w for each in groups]),
        capex_usd=added([cost.capex_usd(it.cluster, it.capital) for it in its]),
        goodput=lost.goodput,
        mean_time_between_failures_s=lost.mtbf_s,
        checkpoint_interval_s=lost.interval_s,
        energy_per_token_j=power_w / useful_per_s,
        carbon_per_token_kg=kg_per_s / useful_per_s,
        cost_per_token_usd=usd_per_s / useful_per_s,
        run_time_s=run_time,
        run_cost_usd=usd_per_s * run_time,
        run_energy_j=power_w * run_time,
        run_carbon_kg=kg_per_s * run_time,
        loss=_loss(run, batch_tokens, apart),
    )


def _each_alone(
    run: TrainingRun, fleet: Fleet, plan: FleetPlan, maximum: Maximum
) -> tuple[list[Machine], list[TrainingReport]]:
    """Return each group as a machine, and the report of its share of the batch. The model is traced once for all groups."""

    def one(cluster: Cluster, own: Plan, sequences: Scalar) -> tuple[Machine, TrainingReport]:
        report, _ = training_report(share_of(run, sequences), cluster, own, maximum, None)
        return machine.machine(cluster, None, run), report

    groups = list(zip(fleet.groups, plan.groups, plan.sequences, strict=True))
    together = jax.vmap(one)(*jax.tree.map(lambda *leaves: jnp.stack(leaves), *groups))
    of = lambda place: jax.tree.map(lambda leaf: leaf[place], together)
    its, reports = zip(*(of(place) for place in range(len(groups))), strict=True)
    return list(its), list(reports)


def _drawn_w(it: Machine, alone: TrainingReport, step: Scalar) -> Array:
    """Return the average power at the meter of a group that idles for the rest of a longer common step."""
    idle_w = it.pue * it.standing_w
    return idle_w + (alone.power_w - idle_w) * (alone.step_time_s / step)


def _loss(run: TrainingRun, batch_tokens: Scalar, apart: Scalar) -> Array:
    """Return the loss of a run with the whole batch, independent of its split over groups.

    **Arguments:** `apart`: number of replicas that train independently, see `sites.replicas_apart`.
    """
    equivalent = learning.dense_equivalent_parameters(
        run.law, active_parameters(run.model), total_parameters(run.model)
    )
    fresh = learning.repeated_tokens(run.law, run.unique_tokens, run.tokens / run.unique_tokens)
    useful = learning.effective_tokens(run.law, equivalent, fresh, batch_tokens)
    return learning.loss_apart(run.law, equivalent, useful, apart)
