"""Experiment design: which plans to measure next, to narrow the predicted step times of the potentially best plans.

Linear-Gaussian: S is the covariance of the shifts, j the gradient of the log step time of a plan, s the noise of a measurement.
Measuring plan j reduces the variance of plan i by `(i' S j)^2 / (j' S j + s^2)`.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import jax
import numpy as np

from hwopt import catalog
from hwopt.calibration.fit.posterior import SCALE
from hwopt.calibration.intervals import PredictionContext, interval
from hwopt.calibration.validation import training
from hwopt.calibration.validation.join import MeasuredCase, join
from hwopt.calibration.validation.machines import constants
from hwopt.calibration.validation.score import Scored
from hwopt.calibration.validation.skip import Skip
from hwopt.catalog.load import leaf
from hwopt.design.plan_lattice import Sizes, named, plan_points, plan_relations
from hwopt.errors import UserError
from hwopt.hardware.calibration import CONSTANTS, Scopes, family_of, moved
from hwopt.workload.transformer import tensor_degrees

SUGGESTED = 3

MIGHT_BE_BEST = 1.5
"""Ratio of predicted step time to that of the fastest plan, up to which a plan might turn out to be the best."""

WORTH_RUNNING = 2.0
"""Ratio of predicted step time to that of the fastest plan, up to which a plan is a candidate for measurement."""

_MICRO_BATCHES = (1, 2, 4, 8)
_MOST_STAGES = 16
_NUDGE = 0.02  # step of a constant for its finite-difference gradient


@dataclass(frozen=True)
class MeasurementCandidate:
    """A plan that could be measured next: of the user's workload on the user's machine, within its memory."""

    case: MeasuredCase
    words: str  # in the syntax of `--plan`
    step_s: float
    mfu: float
    slopes: np.ndarray  # gradient of the log step time, by constant


def usual_run(rows: Sequence[Scored]) -> Scored:
    """Return a run with the most frequent combination of workload, chips and batch; the first one of several."""
    key = lambda row: (row.cell, row.stack, *(getattr(row.row, name) for name in _ASKED))
    most = Counter(map(key, rows)).most_common(1)[0][0]
    return next(row for row in rows if key(row) == most)


_ASKED = ("num_gpus", "seq_len", "global_batch_sequences", "number_format", "cp", "ep")


def variants(run: Scored) -> Iterator[MeasuredCase]:
    """Yield the valid plans for a run's workload and chips.

    Tensor and pipeline parallel degrees and micro-batches are powers of two, each with and without recomputation. Context and
    expert parallel degrees, sharding and virtual stages stay as in the run.
    """
    row, case = run.row, run.case
    assert case is not None
    domain, layers = int(case.cluster.network.size[0]), int(case.workload.model.layers)
    powers = [2**i for i in range(12)]
    chips, batch = row.num_gpus, row.global_batch_sequences
    values = {
        "tp": [tp for tp in tensor_degrees(case.workload.model) if tp in powers and tp <= domain],
        "cp": (row.cp or 1,),
        "pp": [pp for pp in powers if pp <= min(layers, _MOST_STAGES)],
        "zero": (max(row.zero or 1, 1),),
        "micro_batch": _MICRO_BATCHES,
        "dp": range(1, chips + 1),
        "micro_batches": range(1, math.ceil(batch) + 1),
    }
    names = (
        "chips",
        "batch",
        *(["zero"] if row.pp == 1 else []),
    )  # a run that shards gradients within a pipeline keeps doing so
    relations = plan_relations(Sizes(named(*values), (chips, chips), (batch, batch)), *names)
    machines = constants(catalog.calibration(catalog.LITERATURE))
    for each, again in product(plan_points(values, relations), (0.0, 1.0)):
        tp, pp = each["tp"], each["pp"]
        chunks = row.vpp if pp > 1 and pp == row.pp and each["micro_batches"] % pp == 0 else None
        degrees = {"tp": tp, "pp": pp, "dp": each["dp"], "micro_batch": float(each["micro_batch"]), "vpp": chunks}
        settings = {"recompute_layers": again, "recompute_attention": 0.0, "zero_ranks": None, "interleaved": None}
        if tp != row.tp:
            settings |= {"expert_tp": None, "seq_parallel": None}
        try:
            yield join(replace(row, repeats=0, **degrees, **settings), training.KIND, machines)
        except (Skip, UserError):
            continue


def candidates(run: Scored, totals: Mapping[str, float]) -> list[MeasurementCandidate]:
    """Return the plans of a run's workload that fit the memory, with their gradients, fastest first.

    **Arguments:** `run`; `totals`: the shift of each constant on its machine.
    """
    cases = list(variants(run))
    if not cases:
        return []
    steps = training.steps(_with(cases, totals))
    fitting = [i for i, step in enumerate(steps) if step["memory_bytes"] <= step["memory_capacity_bytes"]]
    fastest = min((steps[i]["step_s"] for i in fitting), default=0.0)
    kept = sorted(
        (i for i in fitting if steps[i]["step_s"] <= WORTH_RUNNING * fastest), key=lambda i: steps[i]["step_s"]
    )
    if not kept:
        return []
    chosen = [cases[i] for i in kept]
    slopes = np.stack([_slopes(chosen, totals, each.name) for each in CONSTANTS], axis=1)
    return [
        MeasurementCandidate(case, _plan_words(case), steps[i]["step_s"], steps[i]["mfu"], slope)
        for case, i, slope in zip(chosen, kept, slopes, strict=True)
    ]


def _slopes(cases: Sequence[MeasuredCase], totals: Mapping[str, float], name: str) -> np.ndarray:
    """Return derivatives of log step times with respect to one constant, by central differences."""
    below, above = (
        np.log([step["step_s"] for step in training.steps(_with(cases, {**totals, name: totals[name] + nudge}))])
        for nudge in (-_NUDGE, _NUDGE)
    )
    return (above - below) / (2.0 * _NUDGE)


def _with(cases: Sequence[MeasuredCase], totals: Mapping[str, float]) -> list[MeasuredCase]:
    """Return cases of one machine with its constants shifted."""
    shifts = {name: np.float64(value) for name, value in totals.items() if value}
    cluster = jax.tree.map(leaf, moved(cases[0].cluster, shifts, np))
    return [replace(case, cluster=cluster) for case in cases]


def _plan_words(case: MeasuredCase) -> str:
    plan = case.plan
    degrees = {name: int(getattr(plan, name)) for name in ("tp", "pp", "dp", "cp", "ep")}
    said = [f"{name}={value}" for name, value in degrees.items() if value > 1 or name in ("tp", "pp")]
    chunks = int(plan.virtual_stages)
    said += [f"vpp={chunks}"] if chunks > 1 else []
    return ",".join(
        [*said, f"mbs={int(plan.micro_batch)}", f"recompute={'full' if float(plan.recompute_full) else 'none'}"]
    )


def measured_words(rows: Sequence[Scored], run: Scored) -> set[str]:
    """Return the plans of the run's workload that were measured already."""
    same = [row for row in rows if all(getattr(row.row, name) == getattr(run.row, name) for name in _ASKED)]
    return {_plan_words(row.case) for row in same if row.case is not None and row.cell == run.cell}


def reductions(slopes: np.ndarray, targets: np.ndarray, covariance: np.ndarray, noise: float = SCALE) -> np.ndarray:
    """Return by how much the measurement of each plan reduces the mean variance of the targets.

    **Arguments:**

    - `slopes`: gradients of the plans to measure, shape (plan, constant).
    - `targets`: gradients of the target plans.
    - `covariance`: covariance of the constants.
    - `noise`: standard deviation of a measurement.
    """
    along = slopes @ covariance
    shared = along @ targets.T
    own = np.sum(along * slopes, axis=1) + noise**2
    return np.mean(shared**2, axis=1) / own


def updated(covariance: np.ndarray, slope: np.ndarray, noise: float = SCALE) -> np.ndarray:
    """Return the covariance of the constants after one more measurement."""
    along = covariance @ slope
    return covariance - np.outer(along, along) / (slope @ along + noise**2)


def next_measurements(
    rows: Sequence[Scored], scopes: Scopes, shifts: np.ndarray, covariance: np.ndarray, fitted: catalog.Calibration
) -> list[dict]:
    """Select the plans to measure next, most informative first, each assuming that those before it are measured.

    The half width of the potentially best plans decreases with the root of their variance, including the measurement noise.

    **Arguments:**

    - `rows`: the user's runs.
    - `scopes`, `shifts`, `covariance`: result of the fit to these runs.
    - `fitted`: the calibration that results from the fit.

    **Returns:** plain numbers and strings; empty if no other plan fits the memory.

    - `plan`: in the syntax of `--plan`.
    - `step_time_s`: predicted step time; `low`, `high`: its interval.
    - `half_width_before`, `half_width_after`: half widths as fractions.
    - `variance_taken`: share of the variance that the measurement removes.

    Without intervals, `low`, `high` and the half widths are None.
    """
    run = usual_run(rows)
    case = run.case
    assert case is not None
    membership = scopes.membership(
        family_of(case.architecture), catalog.line_of(case.stack), catalog.software_family(case.stack)
    )
    names = [each.name for each in CONSTANTS]
    found = candidates(run, dict(zip(names, (membership @ shifts).tolist(), strict=True)))
    known = measured_words(rows, run)
    left = [i for i, each in enumerate(found) if each.words not in known]
    if not left:
        return []
    slopes = np.array([each.slopes for each in found])
    best = [i for i, each in enumerate(found) if each.step_s <= MIGHT_BE_BEST * found[0].step_s]
    chosen = most_informative(slopes, slopes[best], membership @ covariance @ membership.T, left)
    halves = [half for i in best if (half := _half_width(found[i], fitted)) is not None]
    first, half = chosen[0].before, float(np.median(halves)) if halves else None
    return [
        {
            "plan": found[each.index].words,
            "step_time_s": found[each.index].step_s,
            **_ends(found[each.index].step_s, _half_width(found[each.index], fitted)),
            "half_width_before": _narrowed(half, each.before / first),
            "half_width_after": _narrowed(half, each.after / first),
            "variance_taken": 1.0 - each.after / each.before,
        }
        for each in chosen
    ]


class InformationGain(NamedTuple):
    """Index of a plan, and the mean variance of the targets `before` and `after` its measurement."""

    index: int
    before: float
    after: float


def most_informative(
    slopes: np.ndarray, targets: np.ndarray, covariance: np.ndarray, among: Sequence[int]
) -> list[InformationGain]:
    """Select at most `SUGGESTED` plans to measure, in order; each removes the most of the remaining variance.

    **Arguments:**

    - `slopes`: gradients of all plans.
    - `targets`: gradients of the target plans.
    - `covariance`: covariance of the constants.
    - `among`: indices of the plans to choose from.
    """
    left, chosen = list(among), []
    now = float(np.mean(np.sum((targets @ covariance) * targets, axis=1))) + SCALE**2
    while left and len(chosen) < SUGGESTED:
        gains = reductions(slopes[left], targets, covariance)
        index = left.pop(int(np.argmax(gains)))
        then = now - float(gains.max())
        chosen.append(InformationGain(index, now, then))
        covariance, now = updated(covariance, slopes[index]), then
    return chosen


def _narrowed(half: float | None, share: float) -> float | None:
    """Convert a half width in log units to a fraction, after the variance has been reduced to `share`."""
    return None if half is None else float(np.expm1(half * np.sqrt(share)))


def _ends(step_s: float, half: float | None) -> dict[str, float | None]:
    if half is None:
        return {"low": None, "high": None}
    return {"low": float(step_s * np.exp(-half)), "high": float(step_s * np.exp(half))}


def _half_width(each: MeasurementCandidate, fitted: catalog.Calibration) -> float | None:
    case = each.case
    of = PredictionContext(each.mfu, float(case.cluster.chips))
    around = interval(case.workload, case.architecture, case.stack, fitted, of=of)
    return None if around is None else around.time
