"""Types of operators as users describe them, and their rows of the operator table.

Fields are keys of a workload's `[[operators]]`.
"""

import math
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

import numpy as np

from hwopt.workload.mechanisms.scan import SCAN_PASSES, STATE_PASSES
from hwopt.workload.operators import Operators
from hwopt.workload.transformer import TOKEN

SCAN_FLOPS = 9.0
"""FLOPs per channel and state element of a selective scan, forward.

**Source:** `flops_selective_scan_ref` of VMamba's code and of Vision Mamba's, both `9 B L D N`. This covers
discretization, recurrence and the product with C, counted by hand: 1 exp and 3 products for the first, 2 for the
recurrence, 2 for C, 1 sum.
"""

WHOLE, COLUMNS, INNER, CHANNELS, RESIDUAL = "whole", "columns", "inner", "channels", "residual"
SPLITS = (WHOLE, COLUMNS, INNER, CHANNELS, RESIDUAL)
"""Effects of tensor parallelism on an operator: not split, or split by output columns, inner dimension, channels, or
tokens."""

_VECTORS = (
    "count", "per_token", "per_sample", "columns", "inner", "inner_read", "groups", "sequential", "wide", "weights",
    "attention_width", "attention_heads", "causal", "core_flops", "vector_flops", "streamed", "stored", "kernels", "looked_up",
    "exchanged", "table_weights", "columns_split", "inner_split", "channels_split", "residual",
)  # fmt: skip

Row = dict[str, float]
"""Numbers of a row, named by the vectors of `Operators`; missing ones are 0."""


@dataclass(frozen=True, kw_only=True)
class Operator:
    """Describe one kind of operator of a model, as a base class.

    **Arguments:**

    - `count`: how often the model contains it.
    - `rows`: number of input vectors that it processes for each training sample; 0 means one for each token.
    """

    op: ClassVar[str]

    count: float = 1.0
    rows: float = 0.0

    def table_rows(self) -> list[Row]:
        """Return the operator's rows of the table."""
        raise NotImplementedError

    def _row(self, split: str = WHOLE, /, **numbers: float) -> Row:
        used = {"per_sample": self.rows} if self.rows else {"per_token": 1.0}
        halves = {f"{name}_split": float(split == name) for name in (COLUMNS, INNER)}
        whole = {"channels_split": float(split in (COLUMNS, INNER, CHANNELS)), "residual": float(split == RESIDUAL)}
        return {"count": self.count, "groups": 1.0, **used, **halves, **whole, **numbers}


@dataclass(frozen=True, kw_only=True)
class Gemm(Operator):
    """A linear layer, `y = x W`: `2 inputs outputs` FLOPs per row. `kept` is 0 where another operator already stores its
    input.
    """

    op: ClassVar[str] = "gemm"

    inputs: float
    outputs: float
    split: str = WHOLE
    wide: float = 0.0
    kept: float = 1.0

    def table_rows(self) -> list[Row]:
        return [
            self._row(
                self.split, columns=self.outputs, inner=self.inputs, inner_read=self.inputs, wide=self.wide,
                weights=self.inputs * self.outputs, stored=self.kept * self.inputs,
                # The common input of the columns is whole on every rank, or split by rows.
                **({"channels_split": 0.0, "residual": 1.0} if self.split == COLUMNS else {}),
            )
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Convolution(Operator):
    """A convolution of `kernel^dims` windows onto `size^dims` outputs: an implicit GEMM of `size^dims` rows per sample.

    A row reads `min(kernel, stride)^dims` inputs of each channel that no other row has read. With as many groups as
    channels (depthwise), matrix units have no work.
    """

    op: ClassVar[str] = "convolution"

    inputs: float
    outputs: float
    size: float
    kernel: float = 1.0
    stride: float = 1.0
    groups: float = 1.0
    dims: float = 2.0

    def table_rows(self) -> list[Row]:
        rows, window = self.size**self.dims, self.kernel**self.dims
        fresh, each = min(self.kernel, self.stride) ** self.dims, self.inputs / self.groups
        stored = self.inputs * self.stride**self.dims
        used = {"count": self.count, "per_token": 0.0, "per_sample": rows, "groups": self.groups}
        if self.groups == self.inputs > 1.0:
            own = {
                "vector_flops": 2.0 * window * self.outputs,
                "streamed": self.inputs * fresh + self.outputs,
                "kernels": 1.0,
            }
        else:
            own = {"columns": self.outputs / self.groups, "inner": each * window, "inner_read": each * fresh}
        return [self._row() | used | own | {"weights": each * window * self.outputs, "stored": stored}]


@dataclass(frozen=True, kw_only=True)
class Elementwise(Operator):
    """Describe an operator that is limited by memory traffic, such as a norm, an activation, a residual sum or pooling.

    Each row has `channels` elements. The operator reads each element `reads` times and writes it `writes` times.
    """

    op: ClassVar[str] = "elementwise"

    channels: float
    reads: float = 1.0
    writes: float = 1.0
    kept: float = 0.0
    kernels: float = 1.0
    weights: float = 0.0
    split: str = WHOLE

    def table_rows(self) -> list[Row]:
        streamed = (self.reads + self.writes) * self.channels
        numbers = {"streamed": streamed, "stored": self.kept * self.channels, "weights": self.weights * self.channels}
        return [self._row(self.split, kernels=self.kernels, **numbers)]


@dataclass(frozen=True, kw_only=True)
class Attention(Operator):
    """Scores and weighted values of attention, without its projections, over all tokens of a sample or (causal) the
    previous ones.
    """

    op: ClassVar[str] = "attention"

    heads: float
    width: float
    kv_heads: float = 0.0  # 0: same as heads
    causal: float = 0.0
    split: str = WHOLE

    def table_rows(self) -> list[Row]:
        queries, keys = self.heads * self.width, (self.kv_heads or self.heads) * self.width
        return [
            self._row(
                self.split, attention_width=2.0 * queries, attention_heads=self.heads, causal=self.causal,
                streamed=2.0 * (queries + keys), stored=queries + 2.0 * keys, kernels=1.0,
            )
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Scan(Operator):
    """A state-space layer's scan over the tokens: `channels`, each with `state` elements of state.

    Without heads it is a selective scan (Mamba): `SCAN_FLOPS` per channel and state element, outside matrix units. With
    heads it runs in chunks of Q tokens (Mamba-2), with H heads of width P in g groups and N state elements. Its
    products take `2 Q (g N + H P) + 4 H N P` FLOPs per token; states are passed between chunks.

    **Source:** Gu and Dao, arXiv 2312.00752; Dao and Gu, arXiv 2405.21060, section 6.
    """

    op: ClassVar[str] = "scan"

    channels: float
    state: float
    heads: float = 0.0
    groups: float = 1.0
    chunk: float = 256.0
    split: str = WHOLE

    def table_rows(self) -> list[Row]:
        inputs = self.channels + 2.0 * self.groups * self.state + (self.heads or self.channels)
        if not self.heads:
            own = {"vector_flops": SCAN_FLOPS * self.channels * self.state, "streamed": inputs + self.channels}
        else:
            products = 2.0 * self.chunk * (self.groups * self.state + self.channels) + 4.0 * self.channels * self.state
            states = 2.0 * STATE_PASSES * self.channels * self.state / self.chunk  # 32-bit, counted in 16-bit elements
            own = {"core_flops": products, "streamed": SCAN_PASSES * (inputs + self.channels + states)}
        return [self._row(self.split, stored=inputs, kernels=5.0 if self.heads else 1.0, **own)]


@dataclass(frozen=True, kw_only=True)
class Recurrence(Operator):
    """A recurrent layer with `gates` (4: LSTM, 3: GRU): input products of all tokens at once, then one step after the
    other.

    Each step is a kernel with one row per sample of the micro-batch. Gates and states are stored for the backward pass.
    """

    op: ClassVar[str] = "recurrence"

    inputs: float
    hidden: float
    gates: float = 4.0

    def table_rows(self) -> list[Row]:
        inside = self.gates * self.hidden
        passes = {"streamed": 2.0 * inside + 3.0 * self.hidden, "stored": inside + 2.0 * self.hidden, "kernels": 1.0}
        return [
            *Gemm(count=self.count, rows=self.rows, inputs=self.inputs, outputs=inside).table_rows(),
            self._row(
                columns=inside, inner=self.hidden, inner_read=self.hidden, weights=inside * self.hidden, sequential=1.0, **passes
            ),
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Lookup(Operator):
    """Sum of `pooled` rows of `width` elements from a table of `entries` rows.

    If `spread`, the table is sharded over chips and updated where it is stored; results are sent to the chip that needs
    them. Otherwise every replica has a copy.
    """

    op: ClassVar[str] = "lookup"

    entries: float
    width: float
    pooled: float = 1.0
    spread: float = 0.0
    split: str = WHOLE

    def table_rows(self) -> list[Row]:
        if not self.spread:
            return [
                self._row(
                    self.split, weights=self.entries * self.width, streamed=2.0 * self.width * self.pooled, kernels=1.0
                )
            ]
        table = {
            "table_weights": self.entries * self.width,
            "looked_up": self.pooled * self.width,
            "exchanged": self.width,
        }
        return [self._row(stored=self.width, kernels=1.0, **table)]


@dataclass(frozen=True, kw_only=True)
class Fft(Operator):
    """Fourier transforms per sample: `channels` transforms of `points` elements, `5 n log2 n` FLOPs each outside matrix
    units.

    32-bit complex numbers are read and written once.
    """

    op: ClassVar[str] = "fft"

    points: float
    channels: float = 1.0

    def table_rows(self) -> list[Row]:
        each = self.points * self.channels
        numbers = {"vector_flops": 5.0 * each * math.log2(self.points), "streamed": 8.0 * each, "kernels": 1.0}
        return [self._row() | {"per_token": 0.0, "per_sample": self.rows or 1.0} | numbers]


@dataclass(frozen=True, kw_only=True)
class Experts(Operator):
    """A linear layer in which each token uses `chosen` of `experts`, in one grouped kernel. Every replica has all experts."""

    op: ClassVar[str] = "experts"

    inputs: float
    outputs: float
    experts: float
    chosen: float

    def table_rows(self) -> list[Row]:
        numbers = {"columns": self.outputs, "inner": self.inputs, "inner_read": self.inputs, "groups": self.experts}
        weights = self.experts * self.inputs * self.outputs
        used = {"per_token": self.chosen / self.experts, "stored": self.experts * self.inputs}  # of each expert
        return [self._row(weights=weights, **numbers) | used]


@dataclass(frozen=True, kw_only=True)
class Product(Operator):
    """Products between activations, without weights, such as pairs of embeddings: `flops`, `reads` and `writes` elements
    per row.
    """

    op: ClassVar[str] = "product"

    flops: float
    reads: float
    writes: float = 0.0

    def table_rows(self) -> list[Row]:
        return [self._row(core_flops=self.flops, streamed=self.reads + self.writes, stored=self.reads, kernels=1.0)]


KINDS: dict[str, type[Operator]] = {
    each.op: each
    for each in (Gemm, Convolution, Elementwise, Attention, Scan, Recurrence, Lookup, Experts, Fft, Product)
}
"""Operator types by their name in a workload's file."""

TEXTS = ("split",)
"""Fields with text values."""

MAY_BE_ZERO = ("rows", "kept", "reads", "writes", "kernels", "weights", "wide", "causal", "kv_heads", "heads", "spread")
"""Numbers that may be 0; all others must be positive."""


def required(kind: type[Operator]) -> list[str]:
    """Return the fields that an operator must state."""
    return [each.name for each in fields(kind) if each.default is MISSING]


def operator_table(
    operators: Iterable[Operator],
    *,
    layers: float,
    hidden: float,
    kept_inputs: float,
    heads: float = 1.0,
    shards: float = 0.0,
    logits: float = 0.0,
    table_bytes: float = 4.0,
    sample: str = "sequence",
    unit_of_work: str = TOKEN,
    language: bool = False,
) -> Operators:
    """Return the table of a model's operators.

    **Arguments:**

    - `operators`: the operators of the model.
    - `layers`: number of blocks.
    - `hidden`: elements per token between blocks.
    - `kept_inputs`: elements per token that are inputs of blocks.
    - `heads`: parts into which tensor parallelism may split all operators.
    - `shards`: parts into which lookup tables may be sharded.
    - `logits`: per token.
    - `table_bytes`: bytes per weight of lookup tables.
    - `sample`: name of one sample.
    - `unit_of_work`: of rates and costs: a token, or a word for one sample (`image`).
    - `language`: whether the model predicts text, so that loss laws apply.
    """
    rows = [row for each in operators for row in each.table_rows()]
    leaf: Any = lambda value: np.asarray(value, np.float64)
    vectors = {name: leaf([row.get(name, 0.0) for row in rows]) for name in _VECTORS}
    return Operators(
        layers=leaf(layers), hidden=leaf(hidden), heads=leaf(heads), experts=leaf(shards), vocab=leaf(logits),
        kept_inputs=leaf(kept_inputs), table_bytes=leaf(table_bytes), sample=sample, unit_of_work=unit_of_work,
        language=language, **vectors,
    )  # fmt: skip
