"""What all screens of text share: titles, bars, lines of budgets."""

import textwrap
from collections.abc import Iterable, Sequence

from hwopt import escape
from hwopt.units import pretty

MODEL_ONLY = "a statement about the model, not about silicon"
"""What every proof is."""

REPRODUCE = "hwopt estimate --design ANSWER.json"
"""Command that evaluates an answer again. ANSWER.json is what the command printed with `--json`."""

REPRODUCED = f"  reproduce: {REPRODUCE}, where ANSWER.json is this answer with --json"

_BAR = 24  # letters of a bar


def bar(share: float) -> str:
    """A share of 1 as a bar, cut at both ends."""
    filled = round(_BAR * min(max(share, 0.0), 1.0))
    return "#" * filled + "." * (_BAR - filled)


def heading(text: str) -> list[str]:
    """The lines above a section."""
    return ["", escape.line(text), "-" * len(escape.line(text))]


def fact(name: str, text: str) -> str:
    """A name and what is said of it, in a line."""
    return escape.line(f"  {name:<14} {text}")


def part_lines(parts: Iterable[tuple[str, str, float]], name: int = 14, amount: int = 10) -> list[str]:
    """Parts of a whole as (name, amount, share), a bar each; letters of their names and amounts."""
    return [f"  {what:<{name}} {much:>{amount}}  {bar(share)} {100 * share:5.1f} %" for what, much, share in parts]


def wrapped(text: str, first: str = "  ", later: str | None = None) -> str:
    """A sentence in lines that fit a terminal. **Arguments:** what the `first` line and `later` ones begin with."""
    later = first if later is None else later
    return textwrap.fill(text, 118, initial_indent=first, subsequent_indent=later, break_on_hyphens=False)


def listed(parts: Sequence[str], first: str = "  ", later: str | None = None) -> str:
    """Parts between commas, in lines that fit a terminal and break between parts only; indented as in `wrapped`."""
    together = ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)
    return wrapped(together, first, later).replace("\N{NO-BREAK SPACE}", " ")


def budget_words(name: str) -> str:
    """`power budget` for `power_budget_w`: the unit stands with the number."""
    stem, budget, _ = name.partition("_budget")
    return f"{stem}{' budget' if budget else ''}".replace("_", " ")


def budget_line(name: str, used: float, limit: float, unit: str, more: str) -> str:
    """What is used of a budget, and a few more words."""
    share = used / limit
    amounts = f"{pretty(used, unit):>11} of {pretty(limit, unit):<10}"
    return f"  {name:<20} {amounts} {bar(share)} {100 * share:6.2f} %  {more}".rstrip()


def design_line(name: str, value: float, unit: str, lower: float, upper: float, more: str = "") -> str:
    """A variable of a design in its box, and a few more words."""
    of_box = unit if unit in ("B", "B/s") else ""
    return f"  {name:<32} {pretty(value, unit):>14}   [{pretty(lower, of_box, 3)} .. {pretty(upper, of_box, 3)}]{more}"


def kind_line(name: str, word: str, words: Sequence[str]) -> str:
    """A variable of a design that stands for kinds: which, of which."""
    return f"  {name:<32} {word:>14}   [{', '.join(words)}]"


def store_lines(out: str) -> list[str]:
    """Where a store lies and what opens it."""
    return [
        "",
        escape.line(f'Store: {out}, which xarray.open_zarr("{out}") opens; the same command goes on or reads it.'),
    ]
