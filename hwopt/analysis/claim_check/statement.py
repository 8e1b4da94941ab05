"""Stated claim about a machine and its run: its text, its numbers in SI units, and numbers derived from these alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from hwopt import catalog
from hwopt.catalog.schema import Record, parse
from hwopt.errors import UserError, collected
from hwopt.quantity import Quantity, quantities
from hwopt.workload.blueprint import StatedClaim

QUANTITIES: dict[str, Quantity] = {str(each.key): each for each in quantities(StatedClaim).values()}
"""Numbers that a claim may state, by their keys in its file."""

_KINDS = {
    "chip": "chips",
    "stack": "stacks",
    "site": "sites",
    "cooling": "cooling",
    "fabric": "fabrics",
    "scale_out": "links",
    "prices": "prices",
    "operation": "operations",
}

WHOLE = ("chips", "racks", "rack_chips", "global_batch", "sequence_length")
"""Numbers that must be integers."""

LEAST_ONE = ("pue", "oversubscription")
SHARES = ("mfu", "goodput", "communication")


@dataclass(frozen=True)
class Blueprint:
    """A claim's text and numbers (SI units) by key. Keys that it does not state are absent.

    **Arguments:**

    - `title`: title of the claim.
    - `words`, `numbers`: its settings in text and its numbers, as pairs (key, value).
    - `record`: catalog record that it was read from, with sources.
    """

    title: str
    words: tuple[tuple[str, str], ...]
    numbers: tuple[tuple[str, float], ...]
    record: Record

    @cached_property
    def _words(self) -> dict[str, str]:
        return dict(self.words)

    @cached_property
    def stated(self) -> dict[str, float]:
        """The stated numbers by key."""
        return dict(self.numbers)

    def word(self, key: str) -> str | None:
        """Return a setting given as text, such as the chip; None where it is not stated."""
        return self._words.get(key)

    def __getitem__(self, key: str) -> float:
        """Return a stated number, or NaN where it is not stated."""
        return self.stated.get(key, math.nan)

    def has(self, *keys: str) -> bool:
        """Return whether all of the given numbers are stated."""
        return all(key in self.stated for key in keys)

    def with_number(self, key: str, value: float) -> Blueprint:
        """Return the claim with another value of a stated number."""
        changed = tuple((name, value if name == key else old) for name, old in self.numbers)
        return replace(self, numbers=changed)

    def with_word(self, key: str, value: str) -> Blueprint:
        """Return the claim with another value of a text setting."""
        changed = tuple((name, value if name == key else old) for name, old in self.words)
        return replace(self, words=changed)

    # Numbers derived from the stated ones.

    @property
    def chips(self) -> float:
        """Return the number of chips: as stated, else racks times chips per rack, else chip hours over time."""
        if self.has("chips"):
            return self["chips"]
        if self.has("racks", "rack_chips"):
            return self["racks"] * self["rack_chips"]
        return round(self["chip_hours"] / self["time"]) if self.has("chip_hours", "time") else math.nan

    @property
    def time(self) -> float:
        """Return the time of the run in seconds: as stated, else chip hours over chips."""
        return self["time"] if self.has("time") else self["chip_hours"] / self.chips

    @property
    def batch_tokens(self) -> float:
        """Return the tokens of a step: as stated, else global batch times sequence length."""
        return self["batch_tokens"] if self.has("batch_tokens") else self["global_batch"] * self["sequence_length"]

    @property
    def tokens(self) -> float:
        """Return the tokens of the run: as stated, else steps times tokens of a step."""
        return self["tokens"] if self.has("tokens") else self["steps"] * self.batch_tokens


def blueprint_of(source: str | Path | Mapping[str, object]) -> Blueprint:
    """Read a claim from a name of the catalog, a path, or a dictionary of the same form.

    **Raises:** `UserError` with all errors in the claim.
    """
    if isinstance(source, Mapping):
        record = parse("blueprints", "blueprint", source, {}, "blueprint", own=True)
    else:
        record = catalog.record("blueprints", source)
    text = {name: value for name, value in record.text.items() if name not in ("note", "vendor")}
    wrong: list[str] = []
    for name, value in text.items():
        with collected(wrong):
            if not isinstance(value, str) or not value.strip():
                raise UserError(f"blueprint '{record.slug}': '{name}' must be text")
            _known(name, value)
    numbers = {name: each.si for name, each in record.quantities.items()}
    for name, value in numbers.items():
        with collected(wrong):
            _possible(name, value, record.slug)
    if not (numbers or wrong):
        known = ", ".join(sorted(QUANTITIES))
        wrong = [f"blueprint '{record.slug}' states no number: nothing to check; it may state {known}"]
    if wrong:
        raise UserError(*wrong)
    return Blueprint(
        record.title, tuple(sorted((k, str(v)) for k, v in text.items())), tuple(sorted(numbers.items())), record
    )


def _known(name: str, value: str) -> None:
    """Raise an error for a name that the catalog does not contain, and for an invalid plan."""
    if name in _KINDS:
        catalog.record(_KINDS[name], value)
    elif name == "workload":
        catalog.record("workloads", value)
    elif name == "plan":
        catalog.parse_plan(value)


def _possible(name: str, value: float, slug: str) -> None:
    """Raise `UserError` for a number outside its possible range."""
    said = f"blueprint '{slug}': '{name}' = {value:g}"
    if value <= 0.0:
        raise UserError(f"{said} must be above zero; leave it out if it is not stated")
    if name in WHOLE and value != round(value):
        raise UserError(f"{said} must be an integer")
    if name in LEAST_ONE and value < 1.0:
        raise UserError(f"{said} must be at least 1")
    if name in SHARES and value > 1.0:
        raise UserError(f'{said} must not exceed 1; write 0.41 or "41%"')
    if name == "chips" and value > 1e9:
        raise UserError(f"{said}: more than a billion chips")
