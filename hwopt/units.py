"""Units: SI multipliers (the only place that converts units), parsers of user input, and the formatter for output."""

import math
import re
from collections.abc import Sequence

from hwopt.errors import UserError, suggest

YEAR_S = 365.25 * 86400.0

ZERO_CELSIUS_K = 273.15
"""0 degC in kelvin, by definition."""

_UNITS: dict[str, dict[str, float]] = {
    # SI unit -> other units allowed in data files, each with its size in SI
    "1": {"%": 0.01},
    "B": {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    "B/s": {"MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "Gb/s": 1e9 / 8, "Tb/s": 1e12 / 8},
    "FLOP/s": {"GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15, "EFLOP/s": 1e18},
    "FLOP": {},
    "Hz": {"MHz": 1e6, "GHz": 1e9},
    "s": {
        "ms": 1e-3,
        "us": 1e-6,
        "ns": 1e-9,
        "min": 60.0,
        "h": 3600.0,
        "day": 86400.0,
        "week": 7 * 86400.0,
        "month": YEAR_S / 12.0,
        "year": YEAR_S,
    },
    "W": {"kW": 1e3, "MW": 1e6, "GW": 1e9},
    "J": {"kWh": 3.6e6, "MWh": 3.6e9, "GWh": 3.6e12},
    "J/m2": {"kWh/cm2": 3.6e10},
    "W/m2": {"W/cm2": 1e4, "W/mm2": 1e6},
    "J/B": {"pJ/bit": 8e-12},
    "J/FLOP": {"pJ/FLOP": 1e-12},
    "USD": {},
    "USD/B": {"USD/GB": 1e-9, "USD/TB": 1e-12},
    "USD/(B/s)": {"USD/(GB/s)": 1e-9, "USD/(Gb/s)": 8e-9},
    "USD/(FLOP/s)": {"USD/(TFLOP/s)": 1e-12},
    "USD/W": {"USD/kW": 1e-3},
    "USD/J": {"USD/kWh": 1.0 / 3.6e6},
    "USD/(W.s)": {"USD/(kW.month)": 1e-3 / (YEAR_S / 12.0)},
    "USD/s": {"USD/h": 1.0 / 3600.0},
    "USD/m2": {"USD/cm2": 1e4, "USD/mm2": 1e6},
    "kg/J": {"g/kWh": 1e-3 / 3.6e6},
    "kg/m2": {"kg/cm2": 1e4, "g/cm2": 10.0},
    "kg/(B/s)": {"g/(GB/s)": 1e-12},
    "W/B": {"W/GB": 1e-9, "W/TB": 1e-12},
    "kg/B": {"kg/GB": 1e-9, "g/GB": 1e-12, "kg/TB": 1e-12},
    "m2": {"mm2": 1e-6},
    "1/m2": {"1/cm2": 1e4, "1/mm2": 1e6, "Mtr/mm2": 1e12},
    "m2/B": {"mm2/MB": 1e-12},
    "m2/(B/s)": {"mm2/(GB/s)": 1e-15},
    "m": {"mm": 1e-3},
    "m/(B/s)": {"mm/(GB/s)": 1e-12},
    "V": {"kV": 1e3},
    "A/m2": {"A/mm2": 1e6},
    "K": {},
    "1/K": {},
    "K/W": {},
    "degC": {},
    "kg/W": {},
    "kg/USD": {},
    "kg": {},
    "K.m2/W": {"K.cm2/W": 1e-4},
    "token": {},
    "sequence": {},
    "parameter": {},
    "chip": {"chips": 1.0},
    "1/(m2.s)": {},
    "1/s": {"1/h": 1.0 / 3600.0, "1/year": 1.0 / YEAR_S},
}

MULTIPLIERS = {unit: (factor, si) for si, units in _UNITS.items() for unit, factor in ({si: 1.0} | units).items()}
"""Unit as written in data files -> factor, SI unit."""

_PREFIXES = {1e15: "P", 1e12: "T", 1e9: "G", 1e6: "M", 1e3: "k", 1.0: "", 1e-3: "m", 1e-6: "u", 1e-9: "n", 1e-12: "p"}
_PREFIXED = frozenset({"B", "B/s", "FLOP/s", "FLOP", "Hz", "W", "J", "J/B", "J/FLOP", "token/s"})


_IN_NAMES = {
    "B": "bytes", "B/s": "bytes_per_s", "FLOP/s": "flops_per_s", "FLOP": "flops", "Hz": "hz", "s": "s", "W": "w", "J": "j",
    "K": "k", "m": "m", "m2": "m2", "kg": "kg", "USD": "usd", "1/s": "per_s", "1/K": "per_k", "1/m2": "per_m2", "K/W": "k_per_w",
    "K.m2/W": "k_m2_per_w", "W/m2": "w_per_m2", "W/B": "w_per_byte", "J/B": "j_per_byte", "J/m2": "j_per_m2",
    "J/FLOP": "j_per_flop", "USD/B": "usd_per_byte", "USD/(B/s)": "usd_per_byte_per_s", "USD/W": "usd_per_w",
    "USD/J": "usd_per_j", "USD/m2": "usd_per_m2", "USD/(W.s)": "usd_per_w_s", "V": "volts",
    "A/m2": "a_per_m2", "kg/J": "kg_per_j", "kg/W": "kg_per_w", "kg/B": "kg_per_byte",
    "kg/m2": "kg_per_m2", "kg/(B/s)": "kg_per_byte_per_s", "m2/B": "m2_per_byte", "m2/(B/s)": "m2_per_byte_per_s",
    "m/(B/s)": "m_per_byte_per_s", "J/token": "j", "USD/token": "usd", "kg/token": "kg",
}  # fmt: skip
"""SI unit -> suffix of field names with that unit."""


def without_unit(name: str, unit: str) -> str:
    """Return a field's name without its unit suffix: `hbm_bandwidth` for `hbm_bandwidth_bytes_per_s`."""
    end = "_" + _IN_NAMES.get(unit, "")
    return name.removesuffix(end) if unit in _IN_NAMES and name != end else name


def label(name: str, unit: str) -> str:
    """Return a field's name as an axis label: `peak power` for `peak_power_w`."""
    return without_unit(name, unit).removesuffix("_per_chip").replace("_", " ")


def unit_in_name(name: str) -> str:
    """Return the SI unit in the suffix of a field, flag or variable name: `W` for `power_budget_w`; "" if there is none."""
    words = re.sub(r"[^a-z0-9]+", "_", name.lower())
    ends = {end: unit for unit, end in reversed(_IN_NAMES.items())}  # of two units with the same suffix, the first wins
    return next((ends[end] for end in sorted(ends, key=len, reverse=True) if words.endswith(f"_{end}")), "")


_SPELLINGS = {
    "d": "day", "days": "day", "hours": "h", "hour": "h", "minutes": "min", "seconds": "s", "years": "year", "y": "year",
    "$": "USD", "usd": "USD", "dollars": "USD", "tokens": "token", "sequences": "sequence", "parameters": "parameter",
    "FLOPS": "FLOP/s", "TFLOPS": "TFLOP/s", "PFLOPS": "PFLOP/s", "Gbps": "Gb/s", "Tbps": "Tb/s", "watts": "W",
}  # fmt: skip
"""Other spellings of units that users write -> spelling in the table."""

_THOUSANDS = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "bn": 1e9, "T": 1e12}
"""Prefix of a count or an amount of money -> factor; there B means billion, not bytes."""

COUNTED = frozenset({"", "1", "token", "sequence", "parameter", "chip"})
"""Units of counts and ratios, whose numbers are written without a unit."""

_IN_THOUSANDS = COUNTED | {"USD"}

_AMOUNT = re.compile(
    r"([+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]*)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*((?:[A-Za-z%$]|1/).*)?", re.DOTALL
)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

NO_LIMIT = frozenset({"none", "unlimited"})
"""Words for "no limit"."""


def read_number(text: str, unit: float = 1.0, where: str = "") -> float:
    """Return the number that a text states in plain digits, times `unit`.

    **Arguments:** `where`: start of error messages.

    **Raises:** `UserError` for other text, and for numbers outside the range of float64, which would become infinity or 0.
    """
    digits = _NUMBER.fullmatch(text.strip())
    if digits is None:
        raise UserError(f"{where}'{text.strip()}' is not a number")
    value = float(digits[0]) * unit
    if math.isinf(value) or (value == 0.0 and digits[1].strip("0.")):
        raise UserError(f"{where}'{text.strip()}' is outside the range of 64-bit floating-point numbers")
    return value


def read_amount(text: str, unit: str) -> float:
    """Return a number from user input, in SI: `20MW`, `60d`, `1.45B$`, `15.6T`, `41%`, `1,200`; `none` is infinity.

    **Arguments:** `unit`: expected SI unit, "" for ratios and counts; a text without a unit is read in this unit.

    **Raises:** `UserError` as in `read_number`, and for a unit of another dimension; the message lists the allowed units.
    """
    said = text.strip()
    if said.lower() in NO_LIMIT:
        return math.inf
    said = f"{said[1:]}$" if said.startswith("$") else said
    parts = _AMOUNT.fullmatch(said)
    if parts is None or not parts[1]:
        return read_number(said)  # raises an error with the reason
    return read_number(parts[1].replace(",", ""), _factor(parts[2].strip(), unit) if parts[2] else 1.0)


def separated(what: str, text: str, mark: str) -> list[str]:
    """Return the parts of a text between separators, such as commas.

    **Arguments:** `what`: beginning of error messages; `mark`: the separator.

    **Raises:** `UserError` for an empty or repeated part.
    """
    found = [each.strip() for each in text.split(mark)]
    for each in found:
        if not each or found.count(each) > 1:
            wrong = f"'{each}' is given twice" if each else f"an item before or after '{mark}' is empty"
            raise UserError(f"{what} {text}: {wrong}")
    return found


def _factor(written: str, unit: str) -> float:
    """Return the size in SI of a unit as the user wrote it."""
    wanted, spelled = unit or "1", _SPELLINGS.get(written, written).replace("$/", "USD/")
    if spelled in MULTIPLIERS and MULTIPLIERS[spelled][1] == wanted:
        return MULTIPLIERS[spelled][0]
    if wanted in _IN_THOUSANDS:
        for prefix in sorted(_THOUSANDS, key=len, reverse=True):
            rest = written.removeprefix(prefix).strip()
            if rest != written and (not rest or _SPELLINGS.get(rest, rest) == wanted):
                return _THOUSANDS[prefix]
    if wanted == "s" and written[:1] in _THOUSANDS and written[1:].strip() in ("h", "hours"):  # chip-hours: 30.84 Mh
        return _THOUSANDS[written[0]] * MULTIPLIERS["h"][0]
    known = {name for name, (_, si) in MULTIPLIERS.items() if si == wanted and name != "1"}
    known |= {name for name, spelling in _SPELLINGS.items() if spelling in known}
    known |= {"k", "M", "B", "T"} if wanted in _IN_THOUSANDS else set()
    raise UserError(f"'{written}' is not a unit of this quantity: {suggest(written, known)}")


def to_si(value: float, unit: str) -> float:
    """Return `value`, given in `unit`, in SI units.

    **Raises:** `UserError` for a unit that is not in the table.
    """
    try:
        factor, _ = MULTIPLIERS[unit]
    except KeyError:
        raise UserError(f"unknown unit '{unit}': {suggest(unit, MULTIPLIERS)}") from None
    return value * factor


def pretty(value: float, unit: str = "", digits: int = 4) -> str:
    """Return a value as formatted text with a customary unit: `3.35 TB/s`, `1.5 h`, `1.2 B$`, `12 %`.

    **Arguments:** `value` in SI units; `unit`: an SI unit of `MULTIPLIERS`, or `fraction`; `digits`: significant digits.
    """
    if value is None or not math.isfinite(value):
        return "-" if value is None else f"{value} {unit}".strip()
    if unit == "fraction":
        return f"{100 * value:.{digits}g} %"
    if unit == "s" and abs(value) >= 120.0:
        for size, name in ((YEAR_S, "years"), (86400.0, "days"), (3600.0, "h"), (60.0, "min")):
            if abs(value) >= 2 * size:
                return f"{value / size:.{digits}g} {name}"
    if unit == "USD":
        for size, name in ((1e9, " B$"), (1e6, " M$")):
            if abs(value) >= size:
                return f"{value / size:.{digits}g}{name}"
        return f"{value:,.0f} $" if abs(value) >= 1e3 else f"{value:.{digits}g} $"
    if unit == "USD/s":
        return f"{3600.0 * value:.{digits}g} $/h"
    if unit in _PREFIXED or (unit == "s" and 0 < abs(value) < 1):
        for size, prefix in _PREFIXES.items():
            if abs(value) >= size or size == min(_PREFIXES):
                return f"{value / size:.{digits}g} {prefix}{unit}" if value else f"0 {unit}"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f} {unit}".strip()
    return f"{value:.{digits}g} {unit}".strip()


def fitting(unit: str, values: Sequence[float]) -> tuple[float, str]:
    """Return the unit in which `pretty` writes typical `values`, for numbers that share a unit: on an axis, in a column.

    **Arguments:** `unit`: an SI unit; `values` in that unit; values that are not positive and finite are ignored.

    **Returns:** the size of the shared unit in SI, and its text.
    """
    positive = [value for value in values if math.isfinite(value) and value > 0]
    if not positive or not unit:
        return 1.0, unit
    typical = max(math.sqrt(min(positive) * max(positive)), max(positive) / 10.0)
    typical = 10.0 ** math.floor(math.log10(typical))  # a power of ten, so that formatting loses no digits
    number, _, shown = pretty(typical, unit, 17).partition(" ")
    return typical / float(number.replace(",", "")), shown
