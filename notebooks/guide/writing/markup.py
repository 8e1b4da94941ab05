"""Tables of HTML: thousands of rows, which Markdown would take minutes over."""

import html
import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are text, in which `backquotes` mean code."""
    top = "".join(f"<th>{cell(each)}</th>" for each in head)
    body = "\n".join("<tr>" + "".join(f"<td>{cell(each)}</td>" for each in row) + "</tr>" for row in rows)
    return f"<table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n"


def cell(text: str) -> str:
    """Text as HTML."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))


def fenced(text: str, language: str = "text") -> str:
    """Text as a block of code."""
    return f"```{language}\n{text.rstrip()}\n```\n"
