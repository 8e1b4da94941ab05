"""Backup workers: synchronous training steps that drop the gradients of the slowest replicas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwopt.declared import shown
from hwopt.design.variables import count_of
from hwopt.errors import UserError
from hwopt.hardware.cluster import Cluster
from hwopt.model.report import TrainingReport
from hwopt.plan import Plan
from hwopt.workload.training import TrainingRun

_GRID = np.linspace(-9.0, 12.0, 8401)
"""Grid over which expectations are integrated, in standard deviations."""

MOST_SHARE = 0.25
"""Largest share of the replicas that is tried as the number to drop."""


@dataclass(frozen=True)
class BackupRun:
    """A training run whose steps drop the slowest replicas. **Units:** s, USD."""

    left_out: int = shown(meaning="replicas dropped from each step")
    replicas: int = shown(meaning="number of replicas that can be dropped one by one")
    step_time_s: float = shown("s")
    lost: float = shown(meaning="share of the samples of a step that is dropped")
    faster: float = shown(meaning="increase of useful samples per second over steps that wait for all replicas")
    run_time_s: float = shown("s")
    run_cost_usd: float = shown("USD")


@dataclass(frozen=True)
class BackupStudy:
    """A run with backup workers: as requested (`asked`), with the best number of replicas dropped, and with none (`all`)."""

    asked: BackupRun = shown(meaning="with the requested number of dropped replicas")
    best: BackupRun = shown(meaning="with the number of dropped replicas that is fastest")
    all: BackupRun = shown(meaning="waiting for all replicas")
    sigma: float = shown(
        meaning="relative standard deviation of one chip's step time: jitter plus production stragglers"
    )
    least_sigma: float = shown(meaning="the same, from which dropping one replica pays; null where it never does")


def expected_order_sigmas(chips: float, replicas: int, left_out: int) -> float:
    """Return the expected delay of the (n - b)-th of n replicas, in standard deviations of one chip's delay.

    The delay of a replica is the maximum of N / n independent normal delays of its chips. A replica is within x with
    probability `F = Phi(x)^(N/n)`. The (n - b)-th replica is within x with probability `I_F(n - b, b + 1)`, a regularized
    incomplete beta function. The mean is the integral of the complement from nine standard deviations below, in steps of
    0.0025.

    **Arguments:** `chips` N, `replicas` n, `left_out` b.

    **Source:** order statistics of independent samples (David and Nagaraja, Order Statistics, section 2.1; recalled).
    """
    from scipy.special import betainc, log_ndtr

    within = np.exp(chips / replicas * log_ndtr(_GRID))
    below = betainc(float(replicas - left_out), left_out + 1.0, within)
    return float(_GRID[0] + np.trapezoid(1.0 - below, _GRID))


def independent_replicas(plan: Plan) -> int:
    """Return the number of replicas that do not wait for one another within a step.

    These are data-parallel replicas. With expert parallelism they are the sets of chips that hold all experts, if those are
    fewer.
    """
    replicas = count_of(plan.dp)
    if float(plan.ep) > 1.0:
        replicas = min(replicas, max(int(float(plan.tp * plan.cp * plan.dp / (plan.ep * plan.expert_tp))), 1))
    return replicas


def backup(run: TrainingRun, cluster: Cluster, plan: Plan, report: TrainingReport, left_out: int | None) -> BackupStudy:
    """Predict steps that wait for n - b of n replicas: `T_b = T - T_work (sigma_jitter + sigma_production) (E_n - E_(n-b))`.

    Only `(n - b)/n` of the batch counts, so that dropping pays where the step shortens by more than the share `b/n`. Delays of
    chips are normal, independent between chips and between steps. Failures stop the job as before. A tail heavier than normal
    would increase the gain. `T_work` is the step time T without jitter, stragglers, overhead and communication between sites.
    `E_k` is the expected delay of the k-th fastest replica, in standard deviations (`expected_order_sigmas`).

    **Arguments:**

    - `report`: report of the same run when it waits for all replicas.
    - `left_out`: number b of dropped replicas; None for the best up to a quarter of them.

    **Raises:** `UserError` for fewer than b + 1 independent replicas, for weights sharded across replicas, for a batch ramp,
    and for training at several sites.

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
    # Dropping one replica pays where (1 - 1/n) T > T - work sigma gained, thus for sigma > T / (n work gained).
    first = gained(1) if replicas > 1 else 0.0
    fixed = step - work * sigma * slowest
    slope = replicas * first - slowest
    least = fixed / (work * slope) if slope > 0.0 else float("inf")
    return BackupStudy(of(left_out) if left_out is not None else best, best, of(0), sigma, least)


def _tried(count: int) -> list[int]:
    """Return the numbers of dropped replicas to try: all up to 32, then about 60 in geometric steps."""
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
