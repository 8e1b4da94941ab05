"""The study: a file of measured runs in, every row accounted for out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hwopt import catalog
from hwopt.catalog import Calibration
from hwopt.errors import UserError
from hwopt.evidence.intervals import interval
from hwopt.evidence.validation import serving_study
from hwopt.evidence.validation.conventions import METRICS, is_memory, predicted_value
from hwopt.evidence.validation.join import Case, join
from hwopt.evidence.validation.predict import Prediction, predict
from hwopt.evidence.validation.reasons import Skip
from hwopt.evidence.validation.rows import ESSENTIAL, MeasuredRun, runs
from hwopt.evidence.validation.score import Scored, summary
from hwopt.evidence.validation.serving_join import METRICS as SERVING_METRICS
from hwopt.evidence.validation.serving_rows import MeasuredService, is_serving
from hwopt.evidence.validation.table import Table, load
from hwopt.units import to_si


@dataclass(frozen=True)
class Scoring:
    """A file of measured runs, every row scored or skipped."""

    measured: Sequence[MeasuredRun | MeasuredService]
    outcomes: Sequence[Any]  # a case, or why there is none
    scored: list[Scored]

    @property
    def skips(self) -> list[Skip]:
        return [outcome for outcome in self.outcomes if isinstance(outcome, Skip)]


def score(path: str | Path, held: Calibration | None) -> Scoring:
    """Joins and predicts every row of a CSV file with the constants of a mode.

    A row whose source was among the runs fitted is predicted with the constants fitted without that source.

    **Arguments:** `path`; `held` as `catalog.calibration` returns it.

    **Raises:** `UserError` for a file that cannot be read.
    """
    return _score(load(path, ESSENTIAL), held)


def _score(table: Table, held: Calibration | None) -> Scoring:
    measured = runs(table)
    outcomes: list[Case | Skip] = [_joined(table.path, row) for row in measured]
    cases = [_with_constants(outcome, held) for outcome in outcomes if isinstance(outcome, Case)]
    scored = [_scored(case, answer) for case, answer in zip(cases, predict(cases), strict=True)]
    return Scoring(measured, outcomes, scored)


def _with_constants(case: Case, held: Calibration | None) -> Case:
    cluster = catalog.with_constants(case.cluster, held, case.architecture, case.stack, without=case.row.source)
    return replace(case, cluster=cluster)


def validate(path: str | Path, *, constants: str | Path = catalog.CALIBRATED) -> dict:
    """Scores a CSV file of measured training or serving runs against the model.

    Every row is scored, or skipped with one `Reason`. What a row leaves open is filled with its framework's habit and
    listed under `assumed`.

    **Arguments:** `path` of a CSV with at least the columns `rows.ESSENTIAL`, or for services `serving_rows.ESSENTIAL`: the
    header tells which; a degree (tp, pp, ...) whose column is missing is 1; columns `stack`, `framework` and `year` win
    over what is inferred. `constants`: a mode, or a file of `hwopt calibrate`. Calibrated ones are held out: rows whose
    source was fitted are predicted by a fit without it. Services take the chips' fitted constants; no serving run was
    fitted.

    **Returns:** `{"rows": [...], "summary": {...}}`, plain numbers, strings and None. `error` is
    (predicted - measured) / measured; `low` and `high` hold the measured value four times in five, and are None where the
    constants are not calibrated.

    **Raises:** `UserError` for a file that cannot be read, one line with file, row, column and likely intent.
    """
    held = catalog.calibration(constants)
    table = load(path, ESSENTIAL)
    serving = is_serving(table)
    scoring = Scoring(*serving_study.score(table, held)) if serving else _score(table, held)
    for each in scoring.scored:
        each.interval = serving_study.interval(each, held) if serving else _interval(each, held)
    totals = summary(scoring.scored, [skip.reason for skip in scoring.skips], len(scoring.measured))
    by_line = {each.row.line: each for each in scoring.scored}
    rows = [
        _outcome(row, by_line.get(row.line), outcome, held)
        for row, outcome in zip(scoring.measured, scoring.outcomes, strict=True)
    ]
    fitted = held is not None and bool(held.scopes.entries)
    mode = f"{constants}{(', chips alone' if serving else ', sources held out') if fitted else ''}"
    return {"rows": rows, "summary": {"constants": mode} | totals}


def _interval(scored: Scored, held: Calibration | None) -> tuple[float, float] | None:
    around = interval(
        scored.case.workload, scored.case.architecture, scored.case.stack, held, without=scored.row.source
    )
    if around is None:
        return None
    memory = is_memory(scored.row.measured_metric)
    return around.memories(scored.predicted) if memory else around.times(scored.predicted)


def _joined(path: str | Path, row: MeasuredRun) -> Case | Skip:
    try:
        return join(row)
    except Skip as skip:
        return skip
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _memory(row: MeasuredRun, answer: Prediction) -> float:
    """Peak memory in the row's unit. What an allocator has handed out leaves context and fragmentation out."""
    allocated = row.measured_metric == "max_memory_allocated"
    held = answer.memory_bytes - (answer.memory_reserve_bytes if allocated else 0.0)
    return held / to_si(1.0, row.unit or METRICS[row.measured_metric])


def _scored(case: Case, answer: Prediction) -> Scored:
    assumed = list(case.assumed)
    if is_memory(case.row.measured_metric):
        predicted = _memory(case.row, answer)
    else:
        predicted = predicted_value(case.row, answer.step_s, answer.flops, answer.peak_flops_per_s, assumed)
    return Scored(replace(case, assumed=tuple(assumed)), answer, predicted, tuple(assumed))


def _outcome(
    row: MeasuredRun | MeasuredService, scored: Scored | None, outcome: object, held: Calibration | None
) -> dict:
    base = {
        "id": row.id,
        "line": row.line,
        "metric": row.measured_metric,
        "unit": row.unit or METRICS.get(row.measured_metric) or SERVING_METRICS.get(row.measured_metric),
        "measured": row.measured_value,
    }
    if scored is None:
        assert isinstance(outcome, Skip)
        blank = dict.fromkeys(("predicted", "error", "low", "high"))
        return base | blank | {"status": "skipped", "reason": str(outcome.reason), "detail": outcome.detail}
    memory, capacity = scored.prediction.memory_bytes, scored.prediction.memory_capacity_bytes
    return base | {
        "predicted": scored.predicted,
        "error": scored.error,
        "low": scored.interval[0] if scored.interval else None,
        "high": scored.interval[1] if scored.interval else None,
        "status": "scored",
        "reason": None,
        "counts": not scored.left_out,
        "left_out": scored.left_out or None,
        "cell": list(scored.cell),
        "accelerator": scored.cell[2],
        "chips": scored.case.row.num_gpus,
        "stack": scored.case.stack,
        "held_out": held is not None and scored.row.source in held.left_out,
        "assumed": list(scored.assumed),
        "step_time_s": scored.prediction.step_s,
        "memory_per_chip_bytes": memory,
        "fits": memory <= capacity,
    }
