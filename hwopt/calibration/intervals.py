"""Prediction intervals: ranges that contain the measured value in four of five cases.

Half widths are in log units of step time, `exp(base + sum of the terms that apply)`. They come from errors on held-out studies
(`results.benchmarks.interval_width`). The terms describe predictions with larger errors:

- low predicted utilization, the most important one: overheads are known less well than arithmetic;
- mixture-of-experts models, models with several kinds of layers, and 4-bit products;
- more chips than were measured;
- chip families and software stacks outside the fit, and software that is newer than its runs.

Software families, long sequences and small models were tested as further terms. With studies held out of the widths as well,
they made intervals wider without better coverage. The same holds for an unknown vendor. Learned from other vendors, each held
out whole, its term is zero. Four in five runs of TPU have errors within 0.10, of Trainium within 0.17, of chips in the fit
within 0.19. The error of Gaudi's fine-tuning scripts, 0.93, cannot be predicted from other studies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from hwopt import catalog
from hwopt.catalog import Calibration, machine_key
from hwopt.catalog.calibrations import ANCHORED, MEMORY, calibration_table
from hwopt.catalog.chips import architecture
from hwopt.catalog.dates import release
from hwopt.hardware.calibration import FAMILY, STACK
from hwopt.solver.solution import Solution
from hwopt.types import PRECISIONS
from hwopt.workload.operators import Operators
from hwopt.workload.service import Service
from hwopt.workload.train_serve import TrainServe
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import total_parameters

COVERAGE = 0.8
"""Target coverage: share of measurements inside their intervals."""

DEVIATIONS = 1.2816
"""Standard deviations to either side of the mean that contain `COVERAGE` of a normal distribution."""

MANY_CHIPS = 4096.0
"""Number of chips above which few runs are published."""

USUAL_MFU = 0.4
"""MFU above which errors no longer depend on it."""

FLOORS = {
    "inefficient": 0.3, "moe": 0.1, "kinds": 0.1, "fp4": 0.2, "many_chips": 0.1, "new_family": 0.2, "new_stack": 0.1, "newer": 0.25
}  # fmt: skip
"""Terms that widen an interval -> minimum coefficient (assumptions: few runs with 4 bits, several kinds of layers or unknown chips
are published; in a year, NVIDIA's software became 11 % faster on dense models and a third on experts)."""

TERMS = tuple(FLOORS)

_MOST_INEFFICIENT = 2.0
"""Maximum of the term "inefficient": nothing was measured beyond."""


class PredictionContext(NamedTuple):
    """Properties of a prediction, besides workload, chip and software, that affect its uncertainty."""

    mfu: float = USUAL_MFU  # predicted MFU
    chips: float = 1.0
    sequences: float = 32.0  # that a replica of a service decodes at once


USUAL = PredictionContext()


def terms(
    run: TrainingRun,
    architecture: str,
    stack: str,
    calibration: Calibration,
    without: str = "",
    of: PredictionContext = USUAL,
) -> dict[str, float]:
    """Return the values of `TERMS` for a prediction: 0 or 1, or the logarithm of lost utilization or of chips beyond those
    measured.

    **Arguments:**

    - `run`: training run.
    - `architecture`: architecture of the chip; `stack`: name of the software stack.
    - `calibration`: calibration of the prediction.
    - `without`: source that is held out of its fit.
    - `of`: properties of the prediction.
    """
    applying = {
        "inefficient": min(max(math.log(USUAL_MFU / max(of.mfu, 1e-3)), 0.0), _MOST_INEFFICIENT),
        "moe": run.model.experts > 1.0,
        "kinds": run.model.kinds is not None,
        "fp4": run.gemm_precision[PRECISIONS.index("fp4")] > 0.0,
        "many_chips": max(math.log(of.chips / MANY_CHIPS), 0.0),
        "new_family": not calibration.knows(FAMILY, architecture, without),
        "new_stack": not calibration.knows(STACK, stack, without),
        "newer": _years_after(stack, calibration.date),
    }
    return {name: float(on) for name, on in applying.items()}


def _years_after(stack: str, date: str) -> float:
    """Return the years from a calibration's date to the release of a stack, 0 for earlier ones and unknown dates."""
    released = release(catalog.record("stacks", stack)) if stack in catalog.names("stacks") else ""
    months = lambda text: 12 * int(text[:4]) + int(text[5:7])
    return max(months(released) - months(date), 0) / 12.0 if released and date else 0.0


SERVING_FLOORS = {"experts": 0.15, "hybrid": 0.1, "few": 0.05, "many": 0.05}
"""Terms that widen the interval of a service -> minimum coefficient (assumptions)."""

UNKNOWN = {"new_stack": 0.3, "new_family": 0.3, "one_study": 0.1}
"""Terms of services whose software or chips were not measured, or by one study -> coefficient (assumption, 0.1 to 0.5).

They are for services beyond the data, so the data cannot tell them. With each source left out in turn, these values have a better
interval score than zero."""

FEW, MANY = 4.0, 64.0
"""Sequences of a replica up to which, and above which, intervals of services are wider."""


def serving_terms(
    service: Service, architecture: str, stack: str, without: str = "", of: PredictionContext = USUAL
) -> dict[str, float]:
    """Return the values, 0 or 1, of the terms `SERVING_FLOORS` and `UNKNOWN` for a prediction of a service.

    **Arguments:** as in `interval`.
    """
    table = calibration_table("serving")
    studies = [
        set(table[kind].get(name, ())) - {without} for kind, name in (("stacks", stack), ("families", architecture))
    ]
    applying = {
        "experts": float(service.model.experts) > 1.0,
        "hybrid": service.model.kinds is not None,
        "few": of.sequences <= FEW,
        "many": of.sequences > MANY,
        "new_stack": not studies[0],
        "new_family": not studies[1],
        "one_study": len(studies[0]) == 1,
    }
    return {name: float(on) for name, on in applying.items()}


@dataclass(frozen=True)
class Interval:
    """Half widths of a prediction's step time and memory in log units; None if memory was not measured."""

    time: float
    memory: float | None = None

    def widened(self, spread: float) -> Interval:
        """Return the interval widened for unstated settings with deviation `spread` (log units): `sqrt(half^2 + (1.28
        spread)^2)`.
        """
        return Interval(
            math.hypot(self.time, DEVIATIONS * spread),
            None if self.memory is None else math.hypot(self.memory, DEVIATIONS * spread),
        )

    def times(self, value: float) -> tuple[float, float]:
        """Return the ends for a quantity proportional to the step time or to its reciprocal."""
        return value * math.exp(-self.time), value * math.exp(self.time)

    def memories(self, value: float) -> tuple[float, float]:
        """Return the ends for an amount of memory."""
        half = math.inf if self.memory is None else self.memory
        return value * math.exp(-half), value * math.exp(half)


def interval(
    workload: Any,
    architecture: str,
    stack: str,
    calibration: Calibration | None,
    without: str = "",
    of: PredictionContext = USUAL,
) -> Interval | None:
    """Return the interval of a prediction; None for uncalibrated constants, and for workloads without measurements.

    Half widths of serving, `exp(base + sum of the terms that apply)` with `serving_terms`, contain `COVERAGE` of the errors on
    measured services, with cells weighted equally. They were fitted to errors with each source left out in turn
    (`results.benchmarks.serving_widths`).

    **Arguments:**

    - `workload`: training run or service.
    - `architecture`: architecture of the chip; `stack`: name of the software stack.
    - `calibration`: calibration of the prediction.
    - `without`: source of measured runs held out of both the fit and the widths.
    - `of`: properties of the prediction.
    """
    if calibration is None or "base" not in calibration.intervals:
        return None
    if isinstance(workload, Service):
        table = calibration_table("serving")
        widths = table["left_out"].get(without, table["half_widths"]) | UNKNOWN
        on = serving_terms(workload, architecture, stack, without, of)
        half = math.exp(widths["base"] + sum(widths[name] * each for name, each in on.items()))
        narrower = calibration.own.get(machine_key(architecture, stack), {}).get(ANCHORED, 0.0)
        return Interval(half * math.exp(narrower))
    if not isinstance(workload, TrainingRun):
        return None
    if isinstance(workload.model, Operators):
        return Interval(_of_a_table(workload.model, without))
    widths = calibration.widths(architecture, stack)
    applying = terms(workload, architecture, stack, calibration, without, of)
    exponent = widths["base"] + sum(widths.get(name, 0.0) * on for name, on in applying.items())
    return Interval(math.exp(exponent), widths.get(MEMORY, 0.1))


def _of_a_table(model: Operators, without: str) -> float:
    """Return the half width for an operator table, of a measured model (recognized by its number of weights) or of any other.

    Only three sources measured such models. Other models therefore get the width of the one with the largest error.
    """
    table = calibration_table("operators")
    own = float(total_parameters(model))
    measured = any(abs(own / each - 1.0) < 1e-6 for each in table["parameters"].values())
    return table["left_out"].get(without, table["half_widths"])["measured" if measured else "other"]


def machine_interval(
    workload: Any,
    chip: str | Path,
    stack: str | Path | None,
    calibration: Calibration | None,
    of: PredictionContext = USUAL,
) -> Interval | None:
    """Return the interval for a chip of the catalog or a user file, by default with its standard software stack."""
    software = catalog.record("stacks", catalog.default_stack(chip) if stack is None else stack).slug
    return interval(workload, architecture(catalog.record("chips", chip)), software, calibration, of=of)


def context(report: Any, chips: float, plan: Any) -> PredictionContext:
    """Return the context of a prediction from its report, number of chips and plan of one group of chips."""
    return PredictionContext(
        float(report.mfu), chips, USUAL.sequences if plan.disaggregated else float(plan.micro_batch * plan.pp)
    )


def widest(around: Sequence[Interval | None]) -> Interval | None:
    """Return the wider of the intervals of two chip types that serve together; None if one has none.

    Each phase was measured alone; KV-cache transfer was not measured. Assume that the slower group determines the rate, and
    that errors of both have the same distribution. Coverage is then four in five, whether or not the errors are correlated.
    """
    known = [each for each in around if each is not None]
    return max(known, key=lambda each: each.time) if len(known) == len(around) else None


def question_interval(solution: Solution) -> Interval | None:
    """Return the interval of a solution of `optimize`; a parametric chip is treated as a new chip family.

    None for problems without a known chip, stack and calibration, and for problems that combine training and serving. Also None
    for disaggregated prefill and decode on the same chip type.
    """
    provenance, design = solution.problem.provenance, solution.built
    records, calibration = provenance.records, provenance.calibration
    if calibration is None or not {"chip", "stack"} <= records.keys() or isinstance(design.workload, TrainServe):
        return None
    if len(design.cluster.groups) > 1:
        both = (provenance.records, provenance.of_answers)
        return widest([interval(design.workload, architecture(r["chip"]), r["stack"].slug, calibration) for r in both])
    of = context(solution.report, float(design.cluster.chips), design.plan)
    around = interval(design.workload, architecture(records["chip"]), records["stack"].slug, calibration, of=of)
    if around is None or design.plan.disaggregated:
        return None
    new_chip = 0.0 if design.project is None else calibration.intervals.get("new_family", 0.0)
    return replace(around, time=around.time * math.exp(new_chip))
