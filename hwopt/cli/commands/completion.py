"""`hwopt completion SHELL`: the completion script of a shell, written by shtab from the parser."""

import argparse
from typing import Any

from hwopt import escape
from hwopt.cli.commands.schema import NO_ANSWER
from hwopt.cli.flags import Flag, declare
from hwopt.cli.output import say
from hwopt.cli.value_types import one_of

_USE = {
    "bash": '# eval "$(hwopt completion bash)" in ~/.bashrc',
    "zsh": "# hwopt completion zsh > a file named _hwopt in a folder of $fpath",
    "fish": "# hwopt completion fish > ~/.config/fish/completions/hwopt.fish",
}
SHELLS = tuple(_USE)

FLAGS = (Flag("shell", f"one of {', '.join(SHELLS)}", one_of(*SHELLS), needed=True),)


def completion(options: argparse.Namespace) -> int:
    """Print the completion script of a shell."""
    import shtab

    script = shtab.complete(_parser(options.cli), options.shell)
    first, rest = script.split("\n", 1) if options.shell == "zsh" else ("", script)  # zsh reads the first line
    say("\n".join(filter(None, (first, _USE[options.shell], rest))))
    return 0


def _parser(cli: Any) -> argparse.ArgumentParser:
    """Return a parser that knows the fields of all questions, for completion only."""
    import shtab

    from hwopt.cli.question import DEFAULT_OBJECTIVE, field_flags
    from hwopt.registry import load, names

    parser = cli.build_parser(DEFAULT_OBJECTIVE, None)
    (commands,) = (each.choices for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    asked = [name for name in names() if escape.shell(name) == name]  # bash expands the words that it offers
    fields = {flag.name: flag for name in asked for flag in field_flags(load(name))}
    answers = [name for name in cli.commands if name not in NO_ANSWER]
    words = {"objective": asked, "shell": SHELLS, "of": answers}
    for name, own in commands.items():
        own.description = cli.commands[name].summary
        if cli.commands[name].asks:
            declare(own, (flag for flag in fields.values() if flag.name not in own._option_string_actions))
        for action in own._actions:
            action.help = _plain(action.help or "")
            if not action.option_strings and action.dest in words:
                action.choices, action.help = words[action.dest], action.dest
            elif action.nargs != 0:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return parser


def _plain(text: str) -> str:
    """Return a text on one line without backslashes, which fish reads inside quotes."""
    return escape.line(text).replace("\\", "/")
