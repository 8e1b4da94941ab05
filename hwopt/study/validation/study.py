"""The study: a file of measured runs in, every row accounted for out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hwopt.errors import UserError
from hwopt.study.validation.conventions import METRICS, is_memory, predicted_value
from hwopt.study.validation.join import Case, join
from hwopt.study.validation.predict import Prediction, predict
from hwopt.study.validation.reasons import Skip
from hwopt.study.validation.rows import MeasuredRun, read
from hwopt.study.validation.score import Scored, summary
from hwopt.units import to_si


def validate(path: str | Path) -> dict:
    """Scores a CSV file of measured training runs against the model.

    Every row is scored, or skipped with one `Reason`. What a row leaves open is filled with its framework's habit and
    listed under `assumed`.

    **Arguments:** `path` of a CSV with at least the columns `rows.ESSENTIAL`; a degree (tp, pp, ...) whose column is
    missing is 1; columns `stack`, `framework` and `year` win over what is inferred.

    **Returns:** `{"rows": [...], "summary": {...}}`, plain numbers, strings and None. `error` is
    (predicted - measured) / measured; `low` and `high` are None until the constants are calibrated.

    **Raises:** `UserError` for a file that cannot be read, one line with file, row, column and likely intent.
    """
    measured = read(path)
    outcomes: list[Case | Skip] = [_joined(path, row) for row in measured]
    cases = [outcome for outcome in outcomes if isinstance(outcome, Case)]
    scored = [_scored(case, answer) for case, answer in zip(cases, predict(cases), strict=True)]
    skips = [outcome.reason for outcome in outcomes if isinstance(outcome, Skip)]
    totals = summary(scored, skips, len(measured))
    by_line = {each.row.line: each for each in scored}
    rows = [_outcome(row, by_line.get(row.line), outcome) for row, outcome in zip(measured, outcomes, strict=True)]
    return {"rows": rows, "summary": totals}


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


def _outcome(row: MeasuredRun, scored: Scored | None, outcome: Case | Skip) -> dict:
    base = {
        "id": row.id,
        "line": row.line,
        "metric": row.measured_metric,
        "unit": row.unit or METRICS.get(row.measured_metric),
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
        "low": None,
        "high": None,
        "status": "scored",
        "reason": None,
        "counts": not scored.left_out,
        "left_out": scored.left_out or None,
        "cell": list(scored.cell),
        "accelerator": scored.cell[2],
        "chips": scored.case.row.num_gpus,
        "stack": scored.case.stack,
        "assumed": list(scored.assumed),
        "step_time_s": scored.prediction.step_s,
        "memory_per_chip_bytes": memory,
        "fits": memory <= capacity,
    }
