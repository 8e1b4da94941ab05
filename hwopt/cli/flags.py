"""Command-line flags.

Each is declared once, with value type and modes; parsing, validation and help follow from the declaration.
"""

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from hwopt.cli.value_types import SWITCH, ValueType
from hwopt.errors import UserError
from hwopt.registry import is_limit

ALIASES = {
    "--model": "--workload", "--gpus": "--chips", "--power": "--power-budget-w", "--time": "--time-budget-s",
    "--capex": "--capex-budget-usd",
}  # fmt: skip
"""Alias -> flag, in every command that has the flag. The flag's name states the unit of the value."""

COMMON = (
    "--workload", "--groups", "--chip", "--chips", "--plan", "--power-budget-w", "--time-budget-s", "--capex-budget-usd",
    "--choices", "--seconds", "--report", "--json",
)  # fmt: skip
"""The flags that help lists first, in this order: at most ten of a command, and `--json`."""

_WORKLOAD, _MACHINE, _BUDGETS, _SEARCH, _OUTPUT = (
    "workload",
    "machine and prices",
    "budgets and limits",
    "search",
    "output",
)
_TITLES = (_WORKLOAD, _MACHINE, _BUDGETS)
_LAST = (_SEARCH, _OUTPUT)
_GROUPS = {
    _WORKLOAD: "mode precision tokens unique-tokens trainable-fraction global-batch batch-ramp sequence-length seq-len "
    "checkpoint-interval-s law local-steps recompute offload weights kv input-tokens output-tokens served-tokens "
    "cached-fraction drafted-tokens acceptance draft-fraction requests-per-s arrival-scv input-scv output-scv routing "
    "peak-over-mean capacity-in-use day-curve load members only split layouts",
    _SEARCH: "free freeze bounds regime confidence vary alternatives one-sided-prices seed objective hold top replan of",
    _OUTPUT: "export figure metrics out no-figures dtype no-open",
}
_TITLE_OF = {f"--{name}": title for title, names in _GROUPS.items() for name in names.split()}
"""Flag -> title of its group in help. Budgets and limits, and flags of a mode, have groups of their own."""


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

    @property
    def spellings(self) -> tuple[str, ...]:
        """Return the name of the flag, its other spellings and its aliases."""
        return (self.name, *self.also, *(alias for alias, name in ALIASES.items() if name == self.name))


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
            raise UserError(f"{name} '{text}': is empty; remove the flag or add a value")
        alone = not isinstance(values, str) and self.flag.kind is not SWITCH
        value = self.flag.alone if alone else self.flag.kind.read(ALIASES.get(name, name), text)
        written, before = f"{name} {text}".rstrip(), given.get(self.dest)
        if before is not None and self.flag.repeats:
            before_it = getattr(namespace, self.dest)
            if both := before_it.keys() & value.keys():
                raise UserError(f"{name}: '{min(both)}' is given twice")
            value = before_it | value
        elif before is not None and (self.flag.kind is not SWITCH or value != getattr(namespace, self.dest)):
            raise UserError(f"{written}: {before} is given too; keep one of them")
        setattr(namespace, self.dest, value)
        namespace.given = given | {self.dest: written}


def title_of(flag: Flag) -> str:
    """Return the title of a flag's group in help; empty for positional arguments and common flags, which come first."""
    if flag.name in COMMON or not flag.name.startswith("-"):
        return ""
    if flag.modes is not None:
        return flag.modes.title
    return _BUDGETS if is_limit(flag.name) else _TITLE_OF.get(flag.name, _MACHINE)


def _place(flag: Flag) -> tuple[int, int]:
    """Return the sort key of a flag in help: common flags, workload, machine, budgets, flags of modes, search, output."""
    title, order = title_of(flag), ("", *_TITLES, "modes", *_LAST)
    return order.index(title if title in order else "modes"), (*COMMON, flag.name).index(flag.name)


def declare(parser: argparse.ArgumentParser, flags: Iterable[Flag]) -> None:
    """Add flags to a parser, the common ones first, the others in titled groups."""
    groups: dict[str, Any] = {"": parser}
    for flag in sorted(flags, key=_place):
        title, default = title_of(flag), flag.default
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        silent = isinstance(default, bool) or not isinstance(default, str | int) or "default" in flag.meaning
        about = flag.meaning if silent else f"{flag.meaning} (default {default})"
        keywords: dict[str, Any] = {"action": _Read, "flag": flag, "default": default, "help": about}
        if not flag.name.startswith("-"):
            groups[title].add_argument(flag.name, nargs=None if flag.needed else "?", **keywords)
            continue
        if flag.kind is SWITCH or flag.alone is not None:
            keywords["nargs"] = 0 if flag.kind is SWITCH else "?"
        keywords |= {"dest": flag.attribute, "metavar": flag.kind.metavar, "required": flag.needed}
        groups[title].add_argument(*flag.spellings, **keywords)


def foreign(options: argparse.Namespace, flags: Iterable[Flag], mode: str) -> tuple[str, Modes] | None:
    """Return the first given flag that belongs to other modes, as written, and these modes; None where there is none."""
    for flag in flags:
        if flag.modes is not None and mode not in flag.modes.names and flag.attribute in options.given:
            return options.given[flag.attribute].split()[0], flag.modes
    return None
