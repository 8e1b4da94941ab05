"""Components of HTML pages: tiles, tables, bars of budgets, stacked bars of breakdowns."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hwopt.output.colours import MONEY, PARTS
from hwopt.output.html.markup import Child, Html, div, element, li, p, span
from hwopt.output.text.layout import budget_words
from hwopt.output.text.parts import step_label
from hwopt.units import label, pretty

_OVER = 1e-4  # relative excess over a budget that still counts as satisfying it
_LONGEST = 1.5  # bars are cut at this share of the limit; their numbers are not
_READABLE = 0.07  # minimum share of a bar whose number fits into it


def tiles(pairs: Sequence[tuple[str, str]]) -> Html:
    """Return tiles with the most requested numbers, each with its name."""
    return element("dl", (div(element("dt", name), element("dd", value)) for name, value in pairs), class_="tiles")


def terms(pairs: Sequence[tuple[str, str]]) -> Html:
    """Return a definition list: names, each with a text, line by line."""
    return element("dl", ((element("dt", name), element("dd", text)) for name, text in pairs), class_="terms")


def table(label: str, heads: Sequence[str], rows: Sequence[Sequence[Child]], align: str = "") -> Html:
    """Return a table in a scrollable region.

    **Arguments:** `align`: one letter a column, l for left and r for right; default: the first column left, the others right.
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
    """Return a name with a few words in small type below it."""
    return span(name, element("small", more) if more else None, class_="named")


@dataclass(frozen=True)
class Bar:
    """Bar of a budget.

    **Arguments:**

    - `name`: name of the budget.
    - `used`, `limit`, `unit`: amounts in SI and their unit; `used` is None where unknown.
    - `worth`: marginal value of the budget in words.
    - `binds`: whether the budget is binding.
    """

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
    """Return a list of budget bars; a mark shows the limit."""
    if not bars:
        return p("The question has no budget.")
    longest = _LONGEST if any(each.is_over for each in bars) else 1.0
    return element("ul", (_budget(each, longest) for each in bars), class_="budgets")


def _budget(each: Bar, longest: float) -> Html:
    percent = "" if each.used is None else f"{100 * each.share:.2f} %"
    used = "-" if each.used is None else pretty(each.used, each.unit)
    excess = 100 * (each.share - 1)
    words = f"over by {excess:{',.0f' if excess >= 100 else '.3g'}} %" if each.is_over else each.worth
    name = element("strong", budget_words(each.name), span("binds", class_="badge") if each.binds else None)
    width = f"width:{100 * min(each.share, longest) / longest:.2f}%"
    bar = span(class_="over" if each.is_over else "used", style=width), element("i", style=f"left:{100 / longest:.2f}%")
    return li(
        div(name, span(f"{used} of {pretty(each.limit, each.unit)}, ", element("b", percent)), class_="said"),
        div(bar, class_="bar", role="img", aria_label=f"{percent} of the limit used"),
        p(words, class_="warn" if each.is_over else "worth") if words else None,
    )


def words(name: str, unit: str) -> str:
    """Return the customary name of a variable or metric: `HBM bandwidth` for `hbm_bandwidth_bytes_per_s`."""
    return re.sub(r"\b(hbm|mfu|hfu|sram)\b", lambda short: short.group().upper(), label(name, unit))


_PLAIN = frozenset({"", "chip", "sequence", "of nominal", "stack", "die"})
"""Units that the name of a variable already implies."""


def amount(value: float | None, unit: str, digits: int = 4) -> str:
    """Return the formatted value of a variable, for display next to its name."""
    if value is None:
        return ""
    if unit == "m2" and value < 1e-2:
        return f"{1e6 * value:,.{digits}g} mm2"
    if unit in _PLAIN and abs(value) >= 1e3:
        return f"{value:,.0f}"
    return pretty(value, "" if unit in _PLAIN else unit, digits)


def part_shade(name: str) -> str:
    """Return the CSS variable with the color of a component of the step time or of the cost."""
    kind = "part-" if name in PARTS else "money-" if name in MONEY else ""
    return f"var(--{kind}{name})" if kind else "var(--other)"


def part_named(name: str) -> Html:
    """Return the name of a component of the step time or of the cost, with a swatch of its color."""
    return span(swatch(part_shade(name)), step_label(name))


def parts(label: str, rows: Sequence[tuple[str, str, float]]) -> Html:
    """Return a breakdown as a stacked bar and a table. **Arguments:** `rows`: (name, amount, share), the largest first."""
    shares = [f"{step_label(name)} {100 * share:.1f} %" for name, _, share in rows]
    stack = (
        span(
            element("em", f"{100 * share:.0f} %") if share >= _READABLE else None,
            style=f"width:{100 * share:.3f}%;background:{part_shade(name)}",
            title=f"{step_label(name)}: {amount + ', ' if amount else ''}{100 * share:.1f} %",
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
    """Return a swatch of a color. It is decorative: the words next to it say what the color means."""
    return element("i", class_="swatch", style=f"background:{colour}", aria_hidden="true")
