"""The members of a portfolio as a TOML file: the fields that all members share, then a table for each member.

```toml
chip = "h100-sxm"                    # fields before the tables are the same for all: chip, site, fabric, cooling, prices ...
capex_budget_usd = 1e8               # budgets here limit the total of all members' machines: capital, peak power

[members.foundation]
question = "train_cost"              # a question about one workload; its fields are named like the flags, in SI units
workload = "gpt3-175b"
tokens = 300e9
time_budget_s = 2.6e6                # its deadline
runs = 2                             # its weight: number of training runs

[members.assistant]
question = "serve_cost"
workload = "llama3.1-70b"
served_tokens = 1e12                 # its weight: tokens generated over the life of the service
bounds = {tp = [2, 8], batch = 32}   # bounds of its plan, as in --bounds
```
"""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hwopt import escape
from hwopt.catalog.load import read_toml
from hwopt.errors import UserError, suggest
from hwopt.validation import boxes_of, number_of, path_of
from objectives.machine import OPENED, MachineQuestion
from objectives.serve_cost import ServeCost
from objectives.train_cost import TrainCost

SHARED = (
    "chip", "free", "slice", "site", "sites", "fabric", "cooling", "reliability", "recovery", "storage", "operation", "prices",
    "constants", "date",
)  # fmt: skip
"""Fields of a question that are the same for all members."""

TOGETHER = ("capex_budget_usd", "power_budget_w")
"""Budgets that may also be shared: then they limit the total of all members' machines."""

NOT_SHARED_YET = ("design", "technology", "memory", "pool", "lines", "decode_chip")
"""Machine fields that members do not support: a parametric chip, parts for a single member, a second type of chip."""

MOST_MEMBERS = 12
"""Maximum number of members; each takes a search of about a minute."""


class MemberObjective(NamedTuple):
    """A type of question that members may have, with the key of its weight and the default weight (None if required)."""

    kind: type[MachineQuestion]
    key: str
    usual: float | None


QUESTIONS = {
    "train_cost": MemberObjective(TrainCost, "runs", 1.0),
    "serve_cost": MemberObjective(ServeCost, "served_tokens", None),
}


class StatedMember(NamedTuple):
    """A member as the file states it.

    **Arguments:** `where`: its place in the file, for errors; `counted`: the unit of its weight; `bounds` of its plan.
    """

    name: str
    where: str
    question: str
    weight: float
    counted: str
    fields: dict[str, Any]
    bounds: dict[str, tuple[float, float]]

    def asked(self, shared: Mapping[str, Any]) -> MachineQuestion:
        """Return the member's question about the shared machine."""
        return QUESTIONS[self.question].kind(**shared, **self.fields)


def read_list(path: str | Path) -> tuple[dict[str, Any], tuple[StatedMember, ...]]:
    """Return the shared fields, and the members.

    **Raises:** `UserError`, one line, for a file that cannot be read, an unknown key, or an invalid value.
    """
    where = path_of("members", path)
    table = read_toml(where)
    shared = {key: value for key, value in table.items() if key != "members"}
    for key in shared:
        if key in _fields_of(*(each.kind for each in QUESTIONS.values())) and key not in (*SHARED, *TOGETHER):
            raise UserError(f"{where}: '{key}' belongs to a single member: move it into a table [members.NAME]")
        if key not in (*SHARED, *TOGETHER):
            raise UserError(f"{where}: unknown key '{key}': {suggest(key, (*SHARED, *TOGETHER, 'members'))}")
    shared = {key: _value(f"{where}: {key}", TrainCost, key, value) for key, value in shared.items()}
    if set(shared.get("free", "none").split("+")) - {"none", "clock", *OPENED}:
        raise UserError(
            f"{where}: free = {shared['free']!r}: members share a stock chip; only none, clock, nics and racks are allowed"
        )
    members = table.get("members")
    if not isinstance(members, Mapping) or not members:
        raise UserError(f"{where}: lists no members: add a table [members.NAME] for each workload")
    if len(members) > MOST_MEMBERS:
        raise UserError(f"{where}: {len(members)} members, but at most {MOST_MEMBERS} are supported")
    return shared, tuple(_member(f"{where}: members.{name}", escape.line(name), each) for name, each in members.items())


def _member(where: str, name: str, table: Any) -> StatedMember:
    if not isinstance(table, Mapping):
        raise UserError(f"{where} = {table!r}: write a table, [members.{name}]")
    question = table.get("question")
    if question not in QUESTIONS:
        said = "states no question" if question is None else f"question = {question!r}"
        raise UserError(f"{where}: {said}: {suggest(question, QUESTIONS)}")
    kind, key, usual = QUESTIONS[question]
    known = {*_fields_of(kind), "question", "bounds", key} - {*SHARED, *NOT_SHARED_YET}
    for each in table:
        if each in SHARED:
            raise UserError(f"{where}: '{each}' is shared by all members: move it above the first [members.NAME]")
        if each in NOT_SHARED_YET:
            raise UserError(f"{where}: '{each}' is not supported in a portfolio; optimize this member on its own")
        if each not in known:
            raise UserError(f"{where}: {question} has no '{each}': {suggest(each, known)}")
    if key not in table and usual is None:
        raise UserError(f"{where}: states no '{key}', the number of {key.replace('_', ' ')} that is paid for")
    weight = _positive(f"{where}: {key}", table.get(key, usual))
    fields = {
        each: _value(f"{where}: {each}", kind, each, value)
        for each, value in table.items()
        if each not in ("question", "bounds", key)
    }
    return StatedMember(
        name, where, question, weight, key.replace("_", " "), fields, _bounds(where, table.get("bounds", {}))
    )


def _fields_of(*kinds: type) -> dict[str, Any]:
    """Return the fields of questions with their defaults."""
    return {field.name: field.default for kind in kinds for field in dataclasses.fields(kind)}


def _value(what: str, kind: type, field: str, value: Any) -> Any:
    """Return the value of a question's field: a text, or a positive number; 0 only where 0 is a default of the field."""
    default = _fields_of(kind)[field]
    if isinstance(default, str):
        if not isinstance(value, str):
            raise UserError(f"{what} = {value!r} must be text" + (f" such as '{default}'" if default else ""))
        return value
    may_be_zero = any(vars(each).get(field) == 0.0 for each in kind.__mro__)
    return 0.0 if may_be_zero and value == 0 and not isinstance(value, bool) else _positive(what, value)


def _positive(what: str, value: Any) -> float:
    number = number_of(what, value)
    if not (math.isfinite(number) and number > 0.0):
        raise UserError(f"{what} = {value!r} must be a positive, finite number in SI units")
    return number


def _bounds(where: str, bounds: Any) -> dict[str, tuple[float, float]]:
    """Return the bounds of a member's plan, each stated as `[low, high]` or as one number."""
    if not isinstance(bounds, Mapping):
        raise UserError(f"{where}: bounds = {bounds!r}: write a table, such as {{tp = [2, 8], batch = 32}}")
    pairs = {name: box if isinstance(box, list) else (box, box) for name, box in bounds.items()}
    try:
        return boxes_of(pairs)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
