"""Logarithmic axes in percent of a chart, with round numbers in the unit that fits them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hwopt.units import fitting

_MARGIN = 0.05  # of the axis, on both sides
_FEWEST, _MOST = 3, 7  # round numbers on an axis
_STEPS = (1.0, 2.0, 2.5, 5.0)


@dataclass(frozen=True)
class Axis:
    """One quantity, `low` to `high` in SI units; `factor` of these in one of the unit that is `shown`."""

    words: str
    low: float
    high: float
    factor: float
    shown: str

    @staticmethod
    def over(words: str, unit: str, values: Sequence[float]) -> Axis:
        """An axis that holds positive `values` (SI)."""
        low, high = min(values), max(values)
        reach = max(math.log(high / low), 0.5) * _MARGIN
        unit = "" if unit == "1" else unit
        return Axis(words, low * math.exp(-reach), high * math.exp(reach), *fitting(unit, values))

    @property
    def label(self) -> str:
        """`capex (B$)`."""
        return f"{self.words} ({self.shown})" if self.shown else self.words

    def place(self, value: float) -> float:
        """Where a value (SI) lies, in percent."""
        return 100.0 * math.log(value / self.low) / math.log(self.high / self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Round numbers as (percent, text)."""
        low, high = self.low / self.factor, self.high / self.factor
        return [(self.place(value * self.factor), _text(value)) for value in _round_numbers(low, high)]


def _round_numbers(low: float, high: float) -> list[float]:
    """Few multiples of powers of ten; even steps where the axis is short, fewer of them where it is long."""
    powers = [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    for subs in ((1.0, 1.5, 2.0, 3.0, 5.0, 7.0), (1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        numbers = [x * sub for x in powers for sub in subs if low <= x * sub <= high]
        if len(numbers) <= _MOST:
            break
    else:
        numbers = numbers[:: math.ceil(len(numbers) / _MOST)]
    if len(numbers) >= _FEWEST:
        return numbers
    width = (high - low) / 5.0
    size = 10.0 ** math.floor(math.log10(width))
    step = next((sub * size for sub in _STEPS if sub * size >= width), 10.0 * size)
    return [step * count for count in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _text(value: float) -> str:
    """A number on an axis."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
