"""Value types of flags: parsing of their text, and error messages."""

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, NamedTuple

from hwopt.errors import UserError, suggest
from hwopt.registry import is_limit
from hwopt.units import read_amount, separated, unit_in_name


class ValueType(NamedTuple):
    """Value type of a flag: its name in help and its parser."""

    metavar: str  # placeholder in help
    read: Callable[[str, str], Any]  # (flag, text) -> value


_COUNTS = ("s", "batch", "length")
"""Endings of the names of flags that count things, such as `chips`; their values do not take %."""


def number(
    flag: str,
    text: str,
    *,
    integer: bool = False,
    least: float | None = None,
    most: float = inf,
    unit: str | None = None,
) -> Any:
    """Return a positive, finite number, or one from `least` to `most`.

    The text may end with a unit of the dimension of `unit`, by default that of the flag's name. Budgets and limits may be `none`,
    which is infinity. Counts and limits do not take %.
    """
    try:
        value = read_amount(text, unit_in_name(flag.lstrip("-")) if unit is None else unit)
    except UserError as error:
        raise UserError(f"{flag} {text}: {error}") from None
    if "%" in text and unit is None and (integer or is_limit(flag) or flag.endswith(_COUNTS)):
        raise UserError(f"{flag} {text}: is not a fraction; remove the %")
    if value == inf and is_limit(flag):
        return inf
    if not (0 < value < inf if least is None else least <= value < inf):
        wanted = "positive, finite number" if least is None else f"finite number of at least {least:g}"
        raise UserError(f"{flag} {text}: must be a {wanted}")
    if value > most:
        raise UserError(f"{flag} {text}: must be at most {most:g}")
    if not integer:
        return float(value)
    if value != int(value):
        raise UserError(f"{flag} {text}: must be an integer")
    return int(text) if text.strip().isdecimal() else int(value)  # a seed may have more digits than a float


def names(flag: str, text: str) -> list[str]:
    """Read comma-separated names."""
    return separated(flag, text, ",")


def entries(example: str, flag: str, text: str) -> dict[str, str]:
    """Read comma-separated `name=value` pairs. **Arguments:** `example`: correct syntax for error messages."""
    values: dict[str, str] = {}
    for part in text.split(","):
        name, _, value = (each.strip() for each in part.partition("="))
        if not (name and value):
            raise UserError(f"{flag} {part.strip() or text}: write {example}")
        if name in values:
            raise UserError(f"{flag}: '{name}' is given twice")
        values[name] = value
    return values


def boxes(flag: str, text: str) -> dict[str, tuple[float, float]]:
    """Read comma-separated bounds, `name=low:high`; a single number fixes the variable."""
    by_name, example = {}, "name=low:high, such as tp=8:16"
    for name, box in entries(example, flag, text).items():
        ends = box.split(":")
        if len(ends) > 2:
            raise UserError(f"{flag} {name}={box}: write {example}")
        low, high = (number(f"{flag} {name}", end) for end in (ends[0], ends[-1]))
        if low > high:
            raise UserError(f"{flag} {name}={box}: reversed; write {name}={ends[1]}:{ends[0]}")
        by_name[name] = (low, high)
    return by_name


_SPOT = {"every": "_s", "return": "_s", "discount": "", "chips": "_chips"}
"""Keys of `--spot` -> suffix that states the unit."""


def spot(flag: str, text: str) -> dict[str, float]:
    """Read `every=10h,return=30min,discount=60%` into numbers by key; `chips` is optional."""
    example = "every=10h,return=30min,discount=60%"
    said = entries(example, flag, text)
    for name in said:
        if name not in _SPOT:
            raise UserError(f"{flag} {name}: {suggest(name, _SPOT)}")
    for name in _SPOT:
        if name not in said and name != "chips":
            raise UserError(f"{flag} {text}: '{name}' is missing; write {example}")
    return {name: number(f"{flag} {name}{_SPOT[name]}", value, least=0.0) for name, value in said.items()}


def one_of(*known: str) -> ValueType:
    """Return the value type of an enumeration of words."""

    def read(flag: str, text: str) -> str:
        if text not in known:
            raise UserError(f"{flag} {text}: {suggest(text, known)}")
        return text

    return ValueType("WORD", read)


def integer(**limits: float) -> ValueType:
    """Return the value type of an integer. **Arguments:** `limits`: as in `number`."""
    return ValueType("N", partial(number, integer=True, **limits))


def choices(flag: str, text: str) -> dict[str, list[str]]:
    """Read comma-separated options of fields, `field=a|b`."""
    fields = entries("field=a|b, such as chip=h100-sxm|b200", flag, text)
    return {name: separated(f"{flag} {name}", values, "|") for name, values in fields.items()}


def shares(flag: str, text: str) -> dict[str, float]:
    """Read comma-separated shares, `name=30%`, as fractions of 1."""
    stated = entries("name=share, such as hbm=30%", flag, text)
    return {name: number(f"{flag} {name}", share, unit="") for name, share in stated.items()}


def sizes(flag: str, text: str) -> list[int]:
    """Read numbers of chips in ascending order: `low:high` doubles from one to the other, or a comma-separated list."""
    ends = text.split(":")
    if len(ends) > 2:
        raise UserError(f"{flag} {text}: write low:high, such as 256:1048576, or a list, such as 256,512,3072")
    if len(ends) == 1:
        return sorted(number(flag, name, integer=True) for name in names(flag, text))
    low, high = (number(flag, end, integer=True) for end in ends)
    if low > high:
        raise UserError(f"{flag} {text}: reversed; write {high}:{low}")
    doubled = [low << power for power in range((high // low).bit_length())]
    if doubled[-1] != high:
        raise UserError(
            f"{flag} {text}: doubling {low} gives {doubled[-1]} and {2 * doubled[-1]}, not {high}; choose one of them, or write a "
            "list"
        )
    return doubled


def confidence(flag: str, text: str) -> float:
    """Read a probability from 0.5 to below 1, which may be in percent."""
    value = number(flag, text, unit="")
    if not 0.5 <= value < 1.0:
        raise UserError(f"{flag} {text}: must be a probability of at least 0.5 and below 1, such as 0.9")
    return value


POSITIVE = ValueType("X", number)
NOT_NEGATIVE = ValueType("X", partial(number, least=0.0))
SHARE = ValueType("SHARE", partial(number, least=0.0, most=1.0))
INTEGER, NATURAL = integer(), integer(least=0)
TEXT = ValueType("NAME", lambda flag, text: text)
PATH = ValueType("FILE", lambda flag, text: text)
SETTINGS = ValueType("NAME=VALUE", lambda flag, text: text)
NAMES = ValueType("A,B", names)
BOXES = ValueType("NAME=LOW:HIGH", boxes)
CHOICES = ValueType("FIELD=A|B", choices)
SPOT = ValueType("every=10h,...", spot)
SHARES = ValueType("NAME=SHARE", shares)
SIZES = ValueType("LOW:HIGH", sizes)
CONFIDENCE = ValueType("P", confidence)
SWITCH = ValueType("", lambda flag, text: not flag.startswith("--no-"))
