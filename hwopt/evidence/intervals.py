"""Intervals: between which values a prediction's measured counterpart lies four times in five.

Half widths are in the logarithm of the step time, `exp(base + sum of the terms that apply)`, and come from how far predictions
went wrong on runs that their constants had not seen (`hwopt.evidence.calibration.widths`). The terms name what a prediction
has in common with those that went further wrong: experts, long sequences, 4-bit products, small models, chips and software
unlike those fitted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hwopt import catalog
from hwopt.catalog import Calibration
from hwopt.catalog.load import read_toml
from hwopt.catalog.names import data_root
from hwopt.evidence.stacks import OTHERS, software_family
from hwopt.hardware.calibration import FAMILY, STACK
from hwopt.plan import Disaggregated
from hwopt.types import PRECISIONS
from hwopt.workload.service import Service
from hwopt.workload.train_and_serve import TrainAndServe
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import total_parameters

COVERAGE = 0.8
"""Share of measurements that an interval is meant to hold."""

LONG_SEQUENCE = 32768.0
SMALL_MODEL = 1e9

FLOORS = {
    "moe": 0.1, "long_sequence": 0.1, "fp4": 0.2, "small_model": 0.1, "new_family": 0.2, "new_stack": 0.1,
    "jax": 0.0, "pytorch": 0.0, "stacks_of_2021": 0.0, "other_software": 0.0,
}  # fmt: skip
"""What widens an interval, and by how much at least (assumptions: few runs of 4 bit or of unseen chips are published)."""

TERMS = tuple(FLOORS)

_SOFTWARE = {"JAX": "jax", "PyTorch": "pytorch", "2021 stacks": "stacks_of_2021", OTHERS: "other_software"}

MEMORY = "memory_half_width"
"""Key of the half width, in the logarithm, of a chip's peak memory."""


def terms(
    run: TrainingRun, architecture: str, stack: str, calibration: Calibration, without: str = ""
) -> dict[str, float]:
    """Which of `TERMS` apply, 0 or 1 each.

    **Arguments:** `run`; the chip's `architecture` and the `stack`'s name; the `calibration` that predicts;
    `without`: the source that its fit left out.
    """
    software = _SOFTWARE.get(software_family(stack))
    return {
        "moe": float(float(run.model.experts) > 1.0),
        "long_sequence": float(float(run.sequence_length) >= LONG_SEQUENCE),
        "fp4": float(np.asarray(run.gemm_precision)[PRECISIONS.index("fp4")] > 0.0),
        "small_model": float(float(total_parameters(run.model)) < SMALL_MODEL),
        "new_family": float(not calibration.knows(FAMILY, architecture, without)),
        "new_stack": float(not calibration.knows(STACK, stack, without)),
        **{name: float(name == software) for name in _SOFTWARE.values()},
    }


@dataclass(frozen=True)
class Interval:
    """Half widths, in the logarithm, of a prediction's step time and memory."""

    time: float
    memory: float

    def times(self, value: float) -> tuple[float, float]:
        """Low and high of a quantity in proportion to the step time, or to its reciprocal."""
        return value * math.exp(-self.time), value * math.exp(self.time)

    def memories(self, value: float) -> tuple[float, float]:
        """Low and high of an amount of memory."""
        return value * math.exp(-self.memory), value * math.exp(self.memory)


def interval(
    run: TrainingRun, architecture: str, stack: str, calibration: Calibration | None, without: str = ""
) -> Interval | None:
    """The interval of a prediction; None where the constants in use were not calibrated.

    **Arguments:** as `terms`.
    """
    if calibration is None or "base" not in calibration.intervals:
        return None
    applying = terms(run, architecture, stack, calibration, without)
    exponent = calibration.intervals["base"] + sum(
        calibration.intervals.get(name, 0.0) * on for name, on in applying.items()
    )
    return Interval(math.exp(exponent), calibration.intervals.get(MEMORY, 0.1))


@cache
def _serving_widths() -> Mapping[str, Any]:
    path = data_root() / "calibrations" / "serving.toml"
    return read_toml(Path(str(path)))


def serving_interval(
    service: Service, architecture: str, calibration: Calibration | None, without: str = ""
) -> Interval | None:
    """The interval of a service's rates and latencies; None where the constants in use were not calibrated.

    Half widths, of dense models and of models with experts, hold `COVERAGE` of the errors on measured services, cells counted
    equally. Constants of chips are fitted to training runs, those of serving software were set with these services in view:
    a new service may go further wrong. Chips of a family that no measured service ran on have the wider interval of training.

    **Arguments:** `service`; the chip's `architecture`; the `calibration` that predicts; `without`: a source of measured
    services whose errors the widths must not have seen.
    """
    if calibration is None or "base" not in calibration.intervals:
        return None
    table = _serving_widths()
    widths = table["left_out"].get(without, table["half_widths"])
    half = widths["experts" if float(service.model.experts) > 1.0 else "dense"]
    if architecture not in table["families"]:
        half = half * math.exp(calibration.intervals.get("new_family", 0.0))
    return Interval(half, calibration.intervals.get(MEMORY, 0.1))


def machine_interval(
    run: TrainingRun, chip: str | Path, stack: str | Path | None, calibration: Calibration | None
) -> Interval | None:
    """The interval of a run on a chip of the catalogue or of a user's file, and the stack it runs by default."""
    record = catalog.record("chips", chip)
    software = catalog.record("stacks", catalog.default_stack(chip) if stack is None else stack).slug
    return interval(run, str(record.text.get("architecture", "")), software, calibration)


def question_interval(question: Any, solution: Any) -> Interval | None:
    """The interval of an answer of `optimize`; None for questions that name no chip, stack and constants.

    A chip drawn anew is unlike those that were fitted.
    """
    if not all(hasattr(question, name) for name in ("chip", "stack", "constants")):
        return None
    chip, stack, constants = question.chip, question.stack, question.constants
    calibration = catalog.calibration(constants)
    workload = solution.built.workload
    if isinstance(workload, TrainAndServe) or isinstance(solution.built.plan, Disaggregated):
        return None  # no such machine was measured
    if isinstance(workload, Service):
        around = serving_interval(
            workload, str(catalog.record("chips", chip).text.get("architecture", "")), calibration
        )
    else:
        around = machine_interval(workload, chip, stack, calibration)
    if around is None or calibration is None or solution.built.project is None:
        return around
    return Interval(around.time * math.exp(calibration.intervals.get("new_family", 0.0)), around.memory)
