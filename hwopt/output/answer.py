"""An answer of a command: its JSON, and one list of sections that is rendered as a text screen and as an HTML page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hwopt.declared import document
from hwopt.output.html import components, page
from hwopt.output.html.markup import Child, Html, element, li, p
from hwopt.output.text.layout import fact, heading, wrapped


class Part:
    """A piece of a section, rendered in both forms; abstract."""

    def lines(self) -> list[str]:
        """Return the lines of a screen."""
        raise NotImplementedError

    def html(self) -> Child:
        """Return the markup of a page."""
        raise NotImplementedError


@dataclass(frozen=True)
class Table(Part):
    """Rows of text under heads.

    **Arguments:**
    - `align`: a letter a column, l for words and r for numbers; default: words, then numbers;
    - `least`: minimal widths of the columns on a screen;
    - `under`: on a screen a text below each row, on a page a last column under the head `under_head`;
    - `hang`: whether the text below a row begins under the second column and is wrapped.
    """

    name: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str = ""
    least: Sequence[int] = ()
    under: Sequence[str] = ()
    under_head: str = "plan"
    hang: bool = False

    def lines(self) -> list[str]:
        """Return the lines of a screen: columns as wide as their longest cell, two spaces between them."""
        every, align = [self.heads, *self.rows], self.align or "l" + "r" * (len(self.heads) - 1)
        least = [*self.least, *[0] * (len(self.heads) - len(self.least))]
        wide = [max(width, *(len(row[i]) for row in every)) for i, width in enumerate(least)]
        cells = lambda row: (f"{x:{'<' if a == 'l' else '>'}{w}}" for x, a, w in zip(row, align, wide, strict=True))
        lines = [f"  {'  '.join(cells(row))}".rstrip() for row in every]
        if not self.under:
            return lines
        indent = " " * (wide[0] + 4)
        below = ["", *(wrapped(each, indent) if self.hang else f"    {each}" for each in self.under)]
        return [line for pair in zip(lines, below, strict=True) for line in pair if line]

    def html(self) -> Child:
        """Return the table of a page."""
        align = self.align or "l" + "r" * (len(self.heads) - 1)
        if not self.under:
            return components.table(self.name, self.heads, self.rows, align)
        rows = [[*row, under] for row, under in zip(self.rows, self.under, strict=True)]
        return components.table(self.name, [*self.heads, self.under_head], rows, align + "l")


@dataclass(frozen=True)
class Sentences(Part):
    """Sentences, each a paragraph. **Arguments:** what the `first` line of each begins with on a screen, and `later` lines."""

    texts: Sequence[str]
    first: str = "  "
    later: str = "    "

    def lines(self) -> list[str]:
        """Return the lines of a screen."""
        return [wrapped(each, self.first, self.later) for each in self.texts]

    def html(self) -> Child:
        """Return the paragraphs of a page."""
        return [p(each) for each in self.texts]


@dataclass(frozen=True)
class Steps(Part):
    """Numbered sentences."""

    texts: Sequence[str]

    def lines(self) -> list[str]:
        """Return the lines of a screen."""
        return [wrapped(each, f"  {place}. ", "     ") for place, each in enumerate(self.texts, 1)]

    def html(self) -> Child:
        """Return the ordered list of a page."""
        return element("ol", [li(each) for each in self.texts])


@dataclass(frozen=True)
class Lines(Part):
    """Short texts, a line each. **Arguments:** what each begins with on a screen."""

    texts: Sequence[str]
    first: str = "  "

    def lines(self) -> list[str]:
        """Return the lines of a screen."""
        return [f"{self.first}{each}" for each in self.texts]

    def html(self) -> Child:
        """Return the list of a page."""
        return element("ul", [li(each) for each in self.texts])


@dataclass(frozen=True)
class Named(Part):
    """A sentence behind each of some names.

    **Arguments:** `width` of a column of the names on a screen, 0 for a colon behind each name; `wrap`: whether lines are wrapped.
    """

    pairs: Sequence[tuple[str, str]]
    width: int = 0
    wrap: bool = True

    def lines(self) -> list[str]:
        """Return the lines of a screen."""
        if self.width:
            return [wrapped(text, f"  {name:<{self.width}}  ", " " * (self.width + 4)) for name, text in self.pairs]
        if self.wrap:
            return [wrapped(text, f"  {name}: ", "      ") for name, text in self.pairs]
        return [f"  {name}: {text}" for name, text in self.pairs]

    def html(self) -> Child:
        """Return the terms of a page."""
        return components.terms(self.pairs)


@dataclass(frozen=True)
class Outline(Part):
    """Lists of sentences: on a screen the first of each list stands out, and the others are indented below it."""

    lists: Sequence[Sequence[str]]

    def lines(self) -> list[str]:
        """Return the lines of a screen."""
        return [
            line
            for first, *others in self.lists
            for line in (wrapped(first, later="    "), *(wrapped(each, "    ", "      ") for each in others))
        ]

    def html(self) -> Child:
        """Return the paragraphs of a page."""
        return [p(" ".join(each)) for each in self.lists]


@dataclass(frozen=True)
class Facts(Part):
    """Names with what is said of each, in columns."""

    pairs: Sequence[tuple[str, str]]

    def lines(self) -> list[str]:
        """Return the lines of a screen."""
        return [fact(name, text) for name, text in self.pairs]

    def html(self) -> Child:
        """Return the terms of a page."""
        return components.terms(self.pairs)


@dataclass(frozen=True)
class OnPage(Part):
    """Markup that only a page shows, such as a chart."""

    child: Child

    def lines(self) -> list[str]:
        """Return no lines: a screen has a table of the same numbers."""
        return []

    def html(self) -> Child:
        """Return the markup."""
        return self.child


@dataclass(frozen=True)
class Section:
    """A titled part of an answer.

    **Arguments:** `titled`: whether a screen prints the title; `note`: a line under the title of a page; `joined`: whether no
    blank line stands above on a screen; `wide`: whether a page gives it its whole width.
    """

    title: str
    parts: Sequence[Part]
    titled: bool = True
    joined: bool = False
    note: str = ""
    wide: bool = True

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to say."""
        return not any(part.lines() or isinstance(part, OnPage) for part in self.parts)

    def lines(self) -> list[str]:
        """Return the lines of a screen."""
        body = [line for part in self.parts for line in part.lines()]
        if not body:
            return []
        return [*(heading(self.title) if self.titled else [] if self.joined else [""]), *body]

    def html(self) -> Html:
        """Return the section of a page."""
        return page.section(self.title, *(part.html() for part in self.parts), note=self.note, wide=self.wide)


@dataclass(frozen=True)
class Answer:
    """An answer of a command, ready to be rendered.

    **Arguments:**
    - `command` that was run, and the `question` it was about where it takes design questions;
    - `declared`: the frozen dataclass whose declared fields are the JSON, or the JSON itself;
    - `title`: the question in words, with a `subtitle` of a screen; `verdict`: the answer in a sentence;
    - `headline`: what a page says in large letters: what it is, and the number;
    - `proof`: the badge beside it, whether it is proved, and a sentence;
    - `asked`: keys of the question in JSON, `also`: further keys;
    - `draw`: writes the figure of `--figure` to a path.
    """

    command: str
    declared: Any
    title: str
    verdict: str
    headline: tuple[str, str]
    proof: tuple[str, bool, str]
    sections: Sequence[Section]
    sources: Sequence[str] = ()
    feasible: bool = True
    asked: Mapping[str, Any] = field(default_factory=dict)
    also: Mapping[str, Any] = field(default_factory=dict)
    draw: Callable[[Path], Any] | None = None
    question: str = ""
    subtitle: str = ""

    def document(self) -> dict[str, Any]:
        """Return the answer for JSON."""
        own = self.declared if isinstance(self.declared, Mapping) else document(self.declared)
        return {**self.asked, **own, **self.also}

    def screen(self) -> str:
        """Return the answer as lines of text."""
        top = [
            self.title,
            *([f"  {self.subtitle}"] if self.subtitle else []),
            *(["", wrapped(self.verdict, "", "")] if self.verdict else []),
        ]
        return "\n".join([*top, *(line for each in self.sections for line in each.lines())])

    def page(self, command_line: str) -> str:
        """Return the answer as one HTML page. **Arguments:** `command_line` that asked for it."""
        badge, proved, words = self.proof
        said = [p(each) for each in (self.verdict, self.subtitle) if each]
        top = page.answer(*self.headline, badge, proved, words, said) if self.feasible else page.refusal(self.verdict)
        kind = f"hwopt {self.command}{f' {self.question}' if self.question else ''}"
        sections = [each.html() for each in self.sections if not each.is_empty]
        return page.page(kind, self.question, self.title, top, sections, command_line, self.sources)
