"""`hwopt completion SHELL`: what a shell completes, written from the declared commands and flags."""

import argparse
from collections.abc import Mapping

from hwopt import escape
from hwopt.cli.flags import Flag
from hwopt.cli.kinds import one_of
from hwopt.cli.output import say

SHELLS = ("bash", "zsh", "fish")

FLAGS = (Flag("shell", f"one of {', '.join(SHELLS)}", one_of(*SHELLS), needed=True),)

_BASH = """\
# eval "$(hwopt completion bash)" in ~/.bashrc
_hwopt() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" known
    if [ "$COMP_CWORD" -eq 1 ]; then
        known="{commands} --help --version"
    else
        case "${{COMP_WORDS[1]}}" in
{cases}
        esac
    fi
    COMPREPLY=()
    case "$word" in
        -*) mapfile -t COMPREPLY < <(compgen -W "$known --help" -- "$word") ;;
        *) if [ "$COMP_CWORD" -eq 1 ]; then
               mapfile -t COMPREPLY < <(compgen -W "$known" -- "$word")
           else
               mapfile -t COMPREPLY < <(compgen -W "$known" -- "$word"; compgen -f -- "$word")
           fi ;;
    esac
}}
complete -o filenames -F _hwopt hwopt
"""


def completion(options: argparse.Namespace) -> int:
    """Print the file of a shell."""
    from hwopt.cli.parser import COMMANDS
    from hwopt.cli.question import field_flags
    from hwopt.cli.schema import NO_ANSWER
    from hwopt.registry import load, names

    asked = [name for name in names() if escape.shell(name) == name]  # compgen expands its words
    flags = {}
    for name, command in COMMANDS.items():
        own = {spelling: flag.meaning for spelling, flag in command.spellings.items() if spelling.startswith("-")}
        if command.asks:
            fields = [flag for objective in asked for flag in field_flags(load(objective))]
            own |= {flag.name: flag.meaning for flag in fields if flag.name not in own}
        flags[name] = own
    summaries = {name: command.summary for name, command in COMMANDS.items()}
    words = {name: tuple(asked) if command.asks else () for name, command in COMMANDS.items()}
    words |= {"completion": SHELLS, "schema": tuple(name for name in COMMANDS if name not in NO_ANSWER)}
    say(_WRITERS[options.shell](summaries, flags, words).rstrip("\n"))
    return 0


Texts = Mapping[str, str]


def _bash(summaries: Texts, flags: Mapping[str, Texts], words: Mapping[str, tuple[str, ...]]) -> str:
    cases = [f'            {name}) known="{" ".join((*words[name], *flags[name]))}" ;;' for name in summaries]
    return _BASH.format(commands=" ".join(summaries), cases="\n".join(cases))


def _quoted(text: str) -> str:
    """Return a text in single quotes, without the special characters of zsh and fish lists."""
    return (
        "'"
        + escape.line(text).replace("\\", "/").replace("'", "’").replace("[", "(").replace("]", ")").replace(":", " -")
        + "'"
    )


def _zsh(summaries: Texts, flags: Mapping[str, Texts], words: Mapping[str, tuple[str, ...]]) -> str:
    commands = [f"        {_quoted(name)[:-1]}:{_quoted(text)[1:]}" for name, text in summaries.items()]
    lines = ["#compdef hwopt", "# hwopt completion zsh > a file named _hwopt in a folder of $fpath",
             "_hwopt() {", "    local -a known",
             "    if (( CURRENT == 2 )); then", "        known=(", *commands, "        )", "        _describe command known",
             "        return", "    fi", '    case "$words[2]" in']  # fmt: skip
    for name in summaries:
        rows = [f"            {_quoted(each)}" for each in words[name]]
        rows += [f"            {_quoted(each)[:-1]}:{_quoted(text)[1:]}" for each, text in flags[name].items()]
        lines += [f"        {name}) known=(", *rows, "        ) ;;"]
    return "\n".join([*lines, "    esac", "    _describe argument known", "    _files", "}", '_hwopt "$@"', ""])


def _fish(summaries: Texts, flags: Mapping[str, Texts], words: Mapping[str, tuple[str, ...]]) -> str:
    first, behind = "-n __fish_use_subcommand", '-n "__fish_seen_subcommand_from {}"'
    lines = ["# hwopt completion fish > ~/.config/fish/completions/hwopt.fish"]
    lines += [f"complete -c hwopt -f {first} -a {name} -d {_quoted(text)}" for name, text in summaries.items()]
    for name in summaries:
        at = behind.format(name)
        lines += [f'complete -c hwopt {at} -a "{" ".join(words[name])}"'] if words[name] else []
        long = {each[2:]: text for each, text in flags[name].items() if each.startswith("--")}
        lines += [f"complete -c hwopt {at} -l {each} -d {_quoted(text)}" for each, text in long.items()]
    return "\n".join([*lines, ""])


_WRITERS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
