"""Remembers plan searches and sensitivities: tests of screens, JSON, pages and exports share one search per worker."""

from __future__ import annotations

from typing import Any

import pytest

import hwopt.analysis.sensitivity
from hwopt.planning import plan_search
from tests import answers
from tests.answers import content

FOUND: dict[tuple, Any] = {}


@pytest.fixture
def plans_once(monkeypatch):
    """Remember `best_plan` and `ranked_splits`. Tests of the search itself leave this fixture out."""
    for name in ("best_plan", "ranked_splits"):
        monkeypatch.setattr(plan_search, name, _once(getattr(plan_search, name), content))


def remember_sensitivities(monkeypatch) -> None:
    """Remember searches, and the sensitivities of their solutions."""
    answers.remember(monkeypatch)
    monkeypatch.setattr(
        hwopt.analysis.sensitivity, "parameters_of", _once(hwopt.analysis.sensitivity.parameters_of, _same)
    )


def _same(asked):
    """Return identities as a key: solutions are large."""
    return tuple(map(id, asked)) if isinstance(asked, tuple) else content(asked)


def _once(search, key_of):
    def remembered(*asked, **named):
        """Leave deadlines out of the key: those of these tests never end."""
        asked = tuple(each for each in asked if not getattr(each, "endless", False))
        key = search.__name__, key_of(asked), content(named)
        if key not in FOUND:
            FOUND[key] = asked, search(*asked, **named)  # keeps the arguments alive: an identity is not reused
        return FOUND[key][1]

    return remembered
