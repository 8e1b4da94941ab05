"""Logarithmic axes of a chart, positioned in percent, with round tick values in a fitting unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hwopt.units import fitting

_MARGIN = 0.05  # margin at both ends, as a share of the axis
_FEWEST, _MOST = 3, 7  # number of ticks on an axis
_STEPS = (1.0, 2.0, 2.5, 5.0)


@dataclass(frozen=True)
class Axis:
    """Axis of one quantity from `low` to `high` (SI).

    **Arguments:**

    - `factor`: SI value of one displayed unit.
    - `shown`: that unit.
    """

    words: str
    low: float
    high: float
    factor: float
    shown: str

    @staticmethod
    def over(words: str, unit: str, values: Sequence[float]) -> Axis:
        """Return an axis that covers positive `values` (SI)."""
        low, high = min(values), max(values)
        reach = max(math.log(high / low), 0.5) * _MARGIN
        unit = "" if unit == "1" else unit
        return Axis(words, low * math.exp(-reach), high * math.exp(reach), *fitting(unit, values))

    @property
    def label(self) -> str:
        """Return the label of the axis, such as `capex (B$)`."""
        return f"{self.words} ({self.shown})" if self.shown else self.words

    def place(self, value: float) -> float:
        """Return the position of a value (SI) on the axis, in percent."""
        return 100.0 * math.log(value / self.low) / math.log(self.high / self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Return the ticks of the axis as (position in percent of its length, text)."""
        low, high = self.low / self.factor, self.high / self.factor
        return [(self.place(value * self.factor), _text(value)) for value in _round_numbers(low, high)]


def _round_numbers(low: float, high: float) -> list[float]:
    """Return round tick values. They are multiples of powers of ten; on a short axis equal steps, on a long one fewer."""
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
    """Return the text of a tick on an axis."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
