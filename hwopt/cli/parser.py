"""Argument parser: commands with their flags, and one-line errors that suggest the intended value."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn

from hwopt import registry
from hwopt.cli import runner
from hwopt.cli.commands import (
    check,
    compare,
    completion,
    deploy,
    docs,
    estimate,
    explore,
    fabrics,
    fleet,
    invest,
    measured,
    optimize,
    plan,
    scale,
    schema,
    sensitivity,
    sources,
    sweep,
    walls,
)
from hwopt.cli.examples import ANSWERS, EXITS, FIRST, PROGRAM, epilog, examples, filled
from hwopt.cli.flags import Flag, declare
from hwopt.cli.meanings import meant
from hwopt.cli.output import JSON, say
from hwopt.cli.question import DEFAULT_OBJECTIVE, field_flags, questions_with
from hwopt.cli.value_types import SWITCH, TEXT
from hwopt.errors import UserError, suggest


class Command(NamedTuple):
    """Command: its summary in the list of commands, its flags other than `--json`, and the function that answers it."""

    summary: str
    flags: tuple[Flag, ...]
    answer: runner.Command
    asks: bool = False  # whether it takes a design question, whose fields are flags too

    @property
    def spellings(self) -> dict[str, Flag]:
        """Return the command's flags by all their spellings."""
        return {spelling: flag for flag in (JSON, *self.flags) for spelling in flag.spellings}


COMMANDS = {
    "optimize": Command("Find the best cluster for a design question, within budgets.", optimize.FLAGS, optimize.answer, True),
    "explore": Command("Open a page with sliders around the best cluster for a design question.", explore.FLAGS,
                       explore.answer, True),
    "compare": Command("Compare chips: each one's best cluster for the same design question.", compare.FLAGS,
                       compare.answer, True),
    "walls": Command("Find which budget binds, and which one binds next.", walls.FLAGS, walls.answer,
                     True),
    "sources": Command("List the references of all numbers that a design question uses.", (), sources.sources, True),
    "sensitivity": Command("Rank the inputs that the best cluster depends on most.", sensitivity.FLAGS,
                           sensitivity.answer, True),
    "invest": Command("Value a small improvement of each input of the best cluster.", invest.FLAGS,
                      invest.answer, True),
    "sweep": Command("Evaluate many design variants: the best, the Pareto front, what binds; resumable.", sweep.FLAGS,
                     sweep.answer, True),
    "estimate": Command("Estimate time, memory, power and cost of one cluster with one plan.", estimate.FLAGS, estimate.answer),
    "plan": Command("Find the best parallel plan of a given cluster.", plan.FLAGS, plan.answer),
    "scale": Command("Show how a training run scales with chips, and where adding chips stops paying.", scale.FLAGS,
                     scale.answer),
    "fleet": Command("Plan one training run on chips of several generations.",
                     fleet.FLAGS, fleet.answer),
    "fabrics": Command("Compare fabrics, or rack densities, for one training run.",
                       fabrics.FLAGS, fabrics.answer),
    "check": Command("Check a claim about a machine line by line, with the smallest correction.",
                     check.FLAGS, check.answer),
    "deploy": Command("Compare building a data hall, converting one, colocation and renting.", deploy.FLAGS,
                      deploy.answer),
    "validate": Command("Compare predictions with your measured runs.", measured.VALIDATE,
                        measured.validate),
    "calibrate": Command("Fit the model's constants to your measured runs.", measured.CALIBRATE, measured.calibrate),
    "catalog": Command("List chips, links, workloads and all other data, with sources.", sources.CATALOG,
                       sources.catalog),
    "schema": Command("Print the JSON Schema of a command's --json output.", schema.FLAGS, schema.schema),
    "completion": Command("Print a completion script for bash, zsh or fish.", completion.FLAGS, completion.completion),
    "docs": Command("Read the guide in the terminal.", docs.DOCS, docs.docs),
}  # fmt: skip

_FLAGS = {spelling: flag for command in COMMANDS.values() for spelling, flag in command.spellings.items()}
"""Flags of all commands by spelling.

Flags with the same name have the same value type, except `--chips`: `compare` takes names, other commands a count.
"""


class OneLineParser(argparse.ArgumentParser):
    """argparse parser with one-line errors that suggest the intended value.

    Preferred over tyro, whose error boxes span several lines.
    """

    words: Sequence[str] = ()  # arguments being parsed

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse like argparse, and keep the arguments for error messages."""
        self.words = list(args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raise `UserError` with the likely intent.

        An unknown flag takes precedence over a missing one, which it may be a misspelling of.
        """
        own = self
        known = self._option_string_actions
        unknown = [word for word in self.words if word[:2] == "--" != word and word.split("=")[0] not in known]
        if message.startswith("unrecognized arguments: "):
            unknown = [*message.removeprefix("unrecognized arguments: ").split(), " "][:1]
        if "invalid choice: " in message:
            wrong = message.split("invalid choice: '")[-1].split("'")[0]
            message = f"unknown command '{wrong}': {suggest(wrong, COMMANDS)}"
        elif unknown:
            own = self._reader(unknown[0])
            message = own._unknown(unknown[0])
        raise UserError(f"{message} (see {own.prog} --help)")

    def _reader(self, word: str) -> OneLineParser:
        """Return the parser of the command that precedes an argument; this parser where no command does."""
        commands = [action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        place = next((at for at, each in enumerate(self.words) if each in COMMANDS), len(self.words))
        return commands[0][self.words[place]] if commands and word in self.words[place:] else self

    def _unknown(self, word: str) -> str:
        """Return a message on an unknown argument: its likely intended spelling, or the questions and commands that have it."""
        (name, _, value), is_command = word.partition("="), self.get_default("given") is not None
        if not name.startswith("-"):
            return f"'{word}' is an unexpected argument"
        following = [*self.words, "", ""][[*self.words, word].index(word) + 1]
        value = value or ("" if following.startswith("-") else following)
        if flag := meant(name, value, self._option_string_actions):
            return f"unknown argument '{word}': did you mean '{flag}'?"
        near = suggest(name, [each for each in self._option_string_actions if each.startswith("--")])
        asked, owners = self.get_default("asked"), [other for other, each in COMMANDS.items() if name in each.spellings]
        if not is_command:
            intent = "write it after its command" if owners else suggest(name, _FLAGS)
        elif questions := questions_with(name) if asked else []:
            intent = f"a field of other questions ({', '.join(questions)}), not of {asked}"
        elif owners:
            *most, last = owners
            intent = f"a flag of {' and '.join(filter(None, [', '.join(most), last]))}, not of {self.prog.split()[-1]}"
        else:
            intent, near = near, ""
        return f"unknown argument '{word}': {intent}" + (f"; {near}" if is_command and near.startswith("did") else "")

    def _print_message(self, message: str, file: Any = None) -> None:
        say(message.rstrip("\n"))


def build_parser(objective: str, kind: type | None) -> OneLineParser:
    """Return the argument parser of all commands.

    **Arguments:**

    - `objective`: name of the design question.
    - `kind`: its class, whose fields become flags.
    """
    known = ", ".join(registry.names())
    questions = f"Design questions: {known}; hwopt optimize QUESTION --help lists their budgets."
    question = Flag("objective", f"design question (default {DEFAULT_OBJECTIVE}): {known}", TEXT, objective)
    parser = OneLineParser(
        prog="hwopt",
        description=filled(PROGRAM),
        epilog=f"{epilog(FIRST, questions)}\n\n{filled(EXITS)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    names = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        own = names.add_parser(
            name,
            help=command.summary,
            usage=_usage(name, (*command.flags, *([question] if command.asks else ()))),
            description=filled(ANSWERS[name]),
            epilog=epilog(examples(name, objective), EXITS),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        own.set_defaults(run=partial(runner.run, command.answer), given={}, cli=CLI)
        fields = field_flags(kind) if command.asks and kind is not None else ()
        fields = tuple(each for each in fields if each.name not in command.spellings)
        if fields:
            own.set_defaults(kind=kind, asked=objective)
        declare(own, (JSON, *command.flags, *([question] if command.asks else ()), *fields))
    return parser


def _usage(command: str, flags: Sequence[Flag]) -> str:
    """Return the first line of a command's help: what it needs, without a list of all flags."""
    needed = [f"{flag.name} {flag.kind.metavar}" for flag in flags if flag.needed and flag.name.startswith("-")]
    places = [flag.name if flag.needed else f"[{flag.name}]" for flag in flags if not flag.name.startswith("-")]
    return " ".join(["hwopt", command, *places, *needed, "[--flag value ...]"])


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line."""
    return build_parser(*objective_of(arguments)).parse_args(arguments)


def objective_of(arguments: Sequence[str]) -> tuple[str, type | None]:
    """Return the name and class of the requested design question; the class adds its fields to the flags."""
    if not arguments or arguments[0] not in COMMANDS or not COMMANDS[arguments[0]].asks:
        return DEFAULT_OBJECTIVE, None
    name, before = DEFAULT_OBJECTIVE, JSON.name
    for each in arguments[1:]:
        is_switch = before in _FLAGS and _FLAGS[before].kind is SWITCH
        is_value = before.startswith("--") and not is_switch and "=" not in before
        if not each.startswith("-") and not is_value:
            name = each
            break
        before = each
    return name, registry.load(name)


class CommandLine(NamedTuple):
    """Parser functions, passed to commands with their options, so that no command needs to import the parser."""

    commands: dict[str, Command]
    build_parser: Callable[[str, type | None], OneLineParser]
    parse: Callable[[Sequence[str]], argparse.Namespace]


CLI = CommandLine(COMMANDS, build_parser, parse)
