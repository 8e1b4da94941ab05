"""Published runs on more and more chips beside `hwopt.scale`. From the top of a checkout:

    python -m results.benchmarks.scaling

Each row is predicted with its published plan by constants that have not seen its source, and `scale` searches every plan for the
same model, batch, software and machine. Nothing is fitted here. Locked studies are left out (`hwopt.calibration.holdout`).
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import hwopt
from hwopt import catalog
from hwopt.calibration.holdout import in_test_set, study_of
from hwopt.calibration.intervals import PredictionContext, interval
from hwopt.calibration.validation.join import MeasuredCase
from hwopt.calibration.validation.score import Scored
from hwopt.calibration.validation.validate import score
from hwopt.plan import OFFLOADED
from hwopt.units import pretty

RUNS = Path(str(files("hwopt") / "data" / "runs"))

PUBLISHED = {"train_round2": ("MegaScale (Jiang et al. NSDI 2024)", "Nemotron-4 340B technical report (2024)"),
             "train": ("Megatron-Core r0.8.0 README strong scaling",)}  # fmt: skip
"""File of runs -> sources that publish one model on several numbers of chips, one plan for all."""

SWEPT = "nanotron"
"""File of a sweep over plans: of each number of chips the best that was measured is taken."""

SWEPT_BATCH = "256"
"""Sequences of a step that all its sizes were measured with."""

WITHOUT: dict[str, float] = {name: 0.0 for name in OFFLOADED}
"""What none of the software measured does: nothing is offloaded."""

Series = tuple[str, str, str]
"""Source, model, and batch where it is one for all sizes."""


@dataclass(frozen=True)
class Point:
    """A size: seconds of a step as measured, as predicted of the published plan with the ends of its interval, and of our best."""

    chips: int
    sequences: float
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float
    best_s: float
    best_low_s: float
    best_high_s: float

    @property
    def holds(self) -> bool:
        return self.low_s <= self.measured_s <= self.high_s

    @property
    def best_holds(self) -> bool:
        return self.best_low_s <= self.measured_s <= self.best_high_s


def _rows() -> Iterable[dict[str, str]]:
    """Lines of the series, as their files have them."""
    for name, sources in PUBLISHED.items():
        for row in csv.DictReader((RUNS / f"{name}.csv").read_text(encoding="utf-8").splitlines()):
            if row["source"] in sources:
                yield row
    best: dict[tuple[str, str], dict[str, str]] = {}
    for row in csv.DictReader((RUNS / f"{SWEPT}.csv").read_text(encoding="utf-8").splitlines()):
        if row["global_batch_sequences"] == SWEPT_BATCH:
            key = row["model_name"], row["num_gpus"]
            if key not in best or float(row["measured_value"]) > float(best[key]["measured_value"]):
                best[key] = row
    yield from best.values()


def _scored(rows: Sequence[dict[str, str]]) -> list[Scored]:
    """Rows of one file, predicted with what the model was given kept beside."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        return score(path, catalog.calibration()).scored


@cache
def series(source: str = "", searched: bool = True) -> dict[Series, list[Point]]:
    """Every series, or those of one `source`, sizes in order; not `searched`: the published plans alone."""
    rows = [row for row in _rows() if source in ("", row["source"])]
    assert not any(in_test_set(row["source"]) for row in rows)
    forms = {tuple(row): [each for each in rows if tuple(each) == tuple(row)] for row in rows}
    grouped: dict[Series, dict[int, Scored]] = {}
    for each in (scored for same in forms.values() for scored in _scored(same)):
        nemotron = each.row.source.startswith("Nemotron")  # its batch grows with the chips
        batch = "" if nemotron else f"{each.row.global_batch_sequences:g}"
        grouped.setdefault((each.row.source, each.row.model_name, batch), {})[int(each.row.num_gpus)] = each
    return {name: _points(dict(sorted(by.items())), searched) for name, by in grouped.items() if len(by) > 1}


def _points(by: dict[int, Scored], searched: bool) -> list[Point]:
    """Sizes of one series."""
    cases = {chips: each.case for chips, each in by.items() if each.case is not None}
    best = _best(cases) if searched else {}
    return [_point(each, cases[chips], best.get(chips)) for chips, each in by.items()]


def _best(cases: dict[int, MeasuredCase]) -> dict[int, Any]:
    """Report of the best plan of each size that has one: by `scale` where one batch is kept, else size by size."""
    first = next(iter(cases.values())).workload
    same = {float(each.workload.global_batch_sequences) for each in cases.values()} == {
        float(first.global_batch_sequences)
    }
    if same:
        found = hwopt.scale(
            first, lambda chips: cases[chips].cluster, list(cases), objective="step_time_s", common=WITHOUT
        )
        return {each.chips: each.report for each in found.trained}
    found = {
        chips: hwopt.best_plan(each.workload, each.cluster, "step_time_s", 0, WITHOUT) for chips, each in cases.items()
    }
    return {chips: each.best.report for chips, each in found.items() if each.feasible}


def _point(scored: Scored, case: MeasuredCase, best: Any) -> Point:
    chips, step = int(scored.row.num_gpus), scored.prediction.step_s
    assert scored.interval is not None
    low, high = sorted(_seconds(scored, end) for end in scored.interval)
    own, around = np.nan, (np.nan, np.nan)
    if best is not None:
        own = float(best.step_time_s)
        of = PredictionContext(float(best.mfu), chips)
        within = interval(
            case.workload, case.architecture, case.stack, catalog.calibration(), study_of(case.row.source), of
        )
        assert within is not None
        around = within.times(own)
    sequences = float(case.workload.global_batch_sequences)
    return Point(chips, sequences, step / scored.time_ratio, step, low, high, own, *around)


def _seconds(scored: Scored, value: float) -> float:
    """Step time at which the row's number would be a `value`."""
    ratio = value / scored.predicted
    return scored.prediction.step_s * (1.0 / ratio if scored.metric.rate else ratio)


def table(of: dict[Series, list[Point]]) -> str:
    """As text, a line a size."""
    lines = [
        "Published runs on more and more chips: step time as measured, predicted with the published plan (constants that have not",
        "seen the source; interval of four in five), and of the best plan that hwopt scale finds for the same model, batch,",
        "software and machine, nothing offloaded. x: tokens a second over the smallest size's. No locked study is among them.",
    ]
    for (source, model, batch), points in of.items():
        lines += ["", f"{source}: {model}, {f'{batch} sequences' if batch else 'a batch that grows'}"]
        lines.append(
            f"{'chips':>7} {'batch':>6} {'measured':>9} {'published':>10} {'interval':>19} {'holds':>5} {'best plan':>10}"
            f" {'error':>8} {'holds':>5} {'x measured':>11} {'published':>9} {'best':>7}"
        )
        lines += [_line(each, points[0]) for each in points]
    every = [each for points in of.values() for each in points]
    beyond = [(each, points[0]) for points in of.values() for each in points[1:]]
    errors = [abs(gain(each, first, "predicted_s") / gain(each, first, "measured_s") - 1.0) for each, first in beyond]
    ours = [
        abs(gain(each, first, "best_s") / gain(each, first, "measured_s") - 1.0)
        for each, first in beyond
        if each.best_s > 0.0
    ]
    lines += [
        "",
        f"published plans: {sum(each.holds for each in every)} of {len(every)} measured steps lie in their interval; "
        f"speed-up off by {100 * np.median(errors):.1f} % (median), {100 * max(errors):.0f} % at most",
        f"best plans: {sum(each.best_holds for each in every)} of {len(every)} measured steps lie in theirs; "
        f"speed-up off by {100 * np.median(ours):.1f} % (median), {100 * max(ours):.0f} % at most",
    ]
    return "\n".join(lines) + "\n"


def gain(each: Point, first: Point, what: str) -> float:
    """Tokens a second over those of the smallest size."""
    return getattr(first, what) / getattr(each, what) * each.sequences / first.sequences


def _line(each: Point, first: Point) -> str:
    ends = f"{pretty(each.low_s, 's', 3)} .. {pretty(each.high_s, 's', 3)}"
    none = not each.best_s > 0.0
    best, error = (
        ("none", "") if none else (pretty(each.best_s, "s", 3), f"{100 * (each.best_s / each.measured_s - 1):+.0f} %")
    )
    gains = [gain(each, first, what) for what in ("measured_s", "predicted_s", "best_s")]
    return (
        f"{each.chips:>7,} {each.sequences:>6,.0f} {pretty(each.measured_s, 's', 3):>9} {pretty(each.predicted_s, 's', 3):>10} "
        f"{ends:>19} {'yes' if each.holds else 'no':>5} {best:>10} {error:>8} {'yes' if each.best_holds else 'no':>5} "
        f"{gains[0]:>11.3g} {gains[1]:>9.3g} {gains[2]:>7.3g}"
    )


if __name__ == "__main__":
    print(table(series()), end="")
