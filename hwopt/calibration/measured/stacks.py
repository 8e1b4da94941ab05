"""What software does where a row is silent: habits of stacks, the chips they run on, and the stacks that a chip ran in a year."""

from functools import cache
from typing import NamedTuple

from hwopt import catalog
from hwopt.errors import UserError

_CHIP_YEARS = {"volta": 2021, "ampere": 2023, "hopper": 2024, "blackwell": 2025, "rubin": 2026}
_LATEST = "nemo-2025"
_MEGATRON = ((2022, "megatron-2021"), (2023, "megatron-2023"), (2024, "nemo-2024"))
"""Last year of a stack -> the stack that NVIDIA's users ran."""
_OWN = (
    {"tpu": "jax-maxtext-tpu", "trainium": "neuron", "gaudi": "optimum-habana", "ascend": "megatron-2023"}
    | dict.fromkeys(("cdna2", "cdna3", "cdna4"), "rocm-primus-2025")
    | dict.fromkeys(("wafer", "lpu", "ipu"), "ideal")
)

_TORCH = (("torchtitan-2024", 2024), ("torchtitan-eager", 2024), ("torch-fsdp-2023", 2022), ("deepspeed-2021", 0))
"""PyTorch's own stacks, the latest first, and the year since when there is one."""

_SHARES = {"maker": 0.74, "torch": 0.2, "jax": 0.06}
"""Who trains with the software of the chip's maker, with PyTorch's own, with JAX: of 76 cells of open sources on Hopper that say
so 57, 15 and 4 (November 2026). On Ampere PyTorch's share is larger, on Blackwell there is none yet."""

_EARLIER, _LATER = 0.3, 0.15
"""Weights of the generation of software before and after the year's, over the year's (assumption, 0.1 to 0.6: printed dates are
of documents)."""


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


@cache
def runs_on(stack: str, architecture: str) -> bool:
    """Whether a stack has kernels for a family of chips, by `runs_on` of its entry. One that names no chips runs on all, and
    nothing is known of chips that the catalogue has not.
    """
    families = catalog.record("stacks", stack).words("runs_on")
    return not (architecture and families) or architecture in families


def training_stack(architecture: str, year: int | None) -> str:
    """The stack that trains on a chip family where nothing else is said; `year` of the software, where it is known."""
    return _OWN.get(architecture) or megatron(architecture, year or typical_year(architecture))


@cache
def likely_stacks(architecture: str, year: int | None) -> dict[str, float]:
    """Stacks that may have trained on a chip family in a year, and how likely each is: the usual one first; sums to 1."""
    date, usual = year or typical_year(architecture), training_stack(architecture, year)
    weights = {usual: _SHARES["maker"]}
    if architecture not in _OWN:
        for other, weight in ((megatron(architecture, date - 1), _EARLIER), (megatron(architecture, date + 1), _LATER)):
            weights.setdefault(other, _SHARES["maker"] * weight)
        if date >= 2025:
            weights.setdefault("megatron-2025", _SHARES["maker"] * _LATER)
    for i, name in enumerate([name for name, since in _TORCH if since <= date][:3]):
        weights.setdefault(name, _SHARES["torch"] * _EARLIER ** min(i, 1))
    weights.setdefault("jax-gpu", _SHARES["jax"])
    able = {name: weight for name, weight in weights.items() if weight and runs_on(name, architecture)}
    return {name: weight / sum(able.values()) for name, weight in able.items()} or {usual: 1.0}
