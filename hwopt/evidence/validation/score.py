"""Errors per cell: rows of one source, model and accelerator count together, and only their latest release."""

# Rows that come this far have their blanks filled or were skipped; the checker cannot see that.
# pyright: reportOptionalOperand=false, reportOperatorIssue=false, reportArgumentType=false, reportReturnType=false

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwopt.evidence.validation.conventions import is_direct, is_memory
from hwopt.evidence.validation.reasons import Reason
from hwopt.evidence.validation.rows import MeasuredRun

_RATES = (
    "tokens_per_s_per_gpu", "tokens_per_s", "samples_per_s", "tflops_per_gpu", "mfu", "hfu",
    "output_tokens_per_s", "output_tokens_per_s_per_gpu",
)  # fmt: skip


@dataclass
class Scored:
    """One row with its prediction, in the unit that was measured."""

    case: Any  # `Case` of a training run, `ServingCase` of a service; both have a row, an accelerator and a stack
    prediction: Any  # `Prediction` or `ServingPrediction`; both have a step's time, an MFU and memory
    predicted: float
    assumed: tuple[str, ...]
    baseline: float = math.nan  # of one utilisation per accelerator; memory has none
    interval: tuple[float, float] | None = None  # low and high, in the unit that was measured
    left_out: str = ""  # why the row does not count in its cell although it is scored

    @property
    def row(self) -> Any:
        return self.case.row

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return self.predicted / self.row.measured_value - 1.0

    @property
    def is_rate(self) -> bool:
        """Whether what was measured falls as the step takes longer."""
        return self.row.measured_metric in _RATES

    @property
    def time_ratio(self) -> float:
        """Predicted over measured step time, whatever was measured."""
        ratio = self.predicted / self.row.measured_value
        return 1.0 / ratio if self.is_rate else ratio

    @property
    def cell(self) -> tuple[str, str, str]:
        """(source, model, accelerator)."""
        memory = " (memory)" if is_memory(self.row.measured_metric) else ""
        return ((self.row.source or "(no source)") + memory, _plain(self.row.model_name), self.case.accelerator)


def _plain(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().lower())


def release(row: MeasuredRun) -> tuple[int, ...] | None:
    """Software release that the source prints for a row, such as (24, 11, 1): from its place, else its notes, else the
    date of the printed table.
    """
    for text in (row.source_locator, row.notes):
        found = re.search(
            r"(?:container|release|section)\s+v?(\d{1,9}(?:\.\d{1,9})+)|\b(\d\d\.\d\d(?:\.\d{1,9})?)\s+container",
            text,
            re.I,
        )
        if found:
            return tuple(int(part) for part in (found[1] or found[2]).split("."))
    dated = re.search(r"\((20\d\d)-(\d\d)-(\d\d)\)", row.source_locator)
    return tuple(int(part) for part in dated.groups()) if dated else None


def _configuration(scored: Scored) -> tuple:
    return (*scored.cell, *scored.row.configuration)


def mark_repeats(rows: Sequence[Scored]) -> None:
    """Leaves out of the cells what tells of the same run twice.

    Of a configuration printed for several software releases only the latest counts; of a run printed as a time and as
    FLOP/s or MFU only the time.
    """
    groups: dict[tuple, list[Scored]] = defaultdict(list)
    for scored in rows:
        if re.search(r"regression of that release", scored.row.notes, re.I):
            scored.left_out = "a regression of its release, by the notes"
        groups[_configuration(scored)].append(scored)
    for group in groups.values():
        releases = [release(scored.row) for scored in group]
        stated = [each for each in releases if each is not None]
        latest = max(stated) if stated else None
        for scored, each in zip(group, releases, strict=True):
            if each != latest and each is not None:
                scored.left_out = f"older release {'.'.join(map(str, each))}"
        counting = [scored for scored in group if not scored.left_out]
        if any(is_direct(scored.row.measured_metric) for scored in counting):
            for scored in counting:
                if not is_direct(scored.row.measured_metric):
                    scored.left_out = "same run as a row that prints its time"


def release_spread(rows: Sequence[Scored]) -> dict[str, float | int | None]:
    """How far releases of the same configuration differ, max over min less one: the band that no model can beat."""
    groups: dict[tuple, dict[tuple, float]] = defaultdict(dict)
    for scored in rows:
        if (which := release(scored.row)) is not None:
            groups[(*_configuration(scored), scored.row.measured_metric)][which] = scored.row.measured_value
    spreads = [max(g.values()) / min(g.values()) - 1.0 for g in groups.values() if len(g) > 1]
    if not spreads:
        return {"configurations": 0, "median": None, "p90": None}
    return {
        "configurations": len(spreads),
        "median": float(np.median(spreads)),
        "p90": float(np.percentile(spreads, 90)),
    }


def fit_baseline(rows: Sequence[Scored]) -> dict[str, float]:
    """One utilisation of the peak per accelerator, the median over its cells, and each row's value by it.

    **Returns:** accelerator -> utilisation.
    """
    by_cell: dict[tuple, list[float]] = defaultdict(list)
    for scored in rows:
        if not scored.left_out and not is_memory(scored.row.measured_metric):
            by_cell[scored.cell].append(math.log(scored.prediction.mfu * scored.time_ratio))
    by_chip: dict[str, list[float]] = defaultdict(list)
    for cell, values in by_cell.items():
        by_chip[cell[2]].append(float(np.median(values)))
    constants = {chip: math.exp(float(np.median(values))) for chip, values in by_chip.items()}
    for scored in rows:
        if is_memory(scored.row.measured_metric):
            continue
        slower = scored.prediction.mfu / constants.get(scored.case.accelerator, scored.prediction.mfu)
        scored.baseline = scored.predicted / slower if scored.is_rate else scored.predicted * slower
    return constants


def _cell_errors(rows: Sequence[Scored]) -> dict[tuple, dict[str, float]]:
    """Cell -> mean absolute, signed, time-signed and baseline error of the rows that count."""
    cells: dict[tuple, list[Scored]] = defaultdict(list)
    for scored in rows:
        if not scored.left_out:
            cells[scored.cell].append(scored)
    return {
        cell: {
            "absolute": float(np.mean([abs(s.error) for s in members])),
            "signed": float(np.mean([s.error for s in members])),
            "log_time": float(np.mean([math.log(s.time_ratio) for s in members])),
            "baseline": float(np.mean([abs(s.baseline / s.row.measured_value - 1.0) for s in members])),
            "rows": len(members),
        }
        for cell, members in cells.items()
    }


def _over_cells(cells: Sequence[dict[str, float]]) -> dict[str, float | int | None]:
    def of(reduce: Callable, name: str) -> float | None:
        values = [cell[name] for cell in cells if not math.isnan(cell[name])]
        return float(reduce(values)) if values else None

    return {
        "cells": len(cells),
        "median_abs_error": of(np.median, "absolute"),
        "mean_abs_error": of(np.mean, "absolute"),
        "max_abs_error": of(np.max, "absolute"),
        "mean_error": of(np.mean, "signed"),
        "time_bias": math.expm1(of(np.mean, "log_time")) if cells else None,
        "baseline_abs_error": of(np.median, "baseline"),
        "baseline_mean_abs_error": of(np.mean, "baseline"),
    }


def _coverage(rows: Sequence[Scored]) -> float | None:
    """Share of counting rows whose measured value lies inside its interval."""
    inside = [
        each.interval[0] <= each.row.measured_value <= each.interval[1]
        for each in rows
        if each.interval and not each.left_out
    ]
    return float(np.mean(inside)) if inside else None


def summary(rows: Sequence[Scored], skipped: Sequence[Reason], total: int) -> dict:
    """What `validate` prints above its rows; errors are means per cell, then taken over cells.

    `time_bias` is the mean over cells of predicted over measured step time less one (in the logarithm), so that times and
    rates lean the same way; `mean_error` is of the quantity as measured.
    """
    mark_repeats(rows)
    constants = fit_baseline(rows)
    cells = _cell_errors(rows)
    by_source: dict[str, list[dict[str, float]]] = defaultdict(list)
    for cell, errors in cells.items():
        by_source[cell[0]].append(errors)
    counts = Counter(skipped)
    return {
        "rows": total,
        "scored": len(rows),
        "skipped": len(skipped),
        "superseded": sum(bool(scored.left_out) for scored in rows),
        **_over_cells(list(cells.values())),
        "interval_coverage": _coverage(rows),
        "skipped_by_reason": {str(reason): counts[reason] for reason in Reason if counts[reason]},
        "release_spread": release_spread(rows),
        "baseline_utilisation": dict(sorted(constants.items())),
        "by_source": {
            source: {"rows": int(sum(cell["rows"] for cell in members)), **_over_cells(members)}
            for source, members in sorted(by_source.items())
        },
    }
