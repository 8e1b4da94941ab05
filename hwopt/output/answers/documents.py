"""Answers as plain dictionaries, ready for JSON: the schema of the `--json` flag."""

from functools import singledispatch
from typing import Any

from hwopt.calibration.intervals import Interval
from hwopt.model.report import Report, TrainServeReport, outputs
from hwopt.output.text.batch_ramp import stage_rows
from hwopt.output.text.parts import number, numbers
from hwopt.output.text.token_prices import price_document, unit_of_work
from hwopt.solver.solution import Solution
from hwopt.types import PRECISIONS


@singledispatch
def report_document(report: Any, around: Interval | None = None, constants: str = "") -> dict[str, Any]:
    """Return the performance report of one design as JSON; missing metrics are null.

    It has every metric, its prediction interval, and the name of the model constants in use. An infeasible plan has its
    violations and memory use; its performance metrics are null.
    """
    fits, breakdown = bool(report.feasible), report.breakdown._asdict()
    groups = getattr(report, "groups", None) or {}  # only with two chip types
    sometimes = {
        "stages": stage_rows(report) if fits else [],  # only with a batch ramp
        "groups": {name: metrics(each, fits) for name, each in groups.items()},
    }
    return {
        "feasible": fits,
        "violations": report.violations(),
        **metrics(report, fits),
        **(price_document(report) if fits else dict.fromkeys(price_document(report))),
        "breakdown": numbers(breakdown) if fits else dict.fromkeys(breakdown),
        "hidden_s": number(report.hidden_s) if fits else None,
        "memory": numbers(report.memory._asdict()),
        "bottleneck": report.bottleneck_name() if fits else None,
        "margins": numbers(report.margins_by_name()),
        **_interval(report, around),
        "constants": str(constants) or None,
        "mfu_convention": report.mfu_convention,
        **dict(zip(("unit_of_work", "tokens_per_unit"), unit_of_work(report), strict=True)),
        **{name: each for name, each in sometimes.items() if each},
    }


@report_document.register
def _(report: TrainServeReport, around: Interval | None = None, constants: str = "") -> dict[str, Any]:
    return {
        "feasible": bool(report.feasible),
        "violations": report.violations(),
        **metrics(report, fits=True),
        "training": report_document(report.training, None, constants),
        "serving": report_document(report.serving, None, constants),
    }


def metrics(report: Any, fits: bool) -> dict[str, float | None]:
    """Return the metrics of a report by name. **Arguments:** `fits`: where false, performance metrics are null."""
    return {
        name: number(getattr(report, name)) if fits or each.standing else None
        for name, each in outputs(type(report)).items()
    }


def _interval(report: Report, around: Interval | None) -> dict[str, Any]:
    """Return the prediction intervals of a report: `low` and `high`, each a table of metric -> end of its interval.

    Metrics without an interval are absent. Both tables are null without `around`, the prediction interval of the step time.
    """
    if around is None:
        return {"low": None, "high": None}
    paced = [name for name, each in outputs(type(report)).items() if each.paced and bool(report.feasible)]
    ends = {name: around.times(float(getattr(report, name))) for name in paced}
    if around.memory is not None:
        ends["memory_per_chip_bytes"] = around.memories(float(report.memory_per_chip_bytes))
    known = {name: each for name, each in ends.items() if number(each[0]) is not None}
    return {side: {name: each[i] for name, each in known.items()} for i, side in enumerate(("low", "high"))}


def chip_document(solution: Solution) -> dict[str, Any] | None:
    """Return the custom chip of an answer as JSON: its specifications and its manufacturing cost; None for stock chips."""
    if solution.chip is None:
        return None
    chip, (cost, areas) = solution.built.cluster.chip, solution.chip
    peaks = dict(zip(PRECISIONS, map(float, chip.peak_flops_per_s * chip.clock_ratio), strict=True))
    return {
        "peak_flops_per_s": peaks,
        "sram_bytes": number(chip.sram_bytes),
        "hbm_bandwidth_bytes_per_s": number(chip.hbm_bandwidth_bytes_per_s),
        "hbm_capacity_bytes": number(chip.hbm_capacity_bytes),
        "power_w": number(solution.report.chip_power_w),
        "areas": numbers(areas._asdict()),
        "wafers": number(chip.wafers),
        "embodied_carbon_kg": number(chip.embodied_carbon_kg),
        "bill_usd": numbers(cost._asdict() | {"total": cost.total}),
        "price_usd": number(solution.built.cluster.prices.chip_base_usd),
    }
