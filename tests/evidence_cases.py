"""Rows of measured runs for tests: from words, as collected tables have them, or from columns."""

from __future__ import annotations

from hwopt.calibration.measured.collected_text import complete
from hwopt.calibration.measured.columns import MeasuredRow, MeasuredRun, columns_of

RUN = MeasuredRun(
    line=2, num_gpus=8, seq_len=1000, global_batch_sequences=16.0, measured_metric="iter_time_s", measured_value=2.0
)


def inferred_columns(kind: type[MeasuredRow] = MeasuredRun, **cells: str) -> dict[str, str]:
    """Columns that the words of a row fill."""
    filled = dict(cells)
    return {name: filled[name] for name in sorted(complete(filled, kind, ()))}


def row_of(kind: type[MeasuredRow] = MeasuredRun, **cells: str) -> MeasuredRow:
    """A row with what its words say."""
    complete(cells, kind, ())
    declared = columns_of(kind)
    return kind(
        line=2, **{name: declared[name].read(cell) for name, cell in cells.items() if cell and name in declared}
    )
