"""A table of measured serving runs: every row joined, predicted in its unit, and its interval."""

from __future__ import annotations

from dataclasses import replace

from hwopt import catalog
from hwopt.catalog import Calibration
from hwopt.errors import UserError
from hwopt.evidence.intervals import serving_interval
from hwopt.evidence.validation.reasons import Skip
from hwopt.evidence.validation.score import Scored
from hwopt.evidence.validation.serving_join import ServingCase, join
from hwopt.evidence.validation.serving_predict import predict
from hwopt.evidence.validation.serving_rows import MeasuredService, services
from hwopt.evidence.validation.table import Table

Joined = tuple[list[MeasuredService], list[ServingCase | Skip], list[Scored]]


def score(table: Table, held: Calibration | None) -> Joined:
    """Joins and predicts every row of a table with the constants of a mode.

    **Arguments:** `table` as loaded; `held` as `catalog.calibration` returns it.

    **Returns:** rows, what became of each, and those scored.

    **Raises:** `UserError` for cells that cannot be read.
    """
    measured = services(table)
    outcomes: list[ServingCase | Skip] = [_joined(table, row) for row in measured]
    cases = [_with_constants(outcome, held) for outcome in outcomes if isinstance(outcome, ServingCase)]
    scored = [
        Scored(case, answer, answer.value, case.assumed) for case, answer in zip(cases, predict(cases), strict=True)
    ]
    return measured, outcomes, scored


def interval(scored: Scored, held: Calibration | None) -> tuple[float, float] | None:
    """Low and high of a prediction, in the unit that was measured."""
    case = scored.case
    around = serving_interval(case.service, case.architecture, held, without=scored.row.source)
    return None if around is None else around.times(scored.predicted)


def _joined(table: Table, row: MeasuredService) -> ServingCase | Skip:
    try:
        return join(row)
    except Skip as skip:
        return skip
    except UserError as error:
        where = "" if str(error).startswith("row at line") else f"row at line {row.line}: "
        raise UserError(f"{table.path}: {where}{error}") from None


def _with_constants(case: ServingCase, held: Calibration | None) -> ServingCase:
    cluster = catalog.with_constants(case.cluster, held, case.architecture, case.stack, without=case.row.source)
    return replace(case, cluster=cluster)
