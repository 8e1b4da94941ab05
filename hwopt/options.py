"""Solver options: dataclass fields with ranges, validated when an instance is created."""

from collections.abc import Iterable
from dataclasses import field, fields
from functools import cache
from typing import Any, TypeVar

from hwopt.errors import UserError
from hwopt.validation import number_of

T = TypeVar("T")


def option(default: T, least: float, most: float) -> T:
    """Return a dataclass field with a default and a range.

    **Arguments:** `least`, `most`: inclusive limits of the number, or of each number of a tuple.
    """
    return field(default=default, metadata={"least": least, "most": most})


class Options:
    """Base class of frozen dataclasses of options: numbers, tuples of numbers, or nested options.

    **Raises:** `UserError` on creation, for a value of another type or outside its range.
    """

    def __post_init__(self) -> None:
        for each in fields(self):  # pyright: ignore[reportArgumentType]
            object.__setattr__(self, each.name, self._checked(each, getattr(self, each.name)))

    def _checked(self, each: Any, value: Any) -> Any:
        what = f"{type(self).__name__}: {each.name}"
        if not each.metadata:
            wanted = type(each.default)
            if not isinstance(value, wanted):
                raise UserError(f"{what} must be a {wanted.__name__}, not {type(value).__name__}")
            return value
        least, most = each.metadata["least"], each.metadata["most"]
        if not isinstance(each.default, tuple):
            return _number(what, value, type(each.default), least, most)
        if isinstance(value, str) or not isinstance(value, Iterable) or not (numbers := tuple(value)):
            raise UserError(f"{what} must be a non-empty list of numbers")
        return tuple(_number(what, number, type(each.default[0]), least, most) for number in numbers)


def _number(what: str, value: Any, kind: type, least: float, most: float) -> Any:
    """Return a value as an int or float, according to `kind`, if it is inside a range.

    **Raises:** `UserError` otherwise.
    """
    number = number_of(what, value)
    if not least <= number <= most or (kind is int and number != int(number)):
        name = "an integer" if kind is int else "a number"
        raise UserError(f"{what} = {number:g} must be {name} from {least:g} to {most:g}")
    return kind(number)


@cache
def _defaults(kind: type[T]) -> T:
    return kind()


def options_of(call: str, value: Any, kind: type[T]) -> T:
    """Return the options passed to a public function, or the defaults for None.

    **Arguments:** `call`: name of the public function; `value`: the options; `kind`: their class.

    **Raises:** `UserError` for a value of another class.
    """
    if value is None:
        return _defaults(kind)
    if not isinstance(value, kind):
        name = type(value).__name__
        raise UserError(f"{call}: options must be hwopt.{kind.__name__}(...), not {name}")
    return value
