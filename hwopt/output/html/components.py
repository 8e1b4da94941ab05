"""What pages are put together from: tiles, tables, bars of budgets, bars of parts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hwopt.output.colours import MONEY, PARTS
from hwopt.output.html.markup import Child, Html, div, element, li, p, span
from hwopt.output.text.layout import budget_words
from hwopt.units import label, pretty

_OVER = 1e-4  # a share of a budget so little above one is one
_LONGEST = 1.5  # bars are cut there; the number beside them is not
_READABLE = 0.07  # share of a bar from which on a part has room for its number


def tiles(pairs: Sequence[tuple[str, str]]) -> Html:
    """The numbers asked for first, each with its name."""
    return element("dl", (div(element("dt", name), element("dd", value)) for name, value in pairs), class_="tiles")


def terms(pairs: Sequence[tuple[str, str]]) -> Html:
    """Names and what is said of each, line by line."""
    return element("dl", ((element("dt", name), element("dd", text)) for name, text in pairs), class_="terms")


def table(label: str, heads: Sequence[str], rows: Sequence[Sequence[Child]], align: str = "") -> Html:
    """A table in a box of its own that scrolls.

    **Arguments:** `align`: a letter a column, l for words and r for numbers; default: words, then numbers.
    """
    looks = ["words" if letter == "l" else None for letter in align or "l" + "r" * (len(heads) - 1)]
    top = (element("th", each, scope="col", class_=look) for each, look in zip(heads, looks, strict=True))
    body = [
        element("tr", element("th", first, scope="row", class_=looks[0]), map(_cell, rest, looks[1:]))
        for first, *rest in rows
    ]
    whole = element("table", element("thead", element("tr", top)), element("tbody", body))
    return div(whole, class_="scroll", tabindex="0", role="region", aria_label=label)


def _cell(child: Child, look: str | None) -> Html:
    return element("td", child, class_=look)


def named(name: Child, more: str = "") -> Html:
    """A name, and a few words below it."""
    return span(name, element("small", more) if more else None, class_="named")


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
        return p("The question has no budget.")
    longest = _LONGEST if any(each.is_over for each in bars) else 1.0
    return element("ul", (_budget(each, longest) for each in bars), class_="budgets")


def _budget(each: Bar, longest: float) -> Html:
    percent = "" if each.used is None else f"{100 * each.share:.2f} %"
    used = "-" if each.used is None else pretty(each.used, each.unit)
    words = f"over by {100 * (each.share - 1):.3g} %" if each.is_over else each.worth
    name = element("strong", budget_words(each.name), span("binds", class_="badge") if each.binds else None)
    width = f"width:{100 * min(each.share, longest) / longest:.2f}%"
    bar = span(class_="over" if each.is_over else "used", style=width), element("i", style=f"left:{100 / longest:.2f}%")
    return li(
        div(name, span(f"{used} of {pretty(each.limit, each.unit)}, ", element("b", percent)), class_="said"),
        div(bar, class_="bar", role="img", aria_label=f"{percent} of the limit used"),
        p(words, class_="warn" if each.is_over else "worth") if words else None,
    )


def words(name: str, unit: str) -> str:
    """A variable or metric as people say it: `HBM bandwidth` for `hbm_bandwidth_bytes_per_s`."""
    return re.sub(r"\b(hbm|mfu|hfu|sram)\b", lambda short: short.group().upper(), label(name, unit))


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


def part_named(name: str) -> Html:
    """A part of a step or of the cost beside a patch of its colour."""
    return span(swatch(part_shade(name)), name.replace("_", " "))


def parts(label: str, rows: Sequence[tuple[str, str, float]]) -> Html:
    """Parts of a whole as (name, amount, share), largest first: one bar, and a table that says what is what."""
    shares = [f"{name.replace('_', ' ')} {100 * share:.1f} %" for name, _, share in rows]
    stack = (
        span(
            element("em", f"{100 * share:.0f} %") if share >= _READABLE else None,
            style=f"width:{100 * share:.3f}%;background:{part_shade(name)}",
            title=f"{name.replace('_', ' ')}: {amount + ', ' if amount else ''}{100 * share:.1f} %",
        )
        for name, amount, share in rows
    )
    amounts = any(amount for _, amount, _ in rows)
    heads = ("part", "amount", "share") if amounts else ("part", "share")
    listed = [
        (part_named(name), *([amount] if amounts else []), f"{100 * share:.1f} %") for name, amount, share in rows
    ]
    bar = div(stack, class_="stack", role="img", aria_label=f"{label}: {', '.join(shares)}")
    return div(bar, table(label, heads, listed))


def swatch(colour: str) -> Html:
    """A patch of a colour of the page, beside the words that say what it means."""
    return element("i", class_="swatch", style=f"background:{colour}", aria_hidden="true")
