"""Compute how much the best objective improves if one model input improves by 10 %, with the inputs grouped by part.

Each saving is given as a share of the objective and in its unit. Temperatures change by 5 K instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from hwopt.analysis.sensitivity.optimum import Parameter, Sensitivity
from hwopt.analysis.sensitivity.ranges import UNSTATED_K
from hwopt.declared import shown
from hwopt.design.template_inputs import Input
from hwopt.units import label

TENTH = 0.1
"""Relative improvement of an input. Temperatures change by `UNSTATED_K`; a yield stops at 1."""

TECHNOLOGY = ("node", "memory", "packaging", "links", "datapath", "architecture", "cooling")
"""Parts whose inputs describe a technology and change with the next generation."""

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
"""Module of an input -> part of the machine, where neither field nor file specifies one."""

_FILES = {"memory": "memory", "datapath": "datapath", "design": "architecture"}
"""Catalog file that a technology input is read from -> part of the machine."""

_BASE = "project.base_process"


def part_of(each: Input) -> str:
    """Return the part of the machine that an input belongs to."""
    if each.module == _BASE:
        return _MODULES[_BASE]
    if each.module.startswith("workload"):
        return "software" if each.module.endswith(".stack") else "what is asked"
    if each.module == "cluster.stack":
        return "software"
    own = _MODULES.get(each.module, "plan" if each.module.startswith("plan") else each.module)
    return each.quantity.part or _FILES.get(each.quantity.of, own)


def words_of(each: Input) -> str:
    """Return an input's description for users: `prices: server lifetime`, `chip: peak FLOP/s (bf16)`."""
    field = each.name.rpartition("].")[2].rpartition(".")[2].partition("[")[0]
    words = re.sub(r" per( m2| chip)? s$", "", label(field, each.unit)).replace("gemm", "GEMM")
    words = words.replace("usd per", "price per").replace(" usd", " price").replace("hbm", "HBM")
    of = f" ({each.label.replace('_', '-')})" if each.label else ""
    return f"{part_of(each)}: {words}{of}"


@dataclass(frozen=True)
class ImprovementValue:
    """An input and the saving from its improvement by a tenth."""

    parameter: Parameter
    factor: float = shown("", "factor on the input: 1.1, 0.9, or up to its limit")
    share: float = shown("", "relative saving of the objective, by the power law of the elasticity")
    saves: float = shown("", "absolute saving, in the objective's unit")


@dataclass(frozen=True)
class PartImprovement:
    """Inputs of one part of the machine, the most valuable first, and the saving from improving all of them together."""

    part: str
    rows: tuple[ImprovementValue, ...]
    share: float
    saves: float
    idle: tuple[Input, ...]  # inputs without effect on this optimum

    @property
    def is_technology(self) -> bool:
        return self.part in TECHNOLOGY


def improvement_factor(each: Input, elasticity: float) -> float:
    """Return the factor that improves an input by a tenth: above 1 where a larger input lowers the objective, else below 1.

    A temperature changes by `UNSTATED_K`. An input with an upper limit, such as a yield, stops there.
    """
    step = UNSTATED_K / each.value if each.is_temperature else TENTH
    factor = 1.0 + step if elasticity < 0 else 1.0 - step
    return min(factor, max(each.quantity.most / each.value, 1.0)) if factor > 1.0 else factor


def improvement_values(answer: Sensitivity) -> tuple[PartImprovement, ...]:
    """Return the parts of the machine with the savings from their inputs, both sorted by saving.

    The relative saving is `1 - factor^elasticity`, with integers and plan fixed and continuous variables free. It is exact for
    small changes.
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
    """Return the saving from improving an input by a tenth. **Arguments:** `objective` of the optimum."""
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
