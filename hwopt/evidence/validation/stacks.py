"""Which software ran a row: a catalogue entry chosen from words and dates, never a constant of a source."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hwopt import catalog
from hwopt.errors import UserError, suggest
from hwopt.evidence.validation.rows import MeasuredRun


@dataclass(frozen=True)
class Habits:
    """What a stack does where a row is silent."""

    zero_stage: int
    recompute: str  # none | full | memory: full where the rest does not fit
    sequence_parallel: bool


_HABITS = {
    "megatron-2021": Habits(0, "full", False),
    "deepspeed-2021": Habits(3, "full", False),
    "megatron-2023": Habits(1, "none", True),
    "zero-bubble": Habits(0, "none", False),
    "nemo-2024": Habits(1, "none", True),
    "nemo-2025": Habits(1, "none", True),
    "internevo-2024": Habits(1, "none", True),
    "composer-2023": Habits(3, "memory", False),
    "megatron-2025": Habits(1, "none", True),
    "torch-fsdp-2023": Habits(3, "memory", False),
    "torchtitan-2024": Habits(3, "memory", True),
    "torchtitan-eager": Habits(3, "memory", True),
    "jax-maxtext-tpu": Habits(3, "memory", True),
    "jax-gpu": Habits(3, "memory", True),
    "rocm-primus-2025": Habits(1, "none", True),
    "neuron": Habits(1, "memory", True),
}


def habits(stack: str) -> Habits:
    """Framework defaults of a stack."""
    return _HABITS.get(stack, Habits(1, "memory", True))


_NAMED = (
    # words of the framework column, the source or the notes -> stack; the first that matches wins
    (r"zero.?bubble", "zero-bubble"),
    (r"intern(evo|lm)", "internevo-2024"),
    (r"neuron|trainium|\btrn\d", "neuron"),
    (r"primus|rocm|\bmi\d{3}", "rocm-primus-2025"),
    (
        r"vtrain|korthikanti|reducing activation recomputation|narayanan|sc'?21|megatron-lm readme (january|april) 2021",
        "megatron-2021",
    ),
    (r"llm-foundry|mosaic|composer", "composer-2023"),
    (r"torchtitan|torchao|pytorch/ao", "torchtitan-2024"),
    (r"maxtext|levanter|\bjax\b|pax|t5x|flax|haiku|\bxla\b", "jax"),
    (r"simumax", "megatron-2025"),
    (r"megatron-bridge|modelzoo", "nemo-2025"),
    (r"deepspeed|zero-3", "deepspeed"),
    (r"nemo|dgxc|dgx cloud|transformer engine|megatron", "nvidia"),
    (r"\bfsdp|torch|litgpt|tinyllama|hugging ?face|accelerate|olmo|nanotron", "torch"),
)

_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_VENUES = "iclr|icml|micro|neurips|mlsys|osdi|nsdi|asplos|et al\\."

_YEAR = (
    # pattern -> what to add to the number it finds
    (r"\b(20[12]\d)-\d\d\b", 0),
    (r"arxiv:? ?(\d\d)\d\d\.\d{4,5}", 2000),
    (r"(?:container|release|section|version|nemo|tag) v?(\d\d)\.\d\d\b", 2000),
    (r"\b(\d\d)\.(?:0[1-9]|1[0-2])(?:\.\d+)? container", 2000),
    (rf"(?:{_MONTHS}|{_VENUES}),? (20[12]\d)", 0),
    (r"\bsc'?(\d\d)\b", 2000),
)


def year(run: MeasuredRun) -> int | None:
    """Year of the software: the column, else the first date in source, place and notes."""
    if run.year:
        return run.year
    text = f"{run.source} | {run.source_locator} | {run.notes}".lower()
    for pattern, base in _YEAR:
        if match := re.search(pattern, text):
            return base + int(match[1])
    return None


def _generation(architecture: str) -> int:
    """Year in which a chip family's software is typical: the default where a row has no date."""
    known = {"volta": 2021, "ampere": 2023, "hopper": 2024, "blackwell": 2025, "rubin": 2026}
    return known.get(architecture, 2024)


def stack(run: MeasuredRun, architecture: str) -> tuple[str, bool]:
    """(catalogue name of the stack, whether it was assumed).

    Order: the row's `stack` column; its `framework` column; words of the source; words of the notes; the chip's family.

    **Raises:** `UserError` for a `stack` that the catalogue lacks.
    """
    if run.stack:
        return _stated(run), False
    date = year(run) or _generation(architecture)
    if re.match(r"(maxtext|paxml) \(jax\)", run.notes.lower()):  # a table of several frameworks names each row's
        return _resolved("jax", run, architecture, date), False
    for text, assumed in ((run.framework, False), (run.source, False), (f"{run.notes} {run.zero_stage}", True)):
        for words, name in _NAMED:
            if text and re.search(words, text.lower()):
                return _resolved(name, run, architecture, date), assumed
    vendor = {"tpu": "jax", "trainium": "neuron"}
    name = vendor.get(architecture, "rocm-primus-2025" if architecture.startswith("cdna") else "nvidia")
    return _resolved(name, run, architecture, date), True


def _stated(run: MeasuredRun) -> str:
    try:
        return catalog.find("stacks", run.stack)
    except UserError:
        raise UserError(
            f"row at line {run.line}, column 'stack': unknown software stack '{run.stack}': "
            f"{suggest(run.stack, catalog.names('stacks'))}"
        ) from None


def _resolved(name: str, run: MeasuredRun, architecture: str, date: int) -> str:
    """A family of stacks to one of its generations."""
    said = f"{run.notes} {run.framework}".lower()
    if architecture.startswith("cdna") and name in {"nvidia", "nemo-2025", "torch"}:
        return "rocm-primus-2025"
    if name == "jax":
        return "jax-maxtext-tpu" if architecture == "tpu" else "jax-gpu"
    if name == "deepspeed" or (name == "megatron-2021" and "zero3" in run.zero_stage.replace("-", "")):
        return "deepspeed-2021" if date <= 2022 else "torch-fsdp-2023"
    if name == "torchtitan-2024":
        # Compilation is off unless a run switches it on; 8-bit products are of no use without.
        compiled = re.search(r"(?<!without )(?<!no )compile|float8|fp8", f"{said} {run.precision.lower()}")
        return name if compiled and "eager" not in said else "torchtitan-eager"
    if name == "torch":
        return "torchtitan-2024" if date >= 2024 or "compile" in said else "torch-fsdp-2023"
    if name == "nvidia":
        generations = ((2022, "megatron-2021"), (2023, "megatron-2023"), (2024, "nemo-2024"))
        dated = next((entry for last, entry in generations if date <= last), "nemo-2025")
        return "nemo-2025" if architecture in {"blackwell", "rubin"} else dated
    return name
