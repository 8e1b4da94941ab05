"""Peak memory that a table of training runs prints beside their speed, as rows of its own; and the plans of a sweep that failed.

`python -m hwopt.calibration.measured.peak_memory RUNS.csv OUT.csv` writes the first, `... RUNS.csv FAILED.csv OUT.csv` the second.
"""

import csv
import re
import sys
from pathlib import Path
from typing import NamedTuple

from hwopt.errors import UserError

_PRINTED = re.compile(r"\bpeak_mem_gb=(\d+(?:\.\d+)?)")


class _Reading(NamedTuple):
    """What a source's figure is."""

    words: str  # of the source
    metric: str
    unit: str


_READINGS = (
    _Reading(
        "nanotron", "first_stage_memory_reserved", "GiB"
    ),  # logged by rank 0; found: it does not grow with the head
    _Reading("bigscience", "peak_memory_per_gpu", "GB"),  # nvidia-smi
)


def _gathered(row: dict[str, str]) -> str:
    """Share of gathered inputs that runs of nanotron's sweep keep: without a pipeline four in five keep them, with one none
    (found from their memory; the source does not say).
    """
    return "0.8" if row["pp"] == "1" else "0"


PIPELINED_KEEP, PIPELINED_KEPT = 0.35, 0.57
"""Of nanotron's pipelined runs, how many keep gathered inputs all the same, and what share of them: of 291 runs on eight and more
tensor-parallel ranks, where it shows, 35 % read more than a quarter, 0.57 in the mean, and half read none. The source does not say
which; what a run that failed did is as open. Found from the memory of runs that went through alone."""


def _gradient_bytes(row: dict[str, str]) -> str:
    """Until layers were rebalanced BLOOM's trials held gradients once, in 16 bit; from then on 16 bit and fp32 sums."""
    return "" if "rebalancing layers" in row.get("notes", "").lower() else "2"


def _settled(row: dict[str, str], reading: _Reading) -> dict[str, str]:
    settled = {"measured_metric": reading.metric, "unit": reading.unit}
    if reading.words == "nanotron":
        return settled | {"gathered_inputs": _gathered(row)}
    return settled | {"stack": "megatron-deepspeed-2022", "gradient_bytes": _gradient_bytes(row)}


def peaks(runs: str | Path) -> list[dict[str, str]]:
    """Rows of runs that print a peak memory, with that as what was measured.

    **Arguments:** `runs`: a collected table with `other_metrics`.
    """
    rows = []
    for row in _rows(runs):
        printed = _PRINTED.search(row.get("other_metrics", ""))
        reading = next((each for each in _READINGS if each.words in row["source"].lower()), None)
        if printed and reading:
            rows.append(row | _settled(row, reading) | {"measured_value": printed[1], "other_metrics": ""})
    return rows


def failures(runs: str | Path, failed: str | Path, *, pipelined_keep: bool = False) -> list[dict[str, str]]:
    """Plans of a sweep that crashed or ran out of memory, as rows whose measured memory is unknown: the device's stands there.

    **Arguments:** `runs` of the sweep that went through, whose models lend their shapes; `failed` plans; `pipelined_keep`: with
    a pipeline, too, they keep gathered inputs, `PIPELINED_KEPT` of them.
    """
    shapes = {row["model_name"]: row for row in peaks(runs)}
    domain = {name: int(row["gpus_per_node"]) for name, row in shapes.items()}
    rows = []
    for number, plan in enumerate(_rows(failed), start=1):
        model = shapes[plan["model_name"]]
        sharded = {"0": "ddp", "1": "distributed-optimizer(zero1)"}[plan["zero_stage"]]
        row = model | {name: plan[name] for name in ("tp", "pp", "dp", "micro_batch")}
        row |= {"id": f"failed-{number:04}", "zero_stage": sharded, "measured_value": "80"}
        row |= {"num_gpus": str(int(plan["nodes"]) * domain[plan["model_name"]]), "notes": plan["outcome"]}
        kept = str(PIPELINED_KEPT) if pipelined_keep and plan["pp"] != "1" else _gathered(plan)
        row |= {"seq_parallel": "yes" if plan["tp"] != "1" else "no", "gathered_inputs": kept}
        rows.append(row)
    return rows


def _rows(path: str | Path) -> list[dict[str, str]]:
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None


def write(rows: list[dict[str, str]], out: str | Path) -> None:
    """Writes rows as a table of measured runs."""
    with Path(out).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: python -m hwopt.calibration.measured.peak_memory RUNS.csv [FAILED.csv] OUT.csv")
    try:
        write(peaks(sys.argv[1]) if len(sys.argv) == 3 else failures(*sys.argv[1:3]), sys.argv[-1])
    except UserError as error:
        sys.exit(str(error))
