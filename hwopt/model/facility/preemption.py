"""Training on preemptible (spot) chips: wait for all chips, or continue elastically with the remaining replicas."""

import equinox as eqx
import jax.numpy as jnp

from hwopt.declared import shown
from hwopt.hardware.cluster import Cluster
from hwopt.hardware.peripherals import Spot
from hwopt.model.facility import reliability
from hwopt.model.numerics.maximum import hard_maximum
from hwopt.model.report import TrainingReport, output
from hwopt.plan import Plan
from hwopt.types import Scalar
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import total_parameters


class Interrupted(eqx.Module):
    """Time and cost of a training run on preemptible chips."""

    useful: Scalar = output("", "share of the time, at the speed of all chips, that is useful")
    run_time_s: Scalar = output("s", "the time of the whole run")
    run_cost_usd: Scalar = output("USD", "the cost of the chips that are there while the run lasts")
    least_discount: Scalar = output("", "discount from which the run is cheaper than on chips that stay")


class SpotReport(eqx.Module):
    """Training on preemptible chips with both policies, and the availability of the chips."""

    waiting: Interrupted = shown(meaning="the job waits until all chips are back")
    elastic: Interrupted = shown(meaning="the job continues with the remaining replicas")
    present: Scalar = output("", "share of the chips that is there, mean")
    whole: Scalar = output("", "share of the time in which all chips are there")
    taken_per_s: Scalar = output("1/s", "times that replicas are taken away, all together")


def spot_report(run: TrainingRun, cluster: Cluster, plan: Plan, spot: Spot, report: TrainingReport) -> SpotReport:
    """Return a training run whose chips are preempted in groups of g.

    Each group is present for a mean time of 1 / l and absent for r; both are exponential and independent between groups. A
    group is present `a = 1 / (1 + l r)` of the time.

    - Waiting: all N / g groups are present `a^(N/g)` of the time, and the first preemption interrupts the job.
    - Elastic: chips leave in units of whole replicas and groups, `u = max(g, replica)`. A unit is present `a^(u/g)` of the
      time.
      This is also the mean speed, as the remaining replicas take over the batch. A unit that leaves loses its unsaved work; one
      that returns stops the job for a restart. Both happen `N/u a^(u/g) l u/g` times a second.

    Failures interrupt the job in addition. Present chips are paid for, busy or idle, at the discounted price.

    **Arguments:** `spot`: preemption times, group size and discount; `report` of the same run on chips that are never
    preempted.

    **Source:** renewal process of `reliability.log_multiplier_at`; an event simulation in
    `tests/unit/model/test_preemption.py`.
    """
    leaving, groups = 1.0 / spot.every_s, cluster.chips / spot.group_chips
    present = 1.0 / (1.0 + leaving * spot.return_s)
    unit = hard_maximum(spot.group_chips, plan.tp * plan.pp * plan.cp) / spot.group_chips  # groups per unit
    unit_present = present**unit
    whole, taken = present**groups, groups * unit_present * leaving
    failing = 1.0 / report.mean_time_between_failures_s
    checkpoint = reliability.checkpoint_bytes(total_parameters(run.model), run)
    save = reliability.save_s(checkpoint, cluster.chips, cluster.reliability)
    drain = reliability.drain_s(checkpoint, cluster.chips, reliability.saved_bytes_per_s_per_chip(cluster))
    restart = reliability.recovery_s(cluster) + drain

    def goodput(stops_per_s: Scalar) -> Scalar:
        mtbf = 1.0 / stops_per_s
        best = reliability.checkpoint_interval_s(save, mtbf, drain, hard_maximum)
        stated = run.checkpoint_interval_s > 0.0
        interval = jnp.where(stated, run.checkpoint_interval_s, best)
        return jnp.exp(-reliability.log_multiplier_at(interval, save, mtbf, drain, restart))

    usd_per_s = report.run_cost_usd / report.run_time_s

    def left(useful: Scalar) -> Interrupted:
        time = report.run_time_s * report.goodput / useful
        paid = present * usd_per_s * time
        return Interrupted(
            useful=useful,
            run_time_s=time,
            run_cost_usd=(1.0 - spot.discount) * paid,
            least_discount=1.0 - report.run_cost_usd / paid,
        )

    waits = whole * goodput(failing + groups * leaving)
    goes_on = unit_present * goodput(failing + taken) / (1.0 + taken * restart)
    return SpotReport(left(waits), left(goes_on), present=present, whole=whole, taken_per_s=taken)
