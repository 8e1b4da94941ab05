"""How well services are predicted, by software, chip and phase, as text. Run from the top of a checkout:

    python -m results.benchmarks.serving_accuracy

Half a minute. Stacks and widths of intervals were set with these rows in view; widths leave the row's own source out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hwopt import catalog
from hwopt.calibration.validation.score import GROUPS, Scored, by_group, mark_repeats
from hwopt.calibration.validation.validate import score
from hwopt.catalog.names import data_root

RUNS = Path(str(data_root() / "runs" / "inference.csv"))

Of = Callable[[Scored], str]

_TOGETHER = {"software": 24, "chip": 16, "phase": 22}
"""How services are told apart, with letters of the names in the table of all three."""


def counting() -> list[Scored]:
    """Measured services that count in cells, predicted with the shipped constants."""
    rows = score(RUNS, catalog.calibration()).scored
    mark_repeats(rows)
    return [row for row in rows if not row.left_out]


def _together(row: Scored) -> str:
    return "".join(f"{GROUPS[name](row):{width}}" for name, width in _TOGETHER.items())


def _lines(rows: Sequence[Scored], of: Of, over: float = 0.1) -> list[str]:
    """A line for each group. **Arguments:** `over`: by which share of what was measured a rate counts as overestimated."""
    lines = []
    for name, (errors, inside) in by_group(rows, of).items():
        own = [row for row in rows if of(row) == name]
        fast = sum(row.time_ratio < 1.0 / (1.0 + over) for row in own) / len(own)
        shares = (errors.median_abs_error, errors.mean_abs_error)
        said = "".join(f"{100 * (share or 0.0):8.1f}%" for share in shares)
        lines.append(
            f"  {name:62}{errors.cells:6}{errors.rows:6}{said}{100 * (errors.time_bias or 0.0):+8.1f}%{100 * fast:8.0f}%"
            f"{100 * (inside or 0.0):8.0f}%"
        )
    return lines


def table(rows: Sequence[Scored]) -> str:
    """The whole table as text."""
    head = f"{'':64}{'cells':>6}{'rows':>6}{'median':>9}{'mean':>9}{'time':>9}{'fast':>9}{'inside':>9}"
    lines = [
        f"Measured services: {len(rows)} rows of {RUNS.name}. Errors are means per cell (source, model, accelerator), then over",
        "cells. time: predicted over measured, + is too slow. fast: rows predicted faster than measured by more than a tenth.",
        "inside: rows inside intervals that promise 80 %, whose widths have not seen the source. Constants and structure of the",
        "stacks were chosen with these rows in view: figures say how well one set of constants a stack describes them. PaLM-540B",
        "on TPU v4, which nothing was fitted to: tests/validation/test_pope.py; measured kernels: aiconfigurator.txt.",
        "",
        head,
        *_lines(rows, lambda row: "all"),
    ]  # fmt: skip
    for what in _TOGETHER:
        lines += ["", f"by {what}", *_lines(rows, GROUPS[what])]
    lines += ["", "by software, chip and phase", *_lines(rows, _together)]
    lines += ["", "by source", *_lines(rows, lambda row: row.row.source)]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(counting()))
