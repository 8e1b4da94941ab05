"""One line of a claim check: the stated figure, the computed figure, and the verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from hwopt.analysis.claim_check.statement import QUANTITIES


class CheckVerdict(Enum):
    """Verdict on one line of a check."""

    holds = "holds"
    fails = "fails"
    unjudged = "cannot be judged"


class CheckRelation(Enum):
    """Required relation of the computed figure to the stated one."""

    at_most = "at most"
    at_least = "at least"
    equal = "equal"


ROUNDED = 0.01
"""Relative tolerance between published numbers that should be equal: they are rounded to two or three digits (assumption)."""

EXACT = 1e-9
"""Relative tolerance for rounding errors of float64."""


@dataclass(frozen=True)
class Correction:
    """Change of one stated number that makes a failing line hold, in SI units.

    **Arguments:**

    - `key`: name of the stated number.
    - `before`, `after`: its stated and its corrected value.
    - `how`: remark on how the value was found.
    """

    key: str
    before: float
    after: float
    how: str = ""

    @property
    def change(self) -> float:
        """Return the size of the change: the absolute logarithm of the ratio."""
        return abs(math.log(self.after / self.before))

    @property
    def unit(self) -> str:
        return QUANTITIES[self.key].unit


@dataclass(frozen=True)
class CheckLine:
    """One line of a claim check. Numbers are in SI units.

    **Arguments:**

    - `name`, `claim`: name of the line, and the claim in words.
    - `verdict`: whether the claim holds.
    - `unit`: unit of the numbers.
    - `stated`, `ours`: stated and computed figure; None where there is none.
    - `low`, `high`: ends of the prediction interval of the computed figure; None where there is none.
    - `relation`: required relation of the computed figure to the stated one.
    - `why`: reason, as a sentence.
    - `keys`: stated numbers that the line is about.
    - `modelled`: whether the model computes the figure; otherwise it is arithmetic on stated numbers.
    - `repairs`: single corrections that make the line hold.
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
        """Return the relative excess of the computed figure over the stated one."""
        return None if not self.stated or self.ours is None else self.ours / self.stated - 1.0

    @property
    def smallest(self) -> Correction | None:
        """Return the correction with the smallest change."""
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
    """Compare a computed figure with a stated one.

    The line fails where no value of the interval, widened by the tolerance, agrees.

    **Arguments:**

    - `name`, `claim`, `unit`, `why`, `keys`, `modelled`: as in `CheckLine`.
    - `relation`: required relation of `ours` to `stated`.
    - `stated`, `ours`: the two figures.
    - `ends`: prediction interval of `ours`; None for an exact figure.
    - `leeway`: relative tolerance of the comparison.
    """
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
    """Return a line without a verdict, with the reason."""
    return CheckLine(name, claim, CheckVerdict.unjudged, unit, stated, why=why)
