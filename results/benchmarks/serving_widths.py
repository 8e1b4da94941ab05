"""Writes the half widths of serving predictions: how far they went wrong on measured services, each source left out in turn.

    python results/benchmarks/serving_widths.py

A minute. Rewrites `hwopt/data/calibrations/serving.toml`.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from importlib.resources import files
from pathlib import Path

import numpy as np

from hwopt import catalog
from hwopt.calibration.intervals import COVERAGE
from hwopt.calibration.validation import validate
from results.benchmarks.interval_width import weighted_quantile

DATA = files("hwopt") / "data"

EXPERTS_FLOOR = 0.15
"""How much wider, in the logarithm of the width, models with experts are at least (assumption: one source speaks for them)."""

Errors = list[tuple[str, tuple, bool, float]]
"""Source, cell, whether the model has experts, |log predicted - log measured|."""


def errors_of(result: dict, experts: dict[str, bool]) -> Errors:
    """The errors of `validate`'s rows that count.

    **Arguments:** `result` of `validate` on measured services; `experts`: whether the model of a row, by its id, has any.
    """
    return [
        (row["cell"][0], tuple(row["cell"]), experts[row["id"]], abs(math.log(row["predicted"] / row["measured"])))
        for row in result["rows"]
        if row["status"] == "scored" and row["counts"]
    ]


def half_widths(errors: Errors) -> dict[str, float]:
    """Widths that hold `COVERAGE` of the errors of dense models and of those with experts, cells counted equally."""
    dense, experts = (_width([each for each in errors if each[2] is with_experts]) for with_experts in (False, True))
    if not dense:
        raise ValueError("no errors of dense models: nothing to take a width from")
    return {"dense": dense, "experts": max(experts, dense * math.exp(EXPERTS_FLOOR))}


def _width(errors: Errors) -> float:
    sizes = Counter(cell for _, cell, _, _ in errors)
    weights = np.array([1.0 / sizes[cell] for _, cell, _, _ in errors])
    return weighted_quantile(np.array([each[3] for each in errors]), weights) if errors else 0.0


def text(errors: Errors, families: list[str]) -> str:
    """The data file `calibrations/serving.toml`."""
    lines = [
        f'title = "half widths of serving predictions, {len(errors)} measured rows in {len({e[1] for e in errors})} cells"',
        f'note = "hold {COVERAGE:.0%} of the errors, cells counted equally; made by python results/benchmarks/serving_widths.py"',
        f"families = [{', '.join(repr(x).replace(chr(39), chr(34)) for x in sorted(families))}]",
        "",
        "[half_widths]",
        *(f"{key} = {value:.4f}" for key, value in half_widths(errors).items()),
    ]
    for source in sorted({each[0] for each in errors}):
        others = half_widths([each for each in errors if each[0] != source])
        lines += ["", f'[left_out."{source}"]', *(f"{key} = {value:.4f}" for key, value in others.items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    runs = Path(str(DATA / "runs" / "inference.csv"))
    with runs.open(encoding="utf-8", newline="") as file:
        experts = {row["id"]: row["moe_experts"] not in ("", "0") for row in csv.DictReader(file)}
    result = validate(runs)
    errors = errors_of(result, experts)
    chips = {row["accelerator"] for row in result["rows"] if row["status"] == "scored"}
    families = {str(catalog.record("chips", chip).text["architecture"]) for chip in chips}
    Path(str(DATA / "calibrations" / "serving.toml")).write_text(text(errors, sorted(families)), encoding="utf-8")


if __name__ == "__main__":
    main()
