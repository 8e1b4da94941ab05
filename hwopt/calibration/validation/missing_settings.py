"""Unstated settings of a training row: alternatives for each field, with prior weights from common practice.

Priors come from the cells (source, model, accelerator) of the shipped tables that state the field, November 2026. Sources in
the test set (`hwopt.calibration.holdout`) are excluded, and each cell's weight is divided among its rows. Priors without stated
cells are assumptions. Memory fit and speed enter later (`hwopt.calibration.validation.imputation`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from hwopt import catalog
from hwopt.calibration.measured.columns import MeasuredRun
from hwopt.calibration.measured.stacks import habits, likely_stacks, typical_year
from hwopt.workload.transformer import Transformer

MOST = 48
"""Maximum number of alternatives of a row; the likeliest are kept."""

_LEAST = 2e-3
"""Weight relative to the likeliest alternative below which an alternative is dropped."""

_SPARE = 4
"""Factor on the number of plan alternatives kept while fields are still added: some are ruled out by their chunks later."""

_GUESSED = 0.7
"""Weight of a stack suggested by the text of notes or sharding (assumption, 0.5 to 0.9)."""

_GUESSED_FORMAT = 0.8
"""Weight of a format suggested by the source, against 16 bit (assumption, 0.6 to 0.95)."""

_EIGHT_BIT_YEAR = 2023
"""First year of runs with 8-bit products (Transformer Engine, November 2022; MLPerf Training 3.0)."""

_EIGHT_BIT = {"NVIDIA": 0.5, "JAX": 0.3, "PyTorch": 0.2, catalog.OTHERS: 0.2}
"""Share of runs with 8-bit products by software family, on chips with 8-bit units.

Cells that state a format and have 8 bit or less: 69 of 104 for NVIDIA, 7 of 17 for PyTorch, 2.5 of 6 for JAX on GPU, 6.5 of 20
for others. Tables that state formats are often made to show them, so that less is assumed (0.1 to 0.7).
"""

_INTEGER_SHARE = 0.1
"""Share of runs with 8-bit integers on TPUs with integer units: 2 of 17 cells."""

_STAGES: Mapping[int, Mapping[int, float]] = {
    0: {0: 0.9, 1: 0.1},
    1: {1: 0.96, 0: 0.02, 3: 0.02},
    2: {2: 0.8, 1: 0.1, 3: 0.1},
    3: {3: 0.95, 2: 0.03, 1: 0.02},
}
"""Default ZeRO stage of a stack -> stages of its runs, with weights.

103 of NVIDIA's 106 cells have stage 1; 61 of 62 cells of PyTorch and JAX have stage 3. 10 of 10 of Megatron-LM of 2021, without
Megatron-DeepSpeed, have stage 0. Stage 2 is an assumption. Stacks of a single vendor's chips vary more (of Gaudi's 14 cells, 3
have stage 3, 6 stage 2, 4 stage 1).
"""

_UNUSUAL_STAGE = 0.02
"""Weight of a stack that never uses the ZeRO stage stated in a row (assumption, 0 to 0.05)."""

_PIPELINED = {"PyTorch": 0.05, "JAX": 0.05}
"""Weight of these software families if a row states pipeline parallelism. 0.6 of their 67 cells use it, and 84 of 134 cells of
NVIDIA and the stacks of 2021 (assumption, 0.01 to 0.1: PyTorch's pipelines are recent)."""

_SEQUENCE_PARALLEL = 0.94
"""Share of runs that follow their stack's default for sequence parallelism: 91 of 97 cells with a tensor-parallel group."""

_FOLDING_YEAR = 2025
"""First year of parallel folding: experts without the tensor-parallel split (Megatron-Core 0.9, arXiv 2504.14960)."""

_EXPERT_TP = 0.8
"""Share of runs that follow the usual tensor-parallel degree of experts in their year (assumption, 0.6 to 0.95)."""

_RECOMPUTED: Mapping[str, Mapping[str, float]] = {
    "none": {"none": 0.7, "least": 0.22, "full": 0.06, "attention": 0.02},
    "memory": {"none": 0.2, "least": 0.3, "full": 0.45, "attention": 0.05},
    "full": {"none": 0.03, "least": 0.02, "full": 0.85, "attention": 0.1},
}
"""Recomputation default of a stack -> recomputation of its runs, with weights. Options are none, the least that fits, full, and
the attention core if scores are stored.

Of NVIDIA's 56 cells, 51 recompute nothing and 3 everything. Of 67 cells of stacks that recompute if memory is short, 20
recompute nothing, 37 everything, 5 the attention core. Of 24 cells of the 2021 stacks, 21 recompute everything, 3 the attention
core. Partial recomputation of layers (6 cells) counts as the least.
"""

_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Candidate micro-batch sizes in sequences."""

_SMALLER = {"NVIDIA": 2.0}
"""Exponent x of the prior b^-x of a micro-batch b, 0 for other software. It maximizes the likelihood of the true micro-batch
when hidden. Of NVIDIA's 91 cells 71 have 1, 10 have 2, 10 have 4."""

_CHUNK_LAYERS: Mapping[float, float] = {1.0: 0.3, 2.0: 0.3, 3.0: 0.05, 4.0: 0.1, 5.0: 0.02, 6.0: 0.02, 8.0: 0.02}
"""Layers per chunk -> weight, for interleaved schedules; the rest of the weight is one chunk per stage. Of NVIDIA's 53 cells
with a pipeline, 14 have chunks of one layer, 15 of two, 2 of three, 6 of four, and 11 a single chunk."""

_ELSEWHERE = 0.1
"""Weight of interleaving in other software relative to NVIDIA's: 2 of 25 cells of the 2021 stacks."""


class CompletedRow(NamedTuple):
    """A row with all settings filled in, and its prior probability."""

    row: MeasuredRun
    circumstances: tuple[str, str]  # stack and number format, not tuned by practitioners
    likely: float  # probability of the circumstances
    usual: float  # prior weight of the plan in these circumstances
    least_recomputed: bool = False  # recomputes only as many layers as memory requires


_Cells = tuple[dict[str, Any], float]
"""Columns filled by an alternative, and its weight."""


def completed_rows(
    row: MeasuredRun, chip: str, architecture: str, shape: Transformer, most: int = MOST
) -> list[CompletedRow]:
    """Return the likeliest completions of a row: combinations of the alternatives of all unstated settings.

    Stated fields stay. Stacks and formats are restricted to those that run on the chip.

    **Arguments:**

    - `row`: a row with complete degrees and blank unstated fields.
    - `chip`, `architecture`: its chip and the chip's architecture.
    - `shape`: shape of the model.
    - `most`: maximum number of completions.

    **Returns:** completed rows; one if all settings are stated.
    """
    weighed = [
        (weight * share * usual, CompletedRow(row, (stack, number_format), weight * share, usual), cells)
        for stack, weight in _stacks(row, architecture).items()
        for number_format, share in _formats(row, stack, chip, architecture).items()
        for cells, usual in _combined(_plans(row, stack, shape), most)
    ]
    weighed.sort(key=lambda each: -each[0])
    found: list[CompletedRow] = []
    for weight, opening, cells in weighed:
        if len(found) == most or weight < _LEAST * weighed[0][0]:
            break
        stack, number_format = opening.circumstances
        columns = {"stack": stack, "number_format": number_format} | cells
        least = columns.pop("least_recomputed", False)
        completed = replace(row, **columns)
        if not _interleaves_too_much(completed):
            found.append(opening._replace(row=completed, least_recomputed=least))
    return found


def _combined(fields: Iterable[list[_Cells]], most: int) -> list[_Cells]:
    """Combine the alternatives of all unstated fields, the likeliest combinations first."""
    combined: list[_Cells] = [({}, 1.0)]
    for options in fields:
        combined = [(cells | more, weight * share) for cells, weight in combined for more, share in options]
        combined.sort(key=lambda each: -each[1])
        least = _LEAST * combined[0][1]
        combined = [each for each in combined[: _SPARE * most] if each[1] >= least]
    return combined


def _interleaves_too_much(row: MeasuredRun) -> bool:
    """Return whether a row has fewer micro-batches than pipeline stages, too few for an interleaved schedule."""
    assert row.dp and row.micro_batch and row.global_batch_sequences and row.pp
    return (row.vpp or 1) > 1 and row.global_batch_sequences / row.dp / row.micro_batch < row.pp


def _stacks(row: MeasuredRun, architecture: str) -> dict[str, float]:
    """Return the probability of each stack, from the chip, the year, and the stated parts of the plan."""
    guessed = row.stack if "stack" in row.assumed else None
    if row.stack and not guessed:
        return {row.stack: 1.0}
    weights = dict(likely_stacks(architecture, row.year))
    for stack in weights:
        family = catalog.software_family(stack)
        if row.zero is not None:
            weights[stack] *= _STAGES[habits(stack).zero].get(row.zero, _UNUSUAL_STAGE)
        if (row.pp or 1) > 1:
            weights[stack] *= _PIPELINED.get(family, 1.0)
    total = sum(weights.values())
    weights = {stack: weight / total for stack, weight in weights.items()}
    if guessed:
        others = {stack: (1.0 - _GUESSED) * weight for stack, weight in weights.items() if stack != guessed}
        weights = {guessed: 1.0 - sum(others.values())} | others
    return weights


def _formats(row: MeasuredRun, stack: str, chip: str, architecture: str) -> dict[str, float]:
    """Return the probability of each number format that the chip has units for."""
    if row.number_format:
        guessed = "precision" in row.assumed and row.number_format != "bf16"
        weights = {row.number_format: _GUESSED_FORMAT, "bf16": 1.0 - _GUESSED_FORMAT}
        return weights if guessed else {row.number_format: 1.0}
    native, date = catalog.record("chips", chip).words("native"), row.year or typical_year(architecture)
    share = _EIGHT_BIT.get(catalog.software_family(stack), 0.0)
    name = next((name for name in ("fp8", "int8") if name in native), None)
    if name == "int8":
        share = _INTEGER_SHARE if architecture == "tpu" else 0.0  # integer formats of GPUs are not used for training
    if name is None or not share or date < _EIGHT_BIT_YEAR:
        return {"bf16": 1.0}
    return {"bf16": 1.0 - share, name: share}


def _plans(row: MeasuredRun, stack: str, shape: Transformer) -> list[list[_Cells]]:
    """Return the alternatives of each unstated field of the plan."""
    return [
        _micro_batches(row, stack),
        _chunks(row, stack, float(shape.layers)),
        _recomputation(row, stack),
        _sharding(row, stack),
        _sequence_parallel(row, stack),
        _experts(row, shape),
    ]


def _shares(name: str, weights: Mapping[Any, float]) -> list[_Cells]:
    total = sum(weights.values())
    return [({name: value}, weight / total) for value, weight in weights.items()]


def _micro_batches(row: MeasuredRun, stack: str) -> list[_Cells]:
    """Return the alternatives for the micro-batch size: divisors of a replica's batch."""
    if row.micro_batch:
        return [({}, 1.0)]
    assert row.dp and row.global_batch_sequences
    each = row.global_batch_sequences / row.dp
    if each == int(each):
        sizes = {float(size) for size in (*_SIZES, each) if size <= max(_SIZES) and each % size == 0} or {each}
    else:  # the batch is rounded: any equal division may stand for whole sequences
        parts = {each / 2**n for n in range(12)}
        sizes = {size for size in parts if 1.0 <= size <= max(_SIZES)} or {min(each, 1.0)}
    power = _SMALLER.get(catalog.software_family(stack), 0.0)
    return _shares("micro_batch", {size: size**-power for size in sorted(sizes)})


def _chunks(row: MeasuredRun, stack: str, layers: float) -> list[_Cells]:
    """Return the alternatives for interleaved chunks per stage: whole layers; embedding and head may count as a layer each."""
    if row.vpp or row.pp == 1:
        return [({}, 1.0)]
    assert row.pp
    often = 1.0 if catalog.software_family(stack) == "NVIDIA" else _ELSEWHERE
    weights: dict[int, float] = {}
    for all_layers in (layers, layers + 2.0):
        stage = all_layers / row.pp
        for size, weight in _CHUNK_LAYERS.items():
            if stage == int(stage) and stage % size == 0 and stage > size:
                weights.setdefault(int(stage / size), often * weight)
    if not (row.interleaved and weights):
        weights[1] = max(1.0 - sum(weights.values()), 0.1)
    return _shares("vpp", weights)


def _recomputation(row: MeasuredRun, stack: str) -> list[_Cells]:
    if row.recompute_layers is not None:
        return [({}, 1.0)]
    cells = {
        "none": {"recompute_layers": 0.0},
        "least": {"recompute_layers": 0.0, "least_recomputed": True},
        "full": {"recompute_layers": 1.0},
        "attention": {"recompute_layers": 0.0, "recompute_attention": 1.0},
    }
    weights = dict(_RECOMPUTED[habits(stack).recompute])
    stored = catalog.record("stacks", stack).si("attention_scores_stored")
    if row.recompute_attention is not None or row.attention_kernel == "fused" or not (stored or row.attention_kernel):
        del weights["attention"]
    total = sum(weights.values())
    return [(cells[name], weight / total) for name, weight in weights.items()]


def _sharding(row: MeasuredRun, stack: str) -> list[_Cells]:
    if row.zero is not None or (row.dp or 1) * (row.cp or 1) == 1:
        return [({}, 1.0)]
    return _shares("zero", _STAGES[habits(stack).zero])


def _sequence_parallel(row: MeasuredRun, stack: str) -> list[_Cells]:
    if row.seq_parallel is not None or row.tp == 1:
        return [({}, 1.0)]
    usual = habits(stack).sequence_parallel
    return _shares("seq_parallel", {usual: _SEQUENCE_PARALLEL, not usual: 1.0 - _SEQUENCE_PARALLEL})


def usual_expert_tp(row: MeasuredRun) -> int:
    """Return the usual tensor-parallel degree inside experts: tp before parallel folding, 1 since, or if ranks are too few."""
    return row.tp or 1 if _room(row) and (row.year or _FOLDING_YEAR) < _FOLDING_YEAR else 1


def _room(row: MeasuredRun) -> bool:
    """Return whether the whole tensor-parallel group can split every expert."""
    tp, ranks = row.tp or 1, (row.tp or 1) * (row.cp or 1) * (row.dp or 1)
    return ranks % ((row.ep or 1) * tp) == 0


def _experts(row: MeasuredRun, shape: Transformer) -> list[_Cells]:
    if not float(shape.experts) or row.expert_tp or row.tp == 1 or not _room(row):
        return [({}, 1.0)]
    assert row.tp
    usual = usual_expert_tp(row)
    return _shares("expert_tp", {usual: _EXPERT_TP, 1 if usual > 1 else row.tp: 1.0 - _EXPERT_TP})
