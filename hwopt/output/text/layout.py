"""Layout shared by all text screens: titles, bars, lines of budgets."""

import textwrap
from collections.abc import Iterable, Sequence

from hwopt import escape
from hwopt.units import pretty

MODEL_ONLY = "a statement about the model, not about real hardware"
"""Caveat printed with every proof: it is about the model, not about real hardware."""

REPRODUCE = "hwopt estimate --design ANSWER.json"
"""Command that evaluates an answer again. ANSWER.json is the output of a command with `--json`."""

REPRODUCED = f"  reproduce: {REPRODUCE}, where ANSWER.json is this answer with --json"

_BAR = 24  # characters of a bar


def bar(share: float) -> str:
    """Return a share between 0 and 1 as a bar of characters; other shares are clipped."""
    filled = round(_BAR * min(max(share, 0.0), 1.0))
    return "#" * filled + "." * (_BAR - filled)


def heading(text: str) -> list[str]:
    """Return the lines of a section's title."""
    return ["", escape.line(text), "-" * len(escape.line(text))]


def fact(name: str, text: str) -> str:
    """Return a line of a text screen: the name, padded to 14 characters, then the text.

    The line is indented by two spaces and has no line break. Characters that cannot be printed are escaped.
    """
    return escape.line(f"  {name:<14} {text}")


def part_lines(parts: Iterable[tuple[str, str, float]], name: int = 14, amount: int = 10) -> list[str]:
    """Return a line with a bar for each component of a whole.

    **Arguments:**

    - `parts`: (name, amount, share).
    - `name` and `amount`: column widths in characters.
    """
    return [f"  {what:<{name}} {much:>{amount}}  {bar(share)} {100 * share:5.1f} %" for what, much, share in parts]


def wrapped(text: str, first: str = "  ", later: str | None = None) -> str:
    """Return a sentence wrapped to the width of a terminal.

    **Arguments:** `first` and `later`: prefixes of the first and the later lines.
    """
    later = first if later is None else later
    return textwrap.fill(text, 118, initial_indent=first, subsequent_indent=later, break_on_hyphens=False)


def listed(parts: Sequence[str], first: str = "  ", later: str | None = None) -> str:
    """Return a comma-separated list, wrapped between its items only. **Arguments:** `first` and `later` as in `wrapped`."""
    together = ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)
    return wrapped(together, first, later).replace("\N{NO-BREAK SPACE}", " ")


def budget_words(name: str) -> str:
    """Return the name of a budget without its unit: `power budget` for `power_budget_w`."""
    stem, budget, _ = name.partition("_budget")
    return f"{stem}{' budget' if budget else ''}".replace("_", " ")


def budget_line(name: str, used: float, limit: float, unit: str, more: str) -> str:
    """Return a line with the use of a budget, followed by the text `more`."""
    share = used / limit
    amounts = f"{pretty(used, unit):>11} of {pretty(limit, unit):<10}"
    return f"  {name:<20} {amounts} {bar(share)} {100 * share:6.2f} %  {more}".rstrip()


def design_line(name: str, value: float, unit: str, lower: float, upper: float, more: str = "") -> str:
    """Return a line with a design variable and its bounds, followed by the text `more`."""
    of_box = unit if unit in ("B", "B/s") else ""
    return f"  {name:<32} {pretty(value, unit):>14}   [{pretty(lower, of_box, 3)} .. {pretty(upper, of_box, 3)}]{more}"


def kind_line(name: str, word: str, words: Sequence[str]) -> str:
    """Return a line with a categorical design variable: its option, and all options."""
    return f"  {name:<32} {word:>14}   [{', '.join(words)}]"
