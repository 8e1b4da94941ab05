"""Answer of a command: its JSON and a list of sections. The same sections are rendered as a text screen and as an HTML page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hwopt.calibration.evidence import Evidence
from hwopt.declared import document, plain
from hwopt.output.html import components, page
from hwopt.output.html.markup import Child, Html, element, li, p
from hwopt.output.text.layout import budget_line, fact, heading, listed, part_lines, wrapped
from hwopt.output.text.parts import step_label


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
    - `most`: maximum number of rows on a screen, 0 for all; a page shows every row.
    """

    name: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str = ""
    least: Sequence[int] = ()
    under: Sequence[str] = ()
    hang: bool = False
    most: int = 0

    def lines(self) -> list[str]:
        """Return the lines of text: each column is as wide as its longest cell, with two spaces between columns."""
        shown = self.rows[: self.most or None]
        every, align = [self.heads, *shown], self.align or "l" + "r" * (len(self.heads) - 1)
        least = [*self.least, *[0] * (len(self.heads) - len(self.least))]
        wide = [max(width, *(len(row[i]) for row in every)) for i, width in enumerate(least)]
        cells = lambda row: (f"{x:{'<' if a == 'l' else '>'}{w}}" for x, a, w in zip(row, align, wide, strict=True))
        lines = [f"  {'  '.join(cells(row))}".rstrip() for row in every]
        if self.under:
            indent = " " * (wide[0] + 4)
            texts = self.under[: len(shown)]
            below = ["", *(wrapped(each, indent) if self.hang else f"    {each}" for each in texts)]
            lines = [line for pair in zip(lines, below, strict=True) for line in pair if line]
        return [*lines, f"  and {len(self.rows) - len(shown):,} more"] if len(shown) < len(self.rows) else lines

    def html(self) -> Child:
        """Return the HTML table. Texts that belong to rows follow it as a list of definitions."""
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
class Listed(Part):
    """Comma-separated list of short texts."""

    texts: Sequence[str]

    def lines(self) -> list[str]:
        """Return the list for a terminal, wrapped between the texts only."""
        return [listed(self.texts)] if self.texts else []

    def html(self) -> Child:
        """Return the list as an HTML paragraph."""
        return p(", ".join(self.texts))


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
    """Names with a short text each, in two columns.

    **Arguments:** `pairs`: (name, text), or (name, text, parts) with parts of a whole as (name, amount, share).
    """

    pairs: Sequence[tuple[Any, ...]]

    def lines(self) -> list[str]:
        """Return the names and texts as lines for a terminal, with a bar for each part of a whole."""
        return [
            line
            for name, text, *parts in self.pairs
            for line in (fact(name, text), *(line for each in parts for line in _indented(each)))
        ]

    def html(self) -> Child:
        """Return the names and texts as an HTML definition list."""
        shares = lambda parts: (
            f"{part} {amount} {100 * share:.1f} %" for each in parts for part, amount, share in each
        )
        return components.terms([(name, "; ".join([text, *shares(parts)])) for name, text, *parts in self.pairs])


def _indented(parts: Sequence[tuple[str, str, float]]) -> list[str]:
    """Return a line with a bar for each part of a whole, indented, with names in a column."""
    width = max((len(name) for name, *_ in parts), default=0)
    return [f"  {line}" for line in part_lines(parts, max(width, 12))]


@dataclass(frozen=True)
class Breakdown(Part):
    """Components of a whole, as bars on a screen, and as a stacked bar with a table on a page.

    **Arguments:**

    - `name`: what the components are shares of.
    - `parts`: (name, amount, share), the largest first; amounts may be empty.
    """

    name: str
    parts: Sequence[tuple[str, str, float]]

    def lines(self) -> list[str]:
        """Return a line with a bar for each component."""
        rows = [(step_label(name), amount, share) for name, amount, share in self.parts]
        wide = max((len(name) for name, _, _ in rows), default=0)
        return part_lines(rows, wide, max((len(amount) for _, amount, _ in rows), default=0))

    def html(self) -> Child:
        """Return the stacked bar and its table."""
        return components.parts(self.name, self.parts)


@dataclass(frozen=True)
class Budgets(Part):
    """Budgets with their use, limit and share."""

    bars: Sequence[components.Bar]

    def lines(self) -> list[str]:
        """Return a line with a bar for each budget."""
        return [
            budget_line(each.name, each.used, each.limit, each.unit, "<- over" if each.is_over else each.worth)
            for each in self.bars
            if each.used is not None
        ]

    def html(self) -> Child:
        """Return the bars; a mark shows each limit."""
        return components.budgets(self.bars)


@dataclass(frozen=True)
class OnPage(Part):
    """Markup of an HTML page, such as a chart.

    **Arguments:** `text`: the lines that a screen prints instead; by default none, where it has a table with the same numbers.
    """

    child: Child
    text: Sequence[str] = ()

    def lines(self) -> list[str]:
        """Return the lines that a screen prints instead of the markup."""
        return list(self.text)

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
        """Return whether the section has no content to show on a page."""
        return not any(part.child if isinstance(part, OnPage) else part.lines() for part in self.parts)

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
    - `verdict`: the answer in a sentence: first on the screen and on the page, and a key of the JSON.
    - `headline`: the main number of a page, as (label, number). The number is empty where there is no answer.
    - `feasible`: whether the exit code is 0.
    - `proof`: the badge next to the headline: its label, whether the answer is proved, and a sentence.
    - `asked`: JSON keys that repeat the question.
    - `also`: additional JSON keys.
    - `details`: sentences below title and subtitle.
    - `draw`: writes the figure requested with `--figure` to a path.
    - `evidence`: measured runs with the features of the plan; a key of the JSON, and the last lines of the answer.
    """

    command: str
    declared: Any
    title: str
    verdict: str = ""
    headline: tuple[str, str] = ("", "")
    proof: tuple[str, bool, str] = ("", False, "")
    sections: Sequence[Section] = ()
    sources: Sequence[str] = ()
    feasible: bool = True
    asked: Mapping[str, Any] = field(default_factory=dict)
    also: Mapping[str, Any] = field(default_factory=dict)
    draw: Callable[[Path], Any] | None = None
    question: str = ""
    subtitle: str = ""
    details: str = ""
    evidence: Evidence | None = None

    @property
    def shown(self) -> list[Section]:
        """Return the sections, the evidence behind the plan last."""
        found = self.evidence or Evidence()
        words = {"unmeasured": "; ".join(found.unmeasured), "beyond data": "; ".join(found.beyond)}
        facts = [(name, text) for name, text in words.items() if text]
        return [*self.sections, Section("Evidence", [Named(facts, width=13)], titled=False)]

    def document(self) -> dict[str, Any]:
        """Return the answer as a dictionary for JSON."""
        own = self.declared if isinstance(self.declared, Mapping) else document(self.declared)
        said = {"verdict": self.verdict} if self.verdict else {}
        said |= {"evidence": plain(self.evidence)} if self.evidence else {}
        return {**said, **self.asked, **own, **self.also}

    def screen(self) -> str:
        """Return the answer as text for a terminal."""
        top = [
            *([wrapped(self.verdict, "", ""), ""] if self.verdict else []),
            *(wrapped(line, "") for line in self.title.split("\n")),
            *([f"  {self.subtitle}"] if self.subtitle else []),
            *(["", wrapped(self.details, "", "")] if self.details else []),
        ]
        return "\n".join([*top, *(line for each in self.shown for line in each.lines())])

    def page(self, command_line: str) -> str:
        """Return the answer as one HTML page. **Arguments:** `command_line`: the command that produced the answer."""
        badge, proved, words = self.proof
        said = [p(each) for each in (self.verdict, self.details, self.subtitle) if each]
        there_is = bool(self.headline[1])  # a failed check has a headline, a question without a design has none
        first, _, rest = self.verdict.partition(". ")
        none = page.refusal(first, *([p(rest)] if rest else []))
        top = page.answer(*self.headline, badge, proved, words, said) if there_is else none
        kind = f"hwopt {self.command}{f' {self.question}' if self.question else ''}"
        sections = [each.html() for each in self.shown if not each.is_empty]
        return page.page(kind, self.question, self.title, top, sections, command_line, self.sources)
