"""Memory formats of a training run from words such as `moments=8bit,frozen=nf4,loss=chunked`."""

from collections.abc import Mapping
from typing import Any

from hwopt.catalog.load import leaf
from hwopt.catalog.plans import settings_of
from hwopt.errors import UserError, suggest
from hwopt.units import read_amount
from hwopt.workload.memory_formats import MemoryFormats

_WIDTHS = {"fp32": 4.0, "bf16": 2.0}

_FP8 = {"fp8": 1.0 + 4.0 / 128.0}
"""Bytes of a number in 8 bits with one fp32 scale for 128. **Source:** arXiv 2412.19437, section 3.3 (tiles of 1 x 128)."""

_NF4 = {"nf4": 0.5 + 1.0 / 64.0 + 4.0 / (64.0 * 256.0)}
"""Bytes of a weight in NF4 with double quantization: blocks of 64 weights with an 8-bit scale, blocks of 256 scales with one of 32
bits. **Source:** arXiv 2305.14314, section 3."""

_8BIT = {"8bit": {"moment_bytes": 2.0 * (1.0 + 4.0 / 2048.0), "table_moment_bytes": 8.0}}
"""Moments in blocks of 2,048 with one fp32 scale; those of embeddings stay in fp32.

**Source:** arXiv 2110.02861, sections 2.1 and 2.3.
"""

_CHUNK_TOKENS = 1024.0
"""Tokens of a chunk of the loss, unless stated (assumption, 256 to 8,192: the chunk sizes of Liger Kernel, torchtune, prime-rl)."""

_GATHERED = 3.0
"""Layers that FSDP2 holds whole: the one at work, the next one's all-gather buffer, and the copy out of that buffer.

**Source:** PyTorch, `torch.distributed.fsdp.fully_shard` (implicit prefetching; recalled), 2 to 4. The choice of 3 knew prime-rl's
peaks.
"""

WORDS: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "weights": {word: {"weight_bytes": each} for word, each in _WIDTHS.items()},
    "master": {word: {"master_bytes": each} for word, each in (_WIDTHS | {"none": 0.0}).items()},
    "moments": {word: {"moment_bytes": 2.0 * each} for word, each in (_WIDTHS | {"none": 0.0}).items()} | _8BIT,
    "gradients": {word: {"gradient_bytes": each} for word, each in _WIDTHS.items()}
    | {"freed": {"gradients_kept": 0.0}, "host": {"gradients_kept": 0.0, "gradients_offloaded": 1.0}},
    "accumulation": {"sharded": {}, "whole": {"gradients_unreduced": 1.0}},
    "frozen": {word: {"frozen_bytes": each} for word, each in (_WIDTHS | _FP8 | _NF4).items()},
    "adapters": {"all": {"adapted_mlp": 1.0}, "attention": {"adapted_mlp": 0.0}},
    "activations": {word: {"kept_bytes": each} for word, each in (_WIDTHS | _FP8).items()},
    "loss": {"whole": {}, "chunked": {"chunk_tokens": _CHUNK_TOKENS}},
    "fsdp2": {"yes": {"layers_gathered": _GATHERED}, "no": {}},
}
"""Setting -> its words -> the numbers that they mean."""

_NUMBERS = {"loss": ("chunk_tokens", ""), "reserve": ("reserve_bytes", "B")}
"""Setting that also takes a number -> that number and its unit."""

_EXAMPLE = "moments=8bit,frozen=nf4,loss=chunked,reserve=6GB"


def memory_numbers(settings: Mapping[str, str]) -> dict[str, float]:
    """Return the numbers that words of memory formats mean, by field of `TrainingRun` or `MemoryFormats`.

    **Arguments:** `settings`: word by setting, as in `WORDS`; `loss` also takes the tokens of a chunk, `reserve` takes bytes.

    **Raises:** `UserError` for an unknown word, and for a number that is not positive.
    """
    numbers: dict[str, float] = {}
    for name, word in settings.items():
        words = WORDS.get(name, {})
        if (found := words.get(word.lower())) is not None:
            numbers |= found
            continue
        field, unit = _NUMBERS.get(name, ("", ""))
        try:
            value = read_amount(word, unit) if field else 0.0
        except UserError:
            value = 0.0
        if not 0.0 < value < 1e15:
            hints = [suggest(word, words)] if words else []
            hints += [f"must be a positive number of {'bytes, such as 6GB' if unit else 'tokens'}"] if field else []
            raise UserError(f"memory formats: {name}={word}: {'; or it '.join(hints)}")
        numbers[field] = value
    return numbers


def setting_of(number: str) -> str:
    """Return the setting whose words state a number. **Arguments:** `number`: a field of `MemoryFormats` but the reserve."""
    return next(name for name, words in WORDS.items() if any(number in each for each in words.values()))


def formats_of(numbers: Mapping[str, float]) -> MemoryFormats | None:
    """Return the memory formats among some numbers; None without any."""
    fields: Any = MemoryFormats.__dataclass_fields__
    stated = {name: leaf(value) for name, value in numbers.items() if name in fields}
    return MemoryFormats(**(dict.fromkeys(fields) | stated)) if stated else None


def parse_memory(text: str) -> dict[str, str]:
    """Return a text such as `moments=8bit,loss=chunked` as a dictionary.

    **Raises:** `UserError` for a part that is not `name=value`, and for an unknown or repeated name.
    """
    return settings_of(text, {*WORDS, *_NUMBERS}, {}, _EXAMPLE, what="memory formats")
