"""Plan search for a claim: complete a partly stated plan, or find the best plan."""

import itertools
from typing import Any

import jax
import numpy as np

from hwopt import catalog
from hwopt.design.variables import count_of
from hwopt.errors import UserError
from hwopt.integers.enumeration import divisors
from hwopt.model.estimate import estimate
from hwopt.planning.plan_search import best_plan
from hwopt.planning.plan_table import reports
from hwopt.trace.cache import evaluate_in_numpy
from hwopt.workload.training import TrainingRun

BATCH_LEEWAY = 0.07
"""Largest relative change of an assumed batch size that makes it divisible among replicas (assumption)."""

BATCHES = 3
"""Maximum number of batch sizes to try where none is stated."""

GRID = {
    "recompute": ("none", "selective", "full"),
    "zero": (1, 2, 3),
    "virtual_stages": (1, 2, 3, 4, 8, 16, 32),
    "micro_batch": (1, 2, 4),
}
"""Values to try for the settings that a stated plan leaves open."""

USUAL = {
    "tp": (1, 2, 4, 8, 16),
    "pp": (1, 2, 4, 8, 16, 32),
    "ep": (1, 8, 16, 32, 64),
    "recompute": ("none", "selective", "full"),
    "zero": (1, 3),
    "virtual_stages": (1, 2, 4, 8),
    "micro_batch": (1, 2),
}
"""Values to try where there are too many plans for a full enumeration."""

MOST_FACTORS = 1500
"""Limit of the product of the divisor counts of chips, batch and experts for a full enumeration: some 10 s and 1 GB."""

MOST_LAYERS = 500
"""Maximum number of layers for a full enumeration; more give too many pipelines."""


def plan_text(settings: dict[str, Any]) -> str:
    """Return a plan's settings as text."""
    return ",".join(f"{name}={value}" for name, value in settings.items())


def open_plan_settings(asked: dict[str, str]) -> list[dict[str, Any]]:
    """Return all combinations of values of the settings that a stated plan leaves open."""
    grid = GRID if asked else USUAL
    free = {name: values for name, values in grid.items() if name not in asked}
    return [dict(zip(free, each, strict=True)) for each in itertools.product(*free.values())]


def completed_plan(
    run: TrainingRun, cluster: Any, chips: int, asked: dict[str, str]
) -> tuple[Any, Any, dict[str, Any]]:
    """Return the fastest feasible completion of a stated plan; without any, the one that needs the least memory.

    **Arguments:**

    - `run`, `cluster`, `chips`: the training run, the cluster and its number of chips.
    - `asked`: stated settings of the plan.

    **Returns:** the plan, its report and its settings.

    **Raises:** `UserError` where no completion is a valid plan.
    """
    plans, settings, refusal = [], [], UserError("plan: no valid plan has these degrees")
    for trial in open_plan_settings(asked):
        if int((asked | trial).get("pp", 1)) > 1 and trial.get("zero", 1) > 1:
            continue
        try:
            both: dict[str, Any] = asked | trial
            plans.append(catalog.plan(run, chips, **both))
            settings.append(both)
        except UserError as error:
            refusal = error
    if not plans:
        raise refusal
    if len(plans) == 1:
        return plans[0], evaluate_in_numpy(estimate, run, cluster, plans[0]), settings[0]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *plans)
    whole = reports(run, cluster, stacked)
    fits = np.asarray(whole.feasible) > 0
    rank = np.where(fits, whole.step_time_s, whole.memory_per_chip_bytes)
    at = int(np.lexsort((rank, ~fits))[0])
    return plans[at], jax.tree.map(lambda leaf: leaf[at], whole), settings[at]


def best_claim_plan(run: TrainingRun, cluster: Any) -> tuple[Any, Any, str]:
    """Return the best plan, its report, and a description of the plans searched.

    **Raises:** `UserError` where there is no valid plan.
    """
    numbers = (cluster.chips, run.global_batch_sequences, run.model.experts)
    factors = [len(divisors(max(count_of(each), 1))) for each in numbers]
    if np.prod(factors) <= MOST_FACTORS and float(run.model.layers) <= MOST_LAYERS:
        found = best_plan(run, cluster, alternatives=0).best
        return found.plan, found.report, "parallel plan: the best of all"
    plan, report, _ = completed_plan(run, cluster, count_of(cluster.chips), {})
    return plan, report, "parallel plan: the best of common plans, because there are too many to evaluate all"


def nearby_batches(chips: int, batch: int) -> list[int]:
    """Return batch sizes near a given one that divide among many replicas; those with most replicas first."""
    near = {}
    for each in divisors(chips):
        size = max(round(batch / each), 1) * each
        if abs(size / batch - 1.0) <= BATCH_LEEWAY:
            near[size] = max(near.get(size, 0), each)
    ranked = sorted(near, key=lambda size: (-near[size], abs(size - batch)))
    return [batch] if near.get(batch) == max(near.values(), default=0) else ranked[:BATCHES]
