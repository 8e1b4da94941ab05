"""HTML from values: whatever is not markup already is escaped, so that names of users' files cannot become markup."""

from collections.abc import Iterable
from functools import partial
from typing import TypeAlias

from hwopt import escape

Child: TypeAlias = "Html | str | Iterable[Child] | None"
"""What may stand in an element; None stands for nothing."""

_VOID = frozenset({"meta", "link", "br"})


class Html(str):
    """Text that is markup already."""


def raw(text: str) -> Html:
    """Markup of our own, word by word. Never for what a user wrote."""
    return Html(text)


def element(tag: str, /, *children: Child, **attributes: str | float | bool | None) -> Html:
    """One element. `class_` is `class`, other underscores are hyphens; an attribute that is None or False is left out."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if tag in _VOID:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{joined(*children)}</{tag}>")


div, li, p, span = (partial(element, tag) for tag in ("div", "li", "p", "span"))


def joined(*children: Child) -> Html:
    """Children one after the other, escaped where they are plain text."""
    return Html("".join(map(_child, children)))


def _child(child: Child) -> str:
    if child is None or isinstance(child, Html):
        return child or ""
    return escape.html(child) if isinstance(child, str) else joined(*child)


def _attribute(key: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    key = key.rstrip("_").replace("_", "-")
    return f" {key}" if value is True else f' {key}="{escape.html(str(value))}"'
