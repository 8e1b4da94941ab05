"""Searches for plans, remembered by what they were asked: screens, JSON and exports of one plan have it searched once a worker."""

from __future__ import annotations

from typing import Any

import pytest

from hwopt.optim import plan_search
from tests.answers import content

FOUND: dict[tuple, Any] = {}


@pytest.fixture
def plans_once(monkeypatch):
    """`best_plan` and `ranked_ways` that remember. Tests of the search itself do without."""
    for name in ("best_plan", "ranked_ways"):
        monkeypatch.setattr(plan_search, name, _once(getattr(plan_search, name)))


def _once(search):
    def remembered(*asked, **named):
        key = search.__name__, content(asked), content(named)
        if key not in FOUND:
            FOUND[key] = search(*asked, **named)
        return FOUND[key]

    return remembered
