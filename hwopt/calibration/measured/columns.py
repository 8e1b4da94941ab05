"""Declaration of the columns of measured runs: meaning, unit, admissible values, default for a blank; and the measurable
metrics.

`python -m hwopt.calibration.measured.columns` prints the columns. The reader, its errors, the list of essential columns and the
documentation are generated from this declaration. Columns marked `inferred` are extracted from prose by
`hwopt.calibration.measured.collected_text` if a table lacks them; if it has them, they are used as they are.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple

from hwopt import catalog
from hwopt.catalog.chips import SLOTS
from hwopt.catalog.load import is_path
from hwopt.catalog.memory_formats import memory_numbers, parse_memory
from hwopt.errors import UserError, suggest
from hwopt.run_words import BY_NAME
from hwopt.units import read_number

SMALLEST, LARGEST = 1e-15, 1e15
"""Plausible range of a number in a cell, in the units of the columns; values outside are rejected."""

_ENTRIES = {"stacks": "software stack", "chips": "accelerator", "workloads": "model"}
_YES, _NO = ("yes", "y", "true", "on", "1"), ("no", "n", "false", "off", "0")


class MeasuredMetric(NamedTuple):
    """A measured quantity."""

    unit: str  # as printed
    direct: bool = False  # a time or token rate; takes precedence over other figures of the same run
    rate: bool = False  # falls as step time rises
    flops: bool = False  # depends on which FLOPs are counted
    memory: bool = False


TRAINING = {
    "iter_time_s": MeasuredMetric("s", direct=True),
    "step_time_s": MeasuredMetric("s", direct=True),
    "tokens_per_s_per_gpu": MeasuredMetric("token/s", direct=True, rate=True),
    "tokens_per_s": MeasuredMetric("token/s", direct=True, rate=True),
    "samples_per_s": MeasuredMetric("sequence/s", direct=True, rate=True),
    "tflops_per_gpu": MeasuredMetric("TFLOP/s", rate=True, flops=True),
    "mfu": MeasuredMetric("fraction", rate=True, flops=True),
    "hfu": MeasuredMetric("fraction", rate=True, flops=True),
    "peak_memory_per_gpu": MeasuredMetric("GiB", memory=True),  # reported by the device, including the driver's context
    "first_stage_memory_reserved": MeasuredMetric("GiB", memory=True),  # in the allocator of the first rank
    "max_memory_reserved": MeasuredMetric("GiB", memory=True),
    "max_memory_allocated": MeasuredMetric("GiB", memory=True),
}
"""Metrics of training runs that can be scored."""

SERVING = {
    "total_latency_ms": MeasuredMetric("ms", direct=True),
    "ttft_ms": MeasuredMetric("ms", direct=True),
    "tpot_ms": MeasuredMetric("ms", direct=True),
    "output_tokens_per_s": MeasuredMetric("token/s", rate=True),
    "output_tokens_per_s_per_gpu": MeasuredMetric("token/s", rate=True),
}
"""Metrics of services that can be scored."""

METRICS = TRAINING | SERVING

ATTENTION = {"full": 1.0, "causal": 0.5, "none": 0.0}
"""Share of the attention score matrix that a source's FLOP count includes."""


@dataclass(frozen=True)
class TableColumn:
    """Declaration of one column."""

    meaning: str
    reader: Callable[[str, TableColumn], Any]  # parses a cell; raises `ValueError` for an invalid one
    unit: str = ""
    words: tuple[str, ...] = ()  # admissible words; for a catalog entry, its category
    low: float = SMALLEST
    high: float = LARGEST
    blank: str = ""  # meaning of a blank cell
    also: tuple[str, ...] = ()  # other names of the column
    none: tuple[str, ...] = ()  # prefixes of cells that count as blank
    essential: bool = False  # required to score any row
    inferred: bool = False  # written by `collected_text` if missing

    def read(self, cell: str) -> Any:
        """Parse a cell that is not blank.

        **Raises:** `ValueError` with the error and the likely intended value.
        """
        return None if cell.lower().startswith(self.none or ("\0",)) else self.reader(cell, self)


def _number(cell: str, column: TableColumn) -> float:
    try:
        value = read_number(cell)
    except UserError:
        plain = cell.replace(",", "").replace("_", "")
        hint = f"write {plain}" if plain.replace(".", "", 1).isdigit() else "leave it empty if the source does not say"
        raise ValueError(f"is not a number; {hint}") from None
    if value < 0.0 or (value == 0.0 and column.low > 0.0):
        raise ValueError("must be above zero; leave it empty if it is not known")
    if value and not SMALLEST <= value <= LARGEST:
        raise ValueError("is beyond anything measured; is the unit right?")
    if not column.low <= value <= column.high:
        limit = f"at least {column.low:g}" if value < column.low else f"at most {column.high:g}"
        raise ValueError(f"must be {limit}")
    return value


def _integer(cell: str, column: TableColumn) -> int:
    value = _number(cell, column)
    if value != int(value):
        raise ValueError("must be an integer")
    return int(value)


def _batched(cell: str, column: TableColumn) -> float:
    if cell.lower().startswith("max"):
        return math.inf
    try:
        return _number(cell, column)
    except ValueError as error:
        raise ValueError(f"{error}; or write max where the engine chose it") from None


def _flag(cell: str, column: TableColumn) -> bool:
    if cell.lower() not in _YES + _NO:
        raise ValueError("must be yes or no")
    return cell.lower() in _YES


def _word(cell: str, column: TableColumn) -> str:
    if cell.lower() not in column.words:
        raise ValueError(f"is none of {', '.join(column.words)}: {suggest(cell, column.words)}")
    return cell.lower()


def _formats(cell: str, column: TableColumn) -> str:
    try:
        memory_numbers(parse_memory(cell))
    except UserError as error:
        raise ValueError(f"states no memory formats: {error}") from None
    return cell


@cache
def entry(kind: str, name: str) -> str | None:
    """Return the slug of the catalog entry with a name, None without one."""
    try:
        return catalog.find(kind, name)
    except UserError:
        return None


def _entry(cell: str, column: TableColumn) -> str:
    (kind,) = column.words
    if kind == "workloads" and (is_path(cell) or catalog.config_file(kind, cell)):
        try:
            catalog.record(kind, cell)
        except UserError as error:
            raise ValueError(f"cannot be read: {error}") from None
        return cell
    if (slug := entry(kind, cell)) is None:
        raise ValueError(f"is no {_ENTRIES[kind]} of the catalog: {suggest(cell, catalog.names(kind))}")
    return slug


def _release(cell: str, column: TableColumn) -> tuple[int, ...]:
    parts = cell.split(".")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise ValueError("must be numbers with points between, such as 25.09")
    return tuple(map(int, parts))


def _column(reader: Callable[[str, TableColumn], Any], meaning: str, *, empty: Any = None, **about: Any) -> Any:
    return field(default=empty, metadata={"column": TableColumn(meaning, reader, **about)})


_text = partial(_column, lambda cell, column: cell, empty="")
_words = partial(_column, lambda cell, column: tuple(cell.split()), empty=())
_real = partial(_column, _number)
_count = partial(_column, _integer)
_yes = partial(_column, _flag)
_version = partial(_column, _release)
_share = partial(_column, _number, low=0.0, high=1.0)
_batch = partial(_column, _batched)


def _said(meaning: str, *words: str, blank: str) -> Any:
    """Declare a column with a fixed set of words, inferred from prose in collected tables."""
    return _column(_word, meaning, words=words, blank=blank, inferred=True)


def _named(meaning: str, kind: str, **about: Any) -> Any:
    return _column(_entry, meaning, words=(kind,), **about)


def _stated(name: str, **about: Any) -> Any:
    """Declare a column for a word of a run."""
    return _column(
        lambda cell, column: BY_NAME[name].read(cell), BY_NAME[name].meaning, words=(BY_NAME[name].known,), **about
    )


# fmt: off
@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRow:
    """Columns common to rows of every type."""

    metrics: ClassVar[Mapping[str, MeasuredMetric]] = {}  # metrics that can be scored

    line: int = 0  # line of the file on which the row ends; the header is line 1
    columns: frozenset[str] = frozenset()  # columns of the file
    repeats: int = 0  # line of an earlier row with the same cells

    id: str = _text("name of the row", blank="row-<line>")
    source: str = _text("who published it; rows of one source form cells, and are left out of fits together")
    source_locator: str = _text("where in the source: document@version, place")
    notes: str = _text("anything else, for people")
    quality: str = _text("A, A-, B+: fitted; B: scored alone; C: inconsistent or headline, skipped", blank="scored")
    assumed: tuple[str, ...] = _words("what of this row was guessed, not read: listed in the answer", inferred=True)
    release: tuple[int, ...] | None = _version("software release; of one configuration only the latest counts", inferred=True)
    regression: bool | None = _yes("the source calls the row a regression of its release", blank="no", inferred=True)
    year: int | None = _count("year of the software", low=1990, high=2100, blank="the chip's generation", inferred=True)
    stack: str | None = _named("software", "stacks", blank="weighed: those that run on the chip in that year", inferred=True)

    model_name: str = _text("model, by any name; shape and name together say which", essential=True)
    workload: str | None = _named("model of the catalog, a .toml file or a config.json", "workloads",
                                  blank="the one called model_name", inferred=True)
    model_kind: str | None = _said("what it is made of; hybrids are skipped", "transformer", "hybrid", blank="transformer")
    model_family: str | None = _said("whose habits fill open shapes", "llama", "gpt", "gpt-neox", "palm", "qwen3", blank="llama")
    reduced_depth: bool | None = _yes("a slice of that model: params_B tells nothing", blank="no", inferred=True)
    params_B: float | None = _real("parameters", unit="10^9")
    layers: int | None = _count("layers", blank="the catalog's")
    hidden: int | None = _count("width of the model", blank="the catalog's")
    ffn: int | None = _count("inner width of an MLP, or of one expert", blank="the catalog's")
    heads: int | None = _count("query heads", blank="the catalog's")
    kv_heads: int | None = _count("heads of keys and values", blank="heads", none=("mla", "latent"))
    head_dim: int | None = _count("width of a head", blank="hidden / heads")
    vocab: int | None = _count("vocabulary", unit="tokens", blank="the family's")
    moe_experts: int | None = _count("routed experts of a layer", low=0, blank="0")
    moe_topk: int | None = _count("experts a token goes to", low=0, blank="1")
    dense_layers: int | None = _count("first layers without experts", low=0, blank="0", inferred=True)

    gpu: str = _text("accelerator, by any name", essential=True)
    chip: str | None = _named("accelerator of the catalog", "chips", blank="the one called gpu", inferred=True)
    num_gpus: int | None = _count("accelerators", essential=True)
    gpus_per_node: int | None = _count("accelerators of a scale-up domain", blank="the chip's")
    tp: int | None = _count("tensor parallel degree", blank="1 where num_gpus = dp or the column is missing; else weighed")
    pp: int | None = _count("pipeline stages", blank="as tp")
    ep: int | None = _count("expert parallel degree, inside dp", blank="1")

    measured_metric: str = _text("what was measured", essential=True, also=("metric", "quantity"))
    measured_value: float | None = _real("its value", essential=True, also=("value",))
    unit: str = _text("its unit", blank="the metric's")


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRun(MeasuredRow):
    """A training run."""

    metrics: ClassVar[Mapping[str, MeasuredMetric]] = TRAINING

    phase: str = _text("train; rows of other phases are skipped", blank="train")
    seq_len: int | None = _count("tokens of a sequence", essential=True)
    global_batch_sequences: float | None = _real("sequences of a step, all replicas together", essential=True)
    document_tokens: float | None = _real("mean length of packed documents; attention stays inside", unit="tokens", inferred=True)
    trainable_fraction: float | None = _share("share of the weights that train (LoRA: 0.003)", blank="1", inferred=True)
    number_format: str | None = _said("of the layers' products", *SLOTS, blank="weighed: bf16, and 8 bit where it is usual")
    scaling: str | None = _said("what one scale of an 8- or 4-bit format is for", "tensor", "row", "block", blank="the stack's")
    micro_batch: float | None = _real("sequences of a replica and micro-batch", blank="weighed: even parts of the batch")
    vpp: int | None = _count("model chunks of a stage", blank="weighed: 1, and whole layers a chunk")
    cp: int | None = _count("context parallel degree", blank="1")
    expert_tp: int | None = _count("tensor parallel degree inside experts", blank="weighed: 1 and tp; until 2024 tp")
    dp: int | None = _count("data parallel replicas", blank="num_gpus / (tp pp cp)")
    seq_parallel: bool | None = _yes("norms and residuals split over tp", blank="weighed: the stack's habit")
    zero: int | None = _count("ZeRO stage; 3 is FSDP", low=0, high=3, blank="weighed: the stack's habit", inferred=True)
    zero_ranks: int | None = _count("ranks among which states are split", blank="all of dp cp", inferred=True)
    recompute_layers: float | None = _share("share of layers recomputed whole", blank="weighed: none, all, least", inferred=True)
    recompute_attention: float | None = _share("share whose attention core is recomputed", blank="0", inferred=True)
    recompute_norms: bool | None = _yes("outputs of norms are rebuilt", blank="no", inferred=True)
    recompute_activation: bool | None = _yes("outputs of the MLP's activation function are rebuilt", blank="no", inferred=True)
    offloaded_activations: float | None = _share("share of kept activations in host memory", blank="0", inferred=True)
    logit_bytes: float | None = _real("bytes a logit keeps in the loss", unit="B", blank="the stack's", inferred=True)
    gathered_inputs: float | None = _share("share of what sequence parallelism gathers that is kept", blank="the stack's")
    gradient_bytes: float | None = _real("bytes an element of gradients, held once", unit="B", blank="the stack's", inferred=True)
    bubble_share: float | None = _share("share of 1F1B's bubble that the schedule leaves", blank="1", inferred=True)
    interleaved: bool | None = _yes("where vpp is blank: more chunks than one", blank="no", inferred=True)
    attention_kernel: str | None = _said("whether scores stay on the chip", "fused", "unfused", blank="the stack's")
    tp_overlap: float | None = _share("share of tensor parallel traffic that can hide", blank="the stack's", inferred=True)
    pp_overlap: float | None = _share("share of pipeline traffic that can hide", blank="the stack's", inferred=True)
    ep_overlap: str | float | None = _stated("ep_overlap", blank="the stack's", inferred=True)
    deduplicated_dispatch: bool | None = _yes("one copy of a token a domain (DeepEP)", blank="the stack's", inferred=True)
    dispatcher: str | None = _stated("dispatcher", blank="as deduplicated_dispatch")
    host_graphs: str | None = _stated("cuda_graphs", blank="the stack's", also=("cuda_graphs",), inferred=True)
    compilation: str | None = _stated("compilation", blank="the stack's")
    tuning: str | None = _stated("tuning", blank="tuned", inferred=True)
    expert_routing: str | float | None = _stated("expert_routing", blank="balanced", also=("routing",),
                                                 inferred=True)
    scale_out_gbit_per_s: float | None = _real("of one accelerator", unit="Gb/s", blank="the chip's", inferred=True)
    operation: str | None = _said("how the machine ran: a few chosen steps, or weeks", "benchmark", "production", blank="benchmark")
    flops_attention: str | None = _said("attention that a FLOP/s or MFU counts", *ATTENTION, blank="full; causal from 2025")
    flops_recompute: bool | None = _yes("a FLOP/s or MFU counts recomputation", blank="no", inferred=True)
    memory_formats: str | None = _column(_formats, "formats in memory: moments=bf16,loss=chunked, as --memory-formats",
                                         blank="the stack's", inferred=True)
    offloaded_optimizer: float | None = _share("share of optimizer states in host memory", blank="0", inferred=True)
    offloaded_weights: float | None = _share("share of weights and gradients in host memory", blank="0", inferred=True)
    mfu_peak_tflops: float | None = _real("peak that an MFU divides by", unit="TFLOP/s", blank="the chip's, 16 bit")
    config_complete: bool | None = _yes("tp, pp, dp, batch and micro-batch are all stated", blank="no")
    precision: str = _text("number format, in the source's words")
    zero_stage: str = _text("sharding, in the source's words")
    recompute: str = _text("recomputation, in the source's words")

    @property
    def configuration(self) -> tuple:
        """Settings that identify a run within its cell: repeated rows of one run share them."""
        again = (self.recompute_layers or 0.0, self.recompute_attention or 0.0)
        # A source's own words distinguish more formats and settings than the columns do.
        words = (
            self.precision or (self.number_format, self.scaling),
            self.zero_stage or (self.zero, self.zero_ranks),
            self.recompute.lower() or (again if any(again) else "none"),
        )
        degrees = (self.layers, self.seq_len, self.num_gpus, self.tp, self.pp, self.vpp, self.cp, self.ep, self.dp)
        return (*words, *degrees, self.micro_batch, self.global_batch_sequences)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredService(MeasuredRow):
    """An inference service."""

    metrics: ClassVar[Mapping[str, MeasuredMetric]] = SERVING

    batch: float | None = _batch("sequences at once, all replicas together; max: the engine chose", low=1.0, essential=True)
    input_tokens: float | None = _real("tokens of a prompt", low=1.0, essential=True)
    output_tokens: float | None = _real("tokens of an answer", low=1.0, essential=True)
    requests: int | None = _count("requests of the run, where the engine chose the batch", blank="no end", inferred=True)
    number_format: str | None = _said("of the layers' products", *SLOTS, blank="weight_format where the chip has units")
    weight_format: str | None = _said("of stored weights", *SLOTS, blank="bf16")
    kv_format: str | None = _said("of keys and values", *SLOTS, blank="the stack's: fp8 where products are narrow, or bf16")
    kept_16_bit: str | None = _said("products in 16 bit", "none", "attention", "latents", blank="latents of 4-bit weights")
    attention_data_parallel: bool | None = _yes("attention has no tensor group", blank="no", inferred=True)
    closed_loop: bool | None = _yes("a new request replaces each finished one at once; no: a batch starts and ends together",
                                    blank="no", inferred=True)
    weight_precision: str = _text("number format of weights, in the source's words")
    kv_precision: str = _text("number format of keys and values, in the source's words")

    @property
    def largest(self) -> bool:
        """Whether the engine chose the batch, so that the measured value is a maximum over batches."""
        return self.batch == math.inf

    @property
    def phase(self) -> str:
        """Measured phase of a request (prefill, decode or both), and how the batch was chosen."""
        if self.measured_metric == "ttft_ms" or self.output_tokens == 1.0:
            return "prefill"
        if self.measured_metric == "tpot_ms":
            return "decode"
        return "both, largest rate" if self.largest else "both, batch stated"

    @property
    def configuration(self) -> tuple:
        """Settings that identify a run within its cell: repeated rows of one run share them."""
        formats = (self.weight_precision or self.weight_format, self.kv_precision or self.kv_format)
        document = self.source_locator.split("@")[0]  # tables of latency and of throughput are different runs
        degrees = (self.num_gpus, self.tp, self.pp, self.ep)
        return (*formats, document, *degrees, self.batch, self.input_tokens, self.output_tokens)
# fmt: on


PROSE = {
    MeasuredRun: ("framework", "schedule", "other_metrics", "precision", "zero_stage", "recompute"),
    MeasuredService: ("framework", "weight_precision", "kv_precision"),
}
"""Prose columns of collected tables. Columns marked * are inferred from them (and from source, source_locator, notes and the
names of model and accelerator) if a table lacks them."""


@cache
def columns_of(kind: type[MeasuredRow]) -> dict[str, TableColumn]:
    """Return the columns of a type of row, in the order of declaration."""
    return {each.name: each.metadata["column"] for each in fields(kind) if "column" in each.metadata}


def essential(kind: type[MeasuredRow]) -> tuple[str, ...]:
    """Return the columns required to score any row; a user file may consist of these alone."""
    return tuple(name for name, column in columns_of(kind).items() if column.essential)


@cache
def inferred(kind: type[MeasuredRow]) -> tuple[str, ...]:
    """Return the columns that `collected_text` writes if a table lacks them."""
    return tuple(name for name, column in columns_of(kind).items() if column.inferred)


def _described(kind: type[MeasuredRow], name: str, column: TableColumn) -> str:
    """Format one column as a line of documentation."""
    words = " | ".join(kind.metrics if name == "measured_metric" else column.words)
    limits = f"{column.low:g} to {column.high:g}" if column.high < LARGEST else ""
    holds = {_entry: f"a name of hwopt catalog {words}", _flag: "yes or no"}.get(column.reader, limits or words)
    also = f"or named {', '.join(column.also)}" if column.also else ""
    blank = f"blank: {column.blank}" if column.blank else ""
    facts = (column.meaning, column.unit, holds, also, blank)
    mark = "!" if column.essential else "*" if column.inferred else '"' if name in PROSE[kind] else " "
    return f"{mark} {name:24}{'; '.join(filter(None, facts))}"


def columns_text(kind: type[MeasuredRow]) -> str:
    """Format all columns of a type of row, a line each, for help and documentation."""
    lines = [
        f"{kind.__doc__} One row each; a blank cell means that the source does not say.",
        "!: essential; *: inferred from the source's words where the table lacks the column; \": such words",
        "",
        *(_described(kind, name, column) for name, column in columns_of(kind).items()),
        *(f"\" {name:24}in the source's words" for name in PROSE[kind] if name not in columns_of(kind)),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write("\n".join(map(columns_text, (MeasuredRun, MeasuredService))))
