"""Fields of answers, declared once: unit, meaning, key. JSON, JSON Schema and CSV are derived from the declarations."""

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
    """Declaration of one field of an answer.

    **Arguments:**
    - `unit` in SI, "" for ratios, counts and text;
    - `meaning` in a few words, for the JSON Schema and the guide;
    - `key` in JSON, the field's name by default;
    - `spliced`: whether the value's own fields stand in place of the field;
    - `optional`: whether JSON leaves the key out where the value is None.
    """

    unit: str = ""
    meaning: str = ""
    key: str = ""
    spliced: bool = False
    optional: bool = False


class Derived(property):
    """A property of an answer that JSON and tables show like a field."""

    shown: Shown


def shown(unit: str = "", meaning: str = "", default: Any = dataclasses.MISSING, **settings: Any) -> Any:
    """Declare a field of an answer, perhaps with a `default`. **Arguments:** else as in `Shown`."""
    return dataclasses.field(default=default, metadata={_METADATA: Shown(unit, meaning, **settings)})


def derived(unit: str = "", meaning: str = "", **settings: Any) -> Callable[[Callable[[Any], Any]], Derived]:
    """Declare a property that follows from the fields of an answer. **Arguments:** as in `Shown`."""

    def declare(function: Callable[[Any], Any]) -> Derived:
        made = Derived(function)
        made.shown = Shown(unit, meaning, **settings)
        return made

    return declare


@cache
def declarations(kind: type) -> dict[str, Shown]:
    """Return the declared fields and properties of a class, by name; empty for a class that declares none."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    found = {each.name: each.metadata[_METADATA] for each in fields if _METADATA in each.metadata}
    properties = {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items()}
    return found | {name: each.shown for name, each in properties.items() if isinstance(each, Derived)}


def document(answer: Any) -> dict[str, Any]:
    """Return an answer as a dictionary for JSON: its declared fields by key."""
    return dict(_items(answer))


def _items(answer: Any) -> Iterator[tuple[str, Any]]:
    for name, each in declarations(type(answer)).items():
        value = getattr(answer, name)
        if each.spliced:
            yield from plain(value).items()
        elif value is not None or not each.optional:
            yield each.key or name, plain(value)


def plain(value: Any) -> Any:
    """Return a value as JSON has it: numbers that are not finite become null, enumerations their names."""
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
