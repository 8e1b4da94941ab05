"""What a claim is, what an audit finds, and the register of all."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

Verdict: TypeAlias = Literal["holds", "roughly", "fails", "cannot be decided"]
VERDICTS = ("holds", "roughly", "fails", "cannot be decided")
HOLDS_WITHIN, ROUGHLY_WITHIN = 1.15, 1.6  # factors between what is claimed and what is found


class Finding(NamedTuple):
    """What the model says of a claim: its figure with unit, a verdict, the arithmetic in a sentence."""

    figure: str
    verdict: Verdict
    arithmetic: str


class Claim(NamedTuple):
    """One claim of an article, and the audit that settles it."""

    id: str
    article: str  # article:line
    says: str
    audit: Callable[[], Finding]


REGISTER: dict[str, Claim] = {}


def claim(id: str, article: str, says: str) -> Callable[[Callable[[], Finding]], Callable[[], Finding]]:
    """Register the function below as the audit of a claim."""

    def register(audit: Callable[[], Finding]) -> Callable[[], Finding]:
        assert id not in REGISTER, f"two audits of {id}"
        REGISTER[id] = Claim(id, article, says, audit)
        return audit

    return register


def by_factor(found: float, claimed: float, holds: float = HOLDS_WITHIN, roughly: float = ROUGHLY_WITHIN) -> Verdict:
    """The verdict of a figure against a claimed one, by the factor between them, either way."""
    factor = max(found / claimed, claimed / found)
    return "holds" if factor <= holds else "roughly" if factor <= roughly else "fails"


def at_least(found: float, claimed: float, roughly: float = ROUGHLY_WITHIN) -> Verdict:
    """The verdict where a figure is claimed to be a floor; for a ceiling, exchange the two."""
    return "holds" if found >= claimed else "roughly" if found * roughly >= claimed else "fails"


def either(true: bool) -> Verdict:
    """The verdict of a statement that has no degrees."""
    return "holds" if true else "fails"


def half_right(*statements: bool) -> Verdict:
    """The verdict of a claim that says several things: it holds roughly where half of them or more are right."""
    return at_least(sum(statements), len(statements), roughly=2.0)


def in_order(ids) -> list[str]:
    """A1, A2, ..., A81, B1, ..., B38."""
    return sorted(ids, key=lambda id: (id[0], int(id[1:])))


def numbers(text: str) -> list[float]:
    """The numbers in a text, for comparison with another run's."""
    return [
        float(found.replace(",", "")) for found in re.findall(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?", text)
    ]
