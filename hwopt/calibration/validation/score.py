"""Errors per cell: a cell is all rows of one source, model and accelerator; only the latest software release counts."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hwopt.calibration.measured.columns import METRICS, MeasuredMetric
from hwopt.calibration.validation.join import MeasuredCase, Prediction
from hwopt.calibration.validation.skip import SkipReason
from hwopt.run_words import FUNCTIONAL

Cell = tuple[str, str, str]
"""Source, model, accelerator."""


@dataclass
class Scored:
    """One row with its prediction, in the measured unit."""

    row: Any  # a `MeasuredRun` or a `MeasuredService`
    accelerator: str  # catalog slug
    stack: str
    prediction: Prediction
    assumed: tuple[str, ...]
    interval: tuple[float, float] | None = None  # low and high, in the measured unit
    case: MeasuredCase | None = None  # model inputs, if needed for a fit
    baseline: float = math.nan  # constant-MFU baseline; none for memory
    left_out: str = ""  # why a scored row does not count in its cell

    @property
    def metric(self) -> MeasuredMetric:
        return METRICS[self.row.measured_metric]

    @property
    def predicted(self) -> float:
        return self.prediction.value

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return self.predicted / self.row.measured_value - 1.0

    @property
    def time_ratio(self) -> float:
        """Predicted over measured step time, for any measured metric."""
        ratio = self.predicted / self.row.measured_value
        return 1.0 / ratio if self.metric.rate else ratio

    @property
    def functional(self) -> bool:
        """Whether the run has settings that are safe for any model, instead of those of benchmarks; False for services."""
        return getattr(self.row, "tuning", None) == FUNCTIONAL

    @property
    def cell(self) -> Cell:
        memory = " (memory)" if self.metric.memory else ""
        model = "-".join(self.row.model_name.lower().replace("_", " ").split())
        return ((self.row.source or "(no source)") + memory, model, self.accelerator)


def _configuration(scored: Scored) -> tuple:
    return (*scored.cell, *scored.row.configuration)


def mark_repeats(rows: Sequence[Scored]) -> None:
    """Exclude repeated rows of the same run, and regressions, from the cells.

    Of a configuration printed for several software releases, only the latest counts. Of a run printed both as a time and as
    FLOP/s or MFU, only the time counts.
    """
    groups: dict[tuple, list[Scored]] = defaultdict(list)
    for scored in rows:
        if scored.row.regression:
            scored.left_out = "a regression of its release, by the notes"
        groups[_configuration(scored)].append(scored)
    for group in groups.values():
        latest = max((scored.row.release for scored in group if scored.row.release), default=None)
        for scored in group:
            if scored.row.release not in (None, latest):
                scored.left_out = f"older release {'.'.join(map(str, scored.row.release))}"
        timed = any(scored.metric.direct and not scored.left_out for scored in group)
        for scored in group:
            if timed and not scored.metric.direct and not scored.left_out:
                scored.left_out = "same run as a row that prints its time"


def release_spread(rows: Sequence[Scored]) -> dict[str, float | int | None]:
    """Return the spread between releases of the same configuration, max / min - 1: no model can have a smaller error.

    **Returns:** number of configurations; median and 90th percentile of the spread, None without several releases.
    """
    groups: dict[tuple, dict[tuple, float]] = defaultdict(dict)
    for scored in rows:
        if (row := scored.row).release is not None:
            groups[(*_configuration(scored), row.measured_metric)][row.release] = row.measured_value
    spreads = [max(g.values()) / min(g.values()) - 1.0 for g in groups.values() if len(g) > 1]
    median, p90 = (float(np.median(spreads)), float(np.percentile(spreads, 90))) if spreads else (None, None)
    return {"configurations": len(spreads), "median": median, "p90": p90}


class Trend(NamedTuple):
    """Change of the step time of the same runs from release to release of their software."""

    recipes: int  # configurations with several releases
    per_year: float  # change of the logarithm of the step time in a year
    sd: float  # its standard error, recipes independent


def release_trend(rows: Sequence[Scored]) -> Trend | None:
    """Return how fast runs became faster with newer releases: regression of log times on dates, a level for each configuration.

    `b = sum (d - mean d) (y - mean y) / sum (d - mean d)^2`, where y is the log time, d the date in years, and means are those
    of a configuration. Rows that their source calls regressions count as well. None without configurations of several dates.
    """
    groups: dict[tuple, dict[float, float]] = defaultdict(dict)
    for scored in rows:
        if scored.row.release is not None and len(scored.row.release) > 1:
            year, month = scored.row.release[:2]
            date = (year if year > 2000 else 2000 + year) + (month - 0.5) / 12.0
            log_time = math.log(scored.row.measured_value) * (-1.0 if scored.metric.rate else 1.0)
            groups[(*_configuration(scored), scored.row.measured_metric)][date] = log_time
    repeated = [(np.array(list(g)), np.array(list(g.values()))) for g in groups.values() if len(g) > 1]
    if not repeated:
        return None
    along = [(dates - dates.mean(), times - times.mean()) for dates, times in repeated]
    spread = sum(float(d @ d) for d, _ in along)
    slope = sum(float(d @ y) for d, y in along) / spread
    sd = math.sqrt(sum(float(d @ (y - slope * d)) ** 2 for d, y in along)) / spread
    return Trend(len(repeated), slope, sd)


def fit_baseline(rows: Sequence[Scored]) -> dict[str, float]:
    """Fit the constant-MFU baseline: one utilization per accelerator, the median over its cells; set each row's baseline.

    **Returns:** accelerator -> utilization.
    """
    by_cell: dict[Cell, list[float]] = defaultdict(list)
    timed = [scored for scored in rows if not scored.metric.memory]
    for scored in timed:
        if not scored.left_out:
            by_cell[scored.cell].append(math.log(scored.prediction.mfu * scored.time_ratio))
    by_chip: dict[str, list[float]] = defaultdict(list)
    for cell, values in by_cell.items():
        by_chip[cell[2]].append(float(np.median(values)))
    constants = {chip: math.exp(float(np.median(values))) for chip, values in by_chip.items()}
    for scored in timed:
        slower = scored.prediction.mfu / constants.get(scored.accelerator, scored.prediction.mfu)
        scored.baseline = scored.predicted / slower if scored.metric.rate else scored.predicted * slower
    return constants


def cells_of(rows: Sequence[Scored]) -> dict[Cell, list[int]]:
    """Return cell (source, model, accelerator) -> indices of the rows that count in it."""
    cells: dict[Cell, list[int]] = defaultdict(list)
    for i, scored in enumerate(rows):
        if not scored.left_out:
            cells[scored.cell].append(i)
    return dict(cells)


class CellErrors(NamedTuple):
    """Errors averaged over the rows of each cell, then over cells; None without cells."""

    cells: int = 0
    median_abs_error: float | None = None  # median over cells of the mean absolute error
    mean_abs_error: float | None = None
    max_abs_error: float | None = None
    mean_error: float | None = None  # mean over cells of the mean signed error
    time_bias: float | None = None  # mean over cells of predicted / measured time - 1; positive: predicted too slow
    rows: int = 0


def cell_errors(cells: Iterable[Sequence[int]], errors: np.ndarray, log_time_ratio: np.ndarray) -> CellErrors:
    """Return errors over cells, given as row indices; rows without an error (NaN) and empty cells do not count.

    **Arguments:**

    - `errors`: (predicted - measured) / measured, by row.
    - `log_time_ratio`: log of predicted over measured time, by row.
    """
    known = [[i for i in members if np.isfinite(errors[i])] for members in cells]
    known = [members for members in known if members]
    if not known:
        return CellErrors()
    absolute, signed, log_time = (
        [float(np.mean(of[members])) for members in known] for of in (np.abs(errors), errors, log_time_ratio)
    )
    over = (np.median(absolute), np.mean(absolute), max(absolute), np.mean(signed), np.expm1(np.mean(log_time)))
    return CellErrors(len(known), *map(float, over), rows=sum(map(len, known)))


def _over_cells(cells: Sequence[list[int]], errors: np.ndarray, log_time: np.ndarray, flat: np.ndarray) -> dict:
    of, baseline = cell_errors(cells, errors, log_time)._asdict(), cell_errors(cells, flat, log_time)
    del of["rows"]
    return of | {"baseline_abs_error": baseline.median_abs_error, "baseline_mean_abs_error": baseline.mean_abs_error}


def _operation(scored: Scored) -> str:
    """Return the operation of a training run (benchmark by default); empty for a service."""
    return (scored.row.operation or "benchmark") if hasattr(scored.row, "operation") else ""


GROUPS: dict[str, Callable[[Scored], str]] = {
    "software": lambda scored: scored.stack,
    "chip": lambda scored: scored.accelerator,
    "phase": lambda scored: getattr(scored.row, "phase", ""),
    "operation": _operation,
}
"""Criteria by which prediction errors are grouped in reports, in addition to the source -> function that returns a row's group.

Rows with an empty group are left out of that report.
"""


def by_group(rows: Sequence[Scored], of: Callable[[Scored], str]) -> dict[str, tuple[CellErrors, float | None]]:
    """Return the errors over cells of each group of rows (without repeats), and the interval coverage.

    A cell of a group consists only of the cell's rows in the group.
    """
    groups: dict[str, list[Scored]] = defaultdict(list)
    for scored in rows:
        if not scored.left_out and of(scored):
            groups[of(scored)].append(scored)
    judged = {}
    for name, some in sorted(groups.items()):
        errors, log_time = (
            [each(scored) for scored in some] for each in (lambda x: x.error, lambda x: math.log(x.time_ratio))
        )
        over = cell_errors(cells_of(some).values(), np.array(errors), np.array(log_time))
        judged[name] = over, _coverage(some)
    return judged


def _coverage(rows: Sequence[Scored]) -> float | None:
    """Return the share of rows (without repeats) whose measured value lies inside its interval."""
    counting = [(each.interval, each.row.measured_value) for each in rows if each.interval and not each.left_out]
    return float(np.mean([low <= measured <= high for (low, high), measured in counting])) if counting else None


def summary(rows: Sequence[Scored], skipped: Sequence[SkipReason], total: int) -> dict:
    """Summarize a validation, as printed above the rows by `validate`; errors are means per cell, then over cells.

    `time_bias` is the mean over cells of predicted / measured step time - 1 (in log units), so that times and rates have the
    same sign. `mean_error` refers to the measured quantity.
    """
    mark_repeats(rows)
    constants = fit_baseline(rows)
    cells, counts = cells_of(rows), Counter(skipped)
    errors = np.array([scored.error for scored in rows])
    log_time = np.array([math.log(scored.time_ratio) for scored in rows])
    flat = np.array([scored.baseline / scored.row.measured_value - 1.0 for scored in rows])
    by_source: dict[str, list[list[int]]] = defaultdict(list)
    for cell, members in cells.items():
        by_source[cell[0]].append(members)
    return {
        "rows": total,
        "scored": len(rows),
        "skipped": len(skipped),
        "superseded": sum(bool(scored.left_out) for scored in rows),
        **_over_cells(list(cells.values()), errors, log_time, flat),
        "interval_coverage": _coverage(rows),
        "skipped_by_reason": {str(reason): counts[reason] for reason in SkipReason if counts[reason]},
        "release_spread": release_spread(rows),
        "baseline_utilisation": dict(sorted(constants.items())),
        "by_source": {
            source: {"rows": sum(map(len, members)), **_over_cells(members, errors, log_time, flat)}
            for source, members in sorted(by_source.items())
        },
        "by_group": {
            what: {name: errors._asdict() | {"interval_coverage": inside} for name, (errors, inside) in groups.items()}
            for what, of in GROUPS.items()
            if (groups := by_group(rows, of))
        },
    }
