"""Boxes of integer points: corners of many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Boxes:
    """Boxes of integers: lower and upper corners, (box, coordinate) each, both inside."""

    low: np.ndarray
    high: np.ndarray

    def __len__(self) -> int:
        return len(self.low)

    def __getitem__(self, index: np.ndarray | slice) -> Boxes:
        return Boxes(self.low[index], self.high[index])

    @property
    def points(self) -> np.ndarray:
        """Which of them hold a single point."""
        return (self.low == self.high).all(axis=1)

    def some(self, most: int) -> Boxes:
        """At most so many of them, drawn without order: the same ones each time."""
        if len(self) <= most:
            return self
        return self[np.sort(np.random.default_rng(0).permutation(len(self))[:most])]

    @staticmethod
    def of_points(points: np.ndarray) -> Boxes:
        """Each point (point, coordinate) as a box of its own."""
        return Boxes(points, points)


def joined_boxes(boxes: Sequence[Boxes]) -> Boxes:
    """All of them in one."""
    return Boxes(np.concatenate([b.low for b in boxes]), np.concatenate([b.high for b in boxes]))
