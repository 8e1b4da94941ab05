"""Why numbers of a question may be off: causes, each of which moves the numbers that share it together.

A cause draws one z of a normal distribution. A number with the catalogue's range [low, high] around its value v becomes

    v (high / v)^(z / 1.2816)  for z >= 0,      v (v / low)^(z / 1.2816)  for z < 0,

so that its median is the stated value, and the range holds it four times in five, as the intervals of predictions do: the
catalogue does not say what its ranges hold, and this is how they are read here. Kernels, links and software are one cause, the
step's time: the interval of the prediction says how far they are off together, so their own ranges are left out. So are numbers
that only share out what is known as a whole, such as the parts of a chip's power.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hwopt.analysis.sensitivity.ranges import range_of
from hwopt.calibration.intervals import DEVIATIONS, Interval
from hwopt.catalog.schema import Record
from hwopt.design.problem import Problem
from hwopt.design.template_inputs import Input, template_inputs
from hwopt.errors import UserError, suggest
from hwopt.workload.training import TrainingRun

STEP_TIME = "step_time"

_LEVEL = "cluster.stack.level"
"""Of a training run, what the whole step's time is in proportion to, but for work of the host."""

DECLARED = {
    STEP_TIME: ("the time of a step, as far as predictions go wrong", ()),
    "chip_price": ("what is paid for a chip, memory and links apart", (r"cluster\.prices\.chip_base_usd",)),
    "hbm": ("prices of memory stacks", (r"cluster\.prices\.hbm_usd_.*",)),
    "network": (
        "prices of NICs, switches, cables and optics",
        (
            r"cluster\.prices\.network_usd_.*",
            r"cluster\.prices\.domain_usd_per_chip",
            r"cluster\.rack\.optics_usd_.*",
        ),
    ),
    "hosts": ("price of servers without chips", (r"cluster\.prices\.host_usd",)),
    "racks": ("price of racks", (r"cluster\.rack\.price_usd",)),
    "storage": ("prices of storage", (r"cluster\.storage\.usd_.*",)),
    "building": ("price of the building a watt", (r"cluster\.facility\.construction_usd_per_w",)),
    "electricity": ("price of electricity", (r"cluster\.facility\.electricity_usd_per_j",)),
    "upkeep": ("staff, repair and software", (r"cluster\.prices\.maintenance_per_s",)),
    "capital": ("interest on capital", (r"cluster\.prices\.capital_rate_per_s",)),
    "occupancy": ("share of its life that a cluster is used", (r"cluster\.prices\.occupancy",)),
    "failures": ("how often parts and software fail", (r"cluster\.reliability\..*_failures_per_.*",)),
    "restarts": (
        "how long restarts and swaps take",
        (r"cluster\.reliability\.restart_s", r"cluster\.recovery\.swap_s"),
    ),
    "repairs": ("how long repairs take", (r"cluster\.recovery\.repair_s",)),
    "chip_energy": ("energy of operations and of memory of a drawn chip", (r"project\..*(_j_per_.*|energy_j.*)",)),
    "network_energy": ("energy of links", (r"cluster\.network\.energy_j_.*", r"cluster\.rack\.optics_energy_.*")),
    "storage_power": ("power of storage", (r"cluster\.storage\.(power_w|energy_j)_.*",)),
    "host_power": ("power of servers without chips", (r"cluster\.facility\.host_power_w",)),
    "cooling": (
        "power of fans, pumps and all else of the building",
        (r"cluster\.cooling\.(fan|plant)_fraction", r"cluster\.facility\.(room_plant|other)_fraction"),
    ),
    "supplies": (
        "losses of power supplies and distribution",
        (r"cluster\.facility\.(supply|distribution)_efficiency",),
    ),
    "weather": ("wet bulb of the hottest day", (r"cluster\.facility\.design_wet_bulb_k",)),
    "carbon": ("carbon of a kilowatt hour", (r"cluster\.facility\.carbon_kg_per_j",)),
    "making": (
        "carbon of making chips, servers and the building",
        (
            r"cluster\.chip\.embodied_carbon_kg",
            r"cluster\.prices\.host_carbon_kg",
            r"cluster\.facility\.construction_carbon_.*",
        ),
    ),
}
"""Cause -> what it is in words, and the inputs that share it. Numbers of one cause rise together."""


@dataclass(frozen=True)
class UncertaintyFactor:
    """Numbers that are off together.

    **Arguments:** `inputs` that it moves; `down` and `up`: deviations of their logarithms to each side; `paced`: deviation of
    what is in proportion to a step's time, where no input stands for that.
    """

    name: str
    meaning: str
    inputs: tuple[Input, ...] = ()
    down: tuple[float, ...] = ()
    up: tuple[float, ...] = ()
    paced: float = 0.0

    @property
    def deviations(self) -> tuple[float, float]:
        """The largest of its numbers, down and up."""
        return max((*self.down, self.paced), default=0.0), max((*self.up, self.paced), default=0.0)

    def of(self, share: float) -> UncertaintyFactor:
        """The same with `1 + share` times each number, and the number over it, as the range that holds four in five."""
        each = (math.log1p(share) / DEVIATIONS,) * len(self.inputs)
        return replace(self, down=each, up=each, paced=math.log1p(share) / DEVIATIONS if self.paced else 0.0)


def uncertainty_factors(problem: Problem, around: Interval | None) -> tuple[UncertaintyFactor, ...]:
    """The causes that move a question's numbers.

    **Arguments:** `around`: the interval of the answer's step time; None where there is none, and the step counts as known.
    """
    return tuple(each for each in _all(problem, around) if max(each.deviations) > 0.0)


def check_one_chip_type(problem: Problem, asked: str) -> None:
    """Refuses two kinds of chips: which of their numbers are off together is not declared.

    **Arguments:** what is `asked`, as errors begin.
    """
    if len(problem.template.cluster.groups) > 1:
        raise UserError(
            f"{asked}: numbers of two kinds of chips: which are off together is not stated; leave out decode_chip"
        )


def _all(problem: Problem, around: Interval | None) -> Iterator[UncertaintyFactor]:
    """Those with a number in the question, known as it may be."""
    inputs, records = template_inputs(problem), problem.provenance.records
    if around is not None:
        trains = isinstance(problem.template.workload, TrainingRun)
        yield _step_time([each for each in inputs if trains and each.name == _LEVEL], around.time / DEVIATIONS)
    for name, (meaning, patterns) in DECLARED.items():
        own = [each for each in inputs if any(re.fullmatch(p, each.name.partition("[")[0]) for p in patterns)]
        sides = [(each, *_deviations(each, records)) for each in own]
        if sides:
            yield UncertaintyFactor(name, meaning, *map(tuple, zip(*sides, strict=True)))  # pyright: ignore[reportArgumentType]


def _step_time(level: list[Input], deviation: float) -> UncertaintyFactor:
    """The step's time, by its `level` where the model has one."""
    sides = (deviation,) * len(level)
    return UncertaintyFactor(STEP_TIME, DECLARED[STEP_TIME][0], tuple(level), sides, sides, 0.0 if level else deviation)


def _deviations(each: Input, records: Mapping[str, Record]) -> tuple[float, float]:
    """Of the logarithm of a number, to each side; none where no range is stated. A range down to nothing is as wide as up."""
    known = range_of(each, records)
    if not known.stated:
        return 0.0, 0.0
    up = math.log(max(known.high / each.value, 1.0)) / DEVIATIONS
    return (math.log(max(each.value / known.low, 1.0)) / DEVIATIONS if known.low > 0.0 else up), up


def named_factors(
    names: Mapping[str, float], problem: Problem, around: Interval | None
) -> tuple[UncertaintyFactor, ...]:
    """Causes by name, each with a share by which it may be off.

    **Raises:** `UserError` for a cause that the question does not have, and for an invalid share.
    """
    known = {each.name: each for each in _all(problem, around)}
    chosen = []
    for name, share in names.items():
        if name not in known:
            hint = suggest(name, known)
            extra = "" if hint.startswith("known") else f"; known: {', '.join(known)}"
            raise UserError(f"vary: '{name}' moves no number of this question: {hint}{extra}")
        if not 0.0 < share < 10.0:
            raise UserError(f"vary: {name} = {share:g}: say by what share it may be off, such as 0.3 or 30%")
        chosen.append(known[name].of(share))
    return tuple(chosen)
