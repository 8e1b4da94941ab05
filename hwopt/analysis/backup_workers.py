"""Redundant gradients: a synchronous step that takes the gradients of the fastest replicas and leaves out the others'."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwopt.design.variables import count_of
from hwopt.errors import UserError
from hwopt.hardware.cluster import Cluster
from hwopt.model.report import TrainingReport
from hwopt.plan import Plan
from hwopt.workload.training import TrainingRun

_GRID = np.linspace(-9.0, 12.0, 8401)
"""Standard deviations over which expectations are integrated."""

MOST_SHARE = 0.25
"""Share of the replicas up to which the best number to leave out is looked for."""


@dataclass(frozen=True)
class BackupRun:
    """A run whose steps leave out the slowest replicas. **Units:** s, USD."""

    left_out: int
    replicas: int  # that can be left out one by one
    step_time_s: float
    lost: float  # share of the samples of a step that do not count
    faster: float  # useful samples a second over those of a step of all, less 1
    run_time_s: float
    run_cost_usd: float


@dataclass(frozen=True)
class BackupStudy:
    """What leaving out slow replicas gains: as asked, at its best, and without."""

    asked: BackupRun
    best: BackupRun
    all: BackupRun
    sigma: float  # of one chip's step, of jitter and production together
    least_sigma: float  # from which leaving one replica out pays; infinite where none does


def expected_order_sigmas(chips: float, replicas: int, left_out: int) -> float:
    """Mean of the (n - b)-th of n replicas' delays, each the largest of its N / n chips' normal ones, in standard deviations.

    A replica is within x with probability `F = Phi(x)^(N/n)`, the (n - b)-th with `I_F(n - b, b + 1)`, a regularised incomplete
    beta function; its mean is the integral of what is left above, from nine standard deviations below, in steps of 0.0025.

    **Source:** order statistics of independent samples (David and Nagaraja, Order Statistics, section 2.1; recalled).
    """
    from scipy.special import betainc, log_ndtr

    within = np.exp(chips / replicas * log_ndtr(_GRID))
    below = betainc(float(replicas - left_out), left_out + 1.0, within)
    return float(_GRID[0] + np.trapezoid(1.0 - below, _GRID))


def independent_replicas(plan: Plan) -> int:
    """Replicas none of whose chips another one waits for within a step: those of data parallelism, or of a set of experts."""
    replicas = count_of(plan.dp)
    if float(plan.ep) > 1.0:
        replicas = min(replicas, max(int(float(plan.tp * plan.cp * plan.dp / (plan.ep * plan.expert_tp))), 1))
    return replicas


def backup(run: TrainingRun, cluster: Cluster, plan: Plan, report: TrainingReport, left_out: int | None) -> BackupStudy:
    """Steps that wait for n - b of n replicas: `T_b = T - T_work (sigma_jitter + sigma_production) (E_n - E_(n-b))`.

    Useful samples are `(n - b)/n` of the batch, so that it pays where the step shortens by more than `b/n`. Chips differ as normal
    numbers, independent of each other and of the last step; failures stop the job as ever, and a tail heavier than normal would
    gain more.

    **Arguments:** the `report` of the same run waiting for all; `left_out` b, None for the best up to a quarter.

    **Raises:** `UserError` where there are no b + 1 independent replicas, weights are spread over replicas, or several sites train.

    **Source:** Chen et al., Revisiting Distributed Synchronous SGD, arXiv 1604.00981, section 3 (recalled).
    """
    replicas = independent_replicas(plan)
    _check(run, cluster, plan, replicas, left_out)
    sigma = float(cluster.stack.jitter_sigma + cluster.operation.straggler_sigma)
    chips, parts = float(cluster.chips), report.breakdown
    spread = (parts.jitter_s, parts.production_s, parts.overhead_s, parts.sites_comm_s)
    step = float(report.step_time_s)
    work = step - sum(map(float, spread))
    slowest = expected_order_sigmas(chips, replicas, 0)

    def gained(b: int) -> float:
        return slowest - expected_order_sigmas(chips, replicas, b)

    def of(b: int) -> BackupRun:
        shorter = step - work * sigma * gained(b)
        lost = b / replicas
        longer = shorter / step / (1.0 - lost)
        return BackupRun(
            b,
            replicas,
            step_time_s=shorter,
            lost=lost,
            faster=1.0 / longer - 1.0,
            run_time_s=longer * float(report.run_time_s),
            run_cost_usd=longer * float(report.run_cost_usd),
        )

    some = range(int(MOST_SHARE * replicas) + 1)
    best = max((of(b) for b in _tried(len(some))), key=lambda each: each.faster)
    # One pays where (1 - 1/n) T > T - work sigma gained: sigma > T / (n work gained).
    first = gained(1) if replicas > 1 else 0.0
    fixed = step - work * sigma * slowest
    slope = replicas * first - slowest
    least = fixed / (work * slope) if slope > 0.0 else float("inf")
    return BackupStudy(of(left_out) if left_out is not None else best, best, of(0), sigma, least)


def _tried(count: int) -> list[int]:
    """Numbers of replicas to leave out: all up to 32, then ever wider apart."""
    wider = np.unique(np.geomspace(33, max(count - 1, 33), 60).astype(int))
    return [b for b in (*range(33), *wider.tolist()) if b < count]


def _check(run: TrainingRun, cluster: Cluster, plan: Plan, replicas: int, left_out: int | None) -> None:
    if run.ramp is not None:
        raise UserError("--backup-replicas: steps of one batch: leave out the batch ramp")
    if float(cluster.sites.count) > 1.0:
        raise UserError(
            "--backup-replicas: replicas of several sites wait for lines, not for each other: ask about one site"
        )
    if float(plan.weights_sharded) > 0.0:
        raise UserError(
            "--backup-replicas: zero=3 spreads weights over replicas, so that all wait for each of them in every layer: "
            "use zero=1, or shards within a replica (shard_groups)"
        )
    if left_out is not None and not 0 <= left_out < replicas:
        raise UserError(
            f"--backup-replicas {left_out}: the plan has {replicas:,} replicas that can be left out one by one; "
            f"name 0 to {replicas - 1:,}"
        )
