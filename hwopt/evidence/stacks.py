"""What software does where a row is silent: habits and families of stacks, and the stack that a chip ran in a year."""

from functools import cache
from typing import NamedTuple

from hwopt import catalog
from hwopt.errors import UserError

_CHIP_YEARS = {"volta": 2021, "ampere": 2023, "hopper": 2024, "blackwell": 2025, "rubin": 2026}
_LATEST = "nemo-2025"
_MEGATRON = ((2022, "megatron-2021"), (2023, "megatron-2023"), (2024, "nemo-2024"))
"""Last year of a stack -> the stack that NVIDIA's users ran."""
_OWN = {"tpu": "jax-maxtext-tpu", "trainium": "neuron", "gaudi": "optimum-habana"} | dict.fromkeys(
    ("cdna2", "cdna3", "cdna4"), "rocm-primus-2025"
)


class Habits(NamedTuple):
    """What a stack does where a row is silent: the texts of the same names in its entry."""

    zero: int
    recompute: str  # none | full | memory: full where the rest does not fit
    sequence_parallel: bool
    pads_heads: bool  # heads of zeros where the tensor parallel degree does not divide them
    stages: str  # even | cost: as many layers each, or blocks handed out by their products, the head among them


@cache
def habits(stack: str) -> Habits:
    """Framework defaults of a stack.

    **Raises:** `UserError` for an entry that states others.
    """
    usual = {"zero": "1", "recompute": "memory", "sequence_parallel": "yes", "pads_heads": "no", "stages": "even"}
    text = catalog.record("stacks", stack).text
    zero, recompute, parallel, pads, stages = (str(text.get(name, otherwise)) for name, otherwise in usual.items())
    known = zero in ("0", "1", "2", "3") and recompute in ("none", "full", "memory") and stages in ("even", "cost")
    if not known or {parallel, pads} - {"yes", "no"}:
        raise UserError(
            f"stack '{stack}': habits are zero 0 to 3, recompute none, full or memory, sequence_parallel and pads_heads yes or "
            "no, stages even or cost"
        )
    return Habits(int(zero), recompute, parallel == "yes", pads == "yes", stages)


def typical_year(architecture: str) -> int:
    """Year in which a chip family's software is typical: the default where a row has no date."""
    return _CHIP_YEARS.get(architecture, 2024)


def megatron(architecture: str, year: int) -> str:
    """NVIDIA's stack of a year on a chip family."""
    dated = next((name for last, name in _MEGATRON if year <= last), _LATEST)
    return _LATEST if architecture in ("blackwell", "rubin") else dated


def training_stack(architecture: str, year: int | None) -> str:
    """The stack that trains on a chip family where nothing else is said; `year` of the software, where it is known."""
    return _OWN.get(architecture) or megatron(architecture, year or typical_year(architecture))
