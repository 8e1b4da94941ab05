"""Intervals: between which values a prediction's measured counterpart lies four times in five.

Half widths are in the logarithm of the step time, `exp(base + sum of the terms that apply)`, and come from how far predictions
went wrong on runs of studies that their constants had not seen (`hwopt.calibration.fit.interval_width`). The terms name what a
prediction has in common with those that went further wrong: a low predicted utilisation above all (what keeps arithmetic waiting
is known less well than arithmetic), experts, 4-bit products, more chips than were measured, chips and software unlike those
fitted. Families of software, long sequences and small models were tried as terms of their own: with studies left out of the
widths, too, they made intervals wider and no truer. So was a vendor unlike those fitted: learned from other vendors, each left
out whole, it is nothing (four in five runs of TPU lie within 0.10, of Trainium within 0.17, of chips that fits know within 0.19),
and what Gaudi's fine-tuning scripts lie off, 0.93, follows from no other study.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, singledispatch
from pathlib import Path
from typing import Any, NamedTuple

from hwopt import catalog
from hwopt.catalog import Calibration
from hwopt.catalog.chips import architecture
from hwopt.catalog.load import read_toml
from hwopt.catalog.names import data_root
from hwopt.hardware.calibration import FAMILY, STACK
from hwopt.solver.solution import Solution
from hwopt.types import PRECISIONS
from hwopt.workload.operators import Operators
from hwopt.workload.service import Service
from hwopt.workload.train_serve import TrainServe
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import total_parameters

COVERAGE = 0.8
"""Share of measurements that an interval is meant to hold."""

DEVIATIONS = 1.2816
"""Standard deviations on either side that hold `COVERAGE` of a normal distribution."""

MANY_CHIPS = 4096.0
"""From which on few runs are published."""

USUAL_MFU = 0.4
"""Utilisation from which on predictions go equally wrong."""

FLOORS = {"inefficient": 0.3, "moe": 0.1, "fp4": 0.2, "many_chips": 0.1, "new_family": 0.2, "new_stack": 0.1}
"""What widens an interval, and by how much at least (assumptions: few runs of 4 bit or of unseen chips are published)."""

TERMS = tuple(FLOORS)

_MOST_INEFFICIENT = 2.0
"""Where that term stops to grow: nothing was measured beyond."""

MEMORY = "memory_half_width"
"""Key of the half width, in the logarithm, of a chip's peak memory."""


class PredictionContext(NamedTuple):
    """What of a prediction besides its workload, chip and software says how far it may lie off."""

    mfu: float = USUAL_MFU  # that is predicted
    chips: float = 1.0


USUAL = PredictionContext()


def terms(
    run: TrainingRun,
    architecture: str,
    stack: str,
    calibration: Calibration,
    without: str = "",
    of: PredictionContext = USUAL,
) -> dict[str, float]:
    """How far each of `TERMS` applies: 0 or 1, and logarithms of utilisation lost and of chips beyond those measured.

    **Arguments:** `run`; the chip's `architecture` and the `stack`'s name; the `calibration` that predicts;
    `without`: the source that its fit left out; `of`: the prediction's circumstances.
    """
    applying = {
        "inefficient": min(max(math.log(USUAL_MFU / max(of.mfu, 1e-3)), 0.0), _MOST_INEFFICIENT),
        "moe": run.model.experts > 1.0,
        "fp4": run.gemm_precision[PRECISIONS.index("fp4")] > 0.0,
        "many_chips": max(math.log(of.chips / MANY_CHIPS), 0.0),
        "new_family": not calibration.knows(FAMILY, architecture, without),
        "new_stack": not calibration.knows(STACK, stack, without),
    }
    return {name: float(on) for name, on in applying.items()}


@dataclass(frozen=True)
class Interval:
    """Half widths, in the logarithm, of a prediction's step time and memory; None where no memory was measured."""

    time: float
    memory: float | None = None

    def widened(self, spread: float) -> Interval:
        """With a deviation, in the logarithm, over what a measured row leaves open: `sqrt(half^2 + (1.28 spread)^2)`."""
        return Interval(
            math.hypot(self.time, DEVIATIONS * spread),
            None if self.memory is None else math.hypot(self.memory, DEVIATIONS * spread),
        )

    def times(self, value: float) -> tuple[float, float]:
        """Low and high of a quantity in proportion to the step time, or to its reciprocal."""
        return value * math.exp(-self.time), value * math.exp(self.time)

    def memories(self, value: float) -> tuple[float, float]:
        """Low and high of an amount of memory."""
        half = math.inf if self.memory is None else self.memory
        return value * math.exp(-half), value * math.exp(half)


@cache
def _serving_widths() -> Mapping[str, Any]:
    return read_toml(Path(str(data_root() / "calibrations" / "serving.toml")))


def interval(
    workload: Any,
    architecture: str,
    stack: str,
    calibration: Calibration | None,
    without: str = "",
    of: PredictionContext = USUAL,
) -> Interval | None:
    """The interval of a prediction; None where the constants in use were not calibrated, and of what nobody has measured.

    A service's half widths, of dense models and of models with experts, hold `COVERAGE` of the errors on measured services,
    cells counted equally. Constants of chips are fitted to training runs, those of serving software were set with these
    services in view: a new service may go further wrong. Chips of a family that no measured service ran on have the wider
    interval of training.

    **Arguments:** `workload`; the chip's `architecture` and the `stack`'s name; the `calibration` that predicts; `without`: a
    source of measured runs that neither its fit nor the widths must have seen; `of`: the prediction's circumstances.
    """
    if calibration is None or "base" not in calibration.intervals:
        return None
    return _interval(workload, architecture, stack, calibration, without, of)


@cache
def _table_widths() -> Mapping[str, Any]:
    return read_toml(Path(str(data_root() / "calibrations" / "operators.toml")))


def _of_a_table(model: Operators, without: str) -> float:
    """Half width of a table of operators: of one that was measured, by its number of weights, or of one that was not.

    Three sources speak of all such models, so that a model nobody measured has the width of the one predicted worst.
    """
    table = _table_widths()
    own = float(total_parameters(model))
    measured = any(abs(own / each - 1.0) < 1e-6 for each in table["parameters"].values())
    return table["left_out"].get(without, table["half_widths"])["measured" if measured else "other"]


def measured_tables() -> tuple[str, ...]:
    """Operator tables of the catalogue that were measured."""
    return tuple(_table_widths()["parameters"])


@singledispatch
def _interval(
    workload: Any, architecture: str, stack: str, calibration: Calibration, without: str, of: PredictionContext
) -> Interval | None:
    return None


@_interval.register
def _(
    workload: TrainingRun, architecture: str, stack: str, calibration: Calibration, without: str, of: PredictionContext
) -> Interval | None:
    if isinstance(workload.model, Operators):
        return Interval(_of_a_table(workload.model, without))
    widths, applying = (
        calibration.widths(architecture, stack),
        terms(workload, architecture, stack, calibration, without, of),
    )
    exponent = widths["base"] + sum(widths.get(name, 0.0) * on for name, on in applying.items())
    return Interval(math.exp(exponent), widths.get(MEMORY, 0.1))


@_interval.register
def _(
    workload: Service, architecture: str, stack: str, calibration: Calibration, without: str, of: PredictionContext
) -> Interval:
    table = _serving_widths()
    half = table["left_out"].get(without, table["half_widths"])[
        "experts" if float(workload.model.experts) > 1.0 else "dense"
    ]
    known = architecture in table["families"]
    return Interval(half if known else half * math.exp(calibration.intervals.get("new_family", 0.0)))


def machine_interval(
    workload: Any,
    chip: str | Path,
    stack: str | Path | None,
    calibration: Calibration | None,
    of: PredictionContext = USUAL,
) -> Interval | None:
    """The interval on a chip of the catalogue or of a user's file, and the stack it runs by default."""
    software = catalog.record("stacks", catalog.default_stack(chip) if stack is None else stack).slug
    return interval(workload, architecture(catalog.record("chips", chip)), software, calibration, of=of)


def widest(around: Sequence[Interval | None]) -> Interval | None:
    """The wider of the intervals of two kinds of chips that serve together; None where one has none.

    Each phase was measured alone, moving keys and values was not. Where the slower group sets the pace and errors of both are
    equally spread, four in five lie within it, whether they go together or not.
    """
    known = [each for each in around if each is not None]
    return max(known, key=lambda each: each.time) if len(known) == len(around) else None


def question_interval(solution: Solution) -> Interval | None:
    """The interval of an answer of `optimize`; None for questions that do not say of which chip, stack and constants they are,
    for two machines in one, and for prompts and answers on chips of their own but of one kind. A parametric chip is unlike those
    that were fitted.
    """
    provenance, design = solution.problem.provenance, solution.built
    records, calibration = provenance.records, provenance.calibration
    if calibration is None or not {"chip", "stack"} <= records.keys() or isinstance(design.workload, TrainServe):
        return None
    if len(design.cluster.groups) > 1:
        both = (provenance.records, provenance.of_answers)
        return widest([interval(design.workload, architecture(r["chip"]), r["stack"].slug, calibration) for r in both])
    of = PredictionContext(float(solution.report.mfu), float(design.cluster.chips))
    around = interval(design.workload, architecture(records["chip"]), records["stack"].slug, calibration, of=of)
    if around is None or design.plan.disaggregated:
        return None
    new_chip = 0.0 if design.project is None else calibration.intervals.get("new_family", 0.0)
    return replace(around, time=around.time * math.exp(new_chip))
