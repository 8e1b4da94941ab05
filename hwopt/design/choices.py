"""Choices of a question: fields that take one of several values, and the questions that all combinations of them state."""

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
"""Stands for all that the catalogue has of a field."""

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
"""Field of a question -> the kind of catalogue entry that it names."""


Chosen = tuple[tuple[str, str], ...]
"""A combination: (field, value) of each choice."""


class Combination(NamedTuple):
    """One value for each choice, and the question with these."""

    chosen: Chosen
    objective: Any

    @property
    def name(self) -> str:
        """As an answer names it."""
        return escape.line(",".join(f"{field}={value}" for field, value in self.chosen)) or "all"


def combinations(objective: Any, choices: Mapping[str, Sequence[str]], most: int) -> list[Combination]:
    """The question under every combination of choices, the first value of each first.

    **Arguments:** `objective`: a design question; `choices`: field -> values, `*` for all of the catalogue; `most` combinations.

    **Raises:** `UserError` for what is no choice of the question, a value named twice, and too many combinations.
    """
    known = {field.name for field in dataclasses.fields(objective)} if dataclasses.is_dataclass(objective) else set()
    values = {}
    for field, named in choices.items():
        if field not in known:
            raise UserError(f"choices: '{field}' is no field of the question: {suggest(field, known)}")
        each = names_of(f"choices: {field}", named)
        if not isinstance(getattr(objective, field), str):
            raise UserError(
                f"choices: '{field}' is a number, not a choice: sweep each apart, or ask hwopt.frontier about budgets"
            )
        values[field] = named_values(field, each)
    asked: Any = objective
    found = []
    for row in every_choice(values, most):
        question = dataclasses.replace(asked, **dict(row)) if row else asked
        more = every_choice(left_open(question), most)
        found += [
            Combination(row + also, dataclasses.replace(question, **dict(also)) if also else question) for also in more
        ]
    if len(found) > most:
        raise UserError(f"choices: {len(found)} combinations; at most {most}: ask about some of them apart")
    return found


def left_open(objective: Any) -> Mapping[str, Sequence[str]]:
    """Choices that a question leaves to the search without naming them: by which case it stays outside an export rule.

    None where it cannot be asked: stating it says why.
    """
    try:
        return getattr(objective, "left_open", dict)()
    except UserError:
        return {}


def every_choice(values: Mapping[str, Sequence[str]], most: int) -> list[Chosen]:
    """All combinations of values, the first of each first.

    **Raises:** `UserError` for more than `most`.
    """
    count = math.prod(map(len, values.values()))
    if count > most:
        raise UserError(f"choices: {count} combinations; at most {most}: ask about some of them apart")
    return [tuple(zip(values, row, strict=True)) for row in itertools.product(*values.values())]


def refusal(stated: Callable[[], Any]) -> str:
    """Why a call that states a question raises `UserError`; empty where it does not."""
    try:
        stated()
    except UserError as error:
        return str(error)
    return ""


def refuse_strange(outcomes: Sequence[tuple[Chosen, str]], choices: Mapping[str, Sequence[str]]) -> None:
    """Refuses a value that no combination can be asked with, but for those of the whole catalogue.

    **Arguments:** `outcomes`: combinations, and why each cannot be asked; empty where it can.

    **Raises:** `UserError`, also where none can.
    """
    for name, values in choices.items():
        for value in values if list(values) != [EVERY] else ():
            of = [why for chosen, why in outcomes if (name, value) in chosen]
            if all(of):
                raise UserError(f"choices: {name}={value}: {of[0]}")
    if all(why for _, why in outcomes):
        raise UserError(f"choices: no combination states a question: {outcomes[0][1]}")


def named_values(field: str, named: Sequence[str]) -> list[str]:
    """The values of a choice, `*` for all of the catalogue.

    **Raises:** `UserError` where the catalogue has no list of it, and for a value named twice.
    """
    if list(named) == [EVERY]:
        if field not in KINDS:
            raise UserError(f"choices: {field}={EVERY}: the catalogue has no list of it; name its values, a|b|c")
        return catalog.names(KINDS[field])
    other = aliases(KINDS[field]) if field in KINDS else {}
    entries = {other.get(slug(each), slug(each)) if other and not is_path(each) else each for each in named}
    if not named or len(entries) < len(named) or EVERY in named:
        raise UserError(f"choices: {field}={'|'.join(named)}: name each value once, or {EVERY} alone for all")
    return list(named)
