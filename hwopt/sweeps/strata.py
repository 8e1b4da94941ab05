"""Nested boxes for importance sampling, and the weight of a variant drawn from them.

A point is drawn uniformly from box `k` with probability `share[k]`; box 0 is the whole unit cube. Its density is

    q(u) = sum of share[k] / volume[k] over the boxes that contain u,

constant between one box and the next. The density of uniform sampling is 1 everywhere. A variant whose innermost box is `k`
therefore has the weight `weight[k] = 1 / (share[0] / volume[0] + ... + share[k] / volume[k])`, at most `1 / share[0]`. It is
the number of uniformly drawn variants that it represents. Sums of weights estimate counts of uniform samples without bias,
wherever the boxes are.

**Source:** defensive mixtures of Hesterberg 1995; the balance heuristic of Veach and Guibas 1995, with the realized shares.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Strata:
    """Nested boxes of the unit cube, from the whole cube to the innermost box.

    **Arguments:** `names` of the coordinates; `low`, `high`: ends (level, coordinate), representable in float32.
    """

    names: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray

    @staticmethod
    def plain(names: Sequence[str]) -> "Strata":
        """Return the cube without inner boxes."""
        return Strata(tuple(names), np.zeros((1, len(names))), np.ones((1, len(names))))

    @staticmethod
    def nested(names: Sequence[str], low: np.ndarray, high: np.ndarray) -> "Strata":
        """Return the cube followed by boxes (level, coordinate), each widened to contain the next."""
        low = np.minimum.accumulate(np.asarray(low, np.float32)[::-1], axis=0)[::-1]
        high = np.maximum.accumulate(np.asarray(high, np.float32)[::-1], axis=0)[::-1]
        cube = np.zeros((1, len(names))), np.ones((1, len(names)))
        return Strata(tuple(names), np.concatenate([cube[0], low]), np.concatenate([cube[1], high]))

    def __len__(self) -> int:
        return len(self.low)

    @property
    def volumes(self) -> np.ndarray:
        """Volume of each box as a share of the cube."""
        return np.prod(self.high - self.low, axis=1)

    def weights(self, counts: np.ndarray) -> np.ndarray:
        """Return the weight of a variant by its innermost box. **Arguments:** `counts`: variants drawn from each box."""
        return 1.0 / np.cumsum(np.asarray(counts) / np.sum(counts) / self.volumes)

    def document(self) -> dict[str, Any]:
        """Return the boxes as plain data."""
        return {"coordinates": list(self.names), "low": self.low.tolist(), "high": self.high.tolist()}

    @staticmethod
    def of_document(document: Any) -> "Strata":
        """Read the output of `document`. **Raises:** `KeyError`, `TypeError` or `ValueError` for anything else."""
        names = tuple(document["coordinates"])
        low, high = (np.asarray(document[end], float).reshape(-1, len(names)) for end in ("low", "high"))
        if low.shape != high.shape or not len(low) or not (low < high).all():
            raise ValueError("boxes without room")
        return Strata(names, low, high)

    @cached_property
    def ends(self) -> np.ndarray:
        """Ends of all boxes as float32, (level, end, coordinate)."""
        return np.stack([self.low, self.high], axis=1).astype(np.float32)
