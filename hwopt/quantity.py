"""Declaration of a number on its field: unit, meaning, and key in data files.

Readers, checks, sensitivity studies and output all use this one declaration: data files, ranges, axes and screens derive from
it.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import numpy as np

from hwopt.declared import shown
from hwopt.errors import UserError, suggest
from hwopt.types import PRECISIONS, TIERS, PerInnerTier, PerPrecision, PerTier
from hwopt.units import read_amount, without_unit
from hwopt.validation import number_of

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
    - `absent`: whether an omitted number is None, so that it is absent from the model's trace.
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
    absent: bool = False
    least: float = -math.inf
    most: float = math.inf
    follows: str = ""
    elements: tuple[str, ...] = ()
    varies: bool = True
    power: bool = False
    part: str = ""


def field_of(declared: Quantity) -> Any:
    """Return a field of an `equinox.Module` with the declared quantity. JSON of the module shows it with unit and meaning."""
    metadata = {**shown(declared.unit, declared.meaning).metadata, _METADATA: declared}
    return eqx.field(default=None, metadata=metadata) if declared.absent else eqx.field(metadata=metadata)


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


def numbers_in(tree: Any, name: str = "") -> Iterator[tuple[str, Quantity, Any]]:
    """Yield path, declaration and value of the leaves of nested modules, in the order in which JAX flattens them."""
    if tree is None or isinstance(tree, str | bool):  # settings in text have no numbers
        return
    if isinstance(tree, dict):
        yield from ((f"{name}.{key}", Quantity(varies=False), tree[key]) for key in sorted(tree))
        return
    parts = tree._fields if hasattr(tree, "_fields") else [each.name for each in dataclasses.fields(tree)]
    declared = quantities(type(tree)) if dataclasses.is_dataclass(tree) else {}
    for part in parts:
        path, value = f"{name}.{part}" if name else part, getattr(tree, part)
        if part in declared and value is not None:
            yield path, declared[part], value
        else:
            yield from numbers_in(value, path)


def with_numbers(call: str, tree: Any, changes: Mapping[str, Any]) -> Any:
    """Return a module with other numbers in it; all others stay as they are.

    **Arguments:**

    - `call`: beginning of error messages.
    - `changes`: value by name: a number in SI, or text with a unit. A name is that of the field without its unit, preceded by its
      module where several have it, and followed by the element of an array: `hbm_bandwidth`, `pool_bandwidth`, `latency_scale_up`.

    **Raises:** `UserError` for unknown and ambiguous names, other units, and values that the declaration excludes.
    """
    places: dict[str, dict[tuple[int, int], tuple[str, Quantity]]] = {}
    for leaf, (path, declared, value) in enumerate(numbers_in(tree)):
        *modules, field = path.split(".")
        labels = [f"_{each}" for each in declared.elements] if np.size(value) > 1 else [""]
        for name, (element, label) in itertools.product(
            {field, without_unit(field, declared.unit), declared.key or field}, enumerate(labels)
        ):
            longer = "_".join([*modules[-1:], name]) + label
            places.setdefault(name + label, {})[leaf, element] = longer, declared
            places.setdefault(longer, {})[leaf, element] = longer, declared
    leaves, structure = jax.tree.flatten(tree)
    for name, stated in changes.items():
        # The whole name counts most.
        found = {k: each for k, each in places.get(name, {}).items() if each[0] == name} or places.get(name, {})
        if len(found) != 1:
            names = " or ".join(f"'{each}'" for each, _ in found.values()) or suggest(name, places)
            raise UserError(f"{call}: '{name}' names no single number: {names}")
        (((leaf, element), (_, declared)),) = found.items()
        try:
            value = read_amount(stated, declared.unit) if isinstance(stated, str) else number_of(name, stated)
        except UserError as error:
            raise UserError(f"{call}: {name} = {stated!r}: {error}") from None
        if not (math.isfinite(value) and max(declared.least, 0.0) <= value <= declared.most):
            raise UserError(
                f"{call}: {name} = {stated!r}: must be from {max(declared.least, 0.0):g} to {declared.most:g}"
            )
        leaves[leaf] = np.array(leaves[leaf], np.float64)
        leaves[leaf].flat[element] = value
    return jax.tree.unflatten(structure, leaves)
