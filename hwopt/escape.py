"""Text from outside (names of files, titles, flags) in a target language, one function each. JSON is `json.dumps`, in ASCII."""

import html as _html
import json
import shlex
from collections.abc import Iterable
from typing import Any


def line(text: str) -> str:
    r"""Return one line for a terminal or a log: what does not print is its escape (`\n`, `\x1b`, `\u202e`)."""
    return text if text.isprintable() else "".join(map(_printable, text))


def terminal(text: str) -> str:
    """Return a screen for a terminal: line breaks stay, each line is escaped by `line`."""
    return "\n".join(map(line, text.split("\n")))


def sentence(text: str) -> str:
    """Return a message, or a text that may fill several lines of its file, as one line."""
    return text if text.isprintable() else line(" ".join(text.split()))


def comment(text: str) -> str:
    """Return a comment of one line, in shell, TOML, YAML or Python."""
    return f"# {sentence(text)}"


def shell(word: str) -> str:
    """Return a word of a shell's command line; what does not print as bytes in `$'...'`, which bash, zsh and ksh read."""
    return shlex.quote(word) if word.isprintable() else f"$'{''.join(map(_ansi_c, word))}'"


def command(words: Iterable[str]) -> str:
    """Return a command line of words."""
    return " ".join(map(shell, words))


def toml(value: Any) -> str:
    """Return a text, number, truth value or list of them as TOML; lone surrogates, which it has not, as text."""
    return "".join(map(_double_quoted, json.dumps(value, ensure_ascii=False)))


yaml = toml
"""Return a value as YAML, tables included."""


def html(text: str) -> str:
    """Return text of an HTML element or of an attribute in double quotes."""
    return _html.escape(terminal(text))


def _printable(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")


def _ansi_c(letter: str) -> str:
    errors = "surrogateescape" if "\udc80" <= letter <= "\udcff" else "surrogatepass"
    octal = (f"\\{byte:03o}" for byte in letter.encode("utf-8", errors))
    return letter if letter.isprintable() and letter not in "\\'" else "".join(octal)


def _double_quoted(letter: str) -> str:
    code, surrogate = ord(letter), "\\" if "\ud800" <= letter <= "\udfff" else ""
    return letter if letter.isprintable() else f"\\U{code:08x}" if code > 0xFFFF else f"{surrogate}\\u{code:04x}"
