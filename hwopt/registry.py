"""Registry of objectives by entry point; third-party objectives are found in the same way as hwopt's own."""

import dataclasses
import math
import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from hwopt.errors import UserError, suggest

GROUP = "hwopt.objectives"
"""Entry-point group under which a distribution registers an objective: `name = "package.module:Class"`."""


def names() -> list[str]:
    """Return the names of all installed objectives in alphabetical order, without importing any.

    **Returns:** each name once, even if two distributions claim it (`load` then raises an error).
    """
    return sorted(_claims())


def load(name: str) -> type:
    """Return the class of an objective by name.

    **Arguments:** `name` as registered by its distribution.

    **Returns:** the class; its fields are the budgets and settings of the design question.

    **Raises:** `UserError` if no distribution offers the name, if several do, or if its module cannot be imported.
    """
    claims = _claims()
    if not isinstance(name, str):
        raise UserError(f"the name of an objective must be text, not {name!r}: {suggest('', claims)}")
    if name not in claims:
        raise UserError(f"no objective is named '{name}': {suggest(name, claims)}")
    if len(claims[name]) > 1:
        # Choosing one would let an installation change the result of an unchanged script.
        rivals = " and ".join(sorted(_describe(entry) for entry in claims[name]))
        raise UserError(f"objective '{name}' is offered by {rivals}: uninstall one, or ask its authors to rename it")
    (entry,) = claims[name]
    try:
        found = entry.load()
    except Exception as error:  # a third-party module may fail in any way
        raise UserError(
            f"objective '{name}' of {_describe(entry)} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, type):
        raise UserError(f"objective '{name}' of {_describe(entry)} is not a class: {found!r}")
    return found


def _claims() -> dict[str, list[EntryPoint]]:
    """Return the entry points by name, without duplicates.

    They are cached until `sys.path` or a folder on it changes.
    """
    return _read(tuple((place, _changed(place)) for place in sys.path))


def _changed(place: str) -> int:
    try:
        return Path(place).stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=1)
def _read(_: tuple[tuple[str, int], ...]) -> dict[str, list[EntryPoint]]:
    """Return the entry points by name.

    Two entries with the same distribution and target count once: the metadata of an editable install is found twice if the
    checkout is also on the path.
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
    """Return a design question by name, with budgets and settings as keyword arguments.

    **Arguments:** `name` of an installed objective; `fields` of its dataclass, such as `power_budget_w=50e6`.

    **Returns:** the objective, ready for `hwopt.optimize`.

    **Raises:** `UserError` for an unknown name or field, for a number that is not positive and finite, and for other types.
    Infinity is allowed for limits, 0 where `may_be_zero` says so.
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
    """Return whether a field or flag is a limit, for which infinity means unlimited."""
    return any(word in name for word in ("budget", "limit"))


def may_be_zero(kind: type, field: str) -> bool:
    """Return whether 0 is allowed for a field: if it is a default in its objective's class or in a base class."""
    return any(vars(each).get(field) == 0.0 for each in kind.__mro__)
