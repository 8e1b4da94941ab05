"""Finds objectives by entry point, so that those of third parties stand beside our own."""

import dataclasses
import math
import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from hwopt.errors import UserError, suggest

GROUP = "hwopt.objectives"
"""Entry-point group under which a distribution offers an objective: `name = "package.module:Class"`."""


def names() -> list[str]:
    """The names of all installed objectives, in alphabetical order; imports none of them.

    **Returns:** each name once, even if two distributions claim it (`load` then refuses it).
    """
    return sorted(_claims())


def load(name: str) -> type:
    """The class behind an objective's name.

    **Arguments:** `name` as its distribution registered it.

    **Returns:** the class; its fields are the budgets and the knobs of the question.

    **Raises:** `UserError` if no distribution offers the name, if several do, or if its module cannot be imported.
    """
    claims = _claims()
    if not isinstance(name, str):
        raise UserError(f"the name of an objective must be text, not {name!r}: {suggest('', claims)}")
    if name not in claims:
        raise UserError(f"no objective is named '{name}': {suggest(name, claims)}")
    if len(claims[name]) > 1:
        # Picking one would let an installation change the answer of an unchanged script.
        rivals = " and ".join(sorted(_describe(entry) for entry in claims[name]))
        raise UserError(f"objective '{name}' is offered by {rivals}: uninstall one, or ask its authors to rename it")
    (entry,) = claims[name]
    try:
        found = entry.load()
    except Exception as error:  # the module is a third party's and may fail in any way
        raise UserError(
            f"objective '{name}' of {_describe(entry)} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, type):
        raise UserError(f"objective '{name}' of {_describe(entry)} is not a class: {found!r}")
    return found


def _claims() -> dict[str, list[EntryPoint]]:
    """Entry points by name, without repetition; read again once the path or a folder on it has changed."""
    return _read(tuple((place, _changed(place)) for place in sys.path))


def _changed(place: str) -> int:
    try:
        return Path(place).stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=1)
def _read(_: tuple[tuple[str, int], ...]) -> dict[str, list[EntryPoint]]:
    """Entry points by name.

    A distribution met twice with the same target is one claim: an editable install puts its metadata on the path
    twice as soon as the checkout is on it too.
    """
    claims: dict[str, dict[tuple[str | None, str], EntryPoint]] = {}
    for entry in entry_points(group=GROUP):
        distribution = entry.dist.name.lower() if entry.dist else None
        claims.setdefault(entry.name, {}).setdefault((distribution, entry.value), entry)
    return {name: list(found.values()) for name, found in claims.items()}


def _describe(entry: EntryPoint) -> str:
    owner = f"distribution '{entry.dist.name}'" if entry.dist else "an unnamed distribution"
    return f"{owner} ({entry.value})"


def objective(name: str, **fields: object) -> object:
    """A design question by name, its budgets and choices as keywords.

    **Arguments:** `name` of an installed objective; `fields` of its dataclass, such as `power_budget_w=50e6`.

    **Returns:** the objective, ready for `hwopt.optimize`.

    **Raises:** `UserError` for an unknown name or field, or a number that is not positive and finite.
    """
    kind = load(name)
    known = {field.name: field for field in dataclasses.fields(kind)}
    for field, value in fields.items():
        if field not in known:
            raise UserError(f"objective '{name}' has no field '{field}': {suggest(field, known)}")
        default = known[field].default
        if isinstance(default, str) and not isinstance(value, (str, Path)):
            raise UserError(f"objective '{name}': {field}={value!r} must be text such as '{default}'")
        if isinstance(default, (int, float)) and not isinstance(default, bool):
            from hwopt.validation import number_of

            number = number_of(f"objective '{name}': {field}", value)
            if number == math.inf and is_limit(field):
                fields[field] = number
                continue
            if not (math.isfinite(number) and (number > 0 or (number == 0 and may_be_zero(kind, field)))):
                raise UserError(f"objective '{name}': {field}={value!r} must be a positive, finite number")
            fields[field] = number
    return kind(**fields)


def is_limit(name: str) -> bool:
    """Whether a field or flag limits something, so that infinity means no limit."""
    return any(word in name for word in ("budget", "limit"))


def may_be_zero(kind: type, field: str) -> bool:
    """Whether 0 is a value of a field: a default of its objective, or of what that is derived from."""
    return any(vars(each).get(field) == 0.0 for each in kind.__mro__)
