"""Declared fields of results: unit, meaning and key. JSON and JSON Schema are derived from the declarations."""

import dataclasses
import datetime
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

_METADATA = "shown"


@dataclass(frozen=True)
class Shown:
    """Declaration of one field of a result.

    **Arguments:**
    - `unit` in SI, "" for ratios, counts and text;
    - `meaning`: a short description for the JSON Schema and the guide;
    - `key` in JSON, by default the field's name;
    - `spliced`: whether the value's own fields replace the field;
    - `optional`: whether the key is absent where the value is empty.
    """

    unit: str = ""
    meaning: str = ""
    key: str = ""
    spliced: bool = False
    optional: bool = False


class Derived(property):
    """A property of a result that JSON shows like a field."""

    shown: Shown


def shown(unit: str = "", meaning: str = "", default: Any = dataclasses.MISSING, **settings: Any) -> Any:
    """Declare a displayed field of an answer.

    **Arguments:** `default`: value of the field if none is passed. Other arguments are those of `Shown`.
    """
    return dataclasses.field(default=default, metadata={_METADATA: Shown(unit, meaning, **settings)})


def derived(unit: str = "", meaning: str = "", **settings: Any) -> Callable[[Callable[[Any], Any]], Derived]:
    """Declare a displayed property that is computed from the fields of an answer. **Arguments:** those of `Shown`."""

    def declare(function: Callable[[Any], Any]) -> Derived:
        made = Derived(function)
        made.shown = Shown(unit, meaning, **settings)
        return made

    return declare


@cache
def declarations(kind: type) -> dict[str, Shown]:
    """Return unit, meaning and JSON key of each field and property that a class declares for output, by name.

    Fields are declared with `shown`, properties with `derived`. The result is empty for a class without declarations.
    """
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    found = {each.name: each.metadata[_METADATA] for each in fields if _METADATA in each.metadata}
    properties = {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items()}
    return found | {name: each.shown for name, each in properties.items() if isinstance(each, Derived)}


def document(answer: Any) -> dict[str, Any]:
    """Return a result as a dictionary for JSON: its declared fields by key."""
    return dict(_items(answer))


def _items(answer: Any) -> Iterator[tuple[str, Any]]:
    for name, each in declarations(type(answer)).items():
        value = getattr(answer, name)
        if each.spliced:
            yield from plain(value).items()
        elif value or not each.optional:
            yield each.key or name, plain(value)


def plain(value: Any) -> Any:
    """Return a value in JSON types: numbers that are not finite become null, enumeration members names or text values."""
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, datetime.date):
        return value.isoformat()
    if declarations(type(value)):
        return document(value)
    if hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    number = float(value)
    return number if math.isfinite(number) else None
