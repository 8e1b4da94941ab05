"""Answer of a command: its JSON and a list of sections. The same sections are rendered as a text screen and as an HTML page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hwopt.declared import document
from hwopt.output.html import components, page
from hwopt.output.html.markup import Child, Html, element, li, p
from hwopt.output.text.layout import fact, heading, wrapped


class Part:
    """Abstract base of the parts of a section. Each part renders itself as text and as HTML."""

    def lines(self) -> list[str]:
        """Return the lines of text of the part on a screen."""
        raise NotImplementedError

    def html(self) -> Child:
        """Return the HTML markup of the part on a page."""
        raise NotImplementedError


@dataclass(frozen=True)
class Table(Part):
    """Table of text cells with column headings.

    **Arguments:**

    - `align`: one letter a column, l for left and r for right; default: the first column left, the others right.
    - `least`: minimum column widths on a screen.
    - `under`: a text for each row: below the row on a screen, in a list below the table on a page, where cells do not wrap.
    - `hang`: whether the text below a row is wrapped and indented to the second column.
    """

    name: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str = ""
    least: Sequence[int] = ()
    under: Sequence[str] = ()
    hang: bool = False

    def lines(self) -> list[str]:
        """Return the lines of text: each column is as wide as its longest cell, with two spaces between columns."""
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
        """Return the HTML table."""
        table = components.table(self.name, self.heads, self.rows, self.align)
        said = [(row[0], under) for row, under in zip(self.rows, self.under, strict=False)]
        return [table, components.terms(said)] if said else table


@dataclass(frozen=True)
class Sentences(Part):
    """Sentences, each a paragraph.

    **Arguments:** `first` and `later`: prefixes on a screen of a paragraph's first line and of its continuation lines.
    """

    texts: Sequence[str]
    first: str = "  "
    later: str = "    "

    def lines(self) -> list[str]:
        """Return the sentences as wrapped lines of text for a terminal."""
        return [wrapped(each, self.first, self.later) for each in self.texts]

    def html(self) -> Child:
        """Return the sentences as HTML paragraphs."""
        return [p(each) for each in self.texts]


@dataclass(frozen=True)
class Steps(Part):
    """Numbered list of sentences."""

    texts: Sequence[str]

    def lines(self) -> list[str]:
        """Return the sentences as wrapped lines of text, numbered from 1."""
        return [wrapped(each, f"  {place}. ", "     ") for place, each in enumerate(self.texts, 1)]

    def html(self) -> Child:
        """Return the sentences as an ordered HTML list."""
        return element("ol", [li(each) for each in self.texts])


@dataclass(frozen=True)
class Lines(Part):
    """Short texts, one line each. **Arguments:** `first`: prefix of each line on a screen."""

    texts: Sequence[str]
    first: str = "  "

    def lines(self) -> list[str]:
        """Return the texts as lines for a terminal."""
        return [f"{self.first}{each}" for each in self.texts]

    def html(self) -> Child:
        """Return the texts as an HTML bullet list."""
        return element("ul", [li(each) for each in self.texts])


@dataclass(frozen=True)
class Named(Part):
    """Names, each followed by a sentence.

    **Arguments:**

    - `width`: width of the name column on a screen; 0 prints a colon after each name instead.
    - `wrap`: whether long lines are wrapped.
    """

    pairs: Sequence[tuple[str, str]]
    width: int = 0
    wrap: bool = True

    def lines(self) -> list[str]:
        """Return the names and sentences as lines of text for a terminal."""
        if self.width:
            return [wrapped(text, f"  {name:<{self.width}}  ", " " * (self.width + 4)) for name, text in self.pairs]
        if self.wrap:
            return [wrapped(text, f"  {name}: ", "      ") for name, text in self.pairs]
        return [f"  {name}: {text}" for name, text in self.pairs]

    def html(self) -> Child:
        """Return the names and sentences as an HTML definition list."""
        return components.terms(self.pairs)


@dataclass(frozen=True)
class Outline(Part):
    """Lists of sentences. On a screen the first sentence of each list is a heading, and the others are indented below it."""

    lists: Sequence[Sequence[str]]

    def lines(self) -> list[str]:
        """Return the sentences as wrapped lines of text, indented below the first of each list."""
        return [
            line
            for first, *others in self.lists
            for line in (wrapped(first, later="    "), *(wrapped(each, "    ", "      ") for each in others))
        ]

    def html(self) -> Child:
        """Return a paragraph and a bullet list for each list."""
        return [
            [p(first), element("ul", [li(each) for each in others]) if others else None]
            for first, *others in self.lists
        ]


@dataclass(frozen=True)
class Facts(Part):
    """Names with a short text each, in two columns."""

    pairs: Sequence[tuple[str, str]]

    def lines(self) -> list[str]:
        """Return the names and texts as lines for a terminal."""
        return [fact(name, text) for name, text in self.pairs]

    def html(self) -> Child:
        """Return the names and texts as an HTML definition list."""
        return components.terms(self.pairs)


@dataclass(frozen=True)
class OnPage(Part):
    """Markup shown only on an HTML page, such as a chart."""

    child: Child

    def lines(self) -> list[str]:
        """Return no lines: the screen has a table with the same numbers."""
        return []

    def html(self) -> Child:
        """Return the markup for the HTML page."""
        return self.child


@dataclass(frozen=True)
class Section:
    """Titled section of an answer.

    **Arguments:**

    - `titled`: whether a screen prints the title.
    - `note`: a line below the title on a page.
    - `joined`: whether a screen omits the blank line before an untitled section.
    - `wide`: whether the section takes the whole width of a page.
    """

    title: str
    parts: Sequence[Part]
    titled: bool = True
    joined: bool = False
    note: str = ""
    wide: bool = True

    @property
    def is_empty(self) -> bool:
        """Return whether the section has no content to show."""
        return not any(part.lines() or isinstance(part, OnPage) for part in self.parts)

    def lines(self) -> list[str]:
        """Return the lines of text of the section for a terminal; none where its parts have none."""
        body = [line for part in self.parts for line in part.lines()]
        if not body:
            return []
        return [*(heading(self.title) if self.titled else [] if self.joined else [""]), *body]

    def html(self) -> Html:
        """Return the section as part of an HTML page."""
        return page.section(self.title, *(part.html() for part in self.parts), note=self.note, wide=self.wide)


@dataclass(frozen=True)
class Answer:
    """Answer of a command, ready to be rendered as JSON, text or HTML.

    **Arguments:**

    - `command`: the command that was run.
    - `question`: the design question that it answered, where it takes one.
    - `declared`: a frozen dataclass whose declared fields are the JSON, or the JSON itself as a mapping.
    - `title`: the question in words.
    - `subtitle`: a line below it.
    - `verdict`: the answer in a sentence.
    - `headline`: the main number of a page, as (label, number). The number is empty where there is no answer.
    - `feasible`: whether the exit code is 0.
    - `proof`: the badge next to the headline: its label, whether the answer is proved, and a sentence.
    - `asked`: JSON keys that repeat the question.
    - `also`: additional JSON keys.
    - `draw`: writes the figure requested with `--figure` to a path.
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
        """Return the answer as a dictionary for JSON."""
        own = self.declared if isinstance(self.declared, Mapping) else document(self.declared)
        return {**self.asked, **own, **self.also}

    def screen(self) -> str:
        """Return the answer as text for a terminal."""
        top = [
            self.title,
            *([f"  {self.subtitle}"] if self.subtitle else []),
            *(["", wrapped(self.verdict, "", "")] if self.verdict else []),
        ]
        return "\n".join([*top, *(line for each in self.sections for line in each.lines())])

    def page(self, command_line: str) -> str:
        """Return the answer as one HTML page. **Arguments:** `command_line`: the command that produced the answer."""
        badge, proved, words = self.proof
        said = [p(each) for each in (self.verdict, self.subtitle) if each]
        there_is = bool(self.headline[1])  # a failed check has a headline, a question without a design has none
        top = page.answer(*self.headline, badge, proved, words, said) if there_is else page.refusal(self.verdict)
        kind = f"hwopt {self.command}{f' {self.question}' if self.question else ''}"
        sections = [each.html() for each in self.sections if not each.is_empty]
        return page.page(kind, self.question, self.title, top, sections, command_line, self.sources)
