"""Writes the half widths of serving predictions: python tests/benchmark/serving_widths.py (a minute)."""

from __future__ import annotations

import csv
from importlib.resources import files
from pathlib import Path

from hwopt import catalog
from hwopt.evidence.calibration.serving_widths import errors_of, write
from hwopt.evidence.validation import validate

DATA = files("hwopt") / "data"


def main() -> None:
    runs = Path(str(DATA / "runs" / "inference.csv"))
    with runs.open(encoding="utf-8", newline="") as file:
        experts = {row["id"]: row["moe_experts"] not in ("", "0") for row in csv.DictReader(file)}
    result = validate(runs)
    errors = errors_of(result, experts)
    chips = {row["accelerator"] for row in result["rows"] if row["status"] == "scored"}
    families = {str(catalog.record("chips", chip).text["architecture"]) for chip in chips}
    write(Path(str(DATA / "calibrations" / "serving.toml")), errors, sorted(families))


if __name__ == "__main__":
    main()
