"""Cases of which each commit takes another share: seeds and places follow `turn`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from tests.tiers import turn


def rotated(cases: Iterable[Any], every: int) -> list[Any]:
    """Parameters of a test: one in `every` by default, another one at the next commit; the rest are marked `search`.

    **Arguments:** `cases`: values of one argument, or `pytest.param`s of several.
    """
    now = turn() % every
    return [case if place % every == now else _marked(case) for place, case in enumerate(cases)]


def _marked(case: Any) -> Any:
    several = case if isinstance(case, type(pytest.param())) else pytest.param(case)
    return several._replace(marks=[*several.marks, pytest.mark.search])


def shared_out(cases: Iterable[Any], every: int) -> list[Any]:
    """One in `every` of the cases, the next commit others: of searches that are too many even for the search tier."""
    return list(cases)[turn() % every :: every]


def sample(of: int, n: int) -> np.ndarray:
    """Return n of so many places in their order, drawn anew each turn: in time all are looked at."""
    return np.sort(np.random.default_rng(turn()).choice(of, n, replace=False))


def picked(cases: Iterable[Any], n: int) -> list[Any]:
    """Draw n of the cases as parameters of a test, others each turn, under ids that stay: `pick 0`."""
    cases = list(cases)
    return [pytest.param(cases[place], id=f"pick {k}") for k, place in enumerate(sample(len(cases), n))]


def one_in(every: int, place: int) -> Callable[[Any], Any]:
    """Decorator of a test that is a default one at each commit in so many, and in the search tier at all others."""
    return (lambda test: test) if turn() % every == place else pytest.mark.search
