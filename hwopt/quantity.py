"""What a number is: unit, meaning, what a data file calls it. Declared once, on the field that holds it.

Whatever reads, checks, varies or prints a number asks its field: data files, ranges, axes and screens follow from it.
"""

import dataclasses
import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import equinox as eqx

from hwopt.types import PRECISIONS, TIERS, PerInnerTier, PerPrecision, PerTier
from hwopt.units import without_unit

_METADATA = "quantity"

_ELEMENTS: dict[Any, tuple[str, ...]] = {PerPrecision: PRECISIONS, PerTier: TIERS, PerInnerTier: TIERS[:2]}
"""Names along the axes of short lists, by the type of the field."""


@dataclass(frozen=True)
class Quantity:
    """A number of a module.

    **Arguments:** `unit` in SI, "" for ratios and counts; `meaning` in a few words; `key`: what data files call it, its own name
    without the unit by default; `stated`: the unit there, where that is another; `of`: whose file, where a module is read from
    several; `default` where a file may leave it open; `most` that it can be; `follows`: the key of a number that it is in
    proportion to, where no file states it itself; `elements`: names along its axis where it is a short list; `varies`: whether
    a per cent more of it means anything (not of a yes or no, nor of what a plan decides); `power`: whether the model uses it as
    a power of what a design decides; `part`: what of a machine it belongs to, where neither its module nor its file says so.
    """

    unit: str = ""
    meaning: str = ""
    key: str | None = None
    stated: str = ""
    of: str = ""
    default: float | None = None
    most: float = math.inf
    follows: str = ""
    elements: tuple[str, ...] = ()
    varies: bool = True
    power: bool = False
    part: str = ""


def field_of(declared: Quantity) -> Any:
    """A field of an `equinox.Module` that holds a quantity."""
    return eqx.field(metadata={_METADATA: declared})


def quantity(unit: str, meaning: str = "", **settings: Any) -> Any:
    """A field that holds a number; settings as of `Quantity`."""
    return field_of(Quantity(unit, meaning, **settings))


def ratio(meaning: str = "", **settings: Any) -> Any:
    """A field that holds a ratio or a count."""
    return quantity("", meaning, **settings)


def switch(meaning: str = "", **settings: Any) -> Any:
    """A field that holds yes or no, a number that a plan decides, or a count that no per cent changes."""
    return quantity("", meaning, varies=False, **settings)


def exponent(meaning: str = "", **settings: Any) -> Any:
    """A field that the model uses as a power."""
    return quantity("", meaning, power=True, **settings)


def computed(unit: str, meaning: str = "") -> Any:
    """A field that follows from others: no file states it."""
    return quantity(unit, meaning, key="")


@cache
def quantities(kind: type) -> dict[str, Quantity]:
    """The numbers that a module declares, by field."""
    declared = {}
    for field in dataclasses.fields(kind):
        each: Quantity | None = field.metadata.get(_METADATA)
        if each is not None:
            own_name = "" if each.follows else without_unit(field.name, each.unit)
            key = own_name if each.key is None else each.key
            declared[field.name] = replace(each, key=key, elements=_ELEMENTS.get(field.type, ()))
    return declared
