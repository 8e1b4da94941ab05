"""Building blocks of JSON Schemas: value types, objects by their keys, and references to shared definitions."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hwopt.declared import declarations
from hwopt.quantity import Quantity, quantities
from hwopt.types import Scalar

Schema = dict[str, Any]

ANY: Schema = {}
NUMBER: Schema = {"type": "number"}
INTEGER: Schema = {"type": "integer"}
TEXT: Schema = {"type": "string"}
YES_OR_NO: Schema = {"type": "boolean"}
NOTHING: Schema = {"type": "null"}

_SHARED = "#/$defs/"


def said(kind: Schema, meaning: str, unit: str = "") -> Schema:
    """Return a schema with a description, and its unit as the annotation `x-unit`."""
    return kind | ({"description": meaning} if meaning else {}) | ({"x-unit": unit} if unit else {})


def maybe(kind: Schema) -> Schema:
    """Return a schema that also allows null."""
    if isinstance(kind.get("type"), str) and "enum" not in kind:
        return kind | {"type": [kind["type"], "null"]}
    return {"anyOf": [kind, NOTHING]}


def word(*known: str) -> Schema:
    """Return the schema of an enumeration of words."""
    return {"enum": list(known)}


def listed(kind: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": kind}


def pair(kind: Schema) -> Schema:
    """Return the schema of a list of two values."""
    return listed(kind) | {"minItems": 2, "maxItems": 2}


def by_name(kind: Schema) -> Schema:
    """Return the schema of an object with arbitrary names whose values share one schema."""
    return {"type": "object", "additionalProperties": kind}


def record(keys: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """Return the schema of an object.

    **Arguments:**

    - `keys`: required keys.
    - `optional`: keys that may be absent.
    """
    return {"type": "object", "properties": {**keys, **(optional or {})}, "required": list(keys)}


def either(*kinds: Schema) -> Schema:
    """Return the schema of a union of alternatives."""
    return {"anyOf": list(kinds)}


def shared(name: str) -> Schema:
    """Return a reference to a shared definition."""
    return {"$ref": _SHARED + name}


def of(declared: Quantity) -> Schema:
    """Return the schema of a declared number, with its meaning and unit; null stands for infinite or unknown values."""
    return said(maybe(NUMBER), declared.meaning, declared.unit)


def declared(kind: type, only: Iterable[str] | None = None) -> dict[str, Schema]:
    """Return the schemas of the declared numbers of a class, by name. **Arguments:** `only`: restrict to these names."""
    every = quantities(kind)
    return {name: of(every[name]) for name in (every if only is None else only)}


def fields_of(kind: Any) -> dict[str, Schema]:
    """Return the schemas of the numbers of a named tuple or dataclass, by field."""
    names = kind._fields if hasattr(kind, "_fields") else [each.name for each in dataclasses.fields(kind)]
    return {name: maybe(NUMBER) for name in names}


def answer(
    kind: type, asked: Mapping[str, Schema] | None = None, sometimes: Mapping[str, Schema] | None = None
) -> Schema:
    """Return the schema of an answer's class.

    **Arguments:**

    - `asked`: keys that are not declared there, such as those that repeat the question. They replace declared ones.
    - `sometimes`: the same, of keys that may be absent.
    """
    hints, keys, optional = get_type_hints(kind), dict(asked or {}), dict(sometimes or {})
    for name, each in declarations(kind).items():
        hint = hints.get(name) or get_type_hints(getattr(kind, name).fget)["return"]
        if each.spliced:
            keys |= _of_hint(hint)["properties"]
        elif (key := each.key or name) not in keys:
            (optional if each.optional else keys)[key] = said(_of_hint(hint), each.meaning, each.unit)
    return record(keys, optional)


def _of_hint(hint: Any) -> Schema:
    """Return the schema of a type annotation. Numbers may be null, where they are not finite."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return maybe(_of_hint(next(each for each in inside if each is not NoneType)))
    if origin is Literal:
        return word(*inside)
    if origin is tuple:
        return listed(_of_hint(inside[0])) if inside[1:] == (...,) else pair(_of_hint(inside[0]))
    if origin is not None and issubclass(origin, Mapping):
        return by_name(_of_hint(inside[1]))
    if origin is not None and issubclass(origin, Sequence):
        return listed(_of_hint(inside[0]))
    if hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return word(*(each.value if isinstance(each, str) else each.name for each in hint))
    if isinstance(hint, type) and declarations(hint):
        return answer(hint)
    if hasattr(hint, "_fields"):
        hints = get_type_hints(hint)
        return record({name: _of_hint(each) or maybe(NUMBER) for name, each in hints.items()})
    return ANY


_PLAIN: dict[Any, Schema] = {
    bool: YES_OR_NO, int: INTEGER, str: TEXT, float: maybe(NUMBER), Scalar: maybe(NUMBER), datetime.date: TEXT,
}  # fmt: skip


def references(schema: Any) -> set[str]:
    """Return the names of the definitions that a schema references directly."""
    if isinstance(schema, list):
        return set().union(*map(references, schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["$ref"].removeprefix(_SHARED)} if "$ref" in schema else set()
    return own.union(*map(references, schema.values()))


def closed(schema: Any) -> Any:
    """Return a schema that rejects unknown keys in objects with named keys.

    Tests validate answers against it; users should ignore unknown keys.
    """
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    return ({"additionalProperties": False} if isinstance(schema.get("required"), list) else {}) | inner
