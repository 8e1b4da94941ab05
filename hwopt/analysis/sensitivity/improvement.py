"""What making each number a tenth better is worth to an optimum, by the part of the machine that the number is of."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from hwopt.analysis.sensitivity.optimum import Parameter, Sensitivity
from hwopt.analysis.sensitivity.ranges import UNSTATED_K
from hwopt.design.template_inputs import Input
from hwopt.units import label

TENTH = 0.1
"""By how much a number is better; a temperature by `UNSTATED_K`, a yield by what is left of it."""

TECHNOLOGY = ("node", "memory", "packaging", "links", "datapath", "architecture", "cooling")
"""Parts whose numbers are a technology's: next year's are other ones."""

_MODULES = {
    "project.technology": "node",
    "project.process": "node",
    "project.base_process": "base dies",
    "project.design": "architecture",
    "project": "architecture",
    "cluster.chip": "chip",
    "cluster.network": "network",
    "cluster.cooling": "cooling",
    "cluster.rack": "rack",
    "cluster.facility": "building and power",
    "cluster.reliability": "failures",
    "cluster.recovery": "failures",
    "cluster.operation": "operation",
    "cluster.storage": "storage and pool",
    "cluster.pool": "storage and pool",
    "cluster.sites": "sites",
    "cluster.prices": "prices",
}
"""Module of the inputs -> part, where neither field nor file says more."""

_FILES = {"memory": "memory", "datapath": "datapath", "design": "architecture"}
"""Whose file a number of a technology is read from -> part."""

_BASE = "project.base_process"


def part_of(each: Input) -> str:
    """What of a machine a number belongs to."""
    if each.module == _BASE:
        return _MODULES[_BASE]
    if each.module.startswith("workload"):
        return "software" if each.module.endswith(".stack") else "what is asked"
    if each.module == "cluster.stack":
        return "software"
    own = _MODULES.get(each.module, "plan" if each.module.startswith("plan") else each.module)
    return each.quantity.part or _FILES.get(each.quantity.of, own)


def words_of(each: Input) -> str:
    """A number in words a person would use: `prices: server lifetime`, `chip: peak FLOP/s (bf16)`."""
    field = each.name.rpartition("].")[2].rpartition(".")[2].partition("[")[0]
    words = re.sub(r" per( m2| chip)? s$", "", label(field, each.unit)).replace("gemm", "GEMM")
    words = words.replace("usd per", "price per").replace(" usd", " price").replace("hbm", "HBM")
    of = f" ({each.label.replace('_', '-')})" if each.label else ""
    return f"{part_of(each)}: {words}{of}"


@dataclass(frozen=True)
class ImprovementValue:
    """A number, and what a tenth of it is worth."""

    parameter: Parameter
    factor: float  # on the number: 1.1, 0.9, or as far as it goes
    share: float  # of the objective that is saved, by the power law of the elasticity
    saves: float  # the same in the objective's unit


@dataclass(frozen=True)
class PartImprovement:
    """The numbers of one part, most valuable first, and what all of them together are worth."""

    part: str
    rows: tuple[ImprovementValue, ...]
    share: float
    saves: float
    idle: tuple[Input, ...]  # numbers that do nothing to this optimum

    @property
    def is_technology(self) -> bool:
        return self.part in TECHNOLOGY


def improvement_factor(each: Input, elasticity: float) -> float:
    """The factor by which a number gets a tenth better: larger where that makes the objective smaller.

    A temperature moves by `UNSTATED_K`; what cannot exceed a limit, such as a yield, stops there.
    """
    step = UNSTATED_K / each.value if each.is_temperature else TENTH
    factor = 1.0 + step if elasticity < 0 else 1.0 - step
    return min(factor, max(each.quantity.most / each.value, 1.0)) if factor > 1.0 else factor


def improvement_values(answer: Sensitivity) -> tuple[PartImprovement, ...]:
    """Parts of the machine, most valuable first; of each its numbers, most valuable first.

    What is saved is `1 - factor^elasticity`: integers and plan held, sizes free; exact for small changes.
    """
    known = [each for each in answer.parameters if math.isfinite(each.elasticity)]
    parts = dict.fromkeys(part_of(each.input) for each in known) | dict.fromkeys(map(part_of, answer.idle))
    found = [
        _part(
            name,
            [each for each in known if part_of(each.input) == name],
            [each for each in answer.idle if part_of(each) == name],
            answer.objective,
        )
        for name in parts
    ]
    return tuple(sorted(found, key=lambda each: -each.share))


def improvement_value(each: Parameter, objective: float) -> ImprovementValue:
    """What a number is worth that gets a tenth better. **Arguments:** `objective` of the optimum."""
    factor = improvement_factor(each.input, each.elasticity)
    gain = math.expm1(each.elasticity * math.log(factor))
    return ImprovementValue(each, factor, -gain, -objective * gain)


def _part(name: str, parameters: Iterable[Parameter], idle: Iterable[Input], objective: float) -> PartImprovement:
    rows, logarithm = [], 0.0
    for each in parameters:
        rows.append(improvement_value(each, objective))
        logarithm += each.elasticity * math.log(rows[-1].factor)
    rows.sort(key=lambda row: -row.share)
    share = -math.expm1(logarithm)
    return PartImprovement(name, tuple(rows), share, objective * share, tuple(idle))
