"""The `[[layer_kinds]]` rows of a workload entry: how many layers of each kind a model has, and how they differ."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from hwopt.errors import UserError, suggest
from hwopt.quantity import quantities
from hwopt.workload.transformer import LayerKinds, Transformer

LAYER_KINDS = "layer_kinds"
"""Key of the list of layer kinds in a workload entry."""

MOST_KINDS = 6
"""Largest number of layer kinds in a model's trace."""

_OF_MODEL = (
    "layers", "hidden", "vocab", "tied_embeddings", "learned_positions", "moe_layers", "experts", "experts_per_token",
    "misaligned_heads",
)  # fmt: skip
"""Fields that all layers of a model share."""

_OF_HEADS = ("heads", "kv_heads", "qk_dim", "v_dim")
"""Fields that no layer states as 0: the model divides by them."""

_ABOUT = ("kind", "source", "note")

Row = Mapping[str, float]


def may_differ() -> tuple[str, ...]:
    """Return the fields of `Transformer` that a kind of layers may state for itself."""
    return tuple(name for name in quantities(Transformer) if name not in _OF_MODEL)


def absent_parts(stated: Collection[str]) -> dict[str, float]:
    """Return the value of each mechanism field that belongs to a stated mechanism: 0, and 1 for `attends`.

    A mechanism is the fields that start with the same word, such as `scan_`. So a model states all fields of a mechanism or none.
    """
    words = {name.split("_")[0] for name, each in quantities(Transformer).items() if each.absent and name in stated}
    fields = (name for name, each in quantities(Transformer).items() if each.absent and name.split("_")[0] in words)
    return {name: float(name == "attends") for name in fields}


def read_layer_kinds(
    rows: object, sources: Mapping[str, str], kinds: Sequence[str], where: str, own: bool
) -> tuple[Row, ...]:
    """Return the layer kinds of a file's list: `layers`, `moe` (1: experts) and the fields that differ, by name.

    **Arguments:** as in `hwopt.catalog.operator_rows.read_operators`.

    **Raises:** `UserError` for a row with an unknown key, a bad number, or without source in a shipped file.
    """
    if not isinstance(rows, list) or not rows:
        raise UserError(
            f"{where}: '{LAYER_KINDS}' must be a list of rows, such as {{ layers = 36, window_tokens = 512 }}"
        )
    return tuple(_row(row, sources, kinds, f"{where}: layer kind {number}", own) for number, row in enumerate(rows, 1))


def _most(field: str) -> float:
    """Return the largest value of a field of a row."""
    declared = quantities(Transformer).get(field)
    return math.inf if declared is None or field == "layers" else declared.most


def _row(row: object, sources: Mapping[str, str], kinds: Sequence[str], at: str, own: bool) -> Row:
    known = ("layers", "moe", *may_differ())
    if not isinstance(row, Mapping) or "layers" not in row:
        raise UserError(f"{at} must be a table with its number of 'layers'")
    for key, value in row.items():
        if key in _ABOUT:
            continue
        if key not in known:
            raise UserError(f"{at}: unknown key '{key}': {suggest(key, known)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < math.inf:
            raise UserError(f"{at}: '{key}' must be a number of at least 0, not {value!r}")
        if key in _OF_HEADS and value < 1.0:
            raise UserError(
                f"{at}: '{key}' = {value:g} must be at least 1; a layer without attention states attends = 0"
            )
        if value > (most := 1.0 if key == "moe" else _most(key)):
            raise UserError(f"{at}: '{key}' = {value:g} must lie between 0 and {most:g}")
    if row["layers"] < 1 or row["layers"] != round(row["layers"]):
        raise UserError(f"{at}: 'layers' = {row['layers']!r} must be an integer of at least 1")
    for key, allowed in (("kind", kinds), ("source", sources)):
        if key not in row and not own:
            raise UserError(f"{at} lacks '{key}'")
        if key in row and row[key] not in allowed:
            raise UserError(f"{at} has the unknown {key} {row[key]!r}: {suggest(str(row[key]), allowed)}")
    return {key: float(value) for key, value in row.items() if key not in _ABOUT}


def layer_kinds(shape: Mapping[str, float], rows: Sequence[Row], where: str) -> LayerKinds | None:
    """Return the kinds of layers of a model; None without rows.

    Equal kinds become one. A row without `moe` has experts only where all layers of the model have. A field that only some rows
    state has the model's value, else 0, in the others. Of more than `MOST_KINDS` kinds, those that differ only in the width of
    their dense MLP are averaged, the closest widths first: the numbers of parameters and FLOPs stay.

    **Arguments:** `shape`: the model's fields; `rows`: as from `read_layer_kinds`; `where`: the file's name for messages.

    **Raises:** `UserError` where the rows' layers do not add up to the model's, and for too many kinds.
    """
    if not rows:
        return None
    every = float(shape.get("moe_layers", 0.0) == shape["layers"])
    rows = [{"moe": every} | dict(row) for row in rows]
    total, moe = (
        sum(row[key] * row["layers"] if key == "moe" else row[key] for row in rows) for key in ("layers", "moe")
    )
    if total != shape["layers"] or moe != shape.get("moe_layers", 0.0):
        raise UserError(
            f"{where}: '{LAYER_KINDS}' add up to {total:g} layers, {moe:g} of them with experts, but 'layers' is "
            f"{shape['layers']:g} and 'moe_layers' {shape.get('moe_layers', 0.0):g}"
        )
    names = sorted({key for row in rows for key in row} - {"layers", "moe"})
    counts: dict[tuple[float, ...], float] = {}
    for row in rows:
        one = (row["moe"], *(row.get(name, shape.get(name, 0.0)) for name in names))
        counts[one] = counts.get(one, 0.0) + row["layers"]
    counts = _fewer(counts, names.index("ffn") + 1 if "ffn" in names else 0, where)
    columns = list(zip(*counts, strict=True))
    differing = {name: column for name, column in zip(names, columns[1:], strict=True)}
    return LayerKinds(
        share=_array([count / total for count in counts.values()]),
        moe=_array(columns[0]),
        values={name: _array(column) for name, column in differing.items()},
    )


def _array(numbers: Sequence[float]) -> Any:
    return np.asarray(numbers, np.float64)


def _fewer(counts: dict[tuple[float, ...], float], width: int, where: str) -> dict[tuple[float, ...], float]:
    """Return at most `MOST_KINDS` kinds: merge the two closest in width, with their mean width, until they are few enough.

    **Arguments:** `counts`: layers of each kind; `width`: position of the dense width in a kind, 0: none.
    """
    while len(counts) > MOST_KINDS:
        pairs = [
            (abs(a[width] - b[width]), a, b)
            for a in counts for b in counts
            if a < b and width and a[:width] + a[width + 1 :] == b[:width] + b[width + 1 :]
        ]  # fmt: skip
        if not pairs:
            raise UserError(f"{where}: has {len(counts)} kinds of layers; hwopt models up to {MOST_KINDS}")
        _, a, b = min(pairs)
        both = counts[a] + counts[b]
        mean = (counts[a] * a[width] + counts[b] * b[width]) / both
        merged = (*a[:width], mean, *a[width + 1 :])
        rest = {each: count for each, count in counts.items() if each not in (a, b)}
        counts = rest | {merged: rest.get(merged, 0.0) + both}
    return counts
