"""Measured training runs: the rows of a CSV table."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hwopt.evidence.validation.table import Layout, Table, load, typed


@dataclass(frozen=True)
class MeasuredRun:
    """One row. None: the source does not say. Columns beyond these are ignored."""

    line: int  # line of the file on which the row ends, the header being line 1
    id: str
    source: str
    source_locator: str
    notes: str
    model_name: str
    gpu: str
    precision: str
    zero_stage: str
    recompute: str
    seq_parallel: str
    measured_metric: str
    unit: str
    phase: str
    quality: str
    config_complete: str
    stack: str
    framework: str
    schedule: str
    measured_value: float | None
    params_B: float | None
    layers: int | None
    hidden: int | None
    ffn: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    seq_len: int | None
    vocab: int | None
    moe_experts: int | None
    moe_topk: int | None
    num_gpus: int | None
    gpus_per_node: int | None
    tp: int | None
    pp: int | None
    vpp: int | None
    cp: int | None
    ep: int | None
    expert_tp: int | None
    dp: int | None
    micro_batch: float | None
    global_batch_sequences: float | None
    mfu_peak_tflops: float | None
    year: int | None
    other_metrics: dict[str, str] = field(default_factory=dict)
    columns: frozenset[str] = frozenset()  # those the file has

    @property
    def configuration(self) -> tuple:
        """What two rows of the same run share, besides their cell."""
        words = (self.precision, self.zero_stage, self.recompute.lower() or "none")
        degrees = (self.layers, self.seq_len, self.num_gpus, self.tp, self.pp, self.vpp, self.cp, self.ep, self.dp)
        return (*words, *degrees, self.micro_batch, self.global_batch_sequences)


ESSENTIAL = ("model_name", "gpu", "num_gpus", "seq_len", "global_batch_sequences", "measured_metric", "measured_value")
"""Columns without which no row could be scored; a user's own file may have these alone."""

LAYOUT = Layout(
    MeasuredRun,
    ESSENTIAL,
    other_names={"quantity": "measured_metric", "value": "measured_value"},  # of the tables of measured memory
    may_be_zero=frozenset({"moe_experts", "moe_topk"}),
)


def read(path: str | Path) -> list[MeasuredRun]:
    """All rows of a CSV file of measured runs.

    **Arguments:** `path` of a UTF-8 CSV whose first line names the columns; `ESSENTIAL` must be among them.

    **Returns:** rows in the file's order; a row without an id is called `row-<line>`.

    **Raises:** `UserError` for a file that cannot be read as such, with file, row, column and what was likely meant.
    """
    return runs(load(path, ESSENTIAL))


def runs(table: Table) -> list[MeasuredRun]:
    """The rows of a table that is loaded.

    **Raises:** as `read`.
    """
    return [MeasuredRun(other_metrics=_pairs(cell), **values) for cell, values in typed(table, LAYOUT)]


def _pairs(cell: dict[str, str]) -> dict[str, str]:
    pairs = (pair.split("=", 1) for pair in cell.get("other_metrics", "").split(";") if "=" in pair)
    return {key.strip(): value.strip() for key, value in pairs}
