"""How well services are predicted, by software, chip, year, layers and concurrency, as text. Run from the top of a checkout:

    python -m results.benchmarks.serving_accuracy

Half a minute. Stacks were set with these rows in view. A second table leaves out of each source what that source alone informs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hwopt import catalog
from hwopt.calibration.intervals import COVERAGE
from hwopt.calibration.validation import serving
from hwopt.calibration.validation.score import (
    GROUPS,
    Scored,
    by_group,
    cell_errors,
    cells_of,
    fit_baseline,
    mark_repeats,
)
from hwopt.calibration.validation.validate import score
from hwopt.catalog.names import data_root

RUNS = tuple(Path(str(data_root() / "runs" / name)) for name in ("inference.csv", "inference_2026.csv"))

INFORMS = {
    "InferenceX by aiconfigurator silicon_sample": {"cast_start_s": 10e-6, "expert_tile_share": 1.0},
}
"""Source -> constants of serving software that no other source informs, with their values before it was read."""

Of = Callable[[Scored], str]


def counting() -> list[Scored]:
    """Measured services that count in cells, predicted with the shipped constants."""
    rows = [row for path in RUNS for row in score(path, catalog.calibration()).scored]
    mark_repeats(rows)
    return [row for row in rows if not row.left_out]


def held_out(rows: Sequence[Scored]) -> list[Scored]:
    """The rows, each predicted with constants that its own source did not inform; widths of intervals in proportion."""
    own = [row for row in rows if row.row.source in INFORMS and float(row.case.cluster.stack.expert_tile_share) < 1.0]
    cases = []
    for row in own:
        constants = {name: np.float64(value) for name, value in INFORMS[row.row.source].items()}
        cluster = replace(row.case.cluster, stack=replace(row.case.cluster.stack, **constants))
        cases.append(replace(row.case, cluster=cluster))
    again = {}
    for row, answer in zip(own, serving.KIND.predict(cases), strict=True):
        ends = row.interval and tuple(end * answer.value / row.predicted for end in row.interval)
        again[id(row)] = replace(row, prediction=answer, interval=ends)
    return [again.get(id(row), row) for row in rows]


def concurrency(row: Scored) -> str:
    """Sequences at once of a whole service, in words."""
    batch = row.row.batch
    if math.isinf(batch):
        return "chosen by the engine"
    return next((f"{low} to {high}" for low, high in ((1, 4), (5, 16), (17, 64)) if batch <= high), "more than 64")


def layers(row: Scored) -> str:
    """Kind of layers of the model, in words."""
    model = row.case.workload.model
    return ("experts" if float(model.experts) > 1.0 else "dense") + (
        ", of several kinds" if model.kinds is not None else ""
    )


def year(row: Scored) -> str:
    """Year of the row's software; of its stack where the row does not say."""
    return str(row.row.year or catalog.record("stacks", row.stack).text["released"][:4])


BY: dict[str, Of] = {
    "software": GROUPS["software"], "chip": GROUPS["chip"], "year of the software": year, "layers": layers,
    "sequences at once": concurrency, "phase": GROUPS["phase"], "source": lambda row: row.row.source,
}  # fmt: skip
"""How services are told apart."""


def interval_scores(rows: Sequence[Scored]) -> tuple[float, float]:
    """Mean interval score of the log time, and median half width as a factor, cells counted equally.

    The score of an interval of width w at level 1 - a is `w + 2 / a x (distance of the measured value beyond its ends)`.

    **Source:** Gneiting, Raftery, JASA 102, 2007, section 6.2.
    """
    scores, halves = [], []
    for members in cells_of(rows).values():
        some = [rows[i] for i in members if rows[i].interval]
        half = [0.5 * math.log(row.interval[1] / row.interval[0]) for row in some]
        beyond = [max(abs(math.log(row.time_ratio)) - h, 0.0) for row, h in zip(some, half, strict=True)]
        scores.append(np.mean([2.0 * h + 2.0 / (1.0 - COVERAGE) * b for h, b in zip(half, beyond, strict=True)]))
        halves.append(np.mean(half))
    return float(np.mean(scores)), math.exp(float(np.median(halves)))


def _lines(rows: Sequence[Scored], of: Of, over: float = 0.1) -> list[str]:
    """A line for each group. **Arguments:** `over`: by which share of what was measured a rate counts as overestimated."""
    lines = []
    for name, (errors, inside) in by_group(rows, of).items():
        own = [row for row in rows if of(row) == name]
        fast = sum(row.time_ratio < 1.0 / (1.0 + over) for row in own) / len(own)
        flat = np.array([row.baseline / row.row.measured_value - 1.0 for row in own])
        constant = cell_errors(cells_of(own).values(), flat, np.zeros_like(flat))
        shares = (errors.median_abs_error, errors.mean_abs_error)
        said = "".join(f"{100 * (share or 0.0):8.1f}%" for share in shares)
        bounds, half = interval_scores(own)
        lines.append(
            f"  {name:54}{errors.cells:6}{errors.rows:6}{said}{100 * (errors.time_bias or 0.0):+8.1f}%{100 * fast:8.0f}%"
            f"{100 * (inside or 0.0):8.0f}%{half:8.2f}{bounds:8.2f}"
            f"{100 * (constant.median_abs_error or 0.0):9.0f}%{100 * (constant.mean_abs_error or 0.0):7.0f}%"
        )
    return lines


HEAD = (
    f"{'':56}{'cells':>6}{'rows':>6}{'median':>9}{'mean':>9}{'time':>9}{'fast':>9}{'inside':>9}{'half':>8}{'score':>8}"
    f"{'constant MFU':>17}"
)


def table(rows: Sequence[Scored]) -> str:
    """The whole table as text."""
    without = held_out(rows)
    for each in (rows, without):
        fit_baseline(each)
    everything: Of = lambda row: "all"
    lines = [
        f"Measured services: {len(rows)} rows of {' and '.join(path.name for path in RUNS)}. Errors are means per cell (source,",
        "model, accelerator), then over cells. time: predicted over measured, + is too slow. fast: rows predicted faster than",
        "measured by more than a tenth. inside: rows inside intervals that promise 80 %, whose widths have not seen the source.",
        "half: median half width, as a factor. score: mean interval score of the log time. constant MFU: median and mean error of",
        "one utilization a chip, fitted to the same rows.",
        "",
        "One source left out: rows of a source are predicted without the constants that it alone informs.",
        HEAD,
        *_lines(without, everything),
        *(f"  {line[2:]}" for line in _lines(without, lambda row: row.row.source)),
        "",
        "Shipped constants, chosen with these rows in view: how well one set of constants a stack describes them. PaLM-540B on",
        "TPU v4, which nothing was fitted to: tests/validation/test_pope.py; measured kernels: aiconfigurator.txt.",
        HEAD,
        *_lines(rows, everything),
    ]  # fmt: skip
    for what, of in BY.items():
        lines += ["", f"by {what}", *_lines(rows, of)]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(counting()))
