"""Command-line flags.

Each is declared once, with value type and modes; parsing, validation and help follow from the declaration.
"""

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from hwopt.cli.value_types import SWITCH, ValueType
from hwopt.errors import UserError


class Modes(NamedTuple):
    """Modes of a command, such as training or serving, that have flags of their own."""

    names: tuple[str, ...]
    words: str

    @property
    def title(self) -> str:
        """Return the title of the modes' flags in help."""
        return f"{self.words} (mode{'s' if len(self.names) > 1 else ''} {', '.join(self.names)})"


@dataclass(frozen=True)
class Flag:
    """Flag of a command; a name without dashes declares a positional argument.

    **Arguments:**

    - `modes`: modes that have the flag, all where None.
    - `also`: other spellings.
    - `needed`: whether it is required.
    - `alone`: value of the flag without text.
    - `repeats`: whether several occurrences are merged.
    - `field`: the attribute it sets, where that differs from its name.
    """

    name: str
    meaning: str
    kind: ValueType
    default: Any = None
    modes: Modes | None = None
    also: tuple[str, ...] = ()
    needed: bool = False
    alone: Any = None
    repeats: bool = False
    field: str = ""

    @property
    def attribute(self) -> str:
        """Return the attribute that the flag sets."""
        return self.field or self.name.lstrip("-").replace("-", "_")


class _Read(argparse.Action):
    """Argparse action that reads a flag by its value type.

    An empty or repeated flag is an error: the last occurrence does not silently win.
    """

    def __init__(self, option_strings: list[str], dest: str, *, flag: Flag, **keywords: Any):
        super().__init__(option_strings, dest, **keywords)
        self.flag = flag

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Set the attribute of the flag, and remember how it was written."""
        name, given = option_string or self.dest, dict(getattr(namespace, "given", {}))
        if option_string is None and values is self.default:
            return  # an omitted positional argument
        text = values if isinstance(values, str) else ""
        if isinstance(values, str) and not text.strip():
            raise UserError(f"{name} '{text}': is empty; leave it out, or say what is meant")
        alone = not isinstance(values, str) and self.flag.kind is not SWITCH
        value = self.flag.alone if alone else self.flag.kind.read(name, text)
        written, before = f"{name} {text}".rstrip(), given.get(self.dest)
        if before is not None and self.flag.repeats:
            before_it = getattr(namespace, self.dest)
            if both := before_it.keys() & value.keys():
                raise UserError(f"{name}: '{min(both)}' stands twice")
            value = before_it | value
        elif before is not None and (self.flag.kind is not SWITCH or value != getattr(namespace, self.dest)):
            raise UserError(f"{written}: {before} stands there already; write one of them")
        setattr(namespace, self.dest, value)
        namespace.given = given | {self.dest: written}


def declare(parser: argparse.ArgumentParser, flags: Iterable[Flag]) -> None:
    """Add flags to a parser. Flags of particular modes get a group of their own."""
    groups: dict[Modes | None, Any] = {None: parser}
    for flag in flags:
        modes, default = flag.modes, flag.default
        if modes is not None and modes not in groups:
            groups[modes] = parser.add_argument_group(modes.title)
        silent = isinstance(default, bool) or not isinstance(default, str | int) or "default" in flag.meaning
        about = flag.meaning if silent else f"{flag.meaning} (default {default})"
        keywords: dict[str, Any] = {"action": _Read, "flag": flag, "default": default, "help": about}
        if not flag.name.startswith("-"):
            groups[modes].add_argument(flag.name, nargs=None if flag.needed else "?", **keywords)
            continue
        if flag.kind is SWITCH or flag.alone is not None:
            keywords["nargs"] = 0 if flag.kind is SWITCH else "?"
        keywords |= {"dest": flag.attribute, "metavar": flag.kind.metavar, "required": flag.needed}
        groups[modes].add_argument(flag.name, *flag.also, **keywords)


def foreign(options: argparse.Namespace, flags: Iterable[Flag], mode: str) -> tuple[str, Modes] | None:
    """Return the first given flag that belongs to other modes, as written, and these modes; None where there is none."""
    for flag in flags:
        if flag.modes is not None and mode not in flag.modes.names and flag.attribute in options.given:
            return options.given[flag.attribute].split()[0], flag.modes
    return None
