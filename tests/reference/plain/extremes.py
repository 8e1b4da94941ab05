"""Means of the extremes of many."""

from __future__ import annotations

import math


def largest_of(count: float) -> float:
    """Mean of the largest of so many normal numbers, in standard deviations."""
    x = math.log(count)
    return x * math.sqrt(2.0 / (x + 2.208))
