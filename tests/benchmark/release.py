"""Scores the locked studies with the shipped constants, once a release, and keeps the history. Run from the top of a checkout:

    python -m tests.benchmark.release          # scores, appends a line to results/reference/releases.csv, writes locked.txt
    python -m tests.benchmark.release --look   # prints the last release's figures, touches nothing

Nothing else reads runs of locked studies (`hwopt.evidence.protocol`) to choose constants, structure or widths. Who changes the
model after a look at the figures of single locked studies has spent the lock: say so in the changelog.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from hwopt import catalog
from hwopt.catalog import software_family
from hwopt.evidence.calibration.observations import complete
from hwopt.evidence.calibration.published import RUNS, TABLES
from hwopt.evidence.protocol import locked
from hwopt.evidence.validation.score import Scored, cells_of, fit_baseline, mark_repeats
from hwopt.evidence.validation.validate import score
from hwopt.hardware.calibration import family_of

ROOT = Path(__file__).parents[2]
HISTORY, TABLE = ROOT / "results" / "reference" / "releases.csv", ROOT / "results" / "reference" / "locked.txt"
COLUMNS = ("date", "version", "studies")
"""Of the history, before the fields of `Judged`."""


@dataclass(frozen=True)
class Judged:
    """Errors over some cells."""

    cells: int
    rows: int
    median: float
    mean: float
    bias: float  # of step times; + is too slow
    inside_rows: float  # share of measurements inside the intervals that promise 80 %
    inside_cells: float
    baseline_median: float  # one utilisation a chip, fitted to these very runs
    baseline_mean: float


def locked_runs() -> list[Scored]:
    """Complete runs of good quality of the locked studies, predicted with the shipped constants."""
    constants = catalog.calibration()
    rows = [row for name in TABLES for row in score(RUNS / name, constants).scored]
    rows = [row for row in rows if locked(row.row.source) and not row.metric.memory]
    mark_repeats(rows)
    fit_baseline(rows)
    return [row for row in rows if complete(row) and not row.left_out]


def judged(rows: Sequence[Scored]) -> Judged:
    """Errors over the cells of some rows."""
    cells = list(cells_of(rows).values())
    mean = lambda of: np.array([np.mean([of(rows[i]) for i in members]) for members in cells])
    inside = lambda row: row.interval is not None and row.interval[0] <= row.row.measured_value <= row.interval[1]
    error, flat = mean(lambda row: abs(row.error)), mean(lambda row: abs(row.baseline / row.row.measured_value - 1.0))
    return Judged(
        len(cells), len(rows), float(np.median(error)), float(np.mean(error)),
        math.expm1(float(np.mean(mean(lambda row: math.log(row.time_ratio))))),
        float(np.mean([inside(row) for row in rows])), float(np.mean(mean(inside))),
        float(np.median(flat)), float(np.mean(flat)),
    )  # fmt: skip


def _line(name: str, of: Judged) -> str:
    shares = (of.median, of.mean, of.bias, of.inside_cells, of.inside_rows, of.baseline_median, of.baseline_mean)
    return f"{name[:46]:46}{of.cells:6}{of.rows:6}" + "".join(f"{100 * x:9.1f}" for x in shares)


def table(rows: Sequence[Scored]) -> str:
    """The whole table as text: all, then by software, generation of chips, kind of model, study."""
    groups: dict[str, Callable[[Scored], str]] = {
        "software": lambda row: software_family(row.stack),
        "chips": lambda row: family_of(row.case.architecture) if row.case else "",
        "model": lambda row: "experts" if row.row.moe_experts else "dense",
        "study": lambda row: row.row.source,
    }
    heads = ("median", "mean", "bias", "in cells", "in rows", "flat med", "flat mean")
    lines = [
        "Locked studies, predicted with constants, structure and widths that had no part of them; %, over cells (source, model,",
        "accelerator). in: share of measurements inside the intervals that promise 80 %. flat: one utilisation an accelerator,",
        "fitted to these very runs. Asked: median 12, mean 17, bias within 5, inside 72 to 88 (each family 65 to 95), mean 40 %",
        "below the flat one's.",
        "",
        f"{'':46}{'cells':>6}{'rows':>6}" + "".join(f"{head:>9}" for head in heads),
        _line("all", judged(rows)),
    ]
    for what, of in groups.items():
        lines += ["", f"by {what}"]
        for name in sorted({of(row) for row in rows}):
            lines.append(_line(f"  {name}", judged([row for row in rows if of(row) == name])))
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Prints; returns the exit code."""
    if arguments == ["--look"]:
        print(TABLE.read_text(encoding="utf-8") if TABLE.exists() else "no release yet")
        return 0
    if arguments:
        print(__doc__)
        return 2
    from importlib.metadata import version

    rows = locked_runs()
    of, text = judged(rows), table(rows)
    studies = len({row.row.source for row in rows})
    numbers = [f"{x:.4f}" if isinstance(x, float) else x for x in astuple(of)]
    cells = [datetime.now(UTC).date().isoformat(), version("hwopt"), studies, *numbers]
    new = not HISTORY.exists()
    with HISTORY.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows(([[*COLUMNS, *Judged.__dataclass_fields__]] if new else []) + [cells])
    TABLE.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
