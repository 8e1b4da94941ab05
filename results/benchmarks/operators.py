"""Measured runs of models that are tables of operators beside predictions: `python -m results.benchmarks.operators`.

Rows, with their sources, stand in `hwopt/data/runs/operators.csv`. Two constants were chosen on the row of quality B, which is
left out of medians. The widths of five priors were chosen with the median of all rows in view (`hwopt.hardware.calibration`).
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import NamedTuple

from hwopt import catalog
from hwopt.calibration.intervals import COVERAGE
from hwopt.catalog.names import find
from hwopt.model.estimate import estimate
from hwopt.trace.cache import evaluate_in_numpy
from hwopt.workload.transformer import total_parameters

TABLE = files("hwopt") / "data" / "runs" / "operators.csv"

LOCAL = 1e-3
"""Bytes of a token that are read over the network: benchmarks read local drives, which are taken to keep up."""


class Compared(NamedTuple):
    """A row and what the model says of it, both in samples or tokens a second."""

    row: Mapping[str, str]
    measured: float
    predicted: float
    memory: float  # share of a chip's memory that is predicted

    @property
    def error(self) -> float:
        """Relative error."""
        return self.predicted / self.measured - 1.0


def rows() -> list[dict[str, str]]:
    """The measured rows."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def compared(row: Mapping[str, str]) -> Compared:
    """A row beside the model's answer for the plan it states, as a benchmark runs."""
    chips, batch, length = (float(row[name]) for name in ("num_gpus", "global_batch_sequences", "seq_len"))
    shape = {} if length == 1.0 else {"sequence_length": length}
    shape["input_bytes_per_token"] = LOCAL
    run = catalog.training_run(row["model_name"], global_batch=batch, precision=row["number_format"], **shape)
    cluster = catalog.cluster(
        find("chips", row["gpu"]), chips, stack=row["stack"], operation="benchmark", domain=float(row["gpus_per_node"])
    )
    settings = {"tp": row["tp"], "ep": row["ep"], "zero": row["zero"], "micro_batch": row["micro_batch"]}
    report = evaluate_in_numpy(estimate, run, cluster, catalog.plan(run, chips, **settings))
    per_step = batch if row["measured_metric"] == "samples_per_s" else batch * length
    value = float(row["measured_value"])
    measured = per_step / value if row["measured_metric"] == "iter_time_s" else value
    share = float(report.memory_per_chip_bytes / report.memory_capacity_bytes)
    return Compared(row, measured, per_step / float(report.step_time_s), share)


def _medians(found: list[Compared]) -> Iterator[str]:
    """Median error of each model and software, of rows that nothing was chosen on."""
    groups: dict[tuple[str, str], list[float]] = {}
    for each in found:
        if each.row["quality"] != "B":
            model = (
                each.row["model_name"].rpartition("-")[0]
                if "criteo" in each.row["model_name"]
                else each.row["model_name"]
            )
            groups.setdefault((model, each.row["stack"]), []).append(abs(math.log1p(each.error)))
    for (model, stack), errors in sorted(groups.items()):
        yield f"{model:<16}{stack:<20}{len(errors):>4} rows  median {100 * math.expm1(median(errors)):6.1f} %"
    every = [error for errors in groups.values() for error in errors]
    yield f"{'all rows':<36}{len(every):>4} rows  median {100 * math.expm1(median(every)):6.1f} %"
    middles = [median(errors) for errors in groups.values()]
    yield f"{'of groups':<36}{len(middles):>4} groups median {100 * math.expm1(median(middles)):6.1f} %"


def widths(found: list[Compared], without: str = "") -> dict[str, float]:
    """Half widths, in the logarithm, that hold four in five: of models that were measured, and of others.

    Cells (source, model, chip) count equally, each by the root mean square of its errors. A measured model meets another cell:
    the conformal quantile of the cells, the `ceil(0.8 (n + 1))`-th of n. Another model meets a new one: that quantile of the
    models' own, the worst of seven. **Arguments:** a source `without` which.
    """
    cells: dict[tuple[str, str, str], list[float]] = {}
    for each in found:
        row = each.row
        if row["quality"] != "B" and row["source"] != without:
            cells.setdefault((row["source"], row["model_name"], row["gpu"]), []).append(math.log1p(each.error))
    sizes = {cell: math.sqrt(sum(x * x for x in errors) / len(errors)) for cell, errors in cells.items()}
    models: dict[str, list[float]] = {}
    for (_, model, _), size in sizes.items():
        models.setdefault(model, []).append(size)
    return {"measured": _quantile([*sizes.values()]), "other": _quantile([sum(x) / len(x) for x in models.values()])}


def _quantile(values: list[float]) -> float:
    place = min(math.ceil(COVERAGE * (len(values) + 1)), len(values))
    return sorted(values)[place - 1]


def widths_text(found: list[Compared]) -> str:
    """The data file `calibrations/operators.toml`."""
    models = sorted({each.row["model_name"] for each in found})
    sources = sorted({each.row["source"] for each in found})
    counted = [each for each in found if each.row["quality"] != "B"]
    lines = [
        f'title = "half widths of predictions of operator tables, {len(counted)} measured rows of {len(sources)} sources"',
        'note = "conformal over cells for models that were measured, over models for others: the worst of so few; made by '
        'python -m results.benchmarks.operators --widths"',
        "",
        "[half_widths]",
        *(f"{name} = {value:.4f}" for name, value in widths(found).items()),
        "",
        "[parameters]",
        *(f'"{name}" = {float(total_parameters(catalog.model_of(name))):.0f}' for name in models),
    ]
    for source in sources:
        lines += [
            "",
            f'[left_out."{source}"]',
            *(f"{key} = {value:.4f}" for key, value in widths(found, source).items()),
        ]
    return "\n".join([*lines, ""])


def main() -> None:
    """Prints every row, then medians; with `--widths`, writes what intervals are made of."""
    found = [compared(row) for row in rows()]
    if "--widths" in sys.argv[1:]:
        Path(str(files("hwopt") / "data" / "calibrations" / "operators.toml")).write_text(
            widths_text(found), encoding="utf-8"
        )
        return
    print("Samples a second (Nemotron-H, GNMT: tokens), predicted and measured; * a constant was chosen on it")
    print(
        f"{'model':<20}{'chip':<16}{'chips':>6} {'format':<6}{'software':<20}{'measured':>13}{'predicted':>13}{'error':>9}  memory"
    )
    for each in found:
        row, mark = each.row, "*" if each.row["quality"] == "B" else ""
        print(
            f"{row['model_name']:<20}{row['gpu']:<16}{row['num_gpus']:>6} {row['number_format']:<6}{row['stack']:<20}"
            f"{each.measured:>13,.0f}{each.predicted:>13,.0f}{100 * each.error:>+8.1f}%{mark:<1} {100 * each.memory:5.0f} %"
        )
    print()
    print("\n".join(_medians(found)))


if __name__ == "__main__":
    main()
