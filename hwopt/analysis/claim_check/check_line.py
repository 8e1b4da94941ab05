"""A line of a check: what is stated, our figure beside it, and whether the two agree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from hwopt.analysis.claim_check.statement import QUANTITIES


class CheckVerdict(Enum):
    """The verdict on a line."""

    holds = "holds"
    fails = "fails"
    unjudged = "cannot be judged"


class CheckRelation(Enum):
    """How our figure must stand to the stated one."""

    at_most = "at most"
    at_least = "at least"
    equal = "equal"


ROUNDED = 0.01
"""By which published numbers may differ that ought to be equal: they are rounded to two or three digits (assumption)."""

EXACT = 1e-9
"""Rounding of float64."""


@dataclass(frozen=True)
class Correction:
    """One stated number that would have to be another one for a line to hold. SI."""

    key: str
    before: float
    after: float
    how: str = ""

    @property
    def change(self) -> float:
        """How large the change is: the logarithm of the ratio."""
        return abs(math.log(self.after / self.before))

    @property
    def unit(self) -> str:
        return QUANTITIES[self.key].unit


@dataclass(frozen=True)
class CheckLine:
    """One line of a check. SI.

    **Arguments:** `name`; the `claim` in words; `stated` and `ours` in `unit`, with the ends `low` and `high` of our interval,
    None where there is none; `why`, a sentence; `keys`: the stated numbers it is about; `modelled`: whether the model says it,
    not arithmetic on what is stated.
    """

    name: str
    claim: str
    verdict: CheckVerdict
    unit: str = ""
    stated: float | None = None
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    relation: CheckRelation = CheckRelation.equal
    why: str = ""
    keys: tuple[str, ...] = ()
    modelled: bool = False
    repairs: tuple[Correction, ...] = ()

    @property
    def off(self) -> float | None:
        """By what fraction our figure lies above the stated one."""
        return None if not self.stated or self.ours is None else self.ours / self.stated - 1.0

    @property
    def smallest(self) -> Correction | None:
        """The repair that changes its number least."""
        return min(self.repairs, key=lambda each: each.change, default=None)


def checked_line(
    name: str,
    claim: str,
    relation: CheckRelation,
    stated: float,
    ours: float,
    unit: str,
    *,
    ends: tuple[float, float] | None = None,
    leeway: float = EXACT,
    why: str = "",
    keys: tuple[str, ...] = (),
    modelled: bool = False,
) -> CheckLine:
    """A line of two figures. It fails where no value of our interval, nor of the leeway, agrees with what is stated."""
    low, high = ends if ends is not None else (ours, ours)
    over, under = low > stated * (1.0 + leeway), high < stated / (1.0 + leeway)
    fails = {CheckRelation.at_most: over, CheckRelation.at_least: under, CheckRelation.equal: over or under}[relation]
    told = ends if ends is not None and ends[0] != ends[1] else (None, None)
    misses = {
        CheckRelation.at_most: ours > stated * (1.0 + leeway),
        CheckRelation.at_least: ours < stated / (1.0 + leeway),
        CheckRelation.equal: False,
    }[relation]
    within = "our figure is worse, by less than four in five measured ones lie off" if misses and not fails else ""
    return CheckLine(
        name,
        claim,
        CheckVerdict.fails if fails else CheckVerdict.holds,
        unit,
        stated,
        ours,
        *told,
        relation,
        "; ".join(filter(None, (within, why))),
        keys,
        modelled,
    )


def unchecked_line(name: str, claim: str, why: str, unit: str = "", stated: float | None = None) -> CheckLine:
    """A line that cannot be judged, and why."""
    return CheckLine(name, claim, CheckVerdict.unjudged, unit, stated, why=why)
