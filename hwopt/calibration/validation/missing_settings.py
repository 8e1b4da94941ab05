"""What a training row leaves open, and what people run there: alternatives of each open field with their weights.

Weights are those before anything is predicted. Cells are those (source, model, accelerator) of the shipped tables, November 2026,
that state the field and are not locked (`hwopt.calibration.holdout`), each shared among its rows; weights without cells are
assumptions. What fits and how fast it is comes in later (`hwopt.calibration.validation.imputation`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from hwopt import catalog
from hwopt.calibration.measured.columns import MeasuredRun
from hwopt.calibration.measured.stacks import habits, likely_stacks, typical_year
from hwopt.workload.transformer import Transformer

MOST = 48
"""Alternatives of a row, at most: the likeliest."""

_LEAST = 2e-3
"""Share of the likeliest alternative's weight below which one is left out."""

_SPARE = 4
"""Alternatives of a plan that are kept, over those wanted, while fields are still added: chunks rule some of them out."""

_GUESSED = 0.7
"""Weight of a stack that words of notes or of the sharding suggest (assumption, 0.5 to 0.9)."""

_GUESSED_FORMAT = 0.8
"""Weight of a format that the source suggests, over 16 bit (assumption, 0.6 to 0.95)."""

_EIGHT_BIT_YEAR = 2023
"""Since when runs multiply in 8 bit (Transformer Engine, November 2022; MLPerf Training 3.0)."""

_EIGHT_BIT = {"NVIDIA": 0.5, "JAX": 0.3, "PyTorch": 0.2, catalog.OTHERS: 0.2}
"""Share of runs with 8-bit products by family of software, on chips that have units for them.

Of cells that state a format, 69 of NVIDIA's 104 have 8 bit or less, 7 of 17 of PyTorch's, 2.5 of 6 of JAX's on GPU, 6.5 of 20 of
others'. But tables that state formats are often made to show them: less is assumed (0.1 to 0.7).
"""

_INTEGER_SHARE = 0.1
"""Share of runs with 8-bit integers, on TPUs whose 8-bit units are these: 2 of 17 cells."""

_STAGES: Mapping[int, Mapping[int, float]] = {
    0: {0: 0.9, 1: 0.1},
    1: {1: 0.96, 0: 0.02, 3: 0.02},
    2: {2: 0.8, 1: 0.1, 3: 0.1},
    3: {3: 0.95, 2: 0.03, 1: 0.02},
}
"""ZeRO stage that a stack uses by habit -> stages of its runs.

Of NVIDIA's 106 cells 103 have stage 1, of PyTorch's and JAX's 62 cells 61 have 3, of Megatron-LM of 2021, Megatron-DeepSpeed apart,
10 of 10 have 0; stage 2 is an assumption. Stacks of one maker's chips are less settled (Gaudi's 14: 3 have 3, 6 have 2, 4 have 1).
"""

_UNUSUAL_STAGE = 0.02
"""Weight of a stack whose runs have never the stage that a row states (assumption, 0 to 0.05)."""

_PIPELINED = {"PyTorch": 0.05, "JAX": 0.05}
"""Weight of such stacks where a row states a pipeline: 0.6 of their 67 cells have one, 84 of 134 of NVIDIA's and of 2021's
(assumption, 0.01 to 0.1: PyTorch's pipelines are young)."""

_SEQUENCE_PARALLEL = 0.94
"""Share of runs whose norms are split as their stack does by habit: 91 of 97 cells with a tensor group."""

_FOLDING_YEAR = 2025
"""Since when the tensor group of a layer is left out of its experts (parallel folding: Megatron-Core 0.9, arXiv 2504.14960)."""

_EXPERT_TP = 0.8
"""Share of runs whose experts are split by the tensor group as was usual in their year (assumption, 0.6 to 0.95)."""

_RECOMPUTED: Mapping[str, Mapping[str, float]] = {
    "none": {"none": 0.7, "least": 0.22, "full": 0.06, "attention": 0.02},
    "memory": {"none": 0.2, "least": 0.3, "full": 0.45, "attention": 0.05},
    "full": {"none": 0.03, "least": 0.02, "full": 0.85, "attention": 0.1},
}
"""Habit of a stack -> what its runs recompute: nothing, the least that fits, all, or the attention core where scores are stored.

Of NVIDIA's 56 cells 51 recompute nothing and 3 all; of 67 of stacks that do as memory asks 20 nothing, 37 all, 5 the core; of 24 of
2021's 21 all, 3 the core. What recomputes some layers (6 cells) stands for the least.
"""

_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Micro-batches that are tried, sequences."""

_SMALLER = {"NVIDIA": 2.0}
"""Weight of a micro-batch b is b^-x, x = 0 in other software: what makes the true one likeliest, hidden where it is stated. Of
NVIDIA's 91 cells 71 have 1, 10 have 2, 10 have 4."""

_CHUNK_LAYERS: Mapping[float, float] = {1.0: 0.3, 2.0: 0.3, 3.0: 0.05, 4.0: 0.1, 5.0: 0.02, 6.0: 0.02, 8.0: 0.02}
"""Layers of a chunk -> weight, where software interleaves; the whole stage has the rest. Of NVIDIA's 53 cells with a pipeline 14
have chunks of one layer, 15 of two, 2 of three, 6 of four, 11 one chunk."""

_ELSEWHERE = 0.1
"""Weight of interleaving in other software, over that in NVIDIA's: 2 of 25 cells of 2021's stacks."""


class CompletedRow(NamedTuple):
    """A row with nothing left open, and how likely it is by what people do."""

    row: MeasuredRun
    circumstances: tuple[str, str]  # stack and number format: whoever tunes a run leaves these
    likely: float  # of the circumstances
    usual: float  # of the plan in these circumstances
    least_recomputed: bool = False  # no layer more than memory asks for


_Cells = tuple[dict[str, Any], float]
"""Columns that an alternative fills, and its weight."""


def completed_rows(
    row: MeasuredRun, chip: str, architecture: str, shape: Transformer, most: int = MOST
) -> list[CompletedRow]:
    """What a row may stand for: every open field's alternatives with all others', the likeliest.

    A field that is stated stays. Stack and format come with the chip: none that it cannot run.

    **Arguments:** `row` whose degrees are complete and whose open fields are blank; its `chip` and its `architecture`;
    `shape` of the model; how many at `most`.

    **Returns:** one where nothing is open.
    """
    weighed = [
        (likely * usual, CompletedRow(row, circumstances, likely, usual), cells)
        for circumstances, likely in _circumstances(row, chip, architecture).items()
        for cells, usual in _combined(_plans(row, circumstances[0], shape), most)
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
    """Every open field's alternatives with all others', the likeliest of them first."""
    combined: list[_Cells] = [({}, 1.0)]
    for options in fields:
        combined = [(cells | more, weight * share) for cells, weight in combined for more, share in options]
        combined.sort(key=lambda each: -each[1])
        least = _LEAST * combined[0][1]
        combined = [each for each in combined[: _SPARE * most] if each[1] >= least]
    return combined


def _interleaves_too_much(row: MeasuredRun) -> bool:
    """Chunks take turns by as many micro-batches as there are stages."""
    assert row.dp and row.micro_batch and row.global_batch_sequences and row.pp
    return (row.vpp or 1) > 1 and row.global_batch_sequences / row.dp / row.micro_batch < row.pp


def _circumstances(row: MeasuredRun, chip: str, architecture: str) -> dict[tuple[str, str], float]:
    """Software and number formats of products, and how likely they are."""
    return {
        (stack, number_format): weight * share
        for stack, weight in _stacks(row, architecture).items()
        for number_format, share in _formats(row, stack, chip, architecture).items()
    }


def _stacks(row: MeasuredRun, architecture: str) -> dict[str, float]:
    """Stacks, by what ran on the chip then and by what the row states of its plan."""
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
    """Number formats of products that the chip has units for."""
    if row.number_format:
        guessed = "precision" in row.assumed and row.number_format != "bf16"
        weights = {row.number_format: _GUESSED_FORMAT, "bf16": 1.0 - _GUESSED_FORMAT}
        return weights if guessed else {row.number_format: 1.0}
    native, date = catalog.record("chips", chip).words("native"), row.year or typical_year(architecture)
    share = _EIGHT_BIT.get(catalog.software_family(stack), 0.0)
    name = next((name for name in ("fp8", "int8") if name in native), None)
    if name == "int8":
        share = _INTEGER_SHARE if architecture == "tpu" else 0.0  # on GPUs of 8-bit integers nobody trains in them
    if name is None or not share or date < _EIGHT_BIT_YEAR:
        return {"bf16": 1.0}
    return {"bf16": 1.0 - share, name: share}


def _plans(row: MeasuredRun, stack: str, shape: Transformer) -> list[list[_Cells]]:
    """Alternatives of each open field of the plan."""
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
    """Even parts of the replica's batch."""
    if row.micro_batch:
        return [({}, 1.0)]
    assert row.dp and row.global_batch_sequences
    each = row.global_batch_sequences / row.dp
    if each == int(each):
        sizes = {float(size) for size in (*_SIZES, each) if size <= max(_SIZES) and each % size == 0} or {each}
    else:  # the batch is said in round numbers: any even part of it may stand for whole sequences
        parts = {each / 2**n for n in range(12)}
        sizes = {size for size in parts if 1.0 <= size <= max(_SIZES)} or {min(each, 1.0)}
    power = _SMALLER.get(catalog.software_family(stack), 0.0)
    return _shares("micro_batch", {size: size**-power for size in sorted(sizes)})


def _chunks(row: MeasuredRun, stack: str, layers: float) -> list[_Cells]:
    """Chunks of whole layers; the embedding and the head may stand for a layer each."""
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
    """Tensor parallel degree inside experts: the whole tensor group until parallel folding, one since, as far as the group has
    room.
    """
    return row.tp or 1 if _room(row) and (row.year or _FOLDING_YEAR) < _FOLDING_YEAR else 1


def _room(row: MeasuredRun) -> bool:
    """Whether every expert can be split by the whole tensor group."""
    tp, ranks = row.tp or 1, (row.tp or 1) * (row.cp or 1) * (row.dp or 1)
    return ranks % ((row.ep or 1) * tp) == 0


def _experts(row: MeasuredRun, shape: Transformer) -> list[_Cells]:
    if not float(shape.experts) or row.expert_tp or row.tp == 1 or not _room(row):
        return [({}, 1.0)]
    assert row.tp
    usual = usual_expert_tp(row)
    return _shares("expert_tp", {usual: _EXPERT_TP, 1 if usual > 1 else row.tp: 1.0 - _EXPERT_TP})
