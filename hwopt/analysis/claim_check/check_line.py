"""One line of a claim check: the stated figure, the computed figure, and the verdict."""

import math
from dataclasses import dataclass
from enum import StrEnum

from hwopt.analysis.claim_check.statement import QUANTITIES, SHARES
from hwopt.declared import derived, shown
from hwopt.units import pretty


class CheckVerdict(StrEnum):
    """Verdict on one line of a check."""

    holds = "holds"
    fails = "fails"
    unjudged = "cannot be judged"


class CheckRelation(StrEnum):
    """Required relation of the computed figure to the stated one."""

    at_most = "at most"
    at_least = "at least"
    equal = "equal"


ROUNDED = 0.01
"""Relative tolerance between published numbers that should be equal: they are rounded to two or three digits (assumption)."""

EXACT = 1e-9
"""Relative tolerance for rounding errors of float64."""


_DAY = 86400.0
_PLAIN = ("", "chip", "sequence", "token", "parameter")


def times(ratio: float) -> str:
    """Return a large or small ratio as a factor: `2.96x`, or `1/2.96`."""
    return f"{ratio:.3g}x" if ratio >= 1.0 else f"1/{1.0 / ratio:.3g}"


def amount(value: float | None, unit: str, key: str = "") -> str:
    """Return a figure in the notation that is customary for its quantity, such as days, T, B or M, or Gb/s.

    **Arguments:** `key`: name of the number; some quantities are customarily written in another unit.
    """
    if value is None or not math.isfinite(value):
        return "-"
    if key in ("chip hours", "chip_hours"):
        return f"{value / 3.6e9:.4g} M chip hours" if value >= 3.6e9 else f"{value / 3600.0:,.0f} chip hours"
    if unit == "s" and key == "time":
        return f"{value / _DAY:,.4g} days" if value < 9999.5 * _DAY else f"{value / _DAY:,.0f} days"
    if unit in _PLAIN and value >= 1e7:
        size, name = next(each for each in ((1e12, "T"), (1e9, "B"), (1e6, "M")) if value >= each[0])
        return f"{value / size:.4g} {name}"
    if unit in _PLAIN:
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"
    if key in ("scale_out_bandwidth", "network"):
        return f"{8e-9 * value:,.4g} Gb/s"
    return pretty(value, unit)


@dataclass(frozen=True)
class Correction:
    """Change of one stated number that makes a failing line hold, in SI units.

    **Arguments:**

    - `key`: name of the stated number.
    - `before`, `after`: its stated and its corrected value.
    - `how`: remark on how the value was found.
    """

    key: str = shown(key="number")
    before: float = shown(key="from")
    after: float = shown(key="to")
    how: str = ""

    @property
    def change(self) -> float:
        """Return the size of the change: the absolute logarithm of the ratio."""
        return abs(math.log(self.after / self.before))

    @derived()
    def unit(self) -> str:
        return QUANTITIES[self.key].unit

    @derived()
    def words(self) -> str:
        """Return the correction in words: `chips 17,408 instead of 16,384 (1,024 more)`."""
        key = self.key
        unit = "fraction" if key in SHARES else self.unit
        more = self.after - self.before
        by = "more" if more > 0 else "fewer" if unit in _PLAIN else "less"
        ratio = self.after / self.before
        share = f"{100 * (ratio - 1):+.3g} %" if 0.5 <= ratio < 2.0 else times(ratio)
        step = f"{amount(abs(more), unit, key)} {by}, " if key in ("chips", "racks", "rack_chips") else ""
        how = f"; {self.how}" if self.how else ""
        to, was = (amount(each, unit, key) for each in (self.after, self.before))
        return f"{key.replace('_', ' ')} {to} instead of {was} ({step}{share}{how})"


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

    name: str = shown()
    claim: str = shown()
    verdict: CheckVerdict = shown()
    unit: str = shown(default="")
    stated: float | None = shown(default=None)
    ours: float | None = shown(meaning="computed figure", default=None)
    low: float | None = shown(default=None)
    high: float | None = shown(default=None)
    relation: CheckRelation = shown(key="must_be", default=CheckRelation.equal)
    why: str = shown(default="")
    keys: tuple[str, ...] = ()
    modelled: bool = False
    repairs: tuple[Correction, ...] = ()

    @derived()
    def off(self) -> float | None:
        """Return the relative excess of the computed figure over the stated one."""
        return None if not self.stated or self.ours is None else self.ours / self.stated - 1.0

    @derived()
    def by(self) -> str:
        """Return what computes the figure: the model, or arithmetic on stated numbers."""
        return "model" if self.modelled else "arithmetic"

    @derived(meaning="single corrections that make the line hold, the smallest first", key="repairs")
    def by_size(self) -> list[Correction]:
        return sorted(self.repairs, key=lambda each: each.change)


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
    repairs: tuple[Correction, ...] = (),
) -> CheckLine:
    """Compare a computed figure with a stated one.

    The line fails where no value of the interval, widened by the tolerance, agrees.

    **Arguments:**

    - `name`, `claim`, `unit`, `why`, `keys`, `modelled`: as in `CheckLine`.
    - `relation`: required relation of `ours` to `stated`.
    - `stated`, `ours`: the two figures.
    - `ends`: prediction interval of `ours`; None for an exact figure.
    - `leeway`: relative tolerance of the comparison.
    - `repairs`: corrections of the line, if it fails.
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
    within = "the computed figure is worse, but its range includes the stated one" if misses and not fails else ""
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
        repairs if fails else (),
    )


def unchecked_line(name: str, claim: str, why: str, unit: str = "", stated: float | None = None) -> CheckLine:
    """Return a line without a verdict, with the reason."""
    return CheckLine(name, claim, CheckVerdict.unjudged, unit, stated, why=why)
