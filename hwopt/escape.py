"""Escaping of external text (file names, titles, flags), one function per target language. JSON is `json.dumps`, in ASCII."""

import html as _html
import json
import shlex
from collections.abc import Iterable
from typing import Any


def line(text: str) -> str:
    r"""Return one line for a terminal or a log: characters that are not printable are escaped (`\n`, `\x1b`, `\u202e`)."""
    return text if text.isprintable() else "".join(map(_printable, text))


def terminal(text: str) -> str:
    """Return text of several lines for a terminal: line breaks stay, each line is escaped by `line`."""
    return "\n".join(map(line, text.split("\n")))


def sentence(text: str) -> str:
    """Return a message, or a text of several lines, as one line."""
    return text if text.isprintable() else line(" ".join(text.split()))


def comment(text: str) -> str:
    """Return a one-line comment for shell, TOML, YAML or Python."""
    return f"# {sentence(text)}"


def shell(word: str) -> str:
    """Return a quoted word of a shell command line.

    Characters that are not printable become bytes in `$'...'`, which bash, zsh and ksh support.
    """
    return shlex.quote(word) if word.isprintable() else f"$'{''.join(map(_ansi_c, word))}'"


def command(words: Iterable[str]) -> str:
    """Return words as a quoted shell command line."""
    return " ".join(map(shell, words))


def toml(value: Any) -> str:
    """Return a text, number, boolean or list as TOML; lone surrogates, which TOML does not support, as escaped text."""
    return "".join(map(_double_quoted, json.dumps(value, ensure_ascii=False)))


yaml = toml
"""Return a value as YAML, dictionaries included."""


def html(text: str) -> str:
    """Return text escaped for an HTML element or an attribute in double quotes."""
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
