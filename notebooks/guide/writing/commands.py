"""Flags of a command as its own parser has them, the question's fields besides, and exit codes."""

import inspect
import re

from hwopt import registry
from hwopt.cli.examples import EXITS
from hwopt.cli.flags import Flag
from hwopt.cli.output import JSON
from hwopt.cli.parser import COMMANDS
from hwopt.cli.question import DEFAULT_OBJECTIVE, field_flags
from hwopt.errors import UserError
from writing.markup import fenced, table

_DEFAULT = re.compile(r"(?P<meaning>.*?)(?:; | \(|^)default:? (?P<default>[^()]*)\)?")
"""A meaning that ends with the default."""


def flags(name: str) -> str:
    """Tables of a command's flags, those of some modes apart."""
    command = COMMANDS[name]
    groups: dict[str, list[Flag]] = {}
    for flag in (JSON, *command.flags):
        groups.setdefault(flag.modes.title if flag.modes else "", []).append(flag)
    parts = [
        (f"### {title[0].upper() + title[1:]}\n\n" if title else "") + _table(each) for title, each in groups.items()
    ]
    if command.asks:
        parts.append(
            f"Besides, the fields of the design question are flags: budgets, workload, machine, prices. "
            f"[Design questions](questions.md) lists them; `hwopt {name} QUESTION --help` prints them.\n"
        )
    return "\n".join([*parts, f"**{EXITS.split(': ')[0]}:** {EXITS.split(': ', 1)[1]}\n"])


def questions() -> str:
    """Every design question with its mathematics and its fields."""
    parts = []
    for name in registry.names():
        try:
            kind = registry.load(name)
        except UserError:  # another package's, which cannot be imported here
            continue
        shared = (
            set()
            if name == DEFAULT_OBJECTIVE
            else {(f.name, f.meaning) for f in field_flags(registry.load(DEFAULT_OBJECTIVE))}
        )
        own = [flag for flag in field_flags(kind) if (flag.name, flag.meaning) not in shared]
        same = f"Its other fields are those of `{DEFAULT_OBJECTIVE}`, where it has them.\n" if shared else ""
        parts.append(f"## {name}\n\n{fenced(str(inspect.getdoc(kind)))}\n{_table(own)}\n{same}")
    return "\n".join(parts)


def _table(flags: list[Flag]) -> str:
    rows = []
    for flag in flags:
        names = [f"`{each}`" for each in flag.spellings if each.startswith("-")]  # a positional has its place, no name
        spelled = " ".join((*names, flag.kind.metavar)).strip()
        silent = isinstance(flag.default, bool) or not isinstance(flag.default, str | int) or "default" in flag.meaning
        known = "needed" if flag.needed else "" if silent else str(flag.default)
        meaning = flag.meaning.replace("%%", "%")  # as argparse prints it
        said = _DEFAULT.fullmatch(meaning)
        rows.append((spelled, said["meaning"], said["default"]) if said else (spelled, meaning, known))
    return table(("flag", "meaning", "default"), rows)
