"""Design questions on the command line: fields of an objective as flags, and the objective built from them."""

import argparse
import dataclasses
import math
from typing import Any

from hwopt import registry
from hwopt.cli import value_types
from hwopt.cli.flags import Flag
from hwopt.cli.value_types import NATURAL, NOT_NEGATIVE, POSITIVE, TEXT
from hwopt.errors import UserError

DEFAULT_OBJECTIVE = "train_cost"

SEED = Flag("--seed", "random seed of the starting points", NATURAL, 0)

CHOICES = Flag(
    "--choices", "fields of the question, every combination of their values: chip=h100-sxm|b200,cooling=air|direct-liquid; "
    "* for all of the catalogue", value_types.CHOICES, {}, repeats=True,
)  # fmt: skip

_ALSO = {"sequence_length": ("--seq-len",)}
"""Other spellings of a field's flag."""


def flag_of(field: str) -> str:
    """Return the flag of an objective's field."""
    return "--" + field.replace("_", "-")


def field_flags(kind: type) -> tuple[Flag, ...]:
    """Return the fields of a design question's objective as flags."""
    meanings: dict[str, str] = getattr(kind, "meanings", {})  # optional: field -> description
    flags = []
    for field in dataclasses.fields(kind):
        meaning, default = meanings.get(field.name, ""), field.default
        about = meaning if "; default " in meaning else f"{meaning + '; ' if meaning else ''}default {_shown(default)}"
        value = NOT_NEGATIVE if registry.may_be_zero(kind, field.name) else POSITIVE
        value = (TEXT if isinstance(default, str) else value)._replace(metavar="X")
        flags.append(Flag(flag_of(field.name), about, value, also=_ALSO.get(field.name, ())))
    return tuple(flags)


def _shown(default: object) -> str:
    """Return a default value as text for help."""
    if isinstance(default, float):
        return f"{default:g}" if math.isfinite(default) else "no limit"
    return str(default) if default != "" else "none"


def asked_objective(options: argparse.Namespace) -> Any:
    """Return the objective of a design question, with the fields given as flags."""
    if options.objective != options.asked:  # the flags were parsed for another objective
        raise UserError(f"write the objective first: hwopt {options.command} {options.objective} ...")
    fields = (field.name for field in dataclasses.fields(options.kind))
    return options.kind(**{name: value for name in fields if (value := getattr(options, name)) is not None})


def check_choices(options: argparse.Namespace) -> None:
    """Raise `UserError` for a choice whose own flag is also given."""
    known = {each.name for each in dataclasses.fields(options.kind)}
    for name in options.choices:
        if name in known and name in options.given:
            raise UserError(f"--choices {name}: {flag_of(name)} says it already; name it once")


def questions_with(flag: str) -> list[str]:
    """Return the names of the questions that have a field with this flag."""
    owners = []
    for name in registry.names():
        try:
            kind = registry.load(name)
        except UserError:  # a third-party question that cannot be imported
            continue
        if any(flag in (each.name, *each.also) for each in field_flags(kind)):
            owners.append(name)
    return owners
