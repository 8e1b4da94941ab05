"""HTML markup from values.

All text that is not already markup is escaped, so that names from user files cannot inject markup.
"""

from collections.abc import Iterable
from functools import partial
from typing import TypeAlias

from hwopt import escape

Child: TypeAlias = "Html | str | Iterable[Child] | None"
"""Content of an element; None adds nothing."""

_VOID = frozenset({"meta", "link", "br"})


class Html(str):
    """String that is already HTML markup, so that it is not escaped again."""


def raw(text: str) -> Html:
    """Return text as markup, unescaped. It must never contain user input."""
    return Html(text)


def element(tag: str, /, *children: Child, **attributes: str | float | bool | None) -> Html:
    """Return an element.

    `class_` becomes `class`, other underscores become hyphens; an attribute that is None or False is omitted.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if tag in _VOID:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{joined(*children)}</{tag}>")


div, li, p, span = (partial(element, tag) for tag in ("div", "li", "p", "span"))


def joined(*children: Child) -> Html:
    """Return HTML children joined to one markup string; plain text is escaped."""
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
