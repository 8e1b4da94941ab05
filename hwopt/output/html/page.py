"""Common frame of every HTML page: head, style, script, and the order of the sections."""

import shlex
from collections.abc import Iterable, Sequence
from importlib.resources import files

from hwopt import escape
from hwopt.output import guide
from hwopt.output.colours import MONEY, OTHER, OVER, PALE, PARTS, WITHIN, on_ground
from hwopt.output.html.markup import Child, Html, div, element, li, p, raw, span

_DARK = "#14181D"
"""Background color of a page in dark mode."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""Content security policy: the browser itself prevents the page from loading anything."""

_SHADES = (
    {f"part-{name}": colour for name, colour in PARTS.items()}
    | {f"money-{name}": colour for name, colour in MONEY.items()}
    | {"other": OTHER, "over": OVER, "within": WITHIN, "pale": PALE}
)


def page(
    kind: str, name: str, question: str, top: Child, sections: Iterable[Child], command: str, sources: Sequence[str]
) -> str:
    """Return a complete page.

    **Arguments:**

    - `kind`: the command that answered.
    - `name`: the design question, empty where there is none.
    - `question`: the question in words.
    - `top`: the answer to it.
    - `sections`: the sections below it.
    - `command`: the command that regenerates the page.
    - `sources`: citations of its inputs.
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
        element("style", raw(_variables() + resource("style.css"))),
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
    body = element("body", main, element("script", raw(resource("points.js"))))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _how_to_read(topic: str) -> Html:
    """Return the section on the guide: the command that prints it, and a link where the installation names a website."""
    where = guide.address(topic)
    link = p(element("a", f"hwopt {topic} in the guide", href=where)) if where else None
    return section(
        "How to read this page", code(guide.see(topic), "guide"), link, note="In a terminal, without a network."
    )


def section(title: str, *children: Child, note: str = "", wide: bool = True) -> Html:
    """Return a titled section.

    **Arguments:**

    - `note`: a small line below the title.
    - `wide`: whether it takes the full width of the page.
    """
    small = p(note, class_="note") if note else None
    return element("section", element("h2", title), small, *children, class_=None if wide else "half")


def answer(what: str, shown: str, badge: str, proved: bool, proof: str, *more: Child) -> Html:
    """Return the answer in large type.

    **Arguments:**

    - `what`: label of the answer.
    - `shown`: its value.
    - `badge` and `proof`: the certificate.
    - `more`: further content.
    """
    mark = span(badge, class_="badge" if proved else "badge open")
    return div(p(what, class_="what"), p(shown, class_="big"), p(mark, proof, class_="proof"), more, class_="answer")


def refusal(shown: str, *why: Child) -> Html:
    """Return a large notice that there is no answer, with the reason `why`."""
    note = div(why, class_="infeasible", role="note") if why else None
    return div(p(shown, class_="big"), note, class_="answer")


def code(command: str, label: str) -> Html:
    """Return a shell command as an HTML code block.

    **Arguments:**

    - `command`: the command line.
    - `label`: name of the block for screen readers.
    """
    return element("pre", element("code", command), tabindex="0", aria_label=label)


def _variables() -> str:
    """Return the CSS variables of the colors: unchanged for the light theme, lightened for the dark one."""
    light = "".join(f"--{name}:{colour};" for name, colour in _SHADES.items())
    dark = "".join(f"--{name}:{on_ground(colour, _DARK, 4.0)};" for name, colour in _SHADES.items())
    return f":root{{{light}--ground:#FFFFFF}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}--ground:{_DARK}}}}}\n"


def resource(name: str) -> str:
    """Return the text of a file in this package, such as the style sheet."""
    return files("hwopt.output.html").joinpath(name).read_text(encoding="utf-8")
