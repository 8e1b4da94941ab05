"""Extraction of peak-memory measurements, and of failed plans, from tables of training runs.

`python -m results.benchmarks.peak_memory RUNS.csv OUT.csv` writes the peak memory of each run as a row of its own. `...
RUNS.csv FAILED.csv OUT.csv` writes the plans of a sweep that failed. `... --score TABLE.csv` prints the errors of a collected
memory table by source.
"""

import csv
import re
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from hwopt.calibration.measured.collected_text import complete
from hwopt.calibration.measured.columns import MeasuredRun
from hwopt.calibration.validation import validate
from hwopt.errors import UserError

_PRINTED = re.compile(r"\bpeak_mem_(?:gb|gib)=(\d+(?:\.\d+)?)", re.IGNORECASE)


class _Reading(NamedTuple):
    """Meaning of the memory figure that a source prints."""

    words: str  # substring of the source's name
    metric: str
    unit: str


_READINGS = (
    _Reading(
        "nanotron", "first_stage_memory_reserved", "GiB"
    ),  # logged by rank 0; it was found not to grow with the output head
    _Reading("bigscience", "peak_memory_per_gpu", "GB"),  # nvidia-smi
    _Reading("trl pull", "max_memory_reserved", "GB"),
    _Reading("pith-train", "max_memory_reserved", "GiB"),
)


def _gathered(row: dict[str, str]) -> str:
    """Return the share of inputs gathered by sequence parallelism that nanotron keeps in memory: 0.8, but 0 with a pipeline.

    Found from the memory of the runs; the source does not state it.
    """
    return "0.8" if row["pp"] == "1" else "0"


PIPELINED_KEEP, PIPELINED_KEPT = 0.35, 0.57
"""Share of nanotron's pipelined runs that keep gathered inputs in memory, and the mean share that these runs keep. There are
291 runs with eight or more tensor-parallel ranks, where the effect is visible. 35 % of them keep more than a quarter, 0.57 on
average; half keep none. The source does not say which runs keep them, and the behavior of failed runs is equally unknown. Found
from successful runs only."""


def _gradient_bytes(row: dict[str, str]) -> str:
    """Return the gradient bytes per element of BLOOM's trial runs: 2 (16 bit only) before layers were rebalanced.

    Later runs keep 16-bit gradients and fp32 sums, which is the default of the stack (blank).
    """
    return "" if "rebalancing layers" in row.get("notes", "").lower() else "2"


def _settled(row: dict[str, str], reading: _Reading) -> dict[str, str]:
    settled = {"measured_metric": reading.metric, "unit": reading.unit}
    if reading.words == "nanotron":
        return settled | {"gathered_inputs": _gathered(row)}
    if reading.words != "bigscience":
        offloaded = "offload of its inputs" in row["notes"]
        return settled | ({"offloaded_activations": "1"} if offloaded else {})
    return settled | {"stack": "megatron-deepspeed-2022", "gradient_bytes": _gradient_bytes(row)}


def peaks(runs: str | Path) -> list[dict[str, str]]:
    """Return rows of runs with a printed peak memory, which becomes the measured value.

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
    """Return the plans of a sweep that crashed or ran out of memory, with the device's memory in place of a measured value.

    **Arguments:**

    - `runs`: successful runs of the sweep, from which model shapes are taken.
    - `failed`: failed plans.
    - `pipelined_keep`: assume that pipelined plans also keep the share `PIPELINED_KEPT` of gathered inputs.
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


_METRICS = {
    "peak_memory": "max_memory_reserved",  # logged by the training loop, from the allocator
    "device_memory_used": "peak_memory_per_gpu",
    "verdict": "peak_memory_per_gpu",
}
"""Quantity of a collected memory table -> metric; others stay."""


NOT_PRINTED = "1"
"""Measured value, in GB, of a run of which only the verdict is known."""


def collected(path: str | Path) -> list[dict[str, str]]:
    """Return the training runs of a collected memory table, with the verdict as reason for those that ran out of memory.

    A run without a printed peak gets 1 GB, and is scored for its verdict alone. Quality C of a complete configuration concerns
    the time of the run, so that its memory is scored. Near duplicates, and rows without a number of chips, are left out.
    """
    rows = []
    for row in _rows(path):
        if row.get("near_duplicate_of") or not row["num_gpus"] or row.get("phase", "train") not in ("", "train"):
            continue
        complete = row.get("config_complete") == "y" and row["quality"] == "C"
        rows.append(
            {name: cell for name, cell in row.items() if name not in ("quantity", "value")}
            | {
                "measured_metric": _METRICS.get(row["quantity"], row["quantity"]),
                "measured_value": row["value"] or NOT_PRINTED,
            }
            | {"unit": row["unit"] if row["value"] else "GB", "quality": "B" if complete else row["quality"]}
            | {"verdict": row.get("verdict", "ran"), "global_batch_sequences": _batch(row)}
            | _trainer(row)
        )
    return rows


def _trainer(row: dict[str, str]) -> dict[str, str]:
    """Return what the code of a trainer says of all its rows, where it differs from the software stack that is closest.

    KempnerForge computes the loss of 16-bit logits without a 32-bit copy: output, its log-softmax, and the gradient of each, 2
    bytes each (`scripts/train.py`). With tensor parallelism the head gathers its output, so that every rank has all logits
    (`distributed/tensor_parallel.py`). Its memory is that of the first rank.
    """
    if not row.get("framework", "").startswith("KempnerForge"):
        return {}
    return {"logit_bytes": str(8 * int(row["tp"] or 1)), "measured_metric": "first_stage_memory_reserved"}


def _batch(row: dict[str, str]) -> str:
    """Return the sequences of a step: as stated, else two micro-batches a replica, which take the memory of more."""
    return row["global_batch_sequences"] or str(2.0 * float(row["micro_batch"] or 0) * float(row["dp"] or 0) or "")


def write(rows: list[dict[str, str]], out: str | Path) -> None:
    """Write rows as a table of measured runs."""
    with Path(out).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def scored(rows: list[dict[str, str]]) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """Return rows with their predictions, as `hwopt.calibration.validation.validate` answers them."""
    with TemporaryDirectory() as folder:
        write(rows, table := Path(folder) / "rows.csv")
        return list(zip(rows, validate(table)["rows"], strict=True))


def score_lines(path: str | Path) -> list[str]:
    """Return the errors of a collected memory table by source, with and without words of memory formats, and the verdicts."""
    rows = collected(path)
    blank = dict.fromkeys(("memory_formats", "offloaded_optimizer", "offloaded_weights"), "")
    plain = {row["id"]: answer for row, answer in scored([row | blank for row in rows])}
    found = [(row, answer, plain[row["id"]]) for row, answer in scored(rows) if answer["status"] == "scored"]
    heads = (
        f"{'':48}",
        "  rows",
        "  words",
        "  median error",
        "  largest",
        "  median without words",
        "  ran: fit",
        "  out: fit",
    )
    lines = ["".join(heads)]
    for source in (*dict.fromkeys(row["source"] for row, *_ in found), None):
        own = [each for each in found if source in (None, each[0]["source"])]
        printed = [each for each in own if each[0]["measured_value"] != NOT_PRINTED]
        with_words, without = ([abs(each[k]["error"]) for each in printed] for k in (1, 2))
        errors = [median(with_words), max(with_words), median(without)] if printed else []
        cells = [str(len(own)), str(sum(bool(words_of(row)) for row, *_ in own))]
        cells += [f"{100.0 * error:.1f} %" for error in errors] or ["", "", ""]
        for ran in (True, False):
            fits = [answer["fits"] for row, answer, _ in own if (row["verdict"] == "ran") is ran]
            cells.append(f"{sum(fits)} of {len(fits)}" if fits else "")
        widths = map(len, heads[1:])
        lines.append(
            f"{(source or 'all')[:46]:48}"
            + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        )
    return lines


def words_of(row: dict[str, str]) -> str:
    """Return the words of memory formats that are read from a row."""
    cells = dict(row)
    complete(cells, MeasuredRun, row)
    return cells.get("memory_formats", "")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--score":
        sys.stdout.write("\n".join([*score_lines(sys.argv[2]), ""]))
        sys.exit()
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: python -m results.benchmarks.peak_memory RUNS.csv [FAILED.csv] OUT.csv, or --score TABLE.csv")
    try:
        write(peaks(sys.argv[1]) if len(sys.argv) == 3 else failures(*sys.argv[1:3]), sys.argv[-1])
    except UserError as error:
        sys.exit(str(error))
