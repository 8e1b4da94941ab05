"""Boxes: Cartesian products of integer ranges, stored as arrays of lower and upper corners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Boxes:
    """Batch of integer boxes: lower and upper corners, (box, coordinate) each, both included."""

    low: np.ndarray
    high: np.ndarray

    def __len__(self) -> int:
        return len(self.low)

    def __getitem__(self, index: np.ndarray | slice) -> Boxes:
        return Boxes(self.low[index], self.high[index])

    @property
    def points(self) -> np.ndarray:
        """(box,) mask of the boxes that contain a single point."""
        return (self.low == self.high).all(axis=1)

    @staticmethod
    def of_points(points: np.ndarray) -> Boxes:
        """Return each point (point, coordinate) as a box."""
        return Boxes(points, points)


def joined_boxes(boxes: Sequence[Boxes]) -> Boxes:
    """Return several batches of boxes as one."""
    return Boxes(np.concatenate([b.low for b in boxes]), np.concatenate([b.high for b in boxes]))
