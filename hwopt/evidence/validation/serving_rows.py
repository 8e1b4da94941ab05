"""Measured serving runs: the rows of a CSV table of latencies and throughputs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from hwopt.errors import UserError
from hwopt.evidence.validation.table import Layout, Table, load, number, typed


@dataclass(frozen=True)
class MeasuredService:
    """One row. None: the source does not say. Columns beyond these are ignored."""

    line: int  # line of the file on which the row ends, the header being line 1
    id: str
    source: str
    source_locator: str
    notes: str
    model_name: str
    gpu: str
    weight_precision: str
    kv_precision: str
    batch: str  # sequences that run at once, or `max ...`: as many as the engine takes
    metric: str
    unit: str
    quality: str
    stack: str
    value: float | None
    params_B: float | None
    layers: int | None
    hidden: int | None
    ffn: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    vocab: int | None
    moe_experts: int | None
    moe_topk: int | None
    num_gpus: int | None
    gpus_per_node: int | None
    tp: int | None
    pp: int | None
    ep: int | None
    input_tokens: float | None
    output_tokens: float | None
    year: int | None
    sequences: float | None = None  # that run at once, of all replicas
    largest: bool = False  # the engine chose the batch: a maximum over batches
    columns: frozenset[str] = frozenset()  # those the file has

    @property
    def measured_metric(self) -> str:
        return self.metric

    @property
    def measured_value(self) -> float | None:
        return self.value

    @property
    def precision(self) -> str:
        return self.weight_precision

    @property
    def configuration(self) -> tuple:
        """What two rows of the same run share, besides their cell."""
        lengths = (self.batch, self.input_tokens, self.output_tokens)
        formats = (self.weight_precision, self.kv_precision)
        # Tables of latency and of throughput are runs of their own.
        return (*formats, self.num_gpus, self.tp, self.pp, self.ep, *lengths, self.source_locator.split("@")[0])


ESSENTIAL = ("model_name", "gpu", "num_gpus", "batch", "input_tokens", "output_tokens", "metric", "value")
"""Columns without which no row could be scored; a user's own file may have these alone."""

LAYOUT = Layout(
    MeasuredService,
    ESSENTIAL,
    may_be_zero=frozenset({"moe_experts", "moe_topk"}),
    not_columns=frozenset({"line", "columns", "sequences", "largest"}),
    read_apart=frozenset({"kv_heads"}),
)


def is_serving(table: Table) -> bool:
    """Whether a table's header is one of serving runs: requests by their tokens, and no global batch."""
    return (table.has("input_tokens") or table.has("output_tokens")) and not table.has("global_batch_sequences")


def read(path: str | Path) -> list[MeasuredService]:
    """All rows of a CSV file of measured serving runs.

    **Arguments:** `path` of a UTF-8 CSV whose first line names the columns; `ESSENTIAL` must be among them.

    **Returns:** rows in the file's order; a row without an id is called `row-<line>`.

    **Raises:** `UserError` for a file that cannot be read as such, with file, row, column and what was likely meant.
    """
    return services(load(path, ESSENTIAL))


def services(table: Table) -> list[MeasuredService]:
    """The rows of a table that is loaded.

    **Raises:** as `read`.
    """
    rows = []
    for cell, values in typed(table, LAYOUT):
        heads = cell.get("kv_heads", "")
        latent = re.fullmatch(r"mla|latent.*", heads, re.I)  # the catalogue knows the layout
        kv_heads = (
            None if latent else cast("int | None", number(table.path, values["line"], "kv_heads", heads, whole=True))
        )
        row = _batched(table.path, MeasuredService(kv_heads=kv_heads, **values))
        rows.append(_checked(table.path, row))
    return rows


_AT_LEAST_ONE = ("input_tokens", "output_tokens", "sequences")


def _checked(path: Path, row: MeasuredService) -> MeasuredService:
    """The row, its lengths and its batch one or more."""
    for name in _AT_LEAST_ONE:
        value = getattr(row, name)
        if value is not None and value < 1.0:
            column = "batch" if name == "sequences" else name
            raise UserError(f"{path}: row at line {row.line}, column '{column}': {value:g} must be at least 1")
    return row


def _batched(path: Path, row: MeasuredService) -> MeasuredService:
    if re.match(r"max", row.batch, re.I):
        return replace(row, largest=True)
    try:
        return replace(row, sequences=number(path, row.line, "batch", row.batch, whole=False))
    except UserError as error:
        raise UserError(f"{error}; or write max where the engine chose it") from None
