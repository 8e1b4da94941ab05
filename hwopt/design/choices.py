"""Expand a design problem whose text fields have several candidate values into one problem for each combination."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from hwopt import catalog, escape
from hwopt.catalog.load import is_path
from hwopt.catalog.names import aliases, slug
from hwopt.errors import UserError, suggest
from hwopt.validation import names_of

EVERY = "*"
"""Value that means all catalog entries for a field."""

KINDS = {
    "chip": "chips",
    "decode_chip": "chips",
    "cooling": "cooling",
    "fabric": "fabrics",
    "memory": "memories",
    "site": "sites",
    "stack": "stacks",
    "storage": "storages",
    "recovery": "recoveries",
    "pool": "pools",
    "workload": "workloads",
    "export_rule": "export_rules",
}
"""Field of a question -> category of catalog entries that it names."""


Chosen = tuple[tuple[str, str], ...]
"""A combination of choices: (field, value) of each."""


class Combination(NamedTuple):
    """One value for each choice, and the question with these values."""

    chosen: Chosen
    objective: Any

    @property
    def name(self) -> str:
        """Return the combination's name in answers."""
        return escape.line(",".join(f"{field}={value}" for field, value in self.chosen)) or "all"


def combinations(objective: Any, choices: Mapping[str, Sequence[str]], most: int) -> list[Combination]:
    """Return a copy of a design problem for every combination of values of its text fields.

    The last field varies fastest, and its values keep their order. Choices that the problem leaves open by itself, such as how to
    meet an export rule, are combined as well.

    **Arguments:**

    - `objective`: the design problem.
    - `choices`: field -> values to try. The single value `*` means all catalog entries.
    - `most`: maximum number of combinations.

    **Raises:** `UserError` for an unknown or numeric field, a value named twice, or too many combinations.
    """
    known = {field.name for field in dataclasses.fields(objective)} if dataclasses.is_dataclass(objective) else set()
    values = {}
    for field, named in choices.items():
        if field not in known:
            raise UserError(f"choices: '{field}' is not a field of the question: {suggest(field, known)}")
        each = names_of(f"choices: {field}", named)
        if not isinstance(getattr(objective, field), str):
            raise UserError(
                f"choices: '{field}' is a number, not a choice: solve each value separately, or use hwopt.frontier for budgets"
            )
        values[field] = named_values(field, each)
    asked: Any = objective
    found = []
    for row in every_choice(values, most):
        question = dataclasses.replace(asked, **dict(row)) if row else asked
        more = every_choice({name: each for name, each in left_open(question).items() if name not in values}, most)
        found += [
            Combination(row + also, dataclasses.replace(question, **dict(also)) if also else question) for also in more
        ]
    if len(found) > most:
        raise UserError(f"choices: {len(found)} combinations exceed {most}: solve some of them separately")
    return found


def left_open(objective: Any) -> Mapping[str, Sequence[str]]:
    """Return choices that a question leaves to the search implicitly, such as the way to comply with an export rule.

    Return an empty mapping for an invalid question; stating it raises the error.
    """
    try:
        return getattr(objective, "left_open", dict)()
    except UserError:
        return {}


def every_choice(values: Mapping[str, Sequence[str]], most: int) -> list[Chosen]:
    """Return all combinations of values; first values come first.

    **Raises:** `UserError` for more than `most` combinations.
    """
    count = math.prod(map(len, values.values()))
    if count > most:
        raise UserError(f"choices: {count} combinations exceed {most}: solve some of them separately")
    return [tuple(zip(values, row, strict=True)) for row in itertools.product(*values.values())]


def refusal(stated: Callable[[], Any]) -> str:
    """Return the message of the `UserError` that stating a question raises; empty where it raises none."""
    try:
        stated()
    except UserError as error:
        return str(error)
    return ""


def refuse_strange(outcomes: Sequence[tuple[Chosen, str]], choices: Mapping[str, Sequence[str]]) -> None:
    """Raise an error for a value that is invalid in all combinations, unless the whole catalog was requested.

    **Arguments:**

    - `outcomes`: combinations, each with the reason why it is invalid; empty for a valid one.
    - `choices`: field -> values.

    **Raises:** `UserError`, also where all combinations are invalid.
    """
    for name, values in choices.items():
        for value in values if list(values) != [EVERY] else ():
            of = [why for chosen, why in outcomes if (name, value) in chosen]
            if all(of):
                raise UserError(f"choices: {name}={value}: {of[0]}")
    if all(why for _, why in outcomes):
        raise UserError(f"choices: no combination is valid: {outcomes[0][1]}")


def named_values(field: str, named: Sequence[str]) -> list[str]:
    """Return the values of a choice, with `*` expanded to the whole catalog.

    **Raises:** `UserError` where the catalog has no entries for the field, and for a value named twice.
    """
    if list(named) == [EVERY]:
        if field not in KINDS:
            raise UserError(f"choices: {field}={EVERY}: the catalog has no list of it; write its values, a|b|c")
        return catalog.names(KINDS[field])
    other = aliases(KINDS[field]) if field in KINDS else {}
    entries = {other.get(slug(each), slug(each)) if other and not is_path(each) else each for each in named}
    if not named or len(entries) < len(named) or EVERY in named:
        raise UserError(f"choices: {field}={'|'.join(named)}: write each value once, or {EVERY} alone for all")
    return list(named)
