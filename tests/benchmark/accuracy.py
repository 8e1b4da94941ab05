"""Fits the shipped calibration, judges it, and writes constants, table and figure. Run from the top of a checkout:

    python tests/benchmark/accuracy.py

A few minutes. Rewrites `hwopt/data/calibrations/published.toml`, `results/reference/accuracy.txt` and
`results/figures/accuracy.png`.
"""

from __future__ import annotations

from pathlib import Path

from hwopt import catalog
from hwopt.evidence.calibration.published import gather, save
from hwopt.evidence.calibration.table import accuracy_table
from hwopt.evidence.validation import validate
from hwopt.plot.accuracy import plot_accuracy

ROOT = Path(__file__).parents[2]


def main() -> None:
    evidence = gather()
    save(evidence, ROOT / "hwopt" / "data" / "calibrations" / "published.toml")
    catalog.forget_calibrations()
    table = accuracy_table(evidence)
    (ROOT / "results" / "reference" / "accuracy.txt").write_text(table, encoding="utf-8")
    plot_accuracy(
        validate(ROOT / "hwopt" / "data" / "runs" / "train.csv"), ROOT / "results" / "figures" / "accuracy.png"
    )
    print(table)


if __name__ == "__main__":
    main()
