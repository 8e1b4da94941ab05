"""Design questions on the command line: fields of an objective as flags, and the objective built from them."""

import argparse
import dataclasses
import math
from typing import Any

from hwopt import registry
from hwopt.calibration.questions import anchored_objective
from hwopt.cli import value_types
from hwopt.cli.flags import Flag
from hwopt.cli.output import is_watched
from hwopt.cli.value_types import NATURAL, NOT_NEGATIVE, POSITIVE, TEXT
from hwopt.errors import UserError
from hwopt.units import pretty, unit_in_name

DEFAULT_OBJECTIVE = "train_cost"

SEED = Flag("--seed", "random seed of the search's starting points", NATURAL, 0)

CHOICES = Flag(
    "--choices", "alternatives of fields, of which every combination is tried: chip=h100-sxm|b200,cooling=air|direct-liquid; * "
    "stands for all entries of the catalog", value_types.CHOICES, {}, repeats=True,
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
        if isinstance(default, bool):
            flags.append(Flag(flag_of(field.name), meaning, value_types.SWITCH, default))
            continue
        about = (
            meaning
            if "; default " in meaning
            else f"{meaning + '; ' if meaning else ''}default {_shown(field.name, default)}"
        )
        value = NOT_NEGATIVE if registry.may_be_zero(kind, field.name) else POSITIVE
        value = (TEXT if isinstance(default, str) else value)._replace(metavar="X")
        flags.append(Flag(flag_of(field.name), about, value, also=_ALSO.get(field.name, ())))
    return tuple(flags)


def _shown(field: str, default: object) -> str:
    """Return a default value as text for help, in a customary unit where the field's name has one."""
    if isinstance(default, float):
        unit = unit_in_name(field)
        return "no limit" if not math.isfinite(default) else pretty(default, unit) if unit else f"{default:g}"
    return str(default) if default != "" else "none"


def asked_objective(options: argparse.Namespace) -> Any:
    """Return the objective of a design question, with the fields given as flags.

    **Raises:** `UserError` for flags of another question, and for a choice whose own flag is also given.
    """
    if options.objective != options.asked:  # the flags were parsed for another objective
        raise UserError(f"write the design question first: hwopt {options.command} {options.objective} ...")
    fields = [field.name for field in dataclasses.fields(options.kind)]
    for name in getattr(options, "choices", ()):
        if name in fields and name in options.given:
            raise UserError(f"--choices {name}: {flag_of(name)} is given too; keep one of them")
    return anchored_objective(
        options.kind(**{name: value for name in fields if (value := getattr(options, name)) is not None})
    )


def search_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of a search that flags state: frozen variables, bounds, time limit, choices where there are any.

    A progress bar is shown where standard error is a terminal.
    """
    names = ("freeze", "bounds", "seconds", "choices", "seed")
    return {name: getattr(options, name) for name in names if name in options} | {"progress": is_watched(options)}


def questions_with(flag: str) -> list[str]:
    """Return the names of the questions that have a field with this flag."""
    owners = []
    for name in registry.names():
        try:
            kind = registry.load(name)
        except UserError:  # a third-party question that cannot be imported
            continue
        if any(flag in each.spellings for each in field_flags(kind)):
            owners.append(name)
    return owners
