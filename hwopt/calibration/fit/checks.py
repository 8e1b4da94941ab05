"""Input checks of a calibration to user runs: rejected values, and notes on unusual rows that are used nevertheless."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from hwopt.calibration.validation.score import Scored
from hwopt.errors import UserError

NONSENSE = 30.0
"""Ratio of measured to predicted, or the inverse, at which a value is assumed to have another unit. With literature constants,
all published runs are within a factor of 11."""

UNLIKE = 1.5
"""Ratio of measured to fitted time, or the inverse, above which a row is reported as an outlier."""

WORSE = 1.02
"""Ratio of held-out error to the error before the fit, above which a calibration is reported to worsen predictions."""

_NAMED = 5  # maximum number of line numbers in a note


_OF_TIMES = (
    (1e3, "is it in ms? write seconds"), (1e6, "is it in microseconds? write seconds"), (60.0, "is it of many steps?"),
    (1.0 / 60.0, "is it in minutes? write seconds"), (1.0 / 3600.0, "is it in hours? write seconds"),
)  # fmt: skip
_OF_RATES = (
    (1e3, "is it in thousands? check the unit"), (1e-3, "is it in thousands? check the unit"),
    (100.0, "is it in percent? check the unit"), (1e12, "is it in FLOP/s? check the unit"),
)  # fmt: skip
"""Measured over predicted -> likely cause."""


def refuse_nonsense(path: str | Path, rows: Sequence[Scored]) -> None:
    """Check measured values before a fit.

    **Raises:** `UserError` for the first row that is off by a factor of `NONSENSE`, with the likely cause.
    """
    for row in rows:
        factor = row.row.measured_value / row.predicted
        if not 1.0 / NONSENSE < factor < NONSENSE:
            unit = row.row.unit or row.metric.unit
            far = f"{factor:,.0f} times" if factor > 1.0 else f"1/{1.0 / factor:,.0f} of"
            raise UserError(
                f"{path}: row at line {row.row.line}: {row.row.measured_metric} {row.row.measured_value:g} {unit} is {far} what "
                f"is predicted ({row.predicted:.3g} {unit}): {_intent(row, factor)}"
            )


def _intent(row: Scored, factor: float) -> str:
    """Return the likely cause of a value that differs from the prediction by `factor`."""
    chips, tokens = float(row.row.num_gpus or 1), float(row.row.seq_len or 1)
    meanings = _OF_RATES if row.metric.rate else _OF_TIMES
    meanings += (
        ((chips, "is it of all chips together?"), (1.0 / chips, "is it of one chip?"),
         (tokens, "are these tokens, not sequences?"), (1.0 / tokens, "are these sequences, not tokens?"))
        if row.metric.rate
        else ((1.0 / (row.row.global_batch_sequences or 1.0), "is it the time of a sequence? write that of a step"),)
    )  # fmt: skip
    distance, words = min((abs(math.log(factor / times)), words) for times, words in meanings)
    likely = words if distance < math.log(4.0) else "check its unit"
    return f"{likely}; leave the row out if it is right"


def notes(rows: Sequence[Scored], log_ratios: np.ndarray) -> list[str]:
    """Return notes on unusual rows of a fit: unstated software, plans that exceed the memory, large residuals.

    **Arguments:** `rows`; `log_ratios`: log(predicted / measured) after the fit.
    """
    too_big = [row.row.line for row in rows if row.prediction.memory_bytes > row.prediction.memory_capacity_bytes]
    unlike = [row.row.line for row, x in zip(rows, log_ratios, strict=True) if abs(x) > math.log(UNLIKE)]
    said = []
    if open_ := [row.row.line for row in rows if "stack" in row.assumed]:
        said.append(
            f"{_lines(open_)}: the software is not stated and was averaged over likely ones; state column stack, and --stack in "
            "hwopt estimate"
        )
    if too_big:
        said.append(f"{_lines(too_big)}: by the model the plan does not fit the memory; used nevertheless")
    if unlike:
        said.append(f"{_lines(unlike)}: off by more than a factor of {UNLIKE:g} from the fit; used with less weight")
    return said


def _lines(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_NAMED]))
    more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
    return f"line{'s' * (len(numbers) > 1)} {shown}{more}"


def warnings(before: dict, held_out: dict | None, only: Iterable[str]) -> list[str]:
    """Warn if a calibration makes predictions of held-out runs worse.

    **Arguments:**

    - `before`: errors over cells before the fit.
    - `held_out`: errors over cells with each group of runs held out.
    - `only`: names of the constants that were fitted, if not all.
    """
    if held_out is None or held_out["mean_abs_error"] <= WORSE * before["mean_abs_error"]:
        return []
    was, now = 100.0 * before["mean_abs_error"], 100.0 * held_out["mean_abs_error"]
    advice = (
        "leave --only out" if list(only) else "use the constants that it started from, or add runs that differ more"
    )
    return [
        f"this calibration worsens held-out predictions: mean error {was:.1f} % before, {now:.1f} % leave-one-out; {advice}"
    ]
