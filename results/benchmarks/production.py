"""How much slower long runs are than predicted benchmarks of the same plan: `python -m results.benchmarks.production`.

The straggler's sigma of `hwopt/data/operations/production.toml` is the mean over sources of the mean over their runs of

    (measured / predicted - 1 - stall) / E[max of N],

predicted with production's links and neither stalls nor stragglers. Runs that are held out have no part in it.
"""

import csv
import math
from importlib.resources import files
from typing import Any, NamedTuple

import hwopt
from hwopt import catalog
from tests.cases import replace
from tests.reference.plain.extremes import largest_of

TABLE = files("hwopt") / "data" / "runs" / "production.csv"


class Run(NamedTuple):
    """A line of the table and what is predicted of it."""

    row: dict[str, str]
    benchmark_s: float  # step with production's links
    production: Any  # report as it is run
    step_s: float  # measured

    @property
    def excess(self) -> float:
        """Of a measured step over a predicted benchmark."""
        return self.step_s / self.benchmark_s - 1.0


def inputs(row: dict[str, str], chips: int | None = None, **settings: Any) -> tuple[Any, Any, Any]:
    """Workload, cluster and plan of a line; on more `chips` with as much work a replica."""
    count = chips or int(row["chips"])
    batch = int(row["global_batch"]) * count / int(row["chips"])
    run = catalog.training_run(row["workload"], global_batch=batch, sequence_length=int(row["sequence_length"]))
    links = float(row["scale_out_gbit_per_s"]) / 8.0 * 1e9 if row["scale_out_gbit_per_s"] else None
    cluster = catalog.cluster(row["chip"], count, stack=row["stack"], scale_out_bytes_per_s=links, **settings)
    degrees = {name: int(row[name]) for name in ("tp", "pp", "virtual_stages", "micro_batch")}
    return run, cluster, catalog.plan(run, count, **degrees, recompute=row["recompute"])


def rows() -> list[dict[str, str]]:
    """Lines of the table."""
    return list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))


def run_of(row: dict[str, str]) -> Run:
    """A line with its predictions."""
    workload, cluster, plan = inputs(row)
    operated = hwopt.estimate(workload, cluster, plan)
    calm = replace(cluster, operation__stall_fraction=0.0, operation__straggler_sigma=0.0)
    alone = hwopt.estimate(workload, calm, plan)
    rate = float(operated.model_flops_per_chip_per_s) * float(operated.step_time_s) / 1e12
    measured = float(row["step_s"]) if row["step_s"] else rate / float(row["tflops_per_chip"])
    return Run(row, float(alone.step_time_s), operated, measured)


def straggler_sigma(runs: list[Run], stall: float) -> float:
    """The fit. **Arguments:** `runs`, of which those held out are passed over; `stall` fraction."""
    by_source: dict[str, list[float]] = {}
    for each in runs:
        if not each.row["held_out"]:
            share = (each.excess - stall) / largest_of(float(each.row["chips"]))
            by_source.setdefault(each.row["source"], []).append(share)
    return math.fsum(sum(shares) / len(shares) for shares in by_source.values()) / len(by_source)


if __name__ == "__main__":
    table = [run_of(row) for row in rows()]
    for each in table:
        predicted, rate = (
            float(getattr(each.production, name)) for name in ("step_time_s", "model_flops_per_chip_per_s")
        )
        print(f"{each.row['id']:16} benchmark {each.benchmark_s:7.2f} s, measured {each.step_s:7.2f} s (+{each.excess:.1%}), "
              f"predicted {predicted:7.2f} s, {rate / 1e12:.0f} TFLOP/s")  # fmt: skip
    print(f"sigma {straggler_sigma(table, float(catalog.operation().stall_fraction)):.4f}")
