"""Validation of a file of measured runs: every row is scored or skipped with a reason."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from hwopt import catalog
from hwopt.calibration.holdout import study_of
from hwopt.calibration.intervals import PredictionContext, interval
from hwopt.calibration.measured.columns import METRICS, MeasuredRow, MeasuredRun, MeasuredService
from hwopt.calibration.measured.rows import Measurements, read
from hwopt.calibration.validation import serving, training
from hwopt.calibration.validation.join import MeasuredCase, Prediction, WorkKind, join
from hwopt.calibration.validation.machines import Constants, constants
from hwopt.calibration.validation.score import Scored, summary
from hwopt.calibration.validation.skip import Skip
from hwopt.catalog import Calibration
from hwopt.errors import UserError

KINDS: dict[type[MeasuredRow], WorkKind] = {MeasuredRun: training.KIND, MeasuredService: serving.KIND}

_AT_ONCE = 512
"""Rows processed together in memory, and per update of the progress bar."""


@dataclass(frozen=True)
class Scoring:
    """A file of measured runs with the outcome of every row: scored or skipped."""

    measurements: Measurements
    outcomes: list[Scored | Skip]

    @property
    def scored(self) -> list[Scored]:
        return [each for each in self.outcomes if isinstance(each, Scored)]


def score(
    path: str | Path, calibration: Calibration | None, *, facts: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None, cases: bool = True, progress: bool = False,
) -> Scoring:  # fmt: skip
    """Join and predict every row of a CSV file or a log with a given calibration.

    A row whose source is part of the fit is predicted with constants fitted without that source.

    **Arguments:**

    - `path`: the CSV file or log; `facts`, `defaults`: as in `hwopt.calibration.measured.table.load`.
    - `calibration`: as returned by `catalog.calibration`.
    - `cases`: keep the model inputs of each row.
    - `progress`: show a progress bar on standard error.

    **Raises:** `UserError` for a file that cannot be read.
    """
    measurements, of_machines = read(path, facts=facts, defaults=defaults, progress=progress), constants(calibration)
    kind, rows = KINDS[measurements.kind], measurements.rows
    outcomes: list[Scored | Skip] = []
    with tqdm(total=len(rows), desc="runs", unit="row", disable=not progress, leave=False) as bar:
        for start in range(0, len(rows), _AT_ONCE):
            part = rows[start : start + _AT_ONCE]
            joined = [_joined(measurements.path, row, kind, of_machines) for row in part]
            predictions = iter(kind.predict([case for case in joined if isinstance(case, MeasuredCase)]))
            outcomes += [
                _scored(each, next(predictions), calibration, cases) if isinstance(each, MeasuredCase) else each
                for each in joined
            ]
            bar.update(len(joined))
    return Scoring(measurements, outcomes)


def _joined(path: Path, row: MeasuredRow, kind: WorkKind, of_machines: Constants) -> MeasuredCase | Skip:
    try:
        return join(row, kind, of_machines)
    except Skip as skip:
        return skip
    except UserError as error:
        raise UserError(f"{path}: row at line {row.line}: {error}") from None


def _scored(case: MeasuredCase, answer: Prediction, calibration: Calibration | None, keep: bool) -> Scored:
    own = case.alternatives[answer.alternative].case if case.alternatives else case  # represents the row
    batch = getattr(case.row, "batch", None) or math.inf
    sequences = {"sequences": batch / float(own.plan.dp)} if batch < math.inf else {}  # the engine chose others
    of = PredictionContext(answer.mfu, float(own.cluster.chips), **sequences)
    around = interval(own.workload, own.architecture, own.stack, calibration, study_of(own.row.source), of)
    around = around and around.widened(answer.spread)
    memory = METRICS[case.row.measured_metric].memory
    ends = None if around is None else (around.memories if memory else around.times)(answer.value)
    return Scored(case.row, own.accelerator, own.stack, answer, own.assumed, ends, own if keep else None)


def validate(
    path: str | Path, *, constants: str | Path = catalog.CALIBRATED, facts: Mapping[str, str] | None = None,
    progress: bool = False,
) -> dict:  # fmt: skip
    """Score a CSV file or a log of measured training or serving runs against the model.

    Every row is scored, or skipped with a `SkipReason`. Unstated settings are listed under `assumed`. A prediction is the weighted
    median over alternatives of unstated micro-batch, chunks, recomputation, number format, sharding and software. Other settings
    take the defaults of the stack. `spread` is the standard deviation over the alternatives in log units; intervals include it.

    **Arguments:**

    - `path`: a CSV file with at least the essential columns of `hwopt.calibration.measured.columns`, which documents all
      columns, or a log of a format of `hwopt.calibration.measured.logs`. The header decides between training runs and services.
      A degree (tp, pp, ...) whose column is missing is 1.
    - `constants`: a mode, or a file of `hwopt calibrate`. Calibrated constants are held out: rows of a fitted source are
      predicted by a fit without it. Services use the fitted chip constants; no serving run was fitted.
    - `facts`: cells by column, for columns that the file lacks or leaves blank.
    - `progress`: show a progress bar on standard error.

    **Returns:** `{"rows": [...], "summary": {...}}`, plain numbers, strings and None.

    - `error`: (predicted - measured) / measured.
    - `low`, `high`: interval that contains the measured value in four of five cases; None for uncalibrated constants.
    - `summary["columns"]`: whether the file states its columns, or some were inferred from its text.

    **Raises:** `UserError` for a file that cannot be read, as one line with file, row, column and the likely cause.
    """
    calibration = catalog.calibration(constants)
    scoring = score(path, calibration, facts=facts, cases=False, progress=progress)
    measurements, outcomes = scoring.measurements, scoring.outcomes
    rows, inferred = measurements.rows, list(measurements.inferred)
    totals = summary(scoring.scored, [each.reason for each in outcomes if isinstance(each, Skip)], len(rows))
    mode = str(constants)
    if calibration is not None and calibration.scopes.entries:
        mode += ", chips alone" if measurements.kind is MeasuredService else ", sources held out"
    origin = {"constants": mode, "columns": "inferred from text" if inferred else "stated", "inferred": inferred}
    documents = [_document(row, each, calibration) for row, each in zip(rows, outcomes, strict=True)]
    return {"rows": documents, "summary": origin | totals}


def _document(row: MeasuredRow, outcome: Scored | Skip, calibration: Calibration | None) -> dict:
    metric = METRICS.get(row.measured_metric)
    base = {
        "id": row.id,
        "line": row.line,
        "metric": row.measured_metric,
        "unit": row.unit or (metric.unit if metric else None),
        "measured": row.measured_value,
    }
    if isinstance(outcome, Skip):
        blank = dict.fromkeys(("predicted", "error", "low", "high"))
        return base | blank | {"status": "skipped", "reason": str(outcome.reason), "detail": outcome.detail}
    answer, (low, high) = outcome.prediction, outcome.interval or (None, None)
    return base | {
        "predicted": outcome.predicted,
        "error": outcome.error,
        "low": low,
        "high": high,
        "status": "scored",
        "reason": None,
        "counts": not outcome.left_out,
        "left_out": outcome.left_out or None,
        "cell": list(outcome.cell),
        "accelerator": outcome.accelerator,
        "chips": outcome.row.num_gpus,
        "stack": outcome.stack,
        "held_out": calibration is not None and bool(calibration.left_out),  # also true for a study outside the fit
        "assumed": list(outcome.assumed),
        "spread": answer.spread,
        "step_time_s": answer.step_s,
        "memory_per_chip_bytes": answer.memory_bytes,
        "fits": answer.memory_bytes <= answer.memory_capacity_bytes,
    }
