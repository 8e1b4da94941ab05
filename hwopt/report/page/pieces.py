"""What pages are put together from: tiles, tables, bars of budgets, bars of parts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hwopt.report.colours import MONEY, PARTS
from hwopt.report.page.markup import Child, Html, element
from hwopt.study.sweep import attributes
from hwopt.units import pretty

_OVER = 1e-4  # a share of a budget so little above one is one
_LONGEST = 1.5  # bars are cut there; the number beside them is not
_READABLE = 0.07  # share of a bar from which on a part has room for its number


def tiles(pairs: Sequence[tuple[str, str]]) -> Html:
    """The numbers asked for first, each with its name."""
    return element(
        "dl", *(element("div", element("dt", name), element("dd", value)) for name, value in pairs), class_="tiles"
    )


def terms(pairs: Sequence[tuple[str, str]]) -> Html:
    """Names and what is said of each, line by line."""
    return element("dl", *((element("dt", name), element("dd", text)) for name, text in pairs), class_="terms")


def terms_of(screen: Sequence[str]) -> Html:
    """Lines of a terminal's screen, whose words stand in the first columns, as `terms`; bars are left out."""
    pairs: list[tuple[str, str]] = []
    for line in screen:
        name, text = line[2:17].strip(), " ".join(line[17:].split())
        words = [word for word in text.split() if not set(word) <= {"#", "."}]
        if line[:4] == "    " and pairs:
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]}; {name} {' '.join(words)}")
        elif line[16:17] not in ("", " ") or not text:
            pairs.append((line.split()[0], " ".join(line.split()[1:])))
        else:
            pairs.append((name, " ".join(words)))
    return terms(pairs)


def table(label: str, heads: Sequence[str], rows: Sequence[Sequence[Child]], align: str = "") -> Html:
    """A table in a box of its own that scrolls.

    **Arguments:** `align`: a letter a column, l for words and r for numbers; default: words, then numbers.
    """
    looks = ["words" if letter == "l" else None for letter in align or "l" + "r" * (len(heads) - 1)]
    top = element("tr", *(element("th", each, scope="col", class_=c) for each, c in zip(heads, looks, strict=True)))
    body = [
        element(
            "tr",
            *(
                element("td" if place else "th", cell, scope=None if place else "row", class_=looks[place])
                for place, cell in enumerate(row)
            ),
        )
        for row in rows
    ]
    whole = element("table", element("thead", top), element("tbody", *body))
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=label)


def named(name: Child, more: str = "") -> Html:
    """A name, and a few words below it."""
    return element("span", name, element("small", more) if more else None, class_="named")


@dataclass(frozen=True)
class Bar:
    """A budget: what is used of how much (SI), what more of it is worth in words, whether it binds."""

    name: str
    used: float | None
    limit: float
    unit: str
    worth: str = ""
    binds: bool = False

    @property
    def share(self) -> float:
        return self.used / self.limit if self.used is not None else 0.0

    @property
    def is_over(self) -> bool:
        return self.share > 1.0 + _OVER


def budgets(bars: Sequence[Bar]) -> Html:
    """Budgets as bars, one below the other; the mark is the limit."""
    if not bars:
        return element("p", "The question has no budget.")
    longest = _LONGEST if any(each.is_over for each in bars) else 1.0
    return element("ul", *(_budget(each, longest) for each in bars), class_="budgets")


def _budget(each: Bar, longest: float) -> Html:
    percent = "" if each.used is None else f"{100 * each.share:.2f} %"
    used = "-" if each.used is None else pretty(each.used, each.unit)
    words = f"over by {100 * (each.share - 1):.3g} %" if each.is_over else each.worth
    name = element("strong", budget_words(each.name), element("span", "binds", class_="badge") if each.binds else None)
    fill = element(
        "span",
        class_="over" if each.is_over else "used",
        style=f"width:{100 * min(each.share, longest) / longest:.2f}%",
    )
    return element(
        "li",
        element(
            "div",
            name,
            element("span", f"{used} of {pretty(each.limit, each.unit)}, ", element("b", percent)),
            class_="said",
        ),
        element(
            "div",
            fill,
            element("i", style=f"left:{100 / longest:.2f}%"),
            class_="bar",
            role="img",
            aria_label=f"{percent} of the limit used",
        ),
        element("p", words, class_="warn" if each.is_over else "worth") if words else None,
    )


def budget_words(name: str) -> str:
    """`power budget` for `power_budget_w`: the unit stands with the number."""
    stem, found, _ = name.partition("_budget")
    return f"{stem}{' budget' if found else ''}".replace("_", " ")


def words(name: str) -> str:
    """A variable or metric as people say it: `HBM bandwidth` for `hbm_bandwidth_bytes_per_s`."""
    said = attributes.words(name)
    for short in ("hbm", "mfu", "hfu", "sram"):
        said = re.sub(rf"\b{short}\b", short.upper(), said)
    return said


_PLAIN = frozenset({"", "chip", "sequence", "of nominal", "stack", "die"})
"""Units that a variable's name says already."""


def amount(value: float | None, unit: str, digits: int = 4) -> str:
    """A variable's value beside its name."""
    if value is None:
        return ""
    if unit == "m2" and value < 1e-2:
        return f"{1e6 * value:,.{digits}g} mm2"
    if unit in _PLAIN and abs(value) >= 1e3:
        return f"{value:,.0f}"
    return pretty(value, "" if unit in _PLAIN else unit, digits)


def part_shade(name: str) -> str:
    """The variable that holds the colour of a part of a step or of the cost."""
    kind = "part-" if name in PARTS else "money-" if name in MONEY else ""
    return f"var(--{kind}{name})" if kind else "var(--other)"


def parts(label: str, rows: Sequence[tuple[str, str, float]]) -> Html:
    """Parts of a whole as (name, amount, share), largest first: one bar, and a table that says what is what."""
    stack = element(
        "div",
        *(
            element(
                "span",
                element("em", f"{100 * share:.0f} %") if share >= _READABLE else None,
                style=f"width:{100 * share:.3f}%;background:{part_shade(name)}",
                title=f"{name.replace('_', ' ')}: {amount + ', ' if amount else ''}{100 * share:.1f} %",
            )
            for name, amount, share in rows
        ),
        class_="stack",
        role="img",
        aria_label=f"{label}: " + ", ".join(f"{name.replace('_', ' ')} {100 * s:.1f} %" for name, _, s in rows),
    )
    amounts = any(amount for _, amount, _ in rows)
    listed = [
        (
            element("span", swatch(part_shade(name)), name.replace("_", " ")),
            *((amount,) if amounts else ()),
            f"{100 * share:.1f} %",
        )
        for name, amount, share in rows
    ]
    return element("div", stack, table(label, ("part", *(("amount",) if amounts else ()), "share"), listed))


def swatch(colour: str) -> Html:
    """A patch of a colour of the page, beside the words that say what it means."""
    return element("i", class_="swatch", style=f"background:{colour}", aria_hidden="true")
