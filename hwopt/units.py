"""SI multipliers, the only place where units convert, and the printer that converts back."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hwopt.errors import UserError, suggest

_YEAR_S = 365.25 * 86400.0

MULTIPLIERS: dict[str, tuple[float, str]] = {
    # unit as written in data files -> (factor, SI unit)
    "1": (1.0, "1"),
    "%": (0.01, "1"),
    "B": (1.0, "B"),
    "kB": (1e3, "B"),
    "MB": (1e6, "B"),
    "GB": (1e9, "B"),
    "TB": (1e12, "B"),
    "KiB": (2.0**10, "B"),
    "MiB": (2.0**20, "B"),
    "GiB": (2.0**30, "B"),
    "B/s": (1.0, "B/s"),
    "MB/s": (1e6, "B/s"),
    "GB/s": (1e9, "B/s"),
    "TB/s": (1e12, "B/s"),
    "Gb/s": (1e9 / 8, "B/s"),
    "Tb/s": (1e12 / 8, "B/s"),
    "FLOP/s": (1.0, "FLOP/s"),
    "GFLOP/s": (1e9, "FLOP/s"),
    "TFLOP/s": (1e12, "FLOP/s"),
    "PFLOP/s": (1e15, "FLOP/s"),
    "FLOP": (1.0, "FLOP"),
    "Hz": (1.0, "Hz"),
    "MHz": (1e6, "Hz"),
    "GHz": (1e9, "Hz"),
    "s": (1.0, "s"),
    "ms": (1e-3, "s"),
    "us": (1e-6, "s"),
    "ns": (1e-9, "s"),
    "h": (3600.0, "s"),
    "day": (86400.0, "s"),
    "year": (_YEAR_S, "s"),
    "W": (1.0, "W"),
    "kW": (1e3, "W"),
    "MW": (1e6, "W"),
    "J": (1.0, "J"),
    "kWh": (3.6e6, "J"),
    "J/m2": (1.0, "J/m2"),
    "kWh/cm2": (3.6e10, "J/m2"),
    "W/m2": (1.0, "W/m2"),
    "W/cm2": (1e4, "W/m2"),
    "W/mm2": (1e6, "W/m2"),
    "J/B": (1.0, "J/B"),
    "pJ/bit": (8e-12, "J/B"),
    "J/FLOP": (1.0, "J/FLOP"),
    "pJ/FLOP": (1e-12, "J/FLOP"),
    "USD": (1.0, "USD"),
    "USD/B": (1.0, "USD/B"),
    "USD/GB": (1e-9, "USD/B"),
    "USD/(B/s)": (1.0, "USD/(B/s)"),
    "USD/(GB/s)": (1e-9, "USD/(B/s)"),
    "USD/(Gb/s)": (8e-9, "USD/(B/s)"),
    "USD/(FLOP/s)": (1.0, "USD/(FLOP/s)"),
    "USD/(TFLOP/s)": (1e-12, "USD/(FLOP/s)"),
    "USD/W": (1.0, "USD/W"),
    "USD/kW": (1e-3, "USD/W"),
    "USD/J": (1.0, "USD/J"),
    "USD/kWh": (1.0 / 3.6e6, "USD/J"),
    "USD/h": (1.0 / 3600.0, "USD/s"),
    "USD/m2": (1.0, "USD/m2"),
    "USD/cm2": (1e4, "USD/m2"),
    "USD/mm2": (1e6, "USD/m2"),
    "kg/J": (1.0, "kg/J"),
    "g/kWh": (1e-3 / 3.6e6, "kg/J"),
    "kg/m2": (1.0, "kg/m2"),
    "kg/cm2": (1e4, "kg/m2"),
    "g/cm2": (10.0, "kg/m2"),
    "kg/(B/s)": (1.0, "kg/(B/s)"),
    "g/(GB/s)": (1e-12, "kg/(B/s)"),
    "W/B": (1.0, "W/B"),
    "W/GB": (1e-9, "W/B"),
    "USD/TB": (1e-12, "USD/B"),
    "kg/B": (1.0, "kg/B"),
    "kg/GB": (1e-9, "kg/B"),
    "g/GB": (1e-12, "kg/B"),
    "m2": (1.0, "m2"),
    "mm2": (1e-6, "m2"),
    "1/m2": (1.0, "1/m2"),
    "1/cm2": (1e4, "1/m2"),
    "Mtr/mm2": (1e12, "1/m2"),
    "m2/B": (1.0, "m2/B"),
    "mm2/MB": (1e-12, "m2/B"),
    "m2/(B/s)": (1.0, "m2/(B/s)"),
    "mm2/(GB/s)": (1e-15, "m2/(B/s)"),
    "m": (1.0, "m"),
    "mm": (1e-3, "m"),
    "m/(B/s)": (1.0, "m/(B/s)"),
    "mm/(GB/s)": (1e-12, "m/(B/s)"),
    "K": (1.0, "K"),
    "1/K": (1.0, "1/K"),
    "K/W": (1.0, "K/W"),
    "degC": (1.0, "degC"),
    "kg/W": (1.0, "kg/W"),
    "kg": (1.0, "kg"),
    "K.m2/W": (1.0, "K.m2/W"),
    "K.cm2/W": (1e-4, "K.m2/W"),
    "token": (1.0, "token"),
    "sequence": (1.0, "sequence"),
    "parameter": (1.0, "parameter"),
    "chip": (1.0, "chip"),
    "chips": (1.0, "chip"),
    "1/s": (1.0, "1/s"),
    "1/h": (1.0 / 3600.0, "1/s"),
    "1/year": (1.0 / _YEAR_S, "1/s"),
}

_PREFIXES = (
    (1e15, "P"),
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "u"),
    (1e-9, "n"),
    (1e-12, "p"),
)
_PREFIXED = frozenset({"B", "B/s", "FLOP/s", "FLOP", "Hz", "W", "J", "J/B", "J/FLOP", "token/s"})


def to_si(value: float, unit: str) -> float:
    """`value` in `unit` as a number in SI units.

    **Raises:** `UserError` for a unit that is not in the table.
    """
    try:
        factor, _ = MULTIPLIERS[unit]
    except KeyError:
        raise UserError(f"unknown unit '{unit}': {suggest(unit, MULTIPLIERS)}") from None
    return value * factor


def si_unit(unit: str) -> str:
    """The SI unit that `to_si` converts `unit` to."""
    to_si(1.0, unit)
    return MULTIPLIERS[unit][1]


def pretty(value: float, unit: str = "", digits: int = 4) -> str:
    """`value` (SI) as people write it: `3.35 TB/s`, `1.5 h`, `1.2 B$`, `12 %`.

    **Arguments:** `value` in SI units; `unit` an SI unit of `MULTIPLIERS`, or `fraction`; `digits` significant digits.
    """
    if value is None or not math.isfinite(value):
        return "-" if value is None else f"{value} {unit}".strip()
    if unit == "fraction":
        return f"{100 * value:.{digits}g} %"
    if unit == "s" and abs(value) >= 120.0:
        for size, name in ((_YEAR_S, "years"), (86400.0, "days"), (3600.0, "h"), (60.0, "min")):
            if abs(value) >= 2 * size:
                return f"{value / size:.{digits}g} {name}"
    if unit == "USD":
        for size, name in ((1e9, " B$"), (1e6, " M$")):
            if abs(value) >= size:
                return f"{value / size:.{digits}g}{name}"
        return f"{value:,.0f} $" if abs(value) >= 1e3 else f"{value:.{digits}g} $"
    if unit in _PREFIXED or (unit == "s" and 0 < abs(value) < 1):
        for size, prefix in _PREFIXES:
            if abs(value) >= size or size == _PREFIXES[-1][0]:
                return f"{value / size:.{digits}g} {prefix}{unit}" if value else f"0 {unit}"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f} {unit}".strip()
    return f"{value:.{digits}g} {unit}".strip()


def fitting(unit: str, values: Sequence[float]) -> tuple[float, str]:
    """The unit that `pretty` writes typical `values` in, for numbers that share one: on an axis, in a column.

    **Arguments:** `unit` an SI unit; `values` in it, those that are not positive and finite count for nothing.

    **Returns:** SI units in one of it, and how it is written.
    """
    held = [value for value in values if math.isfinite(value) and value > 0]
    if not held or not unit:
        return 1.0, unit
    typical = max(math.sqrt(min(held) * max(held)), max(held) / 10.0)
    typical = 10.0 ** math.floor(math.log10(typical))  # a power of ten, so that no digit is lost in the text
    number, _, shown = pretty(typical, unit, 17).partition(" ")
    return typical / float(number.replace(",", "")), shown
