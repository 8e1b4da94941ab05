"""Declaration of a number on its field: unit, meaning, and key in data files.

Readers, checks, sensitivity studies and output all use this one declaration: data files, ranges, axes and screens derive from
it.
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
"""Names along the axes of short arrays, by the type of the field."""


@dataclass(frozen=True)
class Quantity:
    """Declaration of a number in an `equinox.Module`.

    **Arguments:**
    - `unit`: in SI, "" for ratios and counts;
    - `meaning`: a short description;
    - `key`: the key in data files, by default the field's name without its unit;
    - `stated`: the unit in data files, where it is not the SI unit;
    - `of`: type of the data file that states the number, where a module is read from several files;
    - `default`: value where a file omits the number;
    - `most`: largest allowed value;
    - `follows`: key of the number in data files from which this one is derived in proportion, where no file states it itself;
    - `elements`: names along its axis, if it is a short array; set by `quantities`;
    - `varies`: whether a change by a per cent is meaningful (not for switches, nor for values that a plan decides);
    - `power`: whether the model uses it as an exponent of a design variable;
    - `part`: part of the cluster to which it belongs, where neither its module nor its file determines that.
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
    """Return a field of an `equinox.Module` with the declared quantity."""
    return eqx.field(metadata={_METADATA: declared})


def quantity(unit: str, meaning: str = "", **settings: Any) -> Any:
    """Return a field for a number. **Arguments:** as in `Quantity`."""
    return field_of(Quantity(unit, meaning, **settings))


def ratio(meaning: str = "", **settings: Any) -> Any:
    """Return a field for a ratio or a count."""
    return quantity("", meaning, **settings)


def switch(meaning: str = "", **settings: Any) -> Any:
    """Return a field that is never varied by a per cent: a 0/1 switch, a number that a plan decides, or an integer count."""
    return quantity("", meaning, varies=False, **settings)


def exponent(meaning: str = "", **settings: Any) -> Any:
    """Return a field for a number that the model uses as an exponent."""
    return quantity("", meaning, power=True, **settings)


def computed(unit: str, meaning: str = "") -> Any:
    """Return a field that is computed from other fields: no data file states it."""
    return quantity(unit, meaning, key="")


@cache
def quantities(kind: type) -> dict[str, Quantity]:
    """Return the quantities that a module declares, by field name."""
    declared = {}
    for field in dataclasses.fields(kind):
        each: Quantity | None = field.metadata.get(_METADATA)
        if each is not None:
            own_name = "" if each.follows else without_unit(field.name, each.unit)
            key = own_name if each.key is None else each.key
            declared[field.name] = replace(each, key=key, elements=_ELEMENTS.get(field.type, ()))
    return declared
