"""Declared fields of results: unit, meaning and key. JSON and JSON Schema are derived from the declarations."""

import contextlib
import dataclasses
import datetime
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, ClassVar

from hwopt.units import pretty

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


class Result:
    """Mixin of results: at most ten lines in a session, all values in `summary`, and a data frame."""

    rows: ClassVar[str] = ""  # field whose items are the rows of the data frame; by default the result is one row

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        cls.__repr__ = Result.__repr__  # `dataclass` adds none of its own then

    def __repr__(self) -> str:
        title, *lines = self.summary().splitlines()
        if len(lines) > 9:
            lines = textwrap.wrap("; ".join(lines), 120)
        return "\n  ".join(textwrap.shorten(each, 120, placeholder=" ...") for each in [title, *lines[:9]])

    def summary(self) -> str:
        """Return the result as text: one line for each value, in customary units."""
        stated = enumerate(self) if isinstance(self, list) else ()
        lines = [f"{each} {_words(value)}" for each, value in stated] or [
            f"{name} {words}"
            for name, unit, value in _stated(self)
            if name != "headline" and (words := _words(value, unit))
        ]
        fits = "infeasible" if _words(getattr(self, "feasible", True)) in ("0", "no") else ""
        return "\n".join([" ".join(filter(None, [type(self).__name__, fits, getattr(self, "headline", "")])), *lines])

    def to_dataframe(self) -> Any:
        """Return the values as a `pandas.DataFrame`, SI, one row or those of `rows`; nested names are joined by dots."""
        from pandas import json_normalize  # xarray needs pandas

        listed = self if isinstance(self, list) else getattr(self, self.rows) if self.rows else [self]
        return json_normalize(
            [
                {n: x if type(x) in (bool, int, float, str) else _words(x) for n, _, x in _stated(each)}
                | document(each)
                for each in listed
            ]
        )


class Results(list, Result):
    """List of results: a line and a row for each."""


def _stated(result: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield name, unit and value of the plain fields of a result and of those that it declares; without any, of all fields."""
    declared = declarations(type(result))
    fields = getattr(result, "_fields", None) or [each.name for each in dataclasses.fields(result)]
    for name in dict.fromkeys([*fields, *declared]):
        value = getattr(result, name)
        if name in declared or not declared or type(value) in (bool, int, float, str):
            yield name, declared.get(name, Shown()).unit, value


def _words(value: Any, unit: str = "") -> str:
    """Return a value of a result as text on one line, empty for what has nothing to say."""
    if value is None or isinstance(value, bool):
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, str | datetime.date | Enum):
        return getattr(value, "name", str(value))
    if isinstance(getattr(value, "value", None), float) and hasattr(value, "unit"):
        return f"{getattr(value, 'name', '')} {pretty(value.value, value.unit)}".strip()
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return "; ".join(map(_words, value))
    inside = [(name, "", each) for name, each in value.items()] if isinstance(value, Mapping) else None
    if inside is not None or declarations(type(value)) or hasattr(value, "_fields") or isinstance(value, Result):
        return ", ".join(
            f"{name} {said}"
            for name, of, each in (_stated(value) if inside is None else inside)
            if (said := _words(each, of))
        )
    with contextlib.suppress(TypeError, ValueError):
        return pretty(float(value), unit)  # pyright: ignore[reportArgumentType]
    return f"{getattr(value, 'name', type(value).__name__)}{getattr(value, 'shape', '')}"


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
