"""A training run on preemptible chips: waiting for all of them, or going on with the replicas that are left."""

import equinox as eqx
import jax.numpy as jnp

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
    """What is left of a run on chips that come and go."""

    useful: Scalar = output("", "share of the time, at the speed of all chips, that is useful")
    run_time_s: Scalar = output("s", "the time of the whole run")
    run_cost_usd: Scalar = output("USD", "the cost of the chips that are there while the run lasts")
    least_discount: Scalar = output("", "discount from which the run is cheaper than on chips that stay")


class SpotReport(eqx.Module):
    """A run on chips that come and go, and what these do."""

    waiting: Interrupted  # until all chips are back
    elastic: Interrupted  # with the replicas that are left
    present: Scalar = output("", "share of the chips that is there, mean")
    whole: Scalar = output("", "share of the time in which all chips are there")
    taken_per_s: Scalar = output("1/s", "times that replicas are taken away, all together")


def spot_report(run: TrainingRun, cluster: Cluster, plan: Plan, spot: Spot, report: TrainingReport) -> SpotReport:
    """A run whose chips come and go by groups of g, each there for 1 / l and away for r, exponential and independent of others.

    A group is there `a = 1 / (1 + l r)` of the time. Waiting: all N / g are there `a^(N/g)` of it, and the first that leaves
    interrupts the job. Elastic: chips leave in whole replicas and groups, `u = max(g, replica)`; a unit is there `a^(u/g)` of the
    time, which is the mean speed, as each replica left takes more of the same batch; one that leaves loses what was not saved, and
    one that comes back stops all for as long as a restart: both happen `N/u a^(u/g) l u/g` times a second. Failures stop the job
    besides. The chips that are there are paid for, at work or not, at the price left by the discount.

    **Arguments:** the `report` of the same run on chips that stay.

    **Source:** renewal process of `reliability.log_multiplier_at`; an event simulation in `tests/unit/model/test_preemption.py`.
    """
    leaving, groups = 1.0 / spot.every_s, cluster.chips / spot.group_chips
    present = 1.0 / (1.0 + leaving * spot.return_s)
    unit = hard_maximum(spot.group_chips, plan.tp * plan.pp * plan.cp) / spot.group_chips  # groups that leave together
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
