"""Design questions on the command line: an objective's fields as flags, and the objective that they state."""

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
    """The flag of an objective's field."""
    return "--" + field.replace("_", "-")


def field_flags(kind: type) -> tuple[Flag, ...]:
    """Fields of an objective as flags."""
    meanings: dict[str, str] = getattr(kind, "meanings", {})  # optional: field -> a few words
    flags = []
    for field in dataclasses.fields(kind):
        meaning, default = meanings.get(field.name, ""), field.default
        about = meaning if "; default " in meaning else f"{meaning + '; ' if meaning else ''}default {_shown(default)}"
        value = NOT_NEGATIVE if registry.may_be_zero(kind, field.name) else POSITIVE
        value = (TEXT if isinstance(default, str) else value)._replace(metavar="X")
        flags.append(Flag(flag_of(field.name), about, value, also=_ALSO.get(field.name, ())))
    return tuple(flags)


def _shown(default: object) -> str:
    """A default as people read it."""
    if isinstance(default, float):
        return f"{default:g}" if math.isfinite(default) else "no limit"
    return str(default) if default != "" else "none"


def asked_objective(options: argparse.Namespace) -> Any:
    """The objective with the fields that were given."""
    if options.objective != options.asked:  # its flags are not the ones that were read
        raise UserError(f"write the objective first: hwopt {options.command} {options.objective} ...")
    fields = (field.name for field in dataclasses.fields(options.kind))
    return options.kind(**{name: value for name in fields if (value := getattr(options, name)) is not None})


def check_choices(options: argparse.Namespace) -> None:
    """Refuses a choice that a flag of its own says already."""
    known = {each.name for each in dataclasses.fields(options.kind)}
    for name in options.choices:
        if name in known and name in options.given:
            raise UserError(f"--choices {name}: {flag_of(name)} says it already; name it once")


def questions_with(flag: str) -> list[str]:
    """Questions that have a field of that flag."""
    owners = []
    for name in registry.names():
        try:
            kind = registry.load(name)
        except UserError:  # another's, which cannot be imported
            continue
        if any(flag in (each.name, *each.also) for each in field_flags(kind)):
            owners.append(name)
    return owners
