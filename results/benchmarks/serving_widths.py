"""Writes the half widths of serving predictions: how far they went wrong on measured services, each source left out in turn.

    python results/benchmarks/serving_widths.py

A minute. Rewrites `hwopt/data/calibrations/serving.toml`. Levels of step time by software or chip family were tried as well: with
the row's source left out they made errors larger (median 13.1 to 14.4 %, mean 15.1 to 16.5 % over all cells), so there are none.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hwopt import catalog
from hwopt.calibration.intervals import COVERAGE, SERVING_FLOORS, PredictionContext, serving_terms
from hwopt.calibration.validation.score import Cell, Scored
from results.benchmarks.interval_width import fit_widths
from results.benchmarks.serving_accuracy import counting, held_out

DATA = files("hwopt") / "data"

RIDGE = 10.0
"""Penalty on each coefficient above its minimum, as in `interval_width`. Of 3, 10 and 60 this value has the least interval score
with sources left out."""


class WidthError(NamedTuple):
    """Error of one measured service, with what its interval depends on."""

    cell: Cell
    stack: str
    family: str  # architecture of the chip
    terms: tuple[float, ...]  # in the order of `SERVING_FLOORS`
    size: float  # |log predicted - log measured|


def errors_of(rows: Sequence[Scored]) -> list[WidthError]:
    """The errors of scored services."""
    found = []
    for row in rows:
        family = str(catalog.record("chips", row.accelerator).text["architecture"])
        sequences = row.row.batch / float(row.case.plan.dp)
        of = PredictionContext(sequences=sequences) if math.isfinite(sequences) else PredictionContext()
        on = serving_terms(row.case.workload, family, row.stack, "", of)
        terms = tuple(on[name] for name in SERVING_FLOORS)
        found.append(WidthError(row.cell, row.stack, family, terms, abs(math.log(row.time_ratio))))
    return found


def half_widths(errors: Sequence[WidthError]) -> dict[str, float]:
    """Coefficients of widths that hold `COVERAGE` of the errors, cells counted equally."""
    if not any(not any(each.terms) for each in errors):
        raise ValueError("no errors of dense models: nothing to take a width from")
    sizes = Counter(each.cell for each in errors)
    weights = np.array([1.0 / sizes[each.cell] for each in errors])
    features = np.array([each.terms for each in errors])
    return fit_widths(np.array([each.size for each in errors]), features, weights, SERVING_FLOORS, RIDGE)


def text(errors: Sequence[WidthError]) -> str:
    """The data file `calibrations/serving.toml`."""
    lines = [
        f'title = "half widths of serving predictions, {len(errors)} measured rows in {len({e.cell for e in errors})} cells"',
        f'note = "exp(base + terms) holds {COVERAGE:.0%} of the errors, cells counted equally; made by python '
        'results/benchmarks/serving_widths.py"',
    ]
    for title, of in (("stacks", lambda e: e.stack), ("families", lambda e: e.family)):
        studies: dict[str, set[str]] = defaultdict(set)
        for each in errors:
            studies[of(each)].add(each.cell[0])
        listed = (", ".join(f'"{source}"' for source in sorted(studies[name])) for name in sorted(studies))
        lines += ["", f"[{title}]", *(f"{name} = [{each}]" for name, each in zip(sorted(studies), listed, strict=True))]
    lines += ["", "[half_widths]", *(f"{key} = {value:.4f}" for key, value in half_widths(errors).items())]
    for source in sorted({each.cell[0] for each in errors}):
        others = half_widths([each for each in errors if each.cell[0] != source])
        lines += ["", f'[left_out."{source}"]', *(f"{key} = {value:.4f}" for key, value in others.items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    found = text(errors_of(held_out(counting())))
    Path(str(DATA / "calibrations" / "serving.toml")).write_text(found, encoding="utf-8")


if __name__ == "__main__":
    main()
