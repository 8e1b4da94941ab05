"""What all screens of text share: titles, bars, lines of budgets."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from hwopt.units import pretty

BAR = 24
"""Letters of a bar."""


def bar(share: float) -> str:
    """A share of 1 as a bar, cut at both ends."""
    filled = round(BAR * min(max(share, 0.0), 1.0))
    return "#" * filled + "." * (BAR - filled)


def heading(text: str) -> list[str]:
    """The lines above a section."""
    return ["", text, "-" * len(text)]


def wrapped(text: str, first: str = "  ", later: str | None = None) -> str:
    """A sentence in lines that fit a terminal. **Arguments:** what the `first` line and `later` ones begin with."""
    later = first if later is None else later
    return textwrap.fill(text, 118, initial_indent=first, subsequent_indent=later, break_on_hyphens=False)


def listed(parts: Sequence[str], first: str = "  ", later: str | None = None) -> str:
    """Parts between commas, in lines that fit a terminal and break between parts only; indented as in `wrapped`."""
    return wrapped(", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts), first, later).replace(
        "\N{NO-BREAK SPACE}", " "
    )


def budget_line(name: str, used: float, limit: float, unit: str, more: str) -> str:
    """What is used of a budget, and a few more words."""
    share = used / limit
    return (
        f"  {name:<20} {pretty(used, unit):>11} of {pretty(limit, unit):<10} {bar(share)} {100 * share:6.2f} %  {more}"
    ).rstrip()


def design_line(name: str, value: float, unit: str, lower: float, upper: float, more: str = "") -> str:
    """A variable of a design in its box, and a few more words."""
    of_box = unit if unit in ("B", "B/s") else ""
    return f"  {name:<32} {pretty(value, unit):>14}   [{pretty(lower, of_box, 3)} .. {pretty(upper, of_box, 3)}]{more}"
