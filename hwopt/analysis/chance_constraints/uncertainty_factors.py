"""Uncertainty factors of a question's inputs; inputs that share a factor move together.

Each factor has one standard normal draw z. An input with value v and the catalog's range [low, high] becomes

    v (high / v)^(z / 1.2816)  for z >= 0,      v (v / low)^(z / 1.2816)  for z < 0.

Its median is the stated value. The range contains it with a probability of 80 %, as prediction intervals do. The catalog does
not state the coverage of its ranges, so this is an assumption.

Kernels, links and software form one factor, the step time. Their joint error is known from the prediction interval, so that
their own ranges are ignored. Ranges of inputs that only divide a known total are ignored as well, such as the parts of a chip's
power.
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
"""Name of the input that scales the whole step time of a training run, except for host work."""

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
"""Factor -> description and patterns of the inputs that share it. Inputs of one factor increase together."""


@dataclass(frozen=True)
class UncertaintyFactor:
    """A group of inputs that are uncertain together.

    **Arguments:**

    - `name`, `meaning`: short name and description.
    - `inputs`: inputs that the factor moves.
    - `down`, `up`: standard deviations of their logarithms to each side.
    - `paced`: deviation added to the log of metrics proportional to step time, where no input represents that time.
    """

    name: str
    meaning: str
    inputs: tuple[Input, ...] = ()
    down: tuple[float, ...] = ()
    up: tuple[float, ...] = ()
    paced: float = 0.0

    @property
    def deviations(self) -> tuple[float, float]:
        """Return the largest deviations of its inputs, down and up."""
        return max((*self.down, self.paced), default=0.0), max((*self.up, self.paced), default=0.0)

    def of(self, share: float) -> UncertaintyFactor:
        """Return the factor with another uncertainty.

        Each input is between its value divided by and multiplied by `1 + share` with a probability of 80 %.
        """
        each = (math.log1p(share) / DEVIATIONS,) * len(self.inputs)
        return replace(self, down=each, up=each, paced=math.log1p(share) / DEVIATIONS if self.paced else 0.0)


def uncertainty_factors(problem: Problem, around: Interval | None) -> tuple[UncertaintyFactor, ...]:
    """Return the uncertainty factors of a question.

    **Arguments:**

    - `problem`: the question.
    - `around`: prediction interval of the step time; None to treat the step time as known.
    """
    return tuple(each for each in _all(problem, around) if max(each.deviations) > 0.0)


def check_one_chip_type(problem: Problem, asked: str) -> None:
    """Raise `UserError` for two types of chips, because correlations between their inputs are not declared.

    **Arguments:**

    - `problem`: the question.
    - `asked`: option that was requested, as the first word of the message.
    """
    if len(problem.template.cluster.groups) > 1:
        raise UserError(
            f"{asked}: numbers of two kinds of chips: which are off together is not stated; leave out decode_chip"
        )


def _all(problem: Problem, around: Interval | None) -> Iterator[UncertaintyFactor]:
    """Yield all factors with an input in the question, even those with zero deviation."""
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
    """Return the step-time factor. It acts on the input `level` where the model has one."""
    sides = (deviation,) * len(level)
    return UncertaintyFactor(STEP_TIME, DECLARED[STEP_TIME][0], tuple(level), sides, sides, 0.0 if level else deviation)


def _deviations(each: Input, records: Mapping[str, Record]) -> tuple[float, float]:
    """Return the log-deviations (down, up) of an input; zero where no range is stated.

    A range down to zero counts as symmetric.
    """
    known = range_of(each, records)
    if not known.stated:
        return 0.0, 0.0
    up = math.log(max(known.high / each.value, 1.0)) / DEVIATIONS
    return (math.log(max(each.value / known.low, 1.0)) / DEVIATIONS if known.low > 0.0 else up), up


def named_factors(
    names: Mapping[str, float], problem: Problem, around: Interval | None
) -> tuple[UncertaintyFactor, ...]:
    """Return uncertainty factors by name, each with a specified relative uncertainty.

    **Arguments:**

    - `names`: name of the factor -> share by which its inputs may be off.
    - `problem`: the question.
    - `around`: prediction interval of the step time.

    **Raises:** `UserError` for a factor that does not apply to the question, and for an invalid share.
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
