"""Provide default settings of training software for measured runs that do not state them.

The module also tells which chips each software stack supports, and which stacks are likely for a chip and a year.
"""

from functools import cache
from typing import NamedTuple

from hwopt import catalog
from hwopt.errors import UserError

_CHIP_YEARS = {"volta": 2021, "ampere": 2023, "hopper": 2024, "blackwell": 2025, "rubin": 2026}
_LATEST = "nemo-2025"
_MEGATRON = ((2022, "megatron-2021"), (2023, "megatron-2023"), (2024, "nemo-2024"))
"""Last year -> the software stack that most users of NVIDIA chips ran until then."""
_OWN = (
    {"tpu": "jax-maxtext-tpu", "trainium": "neuron", "gaudi": "optimum-habana", "ascend": "megatron-2023"}
    | dict.fromkeys(("cdna2", "cdna3", "cdna4", "cdna5"), "rocm-primus-2025")
    | dict.fromkeys(("maia", "wafer", "lpu", "ipu"), "ideal")
)

_TORCH = (("torchtitan-2024", 2024), ("torchtitan-eager", 2024), ("torch-fsdp-2023", 2022), ("deepspeed-2021", 0))
"""PyTorch's own stacks, latest first, with the first year of each."""

_SHARES = {"maker": 0.74, "torch": 0.2, "jax": 0.06}
"""Shares of training runs with the chip vendor's software, PyTorch's own, and JAX. Of 76 cells of development-set sources on
Hopper that state it, 57, 15 and 4 (November 2026). PyTorch's share is larger on Ampere; for Blackwell there are no data yet."""

_EARLIER, _LATER = 0.3, 0.15
"""Weights of the software generation before and after that of the year, relative to it (assumption, 0.1 to 0.6: printed dates
are those of documents)."""


class Habits(NamedTuple):
    """Framework defaults for unstated settings: the texts of the same names in a stack's catalog entry."""

    zero: int
    recompute: str  # none | full | memory: full if the plan does not fit otherwise
    sequence_parallel: bool
    pads_heads: bool  # adds zero-filled heads if tp does not divide the heads
    stages: str  # even: equal layers per stage | cost: balanced by FLOPs, head included
    cache: str  # format of keys and values. narrow: fp8 where products have 8 or 4 bits | wide: 16 bits


@cache
def habits(stack: str) -> Habits:
    """Return the framework defaults of a stack.

    **Raises:** `UserError` for a catalog entry with unknown values.
    """
    usual = {
        "zero": "1",
        "recompute": "memory",
        "sequence_parallel": "yes",
        "pads_heads": "no",
        "stages": "even",
        "cache": "narrow",
    }
    text = catalog.record("stacks", stack).text
    zero, recompute, parallel, pads, stages, cached = (
        str(text.get(name, otherwise)) for name, otherwise in usual.items()
    )
    known = zero in ("0", "1", "2", "3") and recompute in ("none", "full", "memory") and stages in ("even", "cost")
    if not known or cached not in ("narrow", "wide") or {parallel, pads} - {"yes", "no"}:
        raise UserError(
            f"stack '{stack}': habits are zero 0 to 3, recompute none, full or memory, sequence_parallel and pads_heads yes or "
            "no, stages even or cost, cache narrow or wide"
        )
    return Habits(int(zero), recompute, parallel == "yes", pads == "yes", stages, cached)


def typical_year(architecture: str) -> int:
    """Return the typical software year of a chip family: the default for a row without a date."""
    return _CHIP_YEARS.get(architecture, 2024)


def megatron(architecture: str, year: int) -> str:
    """Return NVIDIA's software stack of a year on a chip family."""
    dated = next((name for last, name in _MEGATRON if year <= last), _LATEST)
    return _LATEST if architecture in ("blackwell", "rubin") else dated


@cache
def runs_on(stack: str, architecture: str) -> bool:
    """Return whether a stack has kernels for a chip family, from `runs_on` in its catalog entry.

    True for a stack that lists no chips, and for chips that are not in the catalog.
    """
    families = catalog.record("stacks", stack).words("runs_on")
    return not (architecture and families) or architecture in families


@cache
def of_year(stack: str, year: int) -> str:
    """Return the stack that the users of a stack had in a year: its newest successor released until then.

    **Arguments:** `stack`; `year`: 0 if unknown.
    """
    texts = {name: catalog.record("stacks", name).text for name in catalog.names("stacks")}
    newer = [(str(text["released"]), name) for name, text in texts.items() if text.get("follows") == stack]
    known = [each for each in newer if int(each[0][:4]) <= year]
    return of_year(max(known)[1], year) if known else stack


def training_stack(architecture: str, year: int | None) -> str:
    """Return the default training stack on a chip family; `year`: year of the software, if known."""
    return _OWN.get(architecture) or megatron(architecture, year or typical_year(architecture))


@cache
def likely_stacks(architecture: str, year: int | None) -> dict[str, float]:
    """Return the likely training stacks on a chip family in a year with their probabilities, the default stack first."""
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
