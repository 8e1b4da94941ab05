"""The sheet that every page stands on: head, look, script, the order of what it says."""

import shlex
from collections.abc import Iterable, Sequence
from importlib.resources import files

from hwopt import escape
from hwopt.output import guide
from hwopt.output.colours import MONEY, OTHER, OVER, PALE, PARTS, WITHIN, on_ground
from hwopt.output.html.markup import Child, Html, div, element, li, p, raw, span

_DARK = "#14181D"
"""Ground of a page in the dark."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""The browser itself holds the page to what it says: nothing is loaded from anywhere."""

_SHADES = (
    {f"part-{name}": colour for name, colour in PARTS.items()}
    | {f"money-{name}": colour for name, colour in MONEY.items()}
    | {"other": OTHER, "over": OVER, "within": WITHIN, "pale": PALE}
)


def page(
    kind: str, name: str, question: str, top: Child, sections: Iterable[Child], command: str, sources: Sequence[str]
) -> str:
    """A whole page.

    **Arguments:** `kind`: which command answered; `name` of the design question, empty where it is none; `question`: what was
    asked; `top`: the answer to it; `sections` below; the `command` that makes the page again; `sources` of its numbers.
    """
    from hwopt._version import __version__

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
    main = element(
        "main",
        element("header", p(kind, class_="kind"), element("h1", question), top),
        sections,
        section(
            "The command that made this page",
            code(command if command.isprintable() else escape.command(shlex.split(command)), "command"),
            note=f"The same command makes the same page again, byte for byte (hwopt {__version__}).",
        ),
        _how_to_read(kind.split()[1]),
        section(
            f"Sources behind these numbers ({len(sources)})",
            element("ol", map(li, sources)),
            note=f"{f'As hwopt sources {name} prints them; every' if name else 'Every'} number with its own by hwopt catalog.",
        ),
    )
    body = element("body", main, element("script", raw(_resource("points.js"))))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _how_to_read(topic: str) -> Html:
    """Where it is written what the page says: a link where the installation names a site, the command that prints it anyway."""
    where = guide.address(topic)
    link = p(element("a", f"hwopt {topic} in the guide", href=where)) if where else None
    return section(
        "How to read this page", code(guide.see(topic), "guide"), link, note="In a terminal, without a network."
    )


def section(title: str, *children: Child, note: str = "", wide: bool = True) -> Html:
    """A titled part of the page; `note` stands small under the title; not `wide`: two stand side by side."""
    small = p(note, class_="note") if note else None
    return element("section", element("h2", title), small, *children, class_=None if wide else "half")


def answer(what: str, shown: str, badge: str, proved: bool, proof: str, *more: Child) -> Html:
    """The answer in large letters: `what` it is, what is `shown` of it, the `badge` of its `proof`, and `more`."""
    mark = span(badge, class_="badge" if proved else "badge open")
    return div(p(what, class_="what"), p(shown, class_="big"), p(mark, proof, class_="proof"), more, class_="answer")


def refusal(shown: str, *why: Child) -> Html:
    """That there is no answer, in large letters, and `why`."""
    note = div(why, class_="infeasible", role="note") if why else None
    return div(p(shown, class_="big"), note, class_="answer")


def code(command: str, label: str) -> Html:
    """A command to copy; `label` for readers who do not see it."""
    return element("pre", element("code", command), tabindex="0", aria_label=label)


def _variables() -> str:
    """Colours as variables: as they are, and light enough to be seen in the dark."""
    light = "".join(f"--{name}:{colour};" for name, colour in _SHADES.items())
    dark = "".join(f"--{name}:{on_ground(colour, _DARK, 4.0)};" for name, colour in _SHADES.items())
    return f":root{{{light}--ground:#FFFFFF}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}--ground:{_DARK}}}}}\n"


def _resource(name: str) -> str:
    """A file that lies beside this one."""
    return files("hwopt.output.html").joinpath(name).read_text(encoding="utf-8")
