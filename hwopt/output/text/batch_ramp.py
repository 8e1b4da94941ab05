"""Stages of a run with a batch ramp, as parts of its time and for JSON."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hwopt.model.report import Report, TrainingReport
from hwopt.output.text.parts import number
from hwopt.units import pretty


def stage_rows(report: Report) -> list[dict[str, float | None]]:
    """Return the metrics of each stage by name; none where the batch size is constant."""
    stages = getattr(report, "stages", None)
    if stages is None:
        return []
    columns = {each.name: np.asarray(getattr(stages, each.name)) for each in dataclasses.fields(stages)}
    return [{name: number(x[i]) for name, x in columns.items()} for i in range(len(columns["tokens"]))]


def stage_parts(report: TrainingReport) -> list[tuple[str, str, float]]:
    """Return the stages as (batch size, tokens and step metrics, share of the run's time), aligned in columns."""
    rows = stage_rows(report)
    columns = [_aligned(cells) for cells in zip(*map(_cells, rows), strict=True)]
    texts = zip(*columns, strict=True)
    return [(batch, ", ".join(rest), row["time_share"] or 0.0) for (batch, *rest), row in zip(texts, rows, strict=True)]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    of_step = {"MFU": row["mfu"], "bubble": row["bubble_share"], "exposed communication": row["exposed_share"]}
    shares = (f"{name} {100.0 * share:.1f} %" for name, share in of_step.items())
    return (
        f"{row['batch_sequences']:,.6g} sequences",
        f"{_count(row['tokens'])} tokens",
        pretty(row["step_time_s"], "s"),
        *shares,
    )


def _aligned(cells: Sequence[str]) -> list[str]:
    width = max(map(len, cells))
    return [cell.rjust(width) for cell in cells]


def _count(tokens: float) -> str:
    """Return a number of tokens in customary form (T, B, M)."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if tokens >= size:
            return f"{tokens / size:.4g} {letter}"
    return f"{tokens:.4g}"
