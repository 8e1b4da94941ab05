"""Inputs without their classes: a reference that reads a million fields should not wait for each."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np


def fields(tree: Any) -> Any:
    """A module as plain attributes, its numbers as Python floats, its vectors as arrays, its words as they are."""
    if dataclasses.is_dataclass(tree):
        return SimpleNamespace(**{each.name: fields(getattr(tree, each.name)) for each in dataclasses.fields(tree)})
    if tree is None or isinstance(tree, str):
        return tree
    return float(tree) if np.ndim(tree) == 0 else np.asarray(tree)
