"""Cases of which each commit looks at another share: seeds and places follow `turn`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.tiers import turn


def rotated(cases: Iterable[Any], every: int) -> list[Any]:
    """Parameters of a test: one in `every` by default, another one at the next commit; the rest are marked `search`."""
    now = turn() % every
    marked = lambda case: pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.search)
    return [case if place % every == now else marked(case) for place, case in enumerate(cases)]


def shared_out(cases: Iterable[Any], every: int) -> list[Any]:
    """One in `every` of the cases, the next commit others: of searches that are too many even for the search tier."""
    return list(cases)[turn() % every :: every]


def one_in(every: int, place: int) -> Callable[[Any], Any]:
    """Decorator of a test that is a default one at each commit in so many, and in the search tier at all others."""
    return (lambda test: test) if turn() % every == place else pytest.mark.search
