"""Scores the locked studies with the shipped constants, once a release, and keeps the history. Run from the top of a checkout:

    python -m results.benchmarks.release          # scores, appends a line to results/reference/releases.csv, writes locked.txt
    CALCULON=path python -m results.benchmarks.release  # the same, with Calculon beside the runs that it can express
    python -m results.benchmarks.release --look   # prints the last release's figures, touches nothing

Nothing else reads runs of locked studies (`hwopt.calibration.holdout`) to choose constants, structure or widths. Who changes the
model after a look at the figures of single locked studies has spent the lock: say so in the changelog.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np

from hwopt import catalog
from hwopt.calibration.fit.observations import complete
from hwopt.calibration.holdout import in_test_set
from hwopt.calibration.validation.score import Scored, cells_of, fit_baseline, mark_repeats
from hwopt.calibration.validation.validate import score
from hwopt.catalog import software_family
from hwopt.hardware.calibration import family_of
from results.benchmarks import calculon
from results.benchmarks.published_fit import RUNS, TABLES

ROOT = Path(__file__).parents[2]
HISTORY, TABLE = ROOT / "results" / "reference" / "releases.csv", ROOT / "results" / "reference" / "locked.txt"
COLUMNS = ("date", "version", "studies")
"""Of the history, before the fields of `Judged`."""

BESIDE = (
    "calculon_cells",
    "calculon_rows",
    "calculon_median",
    "calculon_mean",
    "beside_median",
    "beside_mean",
    "beside_nearer",
)
"""Of the history, after them: Calculon's errors over the cells that it can express, ours there, and in how many ours is nearer;
empty where a release had no checkout of it."""


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
    rows = [row for row in rows if in_test_set(row.row.source) and not row.metric.memory]
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


def beside_calculon(rows: Sequence[Scored]) -> calculon.Beside | None:
    """Calculon beside ours on the runs that it can express; None without a checkout, or where there are none."""
    folder = calculon.checkout()
    if folder is None:
        return None
    compared = calculon.beside(rows, np.log([row.time_ratio for row in rows]), partial(calculon.step_s, folder=folder))
    return compared if compared.cells else None


def beside_lines(compared: calculon.Beside) -> list[str]:
    """The comparison as text, below the table."""
    runs = f"{compared.rows} of these runs, in {len(compared.cells)} cells"
    return ["", f"Beside Calculon, which can express {runs}; errors of what was measured, %", "",
            *calculon.lines_of(compared, "hwopt", "Calculon")]  # fmt: skip


def beside_cells(compared: calculon.Beside | None) -> list[str | int]:
    """The comparison as cells of the history, in the order of `BESIDE`."""
    if compared is None:
        return [""] * len(BESIDE)
    errors = [f"{of(each):.4f}" for each in (compared.theirs, compared.ours) for of in (np.median, np.mean)]
    return [len(compared.cells), compared.rows, *errors, compared.nearer]


def add_to_history(cells: Sequence[str | int], history: Path) -> None:
    """Adds a line; lines of older releases, which knew fewer columns, get empty cells for the rest."""
    names = [*COLUMNS, *Judged.__dataclass_fields__, *BESIDE]
    before: list[dict[str, str]] = []
    if history.exists():
        with history.open(encoding="utf-8", newline="") as file:
            before = list(csv.DictReader(file))
    with history.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows([*before, dict(zip(names, cells, strict=True))])


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
    of, text, compared = judged(rows), table(rows), beside_calculon(rows)
    if compared is not None:
        text += "\n".join(beside_lines(compared)) + "\n"
    studies = len({row.row.source for row in rows})
    numbers = [f"{x:.4f}" if isinstance(x, float) else x for x in astuple(of)]
    day = datetime.now(UTC).date().isoformat()
    add_to_history([day, version("hwopt"), studies, *numbers, *beside_cells(compared)], HISTORY)
    TABLE.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
