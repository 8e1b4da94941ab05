"""Measured runs of models that are tables of operators beside predictions: `python -m tests.benchmark.operators`.

Rows, with their sources, stand in `hwopt/data/runs/operators.csv`. Two constants were chosen on the row of quality B, which is
 left out of medians.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from importlib.resources import files
from statistics import median
from typing import NamedTuple

from hwopt import catalog
from hwopt.catalog.names import find
from hwopt.jaxprs.kept import estimated
from hwopt.model.estimate import estimate

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
    report = estimated(estimate, run, cluster, catalog.plan(run, chips, **settings))
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


def main() -> None:
    """Prints every row, then medians."""
    found = [compared(row) for row in rows()]
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
