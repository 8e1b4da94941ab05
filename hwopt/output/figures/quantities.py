"""Quantities on axes: words, a unit that fits the numbers, ticks without powers of ten."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwopt.output.figures.style import plain
from hwopt.units import fitting, pretty, to_si

_COUNTED = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
_SUBS = (
    # maximum span in decades -> multiples of powers of ten that get a tick
    (1.0, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)),
    (2.0, (1.0, 2.0, 5.0)),
    (3.0, (1.0, 3.0)),
    (math.inf, (1.0,)),
)
_FINER = {"m2": "mm2"}  # SI unit -> displayed unit: areas are those of dies


@dataclass(frozen=True)
class AxisQuantity:
    """The quantity of an axis. `factor` is the SI value of one `shown`, the displayed unit."""

    words: str
    unit: str
    factor: float = 1.0
    shown: str = ""

    def scaled(self, values: Any) -> np.ndarray:
        """Return SI values in the unit of the axis."""
        return np.asarray(values, float) / self.factor

    @property
    def label(self) -> str:
        """Return the axis label, such as `capital (B$)`; without the unit where the words contain it (not `chips (chip)`)."""
        counted = {word.removesuffix("s") for word in self.words.lower().split()}
        return plain(self.words if not self.shown or self.shown in counted else f"{self.words} ({self.shown})")

    def text(self, value: float, digits: int = 3) -> str:
        """Return one SI value with its unit, in the unit that fits it best."""
        if self.unit in _FINER:
            return f"{value / to_si(1.0, _FINER[self.unit]):.{digits}g} {_FINER[self.unit]}"
        return plain(pretty(value, "" if self.unit == "1" else self.unit, digits))


def axis_quantity(dataset: Any, name: str, values: Any) -> AxisQuantity:
    """Return a variable or metric by name, in the unit that fits `values` (SI).

    Words and unit are those of the first of `name`, `front_name`, `best_name` that states them.
    """
    words, unit = attribute(dataset, name, "long_name"), attribute(dataset, name, "units")
    if unit is None and name == dataset.attrs.get("objective"):
        unit = dataset.attrs.get("objective_unit")
    return fitted(words or name.replace("_", " "), unit or "", values)


def attribute(dataset: Any, name: str, key: str) -> Any:
    """Return an attribute of a variable or metric, also of its front or best values; None where no variable states it."""
    stated = (dataset[each].attrs.get(key) for each in (name, f"front_{name}", f"best_{name}") if each in dataset)
    return next((each for each in stated if each not in (None, "")), None)


def fitted(words: str, unit: str, values: Any) -> AxisQuantity:
    """Return a quantity in the unit that fits `values` (SI)."""
    if unit in _FINER:
        return AxisQuantity(words, unit, to_si(1.0, _FINER[unit]), _FINER[unit])
    factor, shown = fitting("" if unit == "1" else unit, np.ravel(np.asarray(values, float)).tolist())
    return AxisQuantity(words, unit, factor, shown)


def tick_text(value: float, digits: int = 4) -> str:
    """Format a number on an axis: `0.05`, `300`, `20k`, `1.5M`."""
    for size, suffix in _COUNTED:
        if abs(value) >= size * (10 if suffix == "k" else 1):
            return f"{value / size:.{digits}g}{suffix}"
    return f"{value:.{digits}g}".replace("e-0", "e-")


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers from `low` to `high` on a logarithmic axis, three to eight where possible.

    Multiples of 1, 2, 5; below half a decade even steps; above three decades powers of ten.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator

    decades = math.log10(high / low)
    if decades < 0.5:
        values = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    else:
        subs = next(subs for most, subs in _SUBS if decades < most)
        values = LogLocator(subs=subs, numticks=9).tick_values(low, high)
    return [float(each) for each in values if low * (1 - 1e-9) <= each <= high * (1 + 1e-9)]


def set_range(axis: Any, low: float, high: float, fontsize: float | None = None) -> None:
    """Make an `XAxis` or `YAxis` logarithmic from `low` to `high` (in its own unit), with readable ticks."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    getattr(axis.axes, f"set_{axis.axis_name}lim")(low, high)
    chosen = ticks(low, high)
    axis.set_ticks(chosen, [tick_text(each) for each in chosen], fontsize=fontsize)
    axis.set_ticks([], minor=True)
