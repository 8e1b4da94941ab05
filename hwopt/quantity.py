"""Declaration of a number on its field: unit, meaning, and key in data files.

Readers, checks, sensitivity studies and output all use this one declaration: data files, ranges, axes and screens derive from
it.
"""

import dataclasses
import math
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import equinox as eqx

from hwopt.declared import shown
from hwopt.types import PRECISIONS, TIERS, PerInnerTier, PerPrecision, PerTier
from hwopt.units import without_unit

_METADATA = "quantity"

_ELEMENTS: dict[Any, tuple[str, ...]] = {PerPrecision: PRECISIONS, PerTier: TIERS, PerInnerTier: TIERS[:2]}
"""Names along the axes of short arrays, by the type of the field."""


@dataclass(frozen=True)
class Quantity:
    """Declare a numeric field of an `equinox.Module`: what it means and how data files state it.

    **Arguments:**

    - `unit`: the SI unit; "" for ratios and counts.
    - `meaning`: a short description.
    - `key`: name of the number in data files. The default is the field's name without its unit, or none with `follows`.
    - `stated`: the unit in data files, if it is not the SI unit.
    - `of`: which type of data file has the number, if the class is read from several types.
    - `default`: value if a file omits the number.
    - `least`, `most`: smallest and largest allowed value.
    - `follows`: key of another number. The reader computes this field in proportion to that number where no file states it.
    - `elements`: names of the elements, if the field is a short array. `quantities` fills it in.
    - `varies`: whether sensitivity studies may change it by a percent. It is False for switches and for values set by a plan.
    - `power`: whether the model raises a design variable to this number.
    - `part`: part of the machine in reports. Empty means the part of its class or data file.
    """

    unit: str = ""
    meaning: str = ""
    key: str | None = None
    stated: str = ""
    of: str = ""
    default: float | None = None
    least: float = -math.inf
    most: float = math.inf
    follows: str = ""
    elements: tuple[str, ...] = ()
    varies: bool = True
    power: bool = False
    part: str = ""


def field_of(declared: Quantity) -> Any:
    """Return a field of an `equinox.Module` with the declared quantity. JSON of the module shows it with unit and meaning."""
    return eqx.field(metadata={**shown(declared.unit, declared.meaning).metadata, _METADATA: declared})


def quantity(unit: str, meaning: str = "", **settings: Any) -> Any:
    """Return a field for a number. **Arguments:** as in `Quantity`."""
    return field_of(Quantity(unit, meaning, **settings))


ratio = partial(quantity, "")
"""Return a field for a ratio or a count."""

switch = partial(quantity, "", varies=False)
"""Return a field that is never varied by a per cent: a 0/1 switch, a number that a plan decides, or an integer count."""

exponent = partial(quantity, "", power=True)
"""Return a field for a number that the model uses as an exponent."""

computed = partial(quantity, key="")
"""Return a field that is computed from other fields: no data file states it. **Arguments:** unit, meaning."""


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
