"""Answers as plain dictionaries, ready for JSON: the schema of the `--json` flag."""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from hwopt.analysis.chance_constraints.value_of_information import Regret
from hwopt.analysis.integrality_gap import AnswerAlternative, IntegralityGap
from hwopt.calibration.intervals import Interval
from hwopt.declared import plain
from hwopt.model.report import Report, TrainingReport, TrainServeReport, outputs
from hwopt.output.text.batch_ramp import stage_rows
from hwopt.output.text.bill import bill_document
from hwopt.output.text.chance_constraints import promise_document
from hwopt.output.text.choices import choices_document
from hwopt.output.text.integrality_gap import alternatives_document
from hwopt.output.text.integrality_gap import price_document as parts_price_document
from hwopt.output.text.layout import REPRODUCE
from hwopt.output.text.parts import number, numbers
from hwopt.output.text.plans import plan_document
from hwopt.output.text.regret import regret_document
from hwopt.output.text.token_prices import price_document, unit_of_work
from hwopt.solver.solution import Certificate, Solution
from hwopt.types import PRECISIONS


@singledispatch
def report_document(report: Any, around: Interval | None = None, constants: str = "") -> dict[str, Any]:
    """Return the performance report of one design as JSON; missing metrics are null.

    It has every metric, its prediction interval, and the name of the model constants in use. An infeasible plan has its
    violations and memory use; its performance metrics are null.
    """
    fits, breakdown = bool(report.feasible), report.breakdown._asdict()
    return {
        "feasible": fits,
        "violations": report.violations(),
        **_metrics(report, fits),
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
        **_stages(report, fits),
        **_groups(report, fits),
    }


@report_document.register
def _(report: TrainServeReport, around: Interval | None = None, constants: str = "") -> dict[str, Any]:
    return {
        "feasible": bool(report.feasible),
        "violations": report.violations(),
        **_metrics(report, fits=True),
        "training": report_document(report.training, None, constants),
        "serving": report_document(report.serving, None, constants),
    }


def _stages(report: Any, fits: bool) -> dict[str, Any]:
    """Return the stages of a run whose batch size grows, under the key `stages`; empty without stages."""
    rows = stage_rows(report) if isinstance(report, TrainingReport) and fits else []
    return {"stages": rows} if rows else {}


def _groups(report: Any, fits: bool) -> dict[str, Any]:
    """Return the metrics of each group of chips, under the key `groups`, where two chip types are used; else empty."""
    groups = getattr(report, "groups", None)
    return {} if groups is None else {"groups": {name: _metrics(each, fits) for name, each in groups.items()}}


def _metrics(report: Any, fits: bool) -> dict[str, float | None]:
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
    chip, (bill, areas) = solution.built.cluster.chip, solution.chip
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
        "bill_usd": numbers(bill._asdict() | {"total": bill.total}),
        "price_usd": number(solution.built.cluster.prices.chip_base_usd),
    }


_OF_VARIABLES = ("unit", "lower", "upper", "at_bound")
"""Fields of a design variable that are reported in addition to its value."""


def certificate_document(proof: Certificate) -> dict[str, Any]:
    """Return the optimality certificate (residuals, lower bound, gap, scope) of an answer as JSON."""
    return {
        "kkt_residual": number(proof.kkt_residual),
        "max_violation": number(proof.max_violation),
        "lower_bound": proof.lower_bound,
        "gap": proof.gap,
        "scope": proof.scope,
    }


def solution_document(
    solution: Solution,
    around: Interval | None = None,
    constants: str = "",
    price: IntegralityGap | None = None,
    alternatives: Sequence[AnswerAlternative] = (),
    regret: Regret | None = None,
) -> dict[str, Any]:
    """Return the answer of `optimize` as JSON.

    **Arguments:**

    - `around`: prediction interval of the step time.
    - `constants`: name of the constants in use, such as `calibrated`.
    - `price`: integrality gap, the cost of buying whole units, where it was computed.
    - `alternatives`: other answers to compare with, where they were computed.
    - `regret`: regret over uncertain inputs, where it was computed.
    """
    problem, proof = solution.problem, solution.certificate
    goal = problem.objective
    return {
        "question": problem.question,
        "approximations": problem.provenance.approximations,
        "outcome": solution.outcome.name,
        "status": solution.outcome.status,
        "message": solution.headline,
        "feasible": solution.feasible,
        "objective": {"name": goal.name, "value": number(solution.objective), "unit": goal.unit},
        "design": {
            name: {"value": number(each.value)}
            | {key: getattr(each, key) for key in _OF_VARIABLES}
            | ({"word": each.word} if each.words else {})
            for name, each in solution.design.items()
        },
        "lookups": numbers(solution.lookups),
        "reproduce": REPRODUCE,
        "plan": plan_document(solution.report, solution.plan),
        "chip": chip_document(solution),
        "budgets": plain(solution.budgets),
        "infeasibility": solution.infeasibility,
        "certificate": certificate_document(proof),
        "bill": bill_document(solution),
        "price_of_parts": parts_price_document(price),
        "alternatives": alternatives_document(alternatives),
        "choices": choices_document(solution.choices),
        "promise": promise_document(solution.promise),
        "regret": regret_document(regret),
        "report": report_document(solution.report, around, constants),
        "sources": list(problem.sources),
    }
