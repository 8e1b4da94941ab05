"""Solves each question once per worker: a search is remembered by the content of its question.

Tests of what is made of an answer (screens, JSON, pages, prices) ask one of a few canonical questions. They take the fixture
`solved_once` and stand in the group of their question (`tests/groups.py`): the first has it solved, the others get its answer.
Tests of the search itself leave the fixture out. Nothing is written to disk.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

SEARCHES = ("solve_global", "certified_choice", "certified_portfolio")
"""What `hwopt.optimize` hands a question to, in its module."""

optimize = importlib.import_module("hwopt.solver.optimize")

ANSWERS: dict[tuple, Any] = {}


def content(value: Any) -> Any:
    """What two equal questions have in common, as something that can be a key of a dictionary."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value).__qualname__, *(
            content(getattr(value, each.name, None)) for each in dataclasses.fields(value)
        )
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        own = np.asarray(value)
        return own.shape, own.dtype.str, own.tobytes()
    if isinstance(value, Mapping):
        return tuple((content(name), content(each)) for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(content, value))
    if callable(value):
        return getattr(value, "__qualname__", repr(value))
    return content(vars(value)) if hasattr(value, "__dict__") else value


def once(search: Callable) -> Callable:
    """A search that remembers. One with a time limit, a progress bar or designs to start from is done again."""

    def remembered(asked: Any, *, deadline: Any = None, progress: bool = False, designs: Any = (), **how: Any) -> Any:
        if progress or len(designs) or not (deadline is None or deadline.endless):
            more = {"designs": designs} if len(designs) else {}
            return search(asked, deadline=deadline, progress=progress, **how, **more)
        key = search.__name__, content(dict(sorted(how.items()))), content(asked)
        if key not in ANSWERS:
            ANSWERS[key] = search(asked, **how)
        return ANSWERS[key]

    return remembered


def remember(monkeypatch) -> None:
    for name in SEARCHES:
        monkeypatch.setattr(optimize, name, once(getattr(optimize, name)))
