"""What schemas are put together from: kinds of values, objects by their keys, definitions that several objects share."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from hwopt.declared import declarations
from hwopt.quantity import Quantity, quantities

Schema = dict[str, Any]

ANY: Schema = {}
NUMBER: Schema = {"type": "number"}
INTEGER: Schema = {"type": "integer"}
TEXT: Schema = {"type": "string"}
YES_OR_NO: Schema = {"type": "boolean"}
NOTHING: Schema = {"type": "null"}

_SHARED = "#/$defs/"


def said(kind: Schema, meaning: str, unit: str = "") -> Schema:
    """A kind with what it means, and its unit as the annotation `x-unit`."""
    return kind | ({"description": meaning} if meaning else {}) | ({"x-unit": unit} if unit else {})


def maybe(kind: Schema) -> Schema:
    """A kind, or null where there is none."""
    if isinstance(kind.get("type"), str) and "enum" not in kind:
        return kind | {"type": [kind["type"], "null"]}
    return {"anyOf": [kind, NOTHING]}


def word(*known: str) -> Schema:
    """One of some words."""
    return {"enum": list(known)}


def listed(kind: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": kind}


def pair(kind: Schema) -> Schema:
    """Two of a kind."""
    return listed(kind) | {"minItems": 2, "maxItems": 2}


def by_name(kind: Schema) -> Schema:
    """Any names, each with a value of one kind."""
    return {"type": "object", "additionalProperties": kind}


def record(keys: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object with some keys, and others that may be there."""
    return {"type": "object", "properties": {**keys, **(optional or {})}, "required": list(keys)}


def either(*kinds: Schema) -> Schema:
    """One of some kinds."""
    return {"anyOf": list(kinds)}


def shared(name: str) -> Schema:
    """A definition that several objects share."""
    return {"$ref": _SHARED + name}


def of(declared: Quantity) -> Schema:
    """A number as it is declared; null where it is infinite, or not known."""
    return said(maybe(NUMBER), declared.meaning, declared.unit)


def declared(kind: type, only: Iterable[str] | None = None) -> dict[str, Schema]:
    """The numbers of a module that are declared, by name."""
    every = quantities(kind)
    return {name: of(every[name]) for name in (every if only is None else only)}


def fields_of(kind: Any) -> dict[str, Schema]:
    """The numbers of a named tuple or dataclass, by its fields."""
    names = kind._fields if hasattr(kind, "_fields") else [each.name for each in dataclasses.fields(kind)]
    return {name: maybe(NUMBER) for name in names}


def answer(kind: type, asked: Mapping[str, Schema] | None = None) -> Schema:
    """An object with the declared fields of an answer's class, and the keys of its question."""
    hints, keys, optional = get_type_hints(kind), dict(asked or {}), {}
    for name, each in declarations(kind).items():
        hint = hints.get(name) or get_type_hints(getattr(kind, name).fget)["return"]
        if each.spliced:
            keys |= fields_of(hint)
        else:
            (optional if each.optional else keys)[each.key or name] = said(_of_hint(hint), each.meaning, each.unit)
    return record(keys, optional)


def _of_hint(hint: Any) -> Schema:
    """The kind of value that a type annotation stands for; a number may be null, where it is not finite."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return maybe(_of_hint(next(each for each in inside if each is not NoneType)))
    if origin is tuple:
        return listed(_of_hint(inside[0])) if inside[1:] == (...,) else pair(_of_hint(inside[0]))
    if origin is not None and issubclass(origin, Mapping):
        return by_name(_of_hint(inside[1]))
    if origin is not None and issubclass(origin, Sequence):
        return listed(_of_hint(inside[0]))
    if hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return word(*hint.__members__)
    if isinstance(hint, type) and declarations(hint):
        return answer(hint)
    if hasattr(hint, "_fields"):
        hints = get_type_hints(hint)
        return record({name: _of_hint(each) if declarations(each) else maybe(NUMBER) for name, each in hints.items()})
    return ANY


_PLAIN: dict[Any, Schema] = {
    bool: YES_OR_NO, int: INTEGER, str: TEXT, float: maybe(NUMBER), datetime.date: TEXT,
}  # fmt: skip


def references(schema: Any) -> set[str]:
    """Names of the definitions that a schema refers to itself."""
    if isinstance(schema, list):
        return set().union(*map(references, schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["$ref"].removeprefix(_SHARED)} if "$ref" in schema else set()
    return own.union(*map(references, schema.values()))


def closed(schema: Any) -> Any:
    """The same schema that refuses keys which it does not name, where it does not say what others are: what tests hold answers to,
    users are to ignore such keys.
    """
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    return ({"additionalProperties": False} if isinstance(schema.get("required"), list) else {}) | inner
