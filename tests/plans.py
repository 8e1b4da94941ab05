"""Searches for plans, and sensitivities, remembered by what they were asked: screens, JSON, pages and exports of one answer have
it searched once a worker."""

from __future__ import annotations

from typing import Any

import pytest

import hwopt.study.sensitivity
from hwopt.optim import plan_search
from tests import answers
from tests.answers import content

FOUND: dict[tuple, Any] = {}


@pytest.fixture
def plans_once(monkeypatch):
    """`best_plan` and `ranked_ways` that remember. Tests of the search itself do without."""
    for name in ("best_plan", "ranked_ways"):
        monkeypatch.setattr(plan_search, name, _once(getattr(plan_search, name), content))


def remember_sensitivities(monkeypatch) -> None:
    """Searches that remember, and sensitivities of what they found."""
    answers.remember(monkeypatch)
    monkeypatch.setattr(hwopt.study.sensitivity, "parameters_of", _once(hwopt.study.sensitivity.parameters_of, _same))


def _same(asked):
    """The identity of what was asked: solutions are large."""
    return tuple(map(id, asked)) if isinstance(asked, tuple) else content(asked)


def _once(search, key_of):
    def remembered(*asked, **named):
        """Without deadlines, of which tests have none that ends."""
        asked = tuple(each for each in asked if not getattr(each, "endless", False))
        key = search.__name__, key_of(asked), content(named)
        if key not in FOUND:
            FOUND[key] = asked, search(*asked, **named)  # held with what was asked: no other thing gets its identity
        return FOUND[key][1]

    return remembered
