"""The sheet that every page stands on: head, look, script, the order of what it says."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from hwopt.report.colours import MONEY, OTHER, OVER, PALE, PARTS, WITHIN, on_ground
from hwopt.report.page.markup import Child, Html, element, joined, raw

_DARK = "#14181D"
"""Ground of a page in the dark."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""The browser itself holds the page to what it says: nothing is loaded from anywhere."""

_SHADES = (
    {f"part-{name}": colour for name, colour in PARTS.items()}
    | {f"money-{name}": colour for name, colour in MONEY.items()}
    | {"other": OTHER, "over": OVER, "within": WITHIN, "pale": PALE}
)


def page(kind: str, question: str, *sections: Child) -> str:
    """A whole page. **Arguments:** `kind`: which command answered; `question`: what was asked."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content="hwopt"),
        element("link", rel="icon", href="data:,"),
        element("title", f"{kind}: {question}"),
        element("style", raw(_variables() + _resource("style.css"))),
    )
    body = element("body", element("main", *sections), element("script", raw(_resource("points.js"))))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def section(title: str, *children: Child, note: str = "", wide: bool = True) -> Html:
    """A titled part of the page; `note` stands small under the title; not `wide`: two stand side by side."""
    return element(
        "section",
        element("h2", title),
        element("p", note, class_="note") if note else None,
        *children,
        class_=None if wide else "half",
    )


def header(kind: str, question: str, answer: Child, *more: Child) -> Html:
    """What was asked and the answer to it."""
    return element(
        "header",
        element("p", kind, class_="kind"),
        element("h1", question),
        element("div", answer, class_="answer"),
        *more,
    )


def command_section(command: str) -> Html:
    """The words that make the page again."""
    from hwopt import __version__

    return section(
        "The command that made this page",
        element("pre", element("code", command), tabindex="0", aria_label="command"),
        note=f"The same command makes the same page again, byte for byte (hwopt {__version__}).",
    )


def sources_section(sources: Sequence[str], question: str) -> Html:
    """References behind the numbers."""
    return section(
        f"Sources behind these numbers ({len(sources)})",
        element("ol", *(element("li", each) for each in sources)),
        note=f"As hwopt sources {question} prints them; every number with its own by hwopt catalog.",
    )


def _variables() -> str:
    """Colours as variables: as they are, and light enough to be seen in the dark."""
    light = "".join(f"--{name}:{colour};" for name, colour in _SHADES.items())
    dark = "".join(f"--{name}:{on_ground(colour, _DARK, 4.0)};" for name, colour in _SHADES.items())
    return f":root{{{light}--ground:#FFFFFF}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}--ground:{_DARK}}}}}\n"


def _resource(name: str) -> str:
    """A file that lies beside this one."""
    return files("hwopt.report.page").joinpath(name).read_text(encoding="utf-8")


def lines(*texts: str) -> Html:
    """Paragraphs."""
    return joined(*(element("p", text) for text in texts if text))
