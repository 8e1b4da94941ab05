"""An answer of a command: its JSON, and one list of sections that is rendered as a text screen and as an HTML page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hwopt.declared import document
from hwopt.report.layout import fact, heading, wrapped
from hwopt.report.page import pieces, sheet
from hwopt.report.page.markup import Child, Html, p


@dataclass(frozen=True)
class Table:
    """Rows of text under heads: words in the first column, numbers in the others.

    **Arguments:** `least`: minimal widths of the columns on a screen; `under`: a line below each row on a screen, a last column
    on a page under the head `under_head`.
    """

    name: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    least: Sequence[int] = ()
    under: Sequence[str] = ()
    under_head: str = "plan"

    def lines(self) -> list[str]:
        """Return the lines of a screen: columns as wide as their longest cell, two spaces between them."""
        every = [self.heads, *self.rows]
        least = [*self.least, *[0] * (len(self.heads) - len(self.least))]
        wide = [max(width, *(len(row[i]) for row in every)) for i, width in enumerate(least)]
        lines = [
            f"  {first:<{wide[0]}}" + "".join(f"  {x:>{w}}" for x, w in zip(rest, wide[1:], strict=True))
            for first, *rest in every
        ]
        if not self.under:
            return lines
        below = ["", *(f"    {each}" for each in self.under)]
        return [line for pair in zip(lines, below, strict=True) for line in pair if line]

    def html(self) -> Child:
        """Return the table of a page."""
        if not self.under:
            return pieces.table(self.name, self.heads, self.rows)
        rows = [[*row, under] for row, under in zip(self.rows, self.under, strict=True)]
        return pieces.table(self.name, [*self.heads, self.under_head], rows, "l" + "r" * (len(self.heads) - 1) + "l")


@dataclass(frozen=True)
class Sentences:
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
class Named:
    """A sentence behind each of some names, such as the reason behind each machine without a plan."""

    pairs: Sequence[tuple[str, str]]
    wrap: bool = True

    def lines(self) -> list[str]:
        """Return the lines of a screen, `name: sentence`."""
        return [
            wrapped(text, f"  {name}: ", "      ") if self.wrap else f"  {name}: {text}" for name, text in self.pairs
        ]

    def html(self) -> Child:
        """Return the terms of a page."""
        return pieces.terms(self.pairs)


@dataclass(frozen=True)
class Facts:
    """Names with what is said of each, in columns."""

    pairs: Sequence[tuple[str, str]]

    def lines(self) -> list[str]:
        """Return the lines of a screen."""
        return [fact(name, text) for name, text in self.pairs]

    def html(self) -> Child:
        """Return the terms of a page."""
        return pieces.terms(self.pairs)


@dataclass(frozen=True)
class Shares:
    """Parts of a whole as (name, amount, share), on pages only."""

    name: str
    parts: Sequence[tuple[str, str, float]]

    def lines(self) -> list[str]:
        """Return no lines: a screen has a table of the same numbers."""
        return []

    def html(self) -> Child:
        """Return the bar of a page and its table."""
        return pieces.parts(self.name, self.parts)


Part = Table | Sentences | Named | Facts | Shares


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

    def lines(self) -> list[str]:
        """Return the lines of a screen."""
        body = [line for part in self.parts for line in part.lines()]
        if not body:
            return []
        return [*(heading(self.title) if self.titled else [] if self.joined else [""]), *body]

    def html(self) -> Html:
        """Return the section of a page."""
        return sheet.section(self.title, *(part.html() for part in self.parts), note=self.note, wide=self.wide)


@dataclass(frozen=True)
class Answer:
    """An answer of a command, ready to be rendered.

    **Arguments:** `declared`: the frozen dataclass whose declared fields are the JSON; `title`: the question; `verdict`: the
    answer in a sentence; `headline`: what a page says in large letters, as (what it is, the number); `proof`: its badge, whether
    it is proved, and a sentence; `asked`: keys of the question for JSON; `also`: further keys; `draw`: writes the figure to a path.
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

    def document(self) -> dict[str, Any]:
        """Return the answer for JSON."""
        return {**self.asked, **document(self.declared), **self.also}

    def screen(self) -> str:
        """Return the answer as lines of text."""
        top = [self.title, *(["", wrapped(self.verdict, "", "")] if self.verdict else [])]
        return "\n".join([*top, *(line for each in self.sections for line in each.lines())])

    def page(self, command_line: str) -> str:
        """Return the answer as one HTML page. **Arguments:** `command_line` that asked for it."""
        badge, proved, words = self.proof
        said = p(self.verdict) if self.verdict else None
        top = sheet.answer(*self.headline, badge, proved, words, said) if self.feasible else sheet.refusal(self.verdict)
        kind = f"hwopt {self.command}{f' {self.question}' if self.question else ''}"
        sections = [each.html() for each in self.sections]
        return sheet.page(kind, self.question, self.title, top, sections, command_line, self.sources)
